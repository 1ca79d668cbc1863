package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/image"
	"github.com/elasticdl/elasticdl/trainer/source/folder"
)

// contents says what an image is made of: of a Go package, which is compiled, of a binary, or of a directory of Python and this program.
func (b *zooBuild) contents(cmd *cobra.Command, c *image.Config, work string, progress func(image.Progress)) error {
	info, err := os.Stat(b.path)
	if err != nil {
		return err
	}
	sources, _ := filepath.Glob(filepath.Join(b.path, "*.go"))
	if info.IsDir() && len(sources) == 0 {
		return b.python(cmd, c)
	}
	if len(b.binary) > 0 {
		return usage(fmt.Errorf("--binary=%s: goes with a directory of Python files, which PATH %s is not; drop it", strings.Join(b.binary, ","), b.path))
	}
	if info.IsDir() {
		c.Binaries, err = image.Compile(cmd.Context(), b.path, work, b.platforms, progress)
		return err
	}
	binary, err := image.Inspect(b.path)
	if err == nil && cmd.Flags().Changed("platform") && strings.Join(b.platforms, ",") != binary.Platform {
		err = usage(fmt.Errorf("--platform=%s: %s is for %s", strings.Join(b.platforms, ","), b.path, binary.Platform))
	}
	c.Binaries = []image.Binary{binary}
	return err
}

// python makes an image of a directory without a Go package.
func (b *zooBuild) python(cmd *cobra.Command, c *image.Config) error {
	_, module := os.Stat(filepath.Join(b.path, "go.mod"))
	code, err := folder.Read(b.path)
	if err != nil && !errors.Is(err, folder.ErrEmpty) {
		return usage(fmt.Errorf("PATH %s: %w", b.path, err))
	}
	script := func(e folder.Entry) bool { return strings.HasSuffix(e.Name, ".py") }
	if module == nil || err != nil || !slices.ContainsFunc(code.Entries, script) {
		return usage(fmt.Errorf("PATH %s: has no Go package, as elasticdl zoo init --model_zoo=DIR writes one, and no Python files", b.path))
	}
	if b.base == "" {
		return usage(fmt.Errorf("--base_image: expected an image that has Python and what the files in PATH %s import, as pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime", b.path))
	}
	c.Code = code
	c.Binaries, err = b.given(cmd.Flags().Changed("platform"))
	return usage(err)
}

// given are the binaries of --binary, or this one. Where no platform was asked for, they decide.
func (b *zooBuild) given(asked bool) (all []image.Binary, err error) {
	const flag = "give --binary=FILE, an elasticdl that was built for "
	if len(b.binary) == 0 {
		binary, err := image.Inspect(executable())
		switch {
		case err != nil:
			return nil, fmt.Errorf("--binary: this elasticdl cannot be in an image: %w; "+flag+"%s", err, strings.Join(b.platforms, ", "))
		case asked && !slices.Equal(b.platforms, []string{binary.Platform}):
			return nil, fmt.Errorf("--platform=%s: this elasticdl is for %s; "+flag+"each", strings.Join(b.platforms, ","), binary.Platform)
		}
		return []image.Binary{binary}, nil
	}
	var are []string
	for _, path := range b.binary {
		binary, err := image.Inspect(path)
		if err != nil {
			return nil, fmt.Errorf("--binary=%s: %w", path, err)
		}
		if slices.Contains(are, binary.Platform) {
			return nil, fmt.Errorf("--binary=%s: another one is for %s, too; expected one for each platform", path, binary.Platform)
		}
		all, are = append(all, binary), append(are, binary.Platform)
	}
	if want := slices.Sorted(slices.Values(b.platforms)); asked && !slices.Equal(want, slices.Sorted(slices.Values(are))) {
		return nil, fmt.Errorf("--platform=%s: --binary is for %s; expected one for each platform", strings.Join(b.platforms, ","), strings.Join(are, ", "))
	}
	return all, nil
}

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/run/folder"
	"github.com/elasticdl/elasticdl/trainer/runtime/image"
)

// contents sets the image's content: a Go package, which it compiles, a binary, or a directory of
// scripts together with an elasticdl binary.
func (b *zooBuild) contents(cmd *cobra.Command, c *image.Config, work string, progress func(image.Progress)) error {
	info, err := os.Stat(b.path)
	if err != nil {
		return err
	}
	sources, _ := filepath.Glob(filepath.Join(b.path, "*.go"))
	if info.IsDir() && len(sources) == 0 {
		return b.files(cmd, c)
	}
	if len(b.binary) > 0 {
		return command.Usage(fmt.Errorf("--binary=%s: requires a directory of scripts, but PATH %s is "+
			"none; remove it", strings.Join(b.binary, ","), b.path))
	}
	if info.IsDir() {
		c.Binaries, err = image.Compile(cmd.Context(), b.path, work, b.platforms, progress)
		return err
	}
	binary, err := image.Inspect(b.path)
	if err == nil && cmd.Flags().Changed("platform") && strings.Join(b.platforms, ",") != binary.Platform {
		err = command.Usage(fmt.Errorf("--platform=%s: %s is for %s",
			strings.Join(b.platforms, ","), b.path, binary.Platform))
	}
	c.Binaries = []image.Binary{binary}
	return err
}

// files sets the content of an image to the files of a directory without a Go package, such as
// scripts, and an elasticdl binary for each platform.
func (b *zooBuild) files(cmd *cobra.Command, c *image.Config) error {
	_, module := os.Stat(filepath.Join(b.path, "go.mod"))
	if module == nil {
		return command.Usage(fmt.Errorf("PATH %s: has a go.mod and no Go package; expected the directory of "+
			"the main package, as elasticdl zoo init --model_zoo=DIR writes one", b.path))
	}
	code, err := folder.Read(b.path)
	if errors.Is(err, folder.ErrEmpty) {
		err = fmt.Errorf("%w; expected a Go package, as elasticdl zoo init --model_zoo=DIR writes one, or scripts", err)
	}
	if err != nil {
		return command.Usage(fmt.Errorf("PATH %s: %w", b.path, err))
	}
	if b.base == "" {
		return command.Usage(fmt.Errorf("--base_image: PATH %s has no Go package; expected an image that "+
			"has what its files need: Python and what they import, as "+
			"pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime, or a shell, as debian:stable-slim", b.path))
	}
	c.Code = code
	c.Binaries, err = b.given(cmd.Flags().Changed("platform"))
	return command.Usage(err)
}

// given returns the binaries of --binary, or this one. asked: their platforms must be those of
// --platform.
func (b *zooBuild) given(asked bool) (all []image.Binary, err error) {
	const flag = "give --binary=FILE, an elasticdl that was built for "
	if len(b.binary) == 0 {
		binary, err := image.Inspect(executable())
		switch {
		case err != nil:
			return nil, fmt.Errorf("--binary: this elasticdl cannot be in an image: %w; "+flag+"%s",
				err, strings.Join(b.platforms, ", "))
		case asked && !slices.Equal(b.platforms, []string{binary.Platform}):
			return nil, fmt.Errorf("--platform=%s: this elasticdl is for %s; "+flag+"each",
				strings.Join(b.platforms, ","), binary.Platform)
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
			return nil, fmt.Errorf("--binary=%s: another one is for %s, too; expected one for each "+
				"platform", path, binary.Platform)
		}
		all, are = append(all, binary), append(are, binary.Platform)
	}
	if want := slices.Sorted(slices.Values(b.platforms)); asked &&
		!slices.Equal(want, slices.Sorted(slices.Values(are))) {
		return nil, fmt.Errorf("--platform=%s: --binary is for %s; expected one for each platform",
			strings.Join(b.platforms, ","), strings.Join(are, ", "))
	}
	return all, nil
}

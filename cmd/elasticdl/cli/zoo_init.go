package cli

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/runtime/image"
)

// scaffold holds the files of zoo init: a Go module.
//
//go:embed scaffold
var scaffold embed.FS

// recipeFile is the file with the arguments of zoo init, for zoo build. In ElasticDL it was a
// Dockerfile.
const recipeFile = "elasticdl.json"

// recipe is the content of recipeFile.
type recipe struct {
	ModelZoo  string `json:"model_zoo"`            // directory, relative to the file
	BaseImage string `json:"base_image,omitempty"` // "": none
}

// zooInit holds the arguments of zoo init.
type zooInit struct {
	zoo, base, local, pypi, spec string
	// --local_pkg_dir, if it may hold ElasticDL's Python packages instead of a checkout
	packages string
}

func zooInitCommand() *cobra.Command {
	var z zooInit
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a Go module with an example model",
		Long: `Write a Go module with an example model, and elasticdl.json with its location for zoo build.

Without --local_pkg_dir the module requires the ElasticDL release of this binary. A binary of
"make build" has no release: then the module is built with the checkout that contains the binary,
or else the working directory.

An existing module is not changed. The binary of such a module is elasticdl with the models listed
in its main package: "go run . train --runtime=local …" trains them on this machine, zoo build
makes the image for a cluster.`,
		Example: "  elasticdl zoo init --model_zoo=model_zoo\n" +
			"  elasticdl zoo init --model_zoo=model_zoo --base_image=debian:stable-slim --local_pkg_dir=../elasticdl",
		Args: func(_ *cobra.Command, args []string) error { return errors.Join(atMost(0, args), z.check()) },
		RunE: command.Does(func(cmd *cobra.Command, _ []string) error { return z.run(cmd) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&z.zoo, "model_zoo", "model_zoo", "directory of the module")
	flags.StringVar(&z.base, "base_image", "", "base image for zoo build; default: none")
	flags.StringVar(&z.local, "local_pkg_dir", "",
		"checkout of ElasticDL, or a directory in it, to use instead of the release; no effect for Python packages")
	flags.StringVar(&z.pypi, "extra_pypi_index", "", "no effect: Go modules come from GOPROXY")
	flags.StringVar(&z.spec, "cluster_spec", "", "no effect: see elasticdl train --cluster_spec")
	return cmd
}

// check returns all mistakes in the flags.
func (z *zooInit) check() error {
	var problems []error
	if z.zoo == "" {
		problems = append(problems, errors.New("--model_zoo: expected a directory"))
	} else if info, err := os.Stat(z.zoo); err == nil && !info.IsDir() {
		problems = append(problems, fmt.Errorf("--model_zoo=%s: expected a directory, found a file", z.zoo))
	}
	if z.base != "" {
		if err := image.CheckReference(z.base); err != nil {
			problems = append(problems, fmt.Errorf("--base_image=%s: %w", z.base, err))
		}
	}
	if err := z.findCheckout(command.Release(), executable()); err != nil {
		problems = append(problems, err)
	}
	if _, err := os.Stat(z.spec); z.spec != "" && err != nil {
		problems = append(problems, fmt.Errorf("--cluster_spec=%s: %w", z.spec, errors.Unwrap(err)))
	}
	return errors.Join(problems...)
}

// findCheckout sets --local_pkg_dir to the top of the checkout that contains it. If it is not
// given, or is in no checkout, and version is no release, it is the checkout that contains the
// binary, or else the one that contains the working directory. An existing module needs none.
func (z *zooInit) findCheckout(version, binary string) error {
	if z.local != "" {
		top, ok := checkoutOf(z.local)
		if ok {
			z.local = top
			return nil
		}
		if err := mayHavePackages(z.local); err != nil {
			return fmt.Errorf("--local_pkg_dir=%s: expected a checkout of %s, or a directory in it; %w",
				z.local, command.ModulePath, err)
		}
		z.packages, z.local = z.local, ""
	}
	if version != "dev" || z.exists() {
		return nil
	}
	for _, from := range []string{filepath.Dir(binary), "."} {
		if top, ok := checkoutOf(from); ok {
			z.local = fromHere(top)
			return nil
		}
	}
	return errors.New("--local_pkg_dir: expected the checkout that this elasticdl was built from: it " +
		"is no release, and neither the binary nor the working directory is in that checkout")
}

// mayHavePackages returns an error if a directory cannot be a --local_pkg_dir of ElasticDL: a
// directory with Python packages for the image. It need not exist, since nothing is read from it.
func mayHavePackages(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return errors.Unwrap(err)
	case !info.IsDir():
		return errors.New("found a file")
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return fmt.Errorf("found the Go module %q", strings.TrimPrefix(first, "module "))
}

// checkoutOf returns the top of the checkout of ElasticDL that contains a directory. It is relative
// if the directory is.
func checkoutOf(dir string) (string, bool) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", false
	}
	for up := 0; ; up++ {
		text, err := os.ReadFile(filepath.Join(absolute, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module "+command.ModulePath+"\n")) {
			return filepath.Join(dir, strings.Repeat("../", up)), true
		}
		parent := filepath.Dir(absolute)
		if parent == absolute {
			return "", false
		}
		absolute = parent
	}
}

// fromHere returns a path relative to the working directory, so that a module that is built with it
// contains no directory above both. A working directory behind symbolic links makes relative paths
// unreliable: then the path is unchanged.
func fromHere(path string) string {
	here, err := os.Getwd()
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	if real, err := filepath.EvalSymlinks(here); err != nil || real != here {
		return path
	}
	if rel, err := filepath.Rel(here, path); err == nil {
		return rel
	}
	return path
}

// executable returns the path of this binary, with symbolic links resolved.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path
}

// exists reports whether the module exists.
func (z *zooInit) exists() bool {
	_, err := os.Stat(filepath.Join(z.zoo, "go.mod"))
	return err == nil
}

// notes returns a line for each given flag that has no effect, with the reason.
func (z *zooInit) notes() (notes []string) {
	switch {
	case z.packages != "":
		notes = append(notes, fmt.Sprintf("--local_pkg_dir=%s has no checkout of %s; an image needs "+
			"no Python packages of ElasticDL, and every image has AllReduce", z.packages, command.ModulePath))
	case z.local != "" && z.exists():
		notes = append(notes, fmt.Sprintf("--local_pkg_dir=%s; the module %s exists", z.local, z.zoo))
	}
	if z.pypi != "" {
		notes = append(notes, fmt.Sprintf("--extra_pypi_index=%s; Go modules come from GOPROXY", z.pypi))
	}
	if z.spec != "" {
		notes = append(notes, fmt.Sprintf("--cluster_spec=%s; an image holds none, and Python is "+
			"not run: give YAML or JSON that completes the pods to elasticdl train --cluster_spec=FILE", z.spec))
	}
	return notes
}

func (z *zooInit) run(cmd *cobra.Command) error {
	for _, note := range z.notes() {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: no effect: %s\n", note)
	}
	what := "already exists, left unchanged"
	if !z.exists() {
		if what = "written"; z.local != "" {
			what = "written, to be built with the checkout " + z.local
		}
		if err := z.write(); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(recipe{ModelZoo: filepath.ToSlash(z.zoo), BaseImage: z.base}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(recipeFile, append(text, '\n'), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(),
		"%s %s; now: elasticdl zoo build --image=REGISTRY/elasticdl:mnist .\n", z.zoo, what)
	return err
}

// write creates the module. It changes nothing if one of its files exists.
func (z *zooInit) write() error {
	m, err := z.module()
	if err != nil {
		return err
	}
	files, values := make(map[string][]byte), m.values()
	err = fs.WalkDir(scaffold, "scaffold", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := scaffold.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "scaffold/"), ".tmpl")
		if name == "gitignore" {
			name = ".gitignore"
		}
		file := strings.TrimSpace(values.Replace(string(text))) + "\n"
		files[filepath.Join(z.zoo, filepath.FromSlash(name))] = []byte(file)
		return nil
	})
	if err != nil {
		return err
	}
	if m.sums != nil {
		files[filepath.Join(z.zoo, "go.sum")] = m.sums
	}
	return writeNew(files)
}

// writeNew writes files, none of which may exist.
func writeNew(files map[string][]byte) error {
	var problems []error
	for path := range files {
		if _, err := os.Lstat(path); err == nil {
			problems = append(problems, fmt.Errorf("%s already exists", path))
		}
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return errors.Join(problems...)
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moduleText holds the module's values for the templates.
type moduleText struct {
	Module, Go, Path, Version string
	// directory of a checkout; "": none
	Replace string
	// "path version" of each module that the checkout requires
	Requires []string
	// go.sum, with a checkout
	sums []byte
}

// values returns the replacements of the names of values in the templates. Package text/template
// would do it, but looks up methods by reflection: the linker would keep all exported methods of
// the program, a third of its size.
func (m *moduleText) values() *strings.Replacer {
	var replace, requires string
	if m.Replace != "" {
		replace = fmt.Sprintf("\nreplace %s => %s\n", m.Path, m.Replace)
	}
	if len(m.Requires) > 0 {
		requires = "\nrequire (\n\t" + strings.Join(m.Requires, " // indirect\n\t") + " // indirect\n)\n"
	}
	return strings.NewReplacer("{{.Module}}", m.Module, "{{.Go}}", m.Go, "{{.Path}}", m.Path,
		"{{.Version}}", m.Version, "{{.Replace}}", replace, "{{.Requires}}", requires)
}

// notInPaths matches characters that are not allowed in the path of a module.
var notInPaths = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// module returns the values of the new module. With a checkout it requires exactly the modules of
// the checkout, so that it can be built offline.
func (z *zooInit) module() (*moduleText, error) {
	dir, err := filepath.Abs(z.zoo)
	if err != nil {
		return nil, err
	}
	m := &moduleText{Path: command.ModulePath, Version: command.Release(),
		Go: strings.TrimPrefix(runtime.Version(), "go")}
	if m.Module = strings.Trim(notInPaths.ReplaceAllString(filepath.Base(dir), "_"), "._-"); m.Module == "" {
		m.Module = "model_zoo"
	}
	if z.local == "" {
		return m, nil
	}
	m.Version = "v0.0.0"
	if m.Replace, err = z.checkout(dir); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(z.local, "go.mod"))
	if err != nil {
		return nil, err
	}
	m.Go, m.Requires = requirements(string(text))
	m.sums, err = os.ReadFile(filepath.Join(z.local, "go.sum"))
	return m, err
}

// checkout returns --local_pkg_dir relative to the module, or absolute if it was given so.
func (z *zooInit) checkout(dir string) (string, error) {
	if filepath.IsAbs(z.local) {
		return filepath.Clean(z.local), nil
	}
	local, err := filepath.Abs(z.local)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(dir, local)
	if err != nil {
		return "", err
	}
	if rel = filepath.ToSlash(rel); !strings.HasPrefix(rel, "../") && rel != ".." {
		rel = "./" + rel
	}
	return rel, nil
}

// requirements returns the version of Go and the modules, "path version" each, that a go.mod
// requires.
func requirements(text string) (version string, modules []string) {
	in := false
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " //")
		fields := strings.Fields(line)
		switch {
		case line == "require (":
			in = true
		case line == ")":
			in = false
		case in && len(fields) == 2:
			modules = append(modules, line)
		case len(fields) == 2 && fields[0] == "go":
			version = fields[1]
		case len(fields) == 3 && fields[0] == "require":
			modules = append(modules, fields[1]+" "+fields[2])
		}
	}
	return version, modules
}

// readRecipe reads the recipeFile of a directory; nil: there is none.
func readRecipe(dir string) (*recipe, error) {
	path := filepath.Join(dir, recipeFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(recipe)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if r.ModelZoo == "" {
		return nil, fmt.Errorf("read %s: model_zoo: expected the directory of the module", path)
	}
	return r, nil
}

package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// recipe is the file that `elasticdl zoo init` writes for zoo build.
const recipe = "elasticdl.json"

// elasticdl is its main package, with which zoo build compiles that of the agent.
const elasticdl = "github.com/elasticdl/elasticdl/cmd/elasticdl"

// Hash returns the SHA-256 of everything that goes into an image, so that it changes if and only if
// one of these changes:
//
//   - of every package that is linked for one of the platforms, of whatever module: the files that
//     are compiled or embedded; for elasticdl itself also of those of the agent in it;
//   - of the modules of these packages: path, version, replacement, and the version of the
//     language; other modules do not count;
//   - of Go: its version, the settings of the compiler, and the settings of //go:debug and of
//     godebug lines in go.mod;
//   - the names of the base and of the platforms.
//
// A source that is a file is a binary that is copied into the image. Two inputs are not hashed
// although they go in: the content of the base image when its name stays the same, and the
// certificate authorities of the machine that builds.
//
// The list of packages comes from `go list`: its errors are about the source, such as a missing
// module.
func Hash(ctx context.Context, source, base string, platforms []string) (string, error) {
	sum := sha256.New()
	info, err := os.Stat(source)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		fmt.Fprintf(sum, "%q %q\n", base, platforms)
		err := add(sum, "binary", source)
		return fmt.Sprintf("%x", sum.Sum(nil)), err
	}
	source, base, err = follow(source, base)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(sum, "%q %q\n", base, platforms)
	for _, platform := range platforms {
		if err := linked(ctx, sum, source, strings.TrimPrefix(platform, "linux/")); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// follow returns the source directory and the base image that the file of zoo init names, as zoo
// build does. A given base takes precedence over that of zoo init.
func follow(dir, base string) (string, string, error) {
	text, err := os.ReadFile(filepath.Join(dir, recipe))
	if errors.Is(err, fs.ErrNotExist) {
		return dir, base, nil
	}
	var r struct {
		ModelZoo  string `json:"model_zoo"`
		BaseImage string `json:"base_image"`
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return "", "", fmt.Errorf("read %s: %w", recipe, err)
	}
	zoo := filepath.FromSlash(r.ModelZoo)
	if !filepath.IsAbs(zoo) {
		zoo = filepath.Join(dir, zoo)
	}
	return zoo, cmp.Or(base, r.BaseImage), nil
}

// goSettings lists, for an architecture, the environment variables of `go env` that change what is
// compiled.
var goSettings = map[string][]string{
	"amd64": {"GOVERSION", "GOEXPERIMENT", "GOFIPS140", "GOAMD64"},
	"arm64": {"GOVERSION", "GOEXPERIMENT", "GOFIPS140", "GOARM64"},
}

// listed is a package of the program, as `go list -json` prints it.
type listed struct {
	Dir, ImportPath, Name, DefaultGODEBUG                 string
	Standard                                              bool
	GoFiles, SFiles, HFiles, SysoFiles, EmbedFiles, Match []string
	Module                                                *module
}

type module struct {
	Path, Version, GoVersion string
	Replace                  *module
}

// linked adds to the hash all packages that are linked for an architecture.
func linked(ctx context.Context, sum hash.Hash, dir, arch string) error {
	settings := goSettings[arch]
	out, err := askGo(ctx, dir, arch, append([]string{"env", "GOMOD", "GOFLAGS"}, settings...)...)
	if err != nil {
		return err
	}
	values := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if values[0] == "" || values[0] == os.DevNull {
		return errors.New("expected a Go module, as elasticdl zoo init --model_zoo=DIR writes one: there is no go.mod")
	}
	// these flags do not change what is compiled
	flags := slices.DeleteFunc(strings.Fields(values[1]), func(flag string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		return slices.Contains([]string{"mod", "modfile", "modcacherw", "buildvcs", "trimpath", "v", "x", "p"}, name)
	})
	fmt.Fprintf(sum, "%s %q %q %q\n", arch, settings, values[2:], flags)
	return packages(ctx, sum, dir, arch, ".")
}

// packages adds to the hash all packages that are linked into a program.
func packages(ctx context.Context, sum hash.Hash, dir, arch, program string) error {
	out, err := askGo(ctx, dir, arch, "list", "-buildvcs=false", "-deps",
		"-json=Dir,ImportPath,Name,DefaultGODEBUG,Standard,GoFiles,SFiles,HFiles,SysoFiles,EmbedFiles,Match,Module",
		program)
	if err != nil {
		return fmt.Errorf("expected a Go program that can be built: %w", err)
	}
	for stream := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := stream.Decode(&p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what go list prints: %w", err)
		}
		if len(p.Match) > 0 && p.Name != "main" {
			return fmt.Errorf("expected a Go program, as elasticdl zoo init --model_zoo=DIR writes "+
				"one: %s is package %s, not main", p.ImportPath, p.Name)
		}
		if err := p.add(sum); err != nil {
			return err
		}
		if len(p.Match) > 0 && p.ImportPath == elasticdl {
			if err := packages(ctx, sum, dir, arch, elasticdl+"-agent"); err != nil {
				return err
			}
		}
	}
}

// add adds a package to the hash. Go's version covers the packages of the standard library.
func (p *listed) add(sum hash.Hash) error {
	if p.Standard {
		return nil
	}
	fmt.Fprintf(sum, "package %q %q\n", p.ImportPath, p.DefaultGODEBUG)
	for m := p.Module; m != nil; m = m.Replace {
		fmt.Fprintf(sum, "module %q %q %q\n", m.Path, m.Version, version.Lang("go"+m.GoVersion))
	}
	files := slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.SysoFiles, p.EmbedFiles)
	// the profile for profile-guided optimization
	const profile = "default.pgo"
	if _, err := os.Stat(filepath.Join(p.Dir, profile)); err == nil && len(p.Match) > 0 {
		files = append(files, profile)
	}
	for _, name := range files {
		if err := add(sum, filepath.ToSlash(name), filepath.Join(p.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// add adds a file to the hash, under a name.
func add(sum hash.Hash, name, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(sum, "%q %d\n", name, len(text))
	sum.Write(text)
	return nil
}

// askGo runs go in a directory, with the environment of zoo build: for Linux, without cgo.
func askGo(ctx context.Context, dir, arch string, args ...string) ([]byte, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, errors.New("the image is compiled from Go source, and Go is not in PATH: " +
			"https://go.dev/dl has it")
	}
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = dir
	c.Env = append(c.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	out, err := c.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return nil, errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

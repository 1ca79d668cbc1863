package image

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// recipe is what `elasticdl zoo init` leaves for zoo build.
const recipe = "elasticdl.json"

// Hash is that of all that goes into an image: the files of the Go package in source and of those that it imports, from its
// module and from directories that replace others, with their go.mod and go.sum, which say what the rest is; the name of
// the base, and the platforms. Beside Go's own version and the certificate authorities of the machine that builds, and
// what a base becomes under the same name, nothing else goes in.
func Hash(source, base string, platforms []string) (string, error) {
	files, err := sources(source, platforms)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q\n", base, platforms)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name, err := filepath.Rel(source, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(name), len(text))
		sum.Write(text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// sources are the files that the image of a directory is made of.
func sources(dir string, platforms []string) (map[string]bool, error) {
	t := tree{files: make(map[string]bool), modules: make(map[string]string), seen: make(map[string]bool)}
	if text, err := os.ReadFile(filepath.Join(dir, recipe)); err == nil {
		var r struct {
			ModelZoo string `json:"model_zoo"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", recipe, err)
		}
		t.files[filepath.Join(dir, recipe)] = true
		if dir = filepath.Join(dir, filepath.FromSlash(r.ModelZoo)); filepath.IsAbs(r.ModelZoo) {
			dir = r.ModelZoo
		}
	}
	if err := t.module(dir); err != nil {
		return nil, err
	}
	for _, p := range platforms {
		t.context = build.Default
		t.context.GOOS, t.context.CgoEnabled = "linux", false
		t.context.GOARCH, _, _ = strings.Cut(strings.TrimPrefix(p, "linux/"), "/")
		clear(t.seen)
		if err := t.add(dir); err != nil {
			return nil, fmt.Errorf("expected a Go program, as elasticdl zoo init --model_zoo=DIR writes one: %w", err)
		}
	}
	return t.files, nil
}

// tree is what is found of a program.
type tree struct {
	context build.Context
	modules map[string]string // directories of modules that are here, by their paths
	files   map[string]bool
	seen    map[string]bool // directories of packages
}

// module reads the go.mod that a directory is under.
func (t *tree) module(dir string) error {
	root := dir
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(root) != root {
		root = filepath.Dir(root)
		text, err = os.ReadFile(filepath.Join(root, "go.mod"))
	}
	if err != nil {
		return errors.New("expected a Go module, as elasticdl zoo init --model_zoo=DIR writes one: there is no go.mod")
	}
	t.lists(root)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "//")
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "replace "))
		if strings.HasPrefix(line, "module ") && len(fields) == 2 {
			t.modules[strings.Trim(fields[1], `"`)] = root
		}
		if to := slices.Index(fields, "=>"); to > 0 && to == len(fields)-2 { // a directory has no version
			where := filepath.FromSlash(strings.Trim(fields[to+1], `"`))
			if !filepath.IsAbs(where) {
				where = filepath.Join(root, where)
			}
			t.modules[fields[0]] = where
			t.lists(where)
		}
	}
	return nil
}

// lists adds what says which modules there are.
func (t *tree) lists(root string) {
	for _, name := range []string{"go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			t.files[filepath.Join(root, name)] = true
		}
	}
}

// add adds the files of a package, and those of what it imports from here. What that lacks the compiler reports.
func (t *tree) add(dir string) error {
	if t.seen[dir] {
		return nil
	}
	t.seen[dir] = true
	p, err := t.context.ImportDir(dir, 0)
	if err != nil {
		return err
	}
	for _, file := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.SysoFiles) {
		t.files[filepath.Join(dir, file)] = true
	}
	for _, pattern := range p.EmbedPatterns {
		if err := t.embed(filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(pattern, "all:")))); err != nil {
			return err
		}
	}
	for _, of := range p.Imports {
		if found, ok := t.find(of); ok {
			_ = t.add(found)
		}
	}
	return nil
}

// embed adds what a pattern of //go:embed matches.
func (t *tree) embed(pattern string) error {
	found, err := filepath.Glob(pattern)
	for _, top := range found {
		err = errors.Join(err, filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				t.files[file] = true
			}
			return err
		}))
	}
	return err
}

// find is the directory of a package if its module is here.
func (t *tree) find(of string) (string, bool) {
	for module := of; module != "." && module != "/"; module = path.Dir(module) {
		if dir, ok := t.modules[module]; ok {
			return filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(of, module))), true
		}
	}
	return "", false
}

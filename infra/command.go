package infra

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Here returns a path, relative to Pulumi.yaml, as seen from where the program runs, which is where its commands begin: so it is
// the same on every machine that has the stack.
func Here(s *settings.Settings, path string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	there, err := filepath.Abs(s.Path(path))
	if err != nil {
		return "", err
	}
	return relative(dir, there)
}

func relative(from, to string) (string, error) {
	path, err := filepath.Rel(from, to)
	return filepath.ToSlash(path), err
}

// Program returns the elasticdl binary that a setting names, as seen from a directory if it is not on PATH.
func Program(s *settings.Settings, command, from string) (string, error) {
	path := cmp.Or(command, "elasticdl")
	if !strings.Contains(path, "/") || filepath.IsAbs(path) {
		return path, nil
	}
	there, err := filepath.Abs(filepath.Join(s.Root, path))
	if err != nil {
		return "", err
	}
	path, err = relative(from, there)
	if !strings.Contains(path, "/") { // else it would be looked for on PATH
		path = "./" + path
	}
	return path, err
}

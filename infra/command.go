package infra

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// LocalPath returns a path that is relative to root, the directory of Pulumi.yaml, as a path
// relative to the program's working directory, in which its commands start. The result is the same
// on every machine that has the stack.
func LocalPath(root, path string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	there, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return relative(dir, there)
}

func relative(from, to string) (string, error) {
	path, err := filepath.Rel(from, to)
	return filepath.ToSlash(path), err
}

// Program returns the path of the elasticdl binary that a setting names, relative to a directory if
// it is not on PATH.
func Program(root, command, from string) (string, error) {
	path := cmp.Or(command, "elasticdl")
	if !strings.Contains(path, "/") || filepath.IsAbs(path) {
		return path, nil
	}
	there, err := filepath.Abs(filepath.Join(root, path))
	if err != nil {
		return "", err
	}
	path, err = relative(from, there)
	// without a slash a shell would search for it on PATH
	if !strings.Contains(path, "/") {
		path = "./" + path
	}
	return path, err
}

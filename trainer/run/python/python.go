// Package python holds the Python package elasticdl, and elasticai_api with ElasticDL's names, for
// the scripts of a job.
//
// They are part of the binary, so an image with Python and torch needs no installation: an agent
// unpacks them and puts the directory on PYTHONPATH. PROTOCOL.md defines the messages between them
// and the agent.
package python

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed elasticdl/*.py elasticdl/*/*.py elasticdl/py.typed
//go:embed elasticai_api/*.py elasticai_api/*/*.py elasticai_api/py.typed
var files embed.FS

// Files returns the packages elasticdl and elasticai_api, each in a directory of its name.
func Files() fs.FS { return files }

// Unpack writes the packages to dir, which it makes for this user alone if it is not there. Files
// of the same names are replaced whole, so that a script that is starting meanwhile reads the one
// or the other.
func Unpack(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s for the Python packages: %w", dir, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("the directory of the Python packages must be this user's: %w", err)
	}
	return fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := filepath.Join(dir, filepath.FromSlash(path))
		if entry.IsDir() {
			return os.MkdirAll(at, 0o700)
		}
		text, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		return replace(at, text)
	})
}

// replace writes a temporary file and renames it.
func replace(path string, text []byte) error {
	beside, err := os.CreateTemp(filepath.Dir(path), ".unpack-*")
	if err != nil {
		return err
	}
	defer os.Remove(beside.Name())
	_, err = beside.Write(text)
	if closing := beside.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", path, err)
	}
	return os.Rename(beside.Name(), path)
}

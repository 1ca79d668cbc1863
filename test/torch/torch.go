// Package torch finds the Pythons that have PyTorch, for tests with the build tag torch, which
// `make test-torch` runs and `make test` does not compile. Such a test is named TestTorch…, and
// fails if a Python is missing.
package torch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Python is an interpreter that imports torch.
type Python struct {
	// for subtests: "1.13" or "2.x", as the wire of its TCPStore goes
	Name string
	Path string
	// of PyTorch
	Version string
}

// Pythons returns an interpreter with PyTorch 1.13 and one with 2.x. It fails the test if one is
// missing.
func Pythons(t testing.TB) []Python {
	t.Helper()
	var all []Python
	for _, p := range []struct{ name, path, how string }{
		{"1.13", "/usr/bin/python3", "make bench-peers installs Debian's"},
		{"2.x", filepath.Join(root(t), "build/tools/torch/bin/python"), "make torch installs PyPI's"},
	} {
		out, err := exec.Command(p.path, "-c", "import torch; print(torch.__version__)").CombinedOutput()
		if err != nil {
			t.Fatalf("PyTorch %s is missing (%s): %s: %v\n%s", p.name, p.how, p.path, err, out)
		}
		all = append(all, Python{p.name, p.path, strings.TrimSpace(string(out))})
	}
	return all
}

// Frameworks returns an interpreter with PyTorch 2.x, Hugging Face's packages and Lightning. It
// fails the test if it is missing.
func Frameworks(t testing.TB) Python {
	t.Helper()
	path := filepath.Join(root(t), "build/tools/frameworks/bin/python")
	out, err := exec.Command(path, "-c", "import torch; print(torch.__version__)").CombinedOutput()
	if err != nil {
		t.Fatalf("Hugging Face's packages and Lightning are missing (make frameworks): %s: %v\n%s", path, err, out)
	}
	return Python{"2.x", path, strings.TrimSpace(string(out))}
}

// Libraries returns an interpreter with PyTorch 2.x and libraries for data. It fails the test if
// there is none.
func Libraries(t testing.TB) string {
	t.Helper()
	path := filepath.Join(root(t), "build/tools/data/bin/python")
	out, err := exec.Command(path, "-c", "import datasets, litdata, pyarrow, torchdata, webdataset").CombinedOutput()
	if err != nil {
		t.Fatalf("libraries for data are missing (make data-packages installs PyPI's): %v\n%s", err, out)
	}
	return path
}

// Storage returns the interpreter with PyTorch 2.x and the packages that open buckets. It fails the
// test if it is missing.
func Storage(t testing.TB) string {
	t.Helper()
	path := filepath.Join(root(t), "build/tools/storage/bin/python")
	if out, err := exec.Command(path, "-c", "import torch, s3fs, gcsfs").CombinedOutput(); err != nil {
		t.Fatalf("packages for buckets are missing (make storage installs them): %s: %v\n%s", path, err, out)
	}
	return path
}

// root returns the root of the module.
func root(t testing.TB) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, found := os.Stat(filepath.Join(dir, "go.mod")); found == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			err = os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("find the module's root: %v", err)
	return ""
}

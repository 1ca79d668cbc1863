package infra

import (
	"path/filepath"
	"testing"
)

// Commands are found relative to the directory in which they start, and the name of a directory is
// not searched for on PATH.
func TestProgram(t *testing.T) {
	root := t.TempDir()
	for _, test := range []struct{ command, from, want string }{
		{"", "zoo", "elasticdl"}, {"edl", "zoo", "edl"}, {"/usr/bin/elasticdl", "zoo", "/usr/bin/elasticdl"},
		{"build/elasticdl", "zoo", "../build/elasticdl"}, {"build/elasticdl", "build", "./elasticdl"},
		{"./elasticdl", ".", "./elasticdl"},
	} {
		if got, err := Program(root, test.command, filepath.Join(root, test.from)); err != nil || got != test.want {
			t.Errorf("%s from %s: %s, want %s; %v", test.command, test.from, got, test.want, err)
		}
	}
}

func TestHere(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	for path, want := range map[string]string{"digits": "../digits", filepath.Join(root, "digits"): "digits"} {
		if got, err := LocalPath("..", path); err != nil || got != want {
			t.Errorf("%s: %s, want %s; %v", path, got, want, err)
		}
	}
}

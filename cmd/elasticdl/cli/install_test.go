package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// The installed file is this program, executable for every user, also if it existed before: a
// container that restarts finds its first copy.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := install(dir); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Stat(filepath.Join(dir, "elasticdl"))
	if err != nil || got.Size() != want.Size() || got.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v; want %d bytes", got, err, want.Size())
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("left behind: %v", all)
	}
	if err := install(filepath.Join(dir, "none")); err == nil {
		t.Error("installed where there is nothing")
	}
}

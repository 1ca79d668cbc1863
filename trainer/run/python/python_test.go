package python

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnpackWritesEveryModule(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "packages")
	for range 2 { // the second time over existing files
		if err := Unpack(dir); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v; want a directory for this user alone", info.Mode(), err)
	}
	for _, name := range []string{"elasticdl", "elasticai_api"} {
		modules := 0
		err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".py") && entry.Name() != "py.typed" {
				return err
			}
			modules++
			want, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			got, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil || string(got) != string(want) {
				t.Errorf("%s: unpacked as %d bytes (%v), want %d", path, len(got), err, len(want))
			}
			return nil
		})
		if err != nil || modules == 0 {
			t.Errorf("%s has %d modules: %v", name, modules, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v in the directory (%v), want the two packages", entries, err)
	}
}

package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/safetensors"
)

// A commit that any number of holders has written is exported as the same file, which is the model.
func TestExport(t *testing.T) {
	m := newModel(150_000, 8, 2, 0) // in chunks that end within shards
	var first []byte
	for n := range 4 {
		d, out := Dir{Local(t.TempDir())}, t.TempDir()
		if err := m.write(d, 7, n+1); err != nil {
			t.Fatal(err)
		}
		c, _, err := d.Newest()
		if err != nil {
			t.Fatal(err)
		}
		told := int64(0)
		if err := d.Export(c, Local(out), func(bytes int64) { told = bytes }); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(filepath.Join(out, ModelFile))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = file
		}
		layout, values, metadata, err := safetensors.Read(bytes.NewReader(file), int64(len(file)))
		if err != nil || !slices.Equal(values, m.values) || layout[0].Name != "w" || layout[1].Trainable || metadata["version"] != "70" {
			t.Errorf("of %d shards: %v, %v: %v", n+1, layout, metadata, err)
		}
		if !bytes.Equal(file, first) || told != int64(len(file)) {
			t.Errorf("of %d shards are %d bytes (told: %d), of one %d", n+1, len(file), told, len(first))
		}
	}
}

// An export that fails leaves the one that was there.
func TestExportOfNothing(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	d, m := Dir{Local(dir)}, newModel(40, 8, 1, 0)
	if err := m.write(d, 1, 2); err != nil {
		t.Fatal(err)
	}
	c, _, err := d.Newest()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(out, ModelFile)
	os.WriteFile(path, []byte("old"), 0o644)
	os.Remove(filepath.Join(dir, "commit-00000001", ShardFile(1, 2)))
	if err := d.Export(c, Local(out), nil); err == nil || !strings.Contains(err.Error(), ShardFile(1, 2)) {
		t.Errorf("a shard is not there: %v", err)
	}
	if file, err := os.ReadFile(path); string(file) != "old" {
		t.Errorf("%q is left: %v", file, err)
	}
	if files, _ := os.ReadDir(out); len(files) != 1 {
		t.Errorf("left are %v", files)
	}
}

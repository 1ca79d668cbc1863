package prediction

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files returns what lies below a directory, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func open(t *testing.T, outputs, job string) *Place {
	t.Helper()
	p, err := Open(nil, outputs, job)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, p *Place, of int, numbers ...int) {
	t.Helper()
	for _, i := range numbers {
		if err := p.Write(i, of, fmt.Appendf(nil, "name\nrow %d\n", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// The file is of all parts in their order, whatever the order in which they came and however often,
// with one header. Parts of another job are not in it.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir+"/out.csv", "uid")
	write(t, open(t, dir+"/out.csv", "other"), 11, 3)
	write(t, p, 11, 10, 9, 8, 7, 6, 5, 4, 2, 2, 1, 0)
	if err := p.Finish(11, true, nil); err == nil ||
		!strings.Contains(err.Error(), "part "+dir+"/.out.csv-uid/part-00003-of-00011.csv is missing") {
		t.Errorf("without a part: %v", err)
	}
	if found := files(t, dir); found["out.csv"] != "" || len(found) != 11 {
		t.Errorf("without a part there are %v", slices.Sorted(maps.Keys(found)))
	}
	write(t, p, 11, 3, 7)
	want, bytes := "name\n", int64(0)
	for i := range 11 {
		want += fmt.Sprintf("row %d\n", i)
	}
	for range 2 { // the word of the first time may be lost
		if err := p.Finish(11, true, func(n int64) { bytes = n }); err != nil {
			t.Fatal(err)
		}
	}
	if got := files(t, dir)["out.csv"]; got != want || bytes < int64(len(want)) {
		t.Errorf("%q after %d bytes, expected %q", got, bytes, want)
	}
	if err := p.Tidy(); err != nil {
		t.Fatal(err)
	}
	if found := slices.Sorted(maps.Keys(files(t, dir))); !slices.Equal(found,
		[]string{".out.csv-other/part-00003-of-00011.csv", "out.csv"}) {
		t.Errorf("in the end there are %v", found)
	}
}

// Parts without headers, and parts that do not belong together.
func TestHeaders(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir+"/out.csv", "uid")
	write(t, p, 2, 0, 1)
	if err := p.Finish(2, false, nil); err != nil || files(t, dir)["out.csv"] != "name\nrow 0\nname\nrow 1\n" {
		t.Errorf("%v, %q", err, files(t, dir)["out.csv"])
	}
	if err := p.Write(1, 2, []byte("other\nrow 1\n")); err != nil {
		t.Fatal(err)
	}
	if err := p.Finish(2, true, nil); err == nil ||
		!strings.Contains(err.Error(), `is "other\n", and that of the first part is "name\n"`) {
		t.Errorf("two headers: %v", err)
	}
	long := strings.Repeat("x", 3<<20) + "\n"
	for i := range 2 {
		if err := p.Write(i, 2, []byte(long+"y\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Finish(2, true, nil); err != nil || files(t, dir)["out.csv"] != long+"y\ny\n" {
		t.Errorf("a long header: %v", err)
	}
}

// In a directory the parts stay. Files of an earlier job under such names are deleted, and no
// others.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, open(t, dir, "before"), 3, 0, 1, 2)
	for _, name := range []string{"part-of-mine.csv", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, dir, "uid")
	write(t, p, 2, 1, 0)
	for range 2 {
		if err := p.Finish(2, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Tidy(); err != nil {
		t.Fatal(err)
	}
	found := files(t, dir)
	if names := slices.Sorted(maps.Keys(found)); !slices.Equal(names,
		[]string{"notes", "part-00000-of-00002.csv", "part-00001-of-00002.csv", "part-of-mine.csv"}) ||
		found["part-00001-of-00002.csv"] != "name\nrow 1\n" {
		t.Errorf("there are %v", found)
	}
}

func TestDir(t *testing.T) {
	for outputs, want := range map[string]string{
		"out.csv": "./", "/data/out.csv": "/data/", "/data/out": "/data/out",
		"s3://b/p/out.csv?region=r": "s3://b/p/?region=r", "gs://b/out": "gs://b/out",
	} {
		if got := Dir(outputs); got != want {
			t.Errorf("%s is in %s, expected %s", outputs, got, want)
		}
	}
}

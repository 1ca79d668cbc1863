package laws

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// put writes a file.
func put(t *testing.T, f checkpoint.Files, name string, content []byte) {
	t.Helper()
	w, err := f.Create(name)
	if err == nil {
		defer w.Abort()
		if _, err = w.Write(content); err == nil {
			err = w.Commit()
		}
	}
	if err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
}

// get reads a file.
func get(f checkpoint.Files, name string) ([]byte, error) {
	r, size, closer, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return io.ReadAll(io.NewSectionReader(r, 0, size))
}

func list(t *testing.T, f checkpoint.Files, dir string) []string {
	t.Helper()
	names, err := f.List(dir)
	if err != nil {
		t.Fatalf("list %q: %v", dir, err)
	}
	slices.Sort(names)
	return names
}

// A file is there when it is committed, whole, and not before; one that is given up leaves nothing,
// and what was there.
func fileAppearsWhole(t *testing.T, p Place) {
	for _, size := range []int{0, 1, 1000, 12 << 20} { // the last one in several parts
		f := p.Open(t)
		first, second := random(size, 1), random(size, 2)
		for round, content := range [][]byte{first, second} {
			var before []byte
			if round > 0 {
				before = first
			}
			is := func(when string, want []byte, there bool) {
				t.Helper()
				got, err := get(f, "dir/file")
				if there && (err != nil || !bytes.Equal(got, want)) || !there && !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("%d bytes, round %d, %s: read %d bytes: %v", size, round, when, len(got), err)
				}
				names := list(t, f, "dir")
				// further files of a kind of place
				names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") })
				if slices.Equal(names, []string{"file"}) != there {
					t.Fatalf("%d bytes, round %d, %s: there are %v", size, round, when, names)
				}
			}
			for _, end := range []string{"abort", "commit"} {
				w, err := f.Create("dir/file")
				if err != nil {
					t.Fatal(err)
				}
				for part := range slices.Chunk(content, 1<<20) {
					if _, err := w.Write(part); err != nil {
						t.Fatal(err)
					}
				}
				is("before its "+end, before, round > 0)
				if end == "abort" {
					w.Abort()
					is("after its abort", before, round > 0)
					if left := list(t, f, "dir"); len(left) > round {
						t.Errorf("an abort leaves %v", left)
					}
					continue
				}
				if err := w.Commit(); err != nil {
					t.Fatal(err)
				}
				is("after its commit", content, true)
				w.Abort()
				is("after an abort of what is committed", content, true)
			}
		}
	}
}

func random(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// Slashes in names are the only directories.
func names(t *testing.T, p Place) {
	f := p.Open(t)
	if f.String() == "" {
		t.Error("the place has no name")
	}
	if got := list(t, f, ""); len(got) > 0 {
		t.Fatalf("in a new place are %v", got)
	}
	for _, name := range []string{"a/x", "a/b/y", "ab/z", "top", "a-1/x"} {
		put(t, f, name, []byte(name))
	}
	for dir, want := range map[string][]string{
		"": {"a", "a-1", "ab", "top"}, "a": {"b", "x"}, "a/b": {"y"}, "ab": {"z"}, "no": nil, "a/no": nil,
	} {
		if got := list(t, f, dir); !slices.Equal(got, want) {
			t.Errorf("in %q are %q, want %q", dir, got, want)
		}
	}
	for _, name := range []string{"no", "a/no", "no/x", "to"} {
		if _, err := get(f, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %s: %v", name, err)
		}
	}
	if _, err := get(f, "a"); err == nil {
		t.Error("a directory is read as a file")
	}
	for _, step := range []struct {
		remove string
		top    []string
	}{{"no", []string{"a", "a-1", "ab", "top"}}, {"a", []string{"a-1", "ab", "top"}},
		{"a", []string{"a-1", "ab", "top"}}, {"top", []string{"a-1", "ab"}}} {
		if err := f.Remove(step.remove); err != nil {
			t.Errorf("remove %s: %v", step.remove, err)
		}
		if got := list(t, f, ""); !slices.Equal(got, step.top) {
			t.Errorf("after the removal of %s are %q, want %q", step.remove, got, step.top)
		}
	}
	if got := list(t, f, "a/b"); len(got) > 0 {
		t.Errorf("in a directory that is removed are %q", got)
	}
}

// Any range of a file is read, in any order, by several at the same time.
func ranges(t *testing.T, p Place) {
	f := p.Open(t)
	content := random(300_000, 3)
	put(t, f, "file", content)
	r, size, closer, err := f.Open("file")
	if err != nil || size != int64(len(content)) {
		t.Fatalf("%d bytes: %v", size, err)
	}
	defer closer.Close()
	var all sync.WaitGroup
	for seed := range uint64(3) {
		all.Go(func() {
			draw := rand.New(rand.NewPCG(seed, 0))
			at := 0
			for range 60 {
				if draw.IntN(2) == 0 {
					at = draw.IntN(len(content))
				}
				b := make([]byte, draw.IntN(50_000))
				n, err := r.ReadAt(b, int64(at))
				if want := min(len(b), len(content)-at); n != want || n < len(b) &&
					!errors.Is(err, io.EOF) || n == len(b) && err != nil && !errors.Is(err, io.EOF) {
					t.Errorf("%d of %d bytes at %d: %v", n, len(b), at, err)
				}
				if !bytes.Equal(b[:n], content[at:at+n]) {
					t.Errorf("%d bytes at %d are others", n, at)
				}
				at += n
			}
		})
	}
	all.Wait()
}

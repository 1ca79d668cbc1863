package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

var sourceLayout = param.Layout{
	{Name: "w", Shape: []int{2, 3}, Trainable: true}, {Name: "b", Shape: []int{2}, Trainable: true},
	{Name: "mean", Shape: []int{2}, Momentum: 0.9},
}

// A model is found by the directory of its commits, by one of them, by its export's directory and
// file, and its values are the same.
func TestSource(t *testing.T) {
	root := t.TempDir()
	both, out := filepath.Join(root, "both"), filepath.Join(root, "out")
	d := Dir{Files: Local(both)}
	write := func(number int64) []float32 {
		values := make([]float32, sourceLayout.Len())
		for i := range values {
			values[i] = float32(number) + float32(i)/16
		}
		s, err := WriteShard(d, Name{Number: number}, ShardFile(0, 1), Part{Values: values})
		if err == nil {
			err = d.WriteCommit(Commit{Format: Format, Number: number, ModelGeneration: 1,
				Layout: VariablesOf(sourceLayout), Shards: []Shard{s}})
		}
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	third, fourth := write(3), write(4)
	for number, to := range map[int64]string{3: out, 4: both} {
		c, err := d.ReadCommit(Name{Number: number})
		if err == nil {
			err = d.Export(c, Local(to), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		location string
		number   int64
		file     string
		want     []float32
	}{
		{both, 0, "", fourth}, // its commits, not its export
		{both + "/commit-00000003", 3, "", third},
		{out, 0, ModelFile, third},
		{out + "/", 0, ModelFile, third},
		{out + "/" + ModelFile, 0, ModelFile, third},
	} {
		s, err := Opener(nil).Find(c.location)
		got := make([]float32, sourceLayout.Len())
		// in two stretches, the cut within a parameter
		for _, part := range [][]float32{got[:1], got[1:]} {
			if err == nil {
				err = s.Load(sourceLayout, len(got)-cap(part), part)
			}
		}
		if err != nil || s.Commit.Number != c.number || s.File != c.file || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v with %v (%v), want %v", c.location, s, got, err, c.want)
		}
		other := slices.Clone(sourceLayout)
		other[1] = param.Variable{Name: "c", Shape: []int{2}, Trainable: true}
		if err := s.Load(other, 0, got); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(),
				"another model: layout: unknown parameter b [2]; parameter c [2] is missing") {
			t.Errorf("%s as another model: %v", c.location, err)
		}
	}
	for _, location := range []string{root, both + "/commit-00000005", out + "/other.safetensors",
		root + "/nowhere", root + "/nowhere/model.safetensors"} {
		if _, err := Opener(nil).Find(location); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), location) {
			t.Errorf("%s: %v", location, err)
		}
	}
}

// An exported model that is cut short is damaged, and not a failure of the storage: nobody tries
// again.
func TestSourceDamaged(t *testing.T) {
	dir := t.TempDir()
	m := Model{Layout: sourceLayout, Fill: func(int, []float32) error { return nil }}
	if err := m.Export(Local(dir), nil); err != nil {
		t.Fatal(err)
	}
	s, err := Opener(nil).Find(dir)
	if err != nil || s.Check(sourceLayout) != nil {
		t.Fatal(err, s.Check(sourceLayout))
	}
	info, err := os.Stat(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, 5, 20, info.Size() - 4} {
		if err := os.Truncate(s.Path(), size); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), s.Path()) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// A location is of one commit, or it stays unchanged.
func FuzzWithin(f *testing.F) {
	for _, s := range []string{"ckpt/commit-00000042", "s3://b/commit-00000042/?region=x", "commit-0",
		"", "a?b/commit-00000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, location string) {
		switch dir, n := Within(location); {
		case n.Number < 0 || n == (Name{}) && dir != location:
			t.Errorf("%q: %q and %v", location, dir, n)
		case n.Number > 0:
			if _, _, query := split(location); !strings.HasSuffix(dir, query) ||
				!strings.Contains(location, n.String()) {
				t.Errorf("%q: %q and %v", location, dir, n)
			}
		}
	})
}

package laws

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
)

// Shards written by any number of holders are read by any other number.
func anyNumberOfHolders(t *testing.T, p Place) {
	d := checkpoint.Dir{Files: p.Open(t)}
	number := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		number++
		m := newModel(rapid.IntRange(1, 200).Draw(t, "trainable"),
			rapid.IntRange(0, 60).Draw(t, "state"), rapid.IntRange(0, 3).Draw(t, "slots"), float32(number))
		if err := m.write(d, number, rapid.IntRange(1, 5).Draw(t, "writers")); err != nil {
			t.Fatal(err)
		}
		c, damaged, err := d.Newest()
		if err != nil || len(damaged) > 0 || c.Number != number {
			t.Fatalf("newest: %+v, damaged %v: %v", c, damaged, err)
		}
		m.holds(t, d, c, rapid.IntRange(1, 5).Draw(t, "readers"))
		want := m.record(number)
		if !bytes.Equal(c.Ledger.Append(nil), want.Ledger.Append(nil)) || c.ParamLayout().Match(m.layout) != nil {
			t.Fatalf("the record is %+v", c)
		}
		if _, err := d.Retain(2, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// Whichever byte is damaged, the file is named, and the commit before is used.
func damage(t *testing.T, p Place) {
	f := p.Open(t)
	d := checkpoint.Dir{Files: f}
	old, m := newModel(40, 8, 1, 0), newModel(40, 8, 1, 1000)
	for number, m := range []model{old, m} {
		if err := m.write(d, int64(number+1), 2); err != nil {
			t.Fatal(err)
		}
	}
	used := func(file, what string) {
		t.Helper()
		c, damaged, err := d.Newest()
		if err != nil || c.Number != 1 {
			t.Fatalf("%s: %v is used: %v", what, c, err)
		}
		if len(damaged) != 1 || damaged[0].Commit.Number != 2 ||
			!strings.Contains(damaged[0].Err.Error(), "commit-00000002/"+file) {
			t.Errorf("%s: damaged are %v", what, damaged)
		}
		old.holds(t, d, c, 3)
		c, err = d.ReadCommit(checkpoint.Name{Number: 2})
		if err == nil {
			err = d.Restore(c, checkpoint.Part{Values: make([]float32, 48)})
		}
		if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), "commit-00000002/"+file) {
			t.Errorf("%s: it is restored: %v", what, err)
		}
	}
	for _, file := range []string{checkpoint.ShardFile(0, 2), checkpoint.ShardFile(1, 2), "commit.json"} {
		path := "commit-00000002/" + file
		whole, err := get(f, path)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(whole); at += max(1, p.Stride) {
			b := slices.Clone(whole)
			b[at] ^= 1 << (at % 8)
			put(t, f, path, b)
			used(file, fmt.Sprintf("bit %d of byte %d of %s", at%8, at, file))
		}
		put(t, f, path, whole[:len(whole)-1])
		used(file, "a byte less of "+file)
		put(t, f, path, append(slices.Clone(whole), 'x'))
		used(file, "a byte more of "+file)
		put(t, f, path, nil)
		used(file, "nothing of "+file)
		if file != "commit.json" {
			f.Remove(path)
			used(file, "no "+file)
		}
		put(t, f, path, whole)
	}
	for _, name := range list(t, f, "commit-00000002") {
		file, err := get(f, "commit-00000002/"+name)
		if err != nil {
			t.Fatal(err)
		}
		put(t, f, "commit-00000003/"+name, file)
	}
	if c, damaged, err := d.Newest(); err != nil || c.Number != 2 || len(damaged) != 1 ||
		!strings.Contains(damaged[0].Err.Error(), "it is of commit 2") {
		t.Errorf("a commit under another number: %v, %v", damaged, err)
	}
	put(t, f, "commit-00000002/commit.json", nil)
	if c, damaged, err := d.Before(checkpoint.Name{Number: 3}); err != nil || c.Number != 1 ||
		len(damaged) != 1 || damaged[0].Commit.Number != 2 {
		t.Errorf("before number 3: %v, damaged %v: %v", c, damaged, err)
	}
	if _, damaged, err := d.Before(checkpoint.Name{Number: 1}); !errors.Is(err, checkpoint.ErrNone) ||
		len(damaged) > 0 {
		t.Errorf("before number 1: damaged %v, %v", damaged, err)
	}
}

// Whenever the writer dies, there is the commit before or the new one, whole.
func deathOfTheWriter(t *testing.T, p Place) {
	for _, late := range []bool{false, true} {
		death(t, p, late)
	}
}

func death(t *testing.T, p Place, late bool) {
	old, m := newModel(40, 8, 1, 0), newModel(40, 8, 1, 1000)
	committed := 0
	for steps := 0; ; steps++ {
		d := checkpoint.Dir{Files: p.Open(t)}
		if err := old.write(d, 1, 2); err != nil {
			t.Fatal(err)
		}
		left := steps
		weak := checkpoint.Dir{Files: dying{d.Files, t, &left, late}}
		err := m.write(weak, 2, 3)
		if err == nil {
			_, err = weak.Retain(1, nil)
		}
		if err != nil && (!errors.Is(err, errDisk) || !strings.Contains(err.Error(), "commit-0000000")) {
			t.Errorf("after %d operations: %v", steps, err)
		}
		c, damaged, newest := d.Newest()
		if newest != nil || len(damaged) > 0 {
			t.Fatalf("after %d operations: %v, damaged %v", steps, newest, damaged)
		}
		if c.Number == 1 {
			old.holds(t, d, c, 1)
		} else {
			committed++
			m.holds(t, d, c, 1)
		}
		if err == nil {
			break
		}
	}
	if committed < 2 { // also with a retention that dies
		t.Errorf("the new commit was there after %d deaths", committed)
	}
}

// numbers returns the numbers of the commits that were begun.
func numbers(d checkpoint.Dir) (all []int64, err error) {
	entries, err := d.Commits()
	for _, e := range entries {
		all = append(all, e.Number)
	}
	return all, err
}

// The newest complete commits stay, and what is newer.
func retain(t *testing.T, p Place) {
	m := newModel(10, 0, 0, 0)
	for _, test := range []struct {
		name     string
		complete []int64
		begun    []int64
		damaged  []int64
		keep     int
		want     []int64
	}{
		{"all", []int64{1, 2, 3}, nil, nil, 0, []int64{3, 2, 1}},
		{"two", []int64{1, 2, 3}, nil, nil, 2, []int64{3, 2}},
		{"what is begun may be completed", []int64{1, 2}, []int64{3}, nil, 1, []int64{3, 2}},
		{"what was given up goes", []int64{1, 4}, []int64{2, 3}, nil, 0, []int64{4, 1}},
		{"nothing is complete", nil, []int64{1, 2}, nil, 1, []int64{2, 1}},
		{"a damaged one does not count", []int64{1, 2, 3, 4}, nil, []int64{3}, 2, []int64{4, 3, 2}},
		{"older than all that are kept", []int64{1, 2, 3, 4}, nil, []int64{1, 2}, 2, []int64{4, 3}},
		{"none is whole", []int64{1, 2}, nil, []int64{1, 2}, 1, []int64{2, 1}},
		{"a damaged one is not there", []int64{3, 4}, nil, []int64{2, 3}, 1, []int64{4}},
	} {
		d := checkpoint.Dir{Files: p.Open(t)}
		for _, n := range test.complete {
			if err := m.write(d, n, 1); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range test.begun {
			if _, err := checkpoint.WriteShard(d, checkpoint.Name{Number: n},
				checkpoint.ShardFile(0, 1), m.part(0, 1)); err != nil {
				t.Fatal(err)
			}
		}
		damaged := make(map[checkpoint.Name]bool)
		for _, n := range test.damaged {
			damaged[checkpoint.Name{Number: n}] = true
		}
		removed, err := d.Retain(test.keep, damaged)
		if err != nil {
			t.Fatal(err)
		}
		got, err := numbers(d)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v are left, want %v: %v", test.name, got, test.want, err)
		}
		for n := range damaged {
			if slices.Contains(removed, n) == slices.Contains(got, n.Number) {
				t.Errorf("%s: of the damaged ones, %v are reported as removed, and %v are left", test.name,
					removed, got)
			}
		}
	}
}

// Where no commit is complete, there is none.
func nothingThere(t *testing.T, p Place) {
	d := checkpoint.Dir{Files: p.Open(t)}
	if _, _, err := d.Newest(); !errors.Is(err, checkpoint.ErrNone) || !strings.Contains(err.Error(), d.String()) {
		t.Errorf("of a directory that is not there: %v", err)
	}
	m := newModel(10, 0, 0, 0)
	if _, err := checkpoint.WriteShard(d, checkpoint.Name{Number: 1}, checkpoint.ShardFile(0, 1),
		m.part(0, 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Newest(); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("of a commit without a record: %v", err)
	}
}

// A commit that any number of holders has written is exported as the same file, which is the model.
func export(t *testing.T, p Place) {
	m := newModel(150_000, 8, 2, 0) // in chunks that end within shards
	var first []byte
	for n := range 4 {
		d, out := checkpoint.Dir{Files: p.Open(t)}, p.Open(t)
		if err := m.write(d, 7, n+1); err != nil {
			t.Fatal(err)
		}
		c, _, err := d.Newest()
		if err != nil {
			t.Fatal(err)
		}
		told := int64(0)
		if err := d.Export(c, out, func(bytes int64) { told = bytes }); err != nil {
			t.Fatal(err)
		}
		file, err := get(out, checkpoint.ModelFile)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = file
		}
		layout, values, metadata, err := safetensors.Read(bytes.NewReader(file), int64(len(file)))
		if err != nil || !slices.Equal(values, m.values) || layout[0].Name != "w" ||
			layout[1].Trainable || metadata["version"] != "70" {
			t.Errorf("of %d shards: %v, %v: %v", n+1, layout, metadata, err)
		}
		if !bytes.Equal(file, first) || told != int64(len(file)) {
			t.Errorf("of %d shards are %d bytes (counted: %d), of one %d", n+1, len(file), told, len(first))
		}
	}
}

// An export that fails leaves the one that was there.
func exportOfDamage(t *testing.T, p Place) {
	d, out, m := checkpoint.Dir{Files: p.Open(t)}, p.Open(t), newModel(40, 8, 1, 0)
	if err := m.write(d, 1, 2); err != nil {
		t.Fatal(err)
	}
	c, _, err := d.Newest()
	if err != nil {
		t.Fatal(err)
	}
	put(t, out, checkpoint.ModelFile, []byte("old"))
	d.Remove("commit-00000001/" + checkpoint.ShardFile(1, 2))
	if err := d.Export(c, out, nil); err == nil || !strings.Contains(err.Error(), checkpoint.ShardFile(1, 2)) {
		t.Errorf("a shard is not there: %v", err)
	}
	if file, err := get(out, checkpoint.ModelFile); string(file) != "old" {
		t.Errorf("%q is left: %v", file, err)
	}
	if left := list(t, out, ""); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/ledger"
	"github.com/elasticdl/elasticdl/trainer/param"
)

// model is a whole one, in memory.
type model struct {
	layout param.Layout
	values []float32
	slots  [][]float32
}

func newModel(trainable, state, slots int, seed float32) model {
	m := model{layout: param.Layout{{Name: "w", Shape: []int{trainable}, Trainable: true}}}
	if state > 0 {
		m.layout = append(m.layout, param.Variable{Name: "mean", Shape: []int{state}, Momentum: 0.9})
	}
	fill := func(n int) []float32 {
		all := make([]float32, n)
		for i := range all {
			seed++
			all[i] = seed
		}
		return all
	}
	m.values = fill(trainable + state)
	for range slots {
		m.slots = append(m.slots, fill(trainable))
	}
	return m
}

// part is the elements of one of n holders.
func (m model) part(i, n int) Part {
	span := param.Partition(len(m.values), n)[i]
	p := Part{Start: span.Start, Values: m.values[span.Start:span.End]}
	for _, slot := range m.slots {
		p.Slots = append(p.Slots, slot[min(span.Start, len(slot)):min(span.End, len(slot))])
	}
	return p
}

// empty is a part with room for the same.
func (p Part) empty() Part {
	e := Part{Start: p.Start, Values: make([]float32, len(p.Values))}
	for _, slot := range p.Slots {
		e.Slots = append(e.Slots, make([]float32, len(slot)))
	}
	return e
}

// write commits the model with n holders.
func (m model) write(d Dir, number int64, n int) error {
	c := m.record(number)
	for i := range n {
		p := m.part(i, n)
		if len(p.Values) == 0 {
			continue
		}
		s, err := WriteShard(d, number, ShardFile(i, n), p)
		if err != nil {
			return err
		}
		c.Shards = append(c.Shards, s)
	}
	return d.WriteCommit(c)
}

func (m model) record(number int64) Commit {
	c := Commit{
		Format: Format, Number: number, Time: time.Unix(1e9, 0).UTC(), JobName: "test", Job: "uid", ModelDef: "mnist", Life: 1, Version: 10 * number,
		Layout: VariablesOf(m.layout), Optimizer: "Adam", Slots: len(m.slots), Records: 7,
		Evaluations: []Evaluation{{Version: 3, Metrics: map[string]float64{"accuracy": 0.5}}},
	}
	c.Ledger.Settle(1)
	c.Ledger.Add(ledger.Task{Epoch: 2, Number: 4}, 3, 5)
	return c
}

// holds asserts that a commit is of the model, read by n holders.
func (m model) holds(t interface{ Fatalf(string, ...any) }, d Dir, c *Commit, n int) {
	for i := range n {
		want := m.part(i, n)
		got := want.empty()
		if err := d.Read(c, got); err != nil {
			t.Fatalf("read part %d of %d: %v", i, n, err)
		}
		if !slices.Equal(got.Values, want.Values) || !slices.EqualFunc(got.Slots, want.Slots, slices.Equal[[]float32]) {
			t.Fatalf("part %d of %d is %v, want %v", i, n, got, want)
		}
	}
}

// What any number of holders has written, any other number reads.
func TestAnyNumberOfHolders(t *testing.T) {
	dir := t.TempDir()
	number := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		number++
		m := newModel(rapid.IntRange(1, 200).Draw(t, "trainable"), rapid.IntRange(0, 60).Draw(t, "state"), rapid.IntRange(0, 3).Draw(t, "slots"), float32(number))
		d := Dir{Local(dir)}
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
		if err := d.Retain(2); err != nil {
			t.Fatal(err)
		}
	})
}

// Whichever byte is damaged, the file is named, and the commit before is used.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	d := Dir{Local(dir)}
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
		if len(damaged) != 1 || damaged[0].Number != 2 || !strings.Contains(damaged[0].Err.Error(), filepath.Join("commit-00000002", file)) {
			t.Errorf("%s: damaged are %v", what, damaged)
		}
		old.holds(t, d, c, 3)
	}
	for _, file := range []string{ShardFile(0, 2), ShardFile(1, 2), recordFile} {
		path := filepath.Join(dir, "commit-00000002", file)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put := func(b []byte) {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for at := range whole {
			b := slices.Clone(whole)
			b[at] ^= 1 << (at % 8)
			put(b)
			used(file, fmt.Sprintf("bit %d of byte %d of %s", at%8, at, file))
		}
		put(whole[:len(whole)-1])
		used(file, "a byte less of "+file)
		put(append(slices.Clone(whole), 'x'))
		used(file, "a byte more of "+file)
		put(nil)
		used(file, "nothing of "+file)
		if file != recordFile {
			os.Remove(path)
			used(file, "no "+file)
		}
		put(whole)
	}
	os.Rename(filepath.Join(dir, "commit-00000002"), filepath.Join(dir, "commit-00000003"))
	if _, damaged, err := d.Newest(); err != nil || len(damaged) != 1 || !strings.Contains(damaged[0].Err.Error(), "it is of commit 2") {
		t.Errorf("a commit under another number: %v, %v", damaged, err)
	}
}

// dying is a place whose writer dies, or whose disk fails, after so many operations.
type dying struct {
	Files
	left *int
}

var errDisk = errors.New("no space left on device")

func (d dying) step() error {
	if *d.left--; *d.left < 0 {
		return errDisk
	}
	return nil
}

func (d dying) Create(name string) (Writer, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	w, err := d.Files.Create(name)
	return dyingWriter{w, d}, err
}

func (d dying) Remove(name string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Files.Remove(name)
}

type dyingWriter struct {
	Writer
	dying
}

func (w dyingWriter) Write(b []byte) (int, error) {
	if err := w.step(); err != nil {
		n, _ := w.Writer.Write(b[:len(b)/2])
		return n, err
	}
	return w.Writer.Write(b)
}

func (w dyingWriter) Commit() error {
	if err := w.step(); err != nil {
		return err
	}
	return w.Writer.Commit()
}

// Abort is not called by the dead.
func (w dyingWriter) Abort() {
	if *w.left >= 0 {
		w.Writer.Abort()
	}
}

// Whenever the writer dies, there is the commit before or the new one, whole.
func TestDeathOfTheWriter(t *testing.T) {
	old, m := newModel(40, 8, 1, 0), newModel(40, 8, 1, 1000)
	committed := 0
	for steps := 0; ; steps++ {
		d := Dir{Local(t.TempDir())}
		if err := old.write(d, 1, 2); err != nil {
			t.Fatal(err)
		}
		left := steps
		weak := Dir{dying{d.Files, &left}}
		err := m.write(weak, 2, 3)
		if err == nil {
			err = weak.Retain(1)
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

func TestRetain(t *testing.T) {
	m := newModel(10, 0, 0, 0)
	for _, test := range []struct {
		name     string
		complete []int64
		begun    []int64
		keep     int
		want     []int64
	}{
		{"all", []int64{1, 2, 3}, nil, 0, []int64{3, 2, 1}},
		{"two", []int64{1, 2, 3}, nil, 2, []int64{3, 2}},
		{"what is begun may be completed", []int64{1, 2}, []int64{3}, 1, []int64{3, 2}},
		{"what was given up goes", []int64{1, 4}, []int64{2, 3}, 0, []int64{4, 1}},
		{"nothing is complete", nil, []int64{1, 2}, 1, []int64{2, 1}},
	} {
		d := Dir{Local(t.TempDir())}
		for _, n := range test.complete {
			if err := m.write(d, n, 1); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range test.begun {
			if _, err := WriteShard(d, n, ShardFile(0, 1), m.part(0, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Retain(test.keep); err != nil {
			t.Fatal(err)
		}
		if got, _, err := d.Numbers(); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v are left, want %v: %v", test.name, got, test.want, err)
		}
	}
}

func TestNewestOfNothing(t *testing.T) {
	d := Dir{Local(filepath.Join(t.TempDir(), "none"))}
	if _, _, err := d.Newest(); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), d.String()) {
		t.Errorf("of a directory that is not there: %v", err)
	}
	m := newModel(10, 0, 0, 0)
	if _, err := WriteShard(d, 1, ShardFile(0, 1), m.part(0, 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Newest(); !errors.Is(err, ErrNone) {
		t.Errorf("of a commit without a record: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	d := Dir{Local(t.TempDir())}
	m := newModel(40, 8, 1, 0)
	if err := m.write(d, 1, 2); err != nil {
		t.Fatal(err)
	}
	c, _, err := d.Newest()
	if err != nil {
		t.Fatal(err)
	}
	for want, p := range map[string]Part{
		"has 1 slots (Adam), expected 2": {Slots: make([][]float32, 2)},
		"commit 1, which has 48":         {Start: 40, Values: make([]float32, 9)},
	} {
		if err := d.Read(c, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	m := newModel(40, 8, 1, 0)
	c := m.record(1)
	c.Shards = []Shard{{File: ShardFile(0, 1), End: 48, Bytes: 1, CRC: noChecksum}}
	record, err := c.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(seal(b))
		if err != nil {
			return
		}
		again, err := c.Encode()
		if err != nil {
			t.Fatalf("%s is read, and cannot be written: %v", b, err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatal(err)
		}
	})
}

package count

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// TestVerify trains batches by hand, in which records are missing or doubled.
func TestVerify(t *testing.T) {
	const n, seed = 40, 7
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	for _, tt := range []struct {
		name          string
		batches       [][]int
		epochs        int
		lost, doubled []int
	}{
		{"each once", [][]int{all[:16], all[16:17], all[17:]}, 1, nil, nil},
		{"one lost", [][]int{all[:16], all[17:]}, 1, []int{16}, nil},
		{"one doubled, in another batch", [][]int{all, {3}}, 1, nil, []int{3}},
		{"lost and doubled", [][]int{all[:39], {5, 6, 7}}, 1, []int{39}, []int{5, 6, 7}},
		{"two epochs", [][]int{all, all[:20], all[20:]}, 2, nil, nil},
		{"lost in the second epoch", [][]int{all, all[1:]}, 2, []int{0}, nil},
		{"three epochs, doubled in the last", [][]int{all, all, all, {11}}, 3, nil, []int{11}},
		{"nothing", nil, 1, all, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tally, err := Verify(trained(t, n, seed, tt.batches), n, seed, tt.epochs)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(tally.Lost, tt.lost) || !slices.Equal(tally.Doubled, tt.doubled) {
				t.Errorf("lost %v and doubled %v, expected %v and %v", tally.Lost, tally.Doubled, tt.lost, tt.doubled)
			}
			if tally.Exact() != (tt.lost == nil && tt.doubled == nil) {
				t.Errorf("%v: exact is %v", tally, tally.Exact())
			}
		})
	}
}

// trained exports the model after batches of records.
func trained(t *testing.T, n int, seed uint64, batches [][]int) string {
	t.Helper()
	m := Model(n)
	e, err := zoo.NewEngine(m, 1, seed)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o, err := optim.New(m.Optimizer())
	if err != nil {
		t.Fatal(err)
	}
	slots := o.NewSlots(len(e.Values()))
	for i, ids := range batches {
		var records [][]byte
		for _, id := range ids {
			records = append(records, binary.BigEndian.AppendUint64(nil, uint64(id)))
		}
		var b zoo.Batch
		if err := m.Feed(zoo.Training, records, &b); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Step(&b); err != nil {
			t.Fatal(err)
		}
		o.Apply(e.Values(), e.Grads(), slots, int64(i+1), 0)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := safetensors.Write(f, e.Layout(), e.Values(), nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWrite reads back what Write has written: every number once, in order.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, 3, 700, 1); err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	for _, name := range []string{"data-00000", "data-00001", "data-00002"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		index, err := recordio.ReadIndex(f, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range recordio.NewReader(f, index).Records(0, index.Records()) {
			if err != nil || binary.BigEndian.Uint64(r) != next {
				t.Fatalf("%s: record %v, %v, expected number %d", name, r, err, next)
			}
			next++
		}
	}
	if next != 704 {
		t.Errorf("%d records, expected 704", next)
	}
}

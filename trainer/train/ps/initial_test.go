package ps

import (
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// A job's model begins with the values of an exported one, and with its own where it starts from
// nothing, or from a checkpoint.
func TestInitialValues(t *testing.T) {
	model, err := zoo.Lookup("mnist_mlp")
	if err != nil {
		t.Fatal(err)
	}
	j := job.Default()
	layout, own, err := Initial(t.Context(), j, model, 0, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	m := checkpoint.Model{Layout: layout, Fill: func(from int, dst []float32) error {
		for i := range dst {
			dst[i] = own[from+i] + 1
		}
		return nil
	}}
	if err := m.Export(checkpoint.Local(out), nil); err != nil {
		t.Fatal(err)
	}
	j.CheckpointDirForInit = out
	_, values, err := Initial(t.Context(), j, model, 0, 1, nil, nil)
	if err != nil || slices.ContainsFunc([]int{0, 100, len(own) - 1}, func(i int) bool {
		return values[i] != own[i]+1
	}) {
		t.Errorf("from an export: %v, %v; want one more than %v", values[:3], err, own[:3])
	}
	var joined []float32
	for i := range 3 {
		_, part, err := Initial(t.Context(), j, model, i, 3, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		joined = append(joined, part...)
	}
	if !slices.Equal(joined, values) {
		t.Error("three servers have other values than one")
	}
	j.CheckpointDirForInit = t.TempDir()
	if _, _, err := Initial(t.Context(), j, model, 0, 1, nil, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "--checkpoint_dir_for_init="+j.CheckpointDirForInit+
			": there is no checkpoint and no exported model in") {
		t.Errorf("from nothing: %v", err)
	}
}

package checkpoint_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint/laws"
)

func TestLocal(t *testing.T) {
	laws.Test(t, laws.Place{Stride: 3, Open: func(t *testing.T) checkpoint.Files {
		return checkpoint.Local(filepath.Join(t.TempDir(), "not/there/yet"))
	}})
}

func TestReadRefuses(t *testing.T) {
	d := checkpoint.Dir{Files: checkpoint.Local(t.TempDir())}
	c := &checkpoint.Commit{Number: 1, Optimizer: "Adam", Slots: 1,
		Layout: checkpoint.VariablesOf(param.Layout{{Name: "w", Shape: []int{48}}})}
	for want, p := range map[string]checkpoint.Part{
		"has 1 slots (Adam), expected 2": {Slots: make([][]float32, 2)},
		"commit 1, which has 48":         {Start: 40, Values: make([]float32, 9)},
	} {
		if err := d.Restore(c, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/param"
)

// A commit of another model, or of a training with another optimizer, is of no use, and the error says why.
func TestReadFitting(t *testing.T) {
	d := Dir{Local(t.TempDir())}
	layout := param.Layout{{Name: "w", Shape: []int{4}, Trainable: true}}
	s, err := WriteShard(d, 3, ShardFile(0, 1), Part{Values: make([]float32, 4)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteCommit(Commit{Format: Format, Number: 3, Life: 1, Layout: VariablesOf(layout), Optimizer: "sgd", Shards: []Shard{s}}); err != nil {
		t.Fatal(err)
	}
	other := param.Layout{{Name: "v", Shape: []int{4}, Trainable: true}}
	for _, c := range []struct {
		number    int64
		layout    param.Layout
		optimizer string
		want      string // of the error; "": none
	}{
		{3, layout, "sgd", ""},
		{3, nil, "sgd", ""},
		{3, other, "sgd", "it is of another model: "},
		{3, layout, "adam", "it is of a training with sgd, and the model has adam"},
		{4, layout, "sgd", "is not there"},
	} {
		got, err := d.ReadFitting(c.number, c.layout, c.optimizer)
		switch {
		case c.want == "" && (err != nil || got.Number != 3):
			t.Errorf("%+v: %v", c, err)
		case c.want != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}

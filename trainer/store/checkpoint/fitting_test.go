package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// A commit of another model, or of a training with another optimizer, is of no use, and the error
// says why.
func TestReadFitting(t *testing.T) {
	d := Dir{Files: Local(t.TempDir())}
	layout := param.Layout{{Name: "w", Shape: []int{4}, Trainable: true}}
	s, err := WriteShard(d, Name{Number: 3}, ShardFile(0, 1), Part{Values: make([]float32, 4)})
	if err != nil {
		t.Fatal(err)
	}
	c := Commit{Format: Format, Number: 3, ModelGeneration: 1, Layout: VariablesOf(layout),
		Optimizer: "sgd", Shards: []Shard{s}}
	if err := errors.Join(c.Seal(), d.WriteCommit(c)); err != nil {
		t.Fatal(err)
	}
	checksum := c.Checksum
	other := param.Layout{{Name: "v", Shape: []int{4}, Trainable: true}}
	for _, c := range []struct {
		number    int64
		checksum  string
		layout    param.Layout
		optimizer string
		want      string // of the error; "": none
	}{
		{3, checksum, layout, "sgd", ""},
		{3, checksum, nil, "sgd", ""},
		{3, checksum, other, "sgd", "it is of another model: "},
		{3, checksum, layout, "adam", "it is of a training with sgd, and the model has adam"},
		{4, checksum, layout, "sgd", "is not there"},
		{3, "01234567", layout, "sgd", `expected "01234567"; it is of job `},
		{3, "", layout, "sgd", `expected ""`}, // an order that does not say which
	} {
		got, err := d.ReadFitting(Name{Number: c.number}, c.checksum, c.layout, c.optimizer)
		switch {
		case c.want == "" && (err != nil || got.Number != 3):
			t.Errorf("%+v: %v", c, err)
		case c.want != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Storage that may be read later is no damage; what nobody can read is.
func TestLasting(t *testing.T) {
	for err, want := range map[error]bool{
		fs.ErrPermission: true, syscall.EACCES: true, syscall.ENOTDIR: true, syscall.EISDIR: true,
		syscall.ELOOP: true, errNoFile: true,
		syscall.EIO: false, syscall.ESTALE: false, syscall.ETIMEDOUT: false, fs.ErrNotExist: false,
	} {
		if got := lasting(fmt.Errorf("read: %w", err)); errors.Is(got, ErrDamaged) != want || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

package master

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A job that starts from another's model starts from it also when it is resumed before it has a checkpoint of its own, and knows
// what its model goes back to.
func TestResumedBeforeItsFirstCheckpoint(t *testing.T) {
	from := t.TempDir()
	d := checkpoint.Dir{Files: checkpoint.Local(from)}
	shard, err := checkpoint.WriteShard(d, 7, checkpoint.ShardFile(0, 1), checkpoint.Part{Values: make([]float32, 4)})
	if err != nil {
		t.Fatal(err)
	}
	first := checkpoint.Ancestor{Job: "first", Number: 2}
	if err := d.WriteCommit(checkpoint.Commit{
		Format: checkpoint.Format, Number: 7, Life: 1, Version: 40, Job: "second", Lineage: []checkpoint.Ancestor{first},
		Layout: checkpoint.VariablesOf(param.Layout{{Name: "w", Shape: []int{4}, Trainable: true}}), Shards: []checkpoint.Shard{shard},
	}); err != nil {
		t.Fatal(err)
	}
	for _, resume := range []bool{false, true} {
		j := job.Default()
		j.CheckpointDir, j.CheckpointDirForInit = t.TempDir(), from
		m := &master{Config: Config{Job: j, Resume: resume, Log: slog.New(slog.DiscardHandler), Self: wire.NewSelf(identity.Header{Job: "third"})}}
		c, err := newCheckpoints(m)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.load(t.Context())
		if err != nil || l.first.Number != 7 || !l.first.Fresh || l.first.records() != 0 || l.first.version() != 40 {
			t.Errorf("resumed %t: begins with %+v, %v", resume, l.first, err)
		}
		if want := []checkpoint.Ancestor{first, {Job: "second", Number: 7}}; !slices.Equal(l.lineage, want) {
			t.Errorf("resumed %t: goes back to %v, want %v", resume, l.lineage, want)
		}
	}
}

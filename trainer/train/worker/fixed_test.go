package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// predicts makes the bench's job one that predicts, with a model of version 7 whose outputs are
// twice the record, and its negative.
func (b *bench) predicts(outputs string) {
	b.Servers, b.Version, b.Prediction = nil, 7, b.Training
	b.Job.Type, b.Job.Strategy, b.Job.NumPS, b.Job.PredictionOutputs = job.Predict, "", 0, outputs
	b.Predict = func(batch *zoo.Batch) (nn.Array, error) {
		var data []float32
		for _, label := range batch.Labels {
			data = append(data, 2*float32(label), -float32(label))
		}
		return nn.Array{Shape: []int{batch.Size, 2}, Data: data}, nil
	}
}

func predicting(lease, number, start, end int64) *wire.Task {
	return &wire.Task{Kind: wire.TaskKind_PREDICTION, Lease: lease, Number: number, Of: 2, Shard: "s",
		Start: start, End: end, Version: 7}
}

// A part has one row for each record, in order, under one header, and is written before its lease
// is reported done. A repeated lease writes the same part. The parts together are the file.
func TestPrediction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b := newBench(t, ps.ServerConfig{Async: true}, predicting(1, 1, 6, 9), predicting(2, 0, 0, 6),
			predicting(3, 1, 6, 9),
			&wire.Task{Kind: wire.TaskKind_EXPORT, Lease: 4, Of: 2})
		b.predicts(filepath.Join(dir, "out.csv"))
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if len(b.master.reports) != 4 {
			t.Fatalf("reports %v", b.master.reports)
		}
		for i, r := range b.master.reports {
			if r.Error != "" || i < 3 && r.Version != 7 {
				t.Errorf("report %v", r)
			}
		}
		want := "output_0,output_1\n0,-0\n2,-1\n4,-2\n6,-3\n8,-4\n10,-5\n12,-6\n14,-7\n16,-8\n"
		if got, err := os.ReadFile(filepath.Join(dir, "out.csv")); err != nil || string(got) != want {
			t.Errorf("%q, %v, expected %q", got, err, want)
		}
	})
}

// The model's own processor is given each record with its outputs. If it fails, the task fails with
// the number of the record, and nothing of the part is written.
func TestProcessor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b := newBench(t, ps.ServerConfig{Async: true}, predicting(1, 0, 0, 3), predicting(2, 1, 3, 9))
		b.predicts(dir)
		b.Model.Processor = &zoo.Processor{Row: func(fields []string, outputs []float32,
			record []byte) ([]string, error) {
			id := binary.LittleEndian.Uint32(record)
			if id == 8 {
				return nil, errors.New("a bad one")
			}
			return append(fields, fmt.Sprintf("%d, with a comma", id), fmt.Sprint(outputs)), nil
		}}
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if r := b.master.reports; len(r) != 2 || r[0].Error != "" ||
			r[1].Error != "process the outputs of record 8 of s: a bad one" {
			t.Errorf("reports %v", r)
		}
		names, err := checkpoint.Local(dir).List("")
		if err != nil || !slices.Equal(names, []string{"part-00000-of-00002.csv"}) {
			t.Errorf("there are %v, %v", names, err)
		}
		want := "\"0, with a comma\",[0 -0]\n\"1, with a comma\",[2 -1]\n\"2, with a comma\",[4 -2]\n"
		if got, _ := os.ReadFile(filepath.Join(dir, names[0])); string(got) != want {
			t.Errorf("%q, expected %q", got, want)
		}
	})
}

// Every worker loads the commit that the master has chosen, even if a newer one or an exported
// model is there, and reports its version.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	layout := param.Layout{{Name: "count", Shape: []int{1}, Trainable: true}}
	place := checkpoint.Dir{Files: checkpoint.Local(dir)}
	var bases []*wire.Base
	for n := int64(1); n <= 2; n++ {
		s, err := checkpoint.WriteShard(place, checkpoint.Name{Number: n}, checkpoint.ShardFile(0, 1),
			checkpoint.Part{Values: []float32{float32(n)}})
		if err == nil {
			c := checkpoint.Commit{Format: checkpoint.Format, Number: n, ModelGeneration: 1, Version: 10 * n,
				Layout: checkpoint.VariablesOf(layout), Optimizer: "sgd", Shards: []checkpoint.Shard{s}}
			err = errors.Join(c.Seal(), place.WriteCommit(c))
			bases = append(bases, &wire.Base{Dir: dir, Number: n, Checksum: c.Checksum, Fresh: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out := t.TempDir()
	if err := (checkpoint.Model{Version: 33, Layout: layout, Fill: func(_ int, dst []float32) error {
		dst[0] = 3
		return nil
	}}).Export(checkpoint.Local(out), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from    string
		base    *wire.Base
		value   float32
		version int64
	}{
		{dir, bases[0], 1, 10},
		{dir + "/commit-00000002", bases[1], 2, 20},
		{out, nil, 3, 33},
		{out + "/model.safetensors", nil, 3, 33},
	} {
		cfg := Config{Job: &job.Job{Type: job.Predict, ModelSettings: job.ModelSettings{CheckpointDirForInit: c.from}},
			Engine: &counter{values: make([]float32, 1), grads: make([]float32, 1)}}
		if err := (Options{}).load(t.Context(), &cfg, c.base); err != nil ||
			cfg.Engine.Values()[0] != c.value || cfg.Version != c.version {
			t.Errorf("%s: %v, value %v of version %d, expected %v of %d", c.from, err,
				cfg.Engine.Values(), cfg.Version, c.value, c.version)
		}
	}
	cfg := Config{Job: &job.Job{Type: job.Predict, ModelSettings: job.ModelSettings{CheckpointDirForInit: dir}},
		Engine: &counter{values: make([]float32, 1)}}
	replaced := &wire.Base{Dir: dir, Number: 2, Checksum: bases[0].Checksum}
	if err := (Options{}).load(t.Context(), &cfg, replaced); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a commit that took the place of the one that is meant: %v", err)
	}
	if err := (Options{}).load(t.Context(), &cfg, &wire.Base{Dir: dir, Number: 9}); err == nil ||
		!strings.HasPrefix(err.Error(), "--checkpoint_dir_for_init="+dir+": ") {
		t.Errorf("a deleted commit: %v", err)
	}
}

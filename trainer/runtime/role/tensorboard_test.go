package role

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/store/tensorboard"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Without the flag a master is configured as before.
func TestNothingIsRecorded(t *testing.T) {
	c := master.Config{Job: job.Default()}
	Record(&c)()
	if c.OnStatus != nil || c.OnEvent != nil || c.Problems != nil {
		t.Errorf("%+v", c)
	}
}

// A master's reports are written, and reach the functions that were set before.
func TestRecord(t *testing.T) {
	j := job.Default()
	j.Name, j.TensorBoardLogDir = "test-mnist", filepath.Join(t.TempDir(), "tb")
	var heard []string
	c := master.Config{Job: j,
		OnStatus: func(s *wire.JobStatus) { heard = append(heard, s.State) },
		OnEvent:  func(master.Event) { heard = append(heard, "event") },
		Problems: func() []string { return []string{"another"} }}
	end := Record(&c)
	c.OnStatus(&wire.JobStatus{Type: "train", State: "Running", Version: 3, Loss: 0.5,
		StartedUnixMs: time.Now().UnixMilli()})
	c.OnEvent(master.PodRefused{})
	c.OnEvent(master.Evaluated{Version: 3, Metrics: map[string]float64{"accuracy": 0.75}})
	end()
	if got := strings.Join(heard, " "); got != "Running event event" {
		t.Errorf("those before have heard %s", got)
	}
	if got := c.Problems(); !slices.Equal(got, []string{"another"}) {
		t.Errorf("problems %q", got)
	}
	var tags []string
	for _, e := range eventsIn(t, filepath.Join(j.TensorBoardLogDir, "test-mnist")) {
		for _, s := range e.Scalars {
			tags = append(tags, s.Tag)
		}
	}
	if !slices.Contains(tags, "train/loss") || !slices.Contains(tags, "eval/accuracy") {
		t.Errorf("tags %q", tags)
	}
}

func eventsIn(t *testing.T, dir string) (all []tensorboard.Event) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		read, _, err := tensorboard.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, read...)
	}
	return all
}

// A directory that cannot be written to is a problem of the job, and no more.
func TestRecordNowhere(t *testing.T) {
	j := job.Default()
	j.Name, j.TensorBoardLogDir = "test-mnist", filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(j.TensorBoardLogDir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := master.Config{Job: j}
	end := Record(&c)
	c.OnStatus(&wire.JobStatus{Type: "train"})
	end()
	if got := c.Problems(); len(got) != 1 || !strings.Contains(got[0], "the job continues without TensorBoard") {
		t.Errorf("%q", got)
	}
}

// Of a bucket the run is a prefix.
func TestRunOfABucket(t *testing.T) {
	j := job.Default()
	t.Setenv("AWS_REGION", "r")
	for in, want := range map[string]string{"s3://b/tb/?region=r": "s3://b/tb/j", "s3://b": "s3://b/j"} {
		j.Name, j.TensorBoardLogDir = "j", in
		p, err := openRun(t.Context(), j)
		if err != nil || p.String() != want {
			t.Errorf("%s: %v, %v", in, p.Files, err)
		}
	}
}

func TestSessions(t *testing.T) {
	for want, c := range map[tensorboard.Session]master.Config{
		tensorboard.First: {}, tensorboard.Continued: {Resume: true},
		tensorboard.Successor: {Resume: true, Former: []byte("{}")},
	} {
		if got := sessionOf(&c); got != want {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
}

// The facts of a training are those of its model, and those of other jobs their metrics.
func TestFacts(t *testing.T) {
	trains, runs := job.DefaultOf(job.Train), job.DefaultOf(job.Run)
	for _, tt := range []struct {
		event master.Event
		want  tensorboard.Fact
	}{
		{master.RolledBack{ModelGeneration: 2, Version: 7}, tensorboard.Rollback{Version: 7, ModelGeneration: 2}},
		{master.TrainingRestarted{ModelGeneration: 3}, tensorboard.Rollback{ModelGeneration: 3}},
		{master.Resumed{Version: 8}, tensorboard.Rollback{Version: 8}},
		{master.WorldFormed{World: rendezvous.World{ID: 4}, Version: 9}, tensorboard.World{ID: 4, Version: 9}},
		{master.EpochFinished{}, nil},
	} {
		if got := factOf(tt.event, trains); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.event, got, tt.want)
		}
		if got := factOf(tt.event, runs); got != nil {
			t.Errorf("%+v of a program: %+v", tt.event, got)
		}
	}
}

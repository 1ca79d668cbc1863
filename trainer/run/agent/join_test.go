package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// sleeper is a program that keeps no state, and runs until it is ended.
var sleeper = []string{"/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`}

// With --restart_on_join=never a newcomer waits, however long, and a world that loses a member ends
// all the same.
func TestNeverRestartsForANewcomer(t *testing.T) {
	h, a := open(t, 1, sleeper...)
	h.job.Program.RestartOnJoin = job.RestartNever
	h.give(a)
	before := h.hear("it", 0)
	h.recall(1, false)
	h.stays()
	h.recall(1, true)
	a = h.arrival()
	h.told(a, 1, 1)
	h.give(a)
	if again := h.hear("it", 0); again[0] == before[0] {
		t.Error("the process is the same in the next world")
	}
}

// With --restart_on_join=now the processes start again when a newcomer waits.
func TestRestartsForANewcomerAtOnce(t *testing.T) {
	h, a := open(t, 1, sleeper...)
	h.job.Program.RestartOnJoin = job.RestartNow
	h.give(a)
	before := h.hear("it", 0)
	h.recall(1, false)
	a = h.arrival()
	h.told(a, 1, 1)
	h.give(a)
	if again := h.hear("it", 0); again[0] == before[0] {
		t.Error("the process is the same in the next world")
	}
}

// touch makes a file if it is not there, and sets its modification time.
func touch(t *testing.T, path string, at time.Time) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// With --restart_on_join=checkpoint the processes start again after the next checkpoint: not for
// one that was there when the newcomer came, and not for one that is still being written. Those of
// other workers may be writing theirs: they are not told to break off.
func TestRestartsForANewcomerAfterACheckpoint(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	touch(t, filepath.Join(dir, "1.pt"), now.Add(-time.Hour))
	h, a := open(t, 1, sleeper...)
	h.job.Program.RestartOnJoin, h.job.Program.Checkpoint = job.RestartAtCheckpoint, filepath.Join(dir, "*.pt")
	h.give(a)
	before := h.hear("it", 0)
	h.recall(1, false)
	for !strings.Contains(next(h, "the wait for a checkpoint", h.logs), "A worker waits to join") {
	}
	h.stays()
	touch(t, filepath.Join(dir, "2.pt"), now.Add(time.Hour)) // it is being written
	touch(t, filepath.Join(dir, "other"), now)
	h.stays()
	touch(t, filepath.Join(dir, "2.pt"), now.Add(-time.Minute))
	a = h.arrival()
	h.told(a, 1, 1)
	if a.BrokeOff {
		t.Error("the others are told to break off")
	}
	h.give(a)
	if again := h.hear("it", 0); again[0] == before[0] {
		t.Error("the process is the same in the next world")
	}
}

// The decision whether a world that was recalled is left, by who is in it and what
// --restart_on_join says.
func TestYields(t *testing.T) {
	plain := func() *process { return &process{member: true} }
	keeps := func() *process { return &process{script: &script{keeps: true}, member: true} }
	ended := func() *process { return &process{exit: &program.Exit{}, member: true} }
	trained := func() *process { return &process{script: &script{keeps: true}, done: true, member: true} }
	for name, c := range map[string]struct {
		procs []*process
		// --restart_on_join
		when string
		// a worker joins; else a member is lost, or leaves
		joins  bool
		yields bool
	}{
		"a member is lost":                          {[]*process{plain()}, job.RestartNever, false, true},
		"a member is lost, a checkpoint is awaited": {[]*process{plain()}, job.RestartAtCheckpoint, false, true},
		"a member is lost after the training":       {[]*process{trained()}, job.RestartNow, false, false},
		"a worker joins":                            {[]*process{plain(), plain()}, job.RestartNow, true, true},
		"a worker joins, never":                     {[]*process{plain(), plain()}, job.RestartNever, true, false},
		"a worker joins, no checkpoint yet": {[]*process{plain(), plain()},
			job.RestartAtCheckpoint, true, false},
		"a worker joins those that keep state":           {[]*process{keeps(), keeps()}, job.RestartNever, true, true},
		"a worker joins, one of two keeps state":         {[]*process{keeps(), plain()}, job.RestartNever, true, false},
		"a worker joins, one keeps state, one has ended": {[]*process{keeps(), ended()}, job.RestartNever, true, true},
		"a worker joins when all have ended with 0":      {[]*process{ended(), ended()}, job.RestartNow, true, false},
		"a worker joins when one of two has ended":       {[]*process{ended(), plain()}, job.RestartNow, true, true},
		"a worker joins after the training":              {[]*process{trained(), keeps()}, job.RestartNow, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVigil(t, c.when, "*.pt")
			v.procs, v.here = c.procs, len(c.procs)
			if got := v.yields(c.joins); got != c.yields {
				t.Errorf("it leaves the world: %v, want %v", got, c.yields)
			}
		})
	}
}

// newVigil returns a vigil of one process that keeps no state, in a directory of its own.
func newVigil(t *testing.T, when, checkpoint string) *vigil {
	j := job.DefaultOf(job.Run)
	j.Program.RestartOnJoin, j.Program.Checkpoint = when, checkpoint
	return &vigil{agent: &agent{Config: Config{Job: j, Log: slog.New(slog.DiscardHandler)},
		workdir: t.TempDir(), procs: []*process{{}}}, here: 1}
}

// A checkpoint counts if it is newer than all that were there when the newcomer came, relative to
// the directory of the processes or not.
func TestYieldsAtACheckpoint(t *testing.T) {
	for _, absolute := range []bool{false, true} {
		v := newVigil(t, job.RestartAtCheckpoint, "c*.pt")
		if absolute {
			v.Job.Program.Checkpoint = filepath.Join(v.workdir, "c*.pt")
		}
		now := time.Now()
		for _, c := range []struct {
			file   string
			at     time.Duration // before now
			yields bool
		}{
			{"c1.pt", time.Hour, false},       // it is there when the newcomer comes
			{"c0.pt", 2 * time.Hour, false},   // older
			{"d.pt", time.Second, false},      // no checkpoint
			{"c2.pt", -time.Hour, false},      // being written
			{"c2.pt", 10 * time.Minute, true}, // complete
			{"c3.pt", -time.Hour, false},      // the next one is being written
			{"c3.pt", 9 * time.Minute, true},  // complete, too
			{"c1.pt", 8 * time.Minute, true},  // the same file, written again
		} {
			touch(t, filepath.Join(v.workdir, c.file), now.Add(-c.at))
			if got := v.yields(true); got != c.yields {
				t.Errorf("absolute %v, %s written %v ago: it leaves the world: %v, want %v", absolute,
					c.file, c.at, got, c.yields)
			}
		}
	}
}

// The number of processes of a worker, as --nproc_per_node asks for it.
func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		asked, visible string // CUDA_VISIBLE_DEVICES
		processors     int
		want           int
	}{
		{"3", "", 8, 3},
		{"3", "0,1", 8, 3},
		{"1", "0,1", 8, 1},
		{"cpu", "", 8, 8},
		{"cpu", "0,1", 8, 8},
		{"cpu", "", 0, 1}, // less than one processor
		{"auto", "", 8, 8},
		{"auto", "-1", 8, 8},
		{"auto", "0", 8, 1},
		{"auto", "0,3", 8, 2},
		{"auto", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-1", 8, 2},
		{"auto", "", 0, 1},
		{"gpu", "2", 8, 1},
		{"gpu", "0,1,2,3", 8, 4},
		{"gpu", "0,-1,1", 8, 1}, // CUDA ignores what follows an invalid one
	} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
		if got, err := Processes(c.asked, c.processors); got != c.want || err != nil {
			t.Errorf("--nproc_per_node=%s with %d processors and GPUs %q: %d, %v; want %d", c.asked,
				c.processors, c.visible, got, err, c.want)
		}
	}
	for _, visible := range []string{"", "-1"} {
		t.Setenv("CUDA_VISIBLE_DEVICES", visible)
		if got, err := Processes("gpu", 8); err == nil ||
			!strings.Contains(err.Error(), "--nproc_per_node=gpu: this worker has no GPU") {
			t.Errorf("--nproc_per_node=gpu with GPUs %q: %d, %v; want an error that names the flag", visible, got, err)
		}
	}
}

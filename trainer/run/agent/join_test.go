package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// sleeper is a program that keeps no state, and runs until it is ended.
var sleeper = []string{"/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`}

// With --restart_on_join=never a new worker waits without a limit. A world that loses a member ends
// nevertheless.
func TestNeverRestartsForANewcomer(t *testing.T) {
	h, a := openWith(t, restarting(job.RestartNever, ""), 1, sleeper...)
	h.give(a)
	before := h.hear("it", 0)
	h.recall(1, false)
	h.stays()
	h.recall(1, true)
	a = h.arrival()
	h.checkFailures(a, 1, 1)
	h.give(a)
	if again := h.hear("it", 0); again[0] == before[0] {
		t.Error("the process is the same in the next world")
	}
}

// With --restart_on_join=now the processes restart when a new worker waits.
func TestRestartsForANewcomerAtOnce(t *testing.T) {
	h, a := openWith(t, restarting(job.RestartNow, ""), 1, sleeper...)
	h.give(a)
	before := h.hear("it", 0)
	h.recall(1, false)
	a = h.arrival()
	h.checkFailures(a, 1, 1)
	h.give(a)
	if again := h.hear("it", 0); again[0] == before[0] {
		t.Error("the process is the same in the next world")
	}
}

// touch creates a file if it does not exist, and sets its modification time.
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

// With --restart_on_join=checkpoint the processes restart after the next checkpoint. A checkpoint
// that existed when the new worker arrived does not count, nor does one that is still being
// written. Other workers may be writing theirs, so they are not asked to leave the round.
func TestRestartsForANewcomerAfterACheckpoint(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	touch(t, filepath.Join(dir, "1.pt"), now.Add(-time.Hour))
	h, a := openWith(t, restarting(job.RestartAtCheckpoint, filepath.Join(dir, "*.pt")), 1, sleeper...)
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
	h.checkFailures(a, 1, 1)
	if a.BrokeOff {
		t.Error("the others are asked to break off")
	}
	h.give(a)
	if again := h.hear("it", 0); again[0] == before[0] {
		t.Error("the process is the same in the next world")
	}
}

// The number of processes of a worker follows from --nproc_per_node.
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

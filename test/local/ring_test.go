package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ring has the flags of a ring of four whose updates are of 200 records each, so that the shipped
// digits are exactly 50 updates per epoch, with any number of workers.
var ring = []string{
	"--distribution_strategy=AllreduceStrategy", "--num_ps_pods=0",
	"--minibatch_size=50", "--global_batch_size=200",
}

const updatesPerEpoch = trainingDigits / 200

// trainRing starts a ring.
func trainRing(t *testing.T, flags ...string) *launched {
	t.Helper()
	return train(t, append(ring[:len(ring):len(ring)], flags...)...)
}

// onceEach checks that every record of every epoch was credited once, and is in the model once.
func onceEach(t *testing.T, s *wire.JobStatus, epochs int) {
	t.Helper()
	succeeded(t, s, epochs)
	if want := int64(epochs * updatesPerEpoch); s.Version != want {
		t.Errorf("%d updates, want %d", s.Version, want)
	}
}

// survive checks that these workers still run as the same processes.
func survive(t *testing.T, before, after *wire.JobStatus, workers ...int) {
	t.Helper()
	for _, i := range workers {
		was, is := pod(before, wire.Role_WORKER, i), pod(after, wire.Role_WORKER, i)
		if was == nil || is == nil || is.Pid != was.Pid || is.State == "Failed" || is.State == "Deleted" {
			t.Errorf("worker-%d was disturbed: before %v, after %v", i, was, is)
		}
	}
}

// worldOf returns a function that reports whether n workers are in the ring.
func worldOf(n int32) func(*wire.JobStatus) bool {
	return func(s *wire.JobStatus) bool { return s.WorldSize == n }
}

func TestRing(t *testing.T) {
	output := filepath.Join(t.TempDir(), "model")
	// The first world waits for all workers, however long they take to start.
	j := trainRing(t, cnn, "--num_epochs=1", "--min_workers=4", "--evaluation_steps=20",
		"--log_loss_steps=10", "--output="+output)
	s := j.end(0)
	onceEach(t, s, 1)
	if got := j.accuracy(); got < 0.8 {
		t.Errorf("accuracy %.4f, want 0.8 at least", got)
	}
	// Version 40 is skipped if the evaluation of version 20 is still running.
	if n := len(s.Evaluations); n < 2 {
		t.Errorf("%d evaluations, want one of version 20 and one at the end", n)
	}
	for i := range 4 {
		if name := "worker-" + strconv.Itoa(i); !lossLine.MatchString(j.log(name)) {
			t.Errorf("no loss in the log of %s", name)
		}
	}
	if pod(s, wire.Role_PS, 0) != nil || strings.Contains(j.out.String(), "ps-0") {
		t.Errorf("a ring has a server: %v\n%s", s.Pods, j.out.String())
	}
	if _, err := os.Stat(filepath.Join(output, "model.safetensors")); err != nil {
		t.Errorf("no model in --output: %v", err)
	}
	if s.World != 1 || s.Relaunched != 0 {
		t.Errorf("world %d and %d pods replaced, and nobody came or went", s.World, s.Relaunched)
	}
	nobodyLeft(t)
}

func TestRingLosesAWorker(t *testing.T) {
	for name, tt := range map[string]struct {
		signal syscall.Signal
		reason string
	}{
		"killed":  {syscall.SIGKILL, "killed"},
		"stopped": {syscall.SIGSTOP, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := trainRing(t, patient, "--num_epochs=10", "--heartbeat_timeout=5s")
			before := j.until("training", func(s *wire.JobStatus) bool { return trained(0.1)(s) && worldOf(4)(s) })
			lost := time.Now()
			j.kill(pod(before, wire.Role_WORKER, 0), tt.signal)
			j.until("a step of the survivors in another world", func(s *wire.JobStatus) bool {
				return s.World > before.World && s.WorldSize >= 3 && s.RecordsDone > before.RecordsDone
			})
			t.Logf("from the signal to progress in another world: %v", time.Since(lost).Round(time.Millisecond))
			after := j.until("a ring of four", func(s *wire.JobStatus) bool {
				return s.World > before.World && worldOf(4)(s)
			})
			survive(t, before, after, 1, 2, 3)
			if p := pod(after, wire.Role_WORKER, 4); p == nil {
				t.Error("there is no worker-4")
			}
			j.hurry()
			s := j.end(0)
			onceEach(t, s, 10)
			if s.Relaunched != 1 {
				t.Errorf("%d pods replaced, want 1", s.Relaunched)
			}
			if p := pod(s, wire.Role_WORKER, 0); p == nil || p.State == "Running" ||
				!strings.Contains(p.Reason, tt.reason) {
				t.Errorf("worker-0 is %v, want it replaced, %s", p, tt.reason)
			}
			nobodyLeft(t)
		})
	}
}

func TestRingIsScaled(t *testing.T) {
	j := trainRing(t, patient, "--num_epochs=10", "--num_workers=2", "--max_workers=4")
	before := j.until("training of two", func(s *wire.JobStatus) bool { return trained(0.001)(s) && worldOf(2)(s) })
	for _, n := range []int32{4, 1, 3} {
		if out, err := exec.Command(program, "scale", j.name, "--num_workers="+
			strconv.Itoa(int(n))).CombinedOutput(); err != nil {
			t.Fatalf("scale: %v\n%s", err, out)
		}
		began := time.Now()
		after := j.until("ring of "+strconv.Itoa(int(n)), worldOf(n))
		t.Logf("a ring of %d after %v", n, time.Since(began).Round(time.Millisecond))
		survive(t, before, after, 0)
	}
	if out, err := exec.Command(program, "scale", j.name, "--num_workers=5").CombinedOutput(); err == nil {
		t.Errorf("beyond --max_workers: %s", out)
	}
	j.hurry()
	s := j.end(0)
	onceEach(t, s, 10)
	if s.Relaunched != 0 {
		t.Errorf("%d pods replaced, and none was lost", s.Relaunched)
	}
	nobodyLeft(t)
}

// The loss of all workers at once loses the state: the training starts over, and completes.
func TestRingLosesAll(t *testing.T) {
	j := trainRing(t, patient, "--num_epochs=10")
	before := j.until("training", func(s *wire.JobStatus) bool { return trained(0.2)(s) && worldOf(4)(s) })
	for i := range 4 {
		// so that no worker notices the end of another
		j.kill(pod(before, wire.Role_WORKER, i), syscall.SIGSTOP)
	}
	for i := range 4 {
		j.kill(pod(before, wire.Role_WORKER, i), syscall.SIGKILL)
	}
	j.until("a ring of others", func(s *wire.JobStatus) bool { return s.World > before.World && worldOf(4)(s) })
	j.hurry()
	s := j.end(0)
	onceEach(t, s, 10)
	if s.Relaunched != 4 {
		t.Errorf("%d pods replaced, want 4", s.Relaunched)
	}
	nobodyLeft(t)
}

// A ring whose workers join and leave all the time learns the same as an undisturbed one.
func TestRingInUnrest(t *testing.T) {
	j := trainRing(t, small, "--num_epochs=15")
	kills := j.killWorkers(250 * time.Millisecond)
	s := j.end(0)
	t.Logf("%d workers killed, %d pods replaced, %d tasks taken back, world %d", kills, s.Relaunched,
		s.Requeued, s.World)
	onceEach(t, s, 15)
	if kills == 0 {
		t.Error("no worker was killed")
	}
	if got := j.accuracy(); got < 0.9 {
		t.Errorf("accuracy %.4f, want 0.9 at least", got)
	}
}

func TestNothingIsLeftOfARing(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, j *launched){
		"stop": func(t *testing.T, j *launched) {
			if out, err := exec.Command(program, "stop", j.name).CombinedOutput(); err != nil {
				t.Fatalf("stop: %v\n%s", err, out)
			}
			if s := j.end(1); s.State != "Stopped" {
				t.Errorf("the job is %s, want Stopped", s.State)
			}
		},
		"launcher killed, a worker stopped": func(t *testing.T, j *launched) {
			j.halt(pod(j.status(), wire.Role_WORKER, 2))
			j.cmd.Process.Kill()
			j.wait()
		},
	} {
		t.Run(what, func(t *testing.T) {
			j := trainRing(t, patient, "--num_epochs=1000")
			j.until("training", trained(0.0001))
			end(t, j)
			nobodyLeft(t)
		})
	}
}

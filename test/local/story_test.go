package local_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	cnn = "--model_def=mnist.mnist_functional_api.custom_model"
	// For tests in which the model does not matter: a cheap model, and one that waits until the
	// last disturbance of the job.
	small   = "--model_def=digits.small.custom_model"
	patient = "--model_def=digits.patient.custom_model"
)

func TestTrain(t *testing.T) {
	output := filepath.Join(t.TempDir(), "model")
	j := train(t, cnn, "--num_epochs=1", "--evaluation_steps=100", "--log_loss_steps=20", "--output="+output)
	s := j.end(0)
	allRecords(t, s, 1, 0)
	if got := j.accuracy(); got < 0.9 {
		t.Errorf("accuracy %.4f, want 0.9 at least", got)
	}
	if n := len(s.Evaluations); n < 2 {
		t.Errorf("%d evaluations, want one of version 100 and one at the end", n)
	}
	for _, pod := range []string{"worker-0", "worker-3"} {
		if !lossLine.MatchString(j.log(pod)) {
			t.Errorf("no loss in the log of %s", pod)
		}
	}
	if files, err := os.ReadDir(output); err != nil || len(files) == 0 {
		t.Errorf("no model in --output: %v", err)
	}
	nobodyLeft(t)
}

func TestKilledWorkerIsReplaced(t *testing.T) {
	j := train(t, patient, "--num_epochs=10", "--log_loss_steps=1")
	s := j.until("training of worker-0", func(s *wire.JobStatus) bool {
		return trained(0.01)(s) && lossLine.MatchString(j.log("worker-0"))
	})
	killed := time.Now()
	j.kill(pod(s, wire.Role_WORKER, 0), syscall.SIGKILL)
	s = j.until("worker-4", func(s *wire.JobStatus) bool { return pod(s, wire.Role_WORKER, 4) != nil })
	eventually(t, "step of worker-4", 30*time.Second, func() bool { return lossLine.MatchString(j.log("worker-4")) })
	t.Logf("from kill -9 of worker-0 to the first step of worker-4: %v", time.Since(killed).Round(time.Millisecond))
	for i := 1; i < 4; i++ {
		if p := pod(s, wire.Role_WORKER, i); p == nil || p.State != "Running" {
			t.Errorf("worker-%d was disturbed: %v", i, p)
		}
	}
	j.hurry()
	s = j.end(0)
	allRecords(t, s, 10, 1)
	if s.Relaunched != 1 {
		t.Errorf("%d pods replaced, want 1", s.Relaunched)
	}
	if p := pod(s, wire.Role_WORKER, 0); p == nil || !strings.Contains(p.Reason, "killed") {
		t.Errorf("worker-0 is %v, want killed", p)
	}
}

func TestNothingIsLeft(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, j *launched){
		"stop": func(t *testing.T, j *launched) {
			if out, err := exec.Command(program, "stop", j.name).CombinedOutput(); err != nil {
				t.Fatalf("stop: %v\n%s", err, out)
			}
			if s := j.end(1); s.State != "Stopped" {
				t.Errorf("the job is %s, want Stopped", s.State)
			}
		},
		"interrupt": func(t *testing.T, j *launched) {
			j.cmd.Process.Signal(os.Interrupt)
			if s := j.end(130); s.State != "Stopped" {
				t.Errorf("the job is %s, want Stopped", s.State)
			}
		},
		"launcher killed": func(t *testing.T, j *launched) {
			j.cmd.Process.Kill()
			j.wait()
		},
		"launcher killed, a worker stopped": func(t *testing.T, j *launched) {
			j.halt(pod(j.status(), wire.Role_WORKER, 2))
			j.cmd.Process.Kill()
			j.wait()
		},
		"interrupt, the master killed": func(t *testing.T, j *launched) {
			if err := syscall.Kill(j.master(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			j.cmd.Process.Signal(os.Interrupt)
			if s := j.end(130); s.State != "Stopped" {
				t.Errorf("the job is %s: %s", s.State, s.Reason)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			j := train(t, patient, "--num_epochs=1000")
			j.until("training", trained(0.0001))
			end(t, j)
			nobodyLeft(t)
			// A killed process may hold its files, and with them the job's lock, for a moment after
			// it disappears from the list of processes.
			eventually(t, "the end of the job in its status", 10*time.Second, func() bool {
				return job.State(j.status().State).Ended()
			})
		})
	}
}

// master returns the pid of the master: the process that the launcher started.
func (j *launched) master() int {
	j.t.Helper()
	for _, pid := range processes(j.t) {
		cmdline, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if args := strings.Split(string(cmdline), "\x00"); len(args) > 1 && args[1] == "master" {
			return pid
		}
	}
	j.t.Fatal("no master runs")
	return 0
}

func TestDetachedJobOutlivesItsLauncher(t *testing.T) {
	j := train(t, small, "--num_epochs=3", "--detach")
	j.end(0)
	out, err := exec.Command(program, "wait", j.name).CombinedOutput()
	if err != nil {
		t.Fatalf("wait: %v\n%s", err, out)
	}
	allRecords(t, j.status(), 3, 0)
	nobodyLeft(t)
}

func TestStragglerLosesItsLease(t *testing.T) {
	j := train(t, patient, "--num_epochs=10", "--task_timeout=5s")
	s := j.until("training", trained(0.01))
	straggler := pod(s, wire.Role_WORKER, 1)
	for {
		j.halt(straggler)
		epoch := j.status().Epoch
		s = j.until("loss of the lease", func(s *wire.JobStatus) bool { return s.Requeued > 0 || s.Epoch > epoch })
		if s.Requeued > 0 {
			break
		}
		// It held no lease, so the epoch has ended without it; or it had done all records of its
		// lease, and was replaced.
		if err := syscall.Kill(int(straggler.Pid), syscall.SIGCONT); errors.Is(err, syscall.ESRCH) {
			straggler = pod(j.status(), wire.Role_WORKER, 0)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	j.hurry()
	allRecords(t, j.end(0), 10, 4)
	nobodyLeft(t)
}

func TestKilledServerComesBack(t *testing.T) {
	j := train(t, patient, "--num_epochs=10")
	s := j.until("training", trained(0.03))
	before := pod(s, wire.Role_PS, 1)
	j.kill(before, syscall.SIGKILL)
	s = j.until("return of ps-1", func(s *wire.JobStatus) bool {
		p := pod(s, wire.Role_PS, 1)
		return p.State == "Running" && p.Pid != before.Pid
	})
	if after := pod(s, wire.Role_PS, 1); after.Address != before.Address {
		t.Errorf("ps-1 listens on %s, before on %s", after.Address, before.Address)
	}
	j.hurry()
	allRecords(t, j.end(0), 10, 0)
	if got := j.accuracy(); got < 0.9 {
		t.Errorf("accuracy %.4f, want 0.9 at least", got)
	}
}

func TestSynchronousJobLosesAWorker(t *testing.T) {
	j := train(t, patient, "--num_epochs=10", "--use_async=false", "--grads_to_wait=4")
	s := j.until("training", trained(0.02))
	j.kill(pod(s, wire.Role_WORKER, 2), syscall.SIGKILL)
	j.hurry()
	s = j.end(0)
	succeeded(t, s, 10)
	if s.Relaunched != 1 {
		t.Errorf("%d pods replaced, want 1", s.Relaunched)
	}
	if got := j.accuracy(); got < 0.8 {
		t.Errorf("accuracy %.4f, want 0.8 at least", got)
	}
}

func TestBadDataEndsAJobAndIsNamed(t *testing.T) {
	bad := t.TempDir()
	copyTree(t, filepath.Join(digits, "train"), bad, func(path string, text []byte) []byte {
		text[len(text)*3/4] ^= 0xff
		return text
	})
	j := train(t, small, "--training_data="+bad)
	s := j.end(1)
	if s.State != "Failed" || !regexp.MustCompile(`data-\S+.*offset \d+`).MatchString(s.Reason) {
		t.Errorf("the job is %s: %s", s.State, s.Reason)
	}
	if !strings.Contains(j.out.String(), "offset") {
		t.Errorf("train does not say what is wrong:\n%s", j.out.String())
	}
	nobodyLeft(t)
}

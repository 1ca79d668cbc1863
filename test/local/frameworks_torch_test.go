//go:build torch

package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// TestFrameworksKeepTheirState checks a job of each framework while a process and a worker are
// killed, a worker joins and one leaves, and the job is stopped and started again. The model has
// every record once in each epoch, by its own count and by the master's. Processes that are not
// lost are kept.
func TestFrameworksKeepTheirState(t *testing.T) {
	python := torch.Frameworks(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	for _, name := range []string{"counts_trainer.py", "counts_accelerate.py", "counts_lightning.py"} {
		t.Run(name, func(t *testing.T) {
			const records = 8000
			dir := t.TempDir()
			j := scriptIn(t, python, name, dir, []string{strconv.Itoa(records), "0.5"},
				"--num_workers=2", "--max_workers=3", "--heartbeat_timeout=10s")
			pids := j.whole(2)
			took := func(what string, size, lost int, do func()) {
				t.Helper()
				had, began := pids, time.Now()
				do()
				pids = j.whole(size, lost)
				t.Logf("%s: %v until all step again", what, time.Since(began).Round(10*time.Millisecond))
				for _, pid := range had {
					if lost > 0 && pid != lost && !slices.Contains(pids, pid) {
						t.Errorf("%s: process %d was not lost, and was started again", what, pid)
					}
				}
			}
			took("a process killed", 2, pids[0], func() { syscall.Kill(pids[0], syscall.SIGKILL) })
			took("a worker killed", 2, pids[0], func() {
				j.kill(j.podOf(fmt.Sprintf("pid %d\n", pids[0])), syscall.SIGKILL)
			})
			took("one joins", 3, 1, func() { j.scale(3) })
			took("one leaves", 2, 0, func() { j.scale(2) })
			j.cmd.Process.Signal(os.Interrupt)
			if s := j.end(130); s.RecordsDone == 0 || s.RecordsDone == 2*records || s.Restarts != 0 {
				t.Errorf("%d records were trained on, want some; %d failures counted", s.RecordsDone, s.Restarts)
			}
			j.nobody()
			if strings.Contains(j.log(""), "Received SIGTERM") {
				t.Error("Lightning keeps the signal, and the stop takes the grace period")
			}
			again := scriptIn(t, python, name, dir, []string{strconv.Itoa(records), "0"}, "--num_workers=2")
			allCounted(t, again, again.end(0), records)
		})
	}
}

// TestFrameworksContinueFromTheirCheckpoints checks a script with Hugging Face's Trainer that knows
// nothing of ElasticDL. After the loss of a process, and of a worker, it continues from the newest
// checkpoint that is complete.
func TestFrameworksContinueFromTheirCheckpoints(t *testing.T) {
	python := torch.Frameworks(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("OMP_NUM_THREADS", "1")
	dir := t.TempDir()
	j := example(t, python, "trainer.py", dir, "--num_workers=2")
	newest := func() int {
		n := 0
		paths, _ := filepath.Glob(filepath.Join(dir, "checkpoint-*", "trainer_state.json")) // the pattern is valid
		for _, path := range paths {
			_, step, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "-")
			at, _ := strconv.Atoi(step) // 0: not the name of a checkpoint
			n = max(n, at)
		}
		return n
	}
	for _, lose := range []func(){
		func() { j.killRank(1) },
		func() { j.kill(pod(j.status(), wire.Role_WORKER, 1), syscall.SIGKILL) },
	} {
		had := newest()
		eventually(t, "another checkpoint", 3*time.Minute, func() bool { return newest() > had })
		lose()
	}
	if s := j.end(0); s.State != "Succeeded" || s.Restarts != 0 {
		t.Errorf("%s, %d failures counted: %s", s.State, s.Restarts, s.Reason)
	}
	if n := newest(); n != 250 {
		t.Errorf("the last checkpoint has step %d, want 250, of 2 epochs of 2000 records", n)
	}
	if n := strings.Count(j.log(""), "'epoch': '0.08'"); n != 1 {
		t.Errorf("the training began %d times", n)
	}
	j.nobody()
}

// TestFrameworksExamples runs the other examples, and kills a process of each.
func TestFrameworksExamples(t *testing.T) {
	python := torch.Frameworks(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("OMP_NUM_THREADS", "1")
	for _, c := range []struct {
		name, says string
		records    int64
	}{
		{"elastic_trainer.py", "'train_loss': ", 4000},
		{"elastic_accelerate.py", "accuracy 0.9", 8000},
		{"elastic_lightning.py", "accuracy 0.9", 8000},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := example(t, python, c.name, t.TempDir(), "--num_workers=2")
			eventually(t, "records", 3*time.Minute, func() bool {
				s, err := local.Status(t.Context(), j.name)
				return err == nil && s.RecordsDone > 100
			})
			j.killRank(1)
			if s := j.end(0); s.State != "Succeeded" || s.RecordsDone != c.records || s.Restarts != 0 {
				t.Errorf("%s with %d of %d records; %d failures counted: %s", s.State, s.RecordsDone, c.records,
					s.Restarts, s.Reason)
			}
			if !strings.Contains(j.log(""), c.says) {
				t.Errorf("no process has said %q", c.says)
			}
			j.nobody()
		})
	}
}

// TestFrameworksCheckpointBeforeAStop checks that Hugging Face's own checkpoint before the end of a
// process is complete when a job has been stopped, and that the job continues from it.
func TestFrameworksCheckpointBeforeAStop(t *testing.T) {
	python := torch.Frameworks(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	const size = 800
	dir := t.TempDir()
	j := scriptIn(t, python, "jit_trainer.py", dir, []string{strconv.Itoa(size), "0.2"}, "--num_workers=2")
	j.whole(2)
	if out, err := exec.Command(program, "stop", j.name).CombinedOutput(); err != nil {
		t.Fatalf("stop: %v\n%s", err, out)
	}
	last := 0
	for _, s := range j.steps() {
		last = max(last, s.step)
	}
	j.end(1)
	saved, err := filepath.Glob(filepath.Join(dir, "output", "checkpoint-*", "trainer_state.json"))
	if err != nil || len(saved) != 1 {
		t.Fatalf("checkpoints %v, %v; want one", saved, err)
	}
	again := scriptIn(t, python, "jit_trainer.py", dir, []string{strconv.Itoa(size), "0"}, "--num_workers=2")
	again.end(0)
	first := again.steps()[0].step
	if name := filepath.Base(filepath.Dir(saved[0])); name != fmt.Sprintf("checkpoint-%d", first-1) || first < 2 {
		t.Errorf("the job continues with step %d, and the checkpoint is %s", first, name)
	}
	t.Logf("%d steps were lost", last-first+1)
	if want := "ends after step 200 of 200"; !strings.Contains(again.log(""), want) {
		t.Errorf("no process has said %q", want)
	}
	again.nobody()
}

// TestFrameworksTokens checks that the gradients of each update of Trainer are those of one process
// with the batch of all ranks, also where ranks have batches of different sizes, or none.
func TestFrameworksTokens(t *testing.T) {
	python := torch.Frameworks(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	j := scriptIn(t, python, "tokens_trainer.py", t.TempDir(), nil, "--num_workers=2")
	if s := j.end(0); s.State != "Succeeded" || s.RecordsDone != 90 {
		t.Errorf("%s with %d of 90 records: %s", s.State, s.RecordsDone, s.Reason)
	}
	// Their number depends on how the last records are divided.
	if !regexp.MustCompile(`compared [67] updates`).MatchString(j.log("")) {
		t.Error("no process has compared all updates")
	}
	j.nobody()
}

// TestFrameworksRefuse checks the errors for arguments that the integrations do not follow.
func TestFrameworksRefuse(t *testing.T) {
	python := torch.Frameworks(t)
	cmd := exec.CommandContext(t.Context(), python.Path, "testdata/refuses.py", t.TempDir())
	packages, err := filepath.Abs("../../trainer/run/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "HF_HUB_OFFLINE=1", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "all is refused") {
		t.Errorf("%v\n%s", err, out)
	}
}

// example starts a job of an example, whose argument is a directory.
func example(t *testing.T, python torch.Python, name, dir string, flags ...string) *launched {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../examples/pytorch/frameworks", name))
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, slices.Concat([]string{"run"}, flags,
		[]string{"--", filepath.Join(filepath.Dir(python.Path), "python3"), path, dir})...)
}

// killRank kills the process of a rank, if it has not ended.
func (j *launched) killRank(rank int) {
	for pid, cmdline := range j.everybody() {
		if strings.Contains(cmdline, fmt.Sprintf("[rank %d]", rank)) {
			j.t.Logf("rank %d is killed: %v", rank, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

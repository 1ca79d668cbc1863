//go:build torch

package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
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
			again := scriptIn(t, python, name, dir, []string{strconv.Itoa(records), "0"}, "--num_workers=2")
			allCounted(t, again, again.end(0), records)
		})
	}
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
	if !strings.Contains(j.log(""), "compared 6 updates") {
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

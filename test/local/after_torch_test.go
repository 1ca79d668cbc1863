//go:build torch

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// TestTorchRunAfterTheTraining loses workers when the training has ended, and the processes do what
// a script does then. The loss of a worker whose process has ended changes nothing. After that of a
// process that has not, all start again, once the others have ended: from the checkpoint that the
// package has written at the end, so that no record is trained on again.
func TestTorchRunAfterTheTraining(t *testing.T) {
	const records = 256
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			dir := t.TempDir()
			touch := func(name string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			touch("hold")
			j := scriptIn(t, python, "counts.py", dir, []string{strconv.Itoa(records), "0"})
			said := regexp.MustCompile(`after the training: rank (\d) pid (\d+)`)
			eventually(t, "end of the training", runLimit, func() bool {
				return len(said.FindAllString(j.log(""), -1)) == 3
			})
			steps := len(j.steps())

			touch("end-1")
			ended := j.podOf("after the training: rank 1 ")
			eventually(t, "end of rank 1", runLimit, func() bool {
				return strings.Contains(j.log(name(ended)), "All processes have ended with 0")
			})
			j.kill(ended, syscall.SIGKILL)
			j.until("a pod in its place", func(s *wire.JobStatus) bool {
				return pod(s, wire.Role_WORKER, 3).GetState() == "Running"
			})
			if s := j.status(); s.Rollbacks != 0 || s.State != "Running" {
				t.Errorf("%s, after %d rewinds: %s", s.State, s.Rollbacks, s.RollbackReason)
			}

			for _, m := range said.FindAllStringSubmatch(j.log(""), -1) {
				if pid, _ := strconv.Atoi(m[2]); m[1] == "2" && syscall.Kill(pid, syscall.SIGKILL) != nil {
					t.Fatalf("rank 2, process %d, is not there", pid)
				}
			}
			waits := "those that are past the training complete what they do"
			eventually(t, "agent that waits for rank 0", runLimit, func() bool {
				return strings.Contains(j.log(""), waits)
			})
			if err := os.Remove(filepath.Join(dir, "hold")); err != nil {
				t.Fatal(err)
			}
			s := j.end(0)
			allCounted(t, j, s, records)
			if s.Rollbacks != 1 || !strings.Contains(s.RollbackReason, fmt.Sprintf("with %d records", 2*records)) ||
				!strings.Contains(s.RollbackReason, "was lost, or failed, after the training") {
				t.Errorf("%d rewinds: %s", s.Rollbacks, s.RollbackReason)
			}
			if again := len(j.steps()) - steps; again != 0 {
				t.Errorf("%d steps were done again", again)
			}
		})
	}
}

// podOf returns the pod of which the log has a text.
func (j *launched) podOf(text string) *wire.PodStatus {
	j.t.Helper()
	for _, p := range j.status().Pods {
		if strings.Contains(j.log(name(p)), text) {
			return p
		}
	}
	j.t.Fatalf("no pod has said %q", text)
	return nil
}

// name returns the name of a pod.
func name(p *wire.PodStatus) string {
	return fmt.Sprintf("%s-%d", strings.ToLower(p.Role.String()), p.Index)
}

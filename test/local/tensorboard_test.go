package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/test/tensorboard"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// TensorBoard shows the curves of a job that loses a server, its master and a worker, each curve
// once: steps rise, and the last point is that of the trained model.
func TestTensorBoard(t *testing.T) {
	works := func(s *wire.JobStatus) bool { return s.RecordsPerSecond > 0 }
	for name, flags := range map[string][]string{
		"servers": {"--checkpoint_interval=1s"},
		"ring":    {"--num_ps_pods=0", "--checkpoint_interval=1s"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tb")
			j := train(t, append([]string{patient, "--num_epochs=4", "--evaluation_steps=60",
				"--tensorboard_log_dir=" + dir}, flags...)...)
			s := j.until("training", trained(0.02))
			if name == "servers" {
				j.kill(pod(s, wire.Role_PS, 1), syscall.SIGKILL)
				s = j.until("a rollback", func(s *wire.JobStatus) bool { return s.Rollbacks > 0 && works(s) })
			}
			done := s.RecordsDone
			if err := syscall.Kill(j.master(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s = j.until("another master", func(s *wire.JobStatus) bool { return s.RecordsDone > done+1000 })
			j.kill(pod(s, wire.Role_WORKER, 2), syscall.SIGKILL)
			j.until("a replacement", func(s *wire.JobStatus) bool { return s.Relaunched > 0 && works(s) })
			j.hurry()
			s = j.end(0)
			succeeded(t, s, 4)
			for _, problem := range s.Problems {
				if strings.Contains(problem, "TensorBoard") {
					t.Errorf("problem: %s", problem)
				}
			}
			shown(t, tensorboard.Read(t, filepath.Join(dir, j.name)), s)
			if files, _ := os.ReadDir(filepath.Join(dir, j.name)); len(files) != 2 {
				t.Errorf("%d files of two masters", len(files))
			}
		})
	}
}

// shown compares curves with the end of a job.
func shown(t *testing.T, curves tensorboard.Curves, s *wire.JobStatus) {
	t.Helper()
	world := "cluster/world_size"
	if s.Strategy == "ParameterServerStrategy" {
		world = "cluster/parameter_servers"
	}
	for _, tag := range []string{"train/loss", "train/epoch", "train/records", "train/records_per_second",
		"eval/accuracy", "cluster/workers", "cluster/workers_wanted", world, "faults/replaced_pods", "faults/rollbacks",
		"faults/returned_leases", "checkpoint/version", "checkpoint/age_seconds"} {
		points := curves[tag]
		if len(points) == 0 {
			t.Errorf("%s is not shown", tag)
			continue
		}
		if !slices.IsSortedFunc(points, func(a, b tensorboard.Point) int { return int(a.Step - b.Step) }) {
			t.Errorf("%s returns: %v", tag, points)
		}
	}
	last := func(tag string) string {
		points := curves[tag]
		if len(points) == 0 {
			return "none"
		}
		p := points[len(points)-1]
		return fmt.Sprint(p.Step, " ", p.Value)
	}
	for tag, want := range map[string]any{"train/records": s.RecordsDone, "faults/replaced_pods": s.Relaunched,
		"faults/rollbacks": s.Rollbacks} {
		if got := last(tag); !strings.HasSuffix(got, fmt.Sprintf(" %v", want)) {
			t.Errorf("%s ends with %s, want the value %v", tag, got, want)
		}
	}
	if got := last("train/records"); !strings.HasPrefix(got, fmt.Sprint(s.Version, " ")) {
		t.Errorf("the records end with %s, want step %d", got, s.Version)
	}
	if n := len(curves["eval/accuracy"]); n < 2 {
		t.Errorf("%d evaluations", n)
	}
}

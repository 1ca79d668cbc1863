//go:build torch

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

	"github.com/elasticdl/elasticdl/test/torch"
)

// TestTorchRunResumesOnOtherData stops a script that counts its records in the middle of an epoch,
// and runs it again on data that has grown, and that is cut into other tasks: it is refused with
// both numbers. On the data that it had, with another number of workers, and after kills and a
// suspension, every record is in the model once in each epoch.
func TestTorchRunResumesOnOtherData(t *testing.T) {
	const records = 1000
	pythons := torch.Pythons(t)
	python := pythons[len(pythons)-1]
	args := func(size, task int, pause string) []string {
		return []string{strconv.Itoa(size), pause, strconv.Itoa(task), "1200"}
	}
	j := script(t, python, "counts.py", args(records, 64, "0.02"), "--num_workers=2")
	dir := j.dir()
	eventually(t, "checkpoint", time.Minute, func() bool { return committed(dir) })
	j.cmd.Process.Signal(os.Interrupt)
	j.end(130)
	for _, c := range []struct {
		size, task int
		want       string
	}{
		{1200, 64, "size=1000 (the script declares 1200)"},
		{records, 50, "records_per_task=64 (the script declares 50)"},
	} {
		other := scriptIn(t, python, "counts.py", dir, args(c.size, c.task, "0"), "--num_workers=2")
		s := other.end(1)
		if log := other.log(""); !strings.Contains(log, c.want) ||
			!strings.Contains(log, filepath.Join(dir, "checkpoint")+" cannot be resumed") {
			t.Errorf("the log of a job on other data does not say %q", c.want)
		}
		if s.State != "Failed" || !strings.Contains(s.Reason, c.want) {
			t.Errorf("%s: %s; want %q", s.State, s.Reason, c.want)
		}
	}
	again := scriptIn(t, python, "counts.py", dir, args(records, 64, "0.1"), "--num_workers=3",
		"--heartbeat_timeout=5s")
	again.whole(3)
	for range 2 {
		if ranks := again.ranks(); len(ranks) > 0 {
			syscall.Kill(ranks[0], syscall.SIGKILL)
		}
		steps := len(again.steps())
		eventually(t, "steps", runLimit, func() bool { return len(again.steps()) > steps+10 })
	}
	if out, err := exec.Command(program, "suspend", again.name).CombinedOutput(); err != nil {
		t.Fatalf("suspend: %v\n%s", err, out)
	}
	again.wait()
	again.enough()
	if out, err := exec.Command(program, "resume", again.name).CombinedOutput(); err != nil {
		t.Fatalf("resume: %v\n%s", err, out)
	}
	allCounted(t, again, again.status(), records)
}

//go:build torch

package local_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// TestTorchReplicas checks workers of two processes, each with a replica of a model that is sharded
// over them. A process is killed, then an agent, then a worker joins. Only the processes of the
// worker that has lost something are other ones afterwards, and every record is in the model once.
func TestTorchReplicas(t *testing.T) {
	const records, each = 20000, 2
	// the last one is 2.x, the others have no fully_shard
	pythons := torch.Pythons(t)
	python := pythons[len(pythons)-1]
	j := script(t, python, "replicas.py", []string{fmt.Sprint(records), "0.05"}, "--num_workers=2", "--max_workers=3",
		"--nproc_per_node=2", "--heartbeat_timeout=5s")
	alive := func(pid int) bool { return syscall.Kill(pid, 0) == nil }
	continued := func(before, now []int, want int) {
		t.Helper()
		same := 0
		for _, pid := range before {
			if slices.Contains(now, pid) {
				same++
			}
		}
		if same != want {
			t.Errorf("%d processes have continued, want %d: first %v, now %v", same, want, before, now)
		}
	}
	first := j.whole(2 * each)
	syscall.Kill(first[3], syscall.SIGKILL)
	second := j.whole(2*each, first[2], first[3])
	continued(first, second, each)
	j.kill(pod(j.status(), wire.Role_WORKER, 0), syscall.SIGKILL)
	var lost []int
	eventually(t, "end of a worker's processes", runLimit, func() bool {
		lost = slices.DeleteFunc(slices.Clone(second), alive)
		return len(lost) == each
	})
	third := j.whole(2*each, lost...)
	continued(second, third, each)
	j.scale(3)
	continued(third, j.whole(3*each), 2*each)
	j.enough()
	if s := j.end(0); s.State != "Succeeded" || s.Restarts != 0 || s.Rollbacks != 0 || s.RecordsDone != records {
		t.Errorf("%s with %d of %d records, %d failures counted, the model lost %d times: %s", s.State, s.RecordsDone,
			records, s.Restarts, s.Rollbacks, s.Reason)
	}
	if n := strings.Count(j.log(""), ", 0 wrong"); n != 3*each {
		t.Errorf("%d processes have counted every record of their shard once, want %d", n, 3*each)
	}
	j.nobody()
}

// TestTorchShardedOverAll checks a model that is sharded over all processes, which start again when
// the world changes: no record is trained on again when a worker joins, or leaves.
func TestTorchShardedOverAll(t *testing.T) {
	const records = 6000
	pythons := torch.Pythons(t)
	python := pythons[len(pythons)-1]
	j := script(t, python, "replicas.py", []string{fmt.Sprint(records), "0.05", "all"}, "--num_workers=2",
		"--max_workers=3", "--heartbeat_timeout=5s")
	pids := j.whole(2)
	j.scale(3)
	pids = j.whole(3, pids...)
	j.scale(2)
	j.whole(2, pids...)
	j.enough()
	if s := j.end(0); s.State != "Succeeded" || s.Restarts != 0 || s.RecordsDone != records {
		t.Errorf("%s with %d of %d records, %d failures counted: %s", s.State, s.RecordsDone, records, s.Restarts,
			s.Reason)
	}
	// the checkpoint may have a round more than the master knew of
	resumed := regexp.MustCompile(`resumed from its checkpoint .* records=(\d+) of=(\d+)`).
		FindAllStringSubmatch(j.log("master"), -1)
	if len(resumed) != 2 {
		t.Errorf("the program has resumed %d times, want 2", len(resumed))
	}
	for _, m := range resumed {
		has, _ := strconv.Atoi(m[1]) // the pattern matches digits only
		if due, _ := strconv.Atoi(m[2]); has < due {
			t.Errorf("it resumed with %s of %s records, want all of them", m[1], m[2])
		}
	}
	j.nobody()
}

//go:build e2e

package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the order in which pods are killed")

// crash kills the processes of a pod on its node, which is this machine, and reports whether there
// were any: its kubelet finds that the container has ended without a request.
func crash(o *object) bool {
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	killed := false
	for _, group := range groups {
		dir := filepath.Dir(group)
		text, err := os.ReadFile(group)
		if err != nil || !bytes.Contains(text, []byte("pod"+o.Metadata.UID)) {
			continue
		}
		if program, err := os.ReadFile(filepath.Join(dir, "cmdline")); err != nil ||
			bytes.HasPrefix(program, []byte("/pause")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed = true
		}
	}
	return killed
}

// others returns the running parameter servers and workers of the job.
func (j *submitted) others() (found []*object) {
	for _, name := range slices.Sorted(maps.Keys(j.now[pods])) {
		if o := j.now[pods][name]; o.role() != "master" &&
			strings.HasPrefix(name, "elasticdl-"+j.job+"-") && o.running() {
			found = append(found, o)
		}
	}
	return found
}

// role returns the role of a job's pod: "master", "ps", "worker".
func (o *object) role() string { return o.Metadata.Labels["elasticdl-replica-type"] }

// Twenty servers and workers of one job are killed in quick succession, some by their process and
// some by their pod. The job has checkpoints on a volume, and loses nothing.
func TestTwentyKills(t *testing.T) {
	t.Parallel()
	const epochs, kills = 60, 20
	ns := newNamespace(t)
	j := ns.train("hunted", slices.Concat(small, ns.checkpoints(),
		[]string{mlp, "--num_epochs=60", "--num_ps_pods=2", "--num_workers=3",
			"--minibatch_size=64", "--num_minibatches_per_task=4"})...)
	j.runs("master", "ps-0", "ps-1", "worker-0", "worker-1", "worker-2")
	j.trains(0.02)
	t.Logf("the order is that of SEED=%d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	kept := j.uids("master")
	killed := map[string]int{}
	began := time.Now()
	for n := 0; n < kills; {
		var living []*object
		j.awaits("3 servers and workers that run", patience, func() bool {
			living = j.others()
			return len(living) >= 3
		})
		o := living[random.IntN(len(living))]
		how := "process"
		if random.IntN(2) == 0 {
			how = "pod"
			ns.kubectl("delete", "pod", o.Metadata.Name, "--grace-period=0", "--force", "--ignore-not-found")
		} else if !crash(o) { // the pod has ended in the meantime
			continue
		}
		n++
		t.Logf("%v: the %s of %s is killed", time.Since(began).Round(time.Millisecond), how, o.Metadata.Name)
		killed[o.role()]++
		j.within(time.Duration(random.IntN(2000))*time.Millisecond, func() bool { return false })
	}
	figure(t, "kills", fmt.Sprint(killed), "")
	took(t, fmt.Sprintf("%d kills", kills), began)
	j.goesOn(trainingDigits / 10)
	took(t, "the first kill to further training after the last", began)
	if now := j.uids("master"); !slices.Equal(now, kept) {
		t.Errorf("the master was disturbed: %v, before %v", now, kept)
	}
	j.hurries()
	s := j.ends(epochs)
	if killed["ps"] > 0 && (s.ModelGeneration < 2 || strings.Contains(s.RollbackReason, "started over")) {
		t.Errorf("model generation %d, %q: want that it returned to a checkpoint", s.ModelGeneration, s.RollbackReason)
	}
	if n := len(s.Evaluations); n == 0 {
		t.Error("nothing was evaluated")
	} else {
		accurate(t, s.Evaluations[n-1].Metrics["accuracy"])
	}
}

//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"
)

// A job borrows the quota of another team, whose job is submitted later and reclaims it. Then both
// have their nominal quota, and succeed. Only elastic workers of the first are preempted.
func TestQueueBorrows(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 4, "team-b": 4})
	check := ns.limitsQuota(8)
	train := func(team, epochs string, workers string) *submitted {
		return ns.train("of-"+team, slices.Concat(small, inQueue(team, 1), []string{mlp, "--num_epochs=" + epochs,
			"--num_ps_pods=1", "--num_workers=" + workers, "--minibatch_size=64"})...)
	}
	a := train("team-a", "120", "6")
	a.awaits("6 workers", patience, func() bool { return len(a.workers((*object).running)) == 6 })
	core := a.core(t, "master ps-0", 1)
	kept := a.uids(core...)
	a.logQueues("borrowed quota of four pods")

	began := time.Now()
	b := train("team-b", "4", "2")
	b.awaits("2 workers", patience, func() bool { return len(b.workers((*object).running)) == 2 })
	took(t, "the other team's train command to its two workers running, four preempted for its pods", began)
	a.awaits("2 workers", patience, func() bool { return len(a.workers((*object).running)) == 2 })
	a.logQueues("borrowed quota returned")
	a.says(`worker-\d+.*waits for quota of queue team-a`)
	b.ends(4)
	began = time.Now()
	a.awaits("6 workers again", patience, func() bool { return len(a.workers((*object).running)) == 6 })
	took(t, "the other job's end to six workers running", began)
	if now := a.uids(core...); !slices.Equal(now, kept) {
		t.Errorf("the core was disturbed: %v, before %v", now, kept)
	}
	check()
	a.ends(120)
}

// With fair sharing, two teams without quota of their own share that of their cohort: the first has
// all of it, and gives half of it to a job of the second.
func TestQueueFairSharing(t *testing.T) {
	ns := newNamespace(t)
	ns.teams(map[string]int{"team-a": 0, "team-b": 0, "all": 8})
	if err := clusterCommand("add", "kueue", "--fair-sharing"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := clusterCommand("add", "kueue"); err != nil {
			t.Error(err)
		}
	})
	check := ns.limitsQuota(8)
	train := func(team string, epochs string) *submitted {
		return ns.train("of-"+team, slices.Concat(small, inQueue(team, 1), []string{mlp, "--num_epochs=" + epochs,
			"--num_ps_pods=1", "--num_workers=6", "--minibatch_size=64"})...)
	}
	a := train("team-a", "40")
	a.awaits("6 workers", patience, func() bool { return len(a.workers((*object).running)) == 6 })
	core := a.core(t, "master ps-0", 1)
	kept := a.uids(core...)
	b := train("team-b", "8")
	b.awaits("half of the quota", patience, func() bool {
		return len(ns.reserved("team-a")) == 4 && len(ns.reserved("team-b")) == 4
	})
	a.logQueues("half of the quota preempted")
	b.logQueues("half of the quota")
	if now := a.uids(core...); !slices.Equal(now, kept) {
		t.Errorf("the core was disturbed: %v, before %v", now, kept)
	}
	b.ends(8)
	a.ends(40)
	check()
}

package pod

import (
	"cmp"
	"slices"
	"time"
)

// keepFirst sorts workers so that those come last which the job misses least: those that do not run
// before those that do, and of them those that are not of the core.
func keepFirst(a, b *entry) int {
	rank := func(e *entry) int {
		if e.Core {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Phase, a.Phase), cmp.Compare(rank(a), rank(b)))
}

// core returns the number of workers of the core that are, or are being created.
func (t *Table) core() int {
	n := 0
	for _, e := range t.pods {
		if e.wanted() && e.Core && e.Phase != Wanted {
			n++
		}
	}
	return n
}

// coreComesFirst reports whether the next worker that is created is not of the core, and a worker
// of the core is being created: it is to be first in the queue.
func (t *Table) coreComesFirst() bool {
	return t.core() >= t.policy.Core && slices.ContainsFunc(t.pods, func(e *entry) bool {
		return e.wanted() && e.Core && e.Phase == Creating
	})
}

// promote replaces workers that are not of the core if the core has too few: a line of it was given
// up, or scaled down. The replacement is created as one of the core. A priority is not changed in
// place: that requires the permission to change every pod of the namespace.
func (t *Table) promote(now time.Time) []Action {
	if t.course != going || t.held || t.policy.Core == 0 || t.awaited() != nil {
		return nil
	}
	missing := min(t.policy.Core, t.Workers()) - t.core()
	var others []*entry
	for _, e := range t.workers() {
		switch {
		case e.Core && e.Phase != Wanted:
		// it, or its successor, is created as one of the core
		case e.Phase == Wanted, e.order != "":
			missing--
		case e.Phase != Leaving:
			others = append(others, e)
		}
	}
	slices.SortStableFunc(others, keepFirst)
	var actions []Action
	for _, e := range others[max(0, len(others)-max(0, missing)):] {
		actions = append(actions, t.remove(e, "it is replaced by a worker of the job's core", now)...)
	}
	return actions
}

// Quota tells how many pods of a job in a queue have quota. Any workers count as those of the core:
// a job makes progress with as many as it needs at least, whichever they are.
type Quota struct {
	// number of pods of the core with the master, and how many of them have quota
	Core, CoreAdmitted int
	// how many pods wait for quota that the core lacks; the others are not created yet
	CoreWaiting int
	// number of workers that have quota and that the core does not need
	Elastic int
}

// Quota returns which pods have quota. The master, who asks, has.
func (t *Table) Quota() Quota {
	var workers, queued int
	need := min(t.policy.Core, t.Workers())
	q := Quota{Core: 1 + t.policy.Servers + need, CoreAdmitted: 1}
	for _, e := range t.pods {
		switch server := e.ID.Role == PS; {
		case e.Phase != Pending && e.Phase != Running || !server && (!e.wanted() || e.order != ""):
		case server && e.Queued:
			q.CoreWaiting++
		case server:
			q.CoreAdmitted++
		case e.Queued:
			queued++
		default:
			workers++
		}
	}
	q.CoreAdmitted += min(need, workers)
	q.CoreWaiting += min(queued, max(0, need-workers))
	q.Elastic = max(0, workers-need)
	return q
}

// Shed deletes up to n workers beyond the core that have quota, for servers that wait for it. Their
// replacements wait behind the core.
func (t *Table) Shed(n int, now time.Time) []Action {
	var elastic []*entry
	for _, e := range t.workers() {
		if !e.Core && !e.Queued && e.order == "" && (e.Phase == Pending || e.Phase == Running) {
			elastic = append(elastic, e)
		}
	}
	slices.SortStableFunc(elastic, keepFirst)
	var actions []Action
	for _, e := range elastic[max(0, len(elastic)-n):] {
		actions = append(actions, t.remove(e, "quota is needed by a parameter server", now)...)
	}
	return actions
}

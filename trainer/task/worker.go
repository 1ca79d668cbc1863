package task

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Held is the leases of a worker, in the order of their ids.
func (q *Queue) Held(worker int) []Lease {
	h := q.holders[worker]
	if h == nil {
		return nil
	}
	held := make([]Lease, len(h.leases))
	for i, l := range h.leases {
		held[i] = h.lease(l)
	}
	return held
}

// Overdue names the workers that Expire would take the leases from, takes nothing, and
// gives them as much time again: for a shell that ends such a worker first, asks how far it
// came, and then tells it by Lose.
func (q *Queue) Overdue(now time.Time) []int {
	var workers []int
	for _, worker := range slices.Sorted(maps.Keys(q.holders)) {
		h := q.holders[worker]
		if at, ok := q.expiry(h); ok && !now.Before(at) {
			h.progress = now
			workers = append(workers, worker)
		}
	}
	return workers
}

// Remaining is the training tasks of this epoch that are not settled, by shard and start.
func (q *Queue) Remaining() []Task {
	tasks := slices.Clone(q.training.items[q.training.head:])
	for _, l := range q.leases {
		if l.Kind == Training {
			tasks = append(tasks, l.Task)
		}
	}
	slices.SortFunc(tasks, func(a, b Task) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Start, b.Start))
	})
	return tasks
}

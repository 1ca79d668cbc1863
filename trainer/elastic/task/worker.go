package task

import (
	"maps"
	"slices"
	"time"
)

// Holders returns the number of workers that hold a training lease, from which the parameter
// servers may expect gradients.
func (q *Queue) Holders() int { return q.trainers }

// Workers returns the workers that hold a lease, sorted.
func (q *Queue) Workers() []int { return slices.Sorted(maps.Keys(q.holders)) }

// Held returns the leases of a worker, in the order of their numbers.
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

// Floor returns the smallest number of a lease that is held or will be granted: no worker works on
// a lease below it. Before [Queue.Announced] it returns 1.
func (q *Queue) Floor() int64 {
	if q.former > 0 {
		return 1
	}
	floor := q.lastID + 1
	for id := range q.leases {
		floor = min(floor, id)
	}
	return floor
}

// Overdue returns the workers that have shown no progress for longer than their limit, and doubles
// the limit of their tasks. It takes no lease back: the master ends such a worker and calls Lose.
//
// The limit is max(Timeout, 3 × the longest completed lease), doubled each time that a worker was
// overdue during the task, up to 64 times. So a task that is slow for every worker ends too, for
// example if the first minibatch takes long.
func (q *Queue) Overdue(now time.Time) []int {
	var workers []int
	for _, worker := range slices.Sorted(maps.Keys(q.holders)) {
		h := q.holders[worker]
		if at, ok := q.expiry(h); ok && !now.Before(at) {
			h.progress = now
			at := h.leases[0]
			at.Slow = min(at.Slow+1, maxSlow)
			q.slow[at.Kind] = max(q.slow[at.Kind], at.Slow)
			workers = append(workers, worker)
		}
	}
	return workers
}

// Excuse restarts the limit of every worker, because something that they waited for was not
// available.
func (q *Queue) Excuse(now time.Time) {
	for _, h := range q.holders {
		h.progress = now
	}
}

// Deadline returns the earliest time at which Overdue will return a worker if nothing happens
// before; false: never.
func (q *Queue) Deadline() (time.Time, bool) {
	var first time.Time
	found := false
	for _, h := range q.holders {
		if at, ok := q.expiry(h); ok && (!found || at.Before(first)) {
			first, found = at, true
		}
	}
	return first, found
}

// expiry returns when a worker becomes overdue; false: never.
func (q *Queue) expiry(h *holder) (time.Time, bool) {
	if q.policy.Timeout <= 0 {
		return time.Time{}, false
	}
	limit := max(q.policy.Timeout, stragglerFactor*q.longest)
	return h.progress.Add(limit << h.leases[0].Slow), true
}

// Remaining returns the number of training tasks of the open epoch that are not settled, and the
// one with the smallest number.
func (q *Queue) Remaining() (first Task, tasks int) {
	first, found := q.training.first()
	for _, l := range q.leases {
		if l.Kind == Training && (!found || l.Number < first.Number) {
			first, found = l.Task, true
		}
	}
	return first, q.training.len() + q.leased[Training]
}

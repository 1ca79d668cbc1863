package task

import (
	"maps"
	"slices"
	"time"
)

// Holders returns the number of workers that hold a training lease: what the servers can
// expect gradients from.
func (q *Queue) Holders() int { return q.trainers }

// Workers returns who holds a lease, in order.
func (q *Queue) Workers() []int { return slices.Sorted(maps.Keys(q.holders)) }

// Held returns the leases of a worker, in the order of their ids.
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

// Floor returns the least id of a lease that is held, or that will be: nobody works on those below it any more. While workers
// announce what they hold from before, it is the first of all.
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

// Overdue names the workers that showed no progress for too long, and gives each twice as much time again. It takes
// nothing: the shell ends such a worker, and tells by Lose how far it came.
//
// Too long is max(Timeout, 3 × the longest completed lease), doubled for each time that a worker was named while it was at
// this task, up to 64 times that. So a task ends that is slow for everybody, as where the first minibatch takes long.
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

// Excuse gives every worker the time for its task again, from now: what they waited for was away.
func (q *Queue) Excuse(now time.Time) {
	for _, h := range q.holders {
		h.progress = now
	}
}

// Deadline returns when Overdue has somebody to name next, if nothing happens before.
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

func (q *Queue) expiry(h *holder) (time.Time, bool) {
	if q.policy.Timeout <= 0 {
		return time.Time{}, false
	}
	limit := max(q.policy.Timeout, stragglerFactor*q.longest)
	return h.progress.Add(limit << h.leases[0].Slow), true
}

// Remaining returns how many training tasks of this epoch are not settled, and the one of the least number among them.
func (q *Queue) Remaining() (first Task, tasks int) {
	first, found := q.training.first()
	for _, l := range q.leases {
		if l.Kind == Training && (!found || l.Number < first.Number) {
			first, found = l.Task, true
		}
	}
	return first, q.training.len() + q.leased[Training]
}

package task

import (
	"fmt"
	"iter"
)

// Layout is the division of shards into training tasks, as a [Queue] of the same shards and policy
// has it. It is not safe for concurrent use.
type Layout struct {
	policy Policy
	cut    *cut
	// the tasks of the epoch that was asked for last
	asked *todo
}

// NewLayout returns the layout of shards. An impossible policy is an error.
func NewLayout(shards []Shard, p Policy) (*Layout, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("task policy: %w", err)
	}
	return &Layout{policy: p, cut: cutUp(shards, p.RecordsPerTask)}, nil
}

// Tasks returns the number of tasks of an epoch without a limit of records.
func (l *Layout) Tasks() int { return l.cut.tasks }

// Records returns the number of records of all shards, 0 if their lengths are unknown.
func (l *Layout) Records() int64 {
	if l.policy.Unsized {
		return 0
	}
	return l.cut.records
}

// Has reports whether there is an epoch of that number, from 1.
func (l *Layout) Has(epoch int) bool {
	n := l.Epochs()
	return l.cut.tasks > 0 && epoch >= 1 && (n == 0 || epoch <= n)
}

// Epochs returns the number of epochs; 0: no limit. The last may be shorter than others.
func (l *Layout) Epochs() int {
	n, limit, all := max(0, l.policy.Epochs), l.policy.MaxRecords, l.cut.records
	if limit == 0 || all == 0 {
		return n
	}
	if most := int((limit + all - 1) / all); n == 0 || most < n {
		return most
	}
	return n
}

// RecordsOf returns the number of records of an epoch, from 1; 0: there is no such epoch, or the
// number is unknown.
func (l *Layout) RecordsOf(epoch int) int64 {
	if !l.Has(epoch) || l.policy.Unsized {
		return 0
	}
	if limit := l.policy.MaxRecords; limit > 0 {
		return min(l.cut.records, limit-int64(epoch-1)*l.cut.records)
	}
	return l.cut.records
}

// Of returns the tasks of an epoch in the order of their numbers.
func (l *Layout) Of(epoch int) iter.Seq[Task] {
	return func(yield func(Task) bool) {
		for number := range l.cut.tasks {
			if t, ok := l.Task(epoch, number); ok && !yield(t) {
				return
			}
		}
	}
}

// Task returns a task of an epoch, and false if there is no such task.
func (l *Layout) Task(epoch, number int) (Task, bool) {
	if !l.Has(epoch) || number < 0 || number >= l.cut.tasks {
		return Task{}, false
	}
	like := Task{Kind: Training, Epoch: epoch, Unsized: l.policy.Unsized}
	records := l.RecordsOf(epoch)
	if l.policy.Unsized || records == l.cut.records {
		return l.cut.task(number, like), true
	}
	if l.asked == nil || l.asked.like.Epoch != epoch {
		l.asked = newTodo(l.cut, l.policy.order(l.cut.tasks, epoch), like)
		l.asked.limit(records)
	}
	place := l.asked.order.indexOf(number)
	if place >= l.asked.end {
		return Task{}, false
	}
	return l.asked.at(place), true
}

// order returns the order of the tasks of an epoch.
func (p Policy) order(tasks, epoch int) permutation {
	if p.Shuffle {
		return shuffle(tasks, p.Seed, uint64(epoch))
	}
	return plain(tasks)
}

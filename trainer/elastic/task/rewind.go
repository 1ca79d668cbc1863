package task

import (
	"fmt"
	"maps"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// Rewind sets the training back to a model with the given ledger: exactly the records that are not
// in the ledger are to be trained on. With an empty ledger the training starts over.
//
// All leases, and all queued evaluations and exports, are dropped, and no earlier lease is adopted
// any more. Numbers of leases continue, so that earlier reports are stale. Limits that were doubled
// stay doubled, so that the training ends even if each overdue worker takes the model with it. A
// ledger that does not fit the shards is an error and changes nothing.
func (q *Queue) Rewind(l *ledger.Ledger) error {
	back, err := q.at(l)
	if err != nil {
		return fmt.Errorf("rewind the training: %w", err)
	}
	q.epoch, q.closed, q.training = back.epoch, back.closed, back.training
	back.stats.Requeued, back.stats.Failed = q.stats.Requeued+len(q.leases), q.stats.Failed
	q.stats = back.stats
	q.leases, q.holders, q.leased, q.trainers = make(map[int64]*Lease), make(map[int]*holder), make(map[Kind]int), 0
	q.evaluations, q.exports, q.tried = nil, todo{}, nil
	q.before = maps.Clone(q.slow)
	q.Announced()
	return nil
}

// at returns a queue without leases whose training is at the given ledger.
func (q *Queue) at(l *ledger.Ledger) (*Queue, error) {
	back := &Queue{policy: q.policy, cut: q.cut, training: new(todo)}
	l = back.cut.settled(l)
	back.epoch = l.Settled()
	if back.cut.records == 0 {
		back.epoch, back.closed = 0, true
		return back, nil
	}
	back.plan()
	back.stats.Done = int64(back.epoch) * back.cut.records
	if q.policy.Unsized {
		back.stats.Done = l.Counted()
	}
	if limit := q.policy.MaxRecords; limit > 0 {
		back.stats.Done = min(back.stats.Done, limit)
	}
	switch open := l.Epochs(); {
	case back.stats.Total > 0 && back.epoch > 0 && back.cut.records*int64(back.epoch-1) >= back.stats.Total:
		return nil, fmt.Errorf("the ledger has %d complete epochs, and the training ends after %d "+
			"records", back.epoch, back.stats.Total)
	case q.policy.Unsized && q.policy.Epochs > 0 && back.epoch > q.policy.Epochs:
		return nil, fmt.Errorf("the ledger has %d complete epochs, and the training has %d", back.epoch,
			q.policy.Epochs)
	case len(open) > 1 || len(open) == 1 && open[0] != back.epoch+1:
		return nil,
			fmt.Errorf("the ledger has records of epochs %v, and only the first %d are complete", open, back.epoch)
	case back.ended():
		if len(open) > 0 {
			return nil, fmt.Errorf("the ledger has records of epoch %d, and the training has %d epochs",
				open[0], back.epoch)
		}
		back.complete()
		return back, nil
	}
	back.open()
	tasks, records, err := back.training.skip(l)
	if err != nil {
		return nil, err
	}
	back.stats.Settled = tasks
	back.stats.Done += records
	back.stats.EpochDone = records
	return back, nil
}

// Records returns how many training records are in a model with the given ledger, over all epochs.
// A ledger that does not fit the shards is an error.
func (q *Queue) Records(l *ledger.Ledger) (int64, error) {
	at, err := q.at(l)
	if err != nil {
		return 0, fmt.Errorf("count the records of a ledger: %w", err)
	}
	return at.stats.Done, nil
}

// complete sets the queue to the end of its last epoch, with all records done.
func (q *Queue) complete() {
	done := q.stats.Done
	q.epoch--
	q.stats.Done = int64(q.epoch) * q.cut.records
	q.open()
	q.stats.Done, q.stats.EpochDone, q.stats.Settled = done, q.stats.EpochTotal, q.training.end
	q.training, q.closed = new(todo), true
}

package task

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/ledger"
)

// Snapshot is what a queue knows beside the ledger and the leases: how often tasks failed, how long they take, and which task is
// the next in the order. It is a hint: a queue that is restored from an old one, or from none, obeys the same laws. Its size is bounded.
type Snapshot struct {
	Epoch    int           `json:"epoch,omitempty"`
	Place    int           `json:"place,omitempty"`   // in the epoch's order: of the task that is leased next
	Longest  time.Duration `json:"longest,omitempty"` // of the completed leases
	Requeued int           `json:"requeued,omitempty"`
	Failed   int           `json:"failed,omitempty"`
	Slow     map[Kind]int  `json:"slow,omitempty"`   // the most that a task of the kind was
	Before   map[Kind]int  `json:"before,omitempty"` // and the most before the last rewind
	Tried    []TriedTask   `json:"tried,omitempty"`
	Err      string        `json:"err,omitempty"` // why the queue failed
}

// TriedTask is a task that failed or was given back, or with which a worker was overdue.
type TriedTask struct {
	Kind     Kind  `json:"kind"`
	Epoch    int   `json:"epoch,omitempty"`
	Version  int64 `json:"version,omitempty"`
	Number   int   `json:"number,omitempty"`
	Attempts int   `json:"attempts,omitempty"`
	Returned int   `json:"returned,omitempty"`
	Slow     int   `json:"slow,omitempty"`
}

// What a snapshot holds at most.
const (
	mostTried = 400  // tasks: those that failed most often
	mostErr   = 1000 // bytes of the reason
)

// Numbers of leases: each incarnation of a master gives out those from incarnation·2³² on, so that none is given out twice. The
// incarnation is written before anybody hears of it, and nothing else has to be.
const numbers = 1 << 32

// Snapshot returns what [Restore] takes beside a ledger.
func (q *Queue) Snapshot() Snapshot {
	s := Snapshot{
		Epoch: q.epoch, Longest: q.longest, Requeued: q.stats.Requeued, Failed: q.stats.Failed,
		Slow: maps.Clone(q.slow), Before: maps.Clone(q.before), Tried: slices.Clone(q.tried),
	}
	if t := q.training; t.next < t.end {
		s.Place = t.position(t.next)
	}
	if q.err != nil {
		reason := q.err.Error()
		s.Err = strings.ToValidUTF8(reason[:min(len(reason), mostErr)], "")
	}
	note := func(t Task) {
		if t.Attempts > 0 || t.Returned > 0 || t.Slow > q.before[t.Kind] {
			s.Tried = append(s.Tried, TriedTask{t.Kind, t.Epoch, t.Version, t.Number, t.Attempts, t.Returned, t.Slow})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(q.leases)) {
		note(q.leases[id].Task)
	}
	for _, waiting := range append([]*todo{q.training, &q.exports}, q.evaluations...) {
		for _, t := range slices.Concat(waiting.again, waiting.later) {
			note(t)
		}
	}
	if len(s.Tried) > mostTried {
		slices.SortStableFunc(s.Tried, func(a, b TriedTask) int {
			return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(b.Returned, a.Returned), cmp.Compare(b.Slow, a.Slow))
		})
		s.Tried = s.Tried[:mostTried]
	}
	return s
}

// validate names everything in a snapshot that cannot be.
func (s *Snapshot) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(s.Epoch >= 0 && s.Place >= 0, "place %d in epoch %d", s.Place, s.Epoch)
	check(s.Longest >= 0, "a lease that took %v", s.Longest)
	check(s.Requeued >= 0 && s.Failed >= 0, "%d leases requeued and %d failed", s.Requeued, s.Failed)
	for _, limits := range []map[Kind]int{s.Slow, s.Before} {
		for _, kind := range slices.Sorted(maps.Keys(limits)) {
			n := limits[kind]
			check(kind >= Training && kind <= Prediction && n >= 0 && n <= maxSlow, "a limit of %v that was doubled %d times", kind, n)
		}
	}
	check(len(s.Tried) <= mostTried, "%d tried tasks, more than %d", len(s.Tried), mostTried)
	for _, t := range s.Tried[:min(len(s.Tried), mostTried)] {
		check(t.Kind >= Training && t.Kind <= Prediction && t.Number >= 0 && t.Attempts >= 0 && t.Returned >= 0 && t.Slow >= 0 && t.Slow <= maxSlow,
			"a tried task that cannot be: %+v", t)
	}
	return errors.Join(problems...)
}

// Restore makes the queue of a master that comes back, as its incarnation from 1: exactly the records that are not in the ledger
// are to be done. Nothing is leased: workers announce what they hold, see [Queue.Adopt]. No evaluation and no export is asked
// for. Tasks are taken from the snapshot's place on, and those before it last, since their workers may be about to announce them.
//
// A ledger of another cut, and a snapshot that cannot be, are errors. Without the snapshot ([Snapshot]{}) all but some patience is
// restored.
func Restore(shards []Shard, p Policy, l *ledger.Ledger, s Snapshot, incarnation int) (*Queue, error) {
	q, err := New(shards, p)
	if err != nil {
		return nil, err
	}
	if incarnation < 1 || incarnation >= 1<<30 {
		return nil, fmt.Errorf("restore the training: incarnation %d of the master", incarnation)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("restore the training: snapshot of the tasks: %w", err)
	}
	if err := q.Rewind(l); err != nil {
		return nil, err
	}
	q.former = int64(incarnation) * numbers
	q.lastID = q.former
	q.longest, q.stats.Requeued, q.stats.Failed = s.Longest, s.Requeued, s.Failed
	q.slow, q.before = make(map[Kind]int), maps.Clone(s.Before)
	maps.Copy(q.slow, s.Slow)
	if s.Err != "" {
		q.err = errors.New(s.Err)
	}
	if s.Epoch == q.epoch && s.Place < q.training.end {
		q.training.from = s.Place
	}
	q.tried = slices.Clone(s.Tried)
	q.recall(q.training)
	q.tried = slices.DeleteFunc(q.tried, func(t TriedTask) bool { return t.Kind == Training })
	return q, nil
}

// recall puts the tasks that were tried before the queue was restored behind the others, with what is known of them.
func (q *Queue) recall(t *todo) {
	q.tried = slices.DeleteFunc(q.tried, func(tried TriedTask) bool {
		if tried.Kind != t.like.Kind || tried.Epoch != t.like.Epoch || tried.Version != t.like.Version {
			return false
		}
		if task, ok := t.takeOut(tried.Number); ok {
			task.Attempts, task.Returned, task.Slow = tried.Attempts, tried.Returned, tried.Slow
			t.later = append(t.later, task)
		}
		return true
	})
}

// Adopt takes the word of a worker that it holds the lease of a training task from a master before, and has done so many records
// of it, those before it included. It returns the lease, which is the worker's again. Told twice it changes nothing.
//
// [ErrStale] is returned if the task is settled, is another's, or if the lease is of a life of the model, or a time, that is over: the
// worker drops it. Evaluation and export begin again, so their leases are not announced.
func (q *Queue) Adopt(lease int64, worker int, task ledger.Task, done int64, now time.Time) (Lease, error) {
	if l := q.leases[lease]; l != nil && l.Worker == worker && l.Kind == Training && l.Epoch == task.Epoch && l.Number == task.Number {
		return q.holders[worker].lease(l), q.Touch(lease, worker, done, now)
	}
	if lease <= 0 || lease > q.former || q.adopted[lease] || q.closed || task.Epoch != q.epoch {
		return Lease{}, ErrStale
	}
	if all, ok := q.training.sized(task.Number); ok && (done < 0 || done > all) {
		return Lease{}, fmt.Errorf("adopt lease %d: %d records done of %d", lease, done, all)
	}
	t, ok := q.training.takeOut(task.Number)
	if !ok {
		return Lease{}, ErrStale
	}
	t.Slow = max(t.Slow, q.before[Training])
	l := &Lease{ID: lease, Worker: worker, Task: t, Granted: now}
	q.hold(l, now)
	q.credit(l, done)
	if q.adopted == nil {
		q.adopted = make(map[int64]bool)
	}
	q.adopted[lease] = true
	return q.holders[worker].lease(l), nil
}

// Announced notes that every worker which lives has announced what it holds. Leases of before that nobody has announced are
// nobody's, and are not adopted any more.
func (q *Queue) Announced() { q.former, q.adopted = 0, nil }

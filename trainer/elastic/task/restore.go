package task

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// Snapshot holds what a queue knows besides the ledger and the leases: how often tasks failed, how
// long they take, and which task is next. It is a hint: a queue that is restored from an old one,
// or from none, obeys the same laws. Its size is bounded.
type Snapshot struct {
	Epoch int `json:"epoch,omitempty"`
	// the place in the epoch's order of the task that is leased next
	Place int `json:"place,omitempty"`
	// the longest completed lease
	Longest time.Duration `json:"longest,omitempty"`
	// as in Stats
	Requeued int `json:"requeued,omitempty"`
	// as in Stats
	Failed int `json:"failed,omitempty"`
	// the highest Task.Slow of each kind
	Slow map[Kind]int `json:"slow,omitempty"`
	// the highest Task.Slow of each kind before the last rewind
	Before map[Kind]int `json:"before,omitempty"`
	// the tasks that failed, were given back or were slow
	Tried []TriedTask `json:"tried,omitempty"`
	// why the queue failed
	Err string `json:"err,omitempty"`
}

// TriedTask is a task that failed, was given back, or whose worker was overdue. Its fields are
// those of [Task].
type TriedTask struct {
	Kind     Kind  `json:"kind"`
	Epoch    int   `json:"epoch,omitempty"`
	Version  int64 `json:"version,omitempty"`
	Number   int   `json:"number,omitempty"`
	Attempts int   `json:"attempts,omitempty"`
	Returned int   `json:"returned,omitempty"`
	Slow     int   `json:"slow,omitempty"`
}

// Limits of a snapshot.
const (
	// tasks; those that failed most often are kept
	mostTried = 400
	mostErr   = 1000 // bytes of Err
)

// NumbersPerMaster is the size of the range of numbers, such as those of leases, that each
// incarnation of a master assigns from. The ranges are disjoint, so no number is assigned twice,
// and only the incarnation has to be stored for that.
const NumbersPerMaster = 1 << 32

// NumberAs makes the queue of a master that has followed others grant leases with the numbers of
// its incarnation, from 2. A queue without leases of others grants those from 1 on.
func (q *Queue) NumberAs(incarnation int) {
	q.lastID = max(q.lastID, int64(incarnation)*NumbersPerMaster)
}

// Snapshot returns the snapshot of the queue, for [Restore].
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
			return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(b.Returned, a.Returned),
				cmp.Compare(b.Slow, a.Slow))
		})
		s.Tried = s.Tried[:mostTried]
	}
	return s
}

// validate returns an error that names every impossible value of a snapshot.
func (s *Snapshot) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(s.Epoch >= 0 && s.Place >= 0, "negative: place %d in epoch %d", s.Place, s.Epoch)
	check(s.Longest >= 0, "negative: longest lease %v", s.Longest)
	check(s.Requeued >= 0 && s.Failed >= 0, "negative: %d leases requeued, %d failed", s.Requeued, s.Failed)
	for _, limits := range []map[Kind]int{s.Slow, s.Before} {
		for _, kind := range slices.Sorted(maps.Keys(limits)) {
			n := limits[kind]
			check(kind >= Training && kind <= Prediction && n >= 0 && n <= maxSlow,
				"limit of %v doubled %d times, want 0 to %d of a known kind", kind, n, maxSlow)
		}
	}
	check(len(s.Tried) <= mostTried, "%d tried tasks, want at most %d", len(s.Tried), mostTried)
	for _, t := range s.Tried[:min(len(s.Tried), mostTried)] {
		check(t.Kind >= Training && t.Kind <= Prediction && t.Number >= 0 && t.Attempts >= 0 &&
			t.Returned >= 0 && t.Slow >= 0 && t.Slow <= maxSlow,
			"impossible tried task %+v", t)
	}
	return errors.Join(problems...)
}

// Restore makes the queue of a restarted master with the given incarnation, from 1: exactly the
// records that are not in the ledger are to be trained on. No task is leased; workers announce
// their leases ([Queue.Adopt]). No evaluation and no export is queued. Tasks are leased from the
// snapshot's place on. Tasks before that place come last, because their workers may be about to
// announce them.
//
// A ledger that does not fit the shards, and a snapshot with impossible values, are errors. With an
// empty snapshot only the counts of attempts, the limits of stragglers and some statistics are
// lost.
func Restore(shards []Shard, p Policy, l *ledger.Ledger, s Snapshot, incarnation int) (*Queue, error) {
	q, err := New(shards, p)
	if err != nil {
		return nil, err
	}
	if incarnation < 1 || incarnation >= 1<<30 {
		return nil, fmt.Errorf("restore the training: incarnation %d of the master: want 1 to 2^30-1", incarnation)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("restore the training: snapshot of the tasks: %w", err)
	}
	if err := q.Rewind(l); err != nil {
		return nil, err
	}
	q.NumberAs(incarnation)
	q.former = q.lastID
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

// recall moves the tasks that were tried before the restart behind the others, and restores their
// counts.
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

// Adopt restores the lease of a training task that a worker announces as granted by an earlier
// master. done counts the records of the task that are done, including those of earlier leases. It
// returns the lease. A repeated call changes nothing.
//
// It returns [ErrStale], upon which the worker drops the lease, if the task is settled or leased to
// another worker, if the model was rewound since, or after [Queue.Announced]. Leases of evaluations
// and exports are not announced: those begin again.
func (q *Queue) Adopt(lease int64, worker int, task ledger.Task, done int64, now time.Time) (Lease, error) {
	if l := q.leases[lease]; l != nil && l.Worker == worker && l.Kind == Training &&
		l.Epoch == task.Epoch && l.Number == task.Number {
		return q.holders[worker].lease(l), q.Touch(lease, worker, done, now)
	}
	if lease <= 0 || lease > q.former || q.adopted[lease] || q.closed || task.Epoch != q.epoch {
		return Lease{}, ErrStale
	}
	if all, ok := q.training.most(task.Number); ok && (done < 0 || done > all) {
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

// Announced notes that every live worker has announced its leases. Other leases of earlier masters
// are not adopted any more.
func (q *Queue) Announced() { q.former, q.adopted = 0, nil }

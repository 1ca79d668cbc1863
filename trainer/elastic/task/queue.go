package task

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// Queue divides records into tasks and leases them. It is not safe for concurrent use: callers
// guard it with a lock.
type Queue struct {
	policy Policy
	// of the training shards
	cut *cut

	// the open epoch, from 1; 0 if there is nothing to train on
	epoch int
	// training is done
	closed bool
	// why the queue failed; nil if it did not
	err error

	// of the open epoch
	training *todo
	// evaluations and predictions, one todo per version, in the order of the calls
	evaluations []*todo
	exports     todo

	leases map[int64]*Lease
	// by worker
	holders map[int]*holder
	// the number of the last lease
	lastID int64
	// the longest completed lease, from when its worker began it
	longest time.Duration

	// the highest Task.Slow of each kind
	slow map[Kind]int
	// the highest Task.Slow of each kind before the last Rewind
	before map[Kind]int

	// leases up to this number may be announced; 0: none
	former int64
	// the announced leases that were adopted, whether still held or not
	adopted map[int64]bool
	// from the snapshot: tasks of evaluations and exports that were not queued again yet
	tried []TriedTask

	// stretches that were credited since the last call of Credits
	credits []Credit
	// number of leases by kind
	leased map[Kind]int
	// number of holders with a training lease
	trainers int
	stats    Stats
}

// holder is a worker that holds leases.
type holder struct {
	// in the order of their numbers; the worker works on the first
	leases []*Lease
	// how many of leases are for training
	training int
	// when the worker last showed progress
	progress time.Time
	// when the worker began its first lease
	leaseStart time.Time
}

// New makes a queue whose first epoch is open. Shards without records are left out. Without shards
// there is no training, as in a job that only evaluates.
func New(shards []Shard, p Policy) (*Queue, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("task policy: %w", err)
	}
	for _, s := range shards {
		if s.Start < 0 || s.Count < 0 {
			return nil, fmt.Errorf("shard %s: %d records from %d: want no negative numbers", s.Name, s.Count, s.Start)
		}
	}
	q := &Queue{
		policy:   p,
		cut:      cutUp(shards, p.RecordsPerTask),
		training: new(todo),
		leases:   make(map[int64]*Lease),
		holders:  make(map[int]*holder),
		leased:   make(map[Kind]int),
		slow:     make(map[Kind]int),
	}
	q.policy.MaxAttempts = cmp.Or(p.MaxAttempts, 3)
	switch {
	case len(shards) > 0 && q.cut.records == 0:
		return nil, errors.New("training data has no records")
	case q.cut.records == 0:
		q.closed = true
		return q, nil
	}
	q.plan()
	q.open()
	return q, nil
}

// plan computes the number of records of all epochs.
func (q *Queue) plan() {
	q.stats.Epochs = max(0, q.policy.Epochs)
	if q.policy.Unsized {
		return
	}
	all := int64(q.stats.Epochs) * q.cut.records
	q.stats.Total = all
	if limit := q.policy.MaxRecords; limit > 0 && (all == 0 || limit < all) {
		q.stats.Total = limit
		q.stats.Skipped = max(0, all-limit)
	}
}

// open opens the next epoch, with as many records as MaxRecords allows. Its cost does not depend on
// the number of tasks.
func (q *Queue) open() {
	q.epoch++
	q.training = newTodo(q.cut, q.policy.order(q.cut.tasks, q.epoch),
		Task{Kind: Training, Epoch: q.epoch, Unsized: q.policy.Unsized})
	room := q.cut.records
	if q.policy.Unsized {
		room = 0
	}
	if q.policy.MaxRecords > 0 {
		room = min(room, q.policy.MaxRecords-q.stats.Done)
		q.training.limit(room)
	}
	q.stats.EpochDone, q.stats.EpochTotal = 0, room
	q.stats.Settled = 0
}

// Lease leases the next task to a worker. Evaluation and prediction come before training, so that
// the snapshot of their version is freed soon; the export comes when all else is settled. It
// returns false if there is no task now.
func (q *Queue) Lease(worker int, now time.Time) (Lease, bool) {
	t, ok := q.nextTask()
	if !ok {
		return Lease{}, false
	}
	q.lastID++
	t.Slow = max(t.Slow, q.before[t.Kind])
	l := &Lease{ID: q.lastID, Worker: worker, Task: t, Granted: now}
	q.hold(l, now)
	return q.holders[worker].lease(l), true
}

// hold adds a lease to its worker.
func (q *Queue) hold(l *Lease, now time.Time) {
	q.leases[l.ID] = l
	q.leased[l.Kind]++
	h := q.holders[l.Worker]
	if h == nil {
		h = &holder{progress: now, leaseStart: now}
		q.holders[l.Worker] = h
	}
	h.leases = append(h.leases, l)
	slices.SortFunc(h.leases, func(a, b *Lease) int { return cmp.Compare(a.ID, b.ID) })
	if l.Kind == Training {
		if h.training++; h.training == 1 {
			q.trainers++
		}
	}
}

// nextTask removes and returns the next task that may be leased now.
func (q *Queue) nextTask() (Task, bool) {
	switch {
	case q.err != nil:
		return Task{}, false
	case len(q.evaluations) > 0:
		t := q.evaluations[0].pop()
		if q.evaluations[0].len() == 0 {
			q.evaluations = q.evaluations[1:]
		}
		return t, true
	case q.training.len() > 0:
		return q.training.pop(), true
	case q.exports.len() > 0 && q.closed && q.leased[Evaluation]+q.leased[Prediction] == 0:
		return q.exports.pop(), true
	}
	return Task{}, false
}

// lease returns a copy of l for callers, with Touched set.
func (h *holder) lease(l *Lease) Lease {
	out := *l
	out.Touched = l.Granted
	if h.progress.After(out.Touched) {
		out.Touched = h.progress
	}
	return out
}

// Touch notes progress: done records of the lease's task are done, including those that were
// credited before the lease. It credits them, and restarts the worker's straggler limit. A done
// that is not higher than before changes nothing. A done that exceeds the task is an error. Of an
// evaluation, a prediction or an export nothing is credited; the progress of an export has any
// unit.
func (q *Queue) Touch(lease int64, worker int, done int64, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	if done > l.most() && l.Kind != Export {
		return fmt.Errorf("touch lease %d: %d records done of %d", lease, done, l.Records())
	}
	if done > max(l.Done, l.shown) {
		l.shown = done
		q.credit(l, done)
		q.holders[worker].progress = now
	}
	return nil
}

// Work notes effort on a lease that does not complete records: the worker waits for the storage of
// its data, or searches a long file for its records. It restarts the worker's straggler limit.
// Effort has no unit and rises while that lasts; a value that is not higher than before changes
// nothing.
func (q *Queue) Work(lease int64, worker int, effort int64, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	if effort > l.effort {
		l.effort = effort
		q.holders[worker].progress = now
	}
	return nil
}

// Done settles a lease, and credits every record of its task. The end of a task of unknown length
// is reported by Touch before; without it Done is an error.
func (q *Queue) Done(lease int64, worker int, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	if l.Unsized && !l.Whole(l.Done) {
		return fmt.Errorf("lease %d is done: %v: its end was not reported", lease, l.Task)
	}
	h := q.holders[worker]
	q.longest = max(q.longest, now.Sub(h.leaseStart))
	h.progress = now
	q.drop(l, now)
	q.credit(l, l.Records())
	q.settle(l)
	return nil
}

// Fail takes back a lease that failed for the given reason, and counts a failure of the task. The
// task is leased again after the others. After MaxAttempts failures the queue fails.
func (q *Queue) Fail(lease int64, worker int, reason string, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	q.drop(l, now)
	q.fail(l, reason)
	return nil
}

// Return takes back a lease whose worker could not reach the storage of the task's data or of its
// result. Nothing is counted, and the task is leased next. After MaxAttempts returns without
// progress in between the queue fails.
func (q *Queue) Return(lease int64, worker int, reason string, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	q.drop(l, now)
	q.stats.Requeued++
	t := l.Task
	t.Returned++
	waiting := q.todo(l)
	waiting.again = append(waiting.again, t)
	if t.Returned >= q.policy.MaxAttempts && q.err == nil {
		q.err = fmt.Errorf("%v: given back %d times, at last by worker %d: %s", t, t.Returned, l.Worker, reason)
	}
	return nil
}

// Lose takes back and returns all leases of a worker that ended. progress gives, by lease, how many
// records of the task are in the model, as the parameter servers report it. Progress that Touch has
// noted counts too.
//
// fault is empty if the worker was lost: preempted, deleted, or on a lost node. Otherwise it is the
// reason of the crash, and counts against the task of the lease that the worker worked on; leases
// that it held in reserve are not.
func (q *Queue) Lose(worker int, progress map[int64]int64, fault string, now time.Time) []Lease {
	h := q.holders[worker]
	if h == nil {
		return nil
	}
	var lost []Lease
	// Backwards, so that the first lease is the next to be leased.
	held := slices.Clone(h.leases)
	for i, l := range slices.Backward(held) {
		q.credit(l, min(l.most(), progress[l.ID]))
		lost = append(lost, h.lease(l))
		q.drop(l, now)
		switch {
		case l.Kind == Training && l.Whole(l.Done):
			q.settle(l)
		case fault != "" && i == 0:
			q.fail(l, fault)
		default:
			q.stats.Requeued++
			t := q.todo(l)
			t.again = append(t.again, l.Task)
		}
	}
	slices.Reverse(lost)
	return lost
}

// fail counts a failure of the task of a lease that was dropped.
func (q *Queue) fail(l *Lease, reason string) {
	q.stats.Failed++
	t := l.Task
	t.Attempts++
	waiting := q.todo(l)
	waiting.later = append(waiting.later, t)
	if t.Attempts >= q.policy.MaxAttempts && q.err == nil {
		q.err = fmt.Errorf("%v: failed %d times, at last by worker %d: %s", t, t.Attempts, l.Worker, reason)
	}
}

// held returns a lease of a worker, ErrStale if the worker does not hold it.
func (q *Queue) held(lease int64, worker int) (*Lease, error) {
	if l := q.leases[lease]; l != nil && l.Worker == worker {
		return l, nil
	}
	return nil, ErrStale
}

// credit raises the credited records of a training lease to done. Of other kinds nothing is
// credited: what an unfinished evaluation has measured is lost with its worker.
func (q *Queue) credit(l *Lease, done int64) {
	if l.Kind != Training || done <= l.Done {
		return
	}
	c := Credit{ledger.Task{Epoch: l.Epoch, Number: l.Number}, l.Done, done}
	q.stats.Done += c.Records()
	q.stats.EpochDone += c.Records()
	q.credits = append(q.credits, c)
	l.Done, l.Returned = done, 0
}

// settle counts a task as settled.
func (q *Queue) settle(l *Lease) {
	switch l.Kind {
	case Training:
		q.stats.Settled++
	case Evaluation, Prediction:
		q.stats.Measured += l.Records()
	}
}

// drop removes a lease from its worker. The caller decides what happens to its task.
func (q *Queue) drop(l *Lease, now time.Time) {
	delete(q.leases, l.ID)
	q.leased[l.Kind]--
	h := q.holders[l.Worker]
	if h.leases[0] == l {
		h.leaseStart = now
	}
	h.leases = slices.DeleteFunc(h.leases, func(x *Lease) bool { return x == l })
	if l.Kind == Training {
		if h.training--; h.training == 0 {
			q.trainers--
		}
	}
	if len(h.leases) == 0 {
		delete(q.holders, l.Worker)
	}
}

// todo returns the list in which the task of a lease waits after it was taken back.
func (q *Queue) todo(l *Lease) *todo {
	switch l.Kind {
	case Export:
		return &q.exports
	case Evaluation, Prediction:
		return q.evaluation(l.Kind, l.Version)
	}
	return q.training
}

// evaluation returns the waiting tasks of an evaluation or prediction of a version.
func (q *Queue) evaluation(kind Kind, version int64) *todo {
	for _, t := range q.evaluations {
		if t.like.Kind == kind && t.like.Version == version {
			return t
		}
	}
	t := &todo{like: Task{Kind: kind, Version: version}}
	q.evaluations = append(q.evaluations, t)
	return t
}

// Settled reports whether every record of the open epoch is credited and no lease of it is held.
// The master then has the parameter servers apply the gradients that they have accumulated, and
// calls NextEpoch.
func (q *Queue) Settled() bool {
	return !q.closed && q.training.len() == 0 && q.leased[Training] == 0
}

// NextEpoch ends the epoch, and reports whether it opened another; if not, training is done. It
// panics if the epoch is not settled.
func (q *Queue) NextEpoch() bool {
	if !q.Settled() {
		panic(fmt.Sprintf("task: next epoch before the last is settled: %v", q.Stats()))
	}
	if q.ended() {
		q.closed = true
		return false
	}
	q.open()
	return true
}

// SettledEpochs returns the number of epochs that NextEpoch has ended.
func (q *Queue) SettledEpochs() int {
	if q.closed {
		return q.epoch
	}
	return max(0, q.epoch-1)
}

// ended reports whether no epoch follows the open one.
func (q *Queue) ended() bool {
	return q.policy.Epochs > 0 && q.epoch == q.policy.Epochs || q.policy.MaxRecords > 0 &&
		q.stats.Done >= q.policy.MaxRecords
}

// TrainingDone reports whether NextEpoch has ended the last epoch. The last evaluation and the
// export follow.
func (q *Queue) TrainingDone() bool { return q.closed }

// Finished reports whether training is done, and all evaluations, predictions and exports are
// settled.
func (q *Queue) Finished() bool {
	return q.err == nil && q.closed && q.evaluating() == 0
}

// evaluating returns the number of tasks of evaluations, predictions and exports that wait or are
// leased.
func (q *Queue) evaluating() int {
	n := q.exports.len() + q.leased[Evaluation] + q.leased[Prediction] + q.leased[Export]
	for _, t := range q.evaluations {
		n += t.len()
	}
	return n
}

// Err returns why the queue failed, with the task and the last reason, and nil if it did not fail.
// A failed queue leases no more tasks; held leases can still be settled.
func (q *Queue) Err() error { return q.err }

// Evaluate queues the evaluation of a version of the model on shards, and returns the number of its
// tasks. The results are kept by the caller: when Done returns nil, the result that came with the
// report is the only one for the task's records.
func (q *Queue) Evaluate(version int64, shards []Shard) int {
	return q.apply(Task{Kind: Evaluation, Version: version}, shards)
}

// Predict queues the prediction of shards with a version of the model, and returns the number of
// its tasks. A worker calls Done after it has written the whole result of a task. A task that is
// repeated writes the same result.
func (q *Queue) Predict(version int64, shards []Shard) int {
	return q.apply(Task{Kind: Prediction, Version: version}, shards)
}

// apply queues tasks for all records of shards; like gives their other fields.
func (q *Queue) apply(like Task, shards []Shard) int {
	c := cutUp(shards, q.policy.RecordsPerTask)
	if like.Kind == Prediction {
		like.Of = c.tasks
	}
	q.stats.Measured, q.stats.ToMeasure = 0, c.records
	if c.tasks > 0 {
		t := newTodo(c, plain(c.tasks), like)
		q.recall(t)
		q.evaluations = append(q.evaluations, t)
	}
	return c.tasks
}

// Withdraw drops the evaluation of a version with all its leases, because the snapshot of the model
// is lost.
func (q *Queue) Withdraw(version int64, now time.Time) {
	q.evaluations = slices.DeleteFunc(q.evaluations, func(t *todo) bool {
		return t.like.Kind == Evaluation && t.like.Version == version
	})
	q.stats.Measured, q.stats.ToMeasure = 0, 0
	for _, l := range q.leases {
		if l.Kind == Evaluation && l.Version == version {
			q.drop(l, now)
		}
	}
}

// Export queues the task that writes the model or, if parts > 0, the task that joins that many
// parts of a prediction. It is leased when all else is settled.
func (q *Queue) Export(version int64, parts int) {
	q.exports.like = Task{Kind: Export, Version: version, Of: parts}
	q.exports.later = append(q.exports.later, q.exports.like)
	q.recall(&q.exports)
}

// Stats returns the progress of the queue for display.
func (q *Queue) Stats() Stats {
	s := q.stats
	s.Epoch = q.epoch
	s.Todo = q.training.len()
	s.Leased = q.leased[Training]
	s.Evaluating = q.evaluating()
	return s
}

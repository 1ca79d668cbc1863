package task

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/ledger"
)

// Queue is the machine. It is not safe for concurrent use: the shell holds a lock round it.
type Queue struct {
	policy Policy
	cut    *cut // of the training shards

	epoch  int // 0 with nothing to train on
	closed bool
	err    error

	training    *todo   // this epoch's
	evaluations []*todo // and predictions, by version, in the order in which they were asked for
	exports     todo

	leases  map[int64]*Lease
	holders map[int]*holder
	lastID  int64
	longest time.Duration // of completed leases, from when the worker began it

	slow   map[Kind]int // the most that a task of the kind was
	before map[Kind]int // and the most before the training began anew, if it did

	former  int64          // leases up to this number may be announced; 0: none
	adopted map[int64]bool // those of them that were, held still or not
	tried   []TriedTask    // tasks that are not asked for yet, as they were before the queue was restored

	leased   map[Kind]int // how many of leases
	trainers int          // holders with a training lease
	stats    Stats
}

// holder is a worker with a lease or more.
type holder struct {
	leases   []*Lease // in the order of their ids; the worker is at the first
	training int      // how many of them
	progress time.Time
	began    time.Time // with its first lease
}

// New makes a queue whose first epoch is open. Shards without records are left out. With no
// shards at all there is no training to be done: a job that only evaluates.
func New(shards []Shard, p Policy) (*Queue, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("task policy: %w", err)
	}
	for _, s := range shards {
		if s.Start < 0 || s.Count < 0 {
			return nil, fmt.Errorf("shard %s: %d records from %d", s.Name, s.Count, s.Start)
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

// plan computes what the epochs amount to.
func (q *Queue) plan() {
	q.stats.Epochs = max(0, q.policy.Epochs)
	all := int64(q.stats.Epochs) * q.cut.records
	q.stats.Total = all
	if limit := q.policy.MaxRecords; limit > 0 && (all == 0 || limit < all) {
		q.stats.Total = limit
		q.stats.Skipped = max(0, all-limit)
	}
}

// open fills the next epoch, as far as MaxRecords allows. It costs the same for a million tasks as for one.
func (q *Queue) open() {
	q.epoch++
	order := plain(q.cut.tasks)
	if q.policy.Shuffle {
		order = shuffle(q.cut.tasks, q.policy.Seed, uint64(q.epoch))
	}
	q.training = newTodo(q.cut, order, Task{Kind: Training, Epoch: q.epoch})
	room := q.cut.records
	if q.policy.MaxRecords > 0 {
		room = min(room, q.policy.MaxRecords-q.stats.Done)
		q.training.limit(room)
	}
	q.stats.EpochDone, q.stats.EpochTotal = 0, room
	q.stats.Settled = 0
}

// Lease gives worker the next task: evaluation and prediction before training, so that a snapshot is held
// no longer than needed, and the export when all else is settled. False: nothing to do now.
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

// hold gives a lease to its worker.
func (q *Queue) hold(l *Lease, now time.Time) {
	q.leases[l.ID] = l
	q.leased[l.Kind]++
	h := q.holders[l.Worker]
	if h == nil {
		h = &holder{progress: now, began: now}
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

// lease returns what the world sees of l.
func (h *holder) lease(l *Lease) Lease {
	out := *l
	out.Touched = l.Granted
	if h.progress.After(out.Touched) {
		out.Touched = h.progress
	}
	return out
}

// Touch notes that done records of the lease's task, those credited before included, are
// done. Progress is monotone: less than was told before changes nothing, more than
// the task has is an error. It keeps the worker from being overdue. Of an evaluation nothing is credited by it, nor of
// an export, whose progress is in any unit.
func (q *Queue) Touch(lease int64, worker int, done int64, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	if done > l.Records() && l.Kind != Export {
		return fmt.Errorf("touch lease %d: %d records done of %d", lease, done, l.Records())
	}
	if done > max(l.Done, l.shown) {
		l.shown = done
		q.credit(l, done)
		q.holders[worker].progress = now
	}
	return nil
}

// Work notes that a lease is worked on, though no record of it is done: its worker waits for the storage of its data, or looks
// for its records in a long file. Effort
// has no measure and rises as long as that is so; less than was told before changes nothing. It keeps the worker from being overdue.
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

// Done settles a lease: every record of its task is done.
func (q *Queue) Done(lease int64, worker int, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	h := q.holders[worker]
	q.longest = max(q.longest, now.Sub(h.began))
	h.progress = now
	q.drop(l, now)
	q.credit(l, l.Records())
	q.settle(l)
	return nil
}

// Fail takes a lease back whose worker could not do it, and charges the task. The task is
// tried again after the others; when it failed MaxAttempts times, the queue fails.
func (q *Queue) Fail(lease int64, worker int, reason string, now time.Time) error {
	l, err := q.held(lease, worker)
	if err != nil {
		return err
	}
	q.drop(l, now)
	q.fail(l, reason)
	return nil
}

// Return takes a lease back whose worker could not reach the task's data, or where its result is to be written. The task is
// not charged, and is the next to be leased; when it was returned MaxAttempts times with no progress between, the queue fails.
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

// Lose takes back every lease of a worker that is gone, and returns them. Progress says, by lease,
// how many records of the task are known to be done (what the servers have of it);
// more than that may have been told by Touch, and counts.
//
// charge is empty for a worker that was lost: preempted, deleted, its node gone. Otherwise it
// is why the worker crashed, and the lease that it was at is charged with it;
// those that it held in reserve are not.
func (q *Queue) Lose(worker int, progress map[int64]int64, charge string, now time.Time) []Lease {
	h := q.holders[worker]
	if h == nil {
		return nil
	}
	var lost []Lease
	// Backwards, so that the first lease comes first when they are put in front again.
	held := slices.Clone(h.leases)
	for i, l := range slices.Backward(held) {
		q.credit(l, min(l.Records(), progress[l.ID]))
		lost = append(lost, h.lease(l))
		q.drop(l, now)
		switch {
		case l.Kind == Training && l.Done == l.Records():
			q.settle(l)
		case charge != "" && i == 0:
			q.fail(l, charge)
		default:
			q.stats.Requeued++
			t := q.todo(l)
			t.again = append(t.again, l.Task)
		}
	}
	slices.Reverse(lost)
	return lost
}

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

func (q *Queue) held(lease int64, worker int) (*Lease, error) {
	if l := q.leases[lease]; l != nil && l.Worker == worker {
		return l, nil
	}
	return nil, ErrStale
}

// credit raises the records done of l to done. What an evaluation measured is gone with its worker.
func (q *Queue) credit(l *Lease, done int64) {
	if l.Kind != Training || done <= l.Done {
		return
	}
	q.stats.Done += done - l.Done
	q.stats.EpochDone += done - l.Done
	l.Done, l.Returned = done, 0
}

func (q *Queue) settle(l *Lease) {
	switch l.Kind {
	case Training:
		q.stats.Settled++
	case Evaluation, Prediction:
		q.stats.Measured += l.Records()
	}
}

// drop ends a lease, whatever becomes of its task.
func (q *Queue) drop(l *Lease, now time.Time) {
	delete(q.leases, l.ID)
	q.leased[l.Kind]--
	h := q.holders[l.Worker]
	if h.leases[0] == l {
		h.began = now
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

// todo returns where the task of a lease waits when it is taken back.
func (q *Queue) todo(l *Lease) *todo {
	switch l.Kind {
	case Export:
		return &q.exports
	case Evaluation, Prediction:
		return q.evaluation(l.Kind, l.Version)
	}
	return q.training
}

// evaluation returns what waits of the evaluation of a version, or of its prediction.
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

// Settled reports whether every record of this epoch is credited and no lease of it is out: the
// barrier. The shell makes the servers apply what they gathered, and calls NextEpoch.
func (q *Queue) Settled() bool {
	return !q.closed && q.training.len() == 0 && q.leased[Training] == 0
}

// NextEpoch passes the barrier and says whether another epoch was opened; if not, training
// is done. It panics before the epoch is settled.
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

// Rewind takes the training back to where a model is that has what the ledger says: exactly what is not in it is to be
// done. An empty one begins anew. No lease is held any more, none of before is adopted, and no evaluation or export asked for. Ids of leases go on, so that reports of
// before are stale. So do the limits that were doubled: where the model is lost each time that a worker is overdue, the
// training ends all the same. A ledger of another cut is an error, and changes nothing.
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

// at makes a queue whose training is where a model is that has what the ledger says, and that holds nothing else.
func (q *Queue) at(l *ledger.Ledger) (*Queue, error) {
	l = q.cut.settled(l)
	back := &Queue{policy: q.policy, cut: q.cut, epoch: l.Settled(), training: new(todo)}
	if back.cut.records == 0 {
		back.epoch, back.closed = 0, true
		return back, nil
	}
	back.plan()
	back.stats.Done = int64(back.epoch) * back.cut.records
	if limit := q.policy.MaxRecords; limit > 0 {
		back.stats.Done = min(back.stats.Done, limit)
	}
	switch open := l.Epochs(); {
	case back.stats.Total > 0 && back.epoch > 0 && back.cut.records*int64(back.epoch-1) >= back.stats.Total:
		return nil, fmt.Errorf("%d epochs are complete, and %d records are all there are", back.epoch, back.stats.Total)
	case len(open) > 1 || len(open) == 1 && open[0] != back.epoch+1:
		return nil, fmt.Errorf("something of epochs %v is had, and only the first %d are complete", open, back.epoch)
	case back.ended():
		if len(open) > 0 {
			return nil, fmt.Errorf("something of epoch %d is had, and there are %d", open[0], back.epoch)
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

// Records returns how many records are in a model that has what the ledger says. The error is that it is not of this training.
func (q *Queue) Records(l *ledger.Ledger) (int64, error) {
	at, err := q.at(l)
	if err != nil {
		return 0, fmt.Errorf("count the records of a ledger: %w", err)
	}
	return at.stats.Done, nil
}

// SettledEpochs returns how many epochs are settled and their barriers passed.
func (q *Queue) SettledEpochs() int {
	if q.closed {
		return q.epoch
	}
	return max(0, q.epoch-1)
}

// complete makes the queue be at the end of its last epoch, all of which is done.
func (q *Queue) complete() {
	done := q.stats.Done
	q.epoch--
	q.stats.Done = int64(q.epoch) * q.cut.records
	q.open()
	q.stats.Done, q.stats.EpochDone, q.stats.Settled = done, q.stats.EpochTotal, q.training.end
	q.training, q.closed = new(todo), true
}

// ended says that no epoch is to be trained on after this one.
func (q *Queue) ended() bool {
	return q.policy.Epochs > 0 && q.epoch == q.policy.Epochs || q.policy.MaxRecords > 0 && q.stats.Done >= q.policy.MaxRecords
}

// TrainingDone reports whether the last epoch is settled and its barrier passed. Then is the time
// for the last evaluation and for Export.
func (q *Queue) TrainingDone() bool { return q.closed }

// Finished reports whether nothing is left: training done, evaluations and export settled.
func (q *Queue) Finished() bool {
	return q.err == nil && q.closed && q.evaluating() == 0
}

func (q *Queue) evaluating() int {
	n := q.exports.len() + q.leased[Evaluation] + q.leased[Prediction] + q.leased[Export]
	for _, t := range q.evaluations {
		n += t.len()
	}
	return n
}

// Err returns why the queue failed, naming the task and the last reason; nil if it did not.
// A queue that failed leases nothing more; what is leased can still be settled.
func (q *Queue) Err() error { return q.err }

// Evaluate queues the evaluation of a version of the model on shards, and returns how many tasks
// that is. What is measured is the shell's business: Done settles the task,
// the report that came with it is then the only one for its records.
func (q *Queue) Evaluate(version int64, shards []Shard) int {
	return q.apply(Task{Kind: Evaluation, Version: version}, shards)
}

// Predict queues the prediction of shards with a version of the model, and returns how many tasks that is. What a worker writes
// for a task is there whole when it is Done; who does a task again writes the same.
func (q *Queue) Predict(version int64, shards []Shard) int {
	return q.apply(Task{Kind: Prediction, Version: version}, shards)
}

// apply queues tasks like one, of all records of shards.
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

// Withdraw forgets the evaluation of a version, leased or not: the snapshot is gone.
func (q *Queue) Withdraw(version int64, now time.Time) {
	q.evaluations = slices.DeleteFunc(q.evaluations, func(t *todo) bool { return t.like.Kind == Evaluation && t.like.Version == version })
	q.stats.Measured, q.stats.ToMeasure = 0, 0
	for _, l := range q.leases {
		if l.Kind == Evaluation && l.Version == version {
			q.drop(l, now)
		}
	}
}

// Export queues the one task that writes the model, or, of so many parts, the one that puts what was predicted together. It is
// leased when all else is settled.
func (q *Queue) Export(version int64, parts int) {
	q.exports.like = Task{Kind: Export, Version: version, Of: parts}
	q.exports.later = append(q.exports.later, q.exports.like)
	q.recall(&q.exports)
}

// Stats returns the queue as users see it.
func (q *Queue) Stats() Stats {
	s := q.stats
	s.Epoch = q.epoch
	s.Todo = q.training.len()
	s.Leased = q.leased[Training]
	s.Evaluating = q.evaluating()
	return s
}

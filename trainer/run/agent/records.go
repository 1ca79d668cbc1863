package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

const (
	// leaseLimit is the time limit of a request to the master for a lease, as the program waits for
	// the answer.
	leaseLimit = 2 * time.Second
	// again is the time for which the master's answer that there is no lease now is reused, as
	// processes ask often.
	again = 30 * time.Millisecond
)

// records holds the leases of this worker's processes. The records of a round are safe, and are
// reported to the master, when the process has completed the beginning of the next round: then
// every rank has completed the round of these records.
type records struct {
	master wire.MasterClient
	index  int32
	// delivers reports in order, and calls reported after each; it does not block
	report func(*wire.ReportTaskRequest)
	// is called, and must not block, when it changes whether the master has yet to learn of
	// completed leases; nil: nothing is called
	pending func(bool)

	mu      sync.Mutex
	dataset *wire.Dataset
	held    map[int64]*lease
	// completed leases of which the master may not know yet. Requests name them as held, as the
	// master would grant them again otherwise.
	done map[int64]bool
	// time until which the master is not asked for leases, as it had none to grant
	waits time.Time
	// there are no more records
	over bool
	// number of rounds that this worker has completed, in all worlds
	steps int64
	// number of rounds in the state
	version int64
	// newest round of this world; 0: none
	round0 int64
	loss   float32
	// newest generation of a world in which a round was completed
	rounds int64
}

// lease is a lease that a process of this worker holds.
type lease struct {
	task *wire.Task
	// connection of the process that trains with it; nil: no process does
	owner *script
	// number of its records in the state of the process, as it has reported
	reported int64
	// number of its records in the state of every rank
	safe int64
}

func (l *lease) size() int64 { return l.task.End - l.task.Start }

func newRecords(master wire.MasterClient, index int, report func(*wire.ReportTaskRequest)) *records {
	return &records{master: master, index: int32(index), report: report, held: make(map[int64]*lease),
		done: make(map[int64]bool)}
}

// declare announces the data set of the program to the master.
func (r *records) declare(ctx context.Context, m datasetRequest) error {
	d := &wire.Dataset{Size: m.Size, Epochs: m.Epochs, Shuffle: m.Shuffle, Seed: m.Seed, Task: m.RecordsPerTask}
	err := membership.Retry(ctx, func() error {
		reply, err := r.master.GetTask(ctx, &wire.GetTaskRequest{Worker: r.index, Held: r.ids(), Now: true, Dataset: d})
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.dataset = d
			r.hold(reply.Task)
		}
		return err
	})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}

// ids returns the leases that are held, and those whose completion is not reported yet.
func (r *records) ids() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(r.held)), slices.Collect(maps.Keys(r.done)))
}

// reported notes that the report of a completed lease was delivered, or refused by the master.
func (r *records) reported(lease int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.done, lease)
	if len(r.done) == 0 && r.pending != nil {
		r.pending(false)
	}
}

// hold adds the master's grant, a lease for any process of this worker, or notes that there are no
// more records. The caller holds the mutex.
func (r *records) hold(t *wire.Task) {
	switch t.GetKind() {
	case wire.TaskKind_TRAINING:
		if r.held[t.Lease] == nil {
			r.held[t.Lease] = &lease{task: t, reported: t.Done, safe: t.Done}
		}
	case wire.TaskKind_END:
		r.over = true
	}
}

// known returns the answer to a process that asks for a lease; nil: the master must be asked.
func (r *records) known(by *script, at time.Time) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dataset == nil {
		return nil, errors.New("no data set was declared: call elasticdl.records with the number of records first")
	}
	if grant, ok := r.orphan(by); ok {
		return grant, nil
	}
	switch {
	case r.over:
		return overReply{true}, nil
	case at.Before(r.waits):
		return waitReply{true}, nil
	}
	return nil, nil
}

// ask asks the master for a lease.
func (r *records) ask(ctx context.Context) (*wire.Task, error) {
	r.mu.Lock()
	dataset := r.dataset
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaseLimit)
	defer cancel()
	reply, err := r.master.GetTask(ctx, &wire.GetTaskRequest{Worker: r.index, Held: r.ids(), Now: true,
		Dataset: dataset})
	return reply.GetTask(), err
}

// granted returns the answer to a process, given the master's answer.
func (r *records) granted(by *script, task *wire.Task, err error, at time.Time) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return nil, errors.New(status.Convert(err).Message())
	case err != nil:
		r.waits = at.Add(again)
		// the master is unreachable: processes continue with the leases that they hold
		return waitReply{true}, nil
	}
	r.hold(task)
	if grant, ok := r.orphan(by); ok {
		return grant, nil
	}
	if r.over {
		return overReply{true}, nil
	}
	r.waits = at.Add(again)
	return waitReply{true}, nil
}

// orphan gives a process the oldest lease that no process trains with. The caller holds the mutex.
func (r *records) orphan(by *script) (grant leaseReply, ok bool) {
	var first *lease
	for _, l := range r.held {
		if l.owner == nil && (first == nil || l.task.Lease < first.task.Lease) {
			first = l
		}
	}
	if first == nil {
		return leaseReply{}, false
	}
	first.owner = by
	t := first.task
	return leaseReply{t.Lease, t.Epoch - 1, t.Number, t.Start, t.End, first.safe}, true
}

// met handles a process's message that it has met all other ranks since it last reported progress:
// the state of each rank has that progress.
func (r *records) met(by *script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secure(by)
}

// round handles the message of a process that has completed a round, and reports whether it is the
// first one of its world on this worker. All ranks had begun that round, so the earlier reports of
// the process are in the state of each.
func (r *records) round(by *script, m roundMessage) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secure(by)
	r.noteProgress(by, m.Leases)
	// the first process of this worker that completes it
	if m.Round > r.round0 {
		r.steps++
		r.round0, r.version = m.Round, m.Round
	}
	if m.Loss != nil {
		r.loss = *m.Loss
	}
	r.waits = time.Time{}
	first = m.Generation > r.rounds
	r.rounds = max(r.rounds, m.Generation)
	return first
}

// receivedState handles the message of a process that has received its state from others, with the
// progress of leases in that state.
func (r *records) receivedState(by *script, leases [][2]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteProgress(by, leases)
}

// noteProgress notes progress that is not safe yet. The caller holds the mutex.
func (r *records) noteProgress(by *script, leases [][2]int64) {
	for _, progress := range leases {
		if l := r.held[progress[0]]; l != nil {
			l.owner = by
			l.reported = max(l.reported, min(progress[1], l.size()))
		}
	}
}

// secure notes that every rank has the earlier reports of a process, and reports the leases that
// are done. The caller holds the mutex.
func (r *records) secure(by *script) {
	var done []int64
	for id, l := range r.held {
		if l.owner == by {
			l.safe = l.reported
			if l.safe == l.size() {
				done = append(done, id)
			}
		}
	}
	slices.Sort(done)
	for _, id := range done {
		delete(r.held, id)
		r.done[id] = true
		if r.pending != nil {
			r.pending(true)
		}
		r.report(&wire.ReportTaskRequest{Worker: r.index, Lease: id})
	}
}

// closed notes that a process has ended and that all its messages are handled. Other processes of
// this worker get its leases, without the progress that is not safe.
func (r *records) closed(of *script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.held {
		if l.owner == of {
			l.owner, l.reported = nil, l.safe
		}
	}
}

// enter begins a world. Leases with numbers below the floor are void.
func (r *records) enter(floor int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.held {
		if id < floor {
			delete(r.held, id)
		}
	}
	r.over, r.waits, r.round0, r.version = false, time.Time{}, 0, 0 // the state may be an older one
}

// beat adds the progress of the rounds and the leases to a heartbeat.
func (r *records) beat(b *wire.HeartbeatRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.Steps, b.Loss, b.Version, b.Rounds = r.steps, r.loss, r.version, r.rounds
	for id, l := range r.held {
		b.Leases = append(b.Leases, &wire.LeaseProgress{Lease: id, Done: l.safe, Epoch: l.task.Epoch,
			Number: l.task.Number, Effort: r.steps})
	}
	slices.SortFunc(b.Leases, func(a, b *wire.LeaseProgress) int { return int(a.Lease - b.Lease) })
}

// ledger encodes for the master the records that a process reports to be in its state. No other
// records are added, as the state may be older than that of the process's world.
func (r *records) ledger(entries [][3]int64, settled int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l ledger.Ledger
	l.Settle(settled)
	for _, s := range entries {
		of := s[2] + 1
		if d := r.dataset; d != nil && d.Task > 0 {
			of = min(d.Task, d.Size-s[1]*d.Task)
		}
		l.Add(ledger.Task{Epoch: int(s[0]) + 1, Number: int(s[1])}, min(s[2], of), of)
	}
	return l.Append(nil)
}

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
	// leaseLimit is the time that the master may take to answer a request for records: the program
	// waits meanwhile.
	leaseLimit = 2 * time.Second
	// again is the time that the master's answer "nothing now" is reused: processes ask often.
	again = 30 * time.Millisecond
)

// records holds the leases of this worker's processes. The records of a process are safe, and
// reported to the master, when the process has completed the beginning of another round: then every
// rank has completed the round before.
type records struct {
	master wire.MasterClient
	index  int32
	// delivers a report, in order, and calls reported; it does not block
	report func(*wire.ReportTaskRequest)
	// gets, without delay, whether the master has yet to hear of ended leases; nil: nobody is
	pending func(bool)

	mu      sync.Mutex
	dataset *wire.Dataset
	held    map[int64]*lease
	// ended leases of which the master may not know yet: it would grant them again if they were not
	// held
	done map[int64]bool
	// until then the master has no lease to grant
	waits time.Time
	// there are no more records
	over  bool
	steps int64
	// rounds in the state
	version int64
	// newest round of this world; 0: none
	round0 int64
	loss   float32
	// newest generation in which a round was made
	rounds int64
}

// lease is a lease that a process of this worker holds.
type lease struct {
	task *wire.Task
	// connection of the process; nil: it has ended, and all that was sent on it is read
	owner *script
	// records in the process's state
	told int64
	// records in the state of every rank
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

// ids returns the leases that are held, and those whose end is being reported.
func (r *records) ids() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(r.held)), slices.Collect(maps.Keys(r.done)))
}

// reported notes that the master knows of the end of a lease, or has no use for it.
func (r *records) reported(lease int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.done, lease)
	if len(r.done) == 0 && r.pending != nil {
		r.pending(false)
	}
}

// hold keeps a lease for any process. The caller holds the mutex.
func (r *records) hold(t *wire.Task) {
	switch t.GetKind() {
	case wire.TaskKind_TRAINING:
		if r.held[t.Lease] == nil {
			r.held[t.Lease] = &lease{task: t, told: t.Done, safe: t.Done}
		}
	case wire.TaskKind_END:
		r.over = true
	}
}

// known returns the answer to a process that asks for a lease, if the master need not be asked for
// it; nil: it must.
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

// granted returns the answer to a process, given that of the master.
func (r *records) granted(by *script, task *wire.Task, err error, at time.Time) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return nil, errors.New(status.Convert(err).Message())
	case err != nil:
		r.waits = at.Add(again)
		// the master is away: the processes go on with the leases that they hold
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

// orphan gives a process a lease whose process has ended. The caller holds the mutex.
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

// met handles the message of a process that has met all other ranks since it reported its progress:
// that is in the state of each.
func (r *records) met(by *script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secure(by)
}

// round handles the message of a process that has completed a round, and reports whether it is the
// first one of its world on this worker. All ranks had begun it, so they have what the process had
// reported before.
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

// receivedState handles the message of a process that has received its state from others: what is
// in it.
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
			l.told = max(l.told, min(progress[1], l.size()))
		}
	}
}

// secure notes that every rank has the earlier reports of a process, and reports the leases that
// are done. The caller holds the mutex.
func (r *records) secure(by *script) {
	var done []int64
	for id, l := range r.held {
		if l.owner == by {
			l.safe = l.told
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

// closed notes that a process has ended, and that all it has said is handled: its leases go to
// other processes of this worker. Which of their records are in the model, the ledger tells.
func (r *records) closed(of *script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.held {
		if l.owner == of {
			l.owner, l.told = nil, l.safe
		}
	}
}

// enter begins a world: leases below the floor are void. The reports of members are in the state of
// all after a round.
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

// ledger encodes for the master what a process says of its state. That may be an older one than its
// world has: nothing is in it that the process does not say.
func (r *records) ledger(stretches [][3]int64, settled int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l ledger.Ledger
	l.Settle(settled)
	for _, s := range stretches {
		of := s[2] + 1
		if d := r.dataset; d != nil && d.Task > 0 {
			of = min(d.Task, d.Size-s[1]*d.Task)
		}
		l.Add(ledger.Task{Epoch: int(s[0]) + 1, Number: int(s[1])}, min(s[2], of), of)
	}
	return l.Append(nil)
}

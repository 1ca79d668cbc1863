package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/leases"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// leaseLimit is the time limit of a request to the master for a lease, as the program waits for the
// answer.
const leaseLimit = 2 * time.Second

// records is the shell around the leases of this worker's processes: it makes the calls to the
// master, and holds the lock. [leases.Holder] decides.
type records struct {
	master wire.MasterClient
	index  int32
	// delivers reports in order, and calls reported after each; it does not block
	report func(*wire.ReportTaskRequest)
	// is called, and must not block, when it changes whether the master has yet to learn of
	// completed leases; nil: nothing is called
	pending func(bool)
	// opens the place of a checkpoint
	open func(ctx context.Context, location string) (checkpoint.Files, error)
	// where the time of the processes went
	spents spents

	mu     sync.Mutex
	holder *leases.Holder
}

func newRecords(master wire.MasterClient, index int, report func(*wire.ReportTaskRequest)) *records {
	return &records{master: master, index: int32(index), report: report, holder: leases.New()}
}

// declare announces the data set of the program to the master.
func (r *records) declare(ctx context.Context, m datasetRequest) error {
	d := leases.Dataset{Size: m.Size, Epochs: m.Epochs, Shuffle: m.Shuffle, Seed: m.Seed, PerTask: m.RecordsPerTask,
		Stream: m.Stream, Digest: m.Digest}
	err := membership.Retry(ctx, func() error {
		reply, err := r.master.GetTask(ctx, r.request(&d))
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.holder.Declared(d, grantOf(reply.Task))
		}
		return err
	})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}

// request returns a request to the master for a lease; nil: for the declared data set.
func (r *records) request(d *leases.Dataset) *wire.GetTaskRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d == nil {
		d = r.holder.Dataset()
	}
	return &wire.GetTaskRequest{Worker: r.index, Held: r.holder.Held(), Now: true, Dataset: &wire.Dataset{
		Size: d.Size, Epochs: d.Epochs, Shuffle: d.Shuffle, Seed: d.Seed, Task: d.PerTask, Stream: d.Stream,
		Digest: d.Digest}}
}

// grantOf returns the master's answer to a request for a lease.
func grantOf(t *wire.Task) (g leases.Grant) {
	switch t.GetKind() {
	case wire.TaskKind_TRAINING:
		g.Lease = &leases.Lease{ID: t.Lease, Epoch: t.Epoch, Number: t.Number, Start: t.Start, End: t.End, Done: t.Done,
			Stream: t.Stream}
	case wire.TaskKind_END:
		g.Over = true
	}
	return g
}

// ask returns the answer to a process that asks for a lease.
func (r *records) ask(by *script, at time.Time) leases.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder.Ask(by.number, at)
}

// lease asks the master for a lease.
func (r *records) lease(ctx context.Context) (leases.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseLimit)
	defer cancel()
	reply, err := r.master.GetTask(ctx, r.request(nil))
	return grantOf(reply.GetTask()), err
}

// answered returns the answer to a process, given the master's grant, or the error of a request
// without one.
func (r *records) answered(by *script, g leases.Grant, err error, at time.Time) leases.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		return r.holder.Unreachable(at)
	}
	return r.holder.Answered(by.number, g, at)
}

// grantReply returns the message that answers a process.
func grantReply(a leases.Answer) (any, error) {
	switch a.Kind {
	case leases.Granted:
		return leaseReply{a.ID, a.Epoch - 1, a.Number, a.Start, a.End, a.Done}, nil
	case leases.Over:
		return overReply{true}, nil
	case leases.Undeclared:
		return nil, errors.New("no data set was declared: call elasticdl.records with the number of records first")
	}
	return waitReply{true}, nil
}

// refused returns the master's reason for the refusal of a request; nil: it was not refused, and
// may be repeated.
func refused(err error) error {
	if status.Code(err) == codes.FailedPrecondition {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}

// reported notes that the report of a completed lease was delivered, or refused by the master.
func (r *records) reported(lease int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.holder.Delivered(lease); all && r.pending != nil {
		r.pending(false)
	}
}

// deliver reports completed leases to the master. The caller holds the mutex, so that reports are
// in order.
func (r *records) deliver(done []leases.Progress) {
	for _, p := range done {
		if r.pending != nil {
			r.pending(true)
		}
		r.report(&wire.ReportTaskRequest{Worker: r.index, Lease: p.Lease, Done: p.Done})
	}
}

// met handles a process's message that it has met all other ranks.
func (r *records) met(by *script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deliver(r.holder.Met(by.number))
}

// round handles the message of a process that has completed a round, and reports whether it is the
// first one of its world on this worker.
func (r *records) round(by *script, m roundMessage) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, done := r.holder.Round(by.number, leases.Round{Generation: m.Generation, Number: m.Round,
		Leases: progressOf(m.Leases), Loss: m.Loss})
	r.deliver(done)
	return first
}

// receivedState handles the message of a process that has received its state from others, with the
// progress of leases in that state.
func (r *records) receivedState(by *script, progress [][2]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Received(by.number, progressOf(progress))
}

// progressOf returns the progress of leases in a message.
func progressOf(pairs [][2]int64) (all []leases.Progress) {
	for _, p := range pairs {
		all = append(all, leases.Progress{Lease: p[0], Done: p[1]})
	}
	return all
}

// free notes that a process has ended and that all its messages are handled.
func (r *records) free(conn int) {
	r.spents.free(conn)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Free(conn)
}

// enter begins a world. Leases with numbers below the floor are void.
func (r *records) enter(floor int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Enter(floor)
}

// exhausted reports whether no records are left, and all are in the state of every rank.
func (r *records) exhausted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder.Status().Exhausted
}

// beat adds the progress of the rounds and the leases to a heartbeat.
func (r *records) beat(b *wire.HeartbeatRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.holder.Status()
	b.Steps, b.Loss, b.Version, b.Rounds, b.Exhausted = s.Steps, s.Loss, s.Version, s.Rounds, s.Exhausted
	for _, l := range s.Leases {
		b.Leases = append(b.Leases, &wire.LeaseProgress{Lease: l.ID, Done: l.Done, Epoch: l.Epoch, Number: l.Number,
			Effort: s.Steps})
	}
}

// ledger encodes for the master the records that a process reports to be in its state.
func (r *records) ledger(state stateRecords) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []leases.Part
	for _, s := range state.Ledger {
		parts = append(parts, leases.Part{Task: ledger.Task{Epoch: int(s[0]) + 1, Number: int(s[1])}, Records: s[2]})
	}
	l := r.holder.Ledger(state.Settled, state.Counted, parts)
	return l.Append(nil)
}

package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/ledger"
	"github.com/elasticdl/elasticdl/trainer/mesh"
	"github.com/elasticdl/elasticdl/trainer/ring"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// errDone ends the work of a member whose job has ended.
var errDone = errors.New("the job has ended")

// member is the all-reduce strategy: every worker holds the whole state, and a round changes it on
// all of them alike.
//
//	arrive at the rendezvous ─> world ─> connect ─> take the newest state ─> rounds ─┐
//	        ^                                                                        │
//	        └──────────── a link breaks, or the master recalls the members ──────────┘
//
// In a round every rank tells which minibatches it brings, if any; the sum of all gradients
// is made while they are being computed; when all of it is there the update is applied. A
// rank that has no data brings none and stays. What a rank brought is reported to the master
// after the beginning of the next round: then every rank has come through this one, so
// that no death can take it back.
type member struct {
	*worker
	*meeting
	state
	copies copies
	damage string // why the last world could not begin
	idle   bool   // in the present world, or the last: nobody had anything to bring when all were at the beginning of a round last

	feed    *feeder
	hand    []piece // minibatches, and evaluations, that are not in the state yet, in order
	applied []piece // in the state, but a death could take it back still
	sum     []float32
	scratch []float32
	buckets *ring.Buckets
	ready   chan stretch // of sum, in the buckets' order

	weight  float32 // of the gradient that Step announces; 0: it is not for the ring
	unsound error   // what was wrong with it
	kept    gradient

	mu      sync.Mutex
	safe    position // what no death can take back, for the heartbeats,
	world   int64    // as of this formation
	release int64    // the master needs no snapshot up to this version
	settled int      // epochs
	wants   bool     // the master wants to know what is in the model
	account []byte   // what no death can take out of it, as of that formation, for the master; nil: it has not asked
}

// stretch is [lo, hi) of the flat arrays.
type stretch struct{ lo, hi int }

// piece is what is left of an item.
type piece struct {
	item
	taken int  // records at its beginning that are in the state
	seen  bool // of an evaluation: it is in the metrics
}

// trains says that a piece is for the ring.
func (p piece) trains() bool { return p.err == nil && p.task.Kind == wire.TaskKind_TRAINING }

// offer is so many of the records that are left.
func (p piece) offer(n int64) offer {
	return offer{task: key(p.task), of: p.task.End - p.task.Start, from: p.from(), records: n}
}

// key is the task as a ledger has it.
func key(t *wire.Task) ledger.Task { return ledger.Task{Epoch: int(t.Epoch), Number: int(t.Number)} }

// had is how many records of a task are in the state.
func (s *state) had(t *wire.Task) int64 {
	n, whole := s.ledger.Had(key(t))
	if whole {
		return t.End - t.Start
	}
	return n
}

// from is how many records of the lease come before what is left.
func (p piece) from() int64 { return p.done - int64(p.batch.Size-p.taken) }

func newRing(w *worker) (*member, error) {
	values := w.Engine.Values()
	s, err := newState(w.Engine.Layout(), w.Model.Optimizer(), values, int64(w.Job.GlobalBatchSize))
	if err != nil {
		return nil, err
	}
	r := &member{
		worker: w, meeting: newMeeting(w.Master, w.Self), state: *s,
		sum: make([]float32, len(values)), scratch: make([]float32, ring.ScratchSize),
		buckets: ring.NewBuckets(len(values), w.Engine.Layout().Trainable()),
	}
	r.ready = make(chan stretch, r.buckets.Len())
	w.Engine.OnGrads(r.contribute)
	return r, nil
}

// run implements strategy: from one world to the next, until the job has ended.
func (r *member) run(ctx context.Context, feed *feeder) error {
	r.feed = feed
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer r.copies.writing.Wait()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-feed.done:
			cancel(errDone)
		case <-working.Done():
		}
	})
	watch.Go(func() { cancel(r.attend(working)) })
	arrival := &wire.Arrival{Worker: int32(r.Index), Address: r.Address, Suspect: -1, Process: 1 + rand.Uint64N(math.MaxUint64)}
	for {
		arrival.Round, arrival.Version, arrival.Ledger, arrival.Damage = r.changes, r.version, r.ledger.Append(nil), r.damage
		r.damage = ""
		next, err := r.arrive(working, arrival)
		if err == nil {
			arrival.Formation = next.Formation
			var suspect int
			arrival.Broken, suspect, err = r.live(next)
			arrival.Suspect, arrival.Idle = int32(suspect), r.idle
		}
		switch {
		case err == errDone, context.Cause(working) == errDone:
			return nil
		case working.Err() != nil:
			return context.Cause(working)
		case err != nil:
			return err
		}
	}
}

// live is the time in one world. It ends when the world is to change: then broken says whether a link broke, and
// suspect which worker was at its other end, -1 if that is not known. An error is the worker's end.
func (r *member) live(p place) (broken bool, suspect int, err error) {
	defer p.drop(nil)
	if len(p.Sources) == 0 && r.changes > 0 {
		r.changes = -1 // what it has is of a model that is lost, whether or not it comes to have another here
	}
	r.idle = false
	began := time.Now()
	rank, peers := -1, make([]mesh.Peer, len(p.Members))
	for i, m := range p.Members {
		peers[i] = mesh.Peer{Worker: int(m.Worker), Address: m.Address}
		if int(m.Worker) == r.Index {
			rank = i
		}
	}
	if rank < 0 {
		return false, -1, fmt.Errorf("world %d has no place for worker %d", p.Id, r.Index)
	}
	r.void(p.Floor)
	r.mu.Lock()
	r.settled = int(p.Settled) // fewer than before are of another model
	r.mu.Unlock()
	// All have arrived: who cannot be reached by now is suspect, as one that is silent is to the master.
	connecting, cancel := context.WithTimeout(p.ctx, r.Job.HeartbeatTimeout.Duration)
	links, err := r.Peers.Connect(connecting, mesh.Group{Formation: p.Formation, Rank: rank, Peers: peers})
	cancel()
	if err == nil {
		defer links.Close()
		defer context.AfterFunc(p.ctx, func() { links.Break(context.Cause(p.ctx)) })()
		in := &world{Mesh: links, place: p, rank: rank, size: len(peers)}
		if err = r.synchronize(in); err == nil {
			r.Log.Info(fmt.Sprintf("World %d: rank %d of %d", p.Id, rank, len(peers)), "version", r.version, "took", time.Since(began).Round(time.Millisecond))
			err = r.rounds(in)
		}
	}
	if err == nil {
		return false, -1, nil
	}
	if fatal, ok := errors.AsType[*fatalError](err); ok {
		return false, -1, fatal.error
	}
	if errors.Is(err, errDone) {
		return false, -1, errDone
	}
	if damaged, ok := errors.AsType[*damageError](err); ok {
		r.Log.Error("The checkpoint that the model is to begin with cannot be read", "error", err)
		r.damage = damaged.Error()
		return false, -1, nil
	}
	suspect = -1
	if b, ok := errors.AsType[*mesh.BrokenError](err); ok && b.Rank >= 0 && b.Rank < len(peers) && p.ctx.Err() == nil {
		suspect = peers[b.Rank].Worker
	}
	r.Log.Info("Left the world", "world", p.Id, "reason", err)
	return true, suspect, nil
}

// fatalError ends the worker.
type fatalError struct{ error }

// world is the ring that the worker is in.
type world struct {
	*mesh.Mesh
	place
	rank, size int
}

// void drops the leases below floor: they are settled, or void because all of the training is.
func (r *member) void(floor int64) {
	r.leases.void(floor)
	keep := func(pieces []piece) []piece {
		var kept []piece
		for _, p := range pieces {
			if p.task.Lease >= floor {
				kept = append(kept, p)
			} else {
				r.feed.recycle(p.batch)
			}
		}
		return kept
	}
	r.applied, r.hand = keep(r.applied), keep(r.hand)
}

// synchronize makes this rank's state the newest that a member of the last world had; if nobody has
// one, the initial one.
func (r *member) synchronize(in *world) error {
	if len(in.Sources) == 0 {
		if err := r.begin(in); err != nil {
			return err
		}
		r.changes += in.Formation << beginnings
		r.reconcile()
		return nil
	}
	sources := make([]int, len(in.Sources))
	has := false
	for i, s := range in.Sources {
		sources[i] = int(s)
		has = has || sources[i] == in.rank
	}
	from, to := ring.Chain(in.rank, in.size, sources)
	if err := r.transfer(in, from, to); err != nil {
		return err
	}
	if !has {
		r.Log.Info("State received", "from", fmt.Sprintf("worker-%d", in.Members[from].Worker), "version", r.version)
	}
	r.reconcile()
	return nil
}

// beginnings is where a round's number says with which formation the states began that it is of: so a member that
// has such a state is told from one that has come with the state of another beginning, after as many rounds, and has got no other.
const beginnings = 32

// begin makes the state the one that the model's life begins with.
func (r *member) begin(in *world) error {
	if in.Base.GetNumber() > 0 {
		if err := r.restore(in.ctx, in.Base); err != nil {
			return err
		}
		r.another()
		return nil
	}
	if r.changes == 0 {
		return nil
	}
	values := r.values
	if r.touched {
		var err error
		if values, err = r.Initial(); err != nil {
			return &fatalError{fmt.Errorf("make the initial values: %w", err)}
		}
	}
	r.restart(values)
	r.another()
	return nil
}

// another says that the state is another one than before, maybe of another model.
func (r *member) another() {
	r.kept = gradient{}
	r.mu.Lock()
	r.release, r.account = 0, nil
	r.mu.Unlock()
}

// transfer takes the state from one rank and passes it on to another; -1: nobody. A state that this rank
// has stays what it was until all of the new one is there.
func (r *member) transfer(l ring.Link, from, to int) error {
	if from < 0 && to < 0 {
		return nil
	}
	at := r.appendPosition(nil)
	at, err := relayBytes(l, from, to, at)
	if err != nil {
		return err
	}
	if from < 0 {
		for _, a := range r.arrays() {
			if err := ring.RelayFloats(l, from, to, a); err != nil {
				return err
			}
		}
		return l.Flush()
	}
	p, ledger, err := parsePosition(at)
	if err != nil {
		return err
	}
	into := r.receiver(p)
	for _, a := range into.arrays() {
		if err := ring.RelayFloats(l, from, to, a); err != nil {
			return err
		}
	}
	if err := l.Flush(); err != nil {
		return err
	}
	r.adopt(into, p, ledger)
	r.another()
	return nil
}

// relayBytes passes on bytes whose number only the source knows.
func relayBytes(l ring.Link, from, to int, b []byte) ([]byte, error) {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(b)))
	if err := ring.Relay(l, from, to, length); err != nil {
		return nil, err
	}
	if from >= 0 {
		n := binary.LittleEndian.Uint64(length)
		if n > maxPosition {
			return nil, fmt.Errorf("take the state: a position of %d bytes", n)
		}
		b = make([]byte, n)
	}
	return b, ring.Relay(l, from, to, b)
}

// reconcile brings what this rank holds in line with the ledger: what is in the state is not brought
// again, what is not is.
func (r *member) reconcile() {
	pieces := append(r.applied, r.hand...)
	r.applied, r.hand = nil, nil
	for _, p := range pieces {
		if !p.trains() {
			r.hand = append(r.hand, p)
			continue
		}
		first := p.done - int64(p.batch.Size)
		p.taken = int(min(max(r.had(p.task)-first, 0), int64(p.batch.Size)))
		if p.taken == p.batch.Size {
			r.applied = append(r.applied, p)
		} else {
			r.hand = append(r.hand, p)
		}
	}
}

// beat implements strategy.
func (r *member) beat(b *wire.HeartbeatRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.Version, b.Snapshot, b.Flushed, b.Formation = r.safe.version, r.safe.taken, r.safe.flushed, r.world
	b.Ledger, r.account = r.account, nil
	b.Cut = r.copies.told()
}

// beaten implements strategy.
func (r *member) beaten(reply *wire.HeartbeatReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release = reply.ReleaseSnapshot // less than before is of another model
	r.copies.heard(reply.Cut)
	if r.wants = reply.Ledger; r.wants {
		r.stir()
	}
	if reply.Life == r.Self.Life() {
		r.settled = max(r.settled, int(reply.Settled))
	}
}

// part is the examples [lo, hi) of a batch. It shares the batch's memory.
func part(b *zoo.Batch, lo, hi int) *zoo.Batch {
	if lo == 0 && hi == b.Size {
		return b
	}
	p := &zoo.Batch{Size: hi - lo}
	for _, in := range b.Inputs {
		each := len(in.Data) / b.Size
		in.Shape = append([]int{hi - lo}, in.Shape[1:]...)
		in.Data = in.Data[lo*each : hi*each]
		p.Inputs = append(p.Inputs, in)
	}
	if len(b.Labels) > 0 {
		p.Labels = b.Labels[lo:hi]
	}
	return p
}

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

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// errDone ends the work of a member when the job has ended.
var errDone = errors.New("the job has ended")

// member is the all-reduce strategy: every worker holds the whole state, and a round changes it on
// all of them alike.
//
// \tarrive at the rendezvous ─> world ─> connect ─> take the newest state ─> rounds ─┐
// \t        ^                                                                        │
// \t        └──────────── a link breaks, or the master recalls the members ──────────┘
//
// A round begins with each rank's header, which tells the minibatches that the rank brings, if any.
// The gradients are summed over all ranks while they are being computed, and when the sum is
// complete each rank applies the update. A rank without data brings none and stays. The records of
// a rank are reported to the master after the next round has begun: then every rank has completed
// this round, so that no death can take it back.
type member struct {
	*worker
	*membership.Meeting
	state
	copies copies
	// the reason why the last world could not begin
	damage string
	// use of the time in which this round waits for the other ranks
	waits use
	// no rank of this world, or of the last one, had anything to bring to the latest round
	idle bool

	feed *feeder
	// minibatches that are not in the state yet, and evaluations, in order
	queued []piece
	// in the state, but a death could still take it back
	applied []piece
	sum     []float32
	scratch []float32
	buckets *ring.Buckets
	// ranges of sum that are complete, in the buckets' order
	ready chan param.Range

	// weight of the gradient that Step announces; 0: it is not for the ring
	weight float32
	// what was wrong with the gradient
	unsound error
	kept    gradient

	mu sync.Mutex
	// the position that no death can take back, for the heartbeats
	safe position
	// generation in which safe was set
	world int64
	// the master needs no snapshot up to this version
	release int64
	// epochs
	settled int
	// the master has asked for the ledger
	wants bool
	// ledger of the records that no death can take out of the model, in the generation world; nil:
	// the master has not asked
	account []byte
}

// piece is the unfinished rest of an item.
type piece struct {
	item
	// number of its first records that are in the state
	contained int
	// of an evaluation: it is counted in the metrics
	seen bool
}

// trains reports whether a piece is for the ring.
func (p piece) trains() bool { return p.err == nil && p.task.Kind == wire.TaskKind_TRAINING }

// offer returns the offer of the next n of the records that are left.
func (p piece) offer(n int64) offer {
	return offer{task: key(p.task), of: p.task.End - p.task.Start, from: p.from(), records: n}
}

// key returns the task as a ledger names it.
func key(t *wire.Task) ledger.Task { return ledger.Task{Epoch: int(t.Epoch), Number: int(t.Number)} }

// contained returns how many records of a task are in the state.
func (s *state) contained(t *wire.Task) int64 {
	n, whole := s.ledger.Progress(key(t))
	if whole {
		return t.End - t.Start
	}
	return n
}

// from returns how many records of the lease come before those that are left.
func (p piece) from() int64 { return p.done - int64(p.batch.Size-p.contained) }

func newRing(w *worker) (*member, error) {
	values := w.Engine.Values()
	s, err := newState(w.Engine, w.Model.Optimizer(), int64(w.Job.GlobalBatchSize))
	if err != nil {
		return nil, err
	}
	r := &member{
		worker: w, Meeting: membership.New(w.Master, w.Self), state: *s,
		sum: make([]float32, len(values)), scratch: make([]float32, ring.ScratchSize),
		buckets: ring.NewBuckets(len(values), w.Engine.Layout().Trainable()),
	}
	r.ready = make(chan param.Range, r.buckets.Len())
	w.Engine.OnGrads(r.contribute)
	return r, nil
}

// run implements strategy. It goes from one world to the next until the job has ended.
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
	watch.Go(func() { cancel(r.Attend(working)) })
	arrival := &wire.Arrival{Worker: int32(r.Index), Address: r.Address, Suspect: -1,
		Process: 1 + rand.Uint64N(math.MaxUint64)}
	for {
		arrival.Beginning, arrival.Round = r.at.Beginning, r.at.Round
		arrival.Version, arrival.Ledger, arrival.Damage = r.version, r.ledger.Append(nil), r.damage
		r.damage = ""
		next, err := r.Arrive(working, arrival)
		if err == nil {
			arrival.Generation = next.Generation
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

// live works in one world until the world is to change. Then broken reports whether a link broke,
// and suspect is the worker at its other end, -1 if unknown. It returns an error if the worker has
// to end.
func (r *member) live(p membership.World) (broken bool, suspect int, err error) {
	defer p.Leave(nil)
	if len(p.Sources) == 0 && r.trained() {
		// its state is of a model that is lost, whether or not this world gives it another
		r.at = rendezvous.NoState
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
		return false, -1, fmt.Errorf("world %d does not have worker %d as a member", p.Id, r.Index)
	}
	r.void(p.Floor)
	r.mu.Lock()
	// may be fewer than before, in another model generation
	r.settled = int(p.Settled)
	r.mu.Unlock()
	// All members have arrived: one that cannot be reached within the heartbeat timeout is a
	// suspect.
	connecting, cancel := context.WithTimeout(p.Context(), r.Job.HeartbeatTimeout.Duration)
	r.watch.begin(forWorld)
	links, err := r.Peers.Connect(connecting, mesh.Group{Generation: p.Generation, Rank: rank, Peers: peers})
	cancel()
	if err == nil {
		defer links.Close()
		defer context.AfterFunc(p.Context(), func() { links.Break(context.Cause(p.Context())) })()
		in := &world{Mesh: links, World: p, rank: rank, size: len(peers)}
		err = r.synchronize(in)
		r.watch.end(forWorld)
		if err == nil {
			r.Log.Info(fmt.Sprintf("World %d: rank %d of %d", p.Id, rank, len(peers)), "version",
				r.version, "took", time.Since(began).Round(time.Millisecond))
			err = r.rounds(in)
		}
	} else {
		r.watch.end(forWorld)
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
		r.Log.Error("Reading the checkpoint that the model is to begin with failed", "error", err)
		r.damage = damaged.Error()
		return false, -1, nil
	}
	suspect = -1
	if b, ok := errors.AsType[*mesh.BrokenError](err); ok && b.Rank >= 0 && b.Rank < len(peers) &&
		p.Context().Err() == nil {
		suspect = peers[b.Rank].Worker
	}
	r.Log.Info("Left the world", "world", p.Id, "reason", err)
	return true, suspect, nil
}

// fatalError wraps an error that ends the worker.
type fatalError struct{ error }

// world is the world that the worker is a member of.
type world struct {
	*mesh.Mesh
	membership.World
	rank, size int
}

// void drops the leases below floor: they are settled, or void because the training starts over.
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
	r.applied, r.queued = keep(r.applied), keep(r.queued)
}

// synchronize makes this rank's state the newest that a member of the last world had; if no member
// has one, the initial state.
func (r *member) synchronize(in *world) error {
	if len(in.Sources) == 0 {
		if err := r.begin(in); err != nil {
			return err
		}
		r.at.Beginning = in.Generation
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

// begin makes the state the one that the model generation begins with: of a checkpoint, or the
// initial one.
func (r *member) begin(in *world) error {
	if in.Base.GetNumber() > 0 {
		if err := r.restore(in.Context(), in.Base); err != nil {
			return err
		}
		r.another()
		return nil
	}
	if r.at == (rendezvous.Position{}) {
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

// another marks the state as replaced, maybe by one of another model.
func (r *member) another() {
	r.kept = gradient{}
	r.mu.Lock()
	r.release, r.account = 0, nil
	r.mu.Unlock()
}

// transfer receives the state from one rank and passes it on to another; -1 stands for none. The
// rank's own state stays as it was until the new one is complete.
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

// reconcile makes what this rank holds agree with the ledger: it brings the records that are not in
// the state, and none that are.
func (r *member) reconcile() {
	pieces := append(r.applied, r.queued...)
	r.applied, r.queued = nil, nil
	for _, p := range pieces {
		if !p.trains() {
			r.queued = append(r.queued, p)
			continue
		}
		first := p.done - int64(p.batch.Size)
		p.contained = int(min(max(r.contained(p.task)-first, 0), int64(p.batch.Size)))
		if p.contained == p.batch.Size {
			r.applied = append(r.applied, p)
		} else {
			r.queued = append(r.queued, p)
		}
	}
}

// beat implements strategy.
func (r *member) beat(b *wire.HeartbeatRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.Version, b.Snapshot, b.Flushed, b.Generation = r.safe.version, r.safe.snapshotVersion, r.safe.flushed, r.world
	b.Ledger, r.account = r.account, nil
	b.Cut = r.copies.newest()
}

// beaten implements strategy.
func (r *member) beaten(reply *wire.HeartbeatReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// may be less than before, in another model generation
	r.release = reply.ReleaseSnapshot
	r.copies.heard(reply.Cut)
	if r.wants = reply.Ledger; r.wants {
		r.Stir()
	}
	if reply.ModelGeneration == r.Self.ModelGeneration() {
		r.settled = max(r.settled, int(reply.Settled))
	}
}

// part returns the examples [lo, hi) of a batch. It shares the batch's memory.
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

package worker

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// patience is the time that a round waits for this rank's next minibatch before it begins without
// it.
const patience = 10 * time.Millisecond

// rounds works in one world until it has to change, which is no error, or until a link breaks.
func (r *member) rounds(in *world) error {
	// this goroutine computes: waking others must not move it to another thread
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		r.copyState()
		if err := r.fillQueue(in); err != nil {
			return err
		}
		a, err := r.round(in)
		if err != nil {
			return err
		}
		// a rank that leaves closes its links: all must have heard of the recall before
		if a.recall {
			ring.Gather(in, in.rank, in.size, []byte("bye"))
			return nil
		}
		// Without work, and without records to make safe, no rank needs another round.
		r.idle = a.records == 0 && len(r.applied) == 0 && r.safe.at == r.at
	}
}

// fillQueue fills the queue from the feeder. If the queue is empty, an idle rank waits for an item,
// for a peer that begins a round, or for word from the master.
func (r *member) fillQueue(in *world) error {
	if len(r.queued) < r.wanted(in) {
		r.watch.begin(forData)
		defer r.watch.end(forData)
	}
	var impatient <-chan time.Time
	var begun <-chan struct{}
	for len(r.queued) < r.wanted(in) {
		if r.idle && len(r.queued) == 0 {
			if recalled, flush := r.Heard(in.Generation); recalled || flush > r.flushed {
				return nil
			}
			r.copyState()
			r.disclose()
			if begun == nil {
				begun = in.Arrived()
			}
		} else if impatient == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			impatient = timer.C
		}
		select {
		case it, ok := <-r.feed.items:
			if !ok {
				return errDone
			}
			r.hold(it)
		case <-r.Wake():
		case <-begun:
			return nil
		case <-impatient:
			return nil
		case <-in.Context().Done():
			return context.Cause(in.Context())
		}
	}
	return nil
}

// wanted returns how many items this rank should have for a round.
func (r *member) wanted(in *world) int {
	if r.batch == 0 {
		return 1
	}
	each := int64(in.size) * int64(r.Job.MinibatchSize)
	return int(min((r.need()+each-1)/each, maxOffers))
}

// hold queues an item, unless its lease has failed or is void. An item that cannot be read
// waits there for its turn.
func (r *member) hold(it item) {
	if r.leases.abandoned(it.task.Lease) {
		r.feed.recycle(it.batch)
		return
	}
	r.queued = append(r.queued, piece{item: it})
}

// drop removes the pieces of a lease from the queue, because the lease is not worked on any more.
func (r *member) drop(lease int64) {
	r.queued = slices.DeleteFunc(r.queued, func(p piece) bool {
		if p.task.Lease == lease {
			r.feed.recycle(p.batch)
		}
		return p.task.Lease == lease
	})
}

// tidy makes the next piece queued begin where the state's ledger of its task ends, whatever was
// leased: records that are in the state are skipped, and a piece that would leave a gap fails.
func (r *member) tidy(ctx context.Context) error {
	for len(r.queued) > 0 && r.queued[0].trains() {
		p := r.queued[0]
		switch had := r.contained(p.task); {
		case had == p.from():
			return nil
		case had > p.from():
			r.reconcile()
		default:
			gap := fmt.Errorf("the lease continues at record %d, but the model has %d records of "+
				"the task", p.from(), had)
			if err := r.fail(ctx, p.task, gap); err != nil {
				return err
			}
			r.drop(p.task.Lease)
		}
	}
	return nil
}

// header returns what this rank brings: the next minibatches in its queue, as far as they follow
// what the state has of their tasks.
func (r *member) header(in *world) header {
	h := header{at: r.at}
	next := make(map[ledger.Task]int64)
	h.recall, h.flush = r.Heard(in.Generation)
	r.mu.Lock()
	h.release = r.release
	r.mu.Unlock()
	for _, p := range r.queued[:min(len(r.queued), r.wanted(in))] {
		if !p.trains() {
			break
		}
		o := p.offer(int64(p.batch.Size - p.contained))
		begin, ok := next[o.task]
		if !ok {
			begin = r.contained(p.task)
		}
		if o.from != begin {
			break
		}
		next[o.task] = o.from + o.records
		h.offers = append(h.offers, o)
	}
	return h
}

// collective is the part of a round that runs over the links, in parallel with the computation.
type collective struct {
	agreed chan agreement // one, or closed
	done   chan struct{}  // closed after err is set
	err    error
}

// start begins a round. It sums the ranges that come through ready.
func (r *member) start(in *world, h header) *collective {
	c := &collective{agreed: make(chan agreement, 1), done: make(chan struct{})}
	need := r.need()
	go func() {
		defer close(c.done)
		defer close(c.agreed)
		all, err := ring.Gather(in, in.rank, in.size, h.appendTo(nil))
		if err != nil {
			c.err = err
			return
		}
		headers := make([]header, len(all))
		for i, b := range all {
			if headers[i], err = parseHeader(b); err != nil {
				c.err = fmt.Errorf("header of rank %d: %w", i, err)
				in.Break(c.err)
				return
			}
		}
		a, err := agree(headers, need)
		if err != nil {
			c.err = err
			in.Break(err)
			return
		}
		c.agreed <- a
		if a.records > 0 {
			c.err = r.reduce(in, r.buckets.Early())
		}
	}()
	return c
}

// reduce sums the given number of buckets over all ranks, each when it is ready.
func (r *member) reduce(in *world, buckets int) error {
	for range buckets {
		select {
		case s := <-r.ready:
			if err := ring.Reduce(in, in.rank, in.size, r.sum[s.Start:s.End], r.scratch); err != nil {
				return err
			}
		case <-in.Broken():
			return in.Flush()
		}
	}
	return in.Flush()
}

// round runs one round. After an error the state is as it was before.
func (r *member) round(in *world) (agreement, error) {
	r.buckets.Reset(in.size)
	for len(r.ready) > 0 {
		<-r.ready
	}
	if err := r.tidy(in.Context()); err != nil {
		return agreement{}, err
	}
	h := r.header(in)
	c := r.start(in, h)
	var mine []int64
	var losses []float32
	var err error
	// the round will take them: no need to wait for the other headers
	if len(h.offers) > 0 && r.batch == 0 && !h.recall {
		mine = []int64{h.offers[0].records}
		losses, err = r.compute(in, mine)
	}
	// the others have the records for which a rank waits that brings none
	r.waits = forPeers
	if len(h.offers) == 0 {
		r.waits = forData
	}
	r.watch.begin(r.waits)
	a, ok := <-c.agreed
	r.watch.end(r.waits)
	if !ok {
		<-c.done
		return a, cmp.Or(err, c.err)
	}
	r.idle = r.idle && a.records == 0
	if err == nil {
		err = r.confirm(in)
	}
	if barred := h.offers[min(a.barred[in.rank], len(h.offers)):]; err == nil && len(barred) > 0 {
		err = r.yield(in, barred[0], len(mine) > a.barred[in.rank])
	}
	if err == nil && mine == nil {
		if mine = a.takes[in.rank]; len(mine) > 0 {
			losses, err = r.compute(in, mine)
		} else if a.records > 0 {
			clear(r.sum)
			r.announce(0, len(r.sum))
		}
	}
	if err == nil {
		err = r.conclude(in, a, c)
	}
	if err != nil {
		in.Break(err)
	}
	<-c.done
	if err = cmp.Or(err, c.err); err != nil {
		return a, err
	}
	r.finish(in, a, losses)
	return a, nil
}

// yield drops from the queue a task that an earlier rank offers, too. If its gradient was computed
// already, and so would be in the sum, the round is repeated.
func (r *member) yield(in *world, o offer, computed bool) error {
	r.Log.Warn("Giving up a lease: another worker brings the same records", "task", o.task, "from", o.from)
	for _, p := range r.queued {
		if p.trains() && key(p.task) == o.task {
			r.leases.abandon(p.task.Lease)
			r.drop(p.task.Lease)
			break
		}
	}
	if computed {
		return fmt.Errorf("%v is brought by another rank", o.task)
	}
	return nil
}

// conclude sums what is left when the backward pass has ended. It runs on this goroutine, which has
// a processor already; another one would first have to get one.
func (r *member) conclude(in *world, a agreement, c *collective) error {
	rest := 0
	if a.records > 0 {
		rest = r.buckets.Len() - r.buckets.Early()
	}
	busy, err := r.pending()
	if err != nil {
		return err
	}
	if !busy {
		r.watch.begin(r.waits)
		defer r.watch.end(r.waits)
		if <-c.done; c.err != nil {
			return c.err
		}
		return r.reduce(in, rest)
	}
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		if <-c.done; c.err == nil {
			failed = r.reduce(in, rest)
		}
	}()
	if err = r.meanwhile(in.Context(), done); err != nil {
		in.Break(err)
	}
	<-done
	return cmp.Or(err, failed)
}

// compute brings the gradients of the given numbers of records of the minibatches queued.
func (r *member) compute(in *world, records []int64) ([]float32, error) {
	clear(r.sum)
	var losses []float32
	for i, n := range records {
		p := r.queued[i]
		if r.unsound = nil; i == len(records)-1 {
			r.weight = float32(n)
		}
		loss, err := r.step(p, n)
		r.weight = 0
		if err == nil && i < len(records)-1 {
			r.add(float32(n), 0, len(r.sum))
		}
		if err == nil {
			err = r.unsound
		}
		// the other ranks finish without this rank, then the round is repeated
		if err != nil {
			in.Break(err)
			r.queued[i].err = err
			return nil, err
		}
		losses = append(losses, loss)
	}
	return losses, nil
}

// gradient describes what is in the engine's Grads.
type gradient struct {
	offer
	// of the state with which it was computed
	at   rendezvous.Position
	loss float32
}

// step computes the gradient of the next n records of a piece. It reuses the gradient of the last
// round if that round did not change the state.
func (r *member) step(p piece, n int64) (float32, error) {
	r.Engine.SetNoise(noise(r.Job.Seed, p.task, p.from()))
	g := gradient{offer: p.offer(n), at: r.at}
	if r.kept.offer == g.offer && r.kept.at == g.at {
		r.contribute(0, len(r.sum))
		return r.kept.loss, nil
	}
	r.kept = gradient{}
	r.watch.begin(computing)
	loss, err := r.Engine.Step(part(p.batch, p.contained, p.contained+int(n)))
	r.watch.end(computing)
	if err == nil && (math.IsNaN(float64(loss)) || math.IsInf(float64(loss), 0)) {
		err = fmt.Errorf("loss is %v", loss)
	}
	if err == nil {
		g.loss = loss
		r.kept = g
	}
	return loss, err
}

// contribute is called by the engine when [lo, hi) of the gradient is final.
func (r *member) contribute(lo, hi int) {
	if r.weight == 0 || r.unsound != nil {
		return
	}
	if r.add(r.weight, lo, hi); r.unsound == nil {
		r.announce(lo, hi)
	}
}

// add adds the range [lo, hi) of the gradient, weighted, to the sum.
func (r *member) add(weight float32, lo, hi int) {
	grads := r.Engine.Grads()[lo:hi]
	if i := kernel.FirstNonFinite(grads); i >= 0 {
		r.unsound = fmt.Errorf("the gradient of %s is %v", r.layout.At(lo+i), grads[i])
		return
	}
	kernel.Axpy(weight, grads, r.sum[lo:hi])
}

// announce hands the buckets that are ready to the collective.
func (r *member) announce(lo, hi int) {
	r.buckets.Final(lo, hi)
	for {
		lo, hi, ok := r.buckets.Next()
		if !ok {
			return
		}
		r.ready <- param.Range{Start: lo, End: hi}
	}
}

// noise returns the seed of what is random in a step on the records of a task that begin at from.
// It is the same on every worker and at any time.
func noise(seed uint64, t *wire.Task, from int64) uint64 {
	h := fnv.New64a()
	var b []byte
	for _, v := range []uint64{seed, uint64(t.Epoch), uint64(t.Start), uint64(from)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	h.Write(append(b, t.Shard...))
	return h.Sum64()
}

// pending reports whether the next piece queued is not for a round.
func (r *member) pending() (bool, error) {
	if len(r.queued) == 0 {
		select {
		case it, ok := <-r.feed.items:
			if !ok {
				return false, errDone
			}
			r.hold(it)
		default:
		}
	}
	return len(r.queued) > 0 && !r.queued[0].trains(), nil
}

// meanwhile processes pieces queued that are not for a round until this round is done, one
// minibatch at least. The last round's records are confirmed by now.
func (r *member) meanwhile(ctx context.Context, done <-chan struct{}) error {
	for {
		if more, err := r.pending(); !more {
			return err
		}
		if err := r.aside(ctx, &r.queued[0]); err != nil {
			return err
		}
		select {
		case <-done:
			return nil
		default:
		}
	}
}

// aside processes the first piece queued: one minibatch of an evaluation, the export, or the
// report of a failure. After an error the piece is still queued, and is not processed twice.
func (r *member) aside(ctx context.Context, p *piece) error {
	if p.err == nil && !p.seen {
		p.err, p.seen = r.evaluate(ctx, p.item), true
		if ctx.Err() != nil && outage.Is(p.err) { // the wait continues in the next world
			p.err, p.seen = nil, false
			return context.Cause(ctx)
		}
	}
	if p.err != nil {
		if p.task.Kind == wire.TaskKind_TRAINING {
			r.leases.advance(p.task.Lease, r.contained(p.task)) // a part of a minibatch, too
		}
		if err := r.fail(ctx, p.task, p.err); err != nil {
			return err
		}
		r.drop(p.task.Lease)
		return nil
	}
	if p.last {
		if err := r.settle(ctx, p.task); err != nil {
			return err
		}
	}
	r.feed.recycle(p.batch)
	r.queued = r.queued[1:]
	return nil
}

func (r *member) evaluate(ctx context.Context, it item) error {
	switch version := it.task.Version; {
	case it.task.Kind == wire.TaskKind_EXPORT:
		return r.export(ctx, it.task.Lease, r.version)
	case version == 0:
		return r.measure(it, r.version)
	case version != r.snapshotVersion:
		return fmt.Errorf("no snapshot of version %d", version)
	}
	r.Engine.Use(r.snapshot)
	defer r.Engine.Use(nil)
	return r.measure(it, it.task.Version)
}

// confirm reports what the last round brought, as every rank has completed that round.
func (r *member) confirm(in *world) error {
	r.mu.Lock()
	if r.flushed > r.safe.flushed { // the master waits for it
		r.hasten()
	}
	r.safe, r.world = r.position, in.Generation
	settled := r.settled
	r.mu.Unlock()
	r.ledger.Settle(settled)
	r.disclose()
	for len(r.applied) > 0 {
		p := r.applied[0]
		if p.last {
			if err := r.settle(in.Context(), p.task); err != nil {
				// what is left is reported after the next round
				return err
			}
		}
		r.applied = r.applied[1:]
		r.leases.advance(p.task.Lease, p.done)
		r.feed.recycle(p.batch)
	}
	return nil
}

// disclose puts the ledger into the next heartbeat if the master has asked. No death can take back
// what is in it.
func (r *member) disclose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wants {
		r.account, r.wants = r.ledger.Append(nil), false
		r.hasten()
	}
}

// finish brings a complete round into the state.
func (r *member) finish(in *world, a agreement, losses []float32) {
	// no straggler: it waits for its turn, or for other ranks to make its records safe
	if len(a.offers[in.rank]) > 0 && len(r.queued) > 0 {
		r.leases.turn(r.queued[0].task.Lease)
	}
	updated := r.apply(a, r.sum, func(version int64) float64 { return r.rate(version, in.size) })
	for i, n := range a.takes[in.rank] {
		p := &r.queued[i]
		if p.contained += int(n); p.contained == p.batch.Size {
			r.applied = append(r.applied, *p)
		}
		r.learnt(losses[i])
	}
	r.queued = slices.DeleteFunc(r.queued, func(p piece) bool { return p.batch != nil && p.contained == p.batch.Size })
	if updated == 0 {
		return
	}
	r.Log.Debug("Step applied", "version", r.version, "records", updated, "workers", in.size, "world", in.Id)
	if r.OnUpdate != nil {
		r.OnUpdate(in.Generation, r.version)
	}
	steps := int64(r.Job.EvaluationSteps)
	if steps > 0 && r.Job.Evaluates() && r.version%steps == 0 && a.release >= r.snapshotVersion {
		r.state.takeSnapshot()
	}
}

// rate returns the learning rate of an update by the given number of workers.
func (r *member) rate(version int64, workers int) float64 {
	rate := r.optimizer.Rate(r.Model.LearningRate, version, workers)
	if r.Job.ScaleLearningRate {
		rate *= float64(workers)
	}
	return rate
}

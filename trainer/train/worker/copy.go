package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// copies is the part of a ring's member in checkpoints. It copies the state between two rounds, and
// writes the copy while the rounds continue. The copied state may contain records whose update a
// death could still take back: the checkpoint is consistent in itself, as its ledger lists what is
// in it.
type copies struct {
	// number of the newest checkpoint order that was followed
	ordered int64
	copy    checkpoint.Copy
	writing sync.WaitGroup

	mu sync.Mutex
	// copy is being written
	busy bool
	// nil: nothing to report
	report *wire.CutReport
}

// copyState follows the master's order to make a checkpoint, if there is one, there is memory for
// it, and nothing is accumulated outside the values.
func (r *member) copyState() {
	order := r.Cut()
	number := order.GetNumber()
	c := &r.copies
	if number <= c.ordered || r.state.records > 0 || !r.trained() {
		return
	}
	part := checkpoint.Part{Values: r.values, Slots: r.slots}
	// making it in place would have the other ranks wait for the memory
	if !c.copy.Prepare(part, r.Stir) {
		return
	}
	c.mu.Lock()
	busy := c.busy
	c.busy = true
	c.mu.Unlock()
	c.ordered = number
	// with a checkpoint that the master has given up: the storage is slow
	if busy {
		c.say(r, &wire.CutReport{Number: number, Phase: wire.CutPhase_FAILED,
			Error: "the checkpoint before is still being written"}, true)
		return
	}
	began := time.Now()
	r.watch.begin(forCheckpoint)
	c.copy.Take(part)
	r.watch.end(forCheckpoint)
	r.Meter.holds(time.Since(began))
	r.Log.Debug("Copied for a checkpoint", "number", number, "version", r.version, "waited", time.Since(began))
	report := &wire.CutReport{Number: number, Phase: wire.CutPhase_COPIED, Version: r.version,
		Ledger: r.ledger.Append(nil)}
	c.say(r, report, true)
	name := checkpoint.Name{Number: number, Claim: order.Claim}
	c.writing.Go(func() { r.write(name, report) })
}

// write writes the copy to the checkpoint directory, and reports how that ended.
func (r *member) write(name checkpoint.Name, copied *wire.CutReport) {
	said := &wire.CutReport{Number: copied.Number, Phase: wire.CutPhase_WRITTEN,
		Version: copied.Version, Ledger: copied.Ledger}
	dir, err := r.Open.Open(r.Job.CheckpointDir)
	var shard checkpoint.Shard
	if err == nil {
		shard, err = checkpoint.WriteShard(dir, name, checkpoint.ShardFile(0, 1), r.copies.copy.Part)
	}
	r.Meter.wrote(shard.Bytes)
	if err != nil {
		r.Log.Error("A checkpoint was not written", "number", copied.Number, "error", err)
		said.Phase, said.Error = wire.CutPhase_FAILED, err.Error()
	}
	said.Layout, said.Optimizer, said.Slots = rpc.Variables(r.layout), r.optimizer.Config().Name, int32(len(r.slots))
	said.File, said.Start, said.End, said.Bytes, said.Crc = shard.File, int64(shard.Start),
		int64(shard.End), shard.Bytes, shard.CRC
	r.copies.say(r, said, false)
}

// say sets what the next heartbeat reports of checkpoints. A report of a newer checkpoint is not
// overwritten.
func (c *copies) say(r *member, report *wire.CutReport, busy bool) {
	c.mu.Lock()
	if report.Number >= c.report.GetNumber() {
		c.report = report
	}
	c.busy = busy
	c.mu.Unlock()
	r.hasten()
}

// heard drops reports up to the given number: the master has them, or does not need them any more.
func (c *copies) heard(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report.GetNumber() <= number {
		c.report = nil
	}
}

// newest returns the report of the newest checkpoint for the master, nil if there is none.
func (c *copies) newest() *wire.CutReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

// damageError wraps the reason why a world cannot begin with the checkpoint that the master has
// named.
type damageError struct{ error }

// firstTry is the pause before the second attempt to read a checkpoint. The pause doubles with each
// attempt.
const firstTry = 100 * time.Millisecond

// restore replaces the state by that of a checkpoint. It retries while the storage does not answer,
// for a limited time.
func (r *member) restore(ctx context.Context, base *wire.Base) error {
	began := time.Now()
	for wait := firstTry; ; wait = min(2*wait, timing.StoragePause) {
		err := r.tryRestore(base)
		if err == nil {
			r.Log.Info("The model returns to a checkpoint", "checkpoint", base.Number, "directory",
				base.Dir, "version", r.version)
			return nil
		}
		if errors.Is(err, checkpoint.ErrDamaged) || time.Since(began) >= timing.Storage {
			return &damageError{err}
		}
		r.Log.Warn("Reading a checkpoint failed; retrying", "checkpoint", base.Number, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *member) tryRestore(base *wire.Base) error {
	dir, err := r.Open.Open(base.Dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", base.Dir, err)
	}
	c, err := dir.ReadFitting(checkpoint.Name{Number: base.Number, Claim: base.Claim}, base.Checksum,
		r.layout, r.optimizer.Config().Name)
	if err != nil {
		return err
	}
	r.touched, r.at = true, rendezvous.NoState // until the state is complete
	if err := dir.Restore(c, checkpoint.Part{Values: r.values, Slots: r.slots}); err != nil {
		return err
	}
	clear(r.state.pending)
	r.ledger.Reset()
	if !base.Fresh {
		r.ledger = c.Ledger.Clone()
	}
	r.position = position{at: rendezvous.Position{Round: c.Version}, version: c.Version}
	return nil
}

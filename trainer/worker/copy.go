package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// copies is a ring's member's part in checkpoints. The state between two rounds is copied, and written while the rounds go on. It need
// not be one that no death can take back: it is whole, and says itself what is in it.
type copies struct {
	ordered int64 // the newest number that was followed
	copy    checkpoint.Copy
	writing sync.WaitGroup

	mu     sync.Mutex
	busy   bool            // copy is being written
	report *wire.CutReport // nil: nothing to tell
}

// copyState follows the master's order to make a checkpoint, if there is one, there is memory for it, and nothing is accumulated beside the
// values.
func (r *member) copyState() {
	number := r.cut()
	c := &r.copies
	if number <= c.ordered || r.state.records > 0 || r.changes <= 0 {
		return
	}
	part := checkpoint.Part{Values: r.values, Slots: r.slots}
	if !c.copy.Prepare(part, r.stir) { // the others would wait for the memory, too
		return
	}
	c.mu.Lock()
	busy := c.busy
	c.busy = true
	c.mu.Unlock()
	c.ordered = number
	if busy { // with one that was given up: the storage is slow
		c.say(r, &wire.CutReport{Number: number, Phase: wire.CutPhase_FAILED, Error: "the checkpoint before is still being written"}, true)
		return
	}
	began := time.Now()
	c.copy.Take(part)
	r.Log.Debug("Copied for a checkpoint", "number", number, "version", r.version, "waited", time.Since(began))
	report := &wire.CutReport{Number: number, Phase: wire.CutPhase_COPIED, Version: r.version, Ledger: r.ledger.Append(nil)}
	c.say(r, report, true)
	c.writing.Go(func() { r.write(report) })
}

// write writes the copy.
func (r *member) write(copied *wire.CutReport) {
	said := &wire.CutReport{Number: copied.Number, Phase: wire.CutPhase_WRITTEN, Version: copied.Version, Ledger: copied.Ledger}
	dir, err := r.Open.Open(r.Job.CheckpointDir)
	var shard checkpoint.Shard
	if err == nil {
		shard, err = checkpoint.WriteShard(dir, copied.Number, checkpoint.ShardFile(0, 1), r.copies.copy.Part)
	}
	if err != nil {
		r.Log.Error("A checkpoint was not written", "number", copied.Number, "error", err)
		said.Phase, said.Error = wire.CutPhase_FAILED, err.Error()
	}
	said.Layout, said.Optimizer, said.Slots = rpc.Variables(r.layout), r.optimizer.Config().Name, int32(len(r.slots))
	said.File, said.Start, said.End, said.Bytes, said.Crc = shard.File, int64(shard.Start), int64(shard.End), shard.Bytes, shard.CRC
	r.copies.say(r, said, false)
}

// say has the master told of a checkpoint, soon. What is newer was said stands.
func (c *copies) say(r *member, report *wire.CutReport, busy bool) {
	c.mu.Lock()
	if report.Number >= c.report.GetNumber() {
		c.report = report
	}
	c.busy = busy
	c.mu.Unlock()
	r.hasten()
}

// heard takes up to which number the master wants to know nothing more of checkpoints.
func (c *copies) heard(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report.GetNumber() <= number {
		c.report = nil
	}
}

// told is what the master is to know of checkpoints.
func (c *copies) told() *wire.CutReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

// damageError is why a world cannot begin with the checkpoint that it is to begin with.
type damageError struct{ error }

// firstTry is what passes before the second try to read a checkpoint; it is doubled each time.
const firstTry = 100 * time.Millisecond

// restore makes the state that of a checkpoint. Storage that does not answer is tried again for some time.
func (r *member) restore(ctx context.Context, base *wire.Base) error {
	began := time.Now()
	for wait := firstTry; ; wait = min(2*wait, timing.StoragePause) {
		err := r.tryRestore(base)
		if err == nil {
			r.Log.Info("The model goes back to a checkpoint", "checkpoint", base.Number, "directory", base.Dir, "version", r.version)
			return nil
		}
		if errors.Is(err, checkpoint.ErrDamaged) || time.Since(began) >= timing.Storage {
			return &damageError{err}
		}
		r.Log.Warn("A checkpoint cannot be read; trying again", "checkpoint", base.Number, "error", err)
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
	c, err := dir.ReadFitting(base.Number, r.layout, r.optimizer.Config().Name)
	if err != nil {
		return err
	}
	r.touched, r.changes = true, -1 // until all of it is there
	if err := dir.Restore(c, checkpoint.Part{Values: r.values, Slots: r.slots}); err != nil {
		return err
	}
	clear(r.state.pending)
	r.ledger.Reset()
	if !base.Fresh {
		r.ledger = c.Ledger.Clone()
	}
	r.position = position{changes: c.Version, version: c.Version}
	return nil
}

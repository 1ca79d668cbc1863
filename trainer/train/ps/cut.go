package ps

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// copying is a server's part of the checkpoint that is being made: it holds new gradients up, says
// what it has, takes what it lacks of what all are to have, copies, and writes the copy while it
// continues.
//
//	order: a number     order: the target          what it lacks has come
//	───────────────> Held ───────────────> (Held) ───────────────> Copied ──────> Written
//	                  │    another number, or none, or too late       │  an error
//	                  └────────────────────> (none), Failed           └────────> Failed
//
// The server's mu guards it.
type copying struct {
	// reported to the master; Number 0: nothing of any
	report custody.Report
	// nil: not reported
	target *ledger.Ledger
	// of the directory, under which the copy is written
	claim string
	// the hold's beginning
	since time.Time
	// of the hold
	end *time.Timer
}

// holds reports whether the server holds gradients up.
func (c *copying) holds() bool { return c.report.Phase == custody.Held }

// lets reports whether a gradient is let in: there is no hold, or it is of what all are to have.
func (c *copying) lets(p push) bool {
	if !c.holds() {
		return true
	}
	if c.target == nil || p.task.Epoch == 0 {
		return false
	}
	n, whole := c.target.Progress(p.task)
	return whole || p.to <= n
}

// obeyCut follows the master's order as to checkpoints. The caller has the turn: no gradient is
// being received.
func (s *Server) obeyCut(o custody.CutOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cut
	if c.holds() && o.Number != c.report.Number {
		s.releaseCut(custody.Report{})
	}
	switch {
	case o.Number != c.report.Number && o.Number <= s.lastCut: // it is made, or given up
		c.report = custody.Report{}
	case o.Number > s.lastCut && s.copyBusy:
		// with one that was given up: the storage is slow
		s.lastCut = o.Number
		c.report = custody.Report{Number: o.Number, Phase: custody.Failed,
			Err: "the checkpoint before is still being written"}
		s.notifyMaster()
	case o.Number > s.lastCut:
		s.lastCut = o.Number
		c.report = custody.Report{Number: o.Number, Phase: custody.Held, Ledger: s.rule.ledger.Clone()}
		c.target, c.claim, c.since = nil, o.Claim, time.Now()
		number := o.Number
		c.end = time.AfterFunc(timing.HoldLimit, func() { s.tooLate(number) })
		s.notifyMaster()
	}
	if c.holds() && o.Number == c.report.Number && o.Target != nil && c.target == nil {
		c.target = o.Target
		s.stir()
	}
}

// releaseCut ends the hold, with a report for the master. mu is held.
func (s *Server) releaseCut(r custody.Report) {
	if s.cut.end != nil {
		s.cut.end.Stop()
	}
	if s.cut.holds() {
		s.config.Meter.Held.Add(int64(time.Since(s.cut.since)))
	}
	s.cut = copying{report: r}
	s.stir()
	s.notifyMaster()
}

// enter waits for the turn, and for the end of a hold that does not let p in.
func (s *Server) enter(p push) error {
	for {
		if err := s.takeTurn(s.ctx); err != nil {
			return err
		}
		s.mu.Lock()
		lets, changed := s.cut.lets(p), s.changed
		s.mu.Unlock()
		if lets {
			return nil
		}
		s.yieldTurn()
		select {
		case <-changed:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// notifyMaster schedules a report to the master.
func (s *Server) notifyMaster() {
	if s.config.OnCut != nil {
		s.config.OnCut()
	}
}

// Report returns what the master is to know of the checkpoint that is being made; Number 0:
// nothing.
func (s *Server) Report() custody.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut.report
}

// tooLate ends a hold that the master has forgotten: it may have ended.
func (s *Server) tooLate(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut.holds() && s.cut.report.Number == number {
		s.log.Warn("A checkpoint is given up", "number", number, "reason", "no word from the master",
			"after", timing.HoldLimit)
		s.releaseCut(custody.Report{Number: number, Phase: custody.Failed,
			Err: fmt.Sprintf("no word from the master for %v", timing.HoldLimit)})
	}
}

// aligned reports whether the server has what all are to have, and is to copy it.
func (s *Server) aligned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cut
	return c.holds() && c.target != nil && s.rule.ledger.Covers(c.target)
}

// copyCut copies what the server has, if it is aligned, and has the copy written. The caller has
// the turn.
func (s *Server) copyCut() {
	if !s.aligned() {
		return
	}
	s.mu.Lock()
	gathered := len(s.rule.gathered) > 0
	s.mu.Unlock()
	if gathered {
		s.update()
	}
	s.copy.Take(s.store.content())
	updates := s.store.updates
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cut.holds() { // it was too late meanwhile
		return
	}
	r := custody.Report{Number: s.cut.report.Number, Phase: custody.Copied, Version: updates}
	s.log.Debug("Copied for a checkpoint", "number", r.Number, "version", updates, "waited", time.Since(s.cut.since))
	n := checkpoint.Name{Number: r.Number, Claim: s.cut.claim}
	s.releaseCut(r)
	s.copyBusy = true
	modelGeneration := s.modelGeneration
	s.wg.Go(func() { s.write(r, n, modelGeneration) })
}

// write writes the copy.
func (s *Server) write(r custody.Report, n checkpoint.Name, modelGeneration int64) {
	file := checkpoint.ShardFile(s.config.Index, s.config.Servers)
	shard, err := s.writeShard(n, file)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copyBusy = false
	// another is being made, or the model has started over
	if s.modelGeneration != modelGeneration || s.cut.report.Number != r.Number {
		s.wg.Go(func() { s.withdraw(n, file) })
		return
	}
	if err != nil {
		s.log.Error("A checkpoint was not written", "number", r.Number, "error", err)
		r.Phase, r.Err = custody.Failed, err.Error()
	} else {
		s.config.Meter.Written.Add(shard.Bytes)
		r.Phase = custody.Written
		r.Shard = custody.Shard{File: shard.File, Start: shard.Start, End: shard.End,
			Bytes: shard.Bytes, CRC: shard.CRC}
	}
	s.cut.report = r
	s.notifyMaster()
}

func (s *Server) writeShard(n checkpoint.Name, file string) (checkpoint.Shard, error) {
	dir, err := s.config.Open.Open(s.config.CheckpointDir)
	if err != nil {
		return checkpoint.Shard{}, err
	}
	return checkpoint.WriteShard(dir, n, file, s.copy.Part)
}

// withdraw removes the shard of a checkpoint that was given up while it was written. The master may
// have removed the others before.
func (s *Server) withdraw(n checkpoint.Name, file string) {
	dir, err := s.config.Open.Open(s.config.CheckpointDir)
	if err == nil {
		err = dir.Remove(n.String() + "/" + file)
	}
	if err != nil {
		s.log.Warn("Removing a part of a checkpoint that was given up failed", "number", n.Number, "error", err)
	}
}

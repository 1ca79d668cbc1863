package master

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

const (
	// pause after a checkpoint that was given up
	checkpointPause = 5 * time.Second
	// attempts to make the checkpoint of the trained model
	lastTries = 20
)

// checkpoints manages the model at rest: when the holders are to copy what they have, whether the
// copy succeeded, and what the next model generation begins with. The custody decides
// ([custody.Cut]); this part talks to the strategy, and writes the records. The master's mutex
// guards it.
type checkpoints struct {
	shared
	host        checkpointsHost
	holders     holders
	contacts    *contacts
	work        *work
	evaluations *evaluations
	handover    *handover
	background  *background
	// nil in a job that trains
	fixed *fixed
	dir   checkpoint.Dir
	// nil: the job has no checkpoints
	cut    *custody.Cut
	policy custody.CutPolicy
	// checkpoints that the next generation may begin with; the newest last
	kept []kept
	// what this generation began with
	base kept
	// checkpoints that could not be read and are not removed yet. They are not kept in place of
	// older ones.
	useless map[checkpoint.Name]bool
	// held while older checkpoints are searched
	seeking turn
	claim   checkpoint.Claim
	// it is known which checkpoints the job has
	loaded bool
	// number up to which checkpoints were given up whose files may be there; 0: none
	litter int64

	// a record is being written
	writing bool
	// when the checkpoint that is being made was ordered
	ordered time.Time
	// how long the newest took that this master has made; 0: it has made none
	took time.Duration
	// the report from which layout and optimizer are taken
	model *wire.CutReport
	// failed attempts since the training is finished
	tries int
	// why the last attempt failed; "" if it did not
	problem string
	// the last commit that was written
	last    *checkpoint.Commit
	lineage []checkpoint.Ancestor
}

// holders keep the model: servers, or the workers of a ring. See [strategy].
type holders interface {
	version() int64
	hasHolders() bool
	copy(o custody.CutOrder)
	kept(base custody.Base)
}

// checkpointsHost has the requests of the checkpoints to the master. The caller of each method
// holds the mutex.
type checkpointsHost interface {
	advance(now time.Time)
	// writes the state for the next master
	remember() error
	// starts the first model generation from a checkpoint
	goOn(first kept, modelGeneration int64, now time.Time)
	// starts it from initial values
	startOver()
	end(state job.State, err error, now time.Time)
}

// newCheckpoints opens the job's directory. Nothing is read of it yet.
func newCheckpoints(m *master) (*checkpoints, error) {
	j := m.Job
	c := &checkpoints{shared: m.shared, host: m, contacts: m.contacts, work: m.work, evaluations: m.evaluations,
		handover: m.handover, background: m.background, seeking: make(turn, 1),
		useless: make(map[checkpoint.Name]bool)}
	if j.CheckpointDir == "" {
		return c, nil
	}
	var err error
	if c.dir, err = m.Open.Open(j.CheckpointDir); err != nil {
		return nil, fmt.Errorf("--checkpoint_dir=%s: %w", j.CheckpointDir, err)
	}
	p := custody.CutPolicy{
		Holders: j.NumPS, Steps: int64(j.CheckpointSteps), Interval: j.CheckpointInterval.Duration,
		Hold: timing.Hold, HoldMost: timing.HoldMost, Write: timing.Write, Pause: checkpointPause,
	}
	if j.Strategy == job.AllReduce {
		// the copy delays no other member: it is made between two rounds, however long those are
		p.Holders, p.Hold = 1, timing.Write
	}
	c.policy = p
	c.cut = custody.NewCut(p, 0, time.Now())
	return c, nil
}

// on reports whether the job has checkpoints.
func (c *checkpoints) on() bool { return c.cut != nil }

// order returns the current order for all holders.
func (c *checkpoints) order() custody.CutOrder {
	if !c.on() {
		return custody.CutOrder{}
	}
	return c.cut.Order()
}

// copied returns the report of the worker that has written a ring's checkpoint.
func (c *checkpoints) copied() bool { return c.on() && c.cut.Copied() }

// ended returns the number up to which holders need not report checkpoints any more.
func (c *checkpoints) ended() int64 {
	if !c.on() {
		return 0
	}
	return c.cut.Ended()
}

// highestGiven returns the highest number that was given to a checkpoint.
func (c *checkpoints) highestGiven() int64 {
	if !c.on() {
		return 0
	}
	return max(c.cut.Ended(), c.cut.Order().Number)
}

// beginIfDue begins a checkpoint if one is due. The strategy tells the holders.
func (c *checkpoints) beginIfDue(now time.Time) {
	need := c.stage.Checkpoint(c.covered())
	if !c.on() || c.writing || need == lifecycle.Never || !c.holders.hasHolders() {
		return
	}
	version := c.holders.version()
	due := c.cut.Due(version, now)
	if need == lifecycle.AtOnce || c.serverLeaves() {
		due = c.cut.Wanted(version, now)
	}
	if due {
		if c.litter > 0 {
			c.sweep(c.litter)
			c.litter = 0
		}
		c.cut.Begin(version, now)
		c.ordered = now
		// the next master must not give out its number again
		if c.host.remember() != nil {
			c.giveUp("its number could not be written", now)
			return
		}
		c.Log.Debug("Checkpoint begun", "number", c.cut.Order().Number, "version", version)
		c.holders.copy(c.cut.Order())
	}
}

// spared reports whether a server that was asked to leave may: a checkpoint has what it had then,
// or none will be made for it. The caller holds the mutex.
func (c *checkpoints) spared(of *contact) bool {
	return !c.on() || !c.stage.Begun() || !c.holders.hasHolders() ||
		c.covered() >= min(of.leavesAt, c.holders.version())
}

// serverLeaves reports whether a server waits for a checkpoint before it leaves. The caller holds
// the mutex.
func (c *checkpoints) serverLeaves() bool {
	for i := range c.Job.NumPS {
		if of := c.contacts.get(pod.ID{Role: pod.PS, Index: i}); of != nil && of.leaves && !c.spared(of) {
			return true
		}
	}
	return false
}

// finished reports whether the trained model is at rest, or cannot be. It returns an error if the
// model would then be nowhere.
func (c *checkpoints) finished() (bool, error) {
	switch {
	case !c.on() || !c.writing && c.cut.Covers(c.holders.version()):
		return true, nil
	case c.tries < lastTries:
		return false, nil
	case c.Job.Output == "":
		return false, fmt.Errorf("the trained model could not be written to --checkpoint_dir=%s: %s",
			c.Job.CheckpointDir, c.problem)
	}
	return true, nil
}

// heard handles a holder's report.
func (c *checkpoints) heard(holder int, r *wire.CutReport, now time.Time) {
	if !c.on() || r == nil {
		return
	}
	said := custody.Report{
		Number: r.Number, Phase: custody.Phase(r.Phase), Version: r.Version, Err: r.Error,
		Shard: custody.Shard{File: r.File, Start: int(r.Start), End: int(r.End), Bytes: r.Bytes, CRC: r.Crc},
	}
	if len(r.Ledger) > 0 {
		applied, err := ledger.Parse(r.Ledger)
		if err != nil {
			said.Phase, said.Err = custody.Failed, err.Error()
		}
		said.Ledger = applied
	}
	number := c.cut.Order().Number
	if said.Phase == custody.Written && r.Number == number {
		c.model = r
	}
	done, failed := c.cut.Heard(holder, said, now)
	if failed != "" {
		c.gaveUp(number, failed)
	}
	if done != nil {
		c.write(done)
	}
}

// tick gives up a checkpoint that takes too long.
func (c *checkpoints) tick(now time.Time) {
	if !c.on() {
		return
	}
	number := c.cut.Order().Number
	if failed := c.cut.Tick(now); failed != "" {
		c.gaveUp(number, failed)
	}
}

// giveUp gives up the checkpoint that is being made, for example because a holder is lost. At the
// end of the job that is no failure: the master itself ends the holders.
func (c *checkpoints) giveUp(reason string, now time.Time) {
	if !c.on() {
		return
	}
	number := c.cut.Order().Number
	if c.cut.GiveUp(now) && !c.stage.Over() {
		c.gaveUp(number, reason)
	}
}

func (c *checkpoints) gaveUp(number int64, reason string) {
	c.problem = reason
	if c.stage.Stage() == lifecycle.Completing {
		c.tries++
	}
	c.Log.Warn("Checkpoint given up", "number", number, "reason", reason)
	c.events.happen(CheckpointFailed{Number: number, Reason: reason})
	c.sweep(number)
}

// sweep removes the files of checkpoints that were given up, up to a number, which would fill the
// disk. A holder may still write one: they are removed again before the next checkpoint.
func (c *checkpoints) sweep(number int64) {
	c.litter = number
	c.background.Go(func() { c.clean(number) })
}

func (c *checkpoints) clean(number int64) {
	if err := c.dir.Sweep(number); err != nil {
		c.Log.Warn("Removing checkpoints that were given up failed", "error", err)
	}
}

// write starts writing the record of a cut that is at rest, outside the mutex.
func (c *checkpoints) write(done *custody.Commit) {
	// an epoch begins only when all of the epoch before is in the model
	if open := done.Ledger.Epochs(); len(open) > 1 {
		done.Ledger.Settle(open[len(open)-1] - 1)
	}
	commit := checkpoint.Commit{
		Format: checkpoint.Format, Number: done.Number, Claim: c.policy.Claim, Time: time.Now().UTC(),
		JobName: c.Job.Name, Job: c.Self.Header().Job, Lineage: c.lineage, ModelDef: c.Job.ModelDef,
		ModelGeneration: c.Self.ModelGeneration(),
		Version:         slices.Max(done.Versions), Ledger: done.Ledger, Cut: c.records(),
		Data:      checkpoint.FilesOf(c.Training),
		Optimizer: c.model.Optimizer, Slots: int(c.model.Slots),
	}
	layout, err := rpc.Layout(c.model.Layout)
	if err != nil {
		c.failed(done.Number, err)
		return
	}
	commit.Layout = checkpoint.VariablesOf(layout)
	for _, s := range done.Shards {
		commit.Shards = append(commit.Shards, checkpoint.Shard{File: s.File, Start: s.Start, End: s.End,
			Bytes: s.Bytes, CRC: s.CRC})
	}
	commit.Evaluated = c.evaluations.number
	for _, e := range c.evaluations.newest {
		// the evaluation was completed while the commit was being written
		if e.Version > commit.Version {
			commit.Evaluated--
			continue
		}
		commit.Evaluations = append(commit.Evaluations, checkpoint.Evaluation{Version: e.Version, Metrics: e.Metrics})
	}
	// the holders have records of another training
	if commit.Records, err = c.work.queue.Records(&done.Ledger); err != nil {
		c.failed(done.Number, err)
		return
	}
	c.writing = true
	c.background.Go(func() {
		err := c.dir.Holds(c.claim)
		if err == nil {
			err = commit.Seal()
		}
		if err == nil {
			err = c.dir.WriteCommit(commit)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.written(&commit, err)
		c.host.advance(time.Now())
	})
}

// failed notes that a checkpoint failed after all holders had copied.
func (c *checkpoints) failed(number int64, err error) {
	c.gaveUp(number, err.Error())
	c.cut.Unwritten(c.covered(), c.clock.at(time.Now()))
}

// written notes that a record is written, or why it is not.
func (c *checkpoints) written(commit *checkpoint.Commit, err error) {
	c.writing = false
	switch {
	case errors.Is(err, checkpoint.ErrOwned):
		c.host.end(job.Failed, fmt.Errorf("--checkpoint_dir=%s: %w", c.Job.CheckpointDir, err), time.Now())
		return
	case err != nil:
		c.failed(commit.Number, err)
		return
	case commit.ModelGeneration != c.Self.ModelGeneration():
		c.Log.Info("Dropping a checkpoint of an earlier model generation", "number", commit.Number,
			"model_generation", commit.ModelGeneration)
		c.background.Go(func() { c.discard(commit.Name()) })
		return
	}
	c.kept = append(c.kept, keptOf(c.Job.CheckpointDir, commit, false))
	c.last, c.problem, c.tries = commit, "", 0
	c.took = time.Since(c.ordered)
	if keep := c.Job.KeepCheckpointMax; keep > 0 {
		c.kept = c.kept[max(0, len(c.kept)-keep):]
	}
	c.holders.kept(c.newest())
	c.Log.Info("Checkpoint written", "number", commit.Number, "version", commit.Version, "records",
		commit.Records, "took", time.Since(commit.Time).Round(time.Millisecond))
	c.work.enter()
	c.work.book.Committed(commit.Number, commit.Records, &commit.Ledger)
	c.events.happen(CheckpointWritten{Number: commit.Number, Version: commit.Version, Records: commit.Records})
	useless := maps.Clone(c.useless)
	c.background.Go(func() { c.retain(useless) })
}

// retain removes older checkpoints, and forgets the useless ones that are not there any more. The
// caller does not hold the mutex.
func (c *checkpoints) retain(useless map[checkpoint.Name]bool) {
	removed, err := c.dir.Retain(c.Job.KeepCheckpointMax, useless)
	if err != nil {
		c.Log.Warn("Removing older checkpoints failed", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range removed {
		delete(c.useless, n)
	}
}

func (c *checkpoints) discard(n checkpoint.Name) {
	if err := c.dir.Discard(n); err != nil {
		c.Log.Warn("Removing an unusable checkpoint failed", "number", n.Number, "error", err)
	}
}

// records returns how the records are cut into tasks.
func (c *checkpoints) records() checkpoint.Cut {
	j := c.Job
	names, content := checkpoint.HashShards(c.Training)
	return checkpoint.Cut{RecordsPerTask: j.RecordsPerTask(), Shuffle: j.Shuffle, Seed: j.Seed,
		MaxRecords: j.MaxRecords(), Shards: names, Content: content}
}

// deadline returns when a checkpoint is due, or is to be given up. A checkpoint that is due and
// cannot begin yet has no deadline: it begins after some event.
func (c *checkpoints) deadline(now time.Time) (time.Time, bool) {
	if !c.on() {
		return time.Time{}, false
	}
	at, ok := c.cut.Deadline()
	return at, ok && (c.cut.Order().Number > 0 || at.After(now))
}

// describe adds the checkpoints to the status. The progress of a suspended job is that of its
// newest checkpoint, whatever the workers had reported before they ended.
func (c *checkpoints) describe(s *wire.JobStatus) {
	if !c.on() {
		return
	}
	s.Checkpoint = &wire.Checkpoint{Dir: c.Job.CheckpointDir, Problem: c.problem, Unread: !c.loaded}
	if c.last != nil {
		s.Checkpoint.Number, s.Checkpoint.Version, s.Checkpoint.Records = c.last.Number, c.last.Version, c.last.Records
		s.Checkpoint.UnixMs = c.last.Time.UnixMilli()
		if c.stage.State() == job.Suspended {
			s.Version, s.RecordsDone, s.Epoch = c.last.Version, c.last.Records,
				min(int32(c.last.Ledger.Settled())+1, s.Epochs)
		}
	}
}

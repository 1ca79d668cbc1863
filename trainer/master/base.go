package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// kept holds the checkpoints that a model generation may begin with: a checkpoint of the job, or
// the one that it was to start from (--checkpoint_dir_for_init), which has none of the job's
// records. The zero value stands for the initial values.
type kept struct {
	custody.Base
	commit *checkpoint.Commit
}

// ledger returns the ledger of the job's records that are in it.
func (k kept) ledger() *ledger.Ledger {
	if k.commit == nil || k.Fresh {
		return new(ledger.Ledger)
	}
	return &k.commit.Ledger
}

// records returns how many of the job's records are in it.
func (k kept) records() int64 {
	if k.commit == nil || k.Fresh {
		return 0
	}
	return k.commit.Records
}

func (k kept) version() int64 {
	if k.commit == nil {
		return 0
	}
	return k.commit.Version
}

// loaded is the model of the first generation.
type loaded struct {
	first kept
	// the model of a job that trains nothing
	model model
	// the highest number in the job's directory
	last int64
	// the checkpoints that the model descends from
	lineage []checkpoint.Ancestor
	// checkpoints of the job that cannot be used
	damaged []checkpoint.Damage
}

// load finds what the first generation begins with: the newest checkpoint of a job that is resumed,
// or the one that the job starts from. It reads all of it, which may take long: the mutex is not
// held, and nothing is changed. Storage that cannot be read is tried again for some time.
func (c *checkpoints) load(ctx context.Context) (l loaded, err error) {
	err = c.patiently(ctx, func() error {
		l, err = c.tryLoad()
		return err
	})
	return l, err
}

// patiently reads from storage, and retries for some time if the storage cannot be read.
func (c *checkpoints) patiently(ctx context.Context, read func() error) error {
	began := time.Now()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, timing.StoragePause) {
		err := read()
		if err == nil || errors.Is(err, errUnfit) || errors.Is(err, checkpoint.ErrOwned) ||
			errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, checkpoint.ErrNone) ||
			ctx.Err() != nil || time.Since(began) >= timing.Storage {
			return err
		}
		c.Log.Warn("Reading checkpoints failed; retrying", "error", err)
		c.unread(err)
		pause(ctx, wait)
	}
}

// errUnfit is wrapped by errors about a directory that does not suit the job.
var errUnfit = errors.New("it cannot be used")

func (c *checkpoints) tryLoad() (l loaded, err error) {
	if c.fixed != nil {
		l.model, err = c.fixed.find()
		return l, err
	}
	if l.last, err = c.highest(); err != nil {
		return l, err
	}
	if c.resumes() && c.on() {
		if l.first, l.damaged, err = c.newestOwn(); err != nil || l.first.commit != nil {
			l.lineage = c.lineageOf(l.first.commit)
			return l, err
		}
	}
	if from := c.Job.CheckpointDirForInit; from != "" {
		if l.first, err = c.initial(from); err != nil {
			return l, fmt.Errorf("--checkpoint_dir_for_init=%s: %w", from, err)
		}
		l.lineage = c.lineageOf(l.first.commit)
	}
	return l, nil
}

// lineageOf returns the lineage of a model that begins with a commit: that of the commit, and the
// commit itself if another job has made it.
func (c *checkpoints) lineageOf(commit *checkpoint.Commit) []checkpoint.Ancestor {
	switch {
	case commit == nil:
		return nil
	case commit.Job == c.Self.Header().Job:
		return commit.Lineage
	}
	return append(slices.Clone(commit.Lineage), checkpoint.Ancestor{Job: commit.Job, Number: commit.Number})
}

// resumes reports whether the job may have checkpoints already.
func (c *checkpoints) resumes() bool { return c.Resume || c.handover.record != nil }

// highest returns the highest number of a checkpoint in the job's directory. Unless the job is
// resumed there may be none.
func (c *checkpoints) highest() (int64, error) {
	if !c.on() {
		return 0, nil
	}
	d := checkpoint.Dir{Files: c.dir.Files}
	if !c.resumes() {
		if err := d.Unused(); err != nil && !errors.Is(err, checkpoint.ErrUsed) {
			return 0, err
		} else if err != nil {
			return 0, fmt.Errorf("--checkpoint_dir=%s: %w: %w; or continue with elasticdl resume",
				c.Job.CheckpointDir, errUnfit, err)
		}
	}
	return d.Highest()
}

// newestOwn returns the job's newest checkpoint, zero if there is none, and the checkpoints that
// cannot be used. A restored master needs none as long as the model lives.
func (c *checkpoints) newestOwn() (kept, []checkpoint.Damage, error) {
	dir := c.Job.CheckpointDir
	commit, damaged, err := checkpoint.Source{Dir: c.dir}.Read()
	c.logDamages(c.dir, damaged)
	if errors.Is(err, checkpoint.ErrDamaged) && c.handover.record != nil {
		err = checkpoint.ErrNone
	}
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		if c.handover.record == nil {
			c.Log.Warn("The job has no checkpoint to continue from: the training begins from its "+
				"beginning", "directory", dir)
		}
		return kept{}, damaged, nil
	case err != nil:
		return kept{}, nil, err
	}
	own, err := c.own(commit)
	return own, damaged, err
}

// own returns a commit of the job's directory as a checkpoint, if it cuts the records into the same
// tasks as the job.
func (c *checkpoints) own(commit *checkpoint.Commit) (kept, error) {
	dir := c.Job.CheckpointDir
	if changes := commit.Changes(c.records(), c.Training); len(changes) > 0 {
		return kept{}, fmt.Errorf("%w: checkpoint %d of %s is of other data, or of another cut: %s; "+
			"restore the data and the flags, or train again with another --checkpoint_dir, from this "+
			"model with --checkpoint_dir_for_init",
			errUnfit, commit.Number, dir, strings.Join(changes, "; "))
	}
	if _, err := c.work.queue.Records(&commit.Ledger); err != nil {
		return kept{}, fmt.Errorf("%w: checkpoint %d of %s: %w", errUnfit, commit.Number, dir, err)
	}
	return keptOf(dir, commit, false), nil
}

// keptOf returns a commit of a directory as what a generation may begin with.
func keptOf(dir string, commit *checkpoint.Commit, fresh bool) kept {
	return kept{custody.Base{Dir: dir, Number: commit.Number, Claim: commit.Claim,
		Checksum: commit.Checksum, Fresh: fresh}, commit}
}

// seek finds a checkpoint before one that a holder cannot read, if this master knows none: a
// restored master has only read the newest. The caller does not hold the mutex.
func (c *checkpoints) seek(ctx context.Context, from custody.Base) {
	c.seeking.Lock() // all holders call at once
	defer c.seeking.Unlock()
	c.mu.Lock()
	oldest, useless := c.isOldest(from), maps.Clone(c.useless)
	c.mu.Unlock()
	if !oldest {
		return
	}
	var commit *checkpoint.Commit
	var damaged []checkpoint.Damage
	var first kept
	err := c.patiently(ctx, func() (err error) {
		commit, damaged = nil, nil
		for below := nameOf(from); ; below = commit.Name() {
			var found []checkpoint.Damage
			commit, found, err = c.dir.Before(below)
			if damaged = append(damaged, found...); err != nil || !useless[commit.Name()] {
				break
			}
		}
		if !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
		if init := c.Job.CheckpointDirForInit; init != "" {
			if first, err = c.initial(init); err != nil {
				return fmt.Errorf("--checkpoint_dir_for_init=%s: %w", init, err)
			}
		}
		return nil
	})
	c.logDamages(c.dir, damaged)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil || c.stage.Over() || !c.isOldest(from) {
		return
	}
	c.hasDamages(damaged)
	if err == nil && commit != nil {
		first, err = c.own(commit)
	}
	switch {
	case err != nil:
		c.host.end(job.Failed, fmt.Errorf("checkpoint %d cannot be read, and what was before it cannot "+
			"be found: %w", from.Number, err), time.Now())
	case first.commit != nil:
		c.lineage = c.lineageOf(first.commit)
		c.kept = slices.Insert(c.kept, 0, first)
	}
}

// nameOf returns the name of the commit that a generation begins with.
func nameOf(b custody.Base) checkpoint.Name { return checkpoint.Name{Number: b.Number, Claim: b.Claim} }

// isOldest reports whether a checkpoint is the oldest of the job's that this master knows.
func (c *checkpoints) isOldest(b custody.Base) bool {
	return len(c.kept) > 0 && c.kept[0].Base == b && !b.Fresh
}

// initial finds the checkpoint that a job starts from: the newest of a directory, or the one whose
// directory is given. It returns none for an exported model, whose values become the initial ones.
func (c *checkpoints) initial(location string) (kept, error) {
	from, err := c.Open.Find(location)
	if err != nil {
		return kept{}, err
	}
	if from.File != "" {
		if err := from.Check(nil); err != nil {
			return kept{}, err
		}
		c.Log.Info("The model begins with the values of an exported one", "file", from.Path())
		return kept{}, nil
	}
	commit, damages, err := from.Read()
	c.logDamages(from.Dir, damages)
	if err != nil {
		return kept{}, err
	}
	return keptOf(from.Location, commit, true), nil
}

// hasDamages notes which checkpoints of the job's directory cannot be used.
func (c *checkpoints) hasDamages(damages []checkpoint.Damage) {
	for _, d := range damages {
		c.useless[d.Commit] = true
		c.events.happen(CheckpointDamaged{Number: d.Commit.Number, Reason: d.Err.Error()})
	}
}

// logDamages logs which checkpoints of a directory cannot be used.
func (c *checkpoints) logDamages(dir checkpoint.Dir, damages []checkpoint.Damage) {
	for _, d := range damages {
		c.Log.Error("A checkpoint cannot be used", "number", d.Commit.Number, "directory",
			dir.String(), "error", d.Err)
	}
}

// beginFirst begins the first generation with what was loaded, before any pod has joined.
func (c *checkpoints) beginFirst(l loaded, now time.Time) {
	first := l.first
	c.loaded, c.problem = true, ""
	c.hasDamages(l.damaged)
	if c.fixed != nil {
		c.fixed.setModel(l.model)
		return
	}
	if c.lineage = l.lineage; c.on() {
		c.cut = custody.NewCut(c.policy, l.last, now)
	}
	if first.commit == nil {
		c.host.startOver()
		return
	}
	c.kept = []kept{first}
	modelGeneration := int64(1)
	if !first.Fresh {
		modelGeneration, c.last = first.commit.ModelGeneration+1, first.commit
	}
	c.host.goOn(first, modelGeneration, now)
}

// startOver begins with initial values. If the job is resumed, and has no checkpoint, the records
// that it has trained on are lost. A program reports what it has read.
func (m *master) startOver() {
	records := m.work.book.Records()
	if records == 0 || m.program != nil {
		return
	}
	m.work.book.Set(new(ledger.Ledger))
	const reason = "the job was resumed, and has no checkpoint"
	m.Log.Warn("The training starts over", "reason", reason, "records", records)
	m.events.happen(TrainingRestarted{ModelGeneration: m.Self.ModelGeneration(), Reason: reason, Records: records})
}

// goOn starts the first model generation from a checkpoint.
func (m *master) goOn(first kept, modelGeneration int64, now time.Time) {
	m.Self.SetModelGeneration(modelGeneration)
	m.servers.custody.Start(modelGeneration, first.Base)
	if m.ring != nil {
		m.ring.custody = custody.NewRing(modelGeneration, first.version())
	}
	m.progress.resumedWith(first.records())
	m.Log.Info("The model begins with a checkpoint", "number", first.Number, "directory", first.Dir,
		"version", first.version(), "records", first.records())
	m.restart(m.checkpoints.rewind(now))
	m.events.happen(Resumed{Number: first.Number, Version: first.version(), Records: first.records(),
		Epochs: m.work.book.Finished()})
}

// restore sets what was loaded for a restored master. The generation continues, or the next one
// begins with the newest checkpoint.
func (c *checkpoints) restore(l loaded, r *record, now time.Time) {
	c.loaded, c.problem = true, ""
	for _, n := range r.Damaged {
		c.useless[n] = true
	}
	c.hasDamages(l.damaged)
	c.lineage = l.lineage
	if l.first.commit != nil {
		c.kept = []kept{l.first}
		if !l.first.Fresh {
			c.last = l.first.commit
		}
	}
	if c.base = (kept{Base: r.Base}); c.newest() == r.Base {
		c.base = c.newestKept()
	}
	if c.on() {
		c.cut = custody.NewCut(c.policy, max(l.last, r.Cut), now)
		c.cut.Rewind(c.covered(), now)
	}
}

// newestKept returns what the next generation begins with.
func (c *checkpoints) newestKept() kept {
	if n := len(c.kept); n > 0 {
		return c.kept[n-1]
	}
	return kept{}
}

// covered returns the version of the newest checkpoint.
func (c *checkpoints) covered() int64 {
	return c.newestKept().version()
}

// rewind notes that a generation begins, and returns what it begins with: the newest checkpoint.
func (c *checkpoints) rewind(now time.Time) kept {
	c.base = c.newestKept()
	if c.on() {
		c.cut.Rewind(c.covered(), now)
	}
	return c.base
}

// rollback sets the version of the model in the current generation, even if a newer one was
// reported before.
func (c *checkpoints) rollback(version int64) {
	if c.on() {
		c.cut.Rollback(version)
	}
}

// damaged drops the checkpoint that this generation was to begin with, and newer ones, because it
// cannot be read. A job that was to start from it fails.
func (c *checkpoints) damaged(base custody.Base, reason error) {
	c.Log.Error("A checkpoint cannot be used", "number", base.Number, "directory", base.Dir, "error", reason)
	c.events.happen(CheckpointDamaged{Number: base.Number, Reason: reason.Error()})
	if base.Fresh {
		c.host.end(job.Failed, fmt.Errorf("--checkpoint_dir_for_init=%s: %w", c.Job.CheckpointDirForInit,
			reason), time.Now())
		return
	}
	c.useless[nameOf(base)] = true
	if i := slices.IndexFunc(c.kept, func(k kept) bool { return k.Base == base }); i >= 0 {
		c.kept = c.kept[:i]
	}
}

// damages returns the checkpoints that could not be read, the oldest first.
func (c *checkpoints) damages() []checkpoint.Name {
	return slices.SortedFunc(maps.Keys(c.useless), func(a, b checkpoint.Name) int {
		return strings.Compare(a.String(), b.String())
	})
}

// newest returns what the next generation begins with, as the custody names it.
func (c *checkpoints) newest() custody.Base {
	return c.newestKept().Base
}

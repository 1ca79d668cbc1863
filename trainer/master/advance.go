package master

import (
	"cmp"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/logline"
)

// advance starts whatever is due at the job's current stage. It is called after every step of a
// machine; if nothing has changed, it does nothing. The caller holds the mutex.
func (m *master) advance(now time.Time) {
	if !m.stage.Planned() && !m.stage.Over() {
		return
	}
	m.work.enter()
	if !m.stage.Over() {
		m.strategy.update()
		m.askHolders()
		switch {
		case m.stage.Recovering() || m.stage.Over():
		case m.program != nil:
			m.program.advance(now)
		default:
			m.passBarriers()
			m.evaluations.begin()
			m.checkpoints.beginIfDue(m.clock.at(now))
		}
		m.finish(now)
		m.admit(now)
		m.goes(now)
	}
	m.accountSoon(now)
	if m.ring != nil && !m.stage.Over() {
		if at, ok := m.ring.deadline(); ok && m.clock.firesAfter(m.clock.wall(at)) {
			m.clock.look()
		}
	}
	// A new lease or heartbeat becomes overdue after the timeout at the earliest: only a timer that
	// is set later than that has to be set again.
	if timeout := m.Job.TaskTimeout.Duration; timeout > 0 && m.clock.firesAfter(now.Add(timeout)) {
		m.clock.look()
	}
}

// passBarriers opens the next epoch when this one is settled and applied, and ends the training
// after the last.
func (m *master) passBarriers() {
	for !m.work.queue.TrainingDone() {
		if !m.work.queue.Settled() || !m.strategy.applied(m.work.queue.Stats().Epoch) {
			return
		}
		m.work.nextEpoch()
	}
	if m.stage.Stage() == lifecycle.Completing || !m.strategy.whole() {
		return
	}
	m.stage.Complete()
	if m.fixed != nil {
		m.fixed.ask()
		m.waiters.wake()
		return
	}
	version := m.strategy.version()
	m.Log.Info("Training finished", "version", version)
	m.events.happen(TrainingFinished{Version: version})
	if len(m.Validation) > 0 {
		m.evaluations.schedule.Final(version)
	}
	if m.Job.Output != "" {
		m.work.queue.Export(version, 0)
	}
	m.waiters.wake()
}

// newGeneration begins a model generation, with the newest checkpoint or the initial values. Later
// training is lost. If anything was trained on, in this generation or before, the training returns
// with the model.
func (m *master) newGeneration(modelGeneration int64, reason string) {
	stats := m.work.queue.Stats()
	if m.stage.Recovering() {
		stats.Done = max(stats.Done, m.handover.record.Done)
	}
	began := m.checkpoints.base
	base := m.checkpoints.rewind(m.clock.at(time.Now()))
	begun := m.stage.Begun()
	fresh := !begun && m.progress.reason == "" && stats.Done == began.records() && base.Base == began.Base
	switch {
	case fresh:
	case m.program != nil:
		m.program.lose(loss{ModelGeneration: modelGeneration, Reason: reason, Records: stats.Done,
			AtLeast: m.stage.Recovering()})
	default:
		m.progress.rolledBack(rollbackText(base, stats.Done, begun, reason))
	}
	m.Self.SetModelGeneration(modelGeneration)
	m.restart(base)
	if !m.recorded() { // before it is reported
		return
	}
	switch {
	case fresh:
		m.Log.Info("The model starts over; nothing was trained on yet", "model_generation",
			modelGeneration, "reason", reason)
	case m.program != nil:
		m.Log.Warn("The program starts again, from what it has saved", "reason", reason,
			"model_generation", modelGeneration,
			"records", stats.Done)
	case base.commit != nil:
		m.Log.Warn("The training returns to a checkpoint", "reason", reason, "model_generation", modelGeneration,
			"checkpoint", base.Number, "version", base.version(),
			"records", base.records(), "of", stats.Done)
		m.events.happen(RolledBack{ModelGeneration: modelGeneration, Reason: reason, Checkpoint: base.Number,
			Version: base.version(), Records: stats.Done, Kept: base.records(), Epochs: m.work.book.Finished()})
	default:
		m.Log.Warn("The training starts over", "reason", reason, "model_generation", modelGeneration,
			"records", stats.Done)
		m.events.happen(TrainingRestarted{ModelGeneration: modelGeneration, Reason: reason, Records: stats.Done})
	}
}

// rollbackText returns what was lost with a model generation, as text.
func rollbackText(base kept, done int64, begun bool, reason string) string {
	switch {
	case base.commit != nil:
		return fmt.Sprintf("the training returned to checkpoint %d at version %s, with %s of %s records: %s",
			base.Number, logline.Thousands(base.version()), logline.Thousands(base.records()),
			logline.Thousands(done), reason)
	case begun:
		return fmt.Sprintf("the training started over: %s; %s records were trained on till then", reason,
			logline.Thousands(done))
	}
	return fmt.Sprintf("the training started over: %s; nothing was trained on since the time before", reason)
}

// restart sets the training back to where a checkpoint is.
func (m *master) restart(base kept) {
	m.evaluations.restart(base)
	if err := m.work.rewind(base.ledger()); err != nil {
		// cannot happen: the ledger was checked against this cut, and an empty one fits every cut
		panic(err)
	}
	m.stage.Rollback()
	m.progress.restart()
	m.waiters.wake()
}

// finish ends a job that is done, or that cannot be completed.
func (m *master) finish(now time.Time) {
	switch err := cmp.Or(m.work.queue.Err(), m.fleet.table.Err()); {
	case err != nil:
		m.end(job.Failed, err, now)
	case m.program != nil: // its processes report when they are done
	case m.stage.Stage() == lifecycle.Completing && m.work.queue.Finished() && m.evaluations.schedule.Idle():
		if done, err := m.checkpoints.finished(); err != nil || !done {
			if err != nil {
				m.end(job.Failed, err, now)
			}
			return
		}
		if done, total := m.work.counted(); done != total {
			m.end(job.Failed, fmt.Errorf("%s of %s records were %s", logline.Thousands(done),
				logline.Thousands(total), m.did()), now)
			return
		}
		m.end(job.Succeeded, nil, now)
	}
}

// end ends the job: workers are asked to leave, and deleted if they do not. The caller holds the
// mutex.
func (m *master) end(state job.State, err error, now time.Time) {
	m.perform(m.stage.End(state, err, m.undone(), now), now)
}

// undone returns an error that names what was not done; nil if everything was.
func (m *master) undone() error {
	stats := m.work.queue.Stats()
	if m.program != nil && m.work.dataset == nil {
		return nil
	}
	if done, total := m.work.counted(); m.fixed != nil && done < total {
		return fmt.Errorf("%s of %s records were %s", logline.Thousands(done), logline.Thousands(total), m.did())
	}
	first, tasks := m.work.queue.Remaining()
	if m.stage.Stage() == lifecycle.Completing || tasks == 0 {
		return nil
	}
	if first.Unsized {
		return fmt.Errorf("%s records were trained on; not done: %v, and %s shards more in this epoch",
			logline.Thousands(stats.Done), first, logline.Thousands(int64(tasks)-1))
	}
	return fmt.Errorf("%s of %s records were trained on; not done: %v, and %s tasks more in this epoch",
		logline.Thousands(stats.Done), logline.Thousands(stats.Total), first, logline.Thousands(int64(tasks)-1))
}

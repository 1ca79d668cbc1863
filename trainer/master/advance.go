package master

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// advance starts whatever is due at the job's current stage. It is called after every step of a
// machine; if nothing has changed, it does nothing. The caller holds the mutex.
func (m *master) advance(now time.Time) {
	if !m.stage.Planned() && !m.stage.Over() {
		return
	}
	if !m.stage.Over() {
		m.strategy.update()
		m.askHolders()
		switch {
		case m.stage.Recovering() || m.stage.Over():
		case m.program != nil:
			m.program.advance(now)
		default:
			m.passBarriers()
			m.evaluate()
			m.checkpoints.beginIfDue(m.clock(now))
		}
		m.finish(now)
		m.goes(now)
	}
	if m.ring != nil && !m.stage.Over() {
		if at, ok := m.ring.deadline(); ok && (m.armed.IsZero() || at.Add(m.downtime).Before(m.armed)) {
			signal(m.poke)
		}
	}
	// A new lease or heartbeat becomes overdue after the timeout at the earliest: only a timer that
	// is set later than that has to be set again.
	if timeout := m.Job.TaskTimeout.Duration; timeout > 0 && (m.armed.IsZero() || m.armed.Sub(now) > timeout) {
		signal(m.poke)
	}
}

// passBarriers opens the next epoch when this one is settled and applied, and ends the training
// after the last.
func (m *master) passBarriers() {
	for !m.queue.TrainingDone() {
		if !m.queue.Settled() || !m.strategy.applied(m.queue.Stats().Epoch) {
			return
		}
		m.Log.Info("Epoch finished", "epoch", m.queue.Stats().Epoch, "records", m.queue.Stats().EpochDone)
		m.happen(EpochFinished{Epoch: m.queue.Stats().Epoch, Records: m.queue.Stats().EpochDone})
		m.queue.NextEpoch()
		m.wake()
	}
	if m.stage.Stage() == lifecycle.Completing || !m.strategy.whole() {
		return
	}
	m.stage.Complete()
	if m.fixed != nil {
		m.fixed.ask()
		m.wake()
		return
	}
	version := m.strategy.version()
	m.Log.Info("Training finished", "version", version)
	m.happen(TrainingFinished{Version: version})
	if len(m.Validation) > 0 {
		m.evals.Final(version)
	}
	if m.Job.Output != "" {
		m.queue.Export(version, 0)
	}
	m.wake()
}

// evaluate begins the evaluation that is due.
func (m *master) evaluate() {
	run, due := m.evals.Due()
	if !due {
		return
	}
	m.evals.Begin(m.queue.Evaluate(run.Version, m.Validation))
	m.Log.Info("Evaluation service started", "version", run.Version)
	m.wake()
}

// KeptEvaluations is the largest number of results in the status, which bounds the size of the
// message.
const KeptEvaluations = 1000

// results returns the newest results of evaluations, and the number of all. The caller holds the
// mutex.
func (m *master) results() ([]*wire.Evaluation, int64) { return m.evaluations, m.evaluated }

// measured handles what a worker has measured on the records of a task. The caller holds the mutex.
func (m *master) measured(t task.Task, on evaluation.Model, metrics []*wire.Metric, now time.Time) error {
	var states []evaluation.State
	for _, metric := range metrics {
		states = append(states, evaluation.State{Name: metric.Name, Sum: metric.State})
	}
	result, err := m.evals.Report(t.Version, evaluation.Part{Shard: t.Shard, Start: t.Start, On: on}, states)
	if _, runs := m.evals.Running(); err != nil && !runs {
		m.Log.Warn("Evaluation withdrawn", "version", t.Version, "reason", err)
		m.happen(EvaluationWithdrawn{Version: t.Version, Server: -1})
		m.queue.Withdraw(t.Version, now)
		return task.ErrStale
	}
	if err != nil || result == nil {
		return err
	}
	values := result.Metrics(m.Metric)
	e := &wire.Evaluation{Version: result.Version, Metrics: make(map[string]float64)}
	for _, v := range values {
		e.Metrics[v.Name] = v.Value
	}
	m.evaluated++
	m.evaluations = append(m.evaluations, e)
	m.evaluations = m.evaluations[max(0, len(m.evaluations)-KeptEvaluations):]
	m.Log.Info(evaluation.Format(result.Version, values))
	m.happen(Evaluated{Version: e.Version, Metrics: e.Metrics})
	return nil
}

// snapshot handles a holder's report of which snapshot it has. The caller holds the mutex.
func (m *master) snapshot(server int, version int64) {
	run, _ := m.evals.Running()
	if m.stage.Stage() == lifecycle.Completing && run.Snapshot == 0 {
		return // the last evaluation is of a newer model
	}
	if m.evals.Snapshot(server, version) {
		m.Log.Warn("Evaluation withdrawn: a server lost the snapshot", "version", run.Version, "server", server)
		m.happen(EvaluationWithdrawn{Version: run.Version, Server: server})
		m.queue.Withdraw(run.Version, m.clock(time.Now()))
	}
}

// newGeneration begins a model generation, with the newest checkpoint or the initial values. Later
// training is lost. If anything was trained on, in this generation or before, the training returns
// with the model.
func (m *master) newGeneration(modelGeneration int64, reason string) {
	stats := m.queue.Stats()
	if m.stage.Recovering() {
		stats.Done = max(stats.Done, m.former.Done)
	}
	began := m.checkpoints.base
	base := m.checkpoints.rewind(m.clock(time.Now()))
	begun := m.stage.Begun()
	fresh := !begun && m.rollbackReason == "" && stats.Done == began.records() && base.Base == began.Base
	switch {
	case fresh:
	case m.program != nil:
		m.program.lose(loss{ModelGeneration: modelGeneration, Reason: reason, Records: stats.Done,
			AtLeast: m.stage.Recovering()})
	default:
		m.rollbackReason = rollbackText(base, stats.Done, begun, reason)
		m.rewinds++
	}
	m.Self.SetModelGeneration(modelGeneration)
	m.restart(base)
	if err := m.remember(); errors.Is(err, ErrSuperseded) { // before it is reported
		m.quit(err)
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
		m.happen(RolledBack{ModelGeneration: modelGeneration, Reason: reason, Checkpoint: base.Number,
			Version: base.version(), Records: stats.Done, Kept: base.records()})
	default:
		m.Log.Warn("The training starts over", "reason", reason, "model_generation", modelGeneration,
			"records", stats.Done)
		m.happen(TrainingRestarted{ModelGeneration: modelGeneration, Reason: reason, Records: stats.Done})
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
	m.evaluations, m.evaluated = nil, 0
	if base.commit != nil && !base.Fresh {
		for _, e := range base.commit.Evaluations {
			m.evaluations = append(m.evaluations, &wire.Evaluation{Version: e.Version, Metrics: e.Metrics})
		}
		m.evaluated = base.commit.Evaluated
	}
	if err := m.queue.Rewind(base.ledger()); err != nil {
		// cannot happen: the ledger was checked against this cut, and an empty one fits every cut
		panic(err)
	}
	m.stage.Rollback()
	m.speed = speed{}
	m.evals = evaluation.New(m.evaluationPolicy())
	m.wake()
}

// finish ends a job that is done, or that cannot be completed.
func (m *master) finish(now time.Time) {
	switch err := cmp.Or(m.queue.Err(), m.table.Err()); {
	case err != nil:
		m.end(job.Failed, err, now)
	case m.program != nil: // its processes report when they are done
	case m.stage.Stage() == lifecycle.Completing && m.queue.Finished() && m.evals.Idle():
		if done, err := m.checkpoints.finished(); err != nil || !done {
			if err != nil {
				m.end(job.Failed, err, now)
			}
			return
		}
		if done, total := m.counted(); done != total {
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
	stats := m.queue.Stats()
	if m.program != nil && m.program.dataset == nil {
		return nil
	}
	if done, total := m.counted(); m.fixed != nil && done < total {
		return fmt.Errorf("%s of %s records were %s", logline.Thousands(done), logline.Thousands(total), m.did())
	}
	first, tasks := m.queue.Remaining()
	if m.stage.Stage() == lifecycle.Completing || tasks == 0 {
		return nil
	}
	return fmt.Errorf("%s of %s records were trained on; not done: %v, and %s tasks more in this epoch",
		logline.Thousands(stats.Done), logline.Thousands(stats.Total), first, logline.Thousands(int64(tasks)-1))
}

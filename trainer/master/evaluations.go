package master

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// KeptEvaluations is the largest number of results in the status, which bounds the size of the
// message.
const KeptEvaluations = 1000

// keptResults is the largest number of evaluation results in a record.
const keptResults = 50

// evaluations is the schedule of evaluations and their results. Each model generation has another
// schedule.
type evaluations struct {
	shared
	work     *work
	schedule *evaluation.Schedule
	// the newest results
	newest []*wire.Evaluation
	// number of all results
	number int64
}

// policy returns when to evaluate in the current generation.
func (e *evaluations) policy() evaluation.Policy {
	steps := int64(e.Job.EvaluationSteps)
	if len(e.Validation) == 0 {
		steps = 0
	}
	holders := e.Job.NumPS
	if e.Job.Runs() || e.Job.Trains() && e.Job.Strategy == job.AllReduce {
		holders = 1 // every worker has the same snapshot
	}
	return evaluation.Policy{Steps: steps, Servers: holders, ModelGeneration: e.Self.ModelGeneration()}
}

// plan makes the schedule of a model generation.
func (e *evaluations) plan() { e.schedule = evaluation.New(e.policy()) }

// restart sets the evaluations back to where a checkpoint is, in a new model generation.
func (e *evaluations) restart(base kept) {
	e.newest, e.number = nil, 0
	if base.commit != nil && !base.Fresh {
		e.add(base.commit.Evaluations)
		e.number = base.commit.Evaluated
	}
	e.plan()
}

// restore sets the results that the previous master has left.
func (e *evaluations) restore(r *record) {
	e.add(r.Results)
	e.number = r.Evaluated
}

// restorePlan makes the schedule that the previous master has left, when the data is known.
func (e *evaluations) restorePlan(r *record) (err error) {
	e.schedule, err = evaluation.Restore(e.policy(), r.Measures)
	return err
}

func (e *evaluations) add(results []checkpoint.Evaluation) {
	for _, r := range results {
		e.newest = append(e.newest, &wire.Evaluation{Version: r.Version, Metrics: r.Metrics})
	}
}

// save writes to a record what restore and restorePlan take.
func (e *evaluations) save(r *record) {
	r.Measures, r.Evaluated = e.schedule.Save(), e.number
	for _, result := range e.newest[max(0, len(e.newest)-keptResults):] {
		r.Results = append(r.Results, checkpoint.Evaluation{Version: result.Version, Metrics: result.Metrics})
	}
}

// begin begins the evaluation that is due.
func (e *evaluations) begin() {
	run, due := e.schedule.Due()
	if !due {
		return
	}
	e.schedule.Begin(e.work.queue.Evaluate(run.Version, e.Validation))
	e.Log.Info("Evaluation service started", "version", run.Version)
	e.waiters.wake()
}

// measured handles what a worker has measured on the records of a task. The caller holds the mutex.
func (e *evaluations) measured(t task.Task, on evaluation.Model, metrics []*wire.Metric, now time.Time) error {
	var states []evaluation.State
	for _, metric := range metrics {
		states = append(states, evaluation.State{Name: metric.Name, Sum: metric.State})
	}
	result, err := e.schedule.Report(t.Version, evaluation.Part{Shard: t.Shard, Start: t.Start, On: on}, states)
	if _, runs := e.schedule.Running(); err != nil && !runs {
		e.Log.Warn("Evaluation withdrawn", "version", t.Version, "reason", err)
		e.events.happen(EvaluationWithdrawn{Version: t.Version, Server: -1})
		e.work.queue.Withdraw(t.Version, now)
		return task.ErrStale
	}
	if err != nil || result == nil {
		return err
	}
	values := result.Metrics(e.Metric)
	is := &wire.Evaluation{Version: result.Version, Metrics: make(map[string]float64)}
	for _, v := range values {
		is.Metrics[v.Name] = v.Value
	}
	e.number++
	e.newest = append(e.newest, is)
	e.newest = e.newest[max(0, len(e.newest)-KeptEvaluations):]
	e.Log.Info(evaluation.Format(result.Version, values))
	e.events.happen(Evaluated{Version: is.Version, Metrics: is.Metrics})
	return nil
}

// snapshot handles a holder's report of which snapshot it has. The caller holds the mutex.
func (e *evaluations) snapshot(server int, version int64) {
	run, _ := e.schedule.Running()
	if e.stage.Stage() == lifecycle.Completing && run.Snapshot == 0 {
		return // the last evaluation is of a newer model
	}
	if e.schedule.Snapshot(server, version) {
		e.Log.Warn("Evaluation withdrawn: a server lost the snapshot", "version", run.Version, "server", server)
		e.events.happen(EvaluationWithdrawn{Version: run.Version, Server: server})
		e.work.queue.Withdraw(run.Version, e.clock.at(time.Now()))
	}
}

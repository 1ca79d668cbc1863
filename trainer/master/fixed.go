package master

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/prediction"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// fixed is the strategy of a job that trains nothing: it evaluates a model, or predicts with it.
// The master finds the model once, and every worker reads it on its own. Nothing of the job needs
// to outlive its master: a repeated task gives the same result.
type fixed struct {
	shared
	host        fixedHost
	checkpoints *checkpoints
	// tells workers with which model to begin
	custody     *custody.Servers
	work        *work
	evaluations *evaluations
	handover    *handover
	model       model
}

// fixedHost has the requests of a job that trains nothing to the master.
type fixedHost interface {
	advance(now time.Time)
}

func newFixed(m *master) *fixed {
	return &fixed{shared: m.shared, host: m, checkpoints: m.checkpoints, custody: m.servers.custody, work: m.work,
		evaluations: m.evaluations, handover: m.handover}
}

// model names the model that is evaluated or predicts.
type model struct {
	// where the model is; with the number, if it is a commit
	from checkpoint.Source
	// version of the model
	at int64
}

// find looks for the model.
func (f *fixed) find() (found model, err error) {
	from := f.Job.CheckpointDirForInit
	found.from, err = f.Open.Find(from)
	// the workers have that model, even if a newer one was made since
	if r := f.handover.record; r != nil && r.Base.Number > 0 {
		found.from.Commit, found.from.Checksum, found.from.File = nameOf(r.Base), r.Base.Checksum, ""
	}
	switch {
	case err != nil:
	case found.from.File != "":
		err = found.from.Check(f.Layout)
	default:
		var commit *checkpoint.Commit
		var damages []checkpoint.Damage
		commit, damages, err = found.from.Read()
		f.checkpoints.logDamages(found.from.Dir, damages)
		if err == nil {
			found.from.Commit, found.from.Checksum = commit.Name(), commit.Checksum
			err = f.fits(found, commit)
		}
	}
	if err == nil {
		found.at, err = found.from.Version()
	}
	if err != nil {
		return found, fmt.Errorf("--checkpoint_dir_for_init=%s: %w", from, err)
	}
	return found, nil
}

// fits checks that a commit is of the job's model.
func (f *fixed) fits(found model, commit *checkpoint.Commit) error {
	if err := f.Layout.Match(commit.ParamLayout()); err != nil {
		return fmt.Errorf("%w: checkpoint %d of %v is of another model, %s: %w", errUnfit,
			commit.Number, found.from.Dir, commit.ModelDef, err)
	}
	return nil
}

// setModel sets which model the workers are asked to read, before any pod has joined.
func (f *fixed) setModel(found model) {
	f.model = found
	from := found.from
	base := custody.Base{Dir: from.Location, Number: from.Commit.Number, Claim: from.Commit.Claim,
		Checksum: from.Checksum, Fresh: true}
	f.checkpoints.base = kept{Base: base} // for the master that follows
	f.custody.Start(f.Self.ModelGeneration(), base)
	if from.File != "" {
		f.Log.Info("The model is an exported one", "path", from.Path(), "version", found.at)
		return
	}
	f.Log.Info("The model is that of a checkpoint", "number", from.Commit.Number, "directory",
		from.Dir, "version", found.at)
}

// ask requests the evaluation or prediction that the job is for.
func (f *fixed) ask() {
	version := f.model.at
	if f.Job.Type == job.Evaluate {
		f.evaluations.schedule.Final(version)
		return
	}
	f.work.queue.Export(version, f.work.queue.Predict(version, f.Validation))
	f.Log.Info("Prediction started", "version", version)
}

// tidy removes the parts of a finished prediction: they are put together, or of no use.
func (f *fixed) tidy() {
	if f.Job.Type != job.Predict || !f.stage.State().Ended() {
		return
	}
	place, err := prediction.Open(f.Open, f.Job.PredictionOutputs, f.Self.Header().Job)
	if err == nil {
		err = place.Tidy()
	}
	if err != nil {
		f.Log.Warn("The parts of the prediction could not be removed", "error", err)
	}
}

func (f *fixed) version() int64   { return f.model.at }
func (f *fixed) applied(int) bool { return true }
func (f *fixed) whole() bool      { return true }

// the model does not change: there are no checkpoints
func (f *fixed) hasHolders() bool         { return false }
func (f *fixed) copy(custody.CutOrder)    {}
func (f *fixed) kept(custody.Base)        {}
func (f *fixed) lost(pod.ID, int, string) {}
func (f *fixed) blocked() bool            { return false }
func (f *fixed) update()                  {}

func (f *fixed) heard(pod.ID, int64, *wire.HeartbeatRequest, *wire.HeartbeatReply) {}

func (f *fixed) stragglers(overdue []int) []int { return overdue }

// returnLeases takes back the leases of a worker that has ended. None of their records counts.
func (f *fixed) returnLeases(_ context.Context, worker int, fault string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stage.Over() {
		return
	}
	f.work.lose(worker, nil, fault)
	f.host.advance(time.Now())
}

func (f *fixed) silence(pod.Role) time.Duration {
	return max(f.Job.TaskTimeout.Duration, silenceLeast)
}

// did returns the participle of what the job does with records.
func (m *master) did() string {
	switch m.Job.Type {
	case job.Evaluate:
		return "measured"
	case job.Predict:
		return "predicted"
	}
	return "trained on"
}

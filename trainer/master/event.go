package master

import (
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// Event is a fact of a job's generation: one of the types below. Log lines tell people the same;
// programs and tests set [Config].OnEvent.
type Event interface{ event() }

// Leased tells that a worker was granted a task for the first time.
type Leased struct{ Lease task.Lease }

// LeaseReturned tells that a lease was taken from its worker unsettled. Its Done records are in the
// model and credited, the others are to be leased again.
type LeaseReturned struct{ Lease task.Lease }

// PodReplaced tells that a pod is to be deleted because it makes no progress or is silent. Its end
// follows as [PodEnded].
type PodReplaced struct {
	ID     pod.ID
	Reason string
}

// PodRefused tells that the creation of a pod was refused, for example for lack of quota or by a
// rule of the cluster. The creation is retried.
type PodRefused struct {
	ID     pod.ID
	Reason string
}

// PodUnwanted tells that the end of a pod was ordered.
type PodUnwanted struct {
	ID     pod.ID
	Reason string
}

// PodJoined tells that an incarnation of a pod has reported to the master for the first time.
type PodJoined struct {
	ID          pod.ID
	Incarnation int
}

// Scaled tells that another number of workers is asked for.
type Scaled struct{ Before, Workers int }

// Started tells that the first master of a job begins, which may continue from the checkpoint of a
// job that has ended.
type Started struct{ Resumed bool }

// Suspended tells that the job is suspended, and that this master has written its last record.
type Suspended struct{}

// Waits tells that the job has not trained for ten seconds, and why.
type Waits struct{ Reason string }

// Continues tells the end of a wait, and its length.
type Continues struct{ After time.Duration }

// Stuck tells that a program seems to make no progress.
type Stuck struct {
	// time since its last sign of life
	For time.Duration
	// ranks that differ from the others; none if no rank does
	Ranks []int
	// where the ranks stand
	Text string
}

// Unstuck tells that a program that was stuck gives signs of life again.
type Unstuck struct {
	// time since the last sign before
	After time.Duration
	// its processes have ended instead
	Restarted bool
}

// WorkerSlow tells that a worker computes clearly slower than the others.
type WorkerSlow struct{ goodput.Slow }

// WorkerAtPace tells that a worker that was slow is no more, or has ended.
type WorkerAtPace struct {
	Worker int
	After  time.Duration
}

// Words returns the event as text.
func (e WorkerAtPace) Words() string {
	return fmt.Sprintf("is not slow any more after %s", seconds(e.After))
}

// Words returns the event as text.
func (e Stuck) Words() string { return fmt.Sprintf("no progress for %s: %s", seconds(e.For), e.Text) }

// Words returns the event as text.
func (e Unstuck) Words() string {
	if e.Restarted {
		return fmt.Sprintf("the processes have ended that made no progress for %s", seconds(e.After))
	}
	return fmt.Sprintf("the program makes progress again after %s", seconds(e.After))
}

// Words returns the event as text.
func (Waits) Words() string { return "The job waits" }

// Words returns the event as text.
func (Continues) Words() string { return "The job continues" }

// Recovered tells that the training makes progress again after a loss, and the time between.
type Recovered struct{ After time.Duration }

// PodEnded tells that a pod has ended.
type PodEnded struct {
	ID          pod.ID
	Incarnation int
	Reason      string
	// Counted reports whether the end counts against the retry limit.
	Counted bool
	// Cause names the cause of the end, by [pod.Exit.Cause].
	Cause string
	// Rejected reports whether the node rejected the pod, so that it has not run.
	Rejected bool
	// GivenUp reports whether the pod is not replaced, because its line has reached the retry
	// limit.
	GivenUp bool
}

// WorldFormed tells that the workers of a ring have a new world.
type WorldFormed struct {
	World rendezvous.World
	// Version is that of the state which the world begins with, 0 if it begins with the initial
	// values.
	Version int64
}

// EpochFinished tells that every record of an epoch is credited and applied. If a master was lost
// before it could write that into the record, the next one tells it again.
type EpochFinished struct {
	Epoch   int
	Records int64
}

// TrainingFinished tells that the last epoch is finished, with the version of the trained model.
type TrainingFinished struct{ Version int64 }

// TrainingRestarted tells that the model is lost and the training starts over from the initial
// values: nothing is credited any more.
type TrainingRestarted struct {
	// ModelGeneration is the model generation that begins.
	ModelGeneration int64
	Reason          string
	// Records counts the records of the previous generation that are no longer credited.
	Records int64
}

// RolledBack tells that the model is lost and the training returns to a checkpoint.
type RolledBack struct {
	// ModelGeneration is the model generation that begins.
	ModelGeneration int64
	Reason          string
	Checkpoint      int64 // number of the checkpoint
	Version         int64 // version of the model in the checkpoint
	// Records counts the records that were credited in the generation before, Kept those in the
	// checkpoint.
	Records, Kept int64
	// Epochs is the number of epochs that are in the checkpoint completely.
	Epochs int
}

// Resumed tells that the model begins with a checkpoint, of the job or of another, and how many of
// the job's records are in it.
type Resumed struct {
	Number, Version, Records int64
	// Epochs is the number of epochs that are in the checkpoint completely.
	Epochs int
}

// CheckpointWritten tells that a checkpoint is at rest, and how many records are in it.
type CheckpointWritten struct {
	Number, Version, Records int64
}

// CheckpointFailed tells that a checkpoint was given up.
type CheckpointFailed struct {
	Number int64
	Reason string
}

// CheckpointDamaged tells that a checkpoint which the model was to begin with cannot be read.
type CheckpointDamaged struct {
	Number int64
	Reason string
}

// MasterReplaced tells that this master has replaced another one.
type MasterReplaced struct {
	Incarnation int
	// the other one has left as planned, as when the job was suspended
	Planned bool
}

// QuotaReturned tells that a job in a queue gives its quota back, as its core lacked some for too
// long, and tries again after a pause.
type QuotaReturned struct {
	Reason string
	Pause  time.Duration
}

// Words returns the event as text.
func (e QuotaReturned) Words() string {
	return fmt.Sprintf("the job gave its quota back for %v: %s", e.Pause.Round(time.Second), e.Reason)
}

// ProgramFailed tells that a process of a program has failed, how, and what follows from it.
type ProgramFailed struct{ Text string }

// Evaluated tells the metrics of an evaluation that is complete.
type Evaluated struct {
	Version int64
	Metrics map[string]float64
}

// EvaluationWithdrawn tells that an evaluation was given up.
type EvaluationWithdrawn struct {
	Version int64
	// server that lost the snapshot; -1: none, the current model has changed
	Server int
}

// Ended tells that the job has ended. Its pods may still be running.
type Ended struct {
	State job.State
	// Err says why the job did not succeed; nil if it did.
	Err error
}

func (Leased) event()              {}
func (LeaseReturned) event()       {}
func (PodReplaced) event()         {}
func (PodRefused) event()          {}
func (PodUnwanted) event()         {}
func (PodEnded) event()            {}
func (WorldFormed) event()         {}
func (EpochFinished) event()       {}
func (TrainingFinished) event()    {}
func (TrainingRestarted) event()   {}
func (RolledBack) event()          {}
func (Resumed) event()             {}
func (CheckpointWritten) event()   {}
func (CheckpointFailed) event()    {}
func (CheckpointDamaged) event()   {}
func (MasterReplaced) event()      {}
func (ProgramFailed) event()       {}
func (Evaluated) event()           {}
func (EvaluationWithdrawn) event() {}
func (QuotaReturned) event()       {}
func (Ended) event()               {}
func (PodJoined) event()           {}
func (Scaled) event()              {}
func (Started) event()             {}
func (Suspended) event()           {}
func (Waits) event()               {}
func (Continues) event()           {}
func (Recovered) event()           {}
func (Stuck) event()               {}
func (Unstuck) event()             {}
func (WorkerSlow) event()          {}
func (WorkerAtPace) event()        {}

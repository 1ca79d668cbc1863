package journal

import (
	"encoding/json"
	"strings"
	"time"
)

// Kind is the kind of an entry. On a cluster it is the reason of the event.
type Kind string

// Kinds of entries. The fields that an entry of a kind has are in parentheses.
const (
	JobStarted Kind = "JobStarted" // the first master has begun
	// its pods end, and it can be resumed
	JobSuspended Kind = "JobSuspended"
	// after a suspension, or a planned change of the master
	JobContinued Kind = "JobContinued"
	// another number of workers is asked for (Size)
	JobScaled Kind = "JobScaled"

	// and was replaced (Number: its new incarnation)
	MasterLost Kind = "MasterLost"

	// a pod has reported to the master for the first time
	PodJoined Kind = "PodJoined"
	PodEnded  Kind = "PodEnded" // as ordered (Cause)
	// not by its own fault (Cause)
	PodLost Kind = "PodLost"
	// by its own fault, which is counted (Cause)
	PodFailed    Kind = "PodFailed"
	PodRejected  Kind = "PodRejected"  // its node would not have it
	PodReplaced  Kind = "PodReplaced"  // no progress, or silent
	FailedCreate Kind = "FailedCreate" // as Kubernetes' controllers call it

	ProgramFailed Kind = "ProgramFailed" // a process of a program

	WorldFormed Kind = "WorldFormed" // (Generation, Size, Version)
	// the job makes progress again after a loss (Seconds)
	Recovered Kind = "Recovered"
	// the job has not trained for ten seconds
	Waiting   Kind = "Waiting"
	Continued Kind = "Continued" // and does again (Seconds)

	// the job seems to make no progress (Seconds, Ranks: those that differ)
	Stuck Kind = "Stuck"
	// it does again, or its processes have ended (Seconds)
	Unstuck Kind = "Unstuck"
	// a worker computes clearly slower than the others
	WorkerSlow Kind = "WorkerSlow"
	// and does no more (Seconds)
	WorkerAtPace Kind = "WorkerAtPace"

	EpochFinished    Kind = "EpochFinished"    // (Epoch, Records)
	TrainingFinished Kind = "TrainingFinished" // (Version)
	// (Generation, Records: those lost)
	TrainingStartedOver Kind = "TrainingStartedOver"
	// (Generation, Number, Version, Records: those lost, Epoch: the last one kept)
	TrainingRolledBack Kind = "TrainingRolledBack"
	// (Number, Version, Records, Epoch: the last one that it has)
	TrainingResumed Kind = "TrainingResumed"

	CheckpointWritten Kind = "CheckpointWritten" // (Number, Version, Records)
	CheckpointFailed  Kind = "CheckpointFailed"  // (Number)
	CheckpointDamaged Kind = "CheckpointDamaged" // (Number)

	Evaluated           Kind = "Evaluated"           // (Version, Metrics)
	EvaluationWithdrawn Kind = "EvaluationWithdrawn" // (Version)

	QuotaReturned Kind = "QuotaReturned" // to the queue, for a while (Seconds)

	TrainingSucceeded Kind = "TrainingSucceeded"
	TrainingFailed    Kind = "TrainingFailed"
	TrainingStopped   Kind = "TrainingStopped"
)

// weight says who wants to know of a kind.
type weight int

const (
	fact    weight = iota
	warning        // worth a warning
	// worth a warning, and a line of the history in the status
	incident
)

// weights has the kinds that are more than facts.
var weights = map[Kind]weight{
	MasterLost: incident,
	PodLost:    incident, PodFailed: incident, PodRejected: incident, PodReplaced: incident,
	FailedCreate: warning, CheckpointFailed: warning, Waiting: warning, Stuck: warning, WorkerSlow: warning,
	EvaluationWithdrawn: warning,
	ProgramFailed:       incident, TrainingStartedOver: incident, TrainingRolledBack: incident,
	CheckpointDamaged: incident, QuotaReturned: incident,
	TrainingFailed: incident, TrainingStopped: incident,
}

// Warning reports whether something of this kind is worth a warning.
func (k Kind) Warning() bool { return weights[k] >= warning }

// Incident reports whether the status of the job shows it among its incidents.
func (k Kind) Incident() bool { return weights[k] == incident }

// End reports whether a job that has this entry has ended.
func (k Kind) End() bool {
	return k == TrainingSucceeded || k == TrainingFailed || k == TrainingStopped
}

const (
	// MostText is the largest length of the text of an entry, in bytes.
	MostText = 1000
	// MostMetrics is the largest number of metrics of an entry, and MostName the largest length of
	// the name of one, in bytes.
	MostMetrics = 30
	MostName    = 100
	// MostRanks is the largest number of ranks of an entry.
	MostRanks = 64
)

// Entry is one fact of a job. Fields that say nothing for its kind are zero.
type Entry struct {
	N      int64 `json:"n"`      // number of the entry, from 1
	UnixMs int64 `json:"unixMs"` // when it happened
	Kind   Kind  `json:"kind"`
	// Pod is the pod of which it tells, as in "worker-1", and Incarnation that of the pod.
	Pod         string `json:"pod,omitempty"`
	Incarnation int    `json:"incarnation,omitempty"`
	// Cause is the cause of an end, as the table of pod.Exit has it: "preempted", "killed".
	Cause string `json:"cause,omitempty"`
	// Text says it in words, without the name of the pod. The caller escapes it.
	Text string `json:"text,omitempty"`

	Generation int64 `json:"generation,omitempty"` // of the world, or of the model
	Size       int   `json:"size,omitempty"`       // workers
	// Epoch is the number of an epoch, from 1; of a rollback, the last that the model has kept.
	Epoch   int     `json:"epoch,omitempty"`
	Number  int64   `json:"number,omitempty"`  // of the checkpoint, or of the master
	Version int64   `json:"version,omitempty"` // updates in the model
	Records int64   `json:"records,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Ranks   []int   `json:"ranks,omitempty"` // at most [MostRanks]
	// Metrics holds the results of an evaluation: the first by name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Time returns when it happened.
func (e Entry) Time() time.Time { return time.UnixMilli(e.UnixMs) }

// Words returns the entry on one line, with its subject.
func (e Entry) Words() string {
	switch {
	case e.Pod != "":
		return e.Pod + ": " + e.Text
	case e.Kind == TrainingFailed:
		return "the job Failed: " + e.Text
	case e.Kind == TrainingStopped:
		return "the job Stopped: " + e.Text
	}
	return e.Text
}

// brief returns a text of at most [MostText] bytes, in UTF-8.
func brief(text string) string { return strings.ToValidUTF8(text[:min(len(text), MostText)], "") }

// size returns the number of bytes that the entry has as JSON, with the comma behind it.
func (e Entry) size() int {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // all fields of an entry have JSON
	}
	return len(text) + 1
}

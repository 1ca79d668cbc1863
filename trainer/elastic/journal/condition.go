package journal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Types of conditions, as the API of Kubernetes has conditions.
const (
	// Admitted: the job's core has what it needs of its queue, or it is in none.
	Admitted = "Admitted"
	// Running: the job trains.
	Running = "Running"
	// Degraded: the job continues with less than it asks for.
	Degraded = "Degraded"
	// Checkpointed: there is a checkpoint from which the job could continue.
	Checkpointed = "Checkpointed"
	// Complete: the job has succeeded.
	Complete = "Complete"
	// Failed: the job has ended without success.
	Failed = "Failed"
)

// Reasons of the condition [Admitted].
const (
	NoQueue         = "NoQueue"
	QuotaReserved   = "QuotaReserved"
	WaitingForQuota = "WaitingForQuota"
)

// Reasons of conditions that others compare with.
const (
	Waits     = "Waiting"   // of Running: the job waits for something
	Suspended = "Suspended" // the job is suspended
	Finished  = "Finished"  // the job has ended
	// NoProgress is that of Running and Degraded: the job seems to make no progress.
	NoProgress = "NoProgress"
)

// Condition is one statement about a job, with its reason.
type Condition struct {
	Type string `json:"type"`
	// Status reports whether it is so.
	Status bool `json:"status"`
	// Reason is one word for programs, as in "WorkersMissing".
	Reason string `json:"reason"`
	// Message says more, for people. It may be empty.
	Message string `json:"message,omitempty"`
	// UnixMs is the time of the last change of Status.
	UnixMs int64 `json:"unixMs"`
}

// Facts has the facts by which the conditions of a job are judged.
type Facts struct {
	// State of the job: Pending, Running, Succeeded, Failed, Stopped; Suspended.
	State string
	// Reason says why it has ended; empty: it succeeded, or has not ended.
	Reason string
	// Waiting names the thing that the job waits for; empty: it waits for nothing.
	Waiting string
	// Stuck says where the ranks stand if the job seems to make no progress; empty: it makes some.
	Stuck string
	// Queue is the job's queue; empty: none. Queued says what of the core lacks quota there.
	Queue, Queued string
	// Asked is the number of workers that are asked for, Working that of those that run.
	Asked, Working int
	// Problems lists the problems around the job, although it continues.
	Problems []string
	// Saves reports whether the job makes checkpoints. Saved is the time of the newest, 0 if there
	// is none. Unread: the directory could not be read yet, so there may be one. Holds describes
	// its content, and Unsaved the failure of the last attempt.
	Saves   bool
	Unread  bool
	Saved   int64 // Unix time in milliseconds
	Holds   string
	Unsaved string
}

// Ended reports whether the job is over.
func (f Facts) Ended() bool {
	return f.State == "Succeeded" || f.State == "Failed" || f.State == "Stopped"
}

// Judge returns the conditions of a job, without times.
func Judge(f Facts) []Condition {
	return []Condition{f.admitted(), f.running(), f.degraded(), f.checkpointed(), f.complete(), f.failed()}
}

func (f Facts) admitted() Condition {
	c := Condition{Type: Admitted, Status: true, Reason: QuotaReserved}
	switch {
	case f.Ended():
		c.Status, c.Reason = false, Finished
	case f.State == "Suspended":
		c.Status, c.Reason = false, Suspended
	case f.Queue == "":
		c.Reason = NoQueue
	case f.Queued != "":
		c.Status, c.Reason, c.Message = false, WaitingForQuota, f.Queued
	}
	return c
}

func (f Facts) running() Condition {
	c := Condition{Type: Running, Reason: f.State}
	switch {
	case f.Ended():
		c.Reason = Finished
	case f.State == "Suspended":
	case f.Waiting != "":
		c.Reason, c.Message = Waits, f.Waiting
	case f.Stuck != "":
		c.Reason, c.Message = NoProgress, f.Stuck
	case f.State != "Running":
	case f.Working == 0:
		c.Reason, c.Message = "NoWorker", "no worker runs"
	default:
		c.Status, c.Reason = true, "Training"
		c.Message = fmt.Sprintf("%d of %d workers", f.Working, f.Asked)
	}
	return c
}

func (f Facts) degraded() Condition {
	c := Condition{Type: Degraded, Reason: "AsRequested"}
	switch {
	case f.Ended():
		c.Reason = Finished
	case f.State != "Running":
		c.Reason = cmp.Or(f.State, "Pending")
	case f.Stuck != "":
		c.Status, c.Reason, c.Message = true, NoProgress, f.Stuck
	case f.Working < f.Asked:
		c.Status, c.Reason = true, "WorkersMissing"
		c.Message = fmt.Sprintf("%d of %d workers run", f.Working, f.Asked)
	case len(f.Problems) > 0:
		c.Status, c.Reason, c.Message = true, "Problem", strings.Join(f.Problems, "; ")
	}
	return c
}

func (f Facts) checkpointed() Condition {
	c := Condition{Type: Checkpointed, Status: f.Saved > 0, Reason: "CheckpointWritten"}
	switch {
	case f.Saved > 0:
		c.Message = f.Holds
	case f.Unread:
		c.Reason, c.Message = "Unread", "the directory could not be read yet"
	case f.Saves:
		c.Reason = "NoneYet"
	default:
		c.Reason, c.Message = "NotConfigured", "no checkpoint is known to the job"
	}
	if f.Unsaved != "" {
		c.Reason, c.Message = "CheckpointFailed", strings.TrimPrefix(c.Message+"; the last attempt: "+f.Unsaved, "; ")
	}
	return c
}

func (f Facts) complete() Condition {
	if f.State == "Succeeded" {
		return Condition{Type: Complete, Status: true, Reason: "Succeeded"}
	}
	return Condition{Type: Complete, Reason: "NotSucceeded"}
}

func (f Facts) failed() Condition {
	if f.State == "Failed" || f.State == "Stopped" {
		return Condition{Type: Failed, Status: true, Reason: f.State, Message: f.Reason}
	}
	return Condition{Type: Failed, Reason: "NotFailed"}
}

// Observe notes the conditions of a job, and returns them with the times of their last changes.
func (j *Journal) Observe(now []Condition, at time.Time) []Condition {
	for i, c := range now {
		c.UnixMs = at.UnixMilli()
		c.Message = brief(c.Message)
		was := slices.IndexFunc(j.conditions, func(o Condition) bool { return o.Type == c.Type })
		if was >= 0 && j.conditions[was].Status == c.Status {
			c.UnixMs = j.conditions[was].UnixMs
		}
		now[i] = c
	}
	j.conditions = slices.Clone(now)
	return now
}

// roleOf returns the role in the name of a pod: "worker" of "worker-1".
func roleOf(name string) string {
	role, _, _ := strings.Cut(name, "-")
	return role
}

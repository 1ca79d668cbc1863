package master

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// factsOf returns the facts by which the conditions of a job are judged, as its status has them.
// The status does not have what the job lacks in its queue.
func factsOf(s *wire.JobStatus, queue string) journal.Facts {
	f := journal.Facts{State: s.State, Reason: s.Reason, Waiting: s.Waiting, Stuck: s.Stuck, Queue: queue,
		Asked: int(s.Workers), Problems: s.Problems, Unsaved: s.Unsaved}
	for _, p := range s.Pods {
		if p.Role == wire.Role_WORKER && p.State == pod.Running.String() {
			f.Working++
		}
	}
	if c := s.Checkpoint; c != nil {
		f.Saves, f.Unread, f.Saved, f.Unsaved = true, c.Unread, c.UnixMs, c.Problem
		f.Holds = fmt.Sprintf("version %s with %s records", logline.Thousands(c.Version), logline.Thousands(c.Records))
	} else if c := s.Saved; c != nil {
		f.Saves, f.Saved, f.Holds = true, c.UnixMs, "step "+logline.Thousands(c.Round)
	}
	return f
}

// Rejudge sets the conditions in a status that somebody else than the job's master has changed, as
// when the master was lost. Their times change only with their status.
func Rejudge(s *wire.JobStatus, now time.Time) {
	var before []journal.Condition
	queue, queued, known := "", "", false
	for _, c := range s.Conditions {
		before = append(before, journal.Condition{Type: c.Type, Status: c.Status == conditionTrue, Reason: c.Reason,
			Message: c.Message, UnixMs: c.LastTransitionUnixMs})
		if c.Type != journal.Admitted {
			continue
		}
		known = c.Reason != journal.Suspended && c.Reason != journal.Finished
		switch c.Reason {
		case journal.NoQueue:
		case journal.WaitingForQuota:
			queue, queued = "known", cmp.Or(c.Message, c.Reason)
		default:
			queue = "known"
		}
	}
	if ended := (journal.Facts{State: s.State}).Ended(); ended || s.State == journal.Suspended {
		s.Stuck, s.StuckSinceUnixMs = "", 0
	}
	f := factsOf(s, queue)
	f.Queued = queued
	judged := journal.Judge(f)
	if !known && !f.Ended() && f.State != journal.Suspended {
		judged = slices.DeleteFunc(judged, func(c journal.Condition) bool { return c.Type == journal.Admitted })
	}
	j := journal.Restore(journal.Snapshot{Conditions: before})
	s.Conditions = wireConditions(j.Observe(judged, now))
}

// Status of a condition, as the API of Kubernetes has it.
const (
	conditionTrue  = "True"
	conditionFalse = "False"
)

// wireConditions returns conditions as a status has them.
func wireConditions(all []journal.Condition) (conditions []*wire.Condition) {
	for _, c := range all {
		status := conditionFalse
		if c.Status {
			status = conditionTrue
		}
		conditions = append(conditions, &wire.Condition{Type: c.Type, Status: status, Reason: c.Reason,
			Message: logline.Escape(c.Message), LastTransitionUnixMs: c.UnixMs})
	}
	return conditions
}

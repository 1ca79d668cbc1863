package pod

import (
	"fmt"
	"slices"
	"time"
)

// creation is the progress of a pod's creation.
type creation struct {
	due     time.Time // Wanted: when it is to be tried
	refused int       // how often in a row it was refused
	since   time.Time // when it was refused first
	full    bool      // the last refusal was for want of room
}

// refusals limits the time for which the creation of a server may be refused. Without one nothing
// is done, and the workers only hold what others could use.
const refusals = 10 * time.Minute

// Refusal is the reason why a Create could not be performed.
type Refusal struct {
	Reason string
	// for want of room, so that the end of another pod may help
	Full bool
	// by a rule of the cluster, which somebody may change
	Denied bool
	// no cluster accepts the pod's manifest unless its rules are changed
	Hopeless bool
}

// Refused notes that a Create could not be performed. It is tried again, later each time and
// without counting it: a worker without end, a server for ten minutes. A server without room is
// given a worker's. Only if no pod of its role has ever run does a hopeless one fail the job, and
// one that a rule has denied for ten minutes.
func (t *Table) Refused(id ID, incarnation int, why Refusal, now time.Time) []Action {
	e := t.byID[id]
	if e == nil || e.Incarnation != incarnation || e.Phase != Creating {
		return nil
	}
	if t.course != going || e.line.current != e {
		e.cancel(e.order, now)
		return t.Tick(now)
	}
	c := &e.creation
	if c.refused == 0 {
		c.since = now
	}
	if c.refused++; why.Full && t.freed.After(e.Created) {
		c.refused = 1 // there may be room since
	}
	c.due, c.full = now.Add(t.policy.delay(c.refused, maxRefused)), why.Full
	e.Phase, e.order, e.Core = Wanted, "", false
	e.Waiting = "cannot be created: " + why.Reason
	switch lasted := now.Sub(c.since); {
	case why.Hopeless:
		t.impossible(e, e.Waiting)
	case why.Denied && lasted >= refusals:
		t.impossible(e, fmt.Sprintf("could not be created for %v: %s", lasted.Round(time.Second), why.Reason))
	}
	if id.Role != PS {
		return t.Tick(now) // others may have waited for it
	}
	if now.Sub(c.since) >= refusals && t.err == nil {
		t.err = fmt.Errorf("%v could not be created for %v: %s", id, now.Sub(c.since).Round(time.Second), why.Reason)
	}
	return t.freeResources(now)
}

// made continues when a pod is created: others may have waited for that. If it was refused before,
// there is room now.
func (t *Table) made(refused bool, now time.Time) []Action {
	// perhaps there is room for the next one, too
	if refused {
		if i := slices.IndexFunc(t.pods, func(next *entry) bool {
			return next.Phase == Wanted && next.creation.full
		}); i >= 0 {
			t.pods[i].soon(t.policy)
		}
	}
	return t.Tick(now)
}

// freeResources deletes a worker for each server that lacks resources, less the workers that are
// stopping already: pending ones before running ones, the newest first. A worker that is only being
// created holds no resources yet.
func (t *Table) freeResources(now time.Time) []Action {
	lacking := 0
	for _, e := range t.pods {
		switch {
		case e.lacksResources() && now.Sub(e.creation.since) >= accounted:
			lacking++
		case e.freesResources(now):
			lacking--
		}
	}
	workers := slices.DeleteFunc(t.workers(), func(e *entry) bool { return e.Phase < Pending || e.order != "" })
	slices.SortStableFunc(workers, keepFirst)
	var actions []Action
	for _, e := range workers[max(0, len(workers)-max(0, lacking)):] {
		actions = append(actions, t.remove(e, "resources are needed by a parameter server", now)...)
	}
	return actions
}

// lacksResources reports whether the pod is a server that could not be created for want of
// resources, and whose creation is to be tried again.
func (e *entry) lacksResources() bool { return e.ID.Role == PS && e.Phase == Wanted && e.creation.full }

// accounted is the time within which a cluster frees the resources of a pod that has ended, such as
// a server's former incarnation.
const accounted = 3 * time.Second

// freesResources reports whether the pod is a worker that is stopping, or has just ended.
func (e *entry) freesResources(now time.Time) bool {
	switch {
	case e.ID.Role != Worker || e.Phase == Wanted || e.Phase == Cancelled:
		return false
	case e.Phase.Ended():
		return now.Sub(e.Ended) < accounted
	}
	return e.order != "" || e.Phase == Leaving
}

// soon has a creation that was refused tried again at once, and often.
func (e *entry) soon(p Policy) {
	if at := e.Created.Add(p.Backoff); at.Before(e.creation.due) {
		e.creation.due, e.creation.refused = at, 1
	}
}

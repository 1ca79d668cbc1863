package pod

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Snapshot is the state of a table that only the table knows: the numbers that were given out, and
// what befell each line before. It is of the size of the job: about 40 bytes for each worker, and
// some for each server.
type Snapshot struct {
	// number of the next worker: those below it may have been given out
	Next int `json:"next"`
	// as many were wanted last, by the policy or by [Table.Scale]
	Workers    int `json:"workers"`
	Relaunched int `json:"relaunched,omitempty"`
	// the roles of which a pod has run
	Ran     []Role `json:"ran,omitempty"`
	Servers []Line `json:"servers,omitempty"`
	// of workers
	Lines  []Line   `json:"lines,omitempty"`
	Failed []string `json:"failed,omitempty"`
	Err    string   `json:"err,omitempty"`
	Over   bool     `json:"over,omitempty"`
	// if the job is over: what is there then is deleted. Milliseconds since 1970, as are all times
	LeaveBy int64 `json:"leaveBy,omitempty"`
}

// Line is a pod and those that it replaced, in a [Snapshot].
type Line struct {
	// of its current pod
	Index int `json:"i"`
	// of a worker: the number of its first pod, which priorities go by
	Slot int `json:"slot,omitempty"`
	// of a server
	Incarnation int `json:"launch,omitempty"`
	Counted     int `json:"charged,omitempty"`
	OOMs        int `json:"ooms,omitempty"`
	Rejected    int `json:"rejected,omitempty"`
	// of a server: where it listens again
	Address string `json:"address,omitempty"`
	// Due is the time at which its current pod is to be created, if it was not yet; zero: it may
	// be there.
	Due int64 `json:"due,omitempty"`
	// Since is the time at which that creation was refused first; zero: it was not.
	Since int64 `json:"since,omitempty"`
}

// The longest texts of a snapshot.
const (
	keptErr = 1000 // bytes of an error
	// lines that ended, as many as an error names
	keptFailed = 4
)

func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), keptErr)], "")
}

// Snapshot returns what [Restore] takes. The shell writes one before it performs a [Create] that
// was handed out before the snapshot was taken, so that whatever may exist has its number in it.
func (t *Table) Snapshot() Snapshot {
	s := Snapshot{Next: t.next, Workers: t.desired, Relaunched: t.relaunched, Over: t.course != going,
		LeaveBy: milli(t.leaveBy)}
	for _, role := range []Role{PS, Worker} {
		if t.ran[role] {
			s.Ran = append(s.Ran, role)
		}
	}
	for _, text := range t.failed[max(0, len(t.failed)-keptFailed):] {
		s.Failed = append(s.Failed, shorten(text))
	}
	if t.err != nil {
		s.Err = shorten(t.err.Error())
	}
	for _, e := range t.pods {
		l := Line{Index: e.ID.Index, Counted: e.line.Counted, OOMs: e.line.OOMs, Rejected: e.line.Rejected}
		if e.Phase == Wanted {
			l.Due, l.Since = milli(e.creation.due), milli(e.creation.since)
		}
		switch {
		case e.ID.Role == PS:
			l.Incarnation, l.Address = e.Incarnation, e.Address
			s.Servers = append(s.Servers, l)
		case e.wanted():
			l.Slot = e.Original
			s.Lines = append(s.Lines, l)
		}
	}
	return s
}

// most is the limit of all numbers in a snapshot.
const most = 1 << 30

// validate names everything in a snapshot that cannot be.
func (s *Snapshot) validate(p Policy) error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	number := func(n int) bool { return n >= 0 && n < most }
	check(number(s.Next) && number(s.Workers) && number(s.Relaunched),
		"next worker %d of %d, %d relaunched", s.Next, s.Workers, s.Relaunched)
	check(len(s.Servers) == p.Servers, "%d servers, the job has %d", len(s.Servers), p.Servers)
	for i, l := range s.Servers {
		check(l.Index == i && l.Incarnation > 0 && l.Incarnation < most,
			"server %d is the one at place %d, incarnation %d", l.Index, i, l.Incarnation)
	}
	indices, slots := make(map[int]bool), make(map[int]bool)
	for _, l := range s.Lines {
		check(l.Index >= 0 && l.Index < s.Next, "worker %d is not below the next, %d", l.Index, s.Next)
		check(number(l.Slot) && !slots[l.Slot] && !indices[l.Index],
			"worker %d or its slot %d is there twice", l.Index, l.Slot)
		indices[l.Index], slots[l.Slot] = true, true
	}
	for _, l := range slices.Concat(s.Servers, s.Lines) {
		check(number(l.Counted) && number(l.OOMs) && number(l.Rejected),
			"line of %d: counted %d, out of memory %d, rejected %d times", l.Index, l.Counted, l.OOMs, l.Rejected)
	}
	for _, r := range s.Ran {
		check(r == PS || r == Worker, "a pod that ran as %v", r)
	}
	return errors.Join(problems...)
}

// absent is the reason of the loss of a pod that was there, or may have been, when the snapshot was
// taken.
const absent = "it ended while the master was away"

// Restore makes the table of a master that comes back. Observed is all pods of the job that the
// runtime lists, each once, those that have ended and are listed still included; the list was taken
// after the master before had been asked to end.
//
// The list has the phase of a pod of the snapshot; one that is not listed is reported lost and
// replaced, under another number: its creation may have been under way, and if it comes later it is
// deleted. A worker that the snapshot does not name takes the place of one that is not listed;
// without such a place it is deleted, unless it leaves already. Times of the snapshot are no later
// than the longest wait from now.
func Restore(p Policy, s Snapshot, observed []Event, now time.Time) (*Table, []Action, error) {
	if err := s.validate(p); err != nil {
		return nil, nil, fmt.Errorf("restore the pods: snapshot: %w", err)
	}
	t := New(p)
	t.next, t.desired, t.relaunched, t.failed = s.Next, s.Workers, s.Relaunched, s.Failed
	for _, role := range s.Ran {
		t.ran[role] = true
	}
	if s.Err != "" {
		t.err = errors.New(s.Err)
	}
	if s.Over {
		t.course, t.leaveBy = ending, soonest(s.LeaveBy, now)
	}
	there := t.list(observed)
	for _, l := range s.Servers {
		t.restore(ID{PS, l.Index}, l, there, now)
	}
	lines := slices.SortedFunc(slices.Values(s.Lines), func(a, b Line) int { return cmp.Compare(a.Index, b.Index) })
	for _, l := range lines {
		t.restore(ID{Worker, l.Index}, l, there, now)
	}
	unwanted := t.settleIn(observed, there, now)
	slices.SortStableFunc(t.pods, func(a, b *entry) int {
		return a.ID.Compare(b.ID)
	})
	actions := t.resume(there, now)
	for _, e := range unwanted {
		if e.Phase != Leaving {
			actions = append(actions, t.remove(e, "it is not needed any more", now)...)
		}
	}
	for _, ev := range observed {
		if ev.ID.Role != Master && t.byID[ev.ID] == nil {
			actions = append(actions, t.Observe(ev, now)...)
		}
	}
	return t, append(actions, t.Tick(now)...), nil
}

// milli returns a time of a snapshot, not before t; 0 for none.
func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

// soonest returns a time of a snapshot, or the longest wait from now if it is later.
func soonest(at int64, now time.Time) time.Time {
	return time.UnixMilli(min(at, now.Add(maxBackoff).UnixMilli()))
}

// list returns what is observed of the job's pods, by pod. No number of a worker in it is given out
// again.
func (t *Table) list(observed []Event) map[ID]Event {
	there := make(map[ID]Event, len(observed))
	for _, ev := range observed {
		if ev.ID.Role == Worker {
			t.next = max(t.next, ev.ID.Index+1)
		}
		if before, ok := there[ev.ID]; !ok || ev.Incarnation >= before.Incarnation {
			there[ev.ID] = ev
		}
	}
	return there
}

// restore adds a line with its current pod, as one that may be there unless it was only wanted.
func (t *Table) restore(id ID, saved Line, there map[ID]Event, now time.Time) {
	l := &line{Past: Past{saved.Counted, saved.OOMs, saved.Rejected}}
	slot := saved.Slot
	if id.Role == PS {
		slot = id.Index
	}
	e := t.add(id, slot, l, soonest(saved.Due, now))
	ev, listed := there[id]
	e.Incarnation, e.Address = max(saved.Incarnation, ev.Incarnation, 1), saved.Address
	e.Core = ev.Core
	switch {
	case saved.Due == 0 || listed && ev.Incarnation == e.Incarnation:
		e.Phase, e.Created, e.creation = Creating, now, creation{}
	case t.course != going:
		e.cancel("the job is over", now)
	case saved.Since != 0:
		e.creation.refused, e.creation.since = 1, time.UnixMilli(min(saved.Since, now.UnixMilli()))
	}
}

// settleIn gives the workers that are listed, live, and of no line the places of those that are not
// listed, and returns the others.
func (t *Table) settleIn(observed []Event, there map[ID]Event, now time.Time) (unwanted []*entry) {
	var vacant []*entry
	for _, e := range t.pods {
		if _, listed := there[e.ID]; !listed && e.ID.Role == Worker && e.Phase == Creating {
			vacant = append(vacant, e)
		}
	}
	for _, ev := range observed {
		if ev.ID.Role != Worker || ev.Phase.Ended() || t.byID[ev.ID] != nil {
			continue
		}
		l, slot := new(line), ev.ID.Index
		takes := ev.Phase != Leaving && len(vacant) > 0
		if takes {
			l, slot = vacant[0].line, vacant[0].Original
			vacant = vacant[1:]
		}
		e := t.add(ev.ID, slot, l, now)
		e.Phase, e.Created, e.creation, e.Core = Creating, now, creation{}, ev.Core
		if !takes {
			l.current = nil
			unwanted = append(unwanted, e)
		}
	}
	return unwanted
}

// resume tells the table what is not listed of its pods, and then what is: that may have others
// created.
func (t *Table) resume(there map[ID]Event, now time.Time) []Action {
	var actions []Action
	var listed []Event
	for _, e := range slices.Clone(t.pods) {
		ev, ok := there[e.ID]
		switch {
		case ok && (ev.Incarnation == 0 || ev.Incarnation == e.Incarnation):
			listed = append(listed, ev)
		case e.Phase == Creating:
			actions = append(actions, t.vanished(e, now))
		}
	}
	for _, ev := range listed {
		actions = append(actions, t.Observe(ev, now)...)
	}
	return actions
}

// vanished replaces a pod of the snapshot that is not listed.
func (t *Table) vanished(e *entry, now time.Time) Action {
	lost := Action{Verb: Lost, ID: e.ID, Incarnation: e.Incarnation, Reason: absent, Cause: causeAbsent}
	current := e.line.current == e
	e.cancel(absent, now)
	// that may be for want of this one
	if !current || t.course != going || t.err != nil && e.ID.Role == PS {
		return lost
	}
	if due := now.Add(t.policy.Backoff); e.ID.Role == Worker {
		t.addReplacement(e, due)
	} else {
		t.again(e, due)
	}
	return lost
}

package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

var errNext = errors.New("another master has begun")

// model has a flag for each thing that can be true of a job, and no stages.
type model struct {
	t       *rapid.T
	l, twin *Lifecycle
	now     time.Time
	f       Facts
	// of this master
	planned, recovering, trained, begun, sealed bool
	left                                        error
	how                                         Notice
	since, by                                   time.Time
	version                                     int64
	// of the job
	state          job.State
	reason         string
	started, ended time.Time
	// record of the previous masters; nil: this is the first
	former *Snapshot
	// what a next master would read
	written *Snapshot
}

func newModel(t *rapid.T) *model {
	return &model{t: t, l: New(policy, start), twin: New(policy, start), now: start, started: start, state: job.Pending,
		f: Facts{Checkpoints: rapid.Bool().Draw(t, "checkpoints"), Pods: true,
			Undone: errors.New("1 task is not done")}}
}

func (m *model) over() bool { return m.state.Ended() || m.state == job.Suspended }

// both makes the same call on the lifecycle and its twin, and performs the actions.
func (m *model) both(do func(l *Lifecycle) []Action) []Action {
	m.t.Helper()
	did, other := do(m.l), do(m.twin)
	if fmt.Sprint(did) != fmt.Sprint(other) {
		m.t.Fatalf("same calls, other actions: %v and %v", did, other)
	}
	for i, a := range did {
		s := m.l.Snapshot()
		switch a.Verb {
		case Record, Seal:
			m.write(s, a.Verb == Seal)
		case End:
			if a.Recorded {
				m.write(s, false)
			} else if sealed := i > 0 && did[i-1].Verb == Seal; !sealed && m.former == nil {
				m.t.Fatalf("%v: the end is not written before it is performed", did)
			}
		}
	}
	return did
}

// write keeps a record for the next master.
func (m *model) write(s Snapshot, last bool) {
	if m.sealed {
		m.t.Fatalf("%+v is written behind the last record %+v", s, m.written)
	}
	if m.sealed = last; s.Last != last {
		m.t.Fatalf("%+v is written as the last record: %t", s, last)
	}
	m.written = &s
}

// Plan plans the job. A restored master asks what is in the model, or ends what is left.
func (m *model) Plan(*rapid.T) {
	did := m.both(func(l *Lifecycle) []Action { return l.Plan(m.now) })
	if m.planned || m.over() || m.left != nil {
		m.want(did)
		return
	}
	m.planned = true
	defer func() { m.write(m.l.Snapshot(), false) }() // as the master does
	if s := m.former; s != nil {
		if s.State.Ended() {
			m.state, m.ended, m.reason = s.State, m.now, s.Reason
			m.want(did, Action{Verb: End}, Action{Verb: Wake})
			return
		}
		if m.recovering, m.begun = true, s.Begun; m.begun {
			m.state = job.Running
		}
	}
	m.want(did)
}

func (m *model) want(did []Action, want ...Action) {
	m.t.Helper()
	if !slices.Equal(did, want) {
		m.t.Fatalf("%v, want %v", did, want)
	}
}

// trains skips a step that is made by a master that knows its model only.
func (m *model) trains(t *rapid.T) {
	if !m.planned || m.recovering || m.over() || m.left != nil {
		t.Skip("no training")
	}
}

func (m *model) Recovered(t *rapid.T) {
	m.both(func(l *Lifecycle) []Action { l.Recovered(); return nil })
	if !m.over() && m.left == nil {
		m.recovering = false
	}
}

func (m *model) Grant(t *rapid.T) {
	m.trains(t)
	did := m.both(func(l *Lifecycle) []Action { return l.Grant() })
	m.state = job.Running
	if m.begun {
		m.want(did)
		return
	}
	m.begun = true
	m.want(did, Action{Verb: Record})
}

func (m *model) Complete(t *rapid.T) {
	m.trains(t)
	m.both(func(l *Lifecycle) []Action { l.Complete(); return nil })
	m.trained = true
}

func (m *model) Rollback(t *rapid.T) {
	if !m.planned || m.over() || m.left != nil {
		t.Skip("no model")
	}
	m.both(func(l *Lifecycle) []Action { l.Rollback(); return nil })
	m.trained, m.begun = false, false
}

// Learn changes what other machines know.
func (m *model) Learn(t *rapid.T) {
	m.f.Version += int64(rapid.IntRange(0, 3).Draw(t, "updates"))
	m.f.Covered = rapid.Int64Range(m.f.Covered, max(m.f.Covered, m.f.Version)).Draw(t, "covered")
	m.f.Pods, m.f.Processes = rapid.IntRange(0, 5).Draw(t, "pods") > 0, nil
	if rapid.IntRange(0, 1).Draw(t, "program") == 0 {
		may := rapid.IntRange(0, 4)
		m.f.Processes = &Processes{Asked: may.Draw(t, "asked") > 0, Finished: may.Draw(t, "finished") == 0,
			Trained: may.Draw(t, "trained") > 0, Hold: may.Draw(t, "hold") > 0, Rested: may.Draw(t, "rested") == 0}
	}
}

// Close sends a notice.
func (m *model) Close(t *rapid.T) {
	n := rapid.SampledFrom([]Notice{0, 0, 0, Leave, Suspend, Stop, Yield}).Draw(t, "notice")
	var ok bool
	did := m.both(func(l *Lifecycle) (did []Action) { did, ok = l.Close(n, m.f, m.now); return did })
	counts := n == Leave || n == Suspend || n == Yield && m.how == 0
	if want := !m.over() && m.left == nil && m.how != Stop && counts; ok != want {
		t.Fatalf("%v counts: %t, want %t", n, ok, want)
	} else if want {
		m.request(n, did)
	}
}

func (m *model) request(n Notice, did []Action) {
	if m.how == 0 {
		m.since, m.by, m.version = m.now, m.now.Add(policy.Grace), m.f.Version
		if m.begun {
			m.version = max(1, m.version)
		}
	}
	if m.how = n; n == Leave {
		m.want(did)
		return
	}
	m.want(did, Action{Verb: Hold})
}

// Stop stops the job.
func (m *model) Stop(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("continues")
	}
	again := rapid.Bool().Draw(t, "again")
	var later bool
	did := m.both(func(l *Lifecycle) (did []Action) {
		did, later = l.Stop(errors.New("stopped"), again, m.f, m.now)
		return did
	})
	switch {
	case m.over() || m.left != nil || !m.planned && m.former != nil && m.former.State.Ended():
		m.want(did)
	case !m.planned || again && m.how != 0 && m.how != Leave:
		m.ends(job.Stopped, "stopped; 1 task is not done", did)
	case !later:
		t.Fatalf("the job is to stop later: %v", did)
	default:
		m.request(Stop, did)
	}
}

// ends notes that the job has ended by these actions.
func (m *model) ends(state job.State, reason string, did []Action) {
	m.state, m.reason, m.ended = state, reason, m.now
	grace := policy.Farewell
	if state != job.Succeeded {
		grace = 0
	}
	m.want(did, Action{Verb: Report}, Action{Verb: End, Grace: grace, Recorded: true}, Action{Verb: Wake})
}

// Fail ends the job, or has it succeed.
func (m *model) Fail(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
		t.Skip("continues")
	}
	state, err, reason := job.Succeeded, error(nil), ""
	if rapid.Bool().Draw(t, "fails") {
		state, err, reason = job.Failed, errors.New("failed"), "failed; 1 task is not done"
	}
	did := m.both(func(l *Lifecycle) []Action { return l.End(state, err, m.f.Undone, m.now) })
	if m.over() || m.left != nil {
		m.want(did)
		return
	}
	if s := m.former; !m.planned && s != nil && s.State.Ended() {
		state, reason = s.State, s.Reason
	}
	m.ends(state, reason, did)
}

// Wait lets time pass, and takes the step that is due.
func (m *model) Wait(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 5 * time.Second, policy.Grace}).Draw(t, "time"))
	did := m.both(func(l *Lifecycle) []Action { return l.Step(m.f, m.now) })
	unsaved := m.f.Checkpoints && m.f.Covered < m.version
	switch {
	case m.how == 0 || !m.planned || m.over() || m.left != nil:
		m.want(did)
		return
	case m.f.Pods && m.f.Checkpoints && m.now.Before(m.by) && (m.recovering || m.begun && unsaved):
		m.want(did) // it waits for a checkpoint
		return
	case m.f.Pods && m.how != Leave && m.now.Before(m.by) && m.f.Processes != nil &&
		*m.f.Processes == Processes{Asked: true, Trained: true, Hold: true}:
		m.want(did) // it waits for the processes
		return
	}
	if unsaved {
		m.want(did[:1], Action{Verb: Unsaved, Version: m.version})
		did = did[1:]
	}
	switch m.how {
	case Leave:
		m.left = ErrLeft
		m.want(did, Action{Verb: Seal}, Action{Verb: Wake})
	case Suspend, Yield:
		m.state, m.reason, m.ended = job.Suspended, ErrSuspended.Error(), m.now
		if m.how == Yield {
			m.reason = ErrYielded.Error()
		}
		m.want(did, Action{Verb: Seal}, Action{Verb: End}, Action{Verb: Wake})
	default:
		m.ends(job.Stopped, "stopped; 1 task is not done", did)
	}
}

// Supersede tells the master that another has begun.
func (m *model) Supersede(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
		t.Skip("it is the only one")
	}
	did := m.both(func(l *Lifecycle) []Action { return l.Supersede(errNext) })
	if m.left == nil {
		m.left = errNext
		m.want(did, Action{Verb: Wake})
	}
}

// Restart has another master follow, which reads the last record.
func (m *model) Restart(t *rapid.T) {
	if m.written == nil {
		t.Skip("no master has written anything")
	}
	text, err := json.Marshal(m.written)
	s := new(Snapshot)
	if err = errors.Join(err, json.Unmarshal(text, s)); err == nil {
		m.l, err = Restore(policy, *s, m.now)
	}
	if err == nil {
		m.twin, err = Restore(policy, *s, m.now)
	}
	if err != nil {
		t.Fatal(err)
	}
	state, reason := m.state, m.reason
	// this master has not learnt what has become of the job
	if m.former != nil && !m.planned && !m.over() {
		if state, reason = m.former.State, m.former.Reason; m.former.Rests {
			state = job.Suspended
		}
	}
	ended := state.Ended()
	if s.State.Ended() != ended || ended && (s.State != state || s.Reason != reason) ||
		s.Rests != (state == job.Suspended) || !s.Started.Equal(m.started) {
		t.Fatalf("%s of a job that is %s: %s", text, state, reason)
	}
	*m = model{t: m.t, l: m.l, twin: m.twin, now: m.now, f: m.f, state: job.Pending, started: m.started,
		former: s, written: s}
}

// Hint writes a record, as a master does from time to time.
func (m *model) Hint(t *rapid.T) {
	if m.sealed || m.left != nil || !m.l.Planned() && !m.l.Over() {
		t.Skip("nothing is written")
	}
	m.write(m.l.Snapshot(), false)
}

// Check compares what the lifecycle says with the flags.
func (m *model) Check(t *rapid.T) {
	l := m.l
	stage := Preparing
	switch {
	case m.left != nil:
		stage = Left
	case m.over():
		stage = Ending
	case !m.planned:
	case m.recovering:
		stage = Recovering
	case m.trained:
		stage = Completing
	default:
		stage = Training
	}
	reason := ""
	if l.Err() != nil {
		reason = l.Err().Error()
	}
	n, since, by := l.Closing()
	if l.Stage() != stage || l.State() != m.state || l.Over() != m.over() || l.Begun() != m.begun ||
		reason != m.reason ||
		l.Planned() != m.planned || l.Recovering() != m.recovering || !errors.Is(l.Left(), m.left) ||
		!l.Started().Equal(m.started) || !l.Ended().Equal(m.ended) || n != m.how || since != m.since || by != m.by {
		t.Fatalf("%+v\nis not the lifecycle of %+v", l, m)
	}
	at, due := l.Deadline()
	switch {
	case m.over():
		if end := m.ended.Add(policy.End); !due || at != end || m.left == nil && (l.Done(false, end.Add(-1)) ||
			!l.Done(true, m.now) || !l.Done(false, end)) {
			t.Fatalf("ended at %v: due %v, %t", m.ended, at, due)
		}
	case due != (m.how != 0) || due && at != m.by || l.Done(true, m.now.Add(time.Hour)) != (m.left != nil):
		t.Fatalf("due %v, %t; to end by %v", at, due, m.by)
	}
	need := Never
	switch {
	case !m.begun && (!m.trained || stage != Completing):
	case m.how != 0 && m.f.Covered >= m.version:
	case m.how != 0 || m.trained:
		need = AtOnce
	default:
		need = WhenDue
	}
	if got := l.Checkpoint(m.f.Covered); stage < Ending && got != need {
		t.Fatalf("a checkpoint: %v, want %v, for %+v", got, need, m)
	}
}

// TestLaws compares the lifecycle with the flags, while tasks are granted, models are lost, masters
// are asked to end, and others follow them.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){"": m.Check, "plan": m.Plan, "plan soon": m.Plan, "recovered": m.Recovered,
			"grant": m.Grant, "grant more": m.Grant, "complete": m.Complete,
			"complete more": m.Complete, "rollback": m.Rollback, "learn": m.Learn, "learn more": m.Learn,
			"close": m.Close, "stop": m.Stop, "fail": m.Fail, "wait": m.Wait, "wait more": m.Wait,
			"supersede": m.Supersede, "restart": m.Restart, "restart more": m.Restart, "hint": m.Hint})
	})
}

// Impossible snapshots are refused.
func TestRestoreRefuses(t *testing.T) {
	for _, s := range []Snapshot{{State: job.Running}, {State: job.Suspended}, {State: "?"},
		{State: job.Failed, Rests: true}} {
		if _, err := Restore(policy, s, start); err == nil {
			t.Errorf("%+v is restored", s)
		}
	}
}

package launch

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1e9, 0)

// body is the master's pod in the model's cluster.
type body struct {
	uid                     string
	mine, ended, ok, killed bool
	leaving, unreachable    bool
	// it waits for quota since then, or since the other pods were deleted
	queued time.Time
}

// model is a cluster with one Job, and the launcher that is to keep its master alive.
type model struct {
	*rapid.T
	l   *Launcher
	now time.Time
	// nil: there is none
	pod *body
	// the launcher has heard of the present state of the pod
	heard bool
	// UIDs whose deletion is not reported yet
	deletions []string
	pods      int
	// the Job is over; the launcher was asked to terminate
	over, leaving bool
	// the Job's answer to the last question is due
	asks bool
	// the last answer was that the Job continues, and no pod was created since
	granted bool
	// the launcher has ended, and how
	ended, success bool
	// every request is answered from now on
	calm bool
	// a master has succeeded
	succeeded bool
}

func (m *model) perform(actions []Action) {
	for _, a := range actions {
		if m.ended {
			m.Fatalf("%v after the end", a)
		}
		switch a.Verb {
		case Ask:
			m.asks = true
		case Create:
			if !m.granted {
				m.Fatal("law 1: a master is created, and the Job was not asked")
			}
			m.granted = false
			m.create()
		case Delete, Force:
			if m.calm || rapid.IntRange(0, 4).Draw(m.T, "fails") > 0 {
				m.remove(a)
			}
		case Sweep:
			p := m.pod
			// it has not heard of the pod's present state yet
			if p == nil || !m.heard {
				if p != nil && !p.queued.IsZero() {
					p.queued = m.now
				}
				break
			}
			if !p.mine || p.queued.IsZero() || m.now.Sub(p.queued) < 2*queueTime {
				m.Fatalf("law 9: %v for %+v", a, p)
			}
			p.queued = m.now
		case Fail:
			m.ended, m.over = true, true
		case End:
			m.ended, m.success = true, a.Success
		}
	}
}

func (m *model) create() {
	if !m.calm && rapid.IntRange(0, 4).Draw(m.T, "refused") == 0 {
		m.perform(m.l.Refused("no permission", rapid.Bool().Draw(m.T, "denied"), m.now))
		return
	}
	if m.pod != nil {
		m.Fatalf("law 1: a master is created, and %+v is there", *m.pod)
	}
	m.pods++
	m.pod, m.heard = &body{uid: fmt.Sprintf("pod-%d", m.pods), mine: true}, false
	m.hear()
}

func (m *model) remove(a Action) {
	p := m.pod
	if p == nil || p.uid != a.UID {
		return // it is deleted by now
	}
	if !p.mine {
		m.Fatalf("law 4: %v, a pod of another Job", a)
	}
	if a.Verb == Force {
		if !p.leaving {
			m.Fatalf("law 3: %v, and nobody has asked it to terminate", a)
		}
		m.vanish()
		return
	}
	switch {
	case !p.ended && !m.over:
		m.Fatalf("law 5: %v, a master that works", a)
	case p.ended && m.heard && !m.granted:
		m.Fatalf("law 7: %v, the last master with its log", a)
	}
	p.leaving, m.heard = true, false
}

func (m *model) vanish() {
	m.deletions = append(m.deletions, m.pod.uid)
	m.pod = nil
}

// hear reports the present state of the pod.
func (m *model) hear() {
	if m.pod == nil || len(m.deletions) > 0 {
		return
	}
	m.heard = true
	p := m.pod
	m.perform(m.l.Seen(Pod{UID: p.uid, Mine: p.mine, Ended: p.ended, Succeeded: p.ended && p.ok,
		Killed: p.killed, Leaving: p.leaving, Grace: 10 * time.Second, Unreachable: p.unreachable,
		Reason: "it ended", Queued: !p.queued.IsZero(), QueueTime: queueTime}, m.now))
}

func (m *model) step() {
	switch rapid.SampledFrom([]string{"time", "hear", "hear", "answer", "answer", "fail", "succeed",
		"delete", "silence", "silence without notice", "kubelet", "kubelet", "again", "end the Job", "leave",
		"stranger", "stranger", "queue", "admit"}).Draw(m.T, "step") {
	case "time":
		m.now = m.now.Add(time.Duration(rapid.IntRange(1, 20000).Draw(m.T, "ms")) * time.Millisecond)
		m.perform(m.l.Tick(m.now))
	case "hear":
		m.deliver()
	case "answer":
		m.answer()
	case "fail":
		m.change(func(p *body) { p.ended, p.killed = true, rapid.Bool().Draw(m.T, "killed") })
	case "succeed":
		if rapid.IntRange(0, 3).Draw(m.T, "really") > 0 {
			return
		}
		m.change(func(p *body) {
			p.ended, p.ok = true, true
			m.succeeded = m.succeeded || p.mine
		})
	case "delete":
		if m.pod != nil {
			m.pod.leaving, m.heard = true, false
		}
	case "silence":
		m.change(func(p *body) { p.unreachable, p.leaving = true, true })
	case "kubelet":
		if m.pod != nil && (!m.pod.mine || m.pod.leaving && !m.pod.unreachable) {
			m.vanish()
		}
	case "end the Job":
		if rapid.IntRange(0, 4).Draw(m.T, "really") == 0 {
			m.over = true
		}
	case "leave":
		if !m.leaving && rapid.IntRange(0, 4).Draw(m.T, "really") == 0 {
			m.leaving = true
			m.perform(m.l.Leave(m.now))
		}
	// a watch that was cut off may repeat an old deletion
	case "again":
		if m.pods > 1 {
			m.perform(m.l.Deleted(fmt.Sprintf("pod-%d", m.pods-1), m.now))
		}
	case "queue":
		m.change(func(p *body) {
			if p.mine && p.queued.IsZero() {
				p.queued = m.now
			}
		})
		m.deliver()
	case "admit":
		if m.pod != nil && m.heard {
			m.change(func(p *body) { p.queued = time.Time{} })
			m.deliver()
		}
	case "silence without notice":
		if m.pod != nil && m.pod.mine {
			m.pod.unreachable, m.heard = true, false
		}
	case "stranger":
		if m.pod == nil && m.pods == 0 && m.l.Phase() == Unknown {
			m.pods++
			m.pod = &body{uid: "stranger", leaving: rapid.Bool().Draw(m.T, "leaving")}
		}
	}
}

func (m *model) change(how func(*body)) {
	if m.pod != nil && !m.pod.ended {
		how(m.pod)
		m.heard = false
	}
}

// deliver reports the next thing that is not reported yet.
func (m *model) deliver() {
	switch {
	case len(m.deletions) > 0:
		uid := m.deletions[0]
		m.deletions = m.deletions[1:]
		m.perform(m.l.Deleted(uid, m.now))
	case m.pod == nil && m.pods == 0:
		m.perform(m.l.Deleted("", m.now))
	default:
		m.hear()
	}
}

func (m *model) answer() {
	if !m.asks {
		return
	}
	m.asks = false
	state := Continues
	if rapid.IntRange(0, 5).Draw(m.T, "unread") == 0 && !m.calm {
		m.perform(m.l.Job(NotRead, "", m.now))
		return
	}
	if m.over {
		state = Over
	} else if !m.calm && rapid.IntRange(0, 5).Draw(m.T, "rests") == 0 {
		m.perform(m.l.Rests(m.now.Add(time.Duration(rapid.IntRange(-5, 60).Draw(m.T, "s"))*time.Second), m.now))
		return
	}
	m.granted = state == Continues
	m.perform(m.l.Job(state, "the job is over", m.now))
	m.granted = false
}

const queueTime = 4 * time.Second

func (m *model) check() {
	if p := m.pod; p != nil && m.heard && p.mine && !p.ended && !p.leaving && !m.leaving && !m.ended &&
		!p.queued.IsZero() && len(m.deletions) == 0 {
		if at, ok := m.l.Deadline(); !ok || at.After(p.queued.Add(3*queueTime)) && at.After(m.now.Add(queueTime)) {
			m.Fatalf("law 9: %+v waits for quota, and nothing is due: %v %t", *p, at, ok)
		}
	}
	if m.ended && m.success && !m.succeeded {
		m.Fatal("law 2: the launcher ends with success, and no master has")
	}
	if at, ok := m.l.Deadline(); ok && m.l.Phase() == Absent && at.Sub(m.now) > longestRest {
		m.Fatalf("law 6: the next master is due in %v", at.Sub(m.now))
	}
}

// TestModel drives a launcher by a cluster in which anything may happen, and then by one in which
// nothing does: then there is a master, or the launcher has ended.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{T: rt, l: New(false), now: start}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if m.ended {
				break
			}
			m.step()
			m.check()
		}
		m.calm = true
		for range 100 {
			if m.ended {
				break
			}
			if m.pod != nil && (!m.pod.mine || m.pod.leaving && !m.pod.unreachable) {
				m.vanish() // by its kubelet
			}
			m.answer()
			if !m.ended {
				m.deliver()
			}
			if !m.ended {
				m.now = m.now.Add(time.Second)
				m.perform(m.l.Tick(m.now))
			}
			m.check()
		}
		switch {
		case m.ended && (m.over || m.leaving || m.success):
		case m.ended:
			m.Fatal("the launcher has ended, and the Job continues")
		case m.over && m.asked():
			m.Fatal("the Job is over, and the launcher has not ended")
		case m.pod == nil || !m.pod.mine || m.pod.ended:
			m.Fatalf("there is no master: %v %+v", m.l.Phase(), m.pod)
		case m.leaving:
			m.Fatal("the launcher was asked to terminate, and has not ended")
		}
	})
}

// asked reports whether the launcher has a cause to look at the Job: a master that works looks at
// the Job, too.
func (m *model) asked() bool { return m.pod == nil || m.pod.ended || m.leaving }

// TestPauses follows masters that crash, are killed, and cannot be created: what each end means for
// the next start.
func TestPauses(t *testing.T) {
	l, now := New(false), start
	var last string
	number := 0
	// next returns how long the next master waits, and creates it then.
	next := func() time.Duration {
		t.Helper()
		at, ok := l.Deadline()
		if !ok { // it is asked already
			at = now
		}
		pause := max(0, at.Sub(now))
		now = now.Add(pause)
		l.Tick(now)
		number++
		if did := l.Job(Continues, "", now); len(did) != 1 || did[0].Verb != Create || did[0].Number != number {
			t.Fatalf("master %d: %v", number, did)
		}
		last = fmt.Sprintf("pod-%d", number)
		return pause
	}
	l.Deleted("", now)
	next()
	for i, tt := range []struct {
		how   string
		lived time.Duration
		want  time.Duration
	}{
		{"crash", time.Second, 0},
		{"crash", time.Second, 100 * time.Millisecond},
		{"crash", time.Second, 200 * time.Millisecond},
		{"kill", time.Second, 0},
		{"crash", time.Second, 0},
		{"refuse", 0, 100 * time.Millisecond},
		{"refuse", 0, 200 * time.Millisecond},
		{"crash", 10 * time.Second, 0},
		{"delete", 0, 0},
	} {
		var pause time.Duration
		if tt.how == "refuse" {
			l.Refused("no permission", true, now)
		} else {
			l.Seen(Pod{UID: last, Mine: true}, now)
			now = now.Add(tt.lived)
			if tt.how != "delete" {
				l.Seen(Pod{UID: last, Mine: true, Ended: true, Killed: tt.how == "kill", Reason: tt.how}, now)
				did := l.Job(Continues, "", now)
				if len(did) == 0 { // the pod stays until then, with its log
					at, _ := l.Deadline()
					pause, now = at.Sub(now), at
					l.Tick(now)
					did = l.Job(Continues, "", now)
				}
				if len(did) != 1 || did[0] != (Action{Verb: Delete, UID: last, Reason: tt.how}) {
					t.Fatalf("%d: %v", i, did)
				}
				// as an API server reports a deletion before it is performed
				l.Seen(Pod{UID: last, Mine: true, Ended: true, Killed: true, Leaving: true, Reason: "deleted"}, now)
			}
			l.Deleted(last, now)
		}
		if got := pause + next(); got != tt.want {
			t.Errorf("%d, %s: the next master starts after %v, want %v", i, tt.how, got, tt.want)
		}
	}
}

// TestDenied is a launcher that may not create pods: its Job fails after ten minutes, unless a
// master has run. A full quota is waited for.
func TestDenied(t *testing.T) {
	for _, tt := range []struct{ denied, begun bool }{{true, false}, {false, false}, {true, true}} {
		l, now, denied := New(tt.begun), start, tt.denied && !tt.begun
		did := l.Deleted("", now)
		for now.Sub(start) < time.Hour {
			if at, ok := l.Deadline(); ok {
				now = at
				did = l.Tick(now)
			}
			if len(did) > 0 && did[0].Verb == Ask {
				l.Job(Continues, "", now)
			}
			if did = l.Refused("why", tt.denied, now); l.Phase() == Ended {
				break
			}
		}
		switch after := now.Sub(start); {
		case !denied && l.Phase() == Ended:
			t.Errorf("%+v: it gives up after %v", tt, after)
		case denied && (len(did) != 1 || did[0] != (Action{Verb: Fail, Reason: "why"}) || after < patience ||
			after > patience+time.Minute):
			t.Errorf("%v after %v", did, after)
		}
	}
}

// TestUnreachable follows a master whose node does not answer, and one whose kubelet does not
// report its end.
func TestUnreachable(t *testing.T) {
	for _, tt := range []struct {
		p    Pod
		want time.Duration // after which it is deleted at once
	}{
		{Pod{UID: "a", Mine: true, Leaving: true, Grace: time.Minute, Unreachable: true}, 0},
		{Pod{UID: "a", Mine: true, Leaving: true, Grace: time.Minute}, time.Minute + forceAfter},
		{Pod{UID: "a", Mine: true, Unreachable: true}, -1}, // it may answer in time
		{Pod{UID: "a", Leaving: true, Grace: time.Minute, Unreachable: true}, -1},
	} {
		l := New(false)
		did := l.Seen(tt.p, start)
		at, ok := l.Deadline()
		if len(did) == 0 && ok {
			if early := l.Tick(at.Add(-1)); len(early) > 0 {
				t.Errorf("%+v: %v too early", tt.p, early)
			}
			did = l.Tick(at)
		} else {
			at = start
		}
		forced := len(did) == 1 && did[0].Verb == Force
		if forced != (tt.want >= 0) || forced && at.Sub(start) != tt.want {
			t.Errorf("%+v: %v after %v", tt.p, did, at.Sub(start))
		}
		if again, ok := l.Deadline(); tt.want >= 0 && (!ok || again != at.Add(forceAfter)) {
			t.Errorf("%+v: is not tried again: %v %t", tt.p, again, ok)
		}
	}
}

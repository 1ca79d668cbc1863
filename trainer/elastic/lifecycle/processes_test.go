package lifecycle

import (
	"errors"
	"testing"
	"time"
)

// A planned end waits for processes that may save something, within the grace period, and the
// lifecycle has the reason if they save nothing.
func TestProcessesSave(t *testing.T) {
	const late = "no round was ended, and written as a checkpoint, within 15s (--grace_period)"
	saves := Processes{Asked: true, Trained: true, Hold: true}
	with := func(change func(*Processes)) Processes {
		p := saves
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		p      Processes
		after  time.Duration
		awaits bool
		why    string
	}{
		"they save":                  {saves, policy.Grace - 1, true, ""},
		"too late":                   {saves, policy.Grace, false, late},
		"they cannot be asked":       {with(func(p *Processes) { p.Asked = false }), policy.Grace, false, ""},
		"all have finished":          {with(func(p *Processes) { p.Finished = true }), policy.Grace, false, ""},
		"saved":                      {with(func(p *Processes) { p.Rested = true }), 0, false, ""},
		"saved as the time was over": {with(func(p *Processes) { p.Rested = true }), policy.Grace, false, ""},
		"not saved": {with(func(p *Processes) { p.Rested, p.Problem = true, "disk full" }), policy.Grace, false,
			"disk full"},
		"no round": {with(func(p *Processes) { p.Trained, p.Hold = false, false }), policy.Grace, false,
			"no round was completed"},
		"nothing new": {with(func(p *Processes) { p.Hold = false }), policy.Grace, false,
			"no process has a newer state"},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(policy, start)
			l.Plan(start)
			f := Facts{Pods: true, Processes: &c.p}
			l.Stop(errors.New("stopped"), false, f, start)
			l.Step(f, start.Add(c.after))
			if l.Over() == c.awaits || l.Unsaved() != c.why {
				t.Errorf("over: %t, unsaved: %q, want %t, %q", l.Over(), l.Unsaved(), !c.awaits, c.why)
			}
		})
	}
	for name, f := range map[string]Facts{"the master leaves": {Pods: true, Processes: &saves},
		"no pods are left": {Processes: &saves}} {
		l := New(policy, start)
		l.Plan(start)
		n := Suspend
		if f.Pods {
			n = Leave
		}
		l.Close(n, f, start)
		if l.Step(f, start.Add(policy.Grace)); l.Left() == nil && !l.Over() || l.Unsaved() != "" {
			t.Errorf("%s: it waits: %v, unsaved: %q", name, l.Stage(), l.Unsaved())
		}
	}
}

package supervise

import (
	"fmt"
	"testing"
	"time"
)

// The root cause is the failure with the smallest time, as with torchrun.
func TestRootCause(t *testing.T) {
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * 1e9)) }
	for name, c := range map[string]struct {
		exits []Exited
		want  int // local rank; -1: there is none
	}{
		"nothing failed":       {[]Exited{{}, {}}, -1},
		"first seen":           {[]Exited{{Code: 1, Second: 3}, {Code: 1, Second: 2}, {}}, 1},
		"its file is older":    {[]Exited{{Code: -9, Second: 3, At: at(3)}, {Code: 1, Second: 1, At: at(9)}}, 1},
		"seen within a second": {[]Exited{{Code: 1, Second: 3, At: at(3.9)}, {Code: 1, Second: 3, At: at(3.1)}}, 1},
		"reported within a second": {[]Exited{{Code: 1, Second: 3, At: at(3.9), Erred: at(3.2)},
			{Code: 1, Second: 3, At: at(3.4), Erred: at(3.3)}}, 0},
		"seen at once":              {[]Exited{{Code: 1, Second: 3, At: at(3)}, {Code: 2, Second: 3, At: at(3)}}, 0},
		"one was ordered to end":    {[]Exited{{Code: -15, Second: 1, Stopped: true}, {Code: 1, Second: 2}}, 1},
		"all were ordered to end":   {[]Exited{{Stopped: true}, {Code: -15, Stopped: true}}, 1},
		"exit code 0 is no failure": {[]Exited{{Second: 1}, {Code: 3, Second: 2}}, 1},
	} {
		var all []*process
		for local, e := range c.exits {
			all = append(all, &process{local: local, exit: &e})
		}
		got := -1
		if root := rootCause(all); root != nil {
			got = root.local
		}
		if got != c.want {
			t.Errorf("%s: local rank %d, want %d", name, got, c.want)
		}
	}
}

// A worker whose processes are killed from outside before they have joined counts as lost, not as
// failed.
func TestKilledBeforeItJoins(t *testing.T) {
	for _, c := range []struct {
		exits []Exited
		ooms  int
		want  int
	}{
		{[]Exited{{Code: -9, Signal: 9}}, 1, 9},
		{[]Exited{{Code: -9, Signal: 9}}, 2, 0}, // memory was used up
		{[]Exited{{Code: -15, Signal: 15}, {Code: -15, Signal: 15}}, 1, 15},
		{[]Exited{{Code: -9, Signal: 9}, {Code: 1}}, 1, 0},
		{[]Exited{{Code: -11, Signal: 11}}, 1, 0},
		{[]Exited{{Code: 137}}, 1, 0},
	} {
		b := newBench(t, len(c.exits), func(p *Policy) { p.Keeps = true })
		b.tell(Begin{OOMKills: 1})
		var events []Event
		for local, e := range c.exits {
			e.Pid, e.Message, e.OOMKills = b.procs[local].pid, fmt.Sprint("the end of ", local), c.ooms
			events = append(events, e)
		}
		b.tell(events...)
		gaveUp := did[GiveUp](b)
		if len(gaveUp) != 1 || gaveUp[0].Signal != c.want ||
			gaveUp[0].Why != "the program failed before it joined a world: the end of 0" {
			t.Errorf("%+v: %v, want a loss by signal %d", c, b.did, c.want)
		}
	}
}

// The failures of a world name two root causes: one for the error file, of those that the master
// gets, and one for the user, of all that failed. Without an exit code nothing is printed.
func TestRootCausesOfAWorld(t *testing.T) {
	for name, c := range map[string]struct {
		exits       []Exited
		first, root int
	}{
		"by exit codes":        {[]Exited{{Code: 1, Second: 2}, {Code: 3, Second: 1}}, 101, 101},
		"one is not reported":  {[]Exited{{Code: CodeRestart, Second: 1}, {Code: 1, Second: 2}}, 101, 100},
		"only by signals":      {[]Exited{{Code: -9, Signal: 9, Second: 2}, {Code: -9, Signal: 9, Second: 1}}, 101, 0},
		"by a signal and code": {[]Exited{{Code: -9, Signal: 9, Second: 1}, {Code: 1, Second: 2}}, 100, 100},
	} {
		b := newBench(t, 2, nil)
		b.world(1, -1)
		b.speaks(0, true)
		for local, e := range c.exits {
			e.Pid = 100 + local
			b.tell(e)
		}
		arrivals := did[Arrive](b)
		if len(arrivals) != 1 || arrivals[0].First != c.first || arrivals[0].Root != c.root {
			t.Errorf("%s: %+v, want the root causes %d and %d", name, b.did, c.first, c.root)
		}
	}
}

// A failure that a process has reported before its agent heard of the recall is not a consequence.
func TestFailedBeforeRecall(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	s := &Supervisor{now: at(5)}
	s.noteRecall()
	s.recalled, s.now = true, at(9)
	s.noteRecall()
	for erred, want := range map[time.Time]bool{at(4): false, at(5): true, at(7): true, {}: true} {
		if got := s.wasRecalled(erred); got != want {
			t.Errorf("a failure at %v follows from the recall: %t", erred, got)
		}
	}
	if s.recalled = false; s.wasRecalled(time.Time{}) {
		t.Error("a failure without a recall is excused")
	}
}

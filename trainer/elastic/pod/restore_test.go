package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// write keeps a snapshot in the form in which it is read again.
func (c *cluster) write() {
	text, err := json.Marshal(c.table.Snapshot())
	if err != nil {
		c.t.Fatal(err)
	}
	c.saved, c.unsaved = Snapshot{}, false
	if err := json.Unmarshal(text, &c.saved); err != nil {
		c.t.Fatal(err)
	}
}

// Write keeps a snapshot at any other time: what befell the lines is in it sooner.
func (c *cluster) Write(*rapid.T) { c.write() }

// Restart ends the master. Pods end while none is there, and creations that were under way are
// performed, or will be.
func (c *cluster) Restart(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
		t.Skip("rarely")
	}
	c.restart(t)
}

func (c *cluster) restart(t *rapid.T) {
	for _, a := range c.todo {
		switch {
		case a.Verb != Create:
		case !c.unsaved && rapid.Bool().Draw(t, "under way"):
			c.flight = append(c.flight, a)
		default: // it is never performed
			delete(c.created, c.table.byID[a.ID].line)
		}
	}
	var ended []Event
	for _, l := range c.live() {
		if c.unreported[l] { // it was no pod of the last master's
			continue
		}
		switch rapid.IntRange(0, 5).Draw(t, "meanwhile") {
		case 0: // it vanished
			l.Phase, c.unreported[l] = Deleted, true
		case 1:
			exit := rapid.SampledFrom(exits).Draw(t, "exit")
			exit.Deleted = c.asked[l] // as its pod says
			l.Phase, l.Exit = Failed, exit
			c.unreported[l] = true
			ended = append(ended, l.Event)
		}
	}
	c.comeBack(ended)
}

// comeBack has another master list the pods.
func (c *cluster) comeBack(ended []Event) {
	observed := ended
	for _, l := range c.live() {
		observed = append(observed, l.Event)
	}
	if c.over { // which was written first
		c.saved.Over = true
	}
	before, old := c.table, c.saved
	table, actions, err := Restore(c.policy, c.saved, observed, c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	c.restarts++
	c.table, c.todo, c.before, c.ran = table, nil, make(map[string]Phase), maps.Clone(table.ran)
	for _, l := range c.lives {
		// what the runtime said before is reported to nobody again
		l.reported = nil
		if c.lost[incarnationName(l.ID, l.Incarnation)] > 0 {
			c.again[l] = true // or reported again, by this master
		}
	}
	c.lost = make(map[string]int)
	c.rekey(before, old)
	c.take(actions)
	for l := range c.unreported {
		if !l.Phase.Ended() && table.byID[l.ID] != nil && table.byID[l.ID].Incarnation == l.Incarnation &&
			table.byID[l.ID].Phase != Cancelled {
			delete(c.unreported, l)
		}
	}
	if !c.over && c.saved.Workers != c.wanted {
		c.take(c.table.Scale(c.wanted, c.now))
	}
	c.write()
}

// rekey takes what is known of lines over to those of the table that was restored, by their slots.
func (c *cluster) rekey(before *Table, saved Snapshot) {
	created, rejected := c.created, c.rejected
	c.created, c.counted, c.rejected = maps.Clone(created), make(map[*line]int), make(map[*line]rejection)
	clear(c.created)
	slots := make(map[string]*line)
	for _, e := range before.pods {
		if e.line.current == e {
			slots[lineName(e.ID.Role, e.Original)] = e.line
		}
	}
	past := make(map[string]int)
	for _, l := range saved.Servers {
		past[lineName(PS, l.Index)] = l.Counted
	}
	for _, l := range saved.Lines {
		past[lineName(Worker, l.Slot)] = l.Counted
	}
	for _, e := range c.table.pods {
		l := e.line
		if l.current == nil {
			continue
		}
		name := lineName(e.ID.Role, e.Original)
		if was := slots[name]; was != nil {
			if at, ok := created[was]; ok {
				c.created[l] = at
			}
			if r, ok := rejected[was]; ok && l.Rejected > r.before {
				c.rejected[l] = r
			}
		}
		c.counted[l] = past[name]
	}
}

// Land performs a creation that an earlier master ordered.
func (c *cluster) Land(t *rapid.T) {
	if len(c.flight) == 0 {
		t.Skip("none is under way")
	}
	a := c.flight[0]
	c.flight = c.flight[1:]
	for _, l := range c.live() {
		if l.ID == a.ID {
			return // it already exists
		}
	}
	if c.life(a.ID, a.Incarnation) != nil {
		return
	}
	l := &life{Event: Event{ID: a.ID, Incarnation: a.Incarnation, Phase: Creating}}
	c.lives = append(c.lives, l)
	c.unreported[l] = true
	c.happen(l, Pending, Exit{})
}

// Replace has a master come back that has written everything, to pods that are all as they were: it
// acts as the one before.
func (c *cluster) Replace(t *rapid.T) {
	for _, a := range c.todo {
		if a.Verb == Create {
			t.Skip("a creation is under way")
		}
	}
	if slices.ContainsFunc(c.live(), func(l *life) bool { return c.unreported[l] }) {
		t.Skip("something is there that the table has cancelled")
	}
	before := c.table
	c.write()
	c.comeBack(nil)
	for _, pair := range [][2]string{
		{describe(before), describe(c.table)},
		{fmt.Sprint(before.Err()), fmt.Sprint(c.table.Err())},
		{fmt.Sprint(before.next, before.Workers(), before.relaunched, before.ran),
			fmt.Sprint(c.table.next, c.table.Workers(), c.table.relaunched, c.table.ran)},
	} {
		if pair[0] != pair[1] {
			t.Fatalf("saved\n%s\nrestored\n%s", pair[0], pair[1])
		}
	}
}

// describe returns what is to be the same in a restored table.
func describe(t *Table) string {
	var lines []string
	for _, e := range t.pods {
		if e.Phase.Ended() {
			continue
		}
		text := fmt.Sprintf("%v incarnation %d %v, current: %t", e.ID, e.Incarnation, e.Phase, e.line.current == e)
		// of one that is not wanted no line is left
		if e.line.current != nil {
			text += fmt.Sprintf(", slot %d, %+v", e.Original, e.line.Past)
		}
		if e.line.current != e {
			text = fmt.Sprintf("%v %v", e.ID, e.Phase)
		}
		if e.Phase == Wanted {
			text += fmt.Sprintf(", due %d", milli(e.creation.due))
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestRestoreRefuses(t *testing.T) {
	p := Policy{Servers: 1, Workers: 2}
	ok := []Line{{Index: 0, Incarnation: 1}}
	for _, tt := range []struct {
		snapshot Snapshot
		want     string
	}{
		{Snapshot{}, "restore the pods: snapshot: 0 servers, the job has 1"},
		{Snapshot{Servers: []Line{{Index: 3}}}, "server 3 is the one at place 0, incarnation 0"},
		{Snapshot{Servers: ok, Next: -1, Ran: []Role{Master}},
			"next worker -1 of 0, 0 relaunched\na pod that ran as master"},
		{Snapshot{Servers: ok, Next: 1, Lines: []Line{{Index: 1}}}, "worker 1 is not below the next, 1"},
		{Snapshot{Servers: ok, Next: 2, Lines: []Line{{Index: 0}, {Index: 1}}},
			"worker 1 or its slot 0 is there twice"},
		{Snapshot{Servers: ok, Next: 2, Lines: []Line{{Index: 0, Counted: -1}}},
			"line of 0: counted -1, out of memory 0, rejected 0 times"},
	} {
		_, _, err := Restore(p, tt.snapshot, nil, start)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.snapshot, err, tt.want)
		}
	}
}

// TestSnapshotIsBounded holds that a snapshot of 1,000 workers, each of which was replaced and
// counted, fits into 64 KiB.
func TestSnapshotIsBounded(t *testing.T) {
	table := New(Policy{Workers: 1000, Servers: 20, Relaunches: 9})
	table.Start(start)
	for _, e := range table.pods {
		e.line.Past = Past{3, 2, 12}
		e.Address = "elasticdl-some-job-ps-0.namespace.svc:50001"
		if e.ID.Role == Worker {
			e.ID.Index += 900_000
			e.Phase = Running
		}
	}
	table.next += 900_000
	for range 1000 {
		table.failed = append(table.failed, strings.Repeat("x", 5000))
	}
	text, err := json.Marshal(table.Snapshot())
	if err != nil || len(text) > 64<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// FuzzRestore restores what anybody may have written, and lists pods that anybody may have made.
func FuzzRestore(f *testing.F) {
	table := New(Policy{Servers: 1, Workers: 3})
	table.Start(start)
	text, err := json.Marshal(table.Snapshot())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, []byte{1, 4, 2, 4, 2, 5, 9, 7})
	f.Add(
		[]byte(
			`{"next":3,"workers":3,"servers":[{"i":0,"launch":2}],"lines":[{"i":1,"slot":4,"due":5},{"i":2,"charged":9}],"over":true,"leaveBy":-7}`),
		[]byte{0, 4})
	f.Fuzz(func(t *testing.T, text, pods []byte) {
		var s Snapshot
		if json.Unmarshal(text, &s) != nil {
			return
		}
		var observed []Event
		for len(pods) >= 2 {
			ev := Event{ID: ID{Role(pods[0] % 4), int(pods[0] / 4)}, Incarnation: int(pods[1] / 16),
				Phase: Phase(pods[1] % 11)}
			observed, pods = append(observed, ev), pods[2:]
		}
		table, actions, err := Restore(Policy{Servers: 1, Workers: 3}, s, observed, start)
		if err != nil {
			return
		}
		if after := table.Snapshot(); after.validate(table.policy) != nil {
			t.Fatalf("%s is restored as %+v", text, after)
		}
		for _, a := range actions {
			if known := table.byID[a.ID] != nil; !known && a.Verb != Delete {
				t.Fatalf("%v", a)
			}
		}
	})
}

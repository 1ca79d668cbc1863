package pod

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// life is one incarnation of a pod in the cluster.
type life struct {
	Event
	reported []Event // what happened to it, in order
}

// cluster performs actions, in order but late, and ends pods.
type cluster struct {
	t      *rapid.T
	table  *Table
	policy Policy
	now    time.Time
	// as many pods as there may be
	wanted, room int
	todo         []Action
	lives        []*life
	// by pod and incarnation
	lost map[string]int
	// the last one
	created map[*line]time.Time
	counted map[*line]int
	asked   map[*life]bool
	// the last one of each line, until its next pod is created
	rejected map[*line]rejection
	ran      map[Role]bool
	// by pod and incarnation, at the last Check
	before map[string]Phase
	// those that were asked to go do
	settling, over bool

	// as it was written last
	saved Snapshot
	// a creation was handed out since
	unsaved bool
	// creations of masters before that were under way when they ended
	flight []Action
	// ended while no master was there, or came late
	unreported map[*life]bool
	// reported lost to a master before
	again map[*life]bool
	// lines of workers
	givenUp  int
	restarts int
}

type rejection struct {
	at     time.Time
	before int // how many the line had
}

func incarnationName(id ID, incarnation int) string { return fmt.Sprintf("%v/%d", id, incarnation) }
func lineName(r Role, original int) string {
	return fmt.Sprintf("%v line %d", r, original)
}

func newCluster(t *rapid.T) *cluster {
	c := &cluster{
		t: t, now: start,
		policy: Policy{
			Servers: rapid.IntRange(0, 2).Draw(t, "servers"), Workers: rapid.IntRange(1, 4).Draw(t, "workers"),
			Relaunches: rapid.IntRange(0, 3).Draw(t, "relaunches"), Backoff: time.Second,
			Core:    rapid.IntRange(0, 3).Draw(t, "core"),
			MaxOOMs: map[Role]int{PS: rapid.IntRange(0, 2).Draw(t, "PS OOMs"), Worker: 2},
		},
		rejected: make(map[*line]rejection), ran: make(map[Role]bool), before: make(map[string]Phase),
		unreported: make(map[*life]bool), again: make(map[*life]bool),
		lost: make(map[string]int), asked: make(map[*life]bool), created: make(map[*line]time.Time),
		counted: make(map[*line]int),
	}
	c.table, c.wanted = New(c.policy), c.policy.Workers
	c.Squeeze(t)
	c.take(c.table.Start(c.now))
	c.write()
	return c
}

// take checks actions when they are handed out, and keeps them to be performed.
func (c *cluster) take(actions []Action) {
	for _, a := range actions {
		name := incarnationName(a.ID, a.Incarnation)
		switch a.Verb {
		case Create:
			if c.over {
				c.t.Fatalf("%v after the end", a)
			}
			line := c.table.byID[a.ID].line
			if last, ok := c.created[line]; ok && c.now.Sub(last) < c.policy.Backoff {
				c.t.Fatalf("%v only %v after the last of its line", a, c.now.Sub(last))
			}
			c.created[line] = c.now
			for _, p := range c.table.List() {
				if p.Core && p.Phase == Creating && c.table.byID[p.ID].wanted() && a.ID.Role == Worker && !a.Core {
					c.t.Fatalf("%v while %v of the core is created", a, p.ID)
				}
			}
			if r, ok := c.rejected[line]; ok && line.Rejected > r.before {
				if wait := c.policy.delay(line.Rejected, maxRejected); c.now.Sub(r.at) < wait {
					c.t.Fatalf("%v only %v after its line was rejected %d times in a row", a,
						c.now.Sub(r.at), line.Rejected)
				}
			}
			delete(c.rejected, line)
			c.unsaved = true
			if a.ID.Role == Worker {
				for _, p := range c.table.List() {
					if p.ID.Role == PS && p.Phase < Pending {
						c.t.Fatalf("%v before %v", a, p.ID)
					}
				}
			}
		case Lost:
			if c.lost[name]++; c.lost[name] > 1 {
				c.t.Fatalf("%s is lost twice", name)
			}
			if c.life(a.ID, a.Incarnation) == nil {
				if a.Reason != absent {
					c.t.Fatalf("%v, which never was", a)
				}
				continue
			}
			if a.Counted && c.asked[c.life(a.ID, a.Incarnation)] {
				c.t.Fatalf("%v, and it was asked to go", a)
			}
			if a.Counted {
				c.counted[c.table.byID[a.ID].line]++
			}
			if a.GivenUp && a.ID.Role == Worker {
				c.givenUp++
			}
			continue
		}
		c.todo = append(c.todo, a)
	}
}

func (c *cluster) life(id ID, incarnation int) *life {
	for _, l := range c.lives {
		if l.ID == id && l.Incarnation == incarnation {
			return l
		}
	}
	return nil
}

func (c *cluster) live() []*life {
	return slices.DeleteFunc(slices.Clone(c.lives), func(l *life) bool { return l.Phase.Ended() })
}

// Perform carries out a pod's oldest action. A deletion may cancel the creation before it.
func (c *cluster) Perform(t *rapid.T) {
	if len(c.todo) == 0 {
		t.Skip("nothing to do")
	}
	i := rapid.IntRange(0, len(c.todo)-1).Draw(t, "which")
	i = slices.IndexFunc(c.todo, func(a Action) bool { return a.ID == c.todo[i].ID })
	a := c.todo[i]
	c.todo = slices.Delete(c.todo, i, i+1)
	switch a.Verb {
	case Create:
		if c.unsaved {
			c.write()
		}
		if !c.settling && rapid.IntRange(0, 6).Draw(t, "refused") == 0 {
			c.deny(t, a)
			return
		}
		doomed := slices.ContainsFunc(c.todo, func(d Action) bool { return d.ID == a.ID && d.Verb == Delete })
		if doomed && rapid.Bool().Draw(t, "cancelled") {
			c.take(c.table.Refused(a.ID, a.Incarnation, Refusal{Reason: "not wanted any more"}, c.now))
			return
		}
		for _, l := range c.live() {
			switch {
			case l.ID == a.ID && c.unreported[l]:
				// a pod of a master before that came late: it has to go
				l.Phase = Deleted
				c.take(c.table.Refused(a.ID, a.Incarnation, Refusal{Reason: "its predecessor has " +
					"not ended yet"}, c.now))
				return
			case l.ID == a.ID:
				t.Fatalf("%v while incarnation %d is live", a, l.Incarnation)
			}
		}
		if c.life(a.ID, a.Incarnation) != nil {
			t.Fatalf("%v again", a)
		}
		if len(c.live()) >= c.room {
			c.take(c.table.Refused(a.ID, a.Incarnation, Refusal{Reason: "full", Full: true}, c.now))
			return
		}
		l := &life{Event: Event{ID: a.ID, Incarnation: a.Incarnation, Phase: Creating, Core: a.Core}}
		c.lives = append(c.lives, l)
		c.happen(l, Pending, Exit{})
	case Delete:
		if l := c.life(a.ID, a.Incarnation); l != nil && !l.Phase.Ended() {
			c.happen(l, rapid.SampledFrom([]Phase{Deleted, Failed}).Draw(t, "end"), Exit{Signal: 9})
		}
	}
}

// deny refuses a creation. One that is hopeless fails the job only before a pod of the role has
// run.
func (c *cluster) deny(t *rapid.T, a Action) {
	before := c.table.Err()
	hopeless := rapid.Bool().Draw(t, "hopeless") &&
		(c.ran[a.ID.Role] || rapid.IntRange(0, 9).Draw(t, "never begins") == 0)
	c.take(c.table.Refused(a.ID, a.Incarnation, Refusal{Reason: "denied", Hopeless: hopeless}, c.now))
	err := c.table.Err()
	if before != nil || err != nil && strings.Contains(err.Error(), "could not be created for") {
		return
	}
	if p, _ := c.table.Get(a.ID); (err != nil) != (hopeless && !c.ran[a.ID.Role] && p.Phase == Wanted) {
		t.Fatalf("%v is refused, hopeless: %t, a %v has run: %t, error: %v", a, hopeless, a.ID.Role,
			c.ran[a.ID.Role], err)
	}
	if p, _ := c.table.Get(a.ID); p.Phase == Wanted && p.Waiting != "cannot be created: denied" {
		t.Fatalf("%v was denied: %+v", a, p)
	}
}

// happen changes a pod's phase and tells the table.
func (c *cluster) happen(l *life, p Phase, e Exit) {
	l.Phase, l.Exit = p, e
	if p == Running && !c.unreported[l] {
		c.ran[l.ID.Role] = true
	}
	l.reported = append(l.reported, l.Event)
	c.take(c.table.Observe(l.Event, c.now))
}

func (c *cluster) Run(t *rapid.T) {
	for _, l := range c.live() {
		switch l.Phase {
		case Pending:
			c.happen(l, Running, Exit{})
			return
		case Leaving:
			if c.settling {
				c.happen(l, Failed, Exit{Code: 143})
				return
			}
		}
	}
	t.Skip("none is pending")
}

var exits = []Exit{{Signal: 9}, {Rejected: true}, {Code: 143}, {Evicted: true}, {NodeLost: true},
	{Code: 1}, {OOM: true}, {Code: 0}}

func (c *cluster) Die(t *rapid.T) {
	live := c.live()
	if len(live) == 0 {
		t.Skip("none is live")
	}
	c.die(t, rapid.SampledFrom(live).Draw(t, "pod"), rapid.SampledFrom(exits).Draw(t, "exit"))
}

// Reject has a node refuse a pod, and the next, and the next.
func (c *cluster) Reject(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "times") {
		live := slices.DeleteFunc(c.live(), func(l *life) bool { return l.Phase != Pending })
		if len(live) == 0 {
			return
		}
		c.die(t, live[0], Exit{Rejected: true})
		if due, ok := c.table.Deadline(); ok && due.After(c.now) {
			c.now = due
			c.take(c.table.Tick(c.now))
		}
		if len(c.todo) > 0 {
			c.Perform(t)
		}
	}
}

func (c *cluster) die(t *rapid.T, l *life, e Exit) {
	phase := Failed
	if e == (Exit{}) {
		phase = Succeeded
	}
	known := c.table.byID[l.ID]
	if known == nil || known.Incarnation != l.Incarnation { // it came late, from a master before
		c.happen(l, phase, e)
		return
	}
	line := known.line
	ooms := line.OOMs
	if e.Rejected {
		c.rejected[line] = rejection{c.now, line.Rejected}
	}
	c.happen(l, phase, e)
	if grown := c.table.byID[l.ID].line.OOMs - ooms; grown > 0 && !e.OOM || ooms+grown > 2 {
		t.Fatalf("%v ended by %v: %d OOMs, and %d before", l.ID, e, ooms+grown, ooms)
	}
}

// Ask has a pod asked to go: it is still there. A worker is followed at once.
func (c *cluster) Ask(t *rapid.T) {
	live := c.live()
	if len(live) == 0 {
		t.Skip("none is live")
	}
	l := rapid.SampledFrom(live).Draw(t, "pod")
	if l.Phase == Leaving {
		return
	}
	before := c.table.Workers()
	c.happen(l, Leaving, Exit{Preempted: true})
	c.asked[l] = true
	if n := c.table.Workers(); n != before {
		t.Fatalf("%d workers when %v is asked to go, %d before", n, l.ID, before)
	}
}

// Again tells something a second time, late.
func (c *cluster) Again(t *rapid.T) {
	if len(c.lives) == 0 {
		t.Skip("no pod yet")
	}
	l := rapid.SampledFrom(c.lives).Draw(t, "pod")
	if len(l.reported) == 0 {
		t.Skip("not to this master")
	}
	ev := rapid.SampledFrom(l.reported).Draw(t, "event")
	if e := c.table.byID[l.ID]; c.unreported[l] && (e == nil || e.Phase == Cancelled) {
		t.Skip("a deletion is ordered as often as it exists")
	}
	if actions := c.table.Observe(ev, c.now); len(actions) > 0 {
		t.Fatalf("%+v reported again: %v", ev, actions)
	}
}

func (c *cluster) Wait(t *rapid.T) {
	c.now = c.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
	due, ok := c.table.Deadline()
	did := c.table.Tick(c.now)
	if (len(did) > 0) != (ok && !c.now.Before(due)) {
		t.Fatalf("deadline %v (%t), now %v: %v", due, ok, c.now, did)
	}
	c.take(did)
}

func (c *cluster) Scale(t *rapid.T) {
	c.wanted = rapid.IntRange(0, 5).Draw(t, "workers")
	c.take(c.table.Scale(c.wanted, c.now))
	if n := c.table.Workers(); n != c.wanted && !c.over {
		t.Fatalf("%d workers, scaled to %d", n, c.wanted)
	}
}

// Squeeze lets others take or free resources. Existing pods stay.
func (c *cluster) Squeeze(t *rapid.T) {
	c.room = c.policy.Servers + rapid.IntRange(0, 6).Draw(t, "room")
}

func (c *cluster) Check(t *rapid.T) {
	numbers, slots := make(map[ID]bool), make(map[string]bool)
	for _, p := range c.table.List() {
		if numbers[p.ID] {
			t.Fatalf("%v twice", p.ID)
		}
		numbers[p.ID] = true
		if e := c.table.byID[p.ID]; !p.Phase.Ended() && e.line.current != nil &&
			(p.Phase != Leaving || p.ID.Role == PS) {
			if name := lineName(p.ID.Role, p.Original); slots[name] {
				t.Fatalf("%s has two pods", name)
			} else {
				slots[name] = true
			}
		}
	}
	for _, e := range c.table.pods {
		c.legal(t, e)
	}
	for l, n := range c.counted {
		if n > c.policy.Relaunches+c.policy.MaxOOMs[Worker]+1 || n != l.Counted {
			t.Fatalf("a line was counted %d times: %+v", n, l)
		}
	}
	if c.over && c.table.Ended() && len(c.live()) > 0 {
		t.Fatalf("ended, but %d are live", len(c.live()))
	}
}

// legal checks what package pod's picture says of a pod, and of its way since the last look.
func (c *cluster) legal(t *rapid.T, e *entry) {
	name := incarnationName(e.ID, e.Incarnation)
	before := c.before[name]
	c.before[name] = e.Phase
	there := e.Phase >= Creating && e.Phase <= Leaving
	switch {
	case e.Phase < before && (e.Phase != Wanted || before != Creating):
		t.Fatalf("%s was %v and is %v", name, before, e.Phase)
	case before.Ended() && e.Phase != before:
		t.Fatalf("%s had ended as %v and is %v", name, before, e.Phase)
	case e.Phase >= Pending && e.creation != creation{}:
		t.Fatalf("%s is %v, and yet to be created: %+v", name, e.Phase, e.creation)
	case e.order != "" && !there:
		t.Fatalf("%s is %v, and to be deleted: %s", name, e.Phase, e.order)
	case e.Phase == Wanted && e.creation.due.IsZero():
		t.Fatalf("%s is wanted, and never due", name)
	case !e.Phase.Ended() && e.line.current != e && e.Phase != Leaving && e.order == "":
		t.Fatalf("%s is %v, and another has its place", name, e.Phase)
	}
}

// settle performs everything, lets every pod run, and waits for what is due: with little room until
// the servers are there, then with as much as they want.
func (c *cluster) settle(t *rapid.T) {
	c.settling = true
	before := c.table.Err()
	for _, e := range c.table.pods {
		if e.creation.refused > 0 {
			e.creation.since = c.now
		}
	}
	serve := func() bool {
		servers := c.policy.Servers
		for _, l := range c.live() {
			if l.ID.Role == PS && l.Phase == Running {
				servers--
			}
		}
		return servers == 0
	}
	for range 1000 {
		if serve() || before != nil {
			c.room = 1000
		}
		if err := c.table.Err(); err != nil && before == nil && strings.Contains(err.Error(), "be created") {
			t.Fatalf("there is room for the servers, and %v", err)
		}
		switch {
		case len(c.todo) > 0:
			c.Perform(t)
		case slices.ContainsFunc(c.live(), func(l *life) bool { return l.Phase == Pending || l.Phase == Leaving }):
			c.Run(t)
		default:
			due, ok := c.table.Deadline()
			if !ok {
				return
			}
			c.now = due
			c.take(c.table.Tick(c.now))
		}
	}
	t.Fatal("does not settle")
}

// TestLaws runs the table with a cluster where anything happens at any time.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		t.Repeat(map[string]func(*rapid.T){
			"": c.Check, "perform": c.Perform, "perform more": c.Perform, "run": c.Run, "run more": c.Run,
			"die": c.Die, "again": c.Again, "wait": c.Wait, "scale": c.Scale, "ask": c.Ask,
			"squeeze": c.Squeeze, "reject": c.Reject,
			"write": c.Write, "restart": c.Restart, "replace": c.Replace, "land": c.Land,
		})
		c.settle(t)
		// Settled means that there is nothing to do, and that who is wanted is there.
		if actions := c.table.Tick(c.now); len(actions) > 0 {
			t.Fatalf("settled, but %v", actions)
		}
		live, core, servers := 0, 0, 0
		for _, l := range c.live() {
			if l.ID.Role == Worker {
				live++
				if l.Core {
					core++
				}
			} else {
				servers++
			}
		}
		if servers != c.policy.Servers && c.table.Err() == nil {
			t.Fatalf("%d servers live of %d", servers, c.policy.Servers)
		}
		if want := c.table.Workers(); live != want || live > c.wanted || live < c.wanted-c.givenUp {
			t.Fatalf("%d workers live, %d in the table, %d wanted, %d lines ended", live, want, c.wanted, c.givenUp)
		}
		if core != min(live, c.policy.Core) && c.table.Err() == nil {
			t.Fatalf("%d workers live, %d of them of the core of %d", live, core, c.policy.Core)
		}
		if live == 0 && c.wanted > 0 && c.table.Err() == nil {
			t.Fatal("no worker is left, and no error")
		}
		c.over = true
		c.take(c.table.End(time.Second, c.now))
		if rapid.Bool().Draw(t, "the master comes back to end the job") {
			c.restart(t)
		}
		c.settle(t)
		if !c.table.Ended() || len(c.live()) > 0 {
			t.Fatalf("%d pods are left after the end", len(c.live()))
		}
		for _, l := range c.lives {
			if c.lost[incarnationName(l.ID, l.Incarnation)] != 1 && !c.unreported[l] && !c.again[l] {
				t.Fatalf("%v was not reported lost", l.ID)
			}
		}
	})
}

package goodput

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// cast draws the states of workers over time: some end, others come, all report now and then.
type cast struct {
	now      time.Time
	numbers  []int
	next     int
	spent    map[int]*Spent
	progress int64
}

func newCast() *cast { return &cast{now: time.UnixMilli(1_000_000), spent: make(map[int]*Spent)} }

func (c *cast) view(t *rapid.T) View {
	v := View{Asked: rapid.IntRange(0, 5).Draw(t, "asked"),
		Missing:    rapid.SampledFrom([]Cause{Training, Queue, Failed, Data}).Draw(t, "missing"),
		Recovering: rapid.Bool().Draw(t, "recovering"), Cutting: rapid.Bool().Draw(t, "cutting")}
	for len(c.numbers) > 0 && rapid.IntRange(0, 4).Draw(t, "ends") == 0 {
		c.numbers = c.numbers[1:]
	}
	for len(c.numbers) < 6 && rapid.IntRange(0, 2).Draw(t, "comes") > 0 {
		c.numbers = append(c.numbers, c.next)
		c.spent[c.next] = &Spent{Measured: rapid.Bool().Draw(t, "measures")}
		c.next++
	}
	for _, n := range c.numbers {
		w := Worker{Number: n, Cause: rapid.SampledFrom([]Cause{Training, Training, Training, Pending, Forming,
			Servers, Stuck}).Draw(t, "cause"), Unheard: rapid.IntRange(0, 9).Draw(t, "unheard") == 0}
		s := c.spent[n]
		if rapid.Bool().Draw(t, "reports") {
			c.report(t, s)
		}
		w.Spent = *s
		v.Workers = append(v.Workers, w)
	}
	if rapid.IntRange(0, 3).Draw(t, "hangs") == 0 {
		v.Hung = c.now.UnixMilli() - rapid.Int64Range(0, 5000).Draw(t, "since")
	}
	v.Progress = c.progress
	switch rapid.IntRange(0, 9).Draw(t, "progress") {
	case 0:
		v.Progress = -1
	case 1:
		c.progress = rapid.Int64Range(0, c.progress).Draw(t, "to")
		v.Progress = c.progress
	default:
		c.progress += rapid.Int64Range(0, 100).Draw(t, "more")
		v.Progress = c.progress
	}
	return v
}

func (c *cast) report(t *rapid.T, s *Spent) {
	if rapid.IntRange(0, 30).Draw(t, "again") == 0 {
		*s = Spent{Measured: s.Measured, Report: s.Report}
	}
	s.Report++
	if !s.Measured {
		return
	}
	some := rapid.Int64Range(0, 900)
	s.Steps += rapid.Int64Range(0, 9).Draw(t, "steps")
	s.Compute, s.Data = s.Compute+some.Draw(t, "compute"), s.Data+some.Draw(t, "data")
	s.Peers += some.Draw(t, "peers")
	s.Servers, s.Checkpoint = s.Servers+some.Draw(t, "servers"), s.Checkpoint+some.Draw(t, "checkpoint")
	s.Forming += some.Draw(t, "forming")
}

func (c *cast) pass(t *rapid.T) time.Duration {
	d := time.Duration(rapid.IntRange(-200, 3000).Draw(t, "passes")) * time.Millisecond
	c.now = c.now.Add(d)
	return d
}

// Laws 1, 2, 3 and 5, over masters that end and jobs that rest.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Account
		c := newCast()
		var wanted int64
		asked, counts := 0, false
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			before := a.lost
			trained, wantedBefore := a.Training(), a.Wanted()
			if d := c.pass(t); d > 0 && counts {
				wanted += d.Milliseconds() * int64(asked)
			}
			switch rapid.IntRange(0, 14).Draw(t, "call") {
			case 0:
				a.Stop(c.now)
				counts = false
			case 1:
				a.Wait(Queue, c.now)
				counts = true
			case 2:
				// the next master observes what has passed
				a = Restore(throughJSON(t, a.Snapshot()))
				v := c.view(t)
				a.Observe(v, c.now)
				asked, counts = v.Asked, true
			default:
				v := c.view(t)
				a.Observe(v, c.now)
				asked, counts = v.Asked, true
			}
			check(t, &a)
			if a.Wanted() != wanted || a.Wanted() < wantedBefore {
				t.Fatalf("%d ms are wanted, want %d", a.Wanted(), wanted)
			}
			var gained int64
			for cause, ms := range a.lost {
				if ms < before[cause] {
					t.Fatalf("%v: %d ms after %d", Cause(cause), ms, before[cause])
				}
				gained += ms - before[cause]
			}
			if a.Training() < trained-gained {
				t.Fatalf("training %d after %d, causes gained %d", a.Training(), trained, gained)
			}
		}
	})
}

// check checks what holds at any time.
func check(t *rapid.T, a *Account) {
	sum, open := a.Training(), int64(0)
	for _, c := range Causes() {
		if a.Lost(c) < 0 {
			t.Fatalf("%v: %d", c, a.Lost(c))
		}
		sum += a.Lost(c)
	}
	for n, s := range a.slots {
		open += s.open
		if s.open < 0 || s.unseen < 0 || s.unseen > s.open && s.former || s.other < 0 {
			t.Fatalf("worker %d: %+v", n, *s)
		}
	}
	if sum != a.Wanted() || a.Lost(Training) != 0 || a.Training() < 0 || a.certain() < 0 || open != a.open ||
		len(a.slots) > a.asked || len(a.marks) > MostMarks {
		t.Fatalf("%d of %d, training %d, certain %d, open %d of %d, %d slots for %d, %d marks", sum, a.Wanted(),
			a.Training(), a.certain(), a.open, open, len(a.slots), a.asked, len(a.marks))
	}
}

// Law 4: a twin that is saved and restored at the time of an observation, and hears all workers at
// that time, answers the same from then on.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Account
		c := newCast()
		step := func(twin *Account) {
			v := c.view(t)
			for i := range v.Workers {
				v.Workers[i].Unheard = false
			}
			a.Observe(v, c.now)
			if twin != nil {
				twin.Observe(v, c.now)
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "before") {
			c.pass(t)
			step(nil)
		}
		for _, s := range a.slots {
			// the rest of a second that reports exceed the time by is not saved
			s.owed = parts{}
		}
		twin := Restore(throughJSON(t, a.Snapshot()))
		for _, s := range c.spent {
			s.Report += 100
		}
		for range rapid.IntRange(1, 20).Draw(t, "after") {
			step(&twin)
			check(t, &twin)
			if x, y := merged(a.lost), merged(twin.lost); x != y || a.wanted != twin.wanted ||
				!reflect.DeepEqual(a.marks, twin.marks) || a.open != twin.open {
				t.Fatalf("%v, want %v\n%v\nwant %v", y, x, twin.marks, a.marks)
			}
			c.pass(t)
		}
	})
}

// merged returns lost time, with all waits for other workers together.
func merged(lost [causes]int64) [causes]int64 {
	lost[SlowestRank] += lost[Communication]
	lost[Communication] = 0
	return lost
}

// A snapshot of another version, or a damaged one, gives an account that keeps its laws.
func TestRestoreOfDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-2, 1000)
		s := Snapshot{At: n.Draw(t, "at"), Asked: rapid.IntRange(-1, 4).Draw(t, "asked"),
			Missing: rapid.SampledFrom([]string{"", "queue", "training", "x"}).Draw(t, "missing"),
			Wanted:  n.Draw(t, "wanted"), Progress: n.Draw(t, "progress"),
			Lost: map[string]int64{"queue": n.Draw(t, "queue"), "rollback": n.Draw(t, "rollback"), "x": 7,
				"training": n.Draw(t, "training")}}
		for range rapid.IntRange(0, 80).Draw(t, "marks") {
			s.Marks = append(s.Marks, [2]int64{n.Draw(t, "at"), n.Draw(t, "trained")})
		}
		for range rapid.IntRange(0, 5).Draw(t, "workers") {
			s.Workers = append(s.Workers, rapid.SliceOfN(n, fields-1, fields).Draw(t, "worker"))
		}
		a := Restore(s)
		check(t, &a)
		c := newCast()
		for range 5 {
			before := a.lost
			c.pass(t)
			a.Observe(c.view(t), c.now)
			check(t, &a)
			for cause, ms := range a.lost {
				if ms < before[cause] {
					t.Fatalf("%v: %d ms after %d", Cause(cause), ms, before[cause])
				}
			}
		}
	})
}

func throughJSON(t *rapid.T, s Snapshot) (again Snapshot) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

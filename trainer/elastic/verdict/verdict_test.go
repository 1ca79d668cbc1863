package verdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1e9, 0)

// Failures, one of each cause.
var (
	own       = Failure{Rank: 1, PID: 7, Code: 1, Reason: "exit code 1", UnixMs: 5}
	killed    = Failure{PID: 8, Signal: 9, Reason: "killed by SIGKILL", UnixMs: 6}
	memory    = Failure{Signal: 9, Memory: true, Reason: "out of memory", UnixMs: 6}
	forked    = Failure{Signal: 11, Forked: true, Reason: "killed by SIGSEGV", UnixMs: 6}
	doubts    = Failure{Code: 81, Excused: true, Doubt: true, Reason: "exit code 81", UnixMs: 6}
	recalled  = Failure{Code: 83, Excused: true, Reason: "exit code 83"}
	byItself  = Failure{Signal: 6, Reason: "killed by SIGABRT", UnixMs: 6}
	hangs     = Failure{Rank: 2, PID: 9, Signal: 9, Hung: true, Reason: "no progress for 2m", UnixMs: 7}
	recallKil = Failure{Signal: 9, Excused: true, Reason: "killed by SIGKILL"}
)

// Each failure has one cause, and of several in a world one is the root, in whichever order they
// are reported.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		cause string
		f     Failure
		// failures that it precedes
		before []Failure
	}{
		{hung, hangs, []Failure{killed, forked, doubts, recalled, own, memory, byItself}},
		{"killed from outside", killed, []Failure{doubts, recalled, own, memory, byItself}},
		{afterFork, forked, []Failure{doubts, recalled, own, memory}},
		{inDoubt, doubts, []Failure{recalled, own, memory}},
		{excused, recalled, []Failure{own, memory}},
		{excused, recallKil, []Failure{own}},
		{"its own failure", own, []Failure{memory, byItself}},
		{"its own failure", memory, nil},
		{"its own failure", byItself, nil},
	} {
		if got := c.f.cause().text; got != c.cause {
			t.Errorf("%+v: %s, want %s", c.f, got, c.cause)
		}
		for _, other := range c.before {
			for _, both := range [][]Failure{{c.f, other}, {other, c.f}} {
				if got, cause := root(both); got != c.f || cause.text != c.cause {
					t.Errorf("%+v: the root is %+v, %s", both, got, cause.text)
				}
			}
		}
	}
	for signal := range 32 {
		want := "its own failure"
		switch signal {
		case 1, 2, 3, 9, 15:
			want = "killed from outside"
		}
		if got := (Failure{Signal: signal}).cause().text; got != want {
			t.Errorf("signal %d: %s, want %s", signal, got, want)
		}
	}
}

// after returns a judge of two workers whose first world has run for a while.
func after(s Snapshot, most int, ran time.Duration) (*Judge, time.Time) {
	j, err := Restore(Policy{MaxRestarts: most, Gather: 10 * time.Second}, s)
	if err != nil {
		panic(err)
	}
	j.Start(2, start)
	return j, start.Add(ran)
}

// The verdict on the end of a world follows from that end and from what the program has used up.
func TestEnd(t *testing.T) {
	const s = time.Second
	same := func(count int) Repeats {
		j, _ := after(Snapshot{}, 0, 0)
		j.Hear(Report{Generation: 1})
		j.Hear(Report{Worker: 1, Generation: 1})
		return Repeats{Last: j.signature(World{Generation: 1, Workers: []int{0, 1}}, own), Count: count, Ran: s}
	}
	for name, c := range map[string]struct {
		before  Snapshot
		failed  []Failure
		end     func(*Judge, *End)
		most    int
		want    Verdict
		becomes Snapshot
	}{
		"nobody failed": {Snapshot{Counted: 2, Failures: 2, Doubts: 3, Repeats: same(2)}, nil, nil, 5, Verdict{},
			Snapshot{Counted: 2, Failures: 2, Doubts: 3, Again: 1}},
		"a member left": {Snapshot{Repeats: same(2)}, []Failure{own}, func(_ *Judge, e *End) { e.Left = true }, 5,
			Verdict{}, Snapshot{Again: 1}},
		"a member is lost": {Snapshot{Repeats: same(2)}, []Failure{own},
			func(_ *Judge, e *End) { e.Workers = []int{0, 1, 2} }, 5, Verdict{}, Snapshot{Again: 1}},
		"an excused end": {Snapshot{Repeats: same(2)}, []Failure{recalled}, nil, 5, Verdict{},
			Snapshot{Again: 1, Repeats: same(2)}},
		"its own failure": {Snapshot{}, []Failure{own}, nil, 1,
			Verdict{Counted: true, Text: "; the program starts again (counted)"},
			Snapshot{Counted: 1, Failures: 1, Again: 1, Repeats: same(1)}},
		"one more than the budget": {Snapshot{Counted: 1, Failures: 1}, []Failure{own}, nil, 1,
			Verdict{Counted: true, Text: "; the job fails (counted)", Err: errors.New("the program failed 2 times, " +
				"--max_restarts=1: rank 1 (pid 7): exit code 1")},
			Snapshot{Counted: 2, Failures: 2, Again: 1, Repeats: same(1)}},
		"no budget": {Snapshot{}, []Failure{own}, nil, 0,
			Verdict{Counted: true, Text: "; the job fails (counted)",
				Err: errors.New("the program failed: rank 1 (pid 7)")},
			Snapshot{Counted: 1, Failures: 1, Again: 1, Repeats: same(1)}},
		"the same again": {Snapshot{Repeats: same(2)}, []Failure{own}, nil, 9,
			Verdict{Counted: true, Text: ", the same 3 times in a row; the job fails (counted)",
				Err: errors.New("the program ended in the same way 3 times in a row")},
			Snapshot{Counted: 1, Failures: 1, Again: 1, Repeats: same(3), Repeated: true}},
		"the same, others kept the state": {Snapshot{Repeats: same(2)}, []Failure{own},
			func(_ *Judge, e *End) { e.Next.Kept = true }, 9,
			Verdict{Counted: true, Text: "; the others continue, it is started again (counted)"},
			Snapshot{Counted: 1, Failures: 1, Again: 1, Repeats: same(3)}},
		"the same, after a round": {Snapshot{Doubts: 4, Repeats: same(2)}, []Failure{own},
			func(j *Judge, _ *End) { j.Advance(1) }, 9,
			Verdict{Counted: true, Text: "; the program starts again (counted)"},
			Snapshot{Counted: 1, Failures: 1, Again: 1, Repeats: same(1)}},
		"for want of workers": {Snapshot{}, []Failure{own}, func(_ *Judge, e *End) { e.Wanted = 3 }, 0,
			Verdict{Lacked: 1, Text: ", in a world that lacked 1 of 3 workers; the program starts again when they " +
				"are there, or in 10s (not counted)"}, Snapshot{Failures: 1, Again: 1}},
		"killed, for want of workers": {Snapshot{}, []Failure{killed}, func(_ *Judge, e *End) { e.Wanted = 3 }, 0,
			Verdict{Text: "; the program starts again (not counted)"}, Snapshot{Failures: 1, Again: 1}},
		"after a fork": {Snapshot{}, []Failure{forked}, nil, 0,
			Verdict{Text: " soon after it was forked, which may be the cause: its worker starts processes by exec " +
				"from now on; the program starts again (not counted)"}, Snapshot{Failures: 1, Again: 1}},
		"a doubt": {Snapshot{}, []Failure{doubts}, nil, 0, Verdict{Text: "81; the program starts again (not counted)"},
			Snapshot{Failures: 1, Again: 1, Doubts: 1}},
		"a doubt too many": {Snapshot{Doubts: 4}, []Failure{doubts}, nil, 1,
			Verdict{Counted: true, Text: ", in 5 worlds without a completed round; the program starts again (counted)"},
			Snapshot{Counted: 1, Failures: 1, Again: 1}},
		"a doubt after a round": {Snapshot{Doubts: 4}, []Failure{doubts}, func(j *Judge, _ *End) { j.Advance(1) }, 0,
			Verdict{Text: "81; the program starts again (not counted)"}, Snapshot{Failures: 1, Again: 1}},
		"its own failure after doubts": {Snapshot{Doubts: 4}, []Failure{own}, nil, 1,
			Verdict{Counted: true, Text: "(counted)"}, Snapshot{Counted: 1, Failures: 1, Again: 1, Repeats: same(1)}},
		"processes that keep their state joined": {Snapshot{}, nil, func(_ *Judge, e *End) { e.Keeps = true }, 0,
			Verdict{}, Snapshot{}},
	} {
		t.Run(name, func(t *testing.T) {
			j, now := after(c.before, c.most, s)
			j.Hear(Report{Generation: 1, Failures: c.failed})
			j.Hear(Report{Worker: 1, Generation: 1})
			e := End{World: World{Generation: 1, Workers: []int{0, 1}},
				Next: World{Generation: 2, Workers: []int{0, 1}}, Wanted: 2}
			if c.end != nil {
				c.end(j, &e)
			}
			got := j.End(e, now)
			same := got.Counted == c.want.Counted && got.Lacked == c.want.Lacked &&
				strings.HasSuffix(got.Text, c.want.Text) &&
				(got.Text == "") == (c.want.Text == "") && (got.Err == nil) == (c.want.Err == nil)
			if !same || c.want.Err != nil && !strings.HasPrefix(got.Err.Error(), c.want.Err.Error()) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			c.becomes.Last = got.Text
			if became := j.Snapshot(); became != c.becomes {
				t.Errorf("it becomes\n%+v, want\n%+v", became, c.becomes)
			}
			if again := j.End(e, now); again != (Verdict{}) || j.Snapshot() != c.becomes {
				t.Errorf("judged again: %+v and %+v", again, j.Snapshot())
			}
		})
	}
}

// The same end without progress counts, and nothing else does.
func TestRepeats(t *testing.T) {
	kill := Signature{Signal: 9, Output: "a", Checkpoint: 7}
	other := func(change func(*Signature)) Signature {
		m := kill
		change(&m)
		return m
	}
	const s = time.Second
	for name, c := range map[string]struct {
		second Signature
		first  time.Duration
		then   time.Duration
		want   int
	}{
		"the same":                  {kill, s, s, 2},
		"a little later":            {kill, s, 3 * s, 2},
		"a little sooner":           {kill, 3 * s, s, 2},
		"as late on a busy machine": {kill, 10 * s, 19 * s, 2},
		"much later":                {kill, 10 * s, time.Minute, 1},
		"much sooner":               {kill, time.Minute, 10 * s, 1},
		"after a restart":           {kill, time.Minute, -1, 2},
		"another signal":            {other(func(m *Signature) { m.Signal = 15 }), s, s, 1},
		"an exit code":              {other(func(m *Signature) { m.Signal, m.Code = 0, 1 }), s, s, 1},
		"another message":           {other(func(m *Signature) { m.Message = "KeyError" }), s, s, 1},
		"other output":              {other(func(m *Signature) { m.Output = "b" }), s, s, 1},
		"a new checkpoint file":     {other(func(m *Signature) { m.Checkpoint = 8 }), s, s, 1},
	} {
		r := Repeats{}.add(kill, c.first)
		if r.Count != 1 {
			t.Fatalf("the first end counts %d times", r.Count)
		}
		if r = r.add(c.second, c.then); r.Count != c.want {
			t.Errorf("%s: counted %d times, want %d", name, r.Count, c.want)
		}
		if r = r.add(c.second, c.then); r.Count != c.want+1 {
			t.Errorf("%s, again: counted %d times, want %d", name, r.Count, c.want+1)
		}
	}
}

// The output of processes of any rank is part of the signature. The output of the world before is
// not.
func TestSignature(t *testing.T) {
	j, _ := after(Snapshot{}, 0, 0)
	of := func(generation int64, a, b string) Signature {
		j.Hear(Report{Generation: generation, Output: a, Checkpoint: 3})
		if b != "" {
			j.Hear(Report{Worker: 1, Generation: generation, Output: b, Checkpoint: 2})
		}
		return j.signature(World{Generation: generation, Workers: []int{0, 1}}, own)
	}
	first := of(1, "x", "y")
	if again := of(2, "x", "y"); again != first || first.Checkpoint != 3 {
		t.Errorf("%+v, then %+v", first, again)
	}
	if other := of(3, "x", "z"); other == first {
		t.Error("the output of the second rank does not count")
	}
	if other := of(4, "x", ""); other == of(3, "x", "z") {
		t.Error("the output of the world before counts")
	}
	long := own
	long.Message = strings.Repeat("x", 2*keptFailure)
	if got := j.signature(World{}, long).Message; len(got) != keptFailure {
		t.Errorf("the message has %d bytes", len(got))
	}
}

// A failure of a world that lacks workers is excused as long as they can be the reason.
func TestLacked(t *testing.T) {
	for _, c := range []struct {
		ran           time.Duration
		whole, wanted int
		round         bool
		want          int
	}{
		{time.Second, 1, 2, false, 1},
		{time.Second, 2, 2, false, 0},
		{time.Second, 3, 2, false, 0},
		{gotOn - 1, 1, 2, false, 1},
		{gotOn, 1, 2, false, 0},
		{time.Second, 1, 2, true, 0},
		{time.Second, -1, 3, false, 1}, // not known: two members
	} {
		j := New(Policy{})
		j.Start(c.whole, start)
		if c.round {
			j.Advance(1)
		}
		e := End{World: World{Generation: 1, Workers: []int{0, 1}}, Wanted: c.wanted}
		if got := j.lacked(e, start.Add(c.ran)); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// Processes that fail soon after each start wait longer each time. Workers for which they wait end
// the wait.
func TestPauses(t *testing.T) {
	j, now := New(Policy{MaxRestarts: 100, Gather: 10 * time.Second}), start
	world := World{Generation: 1, Workers: []int{0}}
	ends := func(after time.Duration, wanted int, next ...int) time.Duration {
		now = now.Add(after)
		j.Hear(Report{Generation: world.Generation, Output: fmt.Sprint(world), Failures: []Failure{own}})
		follows := World{Generation: world.Generation + 1, Workers: next}
		j.End(End{World: world, Next: follows, Wanted: wanted}, now)
		world = follows
		return j.Start(len(next), now)
	}
	j.Start(1, now)
	pause := time.Duration(0)
	for i, want := range []time.Duration{0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60} {
		if pause = ends(pause+2*time.Second, 1, 0); pause != want*time.Second {
			t.Errorf("after %d brief worlds it waits %v, want %ds", i+1, pause, want)
		}
	}
	if got, want := j.Waiting(1, now.Add(20*time.Second)), "its processes wait 1m0s before they start: 12 times "+
		"in a row they failed within 30s"; got != want {
		t.Errorf("it waits for %q", got)
	}
	if got := j.Start(1, now.Add(20*time.Second)); got != 40*time.Second {
		t.Errorf("as the workers meet again it waits %v more, want 40s", got)
	}
	if got := ends(pause+briefly, 1, 0); got != 0 || j.Waiting(1, now) != "" {
		t.Errorf("after a world that lasted it waits %v, %q", got, j.Waiting(1, now))
	}
	if got := ends(time.Second, 2, 0); got != 10*time.Second {
		t.Errorf("for a worker that it lacked it waits %v", got)
	}
	if got, want := j.Waiting(2, now.Add(time.Second)), "waiting for 1 of 2 workers, for at most 9s more: the "+
		"program failed in a world without them"; got != want {
		t.Errorf("it waits for %q", got)
	}
	// the worker comes, and the world before ends without a failure
	j.Hear(Report{Generation: world.Generation})
	next := World{Generation: world.Generation + 1, Workers: []int{0, 1}}
	j.End(End{World: world, Next: next, Wanted: 2}, now.Add(time.Second))
	if got := j.Start(2, now.Add(time.Second)); got != 0 {
		t.Errorf("with the worker it waits %v", got)
	}
}

// A snapshot is small, whatever a process reports, and an impossible one is refused.
func TestSnapshots(t *testing.T) {
	j, now := after(Snapshot{}, 9, time.Second)
	long := own
	long.Message, long.Reason = strings.Repeat("m", 1<<20), strings.Repeat("é", 1<<20)
	j.Hear(Report{Generation: 1, Failures: []Failure{long}})
	v := j.End(End{World: World{Generation: 1, Workers: []int{0}}, Next: World{Generation: 2}}, now)
	text, err := json.Marshal(j.Snapshot())
	if err != nil || len(text) > 3*keptFailure || !strings.Contains(v.Text, "é;") {
		t.Errorf("%d bytes, %v: %.300s", len(text), err, v.Text)
	}
	for _, s := range []Snapshot{{Counted: -1}, {Counted: 2, Failures: 1}, {Doubts: mostDoubts},
		{Doubts: -1}, {Again: -1},
		{Repeats: Repeats{Count: -1}}} {
		if _, err := Restore(Policy{}, s); err == nil {
			t.Errorf("%+v is restored", s)
		}
	}
}

package verdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// past is a world that has ended, as the model remembers it.
type past struct {
	// how its failure is to be judged
	verdict
	// the program did not end it: it has lost a member, or nobody failed
	missed bool
	// a round was completed in it, or in a later generation
	round bool
	// it was not brief
	lasted bool
	ran    time.Duration
}

// verdict is the model's decision on a world.
type verdict struct {
	root Failure
	// "own", "hung", "killed", "forked", "doubt", "excused"; "": nobody failed
	cause   string
	counted bool
	lacked  int
	doubts  int
	same    int
	// what all processes have written
	output string
}

// model keeps all that ever happened, and looks through it for each answer.
type model struct {
	t       *rapid.T
	policy  Policy
	j, twin *Judge
	now     time.Time
	world   World
	// newest generation in which this master knows of a round
	round int64
	// what workers have reported from the world
	reports []Report
	pasts   []past
	// number of workers that brought all their processes; -1: not known
	whole int
	// when the processes of the world started; zero: not known
	starts time.Time
	// for how many workers that start waits
	lacks int
	// the job has failed
	failed bool
}

func newModel(t *rapid.T) *model {
	p := Policy{MaxRestarts: rapid.IntRange(0, 4).Draw(t, "max restarts"),
		Gather: time.Duration(rapid.IntRange(0, 1).Draw(t, "gather")) * 10 * time.Second}
	m := &model{t: t, policy: p, j: New(p), twin: New(p), now: start}
	m.begin(World{Generation: 1, Workers: []int{0, 1}}, start)
	return m
}

// both calls the judge and its twin, which are to answer the same.
func (m *model) both(do func(j *Judge) any) any {
	a, b := do(m.j), do(m.twin)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		m.t.Fatalf("same calls, other answers:\n%+v\n%+v", a, b)
	}
	return a
}

// begin begins a world whose processes are to start at a time.
func (m *model) begin(w World, at time.Time) {
	m.world, m.whole, m.reports = w, rapid.IntRange(1, len(w.Workers)).Draw(m.t, "whole"), nil
	m.starts = at
	if at.Before(m.now) {
		m.starts = m.now
	}
	pause := m.both(func(j *Judge) any { return j.Start(m.whole, m.now) })
	if pause != m.starts.Sub(m.now) {
		m.t.Fatalf("%+v waits %v, want %v", w, pause, m.starts.Sub(m.now))
	}
	if waits := m.j.Waiting(3, m.now); (waits == "") != (pause == time.Duration(0)) {
		m.t.Fatalf("it waits %v for %q", pause, waits)
	}
}

// Report has a worker come back from the world, or from the one before.
func (m *model) Report(t *rapid.T) {
	r := Report{Worker: rapid.IntRange(0, 2).Draw(t, "worker"), Generation: m.world.Generation,
		Output: rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "output")}
	kinds := []Failure{own, hangs, killed, killed, memory, forked, doubts, doubts, doubts, recalled}
	r.Failures = rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 2).Draw(t, "failures")
	m.hear(r)
}

func (m *model) hear(r Report) {
	m.both(func(j *Judge) any { j.Hear(r); return nil })
	m.reports = append(m.reports, r)
}

// Round completes a round.
func (m *model) Round(t *rapid.T) {
	generation := rapid.Int64Range(max(0, m.world.Generation-1), m.world.Generation).Draw(t, "generation")
	m.both(func(j *Judge) any { j.Advance(generation); return nil })
	m.round = max(m.round, generation)
}

// Wait lets time pass.
func (m *model) Wait(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Second, 29 * time.Second,
		time.Minute, gotOn}).Draw(t, "time"))
}

// Restart restores the judge and its twin from what the master has written.
func (m *model) Restart(*rapid.T) {
	for _, j := range []**Judge{&m.j, &m.twin} {
		text, err := json.Marshal((*j).Snapshot())
		var s Snapshot
		if err = errors.Join(err, json.Unmarshal(text, &s)); err == nil {
			*j, err = Restore(m.policy, s)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.round, m.starts, m.whole, m.lacks, m.reports = 0, time.Time{}, -1, 0, nil
	for i := range m.pasts {
		m.pasts[i].lasted = true // worlds before count as such
	}
}

// since returns the worlds after the last one of a kind, the newest first.
func (m *model) since(is func(past) bool) []past {
	var found []past
	for _, p := range slices.Backward(m.pasts) {
		if is(p) {
			break
		}
		found = append(found, p)
	}
	return found
}

// number returns how many worlds are of a kind.
func number(all []past, is func(past) bool) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(p past) bool { return !is(p) }))
}

// judge returns the decision on the end of the world.
func (m *model) judge(e End) past {
	p := past{round: m.round >= e.Generation, ran: -1}
	if !m.starts.IsZero() {
		p.ran = m.now.Sub(m.starts)
	}
	p.lasted = p.round || m.starts.IsZero() || p.ran >= 30*time.Second
	var failed []Failure
	there := make(map[int]string)
	for _, r := range m.reports {
		failed = append(failed, r.Failures...)
		there[r.Worker] = r.Output
	}
	for _, w := range e.Workers {
		_, ok := there[w]
		p.missed = p.missed || !ok
		p.output += there[w] + " "
	}
	if p.missed = p.missed || e.Left || len(failed) == 0; p.missed {
		return p
	}
	for _, c := range []struct {
		cause string
		of    []Failure
	}{{"hung", []Failure{hangs}}, {"killed", []Failure{killed}}, {"forked", []Failure{forked}},
		{"doubt", []Failure{doubts}},
		{"excused", []Failure{recalled}}, {"own", []Failure{own, memory}}} {
		for _, f := range failed {
			// a kill and a crash after a fork are one as good as the other: the first counts
			either := c.cause == "killed" && f == forked && slices.Index(failed, forked) < slices.Index(failed, killed)
			if p.cause == "" && slices.Contains(failed, c.of[0]) && either {
				p.cause, p.root = "forked", f
			}
			if p.cause == "" && slices.Contains(c.of, f) {
				p.cause, p.root = c.cause, f
			}
		}
	}
	if p.cause == "own" { // the earliest
		if p.root = memory; slices.Contains(failed, own) {
			p.root = own
		}
	}
	whole := m.whole
	if whole < 0 {
		whole = len(e.Workers)
	}
	lacked := max(0, e.Wanted-whole)
	if p.round || p.ran >= 5*time.Minute {
		lacked = 0
	}
	switch p.cause {
	case "own", "hung":
		p.lacked, p.counted = lacked, lacked == 0
	case "doubt":
		if !p.round {
			p.doubts = 1 + number(m.since(func(q past) bool { return q.round || q.counted }), func(q past) bool {
				return q.cause == "doubt"
			})
			p.counted = p.doubts == 5
		}
	}
	if (p.cause == "own" || p.cause == "hung" || p.cause == "killed") && lacked == 0 {
		p.same = 1
		if !p.round {
			before := m.since(func(q past) bool { return q.same > 0 || q.round || q.missed })
			if n := len(m.pasts) - len(before); n > 0 {
				q := m.pasts[n-1]
				near := q.ran < 0 || p.ran < 0 || q.ran <= 2*p.ran+2*time.Second && p.ran <= 2*q.ran+2*time.Second
				if q.same > 0 && q.root.Signal == p.root.Signal && q.root.Code == p.root.Code &&
					q.output == p.output && near {
					p.same += q.same
				}
			}
		}
	}
	return p
}

// End ends the world, and begins the next.
func (m *model) End(t *rapid.T) {
	e := End{World: m.world, Next: World{Generation: m.world.Generation + 1,
		Kept: rapid.IntRange(0, 3).Draw(t, "kept") == 0},
		Left: rapid.IntRange(0, 9).Draw(t, "left") == 0, Keeps: rapid.Bool().Draw(t, "keeps"),
		Wanted: rapid.IntRange(1, 3).Draw(t, "wanted")}
	e.Next.Workers = []int{0, 1, 2}[:rapid.IntRange(1, 3).Draw(t, "next")]
	if rapid.IntRange(0, 4).Draw(t, "all come back") > 0 {
		for _, w := range e.Workers {
			if !slices.ContainsFunc(m.reports, func(r Report) bool { return r.Worker == w }) {
				m.hear(Report{Worker: w, Generation: m.world.Generation, Output: "a"})
			}
		}
	}
	// what it lacked follows from its start, before a wait is ended
	lacked := m.judge(e)
	if m.lacks > 0 && e.Wanted <= len(e.Next.Workers) {
		m.lacks, m.starts = 0, m.now
	}
	p := m.judge(e)
	if (p.cause == "own" || p.cause == "hung") && lacked.cause == p.cause {
		p.lacked, p.counted = lacked.lacked, lacked.counted
		if p.lacked > 0 {
			p.same = 0
		}
	}
	before := m.j.Snapshot()
	v := m.both(func(j *Judge) any { return j.End(e, m.now) }).(Verdict)
	after := m.j.Snapshot()
	again := m.both(func(j *Judge) any { return j.End(e, m.now) })
	if again != (Verdict{}) || m.j.Snapshot() != after {
		t.Fatalf("judged twice: %+v", again)
	}
	m.pasts = append(m.pasts, p)
	m.check(e, p, v, before, after)
	if m.failed = v.Err != nil; m.failed {
		return
	}
	at := m.starts
	if v.Text != "" {
		brief := number(m.since(func(q past) bool { return q.lasted || q.missed }), func(q past) bool {
			return q.cause != "excused"
		})
		pause := pauseAfter(brief)
		m.lacks = 0
		if missing := e.Wanted - len(e.Next.Workers); p.lacked > 0 && missing > 0 && !e.Next.Kept &&
			m.policy.Gather > 0 {
			m.lacks, pause = missing, max(pause, m.policy.Gather)
		}
		if !p.lasted || m.lacks > 0 {
			at = m.now.Add(pause)
		}
	}
	m.begin(e.Next, at)
}

// check compares a verdict with what the model expects.
func (m *model) check(e End, p past, v Verdict, before, after Snapshot) {
	silent := p.missed || p.cause == "excused"
	if (v.Text == "") != silent || v.Counted != p.counted || v.Lacked != p.lacked {
		m.t.Fatalf("%+v, want %+v", v, p)
	}
	counted := number(m.pasts, func(q past) bool { return q.counted })
	spoken := number(m.pasts, func(q past) bool { return !q.missed && q.cause != "excused" })
	if after.Counted != counted || after.Failures != spoken || m.j.Left() != max(0, m.policy.MaxRestarts-counted) {
		m.t.Fatalf("%+v; %d count, of %d", after, counted, spoken)
	}
	most := 3
	if e.Next.Kept {
		most = 10
	}
	if fails := p.counted && counted > m.policy.MaxRestarts || !silent &&
		after.Repeats.Count >= most; fails != (v.Err != nil) {
		m.t.Fatalf("the job fails: %v, want %t, after %+v", v.Err, fails, after)
	}
	if p.same > 0 && after.Repeats.Count != p.same {
		m.t.Fatalf("the same end %d times, want %d", after.Repeats.Count, p.same)
	}
	if words := fmt.Sprintf("(pid %d): %s", p.root.PID, p.root.Reason); !silent && (!strings.Contains(v.Text, words) ||
		strings.Contains(v.Text, "not counted") == v.Counted) {
		m.t.Fatalf("%s, want %s of %+v", v.Text, words, p)
	}
	started := len(m.failures()) > 0 || p.missedMember(e, m.reports) || !e.Keeps
	if (after.Again-before.Again == 1) != started {
		m.t.Fatalf("started again %d times, and %d before: want %t", after.Again, before.Again, started)
	}
}

func (m *model) failures() (all []Failure) {
	for _, r := range m.reports {
		all = append(all, r.Failures...)
	}
	return all
}

// missedMember reports whether a member of a world has not come back.
func (p past) missedMember(e End, reports []Report) bool {
	return slices.ContainsFunc(e.Workers, func(w int) bool {
		return !slices.ContainsFunc(reports, func(r Report) bool { return r.Worker == w })
	})
}

// TestLaws compares the judge with the model, while workers come back with failures, rounds are
// completed, masters are restarted, and time passes.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		until := func(do func(*model, *rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				if m.failed { // the next job
					m = newModel(t)
				}
				do(m, t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){"report": until((*model).Report), "report more": until((*model).Report),
			"round": until((*model).Round), "wait": until((*model).Wait), "end": until((*model).End),
			"end more": until((*model).End),
			"restart":  until((*model).Restart)})
	})
}

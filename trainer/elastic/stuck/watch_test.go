package stuck

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1_000_000, 0)

// work is the behaviour of a rank at one time.
type work struct {
	// it writes a line
	writes bool
	cores  float64
	ready  bool
	// bytes that it moves in a second
	rate float64
	held bool
	// rounds that the job has completed
	progress int64
	// number of its restarts
	restarts int
}

// program returns the behaviour of a rank at a second.
type program func(second, rank int) work

// alarm is a suspicion of a run, with the second at which it was raised, and that at which it
// ended; -1: it holds.
type alarm struct {
	raised, ended int
	Suspicion
}

// run observes a program of n ranks every 2 s, with a little noise.
func run(p program, n, seconds int) (all []alarm) {
	w, random := New(), rand.New(rand.NewPCG(1, uint64(n)))
	written, moved := make([]int, n), make([]float64, n)
	for i := range written {
		written[i] = -1
	}
	last := -2
	for second := range seconds {
		for i := range n {
			b := p(second, i)
			if moved[i] += b.rate; b.writes {
				written[i] = second
			}
		}
		if second%2 != 0 && random.IntN(10) > 0 || second == last+1 {
			continue
		}
		last = second
		var o Observation
		for i := range n {
			b := p(second, i)
			s := Sample{Rank: i, Process: 100*b.restarts + i, Quiet: -1, Moved: int64(moved[i]), Held: b.held,
				Ready: b.ready, Cores: max(0, b.cores*(0.9+random.Float64()/5)+random.Float64()/100)}
			if written[i] >= 0 {
				s.Quiet = time.Duration(1000*(second-written[i])+random.IntN(300)) * time.Millisecond
			}
			o.Progress = max(o.Progress, b.progress)
			o.Ranks = append(o.Ranks, s)
		}
		s := w.Observe(start.Add(time.Duration(second)*time.Second), o)
		holds := len(all) > 0 && all[len(all)-1].ended < 0
		if holds && (s == nil || s.Raised != all[len(all)-1].Raised) {
			all[len(all)-1].ended, holds = second, false
		}
		if s != nil && !holds {
			all = append(all, alarm{second, -1, *s})
		}
	}
	return all
}

// trains returns the work of a program that writes a line every ten seconds.
func trains(second, rank int) work { return work{writes: second%10 == 0, cores: 0.9, rate: 5000} }

// after returns the work of a program that trains for 100 s and then does something else.
func after(p program) program {
	return func(second, rank int) work {
		if second < 100 {
			return trains(second, rank)
		}
		return p(second-100, rank)
	}
}

// only returns the work of a program of which one rank does something else than the others.
func only(one int, does, others work) program {
	return func(_, rank int) work {
		if rank == one {
			return does
		}
		return others
	}
}

var (
	busy = work{cores: 1}
	idle = work{cores: 0.01, rate: 500}
)

const hour = 3600

// Programs that hang are suspected within a minute, with the rank that differs.
func TestHangs(t *testing.T) {
	for name, c := range map[string]struct {
		p       program
		n       int
		differs []int
	}{
		"NCCL spins for one that sleeps":   {only(3, idle, busy), 8, []int{3}},
		"gloo waits for one that loops":    {only(3, busy, idle), 8, []int{3}},
		"all wait for a message":           {only(0, idle, idle), 8, nil},
		"one of two sleeps":                {only(1, idle, busy), 2, nil},
		"a single rank waits":              {only(0, idle, idle), 1, nil},
		"watchdog threads poll":            {only(2, work{cores: 0.04, rate: 4000}, busy), 4, []int{2}},
		"a machine that is busy otherwise": {only(2, idle, work{cores: 0.03, ready: true}), 4, []int{2}},
		"a thousand":                       {only(617, idle, busy), 1000, []int{617}},
		"threads use some, as before": {func(second, rank int) work {
			if rank == 1 && second >= 20 {
				return work{cores: 0.1}
			}
			return only(1, idle, busy)(second, rank)
		}, 4, []int{1}},
	} {
		all := run(after(c.p), c.n, 400)
		if len(all) != 1 || all[0].raised > 100+60 || all[0].ended >= 0 || !slices.Equal(all[0].Differ, c.differs) ||
			all[0].Since.After(start.Add(110*time.Second)) || len(all[0].Waiting) == 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
	// from the start, without a line of output
	if all := run(only(0, idle, idle), 2, 100); len(all) != 1 || all[0].raised > 60 {
		t.Errorf("a program that never begins: %+v", all)
	}
}

// Programs that work, or that somebody holds, raise no alarm in an hour. Neither do hangs that look
// like work.
func TestNoFalseAlarm(t *testing.T) {
	for name, p := range map[string]program{
		"trains":                 trains,
		"evaluates at full load": after(only(0, busy, work{cores: 0.6})),
		"evaluates on a machine that is busy otherwise": after(only(0, work{cores: 0.03, ready: true}, busy)),
		"downloads":  after(only(0, work{cores: 0.01, rate: 100 << 10}, idle)),
		"a debugger": after(only(2, work{held: true}, idle)),
		"writes a line every 40 s": func(second, rank int) work {
			return work{writes: second%40 == 0 && rank == 0, cores: float64(rank % 2)}
		},
		"counts rounds only": func(second, rank int) work { return work{progress: int64(second / 40), cores: 0.01} },
		"computes and waits by turns": func(second, rank int) work {
			return work{cores: float64(second / 25 % 2)}
		},
		"restarts every 40 s": func(second, rank int) work { return work{cores: 0.01, restarts: second / 40} },
		"all loop":            after(only(0, busy, busy)),
		"another thread writes": after(func(second, rank int) work {
			return work{cores: 0.01, writes: rank == 0 && second%30 == 0}
		}),
	} {
		if all := run(p, 4, hour); len(all) > 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
	if all := run(func(int, int) work { return work{} }, 0, hour); len(all) > 0 {
		t.Errorf("no ranks: %+v", all)
	}
}

// An evaluation of two minutes by one rank after each epoch raises one alarm, and not again. A hang
// is still found after twice that time.
func TestFalseAlarmsTeach(t *testing.T) {
	p := func(second, rank int) work {
		if second%400 < 120 && second < 2000 || second >= 2400 {
			return only(0, busy, idle)(second, rank)
		}
		return trains(second, rank)
	}
	all := run(p, 4, 3000)
	if len(all) != 2 || all[0].raised > 60 || all[0].ended < 120 || all[0].ended > 126 ||
		!slices.Equal(all[0].Differ, []int{0}) {
		t.Fatalf("%+v", all)
	}
	if hang := all[1]; hang.raised < 2400+240-10 || hang.raised > 2400+240+20 {
		t.Errorf("%+v", all)
	}
}

// A program without output ends a suspicion when its ranks do something else.
func TestChangesEndASuspicion(t *testing.T) {
	all := run(func(second, rank int) work {
		if second%130 < 100 {
			return only(0, busy, idle)(second, rank)
		}
		return busy
	}, 4, 260)
	if len(all) != 1 || all[0].raised > 60 || all[0].ended < 100 || all[0].ended > 116 {
		t.Errorf("%+v", all)
	}
}

// A debugger and a new process end a suspicion without proving it false.
func TestHeldTeachesNothing(t *testing.T) {
	for name, end := range map[string]work{"held": {held: true}, "restarted": {restarts: 1}} {
		all := run(after(func(second, rank int) work {
			w := idle
			if second >= 200 && (second < 210 || end.restarts > 0) {
				w = end
			}
			return w
		}), 2, 400)
		if len(all) != 2 || all[0].ended < 300 || all[0].ended > 304 || all[1].raised > 300+10+60 {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// A process of which nothing is known yet is not judged.
func TestUnknown(t *testing.T) {
	w := New()
	for i := range 100 {
		o := Observation{Ranks: []Sample{{Rank: 0, Quiet: -1, Cores: -1, Moved: -1}, {Rank: 1, Quiet: -1, Moved: -1}}}
		if s := w.Observe(start.Add(time.Duration(2*i)*time.Second), o); s != nil {
			t.Fatalf("after %d: %+v", i, s)
		}
	}
	for i := range 40 {
		o := Observation{Ranks: []Sample{{Rank: 0, Quiet: -1, Moved: -1}, {Rank: 1, Quiet: -1, Moved: -1}}}
		s := w.Observe(start.Add(time.Duration(200+2*i)*time.Second), o)
		if (s != nil) != (i >= 22) { // from 198 s on
			t.Fatalf("after %d: %+v", i, s)
		}
	}
}

// model is a dumb observer: it remembers all that it has seen.
type model struct {
	*rapid.T
	w, twin *Watch
	now     time.Time
	seen    []seen
	n       int
	process []int
	moved   []int64
	output  []time.Time
	rounds  int64
	random  *rand.Rand
	// the last suspicion, and the times of those that a sign of life has ended
	last     *Suspicion
	patience time.Duration
}

// seen is one observation.
type seen struct {
	at time.Time
	Observation
}

func (m *model) observe(held bool, cores, ready, rate []float64) {
	step := time.Duration(500+m.random.IntN(2000)) * time.Millisecond
	m.now = m.now.Add(step)
	o := Observation{Progress: m.rounds}
	for i := range m.n {
		m.moved[i] += int64(rate[i] * step.Seconds())
		s := Sample{Rank: i, Process: m.process[i], Quiet: -1, Cores: cores[i], Ready: ready[i] > 0, Moved: m.moved[i],
			Held: held && i == 0}
		if !m.output[i].IsZero() {
			s.Quiet = max(0, m.now.Sub(m.output[i])-time.Duration(m.random.IntN(100))*time.Millisecond)
		}
		o.Ranks = append(o.Ranks, s)
	}
	m.seen = append(m.seen, seen{m.now, o})
	s := m.w.Observe(m.now, o)
	order := slices.Clone(o.Ranks)
	m.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	other := m.twin.Observe(m.now, Observation{o.Progress, order})
	if !reflect.DeepEqual(s, other) {
		m.Fatalf("same calls, other suspicions:\n%+v\n%+v", s, other)
	}
	m.check(s)
	m.last = s
}

// life returns the time of the last sign of life, except for flow, in all that was seen.
func (m *model) life() (at time.Time) {
	for i, s := range m.seen {
		for j, r := range s.Ranks {
			if r.Quiet >= 0 && s.at.Add(-r.Quiet).After(at) {
				at = s.at.Add(-r.Quiet)
			}
			if r.Held || i == 0 || r.Process != m.seen[i-1].Ranks[j].Process {
				at = s.at
			}
		}
		if i == 0 || s.Progress != m.seen[i-1].Progress {
			at = s.at
		}
	}
	return at
}

func (m *model) check(s *Suspicion) {
	m.Helper()
	if s == nil {
		return
	}
	life := m.life()
	if life.Sub(s.Since) > jitter {
		m.Fatalf("%+v, although the last sign was at %v", s, life)
	}
	if again := m.last != nil && m.last.Raised == s.Raised; again {
		if !reflect.DeepEqual(*s, *m.last) {
			m.Fatalf("%+v became %+v", m.last, s)
		}
		return
	}
	if quiet := m.now.Sub(s.Since); s.Raised != m.now || quiet < m.patience {
		m.Fatalf("%+v is raised after %v, before %v", s, quiet, m.patience)
	}
	if len(s.Waiting) == 0 || len(s.Waiting)+len(s.Computing) != m.n || 2*len(s.Differ) >= m.n && m.n > 0 {
		m.Fatalf("%+v of %d ranks", s, m.n)
	}
}

// The laws hold for whatever ranks do.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "ranks")
		m := &model{T: t, w: New(), twin: New(), now: start, n: n, process: make([]int, n), moved: make([]int64, n),
			output: make([]time.Time, n), patience: Limit,
			random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		for range rapid.IntRange(1, 8).Draw(t, "phases") {
			level := rapid.SampledFrom([]float64{0, 0.01, 0.1, 0.3, 1})
			cores, ready, rate := make([]float64, n), make([]float64, n), make([]float64, n)
			for i := range n {
				cores[i] = level.Draw(t, "cores")
				rate[i] = rapid.SampledFrom([]float64{0, 100, Flow / 2, 2 * Flow}).Draw(t, "rate")
				ready[i] = rapid.SampledFrom([]float64{0, 0, 1}).Draw(t, "ready")
			}
			// what happens at the beginning of the phase
			who := rapid.IntRange(0, n-1).Draw(t, "who")
			events := []string{"output", "round", "restart", "hold", ""}
			switch held := false; rapid.SampledFrom(events).Draw(t, "event") {
			case "output":
				m.output[who] = m.now
			case "round":
				m.rounds++
			case "restart":
				m.process[who]++
			case "hold":
				held = true
				fallthrough
			default:
				m.observe(held, cores, ready, rate)
			}
			before := m.now
			suspected := m.w.suspicion != nil
			flows := slices.ContainsFunc(rate, func(r float64) bool { return r >= Flow })
			waits := slices.ContainsFunc(cores, func(c float64) bool { return c < waits }) && !slices.Contains(ready, 1)
			for range rapid.IntRange(1, 60).Draw(t, "observations") {
				m.patience = m.w.patience
				m.observe(false, cores, ready, rate)
				quiet := m.now.Sub(before)
				switch s := m.last; {
				case flows && s != nil && s.Raised.After(before.Add(2*span)):
					t.Fatalf("%+v, although bytes flow since %v", s, before)
				case !flows && waits && !suspected && m.patience == Limit && quiet > time.Minute && s == nil:
					t.Fatalf("not suspected %v after the last sign", quiet)
				}
			}
		}
	})
}

// A false alarm doubles the pause that is suspected, up to a limit.
func TestPatience(t *testing.T) {
	w, now := New(), start
	for i := range 12 {
		o := Observation{Progress: int64(i), Ranks: []Sample{{Rank: 0, Quiet: -1}}}
		w.Observe(now, o)
		before := now
		for w.Observe(now, o) == nil {
			now = now.Add(2 * time.Second)
		}
		if got, want := now.Sub(before), min(Most, Limit<<i); got < want || got > want+4*time.Second<<i {
			t.Errorf("alarm %d after %v, want %v", i, got, want)
		}
	}
	if fmt.Sprint(w.patience) != "4h0m0s" {
		t.Error(w.patience)
	}
}

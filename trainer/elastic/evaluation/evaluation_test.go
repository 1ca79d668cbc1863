package evaluation

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// hold tells the schedule what the servers hold, in order of index.
func hold(s *Schedule, versions ...int64) (withdrawn bool) {
	for i, v := range versions {
		withdrawn = s.Snapshot(i, v) || withdrawn
	}
	return withdrawn
}

func due(t *testing.T, s *Schedule, want int64) {
	t.Helper()
	if r, ok := s.Due(); ok != (want > 0) || r.Version != want {
		t.Fatalf("due: %+v (%t), want version %d", r, ok, want)
	}
}

// on returns a part that was measured on a version of model generation 0.
func on(version int64, shard string, start int64) Part {
	return Part{shard, start, Model{Version: version}}
}

// complete reports the only task of what is running.
func complete(t *testing.T, s *Schedule) {
	t.Helper()
	r, _ := s.Running()
	result, err := s.Report(r.Version, on(r.Version, "test", 0), []State{{"accuracy", []float64{1, 2}}})
	if err != nil || result == nil || result.Version != r.Version {
		t.Fatalf("result %+v, %v", result, err)
	}
}

func TestSnapshotsOneByOne(t *testing.T) {
	s := New(Policy{Steps: 50, Servers: 2})
	hold(s, 50, 0)
	due(t, s, 0) // the other one is not there yet
	hold(s, 50, 50)
	due(t, s, 50)
	if s.Release() >= 50 {
		t.Fatal("released before it was measured")
	}
	if r := s.Begin(1); r != (Run{50, 50}) {
		t.Fatalf("begun %+v", r)
	}
	due(t, s, 0)
	if s.Release() >= 50 || s.Idle() {
		t.Fatal("released while it is measured")
	}
	complete(t, s)
	if s.Release() != 50 || !s.Idle() {
		t.Fatalf("released %d", s.Release())
	}
	hold(s, 50, 50) // reported before the release came
	due(t, s, 0)
	hold(s, 150, 100) // a server missed 100
	due(t, s, 0)
	if s.Release() != 150 {
		t.Fatalf("released %d", s.Release())
	}
	hold(s, 150, 150)
	due(t, s, 0)
	hold(s, 200, 200)
	due(t, s, 200)
}

func TestSnapshotLost(t *testing.T) {
	s := New(Policy{Steps: 50, Servers: 2})
	hold(s, 50, 50)
	s.Begin(2)
	s.Report(50, on(50, "test", 0), []State{{"n", []float64{1}}})
	if !hold(s, 50, 0) {
		t.Fatal("not withdrawn")
	}
	if hold(s, 50, 0) {
		t.Fatal("withdrawn twice")
	}
	if r, err := s.Report(50, on(50, "test", 9), nil); r != nil || err != nil {
		t.Fatalf("report of what was withdrawn: %+v, %v", r, err)
	}
	if s.Release() != 50 || !s.Idle() {
		t.Fatalf("released %d", s.Release())
	}
	hold(s, 100, 100)
	due(t, s, 100)
	s.Begin(1)
	complete(t, s)
}

func TestFinal(t *testing.T) {
	s := New(Policy{Steps: 50, Servers: 1})
	hold(s, 50)
	s.Begin(1)
	s.Final(70)
	due(t, s, 0)
	complete(t, s)
	due(t, s, 70)
	if r := s.Begin(1); r != (Run{Version: 70}) {
		t.Fatalf("begun %+v", r)
	}
	if hold(s, 0) {
		t.Fatal("the last evaluation needs no snapshot")
	}
	complete(t, s)
	s.Final(70)
	s.Final(50)
	if s.Release() != 50 {
		t.Errorf("released %d", s.Release())
	}
	if !s.Idle() {
		t.Fatal("measured again")
	}
}

func TestFinalIsTheSnapshot(t *testing.T) {
	for name, ask := range map[string]func(*Schedule){
		"before": func(s *Schedule) { s.Final(50); hold(s, 50); s.Begin(1) },
		"while":  func(s *Schedule) { hold(s, 50); s.Begin(1); s.Final(50) },
	} {
		s := New(Policy{Steps: 50, Servers: 1})
		ask(s)
		complete(t, s)
		if !s.Idle() {
			t.Errorf("final asked for %s its snapshot ran: measured twice", name)
		}
	}
	// If that snapshot is lost, the last evaluation is still wanted.
	s := New(Policy{Steps: 50, Servers: 1})
	hold(s, 50)
	s.Begin(1)
	s.Final(50)
	s.Snapshot(0, 0)
	due(t, s, 50)
}

// Measurements of two models are not folded into one result: neither of two generations, nor of two
// versions.
func TestPartsOfTwoModels(t *testing.T) {
	states := []State{{"n", []float64{1}}}
	s := New(Policy{Steps: 50, Servers: 1, ModelGeneration: 2})
	hold(s, 50)
	s.Begin(2)
	for _, other := range []Model{{1, 50}, {3, 50}, {2, 49}, {2, 51}, {}} {
		r, err := s.Report(50, Part{"test", 0, other}, states)
		if r != nil || !errors.Is(err, ErrOther) {
			t.Errorf("%+v: %v, %v", other, r, err)
		}
	}
	if _, runs := s.Running(); !runs {
		t.Fatal("the evaluation of a snapshot is given up")
	}
	for i, want := range []bool{false, true} {
		r, err := s.Report(50, Part{"test", int64(i), Model{2, 50}}, states)
		if (r != nil) != want || err != nil {
			t.Fatalf("part %d: %+v, %v", i, r, err)
		}
	}
	// The model as it stands has moved on since the last evaluation began: it begins again with the
	// later version.
	s.Final(70)
	s.Begin(2)
	s.Report(70, Part{"test", 0, Model{2, 70}}, states)
	for _, other := range []Model{{1, 90}, {2, 60}} {
		_, err := s.Report(70, Part{"test", 9, other}, states)
		if !errors.Is(err, ErrOther) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	if _, runs := s.Running(); !runs {
		t.Fatal("given up for what is older, or of another generation")
	}
	_, err := s.Report(70, Part{"test", 9, Model{2, 71}}, states)
	const says = "measured on another model: version 71 in generation 2, the evaluation is of " +
		"version 70 in generation 2"
	if err == nil || err.Error() != says {
		t.Errorf("%v, want %s", err, says)
	}
	due(t, s, 71)
	s.Begin(1)
	r, err := s.Report(71, Part{"test", 0, Model{2, 71}}, states)
	if err != nil || r == nil || r.States[0].Sum[0] != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if !s.Idle() {
		t.Error("measured again")
	}
}

func TestNoSteps(t *testing.T) {
	s := New(Policy{Servers: 1})
	hold(s, 50)
	due(t, s, 0)
	s.Final(9)
	due(t, s, 9)
}

func TestMetricsMustAgree(t *testing.T) {
	s := New(Policy{})
	s.Final(1)
	s.Begin(3)
	s.Report(1, on(1, "a", 0), []State{{"accuracy", []float64{1, 2}}})
	_, err := s.Report(1, on(1, "a", 8), []State{{"auc", []float64{1}}})
	const want = "fold metrics of records from 8 of a: [auc[1]] where others have [accuracy[2]]"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if s.Report(1, on(1, "a", 8), []State{{"accuracy", []float64{1, 2}}}); len(s.reports) != 2 {
		t.Error("a report that was refused counts")
	}
}

func TestBeginPanics(t *testing.T) {
	defer func() {
		if r := recover(); r != "evaluation: begin with 1 tasks, due: false" {
			t.Error(r)
		}
	}()
	New(Policy{}).Begin(1)
}

// Whatever the order, and whatever is reported twice: the result is that of all records together.
func TestFoldIsTheConcatenation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type report struct {
			part   Part
			states []State
		}
		var reports []report
		total := []State{{"accuracy", make([]float64, 2)}, {"confusion", make([]float64, 4)}}
		for i := range rapid.IntRange(1, 8).Draw(t, "tasks") {
			r := report{part: on(7, fmt.Sprintf("shard-%d", i%3), int64(i/3))}
			for _, sum := range total {
				x := State{Name: sum.Name}
				for j := range sum.Sum {
					v := float64(rapid.IntRange(0, 1000).Draw(t, "state"))
					x.Sum = append(x.Sum, v)
					sum.Sum[j] += v
				}
				r.states = append(r.states, x)
			}
			reports = append(reports, r)
		}
		n := len(reports)
		told := slices.Clone(reports)
		for range rapid.IntRange(0, 4).Draw(t, "repeats") {
			told = append(told, rapid.SampledFrom(reports).Draw(t, "repeated"))
		}
		s := New(Policy{})
		s.Final(7)
		s.Begin(n)
		seen := make(map[Part]bool)
		var result *Result
		for _, r := range rapid.Permutation(told).Draw(t, "order") {
			s.Report(6, r.part, r.states) // another version
			before := seen[r.part]
			seen[r.part] = true
			got, err := s.Report(7, r.part, r.states)
			if err != nil {
				t.Fatal(err)
			}
			if (got != nil) != (!before && len(seen) == n) {
				t.Fatalf("after %d of %d tasks: %+v", len(seen), n, got)
			}
			if got != nil {
				result = got
			}
		}
		if !reflect.DeepEqual(result.States, total) {
			t.Fatalf("%v, all together %v", result.States, total)
		}
		again := New(Policy{}) // reports are not written to
		again.Final(7)
		again.Begin(n)
		for _, r := range reports {
			result, _ = again.Report(7, r.part, r.states)
		}
		if !reflect.DeepEqual(result.States, total) {
			t.Fatalf("folded again: %v, all together %v", result.States, total)
		}
	})
}

// holder is a dumb picture of one of those that take snapshots, a parameter server or the ring: it
// takes one of each even version that it comes to while it holds none, unless it was notified that
// it is of no use.
type holder struct {
	version, held int64
	// which snapshots are released, by its last notice; one that was started again knows of none
	released int64
}

func (h *holder) update(to int64) {
	if h.version = to; to%2 == 0 && h.held == 0 && to > h.released {
		h.held = to
	}
}

// order tells the release, once: if it repeats the last one, the holder hears nothing.
func (h *holder) order(release int64) {
	if release == h.released {
		return
	}
	if h.released = release; h.held <= release {
		h.held = 0
	}
}

// lawsTest is a schedule with holders that move, restart and are notified late.
type lawsTest struct {
	s        *Schedule
	holders  []holder
	released int64
	running  int64 // the version, 0 if none
	measured map[int64]bool
	kept     []kept
}

func (l *lawsTest) one(t *rapid.T) (int, *holder) {
	i := rapid.IntRange(0, len(l.holders)-1).Draw(t, "holder")
	return i, &l.holders[i]
}

func (l *lawsTest) begin(t *rapid.T) {
	r, ok := l.s.Due()
	if !ok {
		t.Skip("nothing due")
	}
	if l.running != 0 || l.measured[r.Version] {
		t.Fatalf("%+v due, running %d, measured %t", r, l.running, l.measured[r.Version])
	}
	l.s.Begin(1)
	l.running = r.Version
}

func (l *lawsTest) report(t *rapid.T) {
	if l.running == 0 {
		t.Skip("nothing is running")
	}
	if r, err := l.s.Report(l.running, on(l.running, "", 0), nil); r == nil || err != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	l.measured[l.running], l.running = true, 0
}

func (l *lawsTest) push(t *rapid.T) {
	_, h := l.one(t)
	h.update(h.version + rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "updates"))
}

func (l *lawsTest) heartbeat(t *rapid.T) {
	i, h := l.one(t)
	withdrawn := l.s.Snapshot(i, h.held)
	if withdrawn != (l.running != 0 && h.held != l.running) {
		t.Fatalf("withdrawn: %t; holder %d has %d, running %d", withdrawn, i, h.held, l.running)
	}
	if withdrawn {
		l.running = 0
	}
}

func (l *lawsTest) control(t *rapid.T) {
	_, h := l.one(t)
	h.order(l.s.Release())
}

func (l *lawsTest) restart(t *rapid.T) {
	_, h := l.one(t)
	h.held, h.released = 0, 0
}

func (l *lawsTest) check(t *rapid.T) {
	if l.s.Release() < l.released || l.running != 0 && l.s.Release() >= l.running {
		t.Fatalf("released %d, before %d, running %d", l.s.Release(), l.released, l.running)
	}
	l.released = l.s.Release()
}

// goOn has the holders move on in step, as training does, and ends with an evaluation.
func (l *lawsTest) goOn(t *rapid.T) {
	for range 1000 {
		if l.running != 0 {
			l.report(t)
			return
		}
		if _, ok := l.s.Due(); ok {
			l.begin(t)
			continue
		}
		var top int64
		for _, h := range l.holders {
			top = max(top, h.version)
		}
		for i := range l.holders {
			h := &l.holders[i]
			l.s.Snapshot(i, h.held)
			if rapid.Bool().Draw(t, "reported before the update") {
				h.order(l.s.Release())
			}
			h.update(top + 1)
			h.order(l.s.Release())
		}
	}
	t.Fatalf("no evaluation: %+v, released %d", l.holders, l.s.Release())
}

// TestLaws runs the schedule with holders that move, restart and are notified late, each order
// once. It never gets stuck.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(t, "holders") // a ring is one
		l := &lawsTest{s: New(Policy{Steps: 2, Servers: n}), holders: make([]holder, n), measured: make(map[int64]bool)}
		t.Repeat(map[string]func(*rapid.T){
			"begin": l.begin, "report": l.report, "push": l.push, "push more": l.push, "heartbeat": l.heartbeat,
			"heartbeat more": l.heartbeat, "control": l.control, "control more": l.control,
			"restart": l.restart, "save": l.save, "come back": l.comeBack, "replace": l.replace, "": l.check,
		})
		l.goOn(t)
	})
}

func TestFormat(t *testing.T) {
	for _, tt := range []struct {
		metrics []Metric
		want    string
	}{
		{nil, "{}"},
		{[]Metric{{"accuracy", 0.21933}}, "{'accuracy': 0.2193}"},
		{[]Metric{{"loss", 1}, {"auc", 0.97}}, "{'loss': 1.0, 'auc': 0.97}"},
		{[]Metric{{"a'b", 0}, {"c", -12345.6789}}, `{'a\'b': 0.0, 'c': -12345.6789}`},
		{[]Metric{{"small", 0.000012345}, {"big", 3e20}}, "{'small': 1.234e-05, 'big': 3e+20}"},
		{[]Metric{{"n", math.NaN()}, {"p", math.Inf(1)}, {"m", math.Inf(-1)}}, "{'n': nan, 'p': inf, 'm': -inf}"},
	} {
		got := Format(50, tt.metrics)
		if want := "Evaluation metrics[v=50]: " + tt.want; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestMetrics(t *testing.T) {
	r := Result{Version: 1, States: []State{{"b", []float64{1, 4}}, {"a", []float64{3, 3}}}}
	got := r.Metrics(func(name string, s []float64) float64 {
		if strings.Contains("ab", name) {
			return s[0] / s[1]
		}
		return -1
	})
	if want := []Metric{{"b", 0.25}, {"a", 1}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

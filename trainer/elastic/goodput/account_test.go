package goodput

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
)

// job is a job of two workers, whose master observes it each second.
type job struct {
	Account
	now  time.Time
	view View
}

func newJob() *job {
	j := &job{now: time.UnixMilli(1_000_000), view: View{Asked: 2, Workers: []Worker{{Number: 0}, {Number: 1}}}}
	for i := range j.view.Workers {
		j.view.Workers[i].Spent.Measured = true
	}
	j.Observe(j.view, j.now)
	return j
}

// lasts lets seconds pass. Each second worker 0 reports its parts with that much more in one.
func (j *job) lasts(seconds int, part func(*Spent) *int64) {
	for range seconds {
		j.now = j.now.Add(time.Second)
		for i := range j.view.Workers {
			s := &j.view.Workers[i].Spent
			s.Report++
			if i == 0 && part != nil {
				*part(s) += 1000
				continue
			}
			s.Steps, s.Compute = s.Steps+10, s.Compute+1000
		}
		if j.view.Progress >= 0 {
			j.view.Progress += 100
		}
		j.Observe(j.view, j.now)
	}
}

// said returns the seconds of training and of each cause.
func (j *job) said() string {
	text := []string{fmt.Sprintf("training %.3g", float64(j.Training())/1000)}
	for _, c := range Causes() {
		if ms := j.Lost(c); ms > 0 {
			text = append(text, fmt.Sprintf("%v %.3g", c, float64(ms)/1000))
		}
	}
	return strings.Join(text, ", ")
}

// Waits of ten seconds each, of one of two workers, between training of five seconds.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(j *job)
		want string
	}{
		{"a cause that the master knows", func(j *job) {
			j.view.Workers[0].Cause = Image
			j.Observe(j.view, j.now)
			j.lasts(10, nil)
			j.view.Workers[0].Cause = Training
			j.Observe(j.view, j.now)
		}, "training 30, image 10"},
		{"data", func(j *job) { j.lasts(10, func(s *Spent) *int64 { return &s.Data }) }, "training 30, data 10"},
		{"servers", func(j *job) { j.lasts(10, func(s *Spent) *int64 { return &s.Servers }) },
			"training 30, servers 10"},
		{"servers, for a checkpoint", func(j *job) {
			j.view.Cutting = true
			j.lasts(10, func(s *Spent) *int64 { return &s.Servers })
			j.view.Cutting = false
		}, "training 30, checkpoint 10"},
		{"checkpoint", func(j *job) { j.lasts(10, func(s *Spent) *int64 { return &s.Checkpoint }) },
			"training 30, checkpoint 10"},
		{"forming", func(j *job) { j.lasts(10, func(s *Spent) *int64 { return &s.Forming }) },
			"training 30, forming 10"},
		{"others", func(j *job) { j.lasts(10, func(s *Spent) *int64 { return &s.Peers }) },
			"training 30, slowest_rank 10"},
		{"known twice", func(j *job) {
			j.view.Workers[0].Cause = Servers
			j.Observe(j.view, j.now)
			j.lasts(10, func(s *Spent) *int64 { return &s.Servers })
			j.view.Workers[0].Cause = Training
			j.Observe(j.view, j.now)
		}, "training 30, servers 10"},
		{"one worker too few", func(j *job) {
			all := j.view.Workers
			j.view.Workers, j.view.Missing = all[1:], Failed
			j.Observe(j.view, j.now)
			j.lasts(10, func(s *Spent) *int64 { return &s.Compute })
			j.view.Workers = all
			j.Observe(j.view, j.now)
		}, "training 30, failed 10"},
		{"rest", func(j *job) {
			j.Stop(j.now)
			j.now = j.now.Add(time.Hour)
			j.Observe(j.view, j.now)
		}, "training 20"},
		{"quota was given back", func(j *job) {
			j.Wait(Queue, j.now)
			j.now = j.now.Add(10 * time.Second)
			j.Account = Restore(j.Snapshot())
			j.Observe(j.view, j.now)
		}, "training 20, queue 20"},
		{"rollback", func(j *job) {
			j.view.Progress = 200
			j.Observe(j.view, j.now)
		}, "training 14, rollback 6"},
		{"rollback to a progress between two marks", func(j *job) {
			j.view.Progress = 250
			j.Observe(j.view, j.now)
		}, "training 15, rollback 5"},
		{"lost without having been heard", func(j *job) {
			for range 10 {
				j.now = j.now.Add(time.Second)
				j.view.Workers[1].Spent.Report++
				j.view.Workers[1].Spent.Steps++
				j.Observe(j.view, j.now)
			}
			j.view.Workers[0] = Worker{Number: 2, Spent: Spent{Measured: true}}
			j.Observe(j.view, j.now)
		}, "training 31, pending 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob()
			j.lasts(5, nil)
			c.wait(j)
			j.lasts(5, nil)
			if got := j.said(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A master is away for ten seconds, of which its record knows none.
func TestMasterAway(t *testing.T) {
	for _, c := range []struct {
		name string
		// before the master is lost, and while it is away
		before, away func(all []Worker)
		want         string
	}{
		{"they train", nil, func(all []Worker) {
			for i := range all {
				all[i].Spent.Steps += 100
			}
		}, "training 40"},
		{"they train, and then wait for records", nil, func(all []Worker) {
			for i := range all {
				all[i].Spent.Steps, all[i].Spent.Data = all[i].Spent.Steps+20, all[i].Spent.Data+8000
			}
		}, "training 24, master_away 16"},
		{"one waits for the other, which waits for records", nil, func(all []Worker) {
			all[0].Spent.Data += 10_000
			all[1].Spent.Peers += 10_000
		}, "training 20, master_away 20"},
		{"a server is away, too", nil, func(all []Worker) {
			all[0].Spent.Steps, all[0].Spent.Servers = all[0].Spent.Steps+1, 4000
			all[1].Spent.Steps += 100
		}, "training 36, servers 4"},
		{"nothing moves", nil, func([]Worker) {}, "training 20, master_away 20"},
		{"a script that is not measured", func(all []Worker) {
			for i := range all {
				all[i].Spent = Spent{Report: 7}
			}
		}, func([]Worker) {}, "training 40"},
		{"one is lost", nil, func(all []Worker) {
			all[0] = Worker{Number: 9, Spent: Spent{Measured: true}}
			all[1].Spent.Steps += 100
		}, "training 30, master_away 10"},
		{"one has no node", func(all []Worker) { all[0].Cause = Pending }, func(all []Worker) {
			all[0].Cause = Training
			all[1].Spent.Steps += 100
		}, "training 30, pending 10"},
		{"they have no world", func(all []Worker) { all[0].Cause, all[1].Cause = Forming, Forming },
			func(all []Worker) { all[0].Cause, all[1].Cause = Training, Training }, "training 20, master_away 20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob()
			j.view.Progress = -1
			j.lasts(5, nil)
			if c.before != nil {
				c.before(j.view.Workers)
				j.Observe(j.view, j.now)
			}
			j.Account = Restore(j.Snapshot())
			j.now = j.now.Add(7 * time.Second)
			for i := range j.view.Workers {
				j.view.Workers[i].Unheard = true
			}
			j.Observe(j.view, j.now)
			j.now = j.now.Add(3 * time.Second)
			c.away(j.view.Workers)
			for i := range j.view.Workers {
				j.view.Workers[i].Unheard = false
				j.view.Workers[i].Spent.Report = 1
			}
			j.Observe(j.view, j.now)
			j.lasts(5, nil)
			if got := j.said(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Of two ranks that wait for each other in each step, the slower one waits only for messages.
func TestCommunication(t *testing.T) {
	j := newJob()
	for range 60 {
		j.now = j.now.Add(time.Second)
		for i, own := range []int64{300, 900} {
			s := &j.view.Workers[i].Spent
			s.Report, s.Steps, s.Compute, s.Peers = s.Report+1, s.Steps+10, s.Compute+own, s.Peers+1000-own
		}
		j.Observe(j.view, j.now)
	}
	// until the pace is known, all waits are for the slowest
	if got, want := j.said(), "training 72, communication 11.8, slowest_rank 36.2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(j.Slow()), "[{1 90 30}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSlow(t *testing.T) {
	for _, c := range []struct {
		steps []float64
		want  string
	}{
		{nil, "[]"},
		{[]float64{100}, "[]"},
		{[]float64{100, 150}, "[]"},
		{[]float64{100, 151}, "[1: 151 after 100]"},
		{[]float64{151, 100}, "[0: 151 after 100]"},
		{[]float64{100, 100, 100, 210}, "[3: 210 after 100]"},
		{[]float64{100, 110, 400, 300}, "[2: 400 after 110 3: 300 after 110]"},
		{[]float64{1, 1, 1.9}, "[]"},
		{[]float64{1, 1, 2.1}, "[2: 2.1 after 1]"},
		{[]float64{0, 0, 9}, "[]"},
	} {
		var all []Slow
		for i, s := range c.steps {
			all = append(all, Slow{Worker: i, Step: s})
		}
		var got []string
		for _, s := range slow(all) {
			got = append(got, fmt.Sprintf("%d: %v after %v", s.Worker, s.Step, s.Median))
		}
		if text := fmt.Sprint(got); text != c.want {
			t.Errorf("%v: %s, want %s", c.steps, text, c.want)
		}
	}
	var all []Slow
	for i := range 100 {
		all = append(all, Slow{Worker: i, Step: 10})
		if i >= 80 {
			all[i].Step = 20
		}
	}
	if got := slow(all); len(got) != MostSlow {
		t.Errorf("%d are named", len(got))
	}
}

// A worker with few steps is not compared, nor one that does not work.
func TestSlowNeedsSteps(t *testing.T) {
	j := newJob()
	for range SlowSteps {
		if got := j.Slow(); got != nil {
			t.Errorf("%v", got)
		}
		j.now = j.now.Add(time.Second)
		for i, own := range []int64{300, 900} {
			s := &j.view.Workers[i].Spent
			s.Report, s.Steps, s.Compute = s.Report+1, s.Steps+1, s.Compute+own
		}
		j.Observe(j.view, j.now)
	}
	if got := j.Slow(); len(got) != 1 || got[0].Worker != 1 {
		t.Errorf("%v", got)
	}
	j.view.Workers[1].Cause = Forming
	j.Observe(j.view, j.now)
	if got := j.Slow(); got != nil {
		t.Errorf("%v", got)
	}
}

func TestJudge(t *testing.T) {
	works := Facts{Runs: true, Works: true}
	with := func(change func(*Facts)) Facts {
		f := works
		change(&f)
		return f
	}
	for _, c := range []struct {
		name  string
		facts Facts
		want  Cause
	}{
		{"works", works, Training},
		{"no pod", Facts{}, Pending},
		{"queued", Facts{Queued: true}, Queue},
		{"pulls", Facts{Image: true}, Image},
		{"has not joined", Facts{Runs: true, NeedsWorld: true}, Start},
		{"fetches code", with(func(f *Facts) { f.Stage, f.InWorld = verdict.Fetching, true }), Start},
		{"imports torch", with(func(f *Facts) { f.Stage, f.NeedsWorld = verdict.Importing, true }), Start},
		{"silent", with(func(f *Facts) { f.Stage, f.Since = verdict.Silent, 59*time.Second }), Start},
		{"silent for long", with(func(f *Facts) { f.Stage, f.Since = verdict.Silent, time.Minute }), Training},
		{"silent, with the package", with(func(f *Facts) {
			f.Stage, f.Since, f.Asks = verdict.Silent, time.Hour, true
		}), Start},
		{"before init()", with(func(f *Facts) { f.Stage, f.Asks = verdict.Started, true }), Start},
		{"a plain script writes", with(func(f *Facts) { f.Stage = verdict.Started }), Training},
		{"no world", with(func(f *Facts) { f.NeedsWorld, f.Stage = true, verdict.Training }), Forming},
		{"a world", with(func(f *Facts) { f.NeedsWorld, f.InWorld = true, true }), Training},
		{"no server", with(func(f *Facts) { f.ServersAway, f.Saves = true, true }), Servers},
		{"the last checkpoint", with(func(f *Facts) { f.Saves = true }), Checkpoint},
	} {
		if got := Judge(c.facts); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := len(Causes()); got != int(causes)-1 || slices.Contains(Causes(), Training) {
		t.Errorf("%d causes: %v", got, Causes())
	}
	for _, c := range append(Causes(), Training) {
		if got, ok := Parse(c.String()); !ok || got != c || c.String() == "" {
			t.Errorf("%v: %v, %t", c, got, ok)
		}
	}
	if c, ok := Parse("nothing"); ok {
		t.Errorf("%v", c)
	}
	if got := Cause(99).String(); got != "Cause(99)" {
		t.Error(got)
	}
}

// Marks are few, however long a job lasts, and still tell what a rollback costs.
func TestMarks(t *testing.T) {
	j := newJob()
	j.lasts(1000, nil)
	if n := len(j.marks); n > MostMarks || n < MostMarks/2 {
		t.Errorf("%d marks", n)
	}
	j.view.Progress = 25_000
	j.Observe(j.view, j.now)
	if got, want := j.said(), "training 500, rollback 1.5e+03"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An observation of a thousand workers, each with a report.
func BenchmarkObserve(b *testing.B) {
	v := View{Asked: 1000}
	for i := range v.Asked {
		v.Workers = append(v.Workers, Worker{Number: i, Spent: Spent{Measured: true}})
	}
	var a Account
	now := time.UnixMilli(1)
	for b.Loop() {
		now = now.Add(time.Second)
		for i := range v.Workers {
			s := &v.Workers[i].Spent
			s.Report, s.Steps, s.Compute, s.Peers = s.Report+1, s.Steps+10, s.Compute+700, s.Peers+300
		}
		v.Progress += 100
		a.Observe(v, now)
	}
}

// A process tells its agent each second where its time went, and the agent its master twice a
// second: a part that is reported late is taken from later time.
func TestLateParts(t *testing.T) {
	j := newJob()
	for i := range 40 {
		j.now = j.now.Add(500 * time.Millisecond)
		s := &j.view.Workers[0].Spent
		s.Report++
		if i%2 == 0 && i < 20 {
			s.Data += 1000
		}
		j.view.Workers[1].Spent.Report++
		j.Observe(j.view, j.now)
	}
	if got, want := j.said(), "training 30, data 10"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// more than can be true is not taken from all time to come
	j.view.Workers[0].Spent.Data += 60_000
	j.lasts(10, nil)
	if got, want := j.said(), "training 48, data 12"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A hang counts from the last sign of life, which is known later, and once. The time until the last
// progress stays training.
func TestHang(t *testing.T) {
	j := newJob()
	j.lasts(10, nil)
	// hangs lets a program hang that reports nothing, and is found stuck after some seconds
	hangs := func(after, further int) {
		since := j.now.UnixMilli()
		for i := range after + further {
			j.now = j.now.Add(time.Second)
			if i+1 == after {
				j.view.Hung = since
				j.view.Workers[0].Cause, j.view.Workers[1].Cause = Stuck, Stuck
			}
			for n := range j.view.Workers {
				j.view.Workers[n].Spent.Report++
			}
			j.Observe(j.view, j.now)
			if i == after {
				j.Account = Restore(j.Snapshot())
			}
		}
		j.view.Hung = 0
		j.view.Workers[0].Cause, j.view.Workers[1].Cause = Training, Training
		j.Observe(j.view, j.now)
	}
	hangs(45, 15)
	if got := j.said(); got != "training 20, stuck 120" {
		t.Error(got)
	}
	j.lasts(10, nil)
	hangs(45, 0)
	if got := j.said(); got != "training 40, stuck 210" {
		t.Error(got)
	}
}

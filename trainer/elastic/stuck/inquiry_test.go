package stuck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/stacks"
)

// dump returns the stacks of a process that stands at a line of a file.
func dump(file string, line int) string {
	return fmt.Sprintf("Current thread 0x01 (most recent call first):\n  File \"/code/%s\", line %d in f\n"+
		"  File \"/code/main.py\", line 1 in <module>\n", file, line)
}

// inquest drives an inquiry and its twin about a job of three ranks, and keeps what the laws need.
type inquest struct {
	*rapid.T
	q, twin *Inquiry
	kill    time.Duration
	now     time.Time
	o       Observation
	// lines at which the ranks stand, and whether a debugger has one
	lines    [3]int
	debugged bool
	asks     bool
	// what is stated; nil: nothing
	stated *Finding
	// a rank was killed in this suspicion
	killed bool
}

// do makes the same call on both, and checks the actions.
func (m *inquest) do(call func(q *Inquiry) []Action) {
	did, other := call(m.q), call(m.twin)
	if !reflect.DeepEqual(did, other) {
		m.Fatalf("same calls, other actions:\n%+v\n%+v", did, other)
	}
	for _, a := range did {
		switch a := a.(type) {
		case Ask:
			if m.asks {
				m.Fatal("it asks, and was not answered")
			}
			m.asks = true
		case State:
			if m.stated != nil || m.debugged || a.For < Limit {
				m.Fatalf("%+v after %+v, debugged %v", a, m.stated, m.debugged)
			}
			m.stated, m.killed = &a.Finding, false
		case Clear:
			if m.stated == nil || a.After != m.now.Sub(m.stated.Since) {
				m.Fatalf("%+v of %+v", a, m.stated)
			}
			m.stated = nil
		case Kill:
			if m.kill == 0 || m.stated == nil || m.killed || m.now.Sub(m.stated.Since) < m.kill || m.debugged {
				m.Fatalf("%+v, stated %+v, killed %v", a, m.stated, m.killed)
			}
			m.killed = true
			for _, rank := range a.Ranks {
				if !strings.HasPrefix(a.Why[rank], "no progress for 2m (--hang_timeout)") {
					m.Fatalf("%+v", a)
				}
			}
			if len(a.Ranks) == 0 || len(a.Why) != len(a.Ranks) || !slices.IsSorted(a.Ranks) {
				m.Fatalf("%+v", a)
			}
		}
	}
	if f := m.q.Finding(); (f == nil) != (m.stated == nil) {
		m.Fatalf("%+v is shown, %+v was stated", f, m.stated)
	}
}

// answer answers if the inquiry asks.
func (m *inquest) answer() {
	if !m.asks {
		return
	}
	m.asks = false
	var ranks []stacks.Rank
	for i, line := range m.lines {
		text := dump("train.py", line)
		if m.debugged && i == 0 {
			text = "Current thread 0x01 (most recent call first):\n  File \"/usr/lib/python3/pdb.py\", line 1 in x\n"
		}
		ranks = append(ranks, stacks.Rank{Rank: i, Text: text, Call: "sleep", Looks: stacks.MostLooks})
	}
	m.do(func(q *Inquiry) []Action { return q.Answer(m.now, ranks) })
}

// TestInquiry finds the laws of an inquiry kept, whatever the ranks do.
func TestInquiry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Kill: time.Duration(rapid.IntRange(0, 1).Draw(t, "kill")) * 2 * time.Minute}
		m := &inquest{T: t, q: NewInquiry(p), twin: NewInquiry(p), kill: p.Kill, now: start}
		for i := range 3 {
			m.o.Ranks = append(m.o.Ranks, Sample{Rank: i, Quiet: -1, Cores: 0.01})
		}
		t.Repeat(map[string]func(*rapid.T){
			"observe": func(*rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "times") {
					m.now = m.now.Add(2 * time.Second)
					m.do(func(q *Inquiry) []Action { return q.Observe(m.now, m.o) })
					if rapid.IntRange(0, 3).Draw(t, "late") > 0 {
						m.answer()
					}
				}
			},
			"progress": func(*rapid.T) { m.o.Progress++ },
			"compute": func(*rapid.T) {
				rank := rapid.IntRange(0, 2).Draw(t, "rank")
				m.o.Ranks[rank].Cores = rapid.SampledFrom([]float64{0, 1}).Draw(t, "cores")
			},
			"move":    func(*rapid.T) { m.lines[rapid.IntRange(0, 2).Draw(t, "rank")]++ },
			"debug":   func(*rapid.T) { m.debugged = !m.debugged },
			"restart": func(*rapid.T) { m.o.Ranks[0].Process++ },
			"reset":   func(*rapid.T) { m.do(func(q *Inquiry) []Action { return q.Reset(m.now) }) },
			"late": func(*rapid.T) { // an answer that nobody has asked for
				m.asks = false
				m.do(func(q *Inquiry) []Action { return q.Answer(m.now, nil) })
			},
		})
	})
}

// story observes three ranks for a time, of which one is given, and returns what the inquiry does.
func story(kill time.Duration, seconds int, cores []float64, at func(second, rank int) string) (did []string) {
	q, asked := NewInquiry(Policy{Kill: kill}), false
	note := func(second int, all []Action) {
		for _, a := range all {
			switch a := a.(type) {
			case Ask:
				asked = true
			case State:
				did = append(did, fmt.Sprintf("%d: %s, %v", second, a.Text, a.Differ))
			case Clear:
				did = append(did, fmt.Sprintf("%d: clear, %v", second, a.Restarted))
			case Kill:
				did = append(did, fmt.Sprintf("%d: kill %v: %s", second, a.Ranks, a.Why[a.Ranks[0]]))
			}
		}
	}
	for second := 0; second < seconds; second += 2 {
		var o Observation
		for i, c := range cores {
			o.Ranks = append(o.Ranks, Sample{Rank: i, Quiet: -1, Cores: c})
		}
		now := start.Add(time.Duration(second) * time.Second)
		note(second, q.Observe(now, o))
		for asked {
			asked = false
			var ranks []stacks.Rank
			for i := range cores {
				r := stacks.Rank{Rank: i, Text: at(second, i), Call: "receive", Looks: stacks.MostLooks}
				if lacks, ok := strings.CutPrefix(r.Text, "starved\n"); ok {
					r.Text, r.Looks = lacks, 0
				}
				if moved, ok := strings.CutPrefix(r.Text, "moved\n"); ok {
					r.Text, r.Looks, r.Moved = moved, 1, true
				}
				if r.Text == "" {
					r.Why = "no stacks: not a Python program"
				}
				ranks = append(ranks, r)
			}
			note(second, q.Answer(now, ranks))
		}
	}
	return did
}

// Once a debugger was found, the ranks are left alone until the next sign of life.
func TestDebuggerIsAskedOnce(t *testing.T) {
	q, asks := NewInquiry(Policy{Kill: time.Minute}), 0
	for second := 0; second < 1000; second += 2 {
		now := start.Add(time.Duration(second) * time.Second)
		for _, a := range q.Observe(now, Observation{Ranks: []Sample{{Quiet: -1}}}) {
			if _, ok := a.(Ask); ok {
				asks++
				if did := q.Answer(now, []stacks.Rank{{Text: dump("../usr/lib/python3/pdb.py", 1)}}); len(did) > 0 {
					t.Errorf("%+v", did)
				}
			}
		}
	}
	if asks != 1 {
		t.Errorf("asked %d times", asks)
	}
}

// An answer without ranks states nothing, and the stacks are asked for again.
func TestAnswerWithoutRanks(t *testing.T) {
	q, asks := NewInquiry(Policy{}), 0
	for second := 0; second < 60; second += 2 {
		now := start.Add(time.Duration(second) * time.Second)
		for _, a := range q.Observe(now, Observation{Ranks: []Sample{{Quiet: -1}}}) {
			if _, ok := a.(Ask); ok {
				asks++
			}
			if did := q.Answer(now, nil); len(did) > 0 {
				t.Errorf("%+v", did)
			}
		}
	}
	if asks != 7 {
		t.Errorf("asked %d times", asks)
	}
}

// Each job has its statement, and its ranks that are killed.
func TestInquiries(t *testing.T) {
	differs := func(second, rank int) string {
		if rank == 1 {
			return dump("data.py", 12)
		}
		return dump("train.py", 41)
	}
	for name, c := range map[string]struct {
		kill    time.Duration
		seconds int
		cores   []float64
		at      func(second, rank int) string
		want    []string
	}{
		"one differs": {2 * time.Minute, 200, []float64{0, 0, 0}, differs, []string{
			"46: rank 1 differs: receive at data.py:12; ranks 0, 2: receive at train.py:41, [1]",
			"120: kill [1]: no progress for 2m (--hang_timeout): receive at data.py:12, called at main.py:1"}},
		"nobody is killed without --hang_timeout": {0, 2000, []float64{0, 0, 0}, differs, []string{
			"46: rank 1 differs: receive at data.py:12; ranks 0, 2: receive at train.py:41, [1]"}},
		"none differs": {2 * time.Minute, 200, []float64{0, 0, 0},
			func(int, int) string { return dump("train.py", 41) }, []string{
				"46: 3 ranks: receive at train.py:41, []",
				"120: kill [0 1 2]: no progress for 2m (--hang_timeout), and no rank differs: " +
					"receive at train.py:41, called at main.py:1"}},
		"only one computes, without stacks": {0, 100, []float64{0, 1, 0}, func(int, int) string { return "" }, []string{
			"50: only rank 1 uses processors; 3 ranks: no stacks: not a Python program (receive), [1]"}},
		"only one waits, without stacks": {0, 100, []float64{1, 0, 1}, func(int, int) string { return "" }, []string{
			"50: only rank 1 uses no processor; 3 ranks: no stacks: not a Python program (receive), [1]"}},
		"one evaluates, and writes its stack too late": {0, 2000, []float64{1, 0, 0}, func(second, rank int) string {
			if rank == 0 && second%8 != 0 {
				return "Current thread 0x01 (most recent call first):\n"
			}
			return dump("eval.py", second)
		}, nil},
		"one computes, and never writes its stack": {0, 100, []float64{1, 0, 0}, func(_, rank int) string {
			if rank == 0 {
				return "Current thread 0x01 (most recent call first):\n"
			}
			return dump("train.py", 41)
		}, []string{"64: rank 0 differs: no stacks: the process has written none (receive); " +
			"ranks 1, 2: receive at train.py:41, [0]"}},
		"one evaluates": {2 * time.Minute, 2000, []float64{1, 0, 0}, func(second, rank int) string {
			if rank == 0 {
				return dump("eval.py", second)
			}
			return dump("train.py", 41)
		}, nil},
		"one computes at one line": {0, 100, []float64{1, 0, 0}, func(_, rank int) string {
			if rank == 0 {
				return dump("loop.py", 3)
			}
			return dump("train.py", 41)
		}, []string{"50: rank 0 differs: receive at loop.py:3; ranks 1, 2: receive at train.py:41, [0]"}},
		"one computes in two lines, and returns to the first": {0, 2000, []float64{1, 0, 0},
			func(second, rank int) string {
				if rank == 0 && second%8 == 0 {
					return "moved\n" + dump("loop.py", 3)
				} else if rank == 0 {
					return dump("loop.py", 3)
				}
				return dump("train.py", 41)
			}, nil},
		"one gets no processor, and stands still": {0, 2000, []float64{1, 0, 0}, func(second, rank int) string {
			if rank == 0 {
				return "starved\n" + dump("loop.py", 3)
			}
			return dump("train.py", 41)
		}, nil},
		"one gets no processor for a time": {0, 200, []float64{1, 0, 0}, func(second, rank int) string {
			if rank == 0 && second < 100 {
				return "starved\n" + dump("loop.py", 3)
			} else if rank == 0 {
				return dump("loop.py", 3)
			}
			return dump("train.py", 41)
		}, []string{"104: rank 0 differs: receive at loop.py:3; ranks 1, 2: receive at train.py:41, [0]"}},
		"they move before it is killed": {2 * time.Minute, 250, []float64{0, 0, 0}, func(second, rank int) string {
			if rank == 1 {
				return dump("data.py", 12+second/100)
			}
			return dump("train.py", 41)
		}, []string{"46: rank 1 differs: receive at data.py:12; ranks 0, 2: receive at train.py:41, [1]"}},
		"it moves when it is to be killed": {2 * time.Minute, 250, []float64{0, 0, 0}, func(second, rank int) string {
			if rank == 1 && second > 100 {
				return "moved\n" + dump("data.py", 12)
			}
			return dump("train.py", 41)
		}, []string{"46: 3 ranks: receive at train.py:41, []"}},
		"a debugger": {time.Minute, 500, []float64{0, 0, 0}, func(_, rank int) string {
			return "Current thread 0x01 (most recent call first):\n  File \"/usr/lib/python3/pdb.py\", line 1 in x\n"
		}, nil},
	} {
		if got := story(c.kill, c.seconds, c.cores, c.at); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Minute: "2m", 90 * time.Second: "1m30s", time.Hour: "1h",
		time.Hour + 30*time.Second: "1h0m30s", 100 * time.Minute: "1h40m"} {
		if got := short(d); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
}

package page

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Each start of a pod is in one row, those of a row do not overlap and have one role, and a server
// stays in its row.
func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const now = 1_000_000
		s := &wire.JobStatus{}
		var entries []journal.Entry
		clock, n := int64(1000), int64(0)
		add := func(e journal.Entry) {
			n++
			clock += rapid.Int64Range(0, 500).Draw(t, "pause")
			e.N, e.UnixMs = n, clock
			entries = append(entries, e)
		}
		living := make(map[string]int)
		next := 0
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			name := fmt.Sprint("worker-", next)
			if rapid.IntRange(0, 3).Draw(t, "server") == 0 {
				name = fmt.Sprint("ps-", rapid.IntRange(0, 2).Draw(t, "index"))
			} else {
				next++
			}
			if living[name] > 0 || rapid.Bool().Draw(t, "end") {
				for old := range living {
					if living[old] > 0 && (old == name || rapid.Bool().Draw(t, "this")) {
						kind := rapid.SampledFrom([]journal.Kind{journal.PodLost, journal.PodEnded,
							journal.PodFailed}).Draw(t, "kind")
						add(journal.Entry{Kind: kind, Pod: old, Incarnation: living[old], Text: "x"})
						living[old] = -living[old]
						break
					}
				}
			}
			if living[name] <= 0 {
				living[name] = 1 - living[name]
				if rapid.IntRange(0, 9).Draw(t, "dropped") > 0 {
					add(journal.Entry{Kind: journal.PodJoined, Pod: name, Incarnation: living[name]})
				}
			}
		}
		for name, incarnation := range living {
			role, index, _ := strings.Cut(name, "-")
			i, _ := strconv.Atoi(index)
			p := &wire.PodStatus{Role: map[string]wire.Role{"ps": wire.Role_PS, "worker": wire.Role_WORKER}[role],
				Index: int32(i), State: "Running", Incarnation: int32(max(incarnation, -incarnation)),
				StartedUnixMs: 900}
			if incarnation < 0 {
				p.State, p.EndedUnixMs = "Failed", clock
			}
			s.Pods = append(s.Pods, p)
		}
		all := incarnationsOf(s, entries, 500, now)
		seen, servers := make(map[*incarnation]bool), make(map[string]int)
		for i, lane := range lanesOf(all, now) {
			for k, one := range lane {
				if seen[one] || one.role != lane[0].role || one.from < 500 || one.from > cmp.Or(one.to, now) {
					t.Fatalf("%+v in a lane of %v", one, lane[0].role)
				}
				seen[one] = true
				if k > 0 && (lane[k-1].to == 0 || lane[k-1].to > one.from) {
					t.Fatalf("%+v follows %+v", one, lane[k-1])
				}
				if one.role == pod.PS && one.pod != lane[0].pod {
					t.Fatalf("%+v in lane %d of %s", one, i, lane[0].pod)
				}
				servers[one.pod]++
			}
		}
		if len(seen) != len(all) {
			t.Fatalf("%d of %d starts are in a lane", len(seen), len(all))
		}
	})
}

// A replaced worker is followed by its replacement, with the end and its reason between.
func TestReplacement(t *testing.T) {
	v := trouble()
	tl := timelineOf(v.Status, v.Journal.Entries, options{Band: -1}, at)
	rows := make(map[string]row)
	for _, r := range tl.Rows {
		rows[r.Label] = r
	}
	r, ok := rows["worker-4"]
	if !ok || len(r.Bars) != 2 || len(r.Ticks) != 1 || r.Ticks[0].Class != "lost" ||
		!strings.Contains(r.Ticks[0].Title, "worker-1") || !strings.Contains(r.Ticks[0].Title,
		"preempted: node gpu-7") {
		t.Errorf("%+v of %v", r, tl.About)
	}
	if r := rows["worker-6"]; len(r.Bars) != 2 || r.Bars[1].Class != "pending" {
		t.Errorf("%+v", r)
	}
	marks := make(map[string]int)
	for _, m := range rows["job"].Ticks {
		marks[m.Class]++
	}
	if len(rows["job"].Bars) != 2 || marks["checkpoint"] != 12 || marks["rollback"] != 1 || marks["world"] != 1 {
		t.Errorf("%+v", rows["job"])
	}
}

// A curve is drawn within its square, and broken where nothing was observed.
func TestChart(t *testing.T) {
	var c curve.Curve
	for i := range 400 {
		now := at.Add(time.Duration(i) * time.Second)
		if i >= 200 {
			now = now.Add(2 * time.Hour) // it was suspended
		}
		c.Observe(curve.Sample{Records: int64(i), Rate: float64(i % 7), Loss: 1 / float64(i+1), Workers: 2}, now)
	}
	lost := []journal.Entry{{Kind: journal.PodLost, Pod: "worker-1", Text: "killed",
		UnixMs: at.Add(time.Hour).UnixMilli()},
		{Kind: journal.PodLost, Pod: "worker-2", UnixMs: at.Add(-time.Hour).UnixMilli()}}
	charts := chartsOf(&c, lost, at)
	if len(charts) != 3 || charts[0].ID != "loss" || len(charts[0].Marks) != 1 ||
		!strings.Contains(charts[0].Marks[0].Title, "worker-1: killed") {
		t.Fatalf("%d charts: %+v", len(charts), charts[0].Marks)
	}
	for _, chart := range charts {
		if n := strings.Count(chart.Line, "M"); n != 2 {
			t.Errorf("%s: %d strokes: %s", chart.ID, n, chart.Line)
		}
		for _, text := range regexp.MustCompile(`[0-9.-]+`).FindAllString(chart.Line+chart.Area, -1) {
			if v, err := strconv.ParseFloat(text, 64); err != nil || v < 0 || v > 1000 {
				t.Errorf("%s: %s in %s", chart.ID, text, chart.Line)
			}
		}
	}
	var none curve.Curve
	if len(chartsOf(&none, nil, at)) != 0 {
		t.Error("a chart of nothing")
	}
	constant := series{samples: []sample{{1, 5}, {2, math.NaN()}, {3, 5}}}
	if got := constant.draw(1, 3, 1, nil, at); strings.Contains(got.Line, "NaN") || got.Now != "5" {
		t.Errorf("%+v", got)
	}
}

// Times and numbers are short.
func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0 s", 1500 * time.Millisecond: "1.5 s", -time.Second: "0 s",
		59 * time.Second: "59 s", 61 * time.Second: "1 min 01 s", 125 * time.Minute: "2 h 05 min",
		50 * time.Hour: "2 d 2 h"} {
		if got := short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.41834: "0.4183", 12.34: "12.3", 123.4: "123",
		1234567: "1,234,567",
		1e-9:    "1e-09"} {
		if got := figure(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	if got := momentOf(at.Add(-48*time.Hour).UnixMilli(), at); got.Text != "1 Jul 14:30:00" {
		t.Errorf("%+v", got)
	}
}

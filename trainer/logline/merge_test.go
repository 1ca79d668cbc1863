package logline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

func at(ms int) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// Complete logs are merged by time.
func TestMerge(t *testing.T) {
	for _, c := range []struct {
		name string
		// lines as "a1 b2": texts with times; without a time: "c"
		logs []string
		want string
	}{
		{"by time", []string{"a1 b5 c9", "d2 e6"}, "a d b e c"},
		{"the same time", []string{"a1 b1", "c1"}, "a b c"},
		{"lines without a time", []string{"a1 b c7", "d3 e f"}, "a b d e f c"},
		{"no times at all", []string{"a b", "c d"}, "a b c d"},
		{"lines before the first time", []string{"a5", "b c d1"}, "b c d a"},
		{"a clock that returns", []string{"a5 b1 c6", "d3 e4 f7"}, "d e a b c f"},
		{"a clock that is behind", []string{"a101 b103", "c1 d2"}, "c d a b"},
		{"an empty log", []string{"", "a1", ""}, "a"},
		{"none", nil, ""},
	} {
		if got := strings.Join(mergeAll(c.logs), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// mergeAll merges complete logs.
func mergeAll(logs []string) (got []string) {
	var m logline.Merge
	var rest [][]string
	for _, log := range logs {
		m.Add(at(0))
		rest = append(rest, strings.Fields(log))
	}
	for {
		for i := range rest {
			switch {
			case !m.Wants(i):
			case len(rest[i]) == 0:
				m.End(i)
			default:
				ms, word := -1, rest[i][0]
				fmt.Sscan(word[1:], &ms)
				m.Put(i, logline.Line{At: at(ms), Text: word[:1]})
				rest[i] = rest[i][1:]
			}
		}
		line, _, ok, _ := m.Next(at(0))
		if !ok {
			return got
		}
		got = append(got, line.Text)
	}
}

// A line waits for a silent log for the window at most, and not at all for one that cannot have an
// older line.
func TestMergeWaits(t *testing.T) {
	m := logline.Merge{Window: time.Second}
	m.Add(at(0))
	m.Add(at(0))
	due := func(now int, want string, wait time.Duration) {
		t.Helper()
		line, _, ok, left := m.Next(at(now))
		if line.Text != want || ok != (want != "") || !ok && left != wait {
			t.Errorf("at %d: %q, %t, after %v; want %q after %v", now, line.Text, ok, left, want, wait)
		}
	}
	due(0, "", -1)
	m.Put(0, logline.Line{At: at(10), Text: "a"})
	due(400, "", 600*time.Millisecond)
	due(1000, "a", 0)
	m.Put(0, logline.Line{At: at(20), Text: "b"})
	due(1001, "b", 0) // the other has been silent for long
	m.Put(1, logline.Line{At: at(5), Text: "late"})
	m.Put(0, logline.Line{At: at(1200), Text: "c"})
	due(1300, "late", 0)
	due(1300, "", time.Second) // it has begun to speak
	m.Put(1, logline.Line{At: at(1200), Text: "d"})
	due(1400, "c", 0)
	// the first was at 1200: it cannot have an older line
	due(1400, "d", 0)
	m.Put(0, logline.Line{At: at(1300), Text: "e"})
	due(1500, "", 900*time.Millisecond)
	m.End(1)
	due(1500, "e", 0)
	third := m.Add(at(1600))
	if third != 2 || !m.Wants(2) || m.Wants(1) {
		t.Errorf("log %d", third)
	}
	m.Put(0, logline.Line{At: at(2000), Text: "f"})
	m.Put(2, logline.Line{At: at(3000), Text: "i"})
	due(1700, "f", 0)
	m.Put(0, logline.Line{Text: "g"}) // without a time: as old as f
	due(1700, "g", 0)
	m.Add(at(1700))
	m.Put(3, logline.Line{At: at(1500), Text: "h"})
	due(1700, "h", 0) // no line of the first can be older
}

// Whatever comes whenever: each line is given once, those of a log in their order, and no log
// delays another for longer than the window.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := logline.Merge{Window: time.Duration(rapid.IntRange(1, 50).Draw(t, "window")) * time.Millisecond}
		n := rapid.IntRange(1, 4).Draw(t, "logs")
		now, put, got := 0, make([]int, n), make([]int, n)
		for range n {
			m.Add(at(0))
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now += rapid.IntRange(0, 30).Draw(t, "passes")
			i := rapid.IntRange(0, n-1).Draw(t, "log")
			if m.Wants(i) {
				m.Put(i, logline.Line{At: at(rapid.IntRange(-1, 100).Draw(t, "at")), Text: fmt.Sprint(put[i])})
				put[i]++
			}
			for {
				line, log, ok, wait := m.Next(at(now))
				if !ok {
					if wait > m.Window {
						t.Fatalf("waits for %v", wait)
					}
					break
				}
				if line.Text != fmt.Sprint(got[log]) {
					t.Fatalf("log %d: line %s, want %d", log, line.Text, got[log])
				}
				got[log]++
			}
		}
		// nothing was given since: all logs without a line are silent
		now += int(m.Window / time.Millisecond)
		for {
			line, log, ok, _ := m.Next(at(now))
			if !ok {
				break
			}
			if line.Text != fmt.Sprint(got[log]) {
				t.Fatalf("log %d: line %s, want %d", log, line.Text, got[log])
			}
			got[log]++
			now += int(m.Window / time.Millisecond)
		}
		if fmt.Sprint(put) != fmt.Sprint(got) {
			t.Fatalf("put %v, got %v", put, got)
		}
	})
}

// Without a window, whenever the lines of each log come, their order is the same.
func TestMergeWithoutWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m logline.Merge
		var logs []string
		for i := range rapid.IntRange(1, 4).Draw(t, "logs") {
			m.Add(at(0))
			var lines []string
			for j := range rapid.IntRange(0, 5).Draw(t, "lines") {
				lines = append(lines, fmt.Sprintf("%c%d", 'a'+i*6+j, rapid.IntRange(0, 3).Draw(t, "at")))
			}
			logs = append(logs, strings.Join(lines, " "))
		}
		var got []string
		next := func() {
			for {
				line, _, ok, _ := m.Next(at(0))
				if !ok {
					return
				}
				got = append(got, line.Text)
			}
		}
		rest := make([][]string, len(logs))
		open := make([]int, len(logs))
		for i := range logs {
			rest[i], open[i] = strings.Fields(logs[i]), i
		}
		for len(open) > 0 {
			next()
			k := rapid.IntRange(0, len(open)-1).Draw(t, "log")
			i := open[k]
			switch {
			case !m.Wants(i):
			case len(rest[i]) == 0:
				m.End(i)
				open = append(open[:k], open[k+1:]...)
			default:
				word := rest[i][0]
				ms := 0
				fmt.Sscan(word[1:], &ms)
				m.Put(i, logline.Line{At: at(ms), Text: word[:1]})
				rest[i] = rest[i][1:]
			}
		}
		next()
		if want := mergeAll(logs); !slices.Equal(got, want) {
			t.Fatalf("logs %q: %v, want %v", logs, got, want)
		}
	})
}

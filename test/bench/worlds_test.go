package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWorlds checks that a world counts when all of its processes have stepped in it, whatever
// happened before; steps of processes that have ended count, and their files are removed.
func TestWorlds(t *testing.T) {
	s, err := newWorlds(filepath.Join(t.TempDir(), "steps"))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	step := func(pid, size, world int, after time.Duration) {
		t.Helper()
		file, err := os.OpenFile(filepath.Join(s.dir, fmt.Sprintf("%d.steps", pid)),
			os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		fmt.Fprintf(file, "STEP %d %d %.6f\n", size, world, float64(start.Add(after).UnixMicro())/1e6)
	}
	self, parent, gone := os.Getpid(), os.Getppid(), 1<<22+1 // greater than any pid
	step(self, 2, 1, 0)
	step(gone, 2, 1, 0)
	took, err := s.after(t.Context(), 2, time.Minute, func() error {
		step(self, 2, 1, time.Second)   // still with the lost process
		step(self, 1, 2, 2*time.Second) // too few
		step(self, 2, 3, 3*time.Second)
		if err := s.read(); err != nil {
			return err
		}
		if w := s.all[3]; w == nil || !w.complete().IsZero() {
			t.Errorf("a world of which one of two has stepped: %+v", w)
		}
		step(parent, 2, 3, 5*time.Second)
		step(parent, 2, 3, 9*time.Second)
		return nil
	})
	if err != nil || took > 5*time.Second || took < 4*time.Second {
		t.Errorf("all step again after %v, %v; want 5s less what the test took", took, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, fmt.Sprintf("%d.steps", gone))); !os.IsNotExist(err) {
		t.Errorf("the file of a process that has ended: %v", err)
	}
	if got := s.longestStep(start, s.all[3]); got != time.Second {
		t.Errorf("the longest step of the process that was there before is %v, want 1s", got)
	}
	if w := s.newest(); w != s.all[3] || len(w.firsts) != 2 {
		t.Errorf("the newest world is %+v", w)
	}
	if _, err := s.after(t.Context(), 2, 0, func() error { return nil }); err == nil {
		t.Error("all step again without a step")
	}
}

// TestPause checks that a join's pause is the longest between the worlds on its way, and none
// before it.
func TestPause(t *testing.T) {
	start := time.Now()
	second := func(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Second))) }
	of := func(last float64, firsts ...float64) *world {
		w := &world{size: 2, firsts: make(map[int]time.Time), last: second(last)}
		for pid, at := range firsts {
			w.firsts[pid] = second(at)
		}
		return w
	}
	for _, c := range []struct {
		name    string
		between *world
		want    time.Duration
	}{
		{"none", nil, 4 * time.Second},
		{"later", of(30, 30, 30), 4 * time.Second},
		{"incomplete", of(12, 12), 2 * time.Second},
		{"nearer to the old", of(11, 11, 11), 3 * time.Second},
		{"nearer to the new", of(13, 12, 13), 3 * time.Second},
	} {
		until := of(20, 13.5, 14)
		s := &worlds{all: map[int64]*world{1: of(1, 0, 0), 2: of(10, 8, 9), 4: until}}
		if c.between != nil {
			s.all[3] = c.between
		}
		if got := s.pause(second(9), until); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLongestStep checks that only steps of processes that were there before count, and only those
// that end between a moment and the time at which a world was complete.
func TestLongestStep(t *testing.T) {
	start := time.Now()
	second := func(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Second))) }
	until := &world{size: 2, firsts: map[int]time.Time{1: second(12), 2: second(13)}}
	for _, c := range []struct {
		name     string
		pid      int
		from, to float64
		want     time.Duration
	}{
		{"a survivor's", 1, 9, 12, 3 * time.Second},
		{"a survivor's that began before", 1, 2, 12, 10 * time.Second},
		{"before", 1, 2, 9, 0},
		{"after", 1, 12, 20, 0},
		{"of a process that has ended", 3, 9, 12, 0},
	} {
		s := &worlds{gaps: []gap{{c.pid, second(c.from), second(c.to)}}}
		if got := s.longestStep(second(10), until); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestScriptLines checks the lines of workload.py.
func TestScriptLines(t *testing.T) {
	for _, c := range []struct {
		line string
		want step
		ok   bool
	}{
		{"STEP 4 77 1.500000", step{size: 4, world: 77, at: time.UnixMicro(1_500_000)}, true},
		{"FIRST 2.250000", step{at: time.UnixMicro(2_250_000)}, true},
		{"STEP 4", step{}, false},
		{"", step{}, false},
	} {
		if got, ok := parseScriptStep([]byte(c.line)); ok != c.ok || ok && got != c.want {
			t.Errorf("%q is %+v, %v; want %+v, %v", c.line, got, ok, c.want, c.ok)
		}
	}
}

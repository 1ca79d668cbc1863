package program

import (
	"fmt"
	"testing"
	"time"
)

// A tree's usage is that of its leader, of its descendants, and of those that stay in its session.
func TestCores(t *testing.T) {
	second := func(n int) time.Time { return time.Unix(int64(n), 0) }
	type look struct {
		at   int
		all  []Running
		want map[int]float64
	}
	for _, c := range []struct {
		name    string
		leaders []int
		looks   []look
	}{
		{"one process", []int{5}, []look{
			{0, []Running{{5, 1, 5, 100}}, map[int]float64{5: -1}},
			{2, []Running{{5, 1, 5, 300}}, map[int]float64{5: 1}},
			{4, []Running{{5, 1, 5, 300}}, map[int]float64{5: 0}},
		}},
		{"a wrapper that waits for a child", []int{5}, []look{
			{0, []Running{{5, 1, 5, 0}, {6, 5, 5, 50}}, map[int]float64{5: -1}},
			{1, []Running{{5, 1, 5, 0}, {6, 5, 5, 150}}, map[int]float64{5: 1}},
			// its child's time is its own now
			{2, []Running{{5, 1, 5, 250}}, map[int]float64{5: 1}},
		}},
		{"a child that nobody has waited for", []int{5}, []look{
			{0, []Running{{5, 1, 5, 10}, {6, 1, 5, 5000}}, map[int]float64{5: -1}},
			{1, []Running{{5, 1, 5, 60}}, map[int]float64{5: 0}},
			{2, []Running{{5, 1, 5, 110}}, map[int]float64{5: 0.5}},
		}},
		{"a grandchild with a session of its own", []int{5}, []look{
			{0, []Running{{5, 1, 5, 0}, {6, 5, 5, 0}, {7, 6, 7, 0}}, map[int]float64{5: -1}},
			{1, []Running{{5, 1, 5, 0}, {6, 5, 5, 0}, {7, 6, 7, 400}}, map[int]float64{5: 4}},
		}},
		{"a helper that has lost its parent", []int{5}, []look{
			{0, []Running{{5, 1, 5, 0}, {7, 1, 5, 0}}, map[int]float64{5: -1}},
			{1, []Running{{5, 1, 5, 0}, {7, 1, 5, 50}}, map[int]float64{5: 0.5}},
		}},
		{"two ranks, one of which starts", []int{5, 8}, []look{
			{0, []Running{{2, 1, 2, 900}, {5, 2, 5, 0}}, map[int]float64{5: -1, 8: -1}},
			{1, []Running{{2, 1, 2, 990}, {5, 2, 5, 100}, {8, 2, 8, 40}}, map[int]float64{5: 1, 8: -1}},
			{2, []Running{{2, 1, 2, 999}, {5, 2, 5, 100}, {8, 2, 8, 140}}, map[int]float64{5: 0, 8: 1}},
		}},
		{"a rank that has ended", []int{5}, []look{
			{0, []Running{{5, 1, 5, 0}}, map[int]float64{5: -1}},
			{1, []Running{{9, 1, 9, 700}}, map[int]float64{5: -1}},
		}},
		{"parents in a circle", []int{5}, []look{
			{0, []Running{{5, 1, 5, 0}, {6, 7, 1, 9}, {7, 6, 1, 9}}, map[int]float64{5: -1}},
			// no time has passed
			{0, []Running{{5, 1, 5, 0}, {6, 7, 1, 9}, {7, 6, 1, 9}}, map[int]float64{5: -1}},
		}},
	} {
		var u Usage
		for i, l := range c.looks {
			if got := u.Cores(second(l.at), l.all, c.leaders); fmt.Sprint(got) != fmt.Sprint(l.want) {
				t.Errorf("%s, look %d: %v, want %v", c.name, i, got, l.want)
			}
		}
	}
}

// FuzzParseRunning: whatever /proc says, times are not negative, and nothing panics.
func FuzzParseRunning(f *testing.F) {
	f.Add([]byte("42 (a b) c) S 1 42 42 0 -1 4194560 100 200 0 0 30 10 5 6 20 0 1 0 99"))
	f.Add([]byte("42 (sh) S 1 42 42 0 -1 0 0 0 0 0 9223372036854775807 1 0 0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, ok := parseRunning(42, text); p.Ticks < 0 || ok && p.Pid != 42 {
			t.Errorf("%q: %+v", text, p)
		}
	})
}

func TestParseRunning(t *testing.T) {
	p, ok := parseRunning(42, []byte("42 (a b) c) S 7 42 41 0 -1 4194560 100 200 0 0 30 10 5 6 20 0 1 0 99"))
	if want := (Running{42, 7, 41, 51}); !ok || p != want {
		t.Errorf("%+v, %t, want %+v", p, ok, want)
	}
	for _, text := range []string{"", "42 (sh) S 1 42 42 0 -1 0 0 0 0 0 1 1",
		"42 (sh) S 1 42 42 0 -1 0 0 0 0 0 x 1 0 0", "42 (sh) S 1 42 42 0 -1 0 0 0 0 0 -1 1 0 0"} {
		if p, ok := parseRunning(42, []byte(text)); ok {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// A wrapper's child that computes is seen at work, and a process that sleeps is not.
func TestCoresOfProcesses(t *testing.T) {
	b := newBench(t, Options{Command: []string{"/bin/sh", "-c",
		`if [ $RANK = 0 ]; then sleep 1000; fi; sh -c 'while :; do :; done'; :`}, NoPython: true}, nil)
	pids := b.start(2).Pids()
	var u Usage
	u.Cores(time.Now(), Processes(), pids)
	eventually(t, func() error {
		time.Sleep(100 * time.Millisecond)
		cores := u.Cores(time.Now(), Processes(), pids)
		if cores[pids[0]] > 0 || cores[pids[1]] <= 0.01 {
			return fmt.Errorf("cores %v of %v", cores, pids)
		}
		return nil
	})
}

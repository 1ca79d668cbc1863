package pod

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1e9, 0)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func worker(i int) ID { return ID{Worker, i} }
func server(i int) ID { return ID{PS, i} }

func TestJudge(t *testing.T) {
	lost := func(reason string) Verdict { return Verdict{Relaunch: true, Reason: reason} }
	for _, tt := range []struct {
		exit Exit
		lost bool
		want string
	}{
		{Exit{Signal: 9}, true, "killed (signal 9)"},
		{Exit{Code: 137}, true, "killed (signal 9)"},
		{Exit{Code: 143}, true, "killed (signal 15)"},
		{Exit{Signal: 15, Reason: "bye"}, true, "killed (signal 15): bye"},
		{Exit{Signal: 2}, true, "killed (signal 2)"},
		{Exit{Signal: 1}, true, "killed (signal 1)"},
		{Exit{Deleted: true}, true, "deleted"},
		{Exit{Deleted: true, Code: 1}, true, "deleted"},
		{Exit{Evicted: true, Reason: "The node was low on resource: memory."}, true,
			"evicted: The node was low on resource: memory."},
		{Exit{Evicted: true, OOM: true, Code: 137}, true, "evicted"},
		{Exit{Preempted: true, Code: 143}, true, "preempted"},
		{Exit{NodeLost: true}, true, "node lost"},
		{Exit{Code: 137, OOM: true}, false, "out of memory (--max_memory allows no more)"},
		{Exit{Signal: 9, OOM: true}, false, "out of memory (--max_memory allows no more)"},
		{Exit{Code: 1, Reason: "no such file"}, false, "exit code 1: no such file"},
		{Exit{Code: 255}, false, "exit code 255"},
		{Exit{Code: 128}, false, "exit code 128"},
		{Exit{Signal: 11}, false, "crashed (signal 11)"},
		{Exit{Code: 134}, false, "crashed (signal 6)"},
		{Exit{}, false, "left with work to do"},
	} {
		for _, role := range []Role{PS, Worker} {
			for counted := range 4 {
				want := lost(tt.want)
				if !tt.lost {
					again := counted < 2
					want = Verdict{Relaunch: again, Counted: true, Fatal: !again && role == PS, Reason: tt.want}
				}
				if got := Judge(role, tt.exit, Policy{Relaunches: 2}, Past{Counted: counted}); got != want {
					t.Errorf("%v %+v counted %d before: %+v, want %+v", role, tt.exit, counted, got, want)
				}
			}
		}
	}
}

// expect compares actions with their text.
func expect(t *testing.T, got []Action, want ...string) {
	t.Helper()
	var text []string
	for _, a := range got {
		text = append(text, a.String())
	}
	if !slices.Equal(text, want) {
		t.Fatalf("actions\n\t%s\nwant\n\t%s", strings.Join(text, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// running is a table with all its pods running since start.
func running(t *testing.T, p Policy) *Table {
	t.Helper()
	table := New(p)
	for todo := table.Start(start); len(todo) > 0; todo = todo[1:] {
		id := todo[0].ID
		todo = append(todo, table.Observe(Event{ID: id, Phase: Running, Address: "host-" + id.String(),
			PID: 100 + id.Index}, start)...)
	}
	return table
}

func end(e Exit, id ID) Event { return Event{ID: id, Phase: Failed, Exit: e} }

func TestServerKeepsIndexAndAddress(t *testing.T) {
	table := running(t, Policy{Servers: 2, Workers: 1})
	got := table.Observe(end(Exit{Signal: 9}, server(1)), at(5))
	expect(t, got, "lost ps-1: killed (signal 9)", "create ps-1 (incarnation 2)")
	if got[1].Address != "host-ps-1" || got[1].Original != 1 {
		t.Errorf("%+v", got[1])
	}
	// of the former
	expect(t, table.Observe(Event{ID: server(1), Incarnation: 1, Phase: Deleted}, at(6)))
	expect(t, table.Observe(Event{ID: server(1), Incarnation: 2, Phase: Running}, at(6)))
	if pod, _ := table.Get(server(1)); pod.Phase != Running || pod.PID != 0 || !pod.Started.Equal(at(6)) {
		t.Errorf("%+v", pod)
	}
}

// A pod runs since its runtime reports it, whenever it is observed first, as by a master that has
// come back.
func TestStartIsTheRuntimes(t *testing.T) {
	table := New(Policy{Workers: 1})
	table.Start(start)
	table.Observe(Event{ID: worker(0), Phase: Running, Started: at(1)}, at(1))
	restored, _, err := Restore(Policy{Workers: 1}, table.Snapshot(),
		[]Event{{ID: worker(0), Incarnation: 1, Phase: Running, Started: at(1)}}, at(60))
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range []*Table{table, restored} {
		if p, _ := it.Get(worker(0)); !p.Started.Equal(at(1)) || p.Phase != Running {
			t.Errorf("table %d: %+v", i, p)
		}
	}
}

// The table does not grow with the length of a job.
func TestTableForgetsWhoEndedLongAgo(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 2})
	now := start
	const losses = 3 * remembered
	for i := range losses {
		now = now.Add(time.Minute)
		expect(t, table.Observe(Event{ID: worker(i), Phase: Failed, Exit: Exit{Signal: 9}}, now),
			fmt.Sprintf("lost %v: killed (signal 9)", worker(i)), fmt.Sprintf("create %v", worker(i+2)))
	}
	pods := table.List()
	if len(pods) != 1+2+remembered || table.Relaunched() != losses {
		t.Errorf("%d pods after %d replacements", len(pods), table.Relaunched())
	}
	if first, last := pods[1].ID, pods[len(pods)-1].ID; first != worker(losses-remembered) || last != worker(losses+1) {
		t.Errorf("it knows workers %v to %v", first, last)
	}
	if _, ok := table.Get(worker(0)); ok {
		t.Error("the first worker is still known")
	}
	expect(t, table.Observe(Event{ID: worker(0), Phase: Failed}, now)) // reported again
}

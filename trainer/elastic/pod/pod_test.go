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
			for charged := range 4 {
				want := lost(tt.want)
				if !tt.lost {
					again := charged < 2
					want = Verdict{Relaunch: again, Charged: true, Fatal: !again && role == PS, Reason: tt.want}
				}
				if got := Judge(role, tt.exit, Policy{Relaunches: 2}, Past{Charged: charged}); got != want {
					t.Errorf("%v %+v charged %d before: %+v, want %+v", role, tt.exit, charged, got, want)
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

func TestStart(t *testing.T) {
	table := New(Policy{Servers: 1, Workers: 2})
	expect(t, table.Start(start), "create ps-0")
	expect(t, table.Observe(Event{ID: server(0), Phase: Pending}, at(1)), "create worker-0", "create worker-1")
	expect(t, table.Tick(at(1000)))
	if at, ok := table.Deadline(); ok {
		t.Errorf("deadline %v with nothing to do", at)
	}
}

func TestKilledWorkerIsReplacedAtOnce(t *testing.T) {
	table := running(t, Policy{Servers: 2, Workers: 4})
	for i := range 20 {
		now := at(float64(2 * (i + 1)))
		id := worker(0)
		if i > 0 {
			id = worker(3 + i)
		}
		created := fmt.Sprintf("create worker-%d", 4+i)
		expect(t, table.Observe(end(Exit{Signal: 9}, id), now), fmt.Sprintf("lost %v: killed (signal 9)", id), created)
		table.Observe(Event{ID: worker(4 + i), Phase: Running}, now)
	}
	pod, _ := table.Get(worker(23))
	if pod.Original != 0 || pod.Phase != Running || table.Err() != nil || table.Relaunched() != 20 {
		t.Errorf("%+v, %v, %d relaunched", pod, table.Err(), table.Relaunched())
	}
}

func TestServerKeepsIndexAndAddress(t *testing.T) {
	table := running(t, Policy{Servers: 2, Workers: 1})
	got := table.Observe(end(Exit{Signal: 9}, server(1)), at(5))
	expect(t, got, "lost ps-1: killed (signal 9)", "create ps-1 (launch 2)")
	if got[1].Address != "host-ps-1" || got[1].Original != 1 {
		t.Errorf("%+v", got[1])
	}
	// of the former
	expect(t, table.Observe(Event{ID: server(1), Launch: 1, Phase: Deleted}, at(6)))
	expect(t, table.Observe(Event{ID: server(1), Launch: 2, Phase: Running}, at(6)))
	if pod, _ := table.Get(server(1)); pod.Phase != Running || pod.PID != 0 || !pod.Started.Equal(at(6)) {
		t.Errorf("%+v", pod)
	}
}

// A pod runs since its runtime says so, whenever it is observed first, as by a master that has come
// back.
func TestStartIsTheRuntimes(t *testing.T) {
	table := New(Policy{Workers: 1})
	table.Start(start)
	table.Observe(Event{ID: worker(0), Phase: Running, Started: at(1)}, at(1))
	restored, _, err := Restore(Policy{Workers: 1}, table.Snapshot(),
		[]Event{{ID: worker(0), Launch: 1, Phase: Running, Started: at(1)}}, at(60))
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range []*Table{table, restored} {
		if p, _ := it.Get(worker(0)); !p.Started.Equal(at(1)) || p.Phase != Running {
			t.Errorf("table %d: %+v", i, p)
		}
	}
}

func TestCrashLoopIsSlowedAndEnds(t *testing.T) {
	table := running(t, Policy{Workers: 2, Relaunches: 3, Backoff: time.Second})
	now, id := at(10), worker(0)
	for i, delay := range []float64{1, 2, 4} {
		expect(t, table.Observe(end(Exit{Code: 1}, id), now), fmt.Sprintf("lost %v charged: exit code 1", id))
		due, ok := table.Deadline()
		if want := now.Add(time.Duration(delay * float64(time.Second))); !ok || !due.Equal(want) {
			t.Fatalf("charge %d: due %v, want %v", i+1, due.Sub(start), want.Sub(start))
		}
		expect(t, table.Tick(due.Add(-1)))
		id = worker(2 + i)
		expect(t, table.Tick(due), "create "+id.String())
		now = due
	}
	expect(t, table.Observe(end(Exit{Code: 1}, id), now), "lost worker-4 charged and given up: exit code 1")
	if _, ok := table.Deadline(); ok || table.Err() != nil {
		t.Fatalf("another deadline, or %v", table.Err())
	}
	for range 4 {
		id := worker(len(table.List()) - 1)
		if pod, _ := table.Get(id); pod.Original != 1 {
			id = worker(1)
		}
		table.Observe(end(Exit{OOM: true, Code: 137}, id), now)
		now = now.Add(time.Minute)
		table.Tick(now)
	}
	const want = "no worker is left: worker-4: exit code 1 (relaunched 3 of 3 times); worker-7: out " +
		"of memory (--max_memory allows no more) (relaunched 3 of 3 times)"
	if err := table.Err(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
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
	expect(t, table.Observe(Event{ID: worker(0), Phase: Failed}, now)) // told again
}

func TestServerThatFailsIsFatal(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1})
	expect(t, table.Observe(end(Exit{Code: 2, Reason: "panic"}, server(0)), at(1)),
		"lost ps-0 charged and given up: exit code 2: panic")
	if err := table.Err(); err == nil || err.Error() != "a parameter server is lost: ps-0: exit code 2: panic" {
		t.Error(err)
	}
}

// Nobody can spin: not even a pod that is killed as soon as it is there.
func TestLaunchesOfALineAreApart(t *testing.T) {
	table := running(t, Policy{Workers: 1, Backoff: time.Second})
	expect(t, table.Observe(end(Exit{Signal: 9}, worker(0)), at(0.1)), "lost worker-0: killed (signal 9)")
	expect(t, table.Tick(at(0.9)))
	expect(t, table.Tick(at(1)), "create worker-1")
}

func TestWorkerThatLeavesEarly(t *testing.T) {
	table := running(t, Policy{Workers: 2, Relaunches: 1})
	early := Event{ID: worker(0), Phase: Succeeded}
	expect(t, table.Observe(early, at(9)), "lost worker-0 charged: left with work to do")
	expect(t, table.Observe(early, at(9)))
	expect(t, table.Tick(at(10)), "create worker-2")
}

func TestRefusedCreationIsTriedAgain(t *testing.T) {
	table := New(Policy{Workers: 1, Backoff: time.Second})
	expect(t, table.Start(start), "create worker-0")
	now := start
	for _, delay := range []time.Duration{1, 2, 4, 8} {
		expect(t, table.Refused(worker(0), 1, Refusal{Reason: "no quota"}, now))
		if due, _ := table.Deadline(); due.Sub(now) != delay*time.Second {
			t.Fatalf("due after %v, want %d s", due.Sub(now), delay)
		}
		now = now.Add(delay * time.Second)
		expect(t, table.Tick(now), "create worker-0")
	}
	table.Observe(Event{ID: worker(0), Phase: Running}, now)
	expect(t, table.Refused(worker(0), 1, Refusal{Reason: "late"}, now))
	if _, ok := table.Deadline(); ok || table.Err() != nil {
		t.Error("something due, or ", table.Err())
	}
}

func TestScale(t *testing.T) {
	table := running(t, Policy{Workers: 3})
	expect(t, table.Observe(end(Exit{Signal: 9}, worker(0)), at(5)), "lost worker-0: killed (signal 9)",
		"create worker-3")
	expect(t, table.Scale(1, at(6)), "delete worker-2: scaled down", "delete worker-3: scaled down")
	expect(t, table.Scale(1, at(6)))
	expect(t, table.Observe(Event{ID: worker(2), Phase: Deleted}, at(7)), "lost worker-2: deleted: scaled down")
	up := table.Scale(3, at(8))
	expect(t, up, "create worker-4", "create worker-5")
	if up[0].Original != 0 || up[1].Original != 2 {
		t.Errorf("slots %d and %d", up[0].Original, up[1].Original)
	}
	expect(t, table.Observe(Event{ID: worker(3), Phase: Succeeded}, at(9)), "lost worker-3: left")
}

// Those that wait for their turn are counted, those that are not to come back are not.
func TestWorkers(t *testing.T) {
	table := New(Policy{Servers: 1, Workers: 3, Relaunches: 1})
	want := func(n int) {
		t.Helper()
		if got := table.Workers(); got != n {
			t.Errorf("%d workers, want %d", got, n)
		}
	}
	want(0)
	table.Start(start)
	want(3)
	table.Observe(Event{ID: server(0), Phase: Running}, start)
	want(3)
	table.Observe(end(Exit{Code: 1}, worker(0)), at(1))
	want(3) // worker 3 is created in a second
	table.Tick(at(5))
	table.Observe(end(Exit{Code: 1}, worker(3)), at(6))
	want(2)
	table.Scale(1, at(7))
	want(1) // the other is still there
}

// With fewer than it must have a job does not go on.
func TestMinWorkers(t *testing.T) {
	table := running(t, Policy{Workers: 3, MinWorkers: 2})
	table.Observe(end(Exit{Code: 1}, worker(0)), at(5))
	if table.Err() != nil {
		t.Error(table.Err())
	}
	table.Observe(end(Exit{Signal: 9}, worker(1)), at(6)) // is replaced
	if table.Err() != nil {
		t.Error(table.Err())
	}
	table.Observe(end(Exit{Code: 1, Reason: "no such file"}, worker(2)), at(7))
	if err := table.Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "1 of at least 2 workers are left: worker-0: exit code 1") ||
		!strings.Contains(err.Error(), "worker-2: exit code 1: no such file") {
		t.Errorf("error %v", err)
	}
}

func TestReplace(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1})
	expect(t, table.Replace(worker(0), "no progress for 5m0s", at(5)), "delete worker-0: no progress for 5m0s")
	expect(t, table.Replace(worker(0), "again", at(5)))
	expect(t, table.Observe(end(Exit{Code: 1}, worker(0)), at(6)),
		"lost worker-0: deleted: no progress for 5m0s", "create worker-1")
	expect(t, table.Replace(server(0), "silent", at(7)), "delete ps-0: silent")
	expect(t, table.Observe(Event{ID: server(0), Phase: Succeeded}, at(7)),
		"lost ps-0: deleted: silent", "create ps-0 (launch 2)")
	table.Observe(Event{ID: server(0), Launch: 2, Phase: Running}, at(8))
	expect(t, table.Replace(server(0), "silent", at(8)), "delete ps-0 (launch 2): silent")
	expect(t, table.Replace(worker(9), "unknown", at(8)))
}

func TestUnknownPodIsDeleted(t *testing.T) {
	table := running(t, Policy{Workers: 1})
	expect(t, table.Observe(Event{ID: worker(7), Phase: Running}, at(1)), "delete worker-7: not one of the job's pods")
	expect(t, table.Observe(Event{ID: worker(7), Phase: Deleted}, at(1)))
}

func TestEnd(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 3, Relaunches: 1})
	table.Observe(end(Exit{Code: 1}, worker(0)), at(4)) // its successor waits
	expect(t, table.End(5*time.Second, at(4)))
	if due, _ := table.Deadline(); !due.Equal(at(9)) {
		t.Fatalf("due %v", due.Sub(start))
	}
	expect(t, table.Observe(Event{ID: worker(1), Phase: Succeeded}, at(5)), "lost worker-1: left")
	expect(t, table.Tick(at(9)), "delete ps-0: the job is over", "delete worker-2: the job is over")
	expect(t, table.Tick(at(10)))
	expect(t, table.Observe(end(Exit{Signal: 9}, worker(2)), at(10)), "lost worker-2: deleted: the job is over")
	if table.Gone() {
		t.Error("gone with a server running")
	}
	expect(t, table.Observe(Event{ID: server(0), Phase: Deleted}, at(10)), "lost ps-0: deleted: the job is over")
	if _, ok := table.Deadline(); ok || !table.Gone() || table.Err() != nil {
		t.Errorf("deadline %t, gone %t, %v", ok, table.Gone(), table.Err())
	}
}

// The servers need not wait when the workers have left; and who is in a hurry ends all at once.
func TestEndEarly(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1})
	table.End(time.Minute, at(1))
	expect(t, table.Observe(Event{ID: worker(0), Phase: Succeeded}, at(2)), "lost worker-0: left",
		"delete ps-0: the job is over")
	table = running(t, Policy{Servers: 1, Workers: 1})
	table.End(time.Minute, at(1))
	expect(t, table.End(0, at(2)), "delete ps-0: the job is over", "delete worker-0: the job is over")
}

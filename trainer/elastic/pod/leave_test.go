package pod

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A worker that is asked to go has a successor at once, and is lost when it has gone, however it
// does.
func TestLeavingWorkerIsFollowedAtOnce(t *testing.T) {
	table := running(t, Policy{Workers: 2, Relaunches: 1})
	asked := Event{ID: worker(0), Phase: Leaving, Exit: Exit{Preempted: true}}
	expect(t, table.Observe(asked, at(5)), "create worker-2")
	expect(t, table.Observe(asked, at(5)))
	if n, p := table.Workers(), table.List()[0]; n != 2 || p.Phase != Leaving || p.Exit.String() != "preempted" {
		t.Errorf("%d workers, %+v", n, p)
	}
	expect(t, table.Observe(Event{ID: worker(0), Phase: Running}, at(6))) // late
	expect(t, table.Observe(end(Exit{Code: 1}, worker(0)), at(35)), "lost worker-0: preempted")
	if p, _ := table.Get(worker(2)); p.Original != 0 || table.Relaunched() != 1 {
		t.Errorf("%+v, %d relaunched", p, table.Relaunched())
	}
}

// The next server has the name of the one that leaves.
func TestLeavingServerIsFollowedWhenItIsGone(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1})
	expect(t, table.Observe(Event{ID: server(0), Phase: Leaving}, at(5)))
	expect(t, table.Observe(Event{ID: server(0), Phase: Succeeded}, at(6)), "lost ps-0: deleted",
		"create ps-0 (launch 2)")
	if err := table.Err(); err != nil {
		t.Error(err)
	}
}

func TestNobodyFollowsWhoIsScaledDown(t *testing.T) {
	table := running(t, Policy{Workers: 2})
	expect(t, table.Scale(1, at(5)), "delete worker-1: scaled down")
	expect(t, table.Observe(Event{ID: worker(1), Phase: Leaving}, at(5)))
	expect(t, table.Observe(end(Exit{Code: 143}, worker(1)), at(6)), "lost worker-1: deleted: scaled down")
	expect(t, table.Observe(Event{ID: worker(0), Phase: Leaving}, at(7)), "create worker-2")
	expect(t, table.Scale(2, at(8)), "create worker-3")
}

// Those that do not run are the first to go.
func TestScaleDownSparesThoseThatRun(t *testing.T) {
	table := New(Policy{Workers: 3})
	table.Start(start)
	for i := range 3 {
		table.Observe(Event{ID: worker(i), Phase: Pending, Waiting: "Unschedulable: 0/2 nodes are available"}, start)
	}
	table.Observe(Event{ID: worker(2), Phase: Running}, start)
	// which do not run
	expect(t, table.Scale(1, at(1)), "delete worker-0: scaled down", "delete worker-1: scaled down")
}

func TestMemoryGrowsAsLongAsThereIsMore(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1, Relaunches: 3, MaxOOMs: map[Role]int{Worker: 2},
		Backoff: time.Second})
	now := at(10)
	for n, id := range []ID{worker(0), worker(1)} {
		expect(t, table.Observe(end(Exit{OOM: true, Code: 137}, id), now), "lost "+id.String()+
			" charged: out of memory")
		now = now.Add(time.Minute)
		created := table.Tick(now)
		if len(created) != 1 || created[0].OOMs != n+1 {
			t.Fatalf("%+v", created)
		}
		table.Observe(Event{ID: created[0].ID, Phase: Running}, now)
	}
	expect(t, table.Observe(end(Exit{OOM: true}, worker(2)), now),
		"lost worker-2 charged: out of memory (--max_memory allows no more)")
	now = now.Add(time.Minute)
	if created := table.Tick(now); len(created) != 1 || created[0].OOMs != 2 {
		t.Fatalf("%+v", created)
	}
	expect(t, table.Observe(end(Exit{OOM: true}, worker(3)), now),
		"lost worker-3 charged and given up: out of memory (--max_memory allows no more)")
	if err := table.Err(); err == nil || !strings.Contains(err.Error(), "--max_memory allows no more") {
		t.Error(err)
	}
}

// More memory is given also to a line that has no relaunches left.
func TestMemoryGrowsWithoutRelaunches(t *testing.T) {
	for role, want := range map[Role]Verdict{
		PS:     {Charged: true, Fatal: true, Reason: "out of memory (--max_memory allows no more)"},
		Worker: {Charged: true, Relaunch: true, Grow: true, Reason: "out of memory"},
	} {
		p := Policy{MaxOOMs: map[Role]int{Worker: 1}}
		if got := Judge(role, Exit{OOM: true}, p, Past{Charged: 7}); got != want {
			t.Errorf("%v: %+v, want %+v", role, got, want)
		}
	}
}

func TestHopelessPodFailsTheJob(t *testing.T) {
	table := New(Policy{Workers: 2})
	table.Start(start)
	pending := Event{ID: worker(1), Phase: Pending, Waiting: "ImagePullBackOff: no such image"}
	table.Observe(pending, at(1))
	if p, _ := table.Get(worker(1)); p.Waiting != pending.Waiting || table.Err() != nil {
		t.Fatalf("%+v, %v", p, table.Err())
	}
	pending.Hopeless, pending.Waiting = true, "InvalidImageName: no:such:image"
	table.Observe(pending, at(2))
	if err := table.Err(); err == nil || err.Error() != "worker-1 cannot run: InvalidImageName: no:such:image" {
		t.Error(err)
	}
	table = running(t, Policy{Workers: 2})
	pending.Waiting = "late"
	table.Observe(pending, at(2))
	if p, _ := table.Get(worker(1)); p.Waiting != "" || table.Err() != nil {
		t.Errorf("one that runs: %+v, %v", p, table.Err())
	}
}

// What is hopeless ends a job that has not begun, and not one of which a pod of that role has run:
// then it is tried again.
func TestHopelessCreation(t *testing.T) {
	denied := Refusal{Reason: "impossible: denied", Hopeless: true}
	table := New(Policy{Servers: 1, Workers: 1})
	table.Start(start)
	table.Observe(Event{ID: server(0), Phase: Running}, start)
	expect(t, table.Refused(worker(0), 1, denied, at(1)))
	if err := table.Err(); err == nil || err.Error() != "worker-0 cannot be created: impossible: denied" {
		t.Error(err)
	}
	table = running(t, Policy{Servers: 1, Workers: 2})
	expect(t, table.Scale(3, at(5)), "create worker-2")
	expect(t, table.Refused(worker(2), 1, denied, at(5)))
	table.Observe(end(Exit{NodeLost: true}, worker(0)), at(5))
	now := at(5)
	for _, delay := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		expect(t, table.Refused(worker(3), 1, denied, now))
		if p, _ := table.Get(worker(3)); p.Waiting != "cannot be created: impossible: denied" || table.Err() != nil {
			t.Fatalf("%+v, %v", p, table.Err())
		}
		table.Tick(now.Add(delay*time.Second - 1))
		if p, _ := table.Get(worker(3)); p.Phase != Wanted {
			t.Fatalf("%v again before %d s have passed", p.Phase, delay)
		}
		now = now.Add(delay * time.Second)
		table.Tick(now)
	}
	expect(t, table.Observe(end(Exit{NodeLost: true}, server(0)), now), "lost ps-0: node lost",
		"create ps-0 (launch 2)")
	expect(t, table.Refused(server(0), 2, denied, now))
	if table.Err() != nil {
		t.Error(table.Err())
	}
}

// A node that refuses pods does not get one each second, is not a fault of theirs, and is forgiven
// when one has run.
func TestRejectedPodsBackOff(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1, Backoff: time.Second})
	rejected := Exit{Rejected: true, Reason: "OutOfcpu"}
	now, n := at(10), 0
	reject := func(delay time.Duration) {
		t.Helper()
		actions := table.Observe(end(rejected, worker(n)), now)
		expect(t, actions, "lost "+worker(n).String()+": rejected by its node: OutOfcpu")
		if !actions[0].Rejected {
			t.Errorf("%v does not say that it was rejected", actions[0])
		}
		due, ok := table.Deadline()
		n++
		want := fmt.Sprintf("backs off for %v: worker-%d rejected by its node: OutOfcpu", delay, n-1)
		if p, _ := table.Get(worker(n)); !ok || due.Sub(now) != delay || p.Waiting != want {
			t.Fatalf("due in %v, %+v", due.Sub(now), p)
		}
		now = due
		expect(t, table.Tick(now), "create "+worker(n).String())
	}
	for _, delay := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		reject(delay * time.Second)
	}
	table.Observe(Event{ID: worker(n), Phase: Running}, now)
	now = now.Add(steady - time.Second)
	expect(t, table.Observe(end(Exit{Signal: 9}, worker(n)), now), "lost worker-8: killed (signal 9)",
		"create worker-9")
	n++
	reject(time.Minute) // worker-8 has not run for long
	table.Observe(Event{ID: worker(n), Phase: Running}, now)
	now = now.Add(steady)
	table.Observe(Event{ID: worker(n), Phase: Leaving}, now)
	n++
	reject(time.Second)

	rejected = Exit{Evicted: true, Rejected: true, Reason: "the node is low on memory"}
	for _, delay := range []time.Duration{1, 2, 4} {
		p, _ := table.Get(server(0))
		table.Observe(Event{ID: server(0), Launch: p.Launch, Phase: Failed, Exit: rejected}, now)
		due, _ := table.Deadline()
		if p, _ := table.Get(server(0)); due.Sub(now) != delay*time.Second ||
			!strings.HasPrefix(p.Waiting, "backs off for ") || table.Err() != nil {
			t.Fatalf("due in %v, %+v, %v", due.Sub(now), p, table.Err())
		}
		now = due
		table.Tick(now)
	}
}

// A creation that was given up and is performed all the same is undone, a server's as well.
func TestServerThatWasGivenUpIsDeleted(t *testing.T) {
	table := New(Policy{Servers: 1, Workers: 1})
	expect(t, table.Start(start), "create ps-0")
	expect(t, table.End(0, at(1)), "delete ps-0: the job is over")
	expect(t, table.Refused(server(0), 1, Refusal{Reason: "not wanted any more"}, at(1)))
	expect(t, table.Observe(Event{ID: server(0), Launch: 1, Phase: Pending}, at(2)),
		"delete ps-0: it is not needed any more")
	if p := table.List()[0]; p.Phase != Cancelled || p.Phase.Public() != Deleted ||
		p.Exit.String() != "deleted: the job is over" {
		t.Errorf("%+v", p)
	}
}

// A worker waits for its quota without end, and no longer than maxRefused between two attempts; a
// server does not.
func TestRefusals(t *testing.T) {
	table := New(Policy{Servers: 1, Workers: 1, Backoff: time.Second})
	table.Start(start)
	table.Observe(Event{ID: server(0), Phase: Running}, start)
	refuse := func(id ID, launch int, for_ time.Duration, now time.Time) time.Time {
		t.Helper()
		for until := now.Add(for_); now.Before(until); {
			table.Refused(id, launch, Refusal{Reason: "exceeded quota"}, now)
			due, ok := table.Deadline()
			if wait := due.Sub(now); !ok || wait > maxRefused {
				t.Fatalf("%v is tried again in %v", id, wait)
			}
			now = due
			table.Tick(now)
		}
		return now
	}
	now := refuse(worker(0), 1, time.Hour, start)
	if p, _ := table.Get(worker(0)); table.Err() != nil || p.Waiting != "cannot be created: exceeded quota" {
		t.Fatalf("%+v, %v", p, table.Err())
	}
	table.Observe(Event{ID: worker(0), Phase: Running}, now)
	table.Observe(end(Exit{Signal: 9}, server(0)), now)
	now = refuse(server(0), 2, 9*time.Minute, now)
	if table.Err() != nil {
		t.Fatal(table.Err())
	}
	refuse(server(0), 2, 2*time.Minute, now)
	if err := table.Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "ps-0 could not be created for 10m") ||
		!strings.HasSuffix(err.Error(), ": exceeded quota") {
		t.Error(err)
	}
}

// A thousand that leave at once and end later are forgotten all the same.
func TestTableForgetsThoseThatLeft(t *testing.T) {
	const n = 1000
	table := running(t, Policy{Workers: n})
	for i := range n {
		table.Observe(Event{ID: worker(i), Phase: Leaving}, at(5))
	}
	for i := range n {
		table.Observe(end(Exit{Code: 143}, worker(i)), at(6))
	}
	table.Observe(Event{ID: worker(n), Phase: Leaving}, at(7))
	if pods := len(table.List()); pods > n+remembered+1 {
		t.Errorf("%d pods are known", pods)
	}
}

// A creation may have been performed though it was given up, and that be heard late.
func TestPodThatWasGivenUpIsDeleted(t *testing.T) {
	table := running(t, Policy{Workers: 1})
	expect(t, table.Scale(2, at(1)), "create worker-1")
	expect(t, table.Scale(1, at(2)), "delete worker-1: scaled down")
	expect(t, table.Refused(worker(1), 1, Refusal{Reason: "not wanted any more"}, at(2)))
	expect(t, table.Observe(Event{ID: worker(1), Launch: 1, Phase: Pending}, at(3)),
		"delete worker-1: it is not needed any more")
	expect(t, table.Observe(Event{ID: worker(1), Launch: 1, Phase: Leaving}, at(4)))
	expect(t, table.Observe(Event{ID: worker(1), Launch: 1, Phase: Deleted}, at(5)))
}

// No worker has the room that a server needs.
func TestServersComeFirst(t *testing.T) {
	table := New(Policy{Servers: 2, Workers: 2, Backoff: time.Second})
	expect(t, table.Start(start), "create ps-0", "create ps-1")
	expect(t, table.Observe(Event{ID: server(0), Phase: Pending}, at(1)))
	expect(t, table.Refused(server(1), 1, Refusal{Reason: "no answer"}, at(1)))
	if due, _ := table.Deadline(); !due.Equal(at(2)) {
		t.Fatalf("due at %v", due.Sub(start))
	}
	expect(t, table.Tick(at(2)), "create ps-1")
	if due, ok := table.Deadline(); ok {
		t.Fatalf("due at %v, and the server is not there yet", due.Sub(start))
	}
	expect(t, table.Observe(Event{ID: server(1), Phase: Pending}, at(3)), "create worker-0", "create worker-1")
	expect(t, table.Observe(Event{ID: server(1), Phase: Running}, at(4)))
}

// Others may have taken the room of a server that was lost: then its workers make some, one for
// each that lacks it.
func TestServerTakesRoomOfWorker(t *testing.T) {
	full := Refusal{Reason: "exceeded quota", Full: true}
	table := running(t, Policy{Servers: 2, Workers: 3, Backoff: time.Second})
	table.Observe(end(Exit{NodeLost: true}, server(0)), at(5))
	expect(t, table.Refused(server(0), 2, full, at(5))) // perhaps nobody has counted yet
	expect(t, table.Tick(at(6)), "create ps-0 (launch 2)")
	expect(t, table.Refused(server(0), 2, Refusal{Reason: "no answer"}, at(8)))
	expect(t, table.Tick(at(10)), "create ps-0 (launch 2)")
	expect(t, table.Refused(server(0), 2, full, at(10)), "delete worker-2: a server needs its room")
	expect(t, table.Observe(end(Exit{NodeLost: true}, server(1)), at(10)), "lost ps-1: node lost",
		"create ps-1 (launch 2)")
	expect(t, table.Refused(server(1), 2, full, at(10)))
	expect(t, table.Tick(at(14)), "create ps-0 (launch 2)", "create ps-1 (launch 2)")
	expect(t, table.Refused(server(0), 2, full, at(14))) // the worker takes its time
	expect(t, table.Refused(server(1), 2, full, at(14)), "delete worker-1: a server needs its room")
	expect(t, table.Observe(end(Exit{Code: 143}, worker(2)), at(15)),
		"lost worker-2: deleted: a server needs its room", "create ps-0 (launch 2)", "create ps-1 (launch 2)")
	expect(t, table.Observe(Event{ID: server(0), Launch: 2, Phase: Pending}, at(15)))
	expect(t, table.Refused(server(1), 2, full, at(15)))
	expect(t, table.Observe(end(Exit{Code: 143}, worker(1)), at(16)),
		"lost worker-1: deleted: a server needs its room", "create ps-1 (launch 2)")
	expect(t, table.Refused(server(1), 2, full, at(16)))
	expect(t, table.Tick(at(18)), "create ps-1 (launch 2)")
	expect(t, table.Observe(Event{ID: server(1), Launch: 2, Phase: Pending}, at(18)), "create worker-3",
		"create worker-4")
}

// A worker whose creation was cancelled by its deletion is created later, and is as any other then.
func TestCreationCancelledByDeletion(t *testing.T) {
	table := running(t, Policy{Servers: 1, Workers: 1, Backoff: time.Second})
	expect(t, table.Scale(2, at(5)), "create worker-1")
	expect(t, table.Replace(worker(1), "no progress", at(5)), "delete worker-1: no progress")
	expect(t, table.Refused(worker(1), 1, Refusal{Reason: "not wanted any more"}, at(5)))
	expect(t, table.Tick(at(6)), "create worker-1")
	expect(t, table.Observe(Event{ID: worker(1), Phase: Running}, at(7)))
	expect(t, table.Replace(worker(1), "silent", at(8)), "delete worker-1: silent")
}

// Room is made for the servers that have waited for it, by workers that have some, and used as soon
// as it is there.
func TestMakeRoom(t *testing.T) {
	full := Refusal{Reason: "exceeded quota", Full: true}
	table := running(t, Policy{Servers: 2, Workers: 3, Backoff: time.Second})
	expect(t, table.Scale(4, at(5)), "create worker-3")
	table.Observe(end(Exit{NodeLost: true}, server(0)), at(5))
	table.Refused(server(0), 2, full, at(5))
	expect(t, table.Tick(at(8)), "create ps-0 (launch 2)")
	table.Observe(end(Exit{NodeLost: true}, server(1)), at(8))
	table.Refused(server(1), 2, full, at(8))
	// worker-3 has none yet
	expect(t, table.Refused(server(0), 2, full, at(8)), "delete worker-2: a server needs its room")
	expect(t, table.Observe(Event{ID: worker(3), Phase: Pending}, at(9)), "create ps-1 (launch 2)")
	expect(t, table.Tick(at(10)), "create ps-0 (launch 2)")
	expect(t, table.Refused(server(1), 2, full, at(11))) // there is worker-2's
	expect(t, table.Observe(Event{ID: worker(2), Phase: Deleted}, at(11)),
		"lost worker-2: deleted: a server needs its room", "create ps-1 (launch 2)")
	expect(t, table.Refused(server(0), 2, full, at(11)))
	// soon: it was asked for before there was room
	if due, _ := table.Deadline(); !due.Equal(at(12)) {
		t.Errorf("tried again at %v", due.Sub(start))
	}
	expect(t, table.Observe(Event{ID: server(1), Phase: Pending}, at(11)), "create ps-0 (launch 2)")
	expect(t, table.Refused(server(0), 2, full, at(14)), "delete worker-3: a server needs its room")
	if p, _ := table.Get(worker(4)); p.Phase != Wanted || p.Waiting != "waits for ps-0" {
		t.Errorf("%+v", p)
	}
}

// When one of those that were refused can be created, the next is tried, and so on.
func TestRoomIsTakenAtOnce(t *testing.T) {
	table := New(Policy{Workers: 3, Backoff: time.Second})
	table.Start(start)
	now := start
	for range 10 {
		for i := range 3 {
			table.Refused(worker(i), 1, Refusal{Reason: "exceeded quota", Full: true}, now)
		}
		now, _ = table.Deadline()
		table.Tick(now)
	}
	table.Refused(worker(0), 1, Refusal{Reason: "exceeded quota", Full: true}, now)
	table.Refused(worker(1), 1, Refusal{Reason: "exceeded quota", Full: true}, now)
	expect(t, table.Observe(Event{ID: worker(2), Phase: Pending}, now.Add(time.Second)), "create worker-0")
	expect(t, table.Observe(Event{ID: worker(0), Phase: Pending}, now.Add(time.Second)), "create worker-1")
}

// A rule that denies all pods of a role for ten minutes ends a job that has not begun. Lack of
// room, and what else is in the way, does not, nor does a rule that denies a pod of a role of which
// one has run.
func TestDeniedCreation(t *testing.T) {
	for name, c := range map[string]struct {
		why  Refusal
		ran  bool
		ends string
	}{
		"by a rule": {Refusal{Reason: "maximum memory usage per Container is 1Gi",
			Denied: true}, false,
			"worker-0 could not be created for 11m40s: maximum memory usage per Container is 1Gi"},
		"by a rule, too late": {Refusal{Reason: "maximum memory usage per Container is 1Gi", Denied: true}, true, ""},
		"no room":             {Refusal{Reason: "exceeded quota", Full: true}, false, ""},
		"a failing webhook":   {Refusal{Reason: "failed calling webhook"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			table, refused := New(Policy{Workers: 1}), worker(0)
			table.Start(start)
			if c.ran {
				table.Observe(Event{ID: worker(0), Phase: Running}, start)
				table.Scale(2, start)
				refused = worker(1)
			}
			for _, e := range []struct {
				at   float64
				ends bool
			}{{0, false}, {500, false}, {700, c.ends != ""}, {6000, c.ends != ""}} {
				table.Tick(at(e.at))
				table.Refused(refused, 1, c.why, at(e.at))
				if err := table.Err(); (err != nil) != e.ends || e.ends && err.Error() != c.ends {
					t.Errorf("after %v s: %v", e.at, err)
				}
			}
		})
	}
}

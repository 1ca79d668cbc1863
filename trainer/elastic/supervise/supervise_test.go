package supervise

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

var start = time.Unix(1e9, 0)

// bench drives a supervisor of a test.
type bench struct {
	*testing.T
	*Supervisor
	now time.Time
	// actions of the last call
	did []Action
}

// newBench returns the supervisor of a worker with some processes, which has begun.
func newBench(t *testing.T, processes int, change func(*Policy)) *bench {
	p := Policy{Processes: processes, RestartGrace: 3 * time.Second, HeartbeatTimeout: 10 * time.Second,
		TaskTimeout: 2 * time.Minute, RestartOnJoin: job.RestartNow}
	if change != nil {
		change(&p)
	}
	b := &bench{T: t, Supervisor: New(p), now: start}
	b.tell(Begin{})
	return b
}

// tell tells events, and answers those that start processes: local rank 0 of the n-th start has the
// pid 100·n.
func (b *bench) tell(events ...Event) {
	b.did = b.Handle(b.now, events...)
	for i := 0; i < len(b.did); i++ {
		if a, ok := b.did[i].(Start); ok {
			var pids []int
			for _, local := range a.Locals {
				pids = append(pids, 100*b.next()+local)
			}
			b.did = append(b.did, b.Handle(b.now, Started{pids})...)
		}
	}
}

// next returns the number of the next start.
func (b *bench) next() int {
	last := 0
	for _, p := range b.procs {
		if p != nil {
			last = max(last, p.pid/100)
		}
	}
	return last + 1
}

// world gives the worker a world of its own.
func (b *bench) world(generation int64, source int) {
	members := 0
	for _, p := range b.procs {
		if p == nil || p.member {
			members++
		}
	}
	b.tell(World{Generation: generation, ID: generation, LocalSize: members, Size: members, Source: source})
}

// did returns the actions of a type of the last call.
func did[A Action](b *bench) (all []A) {
	for _, a := range b.did {
		if a, ok := a.(A); ok {
			all = append(all, a)
		}
	}
	return all
}

// speaks has the process of a local rank say hello, on a connection with the number of its pid.
func (b *bench) speaks(local int, keeps bool) {
	pid := b.procs[local].pid
	b.tell(Hello{Conn: pid, Pid: pid, Leader: pid, KeepsState: keeps})
}

// A process that is ordered to end before it uses the package joins no world, even if it continues.
// It is killed when its grace period is over.
func TestOrderedProcessJoinsNoWorld(t *testing.T) {
	b := newBench(t, 1, nil)
	b.world(1, -1)
	b.tell(Lost{1})
	if kills := did[Kill](b); len(kills) != 1 || kills[0].Grace <= 0 {
		t.Fatalf("a process that does not use the package is not ended: %v", b.did)
	}
	b.speaks(0, true)
	if len(did[Refuse](b)) != 1 {
		t.Fatalf("a process that was ordered to end is not refused: %v", b.did)
	}
	b.tell(Arrived{Conn: 100})
	if len(did[Arrive](b)) > 0 {
		t.Fatalf("it goes to the next world: %v", b.did)
	}
	b.tell(Exited{Pid: 100, Code: 1, Stopped: true}, Closed{100})
	arrivals := did[Arrive](b)
	if len(arrivals) != 1 || len(arrivals[0].Failures) > 0 {
		t.Fatalf("it does not arrive without failures: %v", b.did)
	}
	b.world(2, -1)
	if starts := did[Start](b); len(starts) != 1 {
		t.Errorf("the process is not started again: %v", b.did)
	}
}

// startsAgain returns the bench of a worker whose local rank 0 works in world 2, and whose local
// rank 1, which was killed, starts again.
func startsAgain(t *testing.T) *bench {
	b := newBench(t, 2, nil)
	b.world(1, -1)
	for local := range 2 {
		b.speaks(local, true)
		b.tell(Arrived{Conn: 100 + local})
	}
	b.tell(Exited{Pid: 101, Code: -9, Signal: 9}, Closed{101})
	b.tell(Arrived{Conn: 100, Round: 3})
	b.world(2, 0)
	b.speaks(1, true)
	return b
}

// A process that was starting as the training ended is ordered to end. If the world is lost then,
// the process joins none, and starts again when it has ended, also if that was with 0.
func TestShedProcessStartsAgain(t *testing.T) {
	for _, code := range []int{0, -15} {
		b := startsAgain(t)
		b.tell(Done{100})
		b.tell(Arrived{Conn: 201, Round: -1})
		b.tell(Lost{2})
		b.tell(Exited{Pid: 100}, Closed{100})
		arrivals := did[Arrive](b)
		if len(arrivals) != 1 || arrivals[0].Processes != 0 {
			t.Fatalf("it arrives otherwise than with no process: %v", b.did)
		}
		b.world(3, -1)
		b.tell(Exited{Pid: 201, Code: code, Stopped: true}, Closed{201})
		if starts := did[Start](b); len(starts) != 1 || !slices.Equal(starts[0].Locals, []int{1}) {
			t.Errorf("code %d: local rank 1 does not start again: %v", code, b.did)
		}
	}
}

// A process that becomes ready between two worlds, too late for the next one, joins the one after.
func TestReadyBetweenTwoWorlds(t *testing.T) {
	b := startsAgain(t)
	b.tell(Lost{2})
	b.tell(Arrived{Conn: 100, Round: 4})
	if arrivals := did[Arrive](b); len(arrivals) != 1 || arrivals[0].Processes != 1 {
		t.Fatalf("it arrives otherwise than with one process: %v", b.did)
	}
	b.tell(Arrived{Conn: 201, Round: -1})
	b.world(3, 0)
	if recalls := did[Recall](b); len(recalls) != 1 || recalls[0].Conn != 100 || recalls[0].Now {
		t.Errorf("the process that works is not recalled after a round: %v", b.did)
	}
	b.tell(Arrived{Conn: 100, Round: 5})
	if arrivals := did[Arrive](b); len(arrivals) != 1 || arrivals[0].Processes != 2 {
		t.Errorf("it arrives otherwise than with both processes: %v", b.did)
	}
}

// Processes that have continued keep the low ranks of their worker, in their order; those that were
// started again follow, by local rank.
func TestRanksOfProcesses(t *testing.T) {
	for _, c := range []struct {
		// by local rank: generation of the first world; -1: it takes no part
		joined     []int64
		generation int64
		// local ranks
		want string
	}{
		{[]int64{0, 0, 0}, 1, "[0 1 2]"},
		{[]int64{1, 0, 1}, 2, "[0 2 1]"},
		{[]int64{0, 1, 1}, 3, "[1 2 0]"},
		{[]int64{3, 1, 1}, 3, "[1 2 0]"}, // the first has just heard of the world
		{[]int64{3, 1, 1}, 4, "[1 2 0]"},
		{[]int64{3, 1, 0}, 5, "[1 0 2]"},
		{[]int64{3, -1, 1}, math.MaxInt64, "[2 0]"},
		{[]int64{-1, -1, -1}, 2, "[]"},
	} {
		s := &Supervisor{procs: []*process{nil}}
		for i, joined := range c.joined {
			s.procs = append(s.procs, &process{local: i, joined: max(0, joined), member: joined >= 0})
		}
		locals := []int{}
		for _, p := range s.members(c.generation) {
			locals = append(locals, p.local)
		}
		if got := fmt.Sprint(locals); got != c.want {
			t.Errorf("joined %v, in world %d: %s, want %s", c.joined, c.generation, got, c.want)
		}
	}
}

// The decision whether a world that was recalled is left, by who is in it and what
// --restart_on_join says.
func TestAnswersToARecall(t *testing.T) {
	for _, c := range []struct {
		name string
		situation
		want answer
	}{
		{"a member is lost", situation{stateless: true, restart: job.RestartNever}, leave},
		{"a member is lost, a checkpoint is awaited",
			situation{stateless: true, restart: job.RestartAtCheckpoint}, leave},
		{"a member is lost after the training", situation{trained: true, restart: job.RestartNow}, stay},
		{"a worker joins", situation{joins: true, stateless: true, restart: job.RestartNow}, leave},
		{"a worker joins, never", situation{joins: true, stateless: true, restart: job.RestartNever}, stay},
		{"a worker joins, no checkpoint yet",
			situation{joins: true, stateless: true, restart: job.RestartAtCheckpoint}, leaveAtCheckpoint},
		{"a worker joins those that keep state",
			situation{joins: true, stateful: true, restart: job.RestartNever}, leave},
		{"a worker joins, one of two keeps state",
			situation{joins: true, stateful: true, stateless: true, restart: job.RestartNever}, stay},
		{"a worker joins when all have ended with 0",
			situation{joins: true, finished: true, restart: job.RestartNow}, stay},
		{"a worker joins when one of two has ended",
			situation{joins: true, stateless: true, restart: job.RestartNow}, leave},
		{"a worker joins after the training",
			situation{joins: true, trained: true, stateful: true, restart: job.RestartNow}, stay},
	} {
		if got := c.answer(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A checkpoint counts if it is newer than all that were there when the newcomer came, and has not
// been written to for a moment.
func TestLeavesAtACheckpoint(t *testing.T) {
	b := newBench(t, 1, func(p *Policy) { p.RestartOnJoin = job.RestartAtCheckpoint })
	b.world(1, -1)
	b.tell(Recalled{1, true})
	if looks := did[Look](b); len(looks) != 1 || !looks[0].Checkpoint {
		t.Fatalf("it does not look for a checkpoint: %v", b.did)
	}
	for _, c := range []struct {
		at     time.Duration // after the newcomer came
		leaves bool
	}{{-time.Hour, false}, {-2 * time.Hour, false}, {time.Hour, false}, {-10 * time.Minute, true}} {
		b.tell(Looked{Checkpoint: start.Add(c.at)})
		if got := b.Phase() != Running; got != c.leaves {
			t.Fatalf("a checkpoint %v after: it leaves the world: %v", c.at, got)
		}
	}
	b = newBench(t, 1, func(p *Policy) { p.RestartOnJoin = job.RestartAtCheckpoint })
	b.world(1, -1)
	b.tell(Recalled{1, true})
	b.tell(Looked{})
	for _, c := range []struct {
		age    time.Duration
		leaves bool
	}{{0, false}, {unwritten - 1, false}, {unwritten, true}} {
		b.now = start.Add(time.Minute + c.age)
		b.tell(Looked{Checkpoint: start.Add(time.Minute)})
		if got := b.Phase() != Running; got != c.leaves {
			t.Fatalf("a checkpoint of %v: it leaves the world: %v", c.age, got)
		}
	}
}

// The end of a process is judged by the first cause that applies. Codes of the package ask for a
// restart; 82, which it does not use any more, and all others are the script's own.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		end
		cause                            string
		reported, excused, doubt, killed bool
	}{
		{end{Exited: Exited{Code: 83}, speaks: true}, "its world has ended", false, true, false, false},
		{end{Exited: Exited{Code: 83}}, "failed", true, false, false, false},
		{end{Exited: Exited{Code: 81}, speaks: true}, doubts, true, true, true, false},
		{end{Exited: Exited{Code: 81}, speaks: true, lost: true}, "its world has lost a member", false, true, false,
			false},
		{end{Exited: Exited{Code: 81}, lost: true}, "failed", true, false, false, false},
		{end{Exited: Exited{Code: 80}, speaks: true}, "lost its agent", true, true, false, false},
		{end{Exited: Exited{Code: 80}}, "failed", true, false, false, false},
		{end{Exited: Exited{Code: 82}, speaks: true}, "failed", true, false, false, false},
		{end{Exited: Exited{Code: -9, Signal: 9}, speaks: true}, killed, true, false, false, true},
		{end{Exited: Exited{Code: -9, Signal: 9}, frozen: true}, "frozen", true, false, false, false},
		{end{Exited: Exited{Code: -9, Signal: 9}, frozen: true, hung: "it hangs"}, hung, true, false, false, false},
		{end{Exited: Exited{Code: 1}, hung: "it has ended before"}, "failed", true, false, false, false},
		{end{Exited: Exited{Code: -11, Signal: 11}}, "crashed", true, false, false, false},
		{end{Exited: Exited{Code: 1}, lost: true}, "failed", true, false, false, false},
	} {
		for _, recalled := range []bool{false, true} {
			c.end.memory = recalled
			f, reported := judge(c.end, recalled, "why")
			excused := c.excused || recalled && c.cause != hung
			if f.Cause != c.cause || reported != c.reported || f.Excused != excused || f.Hung != (c.cause == hung) ||
				f.Doubt != c.doubt || f.Memory != (c.killed && c.end.memory) || (f.Why == "why") != c.doubt ||
				(f.Why == "it hangs") != f.Hung {
				t.Errorf("%+v, recalled %v: %+v, reported %v", c.end, recalled, f, reported)
			}
		}
	}
	for code := range 256 {
		f, reported := judge(end{Exited: Exited{Code: code}, speaks: true}, false, "")
		if asks := reported && f.Excused; asks != (code == 80 || code == 81) {
			t.Errorf("code %d asks for a restart: %v", code, asks)
		}
	}
}

// Which process has a connection follows from the session that it was made in.
func TestSpeaker(t *testing.T) {
	s := &Supervisor{procs: []*process{
		nil, {local: 1, pid: 100, conn: &connection{pid: 101}},
		{local: 2, pid: 110, conn: &connection{pid: 110, closed: true}, done: true},
		{local: 3, pid: 120, exit: &Exited{}}, {local: 4, pid: 130},
		{local: 5, pid: 140, conn: &connection{pid: 141, closed: true}},
	}}
	for _, c := range []struct {
		pid, leader int
		local       int // -1: it is refused
		why         string
	}{
		{130, 130, 4, ""}, {131, 130, 4, ""}, {101, 100, 1, ""}, {142, 140, 5, ""},
		{100, 100, -1, "another process of local rank 1, with the pid 101,"},
		{111, 110, -1, "another process of local rank 2, with the pid 110,"},
		{120, 120, -1, "the command of local rank 3 has ended"}, {130, 131, -1, "without setsid"},
		{0, 0, -1, "without setsid"},
	} {
		p, why := s.speaker(Hello{Pid: c.pid, Leader: c.leader})
		local := -1
		if p != nil {
			local = p.local
		}
		if local != c.local || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("process %d in session %d: local rank %d, %q, want %d, %q", c.pid, c.leader, local,
				why, c.local, c.why)
		}
	}
}

// The leases of a script go to the one that its command starts after it.
func TestSecondScriptOfAWrapper(t *testing.T) {
	b := newBench(t, 1, nil)
	b.world(1, -1)
	b.tell(Hello{Conn: 1, Pid: 101, Leader: 100})
	b.tell(Closed{1}) // the wrapper continues
	if len(did[Free](b)) > 0 {
		t.Error("the leases are given to others before the wrapper has started another script")
	}
	b.tell(Hello{Conn: 2, Pid: 102, Leader: 100, KeepsState: true})
	if free := did[Free](b); len(did[Accept](b)) != 1 || len(free) != 1 || free[0].Conn != 1 {
		t.Errorf("%v", b.did)
	}
}

// The leases of a process that has ended go to others when all is handled that it had said:
// otherwise a message that is handled after its end would take them back, and no process would have
// them.
func TestFreesLeases(t *testing.T) {
	for _, events := range [][]Event{{Exited{Pid: 100, Code: -9, Signal: 9}, Closed{100}},
		{Closed{100}, Exited{Pid: 100, Code: -9, Signal: 9}}} {
		b := newBench(t, 2, nil)
		b.world(1, -1)
		b.speaks(0, true)
		b.tell(events[0])
		if len(did[Free](b)) > 0 {
			t.Errorf("freed after %T alone", events[0])
		}
		if b.tell(events[1]); len(did[Free](b)) != 1 {
			t.Errorf("after %T, %T: %v", events[0], events[1], b.did)
		}
	}
}

// A process that exits with 0 has completed the training, but not if it waits for a world: then it
// is started again.
func TestExitsWithZero(t *testing.T) {
	for _, waits := range []bool{true, false} {
		b := newBench(t, 2, nil)
		b.world(1, -1)
		b.speaks(0, true)
		if waits {
			b.procs[0].waits = &Arrived{}
		}
		if b.tell(Exited{Pid: 100}); b.procs[0].retired() == waits {
			t.Errorf("waits %v: it has completed the training: %v", waits, b.procs[0].retired())
		}
	}
}

// A master that comes back gets an answer that is not older than its question, unless the process
// has completed the training.
func TestAccount(t *testing.T) {
	b := newBench(t, 1, nil)
	b.world(1, -1)
	b.speaks(0, true)
	b.tell(Arrived{Conn: 100, Round: -1})
	sent := func(want ...string) {
		t.Helper()
		var got []string
		for _, a := range did[SendAccount](b) {
			got = append(got, string(a.Ledger))
		}
		if !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	b.tell(Account{100, 1, []byte("a")})
	sent()
	b.tell(AccountAsked{})
	sent() // it is older
	b.tell(AccountAsked{})
	sent()
	b.tell(Account{100, 7, []byte("of another world")})
	sent()
	b.tell(Account{100, 1, []byte("b")})
	sent("b")
	b.tell(Account{100, 1, []byte("c")})
	b.tell(AccountAsked{})
	sent()
	b.tell(Done{100})
	sent("c")
	// the second one when the master comes back again
	for range 2 {
		b.tell(AccountAsked{})
		sent("c")
	}
	b.tell(Exited{Pid: 100})
	b.tell(AccountAsked{})
	sent("c")
}

// The master hears at once that all ranks have the state of a world, and of the first round.
func TestTellsAtOnce(t *testing.T) {
	b := newBench(t, 1, nil)
	b.world(1, -1)
	b.speaks(0, true)
	for _, e := range []Event{Met{100, 1}, FirstRound{100}, Done{100}} {
		b.tell(e)
		if r := did[Report](b); len(r) != 1 || !r[0].Urgent || r[0].Met != 1 {
			t.Errorf("%T: %v", e, r)
		}
	}
}

func TestRanks(t *testing.T) {
	for _, test := range []struct {
		first, n int
		want     string
	}{{0, 0, "no rank"}, {1, 1, "rank 1"}, {2, 4, "ranks 2-5"}} {
		if got := ranks(test.first, test.n); got != test.want {
			t.Errorf("%d ranks from %d: %q, want %q", test.n, test.first, got, test.want)
		}
	}
}

// Only time counts in which one master has answered without a break, and in which this process was
// not suspended.
func TestContact(t *testing.T) {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var c Contact
	for second := range 60 {
		switch {
		case second == 20:
			c.Missed(at(second), 0)
		case second > 40 && second < 50: // stopped
		case second < 30:
			c.Answered(at(second), 1)
		default:
			c.Answered(at(second), 2)
		}
		want := 0
		switch {
		case second < 20:
			want = second - 5
		case second > 20 && second < 30:
			want = second - 26
		case second >= 30 && second < 50:
			want = min(second, 40) - 35
		case second >= 50:
			want = second - 55
		}
		if kept := c.Kept(start); max(0, kept) != time.Duration(max(0, want))*time.Second {
			t.Errorf("after %d s: %v, want %d s", second, kept, want)
		}
	}
}

// A worker is abandoned when several heartbeats in a row have had no answer for as long as the
// limit: one alone may be due to a suspended machine.
func TestAbandoned(t *testing.T) {
	for _, c := range []struct {
		limit time.Duration
		// after the last answer
		missed []time.Duration
		want   time.Duration
	}{
		{time.Minute, []time.Duration{time.Second, time.Minute}, time.Minute},
		{time.Minute, []time.Duration{time.Second, time.Minute - 1}, 0},
		{time.Minute, []time.Duration{time.Hour}, 0},
		{time.Minute, []time.Duration{time.Hour, time.Hour + timing.Beat}, time.Hour + timing.Beat},
		{0, []time.Duration{time.Hour, 2 * time.Hour}, 0},
	} {
		var contact Contact
		contact.Begin(start.Add(-time.Hour))
		contact.Answered(start, 1)
		var got time.Duration
		for _, d := range c.missed {
			got = contact.Missed(start.Add(d), c.limit)
		}
		if got != c.want {
			t.Errorf("limit %v, missed %v: %v, want %v", c.limit, c.missed, got, c.want)
		}
	}
}

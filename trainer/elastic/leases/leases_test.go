package leases

import (
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// bench drives a holder. The master has a number of leases, of four records each. Connections of
// processes are 1, 2 and so on.
type bench struct {
	*testing.T
	*Holder
	now   time.Time
	left  int
	given int64
	// number of requests to the master
	asked    int
	reported []int64
}

// newBench returns a bench whose data set is declared.
func newBench(t *testing.T, leases int) *bench {
	b := &bench{T: t, Holder: New(), now: start, left: leases}
	b.Declared(Dataset{Size: 10, Epochs: 2, PerTask: 4}, b.grant())
	return b
}

func (b *bench) grant() Grant {
	if b.left == 0 {
		return Grant{}
	}
	b.left--
	b.given++
	end := 4 * b.given
	return Grant{Lease: &Lease{ID: b.given, Epoch: 1, Number: b.given - 1, Start: end - 4, End: end}}
}

// gets checks the answer to a process that asks: the lease, and the number of its records that are
// done. -1: wait.
func (b *bench) gets(conn int, lease, done int64) {
	b.Helper()
	a := b.Ask(conn, b.now)
	if a.Kind == AskMaster {
		b.asked++
		a = b.Answered(conn, b.grant(), b.now)
	}
	want := Answer{Granted, Lease{ID: lease, Epoch: 1, Number: lease - 1, Start: 4 * (lease - 1), End: 4 * lease,
		Done: done}}
	if lease < 0 {
		want = Answer{Kind: Wait}
	}
	if a != want {
		b.Fatalf("process %d is given %+v, want %+v", conn, a, want)
	}
}

// ends completes a round of a process, with pairs of a lease and the number of its records that are
// in the state of the process.
func (b *bench) ends(conn int, n int64, leases ...Progress) {
	_, done := b.Round(conn, Round{Generation: 1, Number: n, Leases: leases})
	for _, p := range done {
		b.reported = append(b.reported, p.Lease)
	}
}

// safe checks the content of a heartbeat: the leases, and the number of safe records of each.
func (b *bench) safe(want ...Progress) {
	b.Helper()
	var got []Progress
	for _, l := range b.Status().Leases {
		got = append(got, Progress{l.ID, l.Done})
	}
	if !slices.Equal(got, want) {
		b.Fatalf("the master is reported %v, want %v", got, want)
	}
}

// Records are safe when another round has begun, or when the ranks have met without a round: then
// every rank has them.
func TestRecordsAreSafeLater(t *testing.T) {
	b := newBench(t, 3)
	b.gets(1, 1, 0)
	b.ends(1, 1, Progress{1, 3})
	b.safe(Progress{1, 0})
	b.ends(1, 2, Progress{1, 4})
	b.safe(Progress{1, 3})
	b.gets(1, 2, 0)
	b.safe(Progress{1, 3}, Progress{2, 0})
	b.ends(1, 3, Progress{1, 4}, Progress{2, 1})
	if b.safe(Progress{2, 0}); !slices.Equal(b.reported, []int64{1}) {
		t.Errorf("reported %v, want 1, which is done", b.reported)
	}
	b.gets(1, 3, 0)
	// its data loader asks again while the others are in the round
	for range 3 {
		b.gets(1, -1, 0)
		b.now = b.now.Add(RetryAfter)
	}
	b.safe(Progress{2, 0}, Progress{3, 0})
	b.Met(1)
	b.safe(Progress{2, 1}, Progress{3, 0})
	// at most the lease's records, and no other leases
	b.ends(1, 4, Progress{2, 99}, Progress{77, 1})
	b.ends(1, 5)
	if !slices.Equal(b.reported, []int64{1, 2}) {
		t.Errorf("reported %v, want 1 and 2", b.reported)
	}
	b.safe(Progress{3, 0})
	if s := b.Status(); s.Steps != 5 {
		t.Errorf("%d rounds, want 5", s.Steps)
	}
}

// Steps rise with each round, once for all processes of the worker, also if a world begins with an
// older state: without progress the master would replace the worker as hung.
func TestStepsRiseWithAnOlderState(t *testing.T) {
	b := newBench(t, 3)
	for i, c := range []struct {
		enters bool
		conn   int
		round  int64
		steps  int64
	}{{false, 1, 1, 1}, {false, 2, 1, 1}, {false, 1, 2, 2}, {false, 2, 2, 2}, {true, 1, 1, 3},
		{false, 2, 1, 3}, {false, 2, 2, 4}, {true, 2, 10, 5}} {
		if c.enters {
			b.Enter(0)
		}
		b.ends(c.conn, c.round)
		if s := b.Status(); s.Steps != c.steps || s.Version != c.round {
			t.Errorf("after report %d: %d steps, version %d, want %d and %d", i, s.Steps, s.Version, c.steps, c.round)
		}
	}
}

// The first round of each generation is reported as first, once for all processes of the worker.
// One of an older generation is not.
func TestFirstRounds(t *testing.T) {
	b := newBench(t, 0)
	loss := float32(0.5)
	for i, c := range []struct {
		generation int64
		first      bool
	}{{1, true}, {1, false}, {3, true}, {2, false}, {3, false}, {4, true}} {
		r := Round{Generation: c.generation, Number: int64(i)}
		if i == 0 {
			r.Loss = &loss
		}
		if first, _ := b.Round(1+i%2, r); first != c.first {
			t.Errorf("round %d, of generation %d: first is %v", i, c.generation, first)
		}
	}
	if s := b.Status(); s.Rounds != 4 || s.Loss != loss {
		t.Errorf("%+v, want generation 4 and the last loss", s)
	}
}

// Another process of the worker continues the leases of one that has ended, from the records that
// are safe; the oldest lease first.
func TestLeasesOfALostProcess(t *testing.T) {
	b := newBench(t, 3)
	b.gets(1, 1, 0)
	b.gets(1, 2, 0)
	b.gets(2, 3, 0)
	b.ends(1, 1, Progress{1, 2}, Progress{2, 3})
	b.ends(2, 1, Progress{3, 3})
	b.ends(1, 2, Progress{1, 3})
	b.Free(1)
	b.gets(2, 1, 2)
	b.gets(2, 2, 3)
	b.safe(Progress{1, 2}, Progress{2, 3}, Progress{3, 0})
	b.ends(2, 2, Progress{1, 4})
	b.Free(2)
	b.gets(3, 1, 2)
	if len(b.reported) > 0 {
		t.Errorf("reported %v, and none is safe to its end", b.reported)
	}
}

// When a world begins, the progress of its members is not safe yet: the process with the state may
// be lost before the others have received it. It is safe after a round. Leases below the floor are
// void.
func TestTheNextWorld(t *testing.T) {
	b := newBench(t, 3)
	b.gets(1, 1, 0)
	b.gets(1, 2, 0)
	b.gets(2, 3, 0)
	b.ends(1, 1, Progress{1, 4}, Progress{2, 3})
	b.Free(2)
	if b.Answered(1, Grant{Over: true}, b.now); !b.Status().Exhausted {
		t.Error("the master has answered that no records are left")
	}
	b.Free(1)
	b.Received(1, []Progress{{2, 3}})
	if b.Enter(2); b.Status().Exhausted {
		t.Error("the state of this world may be an older one")
	}
	b.safe(Progress{2, 0}, Progress{3, 0})
	b.gets(1, 3, 0)
	b.gets(2, -1, 0) // to wait, not the end
	b.ends(1, 2)
	b.safe(Progress{2, 3}, Progress{3, 0})
	if len(b.reported) > 0 {
		t.Errorf("reported %v, which is void", b.reported)
	}
}

// Progress that only one process has in its state is not reported if that process is lost before a
// round of the next world.
func TestLeasesOfALostSource(t *testing.T) {
	b := newBench(t, 2)
	b.gets(1, 1, 0)
	b.ends(1, 1, Progress{1, 4})
	b.Enter(0)
	b.Free(1)
	b.Enter(0)
	b.gets(1, 1, 0)
	b.ends(1, 1)
	b.ends(1, 2)
	if len(b.reported) > 0 {
		t.Errorf("reported %v: its records are in no state", b.reported)
	}
}

// Several leases in one search for records make nothing safe: the ranks meet when there are no
// more.
func TestLeasesOfOneSearch(t *testing.T) {
	b := newBench(t, 3)
	b.gets(1, 1, 0)
	b.ends(1, 1, Progress{1, 3})
	b.gets(1, 2, 0)
	b.gets(1, 3, 0)
	b.safe(Progress{1, 0}, Progress{2, 0}, Progress{3, 0})
}

// A lease is held until the master knows of its end: otherwise it would be granted again.
func TestHeldUntilDelivered(t *testing.T) {
	b := newBench(t, 2)
	b.gets(1, 1, 0)
	b.gets(1, 2, 0)
	b.ends(1, 1, Progress{1, 4}, Progress{2, 4})
	b.ends(1, 2)
	for _, c := range []struct {
		delivered int64
		held      []int64
	}{{0, []int64{1, 2}}, {2, []int64{1}}, {1, nil}} {
		if all := b.Delivered(c.delivered); all != (len(c.held) == 0) || !slices.Equal(b.Held(), c.held) {
			t.Errorf("after lease %d: holds %v, the master knows of all: %v", c.delivered, b.Held(), all)
		}
	}
}

// The master is asked again after a while, after a round, and in the next world.
func TestWaits(t *testing.T) {
	b := newBench(t, 0)
	for _, c := range []struct {
		passes time.Duration
		event  func()
		asked  int
	}{
		{0, func() {}, 1},
		{RetryAfter - 1, func() {}, 1},
		{1, func() {}, 2},
		{0, func() { b.ends(1, 1) }, 3},
		{0, func() { b.Enter(0) }, 4},
		{RetryAfter, func() { b.Unreachable(b.now) }, 4},
		{RetryAfter, func() {}, 5},
	} {
		b.now = b.now.Add(c.passes)
		c.event()
		if b.gets(1, -1, 0); b.asked != c.asked {
			t.Errorf("at %v: asked %d times, want %d", b.now.Sub(start), b.asked, c.asked)
		}
	}
	if a := New().Ask(1, start); a.Kind != Undeclared {
		t.Errorf("%+v without a data set", a)
	}
}

// The last task of an epoch is shorter. Without a data set no task is known to be complete.
func TestLedger(t *testing.T) {
	parts := []Part{{ledger.Task{Epoch: 2, Number: 0}, 4}, {ledger.Task{Epoch: 2, Number: 1}, 9},
		{ledger.Task{Epoch: 2, Number: 2}, 1}, {ledger.Task{Epoch: 3, Number: 2}, 2},
		{ledger.Task{Epoch: 3, Number: 3}, 1}}
	got := newBench(t, 0).Ledger(1, 70, parts)
	var want ledger.Ledger
	want.SettleCounted(1, 70)
	want.Add(ledger.Task{Epoch: 2, Number: 0}, 4, 4)
	want.Add(ledger.Task{Epoch: 2, Number: 1}, 4, 4)
	want.Add(ledger.Task{Epoch: 2, Number: 2}, 1, 2)
	want.Add(ledger.Task{Epoch: 3, Number: 2}, 2, 2)
	if !slices.Equal(got.Append(nil), want.Append(nil)) {
		t.Errorf("%v, want %v", got, want)
	}
	unknown := New().Ledger(0, 0, parts[:1])
	if n, whole := unknown.Progress(parts[0].Task); n != 4 || whole {
		t.Errorf("without a data set: %d records, all of them: %v", n, whole)
	}
}

// A state's records of shards of unknown length are those that it reports, with their ends.
func TestLedgerOfStream(t *testing.T) {
	h := New()
	h.Declared(Dataset{Size: 3, Epochs: 1, PerTask: 1, Stream: true}, Grant{})
	l := h.Ledger(0, 0, []Part{{ledger.Task{Epoch: 1}, 9}, {ledger.Task{Epoch: 1, Number: 2}, ledger.End + 7}})
	if n, whole := l.Progress(ledger.Task{Epoch: 1}); n != 9 || whole {
		t.Errorf("%d records of the first shard, whole %t, want 9 of more", n, whole)
	}
	if n, whole := l.Progress(ledger.Task{Epoch: 1, Number: 2}); n != 7 || !whole {
		t.Errorf("%d records of the last shard, whole %t, want all 7", n, whole)
	}
}

package agent

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// desk is a fake master with a number of leases, of four records each.
type desk struct {
	wire.MasterClient
	*records
	*testing.T
	left  int
	given int64
	// kind of the answer after the last lease
	end      wire.TaskKind
	err      error
	asked    int
	reported []int64
	// connections of the processes
	scripts [3]script
	// leases that the last request named as held
	holds []int64
}

// newDesk returns a desk whose data set is declared. The declaration gets the first lease.
func newDesk(t *testing.T, leases int) *desk {
	d := &desk{T: t, left: leases, end: wire.TaskKind_WAIT}
	d.records = newRecords(d, 3, func(r *wire.ReportTaskRequest) { d.reported = append(d.reported, r.Lease) })
	if err := d.declare(t.Context(), datasetRequest{Size: 10, Epochs: 2, RecordsPerTask: 4}); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) GetTask(_ context.Context, r *wire.GetTaskRequest, _ ...grpc.CallOption) (*wire.GetTaskReply, error) {
	d.asked++
	d.holds = slices.Sorted(slices.Values(r.Held))
	switch {
	case r.Worker != 3 || r.Dataset.GetSize() != 10 || !r.Now || len(r.Held) != len(d.held)+len(d.done):
		d.Errorf("worker 3 holds %v and asks for %v", d.held, r)
	case d.err != nil:
		return nil, d.err
	case d.left == 0:
		return &wire.GetTaskReply{Task: &wire.Task{Kind: d.end}}, nil
	}
	d.left--
	d.given++
	start := 4 * (d.given - 1)
	return &wire.GetTaskReply{Task: &wire.Task{Kind: wire.TaskKind_TRAINING, Lease: d.given, Epoch: 1,
		Number: d.given - 1, Start: start, End: start + 4}}, nil
}

// gets checks the answer to a process that asks for a lease: the lease and the number of its
// records that are done; -1: wait; -2: there are no more records.
func (d *desk) gets(local int, lease, done int64) {
	d.Helper()
	got, err := d.lease(&d.scripts[local])
	if err != nil {
		d.Fatal(err)
	}
	var want any = leaseReply{Lease: lease, Number: lease - 1, Start: 4 * (lease - 1), End: 4 * lease, Done: done}
	switch lease {
	case -1:
		want = waitReply{true}
	case -2:
		want = overReply{true}
	}
	if !reflect.DeepEqual(got, want) {
		d.Fatalf("process %d is given %v, want %v", local, got, want)
	}
}

// lease asks for a lease on a connection.
func (d *desk) lease(by *script) (any, error) {
	by.owner = &scripts{records: d.records}
	return leaseRequest{}.answer(d.Context(), by, time.Now())
}

// ends completes a round of a process, with pairs of a lease and the number of its records that the
// process has trained on by then.
func (d *desk) ends(local int, n int64, leases ...[2]int64) {
	d.round(&d.scripts[local], roundMessage{Generation: 1, Round: n, Leases: leases})
}

// safe checks the report to the master: pairs of a lease and its number of safe records.
func (d *desk) safe(want ...[2]int64) {
	d.Helper()
	var b wire.HeartbeatRequest
	d.beat(&b)
	var got [][2]int64
	for _, l := range b.Leases {
		got = append(got, [2]int64{l.Lease, l.Done})
	}
	if !slices.Equal(got, want) {
		d.Fatalf("the master is reported %v, want %v", got, want)
	}
}

// Records are safe when another round has begun, or when the ranks have met without a round: then
// every rank has them.
func TestRecordsAreSafeLater(t *testing.T) {
	d := newDesk(t, 3)
	d.gets(0, 1, 0)
	d.ends(0, 1, [2]int64{1, 3})
	d.safe([2]int64{1, 0})
	d.ends(0, 2, [2]int64{1, 4})
	d.safe([2]int64{1, 3})
	d.gets(0, 2, 0)
	d.safe([2]int64{1, 3}, [2]int64{2, 0})
	d.ends(0, 3, [2]int64{1, 4}, [2]int64{2, 1})
	if d.safe([2]int64{2, 0}); !slices.Equal(d.reported, []int64{1}) {
		t.Errorf("reported %v, want 1, which is whole", d.reported)
	}
	d.gets(0, 3, 0)
	d.safe([2]int64{2, 0}, [2]int64{3, 0}) // a round came between the requests
	d.waits = time.Time{}
	// its data loader asks again while the others are in the round
	for range 3 {
		d.gets(0, -1, 0)
		d.waits = time.Time{}
	}
	d.safe([2]int64{2, 0}, [2]int64{3, 0})
	d.met(&d.scripts[0])
	d.safe([2]int64{2, 1}, [2]int64{3, 0})
	// at most the lease's records, and no other leases
	d.ends(0, 4, [2]int64{2, 99}, [2]int64{77, 1})
	d.ends(0, 5)
	if !slices.Equal(d.reported, []int64{1, 2}) {
		t.Errorf("reported %v, want 1 and 2", d.reported)
	}
	d.safe([2]int64{3, 0})
	if d.steps != 5 {
		t.Errorf("%d rounds, want 5", d.steps)
	}
}

// Steps rise with each round, once for all processes of the worker, also if a world begins with an
// older state: without progress the master would replace the worker as hung.
func TestStepsRiseWhenTheTrainingGoesBack(t *testing.T) {
	d := newDesk(t, 3)
	for i, c := range []struct {
		enters bool
		local  int
		round  int64
		steps  int64
	}{{false, 0, 1, 1}, {false, 1, 1, 1}, {false, 0, 2, 2}, {false, 1, 2, 2}, {true, 0, 1, 3},
		{false, 1, 1, 3}, {false, 1, 2, 4}, {true, 1, 10, 5}} {
		if c.enters {
			d.enter(0)
		}
		d.ends(c.local, c.round)
		var b wire.HeartbeatRequest
		if d.beat(&b); b.Steps != c.steps || b.Version != c.round {
			t.Errorf("after report %d: %d steps, version %d, want %d and %d", i, b.Steps, b.Version, c.steps, c.round)
		}
	}
}

// Another process of the worker continues the leases of one that has ended, from the records that
// are safe; the oldest lease first.
func TestRecordsOfOneThatIsGone(t *testing.T) {
	d := newDesk(t, 3)
	d.gets(0, 1, 0)
	d.gets(0, 2, 0)
	d.gets(1, 3, 0)
	d.ends(0, 1, [2]int64{1, 2}, [2]int64{2, 3})
	d.ends(1, 1, [2]int64{3, 3})
	d.ends(0, 2, [2]int64{1, 3})
	d.closed(&d.scripts[0])
	d.gets(1, 1, 2)
	d.gets(1, 2, 3)
	d.safe([2]int64{1, 2}, [2]int64{2, 3}, [2]int64{3, 0})
	d.ends(1, 2, [2]int64{1, 4})
	d.closed(&d.scripts[1])
	d.gets(2, 1, 2)
	if len(d.reported) > 0 {
		t.Errorf("reported %v, and none is safe to its end", d.reported)
	}
}

// When a world begins, the progress of its members is not safe yet: the process with the state may
// be lost before the others have received it. It is safe after a round. Leases below the floor are
// void.
func TestRecordsOfTheNextWorld(t *testing.T) {
	d := newDesk(t, 3)
	d.gets(0, 1, 0)
	d.gets(0, 2, 0)
	d.gets(1, 3, 0)
	d.ends(0, 1, [2]int64{1, 4}, [2]int64{2, 3})
	d.closed(&d.scripts[1])
	d.waits, d.over = time.Now().Add(time.Hour), true
	d.enter(2)
	d.safe([2]int64{2, 0}, [2]int64{3, 0})
	if len(d.reported) > 0 {
		t.Errorf("reported %v, which is void", d.reported)
	}
	d.gets(0, 3, 0)
	d.gets(1, -1, 0) // to wait, not the end
	d.round(&d.scripts[0], roundMessage{Round: 2})
	d.safe([2]int64{2, 3}, [2]int64{3, 0})
}

// Progress that only one process has in its state is not reported if that process is lost before a
// round of the next world.
func TestRecordsOfALostSource(t *testing.T) {
	d := newDesk(t, 2)
	d.gets(0, 1, 0)
	d.ends(0, 1, [2]int64{1, 4})
	d.enter(0)
	d.closed(&d.scripts[0])
	d.enter(0)
	d.gets(0, 1, 0)
	d.round(&d.scripts[0], roundMessage{Generation: 3, Round: 1})
	d.round(&d.scripts[0], roundMessage{Generation: 3, Round: 2})
	if len(d.reported) > 0 {
		t.Errorf("reported %v: its records are in no state", d.reported)
	}
}

// Several leases in one search for records make nothing safe: the ranks meet when there are no
// more.
func TestRecordsOfOneLook(t *testing.T) {
	d := newDesk(t, 3)
	d.gets(0, 1, 0)
	d.ends(0, 1, [2]int64{1, 3})
	d.gets(0, 2, 0)
	d.gets(0, 3, 0)
	d.safe([2]int64{1, 0}, [2]int64{2, 0}, [2]int64{3, 0})
}

// A lease is held until the master knows of its end: otherwise it would be granted again.
func TestReportedLate(t *testing.T) {
	d := newDesk(t, 3)
	d.gets(0, 1, 0)
	d.round(&d.scripts[0], roundMessage{Round: 1, Leases: [][2]int64{{1, 4}}})
	d.round(&d.scripts[0], roundMessage{Round: 2})
	if !slices.Equal(d.reported, []int64{1}) {
		t.Fatalf("reported %v", d.reported)
	}
	d.gets(0, 2, 0)
	if !slices.Equal(d.holds, []int64{1}) {
		t.Errorf("holds %v before the report is delivered, want [1]", d.holds)
	}
	d.records.reported(1)
	d.gets(0, 3, 0)
	if !slices.Equal(d.holds, []int64{2}) {
		t.Errorf("holds %v, want [2]", d.holds)
	}
}

// A process gets an answer within the limit, even if the master does not answer. The next request
// to the master is delayed.
func TestRecordsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1)
		d.gets(0, 1, 0)
		for _, err := range []error{nil, status.Error(codes.Unavailable, "away")} {
			d.err = err
			before := d.asked
			for range 5 {
				d.gets(1, -1, 0)
			}
			if time.Sleep(again); d.asked != before+1 {
				t.Errorf("asked %d times within %v", d.asked-before, again)
			}
		}
		d.err = status.Error(codes.FailedPrecondition, "another")
		if _, err := d.lease(&d.scripts[0]); err == nil || err.Error() != "another" {
			t.Errorf("%v, want the master's word", err)
		}
		d.err, d.end = nil, wire.TaskKind_END
		d.gets(0, -2, 0)
		d.closed(&d.scripts[0])
		// there are no more records, but this lease has no process
		d.gets(1, 1, 0)
		other := &script{owner: &scripts{records: newRecords(d, 3, nil)}}
		if _, err := (leaseRequest{}).answer(t.Context(), other, time.Now()); err == nil {
			t.Error("a lease of a data set that nobody has declared")
		}
	})
}

// Messages of processes count epochs and tasks from 0, and have only the number of a task's records
// that are done.
func TestRecordsLedger(t *testing.T) {
	d := newDesk(t, 0)
	d.enter(0)
	got, err := ledger.Parse(d.ledger([][3]int64{{0, 0, 4}, {1, 0, 4}, {1, 1, 9}, {1, 2, 1}, {2, 2, 2}, {2, 3, 1}}, 1))
	if err != nil {
		t.Fatal(err)
	}
	var want ledger.Ledger
	want.Settle(1)
	want.Add(ledger.Task{Epoch: 2, Number: 0}, 4, 4)
	want.Add(ledger.Task{Epoch: 2, Number: 1}, 4, 4)
	want.Add(ledger.Task{Epoch: 2, Number: 2}, 1, 2) // the last one is shorter
	want.Add(ledger.Task{Epoch: 3, Number: 2}, 2, 2)
	if !slices.Equal(got.Append(nil), want.Append(nil)) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The leases of a connection are given to other processes when the supervisor frees the connection:
// then its process has ended, and all its messages are handled.
func TestRecordsOfALateRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1)
		a := &agent{records: d.records, conns: map[int]*script{7: &d.scripts[0]}}
		d.gets(0, 1, 0)
		d.ends(0, 1, [2]int64{1, 2}) // its last message
		d.gets(1, -1, 0)
		a.tell(supervise.Free{Conn: 7})
		time.Sleep(again)
		d.gets(1, 1, 0)
	})
}

// All messages of a process that has ended are handled, also if a child of the process keeps the
// connection open.
func TestDrainsAConnection(t *testing.T) {
	const many = 1000
	heard := make(chan message, many+2)
	_, conn := dialScripts(t, func(m message) { heard <- m })
	fmt.Fprintln(conn, `{"op":"hello","local_rank":0}`)
	hello := <-heard
	for range many {
		fmt.Fprintln(conn, `{"op":"account","ledger":[[0,1,2],[0,2,2]]}`)
	}
	hello.from.conn.CloseRead()
	for range many {
		m := <-heard
		if _, ok := m.inbound.(accountMessage); !ok {
			t.Fatalf("heard %T", m.inbound)
		}
	}
	if m := <-heard; m.inbound != (closed{}) {
		t.Fatalf("heard %T, want the end of the connection", m.inbound)
	}
}

// dialScripts returns a connection of a process, and the scripts that serve it.
func dialScripts(t *testing.T, heard func(message)) (*scripts, net.Conn) {
	t.Helper()
	l := &local{dir: t.TempDir()}
	listener, err := net.Listen("unix", l.socket())
	if err != nil {
		t.Fatal(err)
	}
	s := newScripts(unixListener{listener}, nil, nil, nil, heard)
	t.Cleanup(s.close)
	conn, err := net.Dial("unix", l.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return s, conn
}

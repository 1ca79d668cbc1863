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
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/leases"
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
	// calls of pending
	pends []bool
}

// newDesk returns a desk whose data set is declared. The declaration gets the first lease.
func newDesk(t *testing.T, leases int) *desk {
	d := &desk{T: t, left: leases, end: wire.TaskKind_WAIT}
	for i := range d.scripts {
		d.scripts[i].number = i + 1
	}
	d.records = newRecords(d, 3, func(r *wire.ReportTaskRequest) { d.reported = append(d.reported, r.Lease) })
	d.pending = func(some bool) { d.pends = append(d.pends, some) }
	if err := d.declare(t.Context(), datasetRequest{Size: 10, Epochs: 2, RecordsPerTask: 4}); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) GetTask(_ context.Context, r *wire.GetTaskRequest, _ ...grpc.CallOption) (*wire.GetTaskReply, error) {
	d.asked++
	d.holds = slices.Sorted(slices.Values(r.Held))
	switch {
	case r.Worker != 3 || !r.Now || !proto.Equal(r.Dataset, &wire.Dataset{Size: 10, Epochs: 2, Task: 4}):
		d.Errorf("worker 3 asks for %v", r)
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
	got, err := d.asks(&d.scripts[local])
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

// asks asks for a lease on a connection.
func (d *desk) asks(by *script) (any, error) {
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

// A heartbeat has the progress of the rounds and of the leases.
func TestRecordsOfAHeartbeat(t *testing.T) {
	d := newDesk(t, 2)
	d.gets(0, 1, 0)
	d.gets(1, 2, 0)
	d.ends(0, 1, [2]int64{1, 3})
	d.safe([2]int64{1, 0}, [2]int64{2, 0})
	d.met(&d.scripts[0])
	d.receivedState(&d.scripts[1], [][2]int64{{2, 1}})
	d.ends(1, 1)
	loss := float32(0.5)
	d.round(&d.scripts[0], roundMessage{Generation: 1, Round: 2, Loss: &loss})
	var b wire.HeartbeatRequest
	d.beat(&b)
	want := &wire.HeartbeatRequest{Steps: 2, Version: 2, Rounds: 1, Loss: loss, Leases: []*wire.LeaseProgress{
		{Lease: 1, Done: 3, Epoch: 1, Effort: 2}, {Lease: 2, Done: 1, Epoch: 1, Number: 1, Effort: 2}}}
	if !proto.Equal(&b, want) {
		t.Errorf("%v, want %v", &b, want)
	}
	if !d.round(&d.scripts[0], roundMessage{Generation: 2, Round: 3}) ||
		d.round(&d.scripts[1], roundMessage{Generation: 2, Round: 3}) {
		t.Error("the first round of a world is not the only one reported as first")
	}
	d.enter(2)
	d.safe([2]int64{2, 1})
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
	if !slices.Equal(d.pends, []bool{true, false}) {
		t.Errorf("the supervisor hears of reports to come: %v", d.pends)
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
			if time.Sleep(leases.RetryAfter); d.asked != before+1 {
				t.Errorf("asked %d times within %v", d.asked-before, leases.RetryAfter)
			}
		}
		d.err = status.Error(codes.FailedPrecondition, "another")
		if _, err := d.asks(&d.scripts[0]); err == nil || err.Error() != "another" {
			t.Errorf("%v, want the master's word", err)
		}
		d.err, d.end = nil, wire.TaskKind_END
		d.gets(0, -2, 0)
		d.free(1)
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
	got, err := ledger.Parse(d.ledger(stateRecords{Settled: 1, Counted: 70,
		Ledger: [][3]int64{{0, 0, 4}, {1, 0, 4}, {1, 1, 9}, {1, 2, 1}, {2, 2, 2}, {2, 3, 1}}}))
	if err != nil {
		t.Fatal(err)
	}
	var want ledger.Ledger
	want.SettleCounted(1, 70)
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
		a := &agent{records: d.records, conns: map[int]*script{1: &d.scripts[0]}}
		d.gets(0, 1, 0)
		d.ends(0, 1, [2]int64{1, 2}) // its last message
		d.gets(1, -1, 0)
		a.tell(supervise.Free{Conn: 1})
		time.Sleep(leases.RetryAfter)
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

// streams is a master that grants a shard of unknown length.
type streams struct {
	wire.MasterClient
	asked []*wire.Dataset
}

func (s *streams) GetTask(_ context.Context, r *wire.GetTaskRequest, _ ...grpc.CallOption) (*wire.GetTaskReply, error) {
	s.asked = append(s.asked, r.Dataset)
	return &wire.GetTaskReply{Task: &wire.Task{Kind: wire.TaskKind_TRAINING, Lease: 1, Epoch: 1, Number: 2, Start: 2,
		End: 3, Stream: true}}, nil
}

// A shard of unknown length is done when its end is in the state of every rank. The report has the
// number of its records.
func TestShardOfUnknownLength(t *testing.T) {
	var reported []*wire.ReportTaskRequest
	master := new(streams)
	r := newRecords(master, 3, func(one *wire.ReportTaskRequest) { reported = append(reported, one) })
	by := &script{number: 1, owner: &scripts{records: r}}
	m, _, err := parse([]byte(`{"op":"dataset","q":1,"size":3,"epochs":1,"records_per_task":1,"stream":true,` +
		`"digest":7}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.(request).answer(t.Context(), by, time.Now())
	if err != nil || got != (datasetReply{true}) {
		t.Fatalf("answered %v, %v, want that streams are known", got, err)
	}
	want := &wire.Dataset{Size: 3, Epochs: 1, Task: 1, Stream: true, Digest: 7}
	if !proto.Equal(master.asked[0], want) {
		t.Errorf("declared %v, want %v", master.asked[0], want)
	}
	if a := r.ask(by, time.Now()); a.ID != 1 || a.Number != 2 {
		t.Fatalf("granted %+v, want the lease", a)
	}
	round := func(n, done int64) {
		r.round(by, roundMessage{Generation: 1, Round: n, Leases: [][2]int64{{1, done}}})
	}
	beat := func(done int64) {
		t.Helper()
		var b wire.HeartbeatRequest
		if r.beat(&b); len(b.Leases) != 1 || b.Leases[0].Done != done {
			t.Fatalf("the heartbeat has %v, want %d records", b.Leases, done)
		}
	}
	round(1, 40)
	beat(0)
	round(2, ledger.End+50)
	beat(40)
	if r.met(by); len(reported) != 1 || reported[0].Lease != 1 || reported[0].Done != ledger.End+50 {
		t.Errorf("reported %v, want the lease with 50 records and its end", reported)
	}
}

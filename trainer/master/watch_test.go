package master

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// watched returns a client of the listener for users who look at a job.
func watched(t *testing.T, lis *memnet.Listener) wire.JobClient {
	t.Helper()
	conn, err := lis.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := rpc.Through(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return wire.NewJobClient(client)
}

// The listener for users answers the calls that show the job, and no others: neither those that
// change it, nor those of its pods.
func TestViewersOnlyLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lis := memnet.Listen(1 << 16)
		w := start(t, func(c *Config) { c.Viewers = lis })
		w.join()
		m := watched(t, lis)
		for _, d := range wire.Job_ServiceDesc.Methods {
			want := codes.OK
			switch d.MethodName {
			case "Status", "Watch":
			case "Stacks": // of a job that has none
				want = codes.FailedPrecondition
			default:
				want = codes.Unimplemented
			}
			var err error
			switch d.MethodName {
			case "Status":
				_, err = m.Status(t.Context(), &wire.StatusRequest{})
			case "Watch":
				_, err = m.Watch(t.Context(), &wire.WatchRequest{})
			case "Stacks":
				_, err = m.Stacks(t.Context(), &wire.StacksRequest{})
			case "Scale":
				_, err = m.Scale(t.Context(), &wire.ScaleRequest{Workers: 3})
			case "Stop":
				_, err = m.Stop(t.Context(), &wire.StopRequest{Reason: "a stranger"})
			default:
				t.Errorf("%s: say here whether it changes the job", d.MethodName)
			}
			if status.Code(err) != want {
				t.Errorf("%s: %v, want %v", d.MethodName, err, want)
			}
		}
		conn, err := lis.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client, err := rpc.Through(conn)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_, err = wire.NewMasterClient(client).Join(t.Context(), &wire.JoinRequest{Role: wire.Role_WORKER})
		wantCode(t, err, codes.Unimplemented)
	})
}

// Watch returns the status and the entries of the journal above a number.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		time.Sleep(time.Second)
		entries := func(after int64) (all []journal.Entry) {
			t.Helper()
			reply, err := w.Watch(t.Context(), &wire.WatchRequest{After: after})
			if err != nil {
				t.Fatal(err)
			}
			var s journal.Snapshot
			if err := json.Unmarshal(reply.Journal, &s); err != nil || reply.Status.Name != "test" ||
				len(s.Conditions) == 0 {
				t.Errorf("%v, %+v: %v", reply.Status, s, err)
			}
			return s.Entries
		}
		all := entries(0)
		if len(all) < 2 || all[0].Kind != journal.JobStarted {
			t.Fatalf("%+v", all)
		}
		if rest := entries(all[0].N); len(rest) != len(all)-1 || rest[0].N != all[1].N {
			t.Errorf("above %d: %+v", all[0].N, rest)
		}
		if rest := entries(all[len(all)-1].N); len(rest) != 0 {
			t.Errorf("above the last: %+v", rest)
		}
	})
}

package master

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// A part of the model is lost with a server: the training starts over, whether or not the server
// had reported a version.
func TestServerLost(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("told=", told), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events []Event
				w := start(t, func(c *Config) {
					c.Job.NumPS = 2
					c.OnEvent = func(e Event) { events = append(events, e) }
				})
				w.join()
				first := w.task(0)
				if told {
					w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Version: 9})
				}
				w.done(0, first)
				held := w.task(0)
				w.pods.end(ps(0), pod.Exit{NodeLost: true})
				time.Sleep(2 * time.Second)
				// Reports and leases of the earlier generation do not count.
				old := identity.Header{Job: "uid", Role: pod.Worker, Incarnation: 1, ModelGeneration: 1}
				before := wire.NewMasterClient(w.speaker(func(context.Context, any) identity.Header { return old }))
				_, err := before.ReportTask(t.Context(), &wire.ReportTaskRequest{Lease: held.Lease})
				wantCode(t, err, codes.Aborted)
				_, err = before.GetTask(t.Context(), &wire.GetTaskRequest{})
				wantCode(t, err, codes.Aborted)
				if reply, err := before.Heartbeat(t.Context(),
					&wire.HeartbeatRequest{Role: wire.Role_WORKER,
						Leases: []*wire.LeaseProgress{{Lease: held.Lease, Done: 4}}}); err != nil ||
					reply.Unknown || reply.ModelGeneration != 2 {
					t.Error(reply, err)
				}
				s, err := w.Status(t.Context(), &wire.StatusRequest{})
				if err != nil || s.RecordsDone != 0 || s.ModelGeneration != 2 || s.Rollbacks != 1 ||
					!strings.Contains(s.RollbackReason, "ps-0 was lost with its part of the model") {
					t.Error(s, err)
				}
				anew := slices.DeleteFunc(events, func(e Event) bool { _, ok := e.(TrainingRestarted); return !ok })
				if want := (TrainingRestarted{ModelGeneration: 2, Reason: "ps-0 was lost with its part of the model: " +
					"node lost", Records: 4}); len(anew) != 1 || anew[0] != want {
					t.Errorf("reported %+v, want %+v", anew, want)
				}
				w.join()
				if o := w.servers[1].last(); o.ModelGeneration != 2 || o.Settled != 0 {
					t.Error("the other server is reported", o)
				}
				if again := w.task(1); again.Lease <= held.Lease || again.Start != first.Start || again.Done != 0 {
					t.Error("after", first, held, "there is", again)
				}
			})
		})
	}
}

// A cluster may restart a server in its pod, by --restart_policy: its incarnation is the same, and
// its values are lost. The training starts over once, however often the new process joins.
func TestServerStartedAgainInPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.NumPS = 2 })
		join := func(process uint64) *wire.JoinReply {
			reply, err := w.Join(t.Context(),
				&wire.JoinRequest{Role: wire.Role_PS, Address: w.servers[0].address, Process: process})
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		w.join()
		join(7)
		first := w.task(0)
		w.done(0, first)
		for range 2 {
			if reply := join(8); reply.ModelGeneration != 3 {
				t.Errorf("the new process is notified of generation %d", reply.ModelGeneration)
			}
		}
		s := w.look()
		if want := "the training started over: ps-0 was lost with its part of the model: it was " +
			"started again in its pod; 4 records were trained on till then"; s.RollbackReason != want ||
			s.RecordsDone != 0 {
			t.Errorf("%d records, %q, want %q", s.RecordsDone, s.RollbackReason, want)
		}
		for i := range 2 {
			if o := w.servers[i].last(); o.ModelGeneration != 3 {
				t.Errorf("server %d is reported %v", i, o)
			}
		}
		if again := w.task(0); again.Start != first.Start || again.Done != 0 {
			t.Errorf("%v, want the first again", again)
		}
	})
}

// A server that is restarted after the end of its job does not make the training start over.
func TestServerStartedAgainAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.pods.beStubborn()
		w.join()
		w.done(0, w.task(0))
		before := w.look()
		if _, err := w.Stop(t.Context(), &wire.StopRequest{}); err != nil {
			t.Fatal(err)
		}
		_, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_PS, Address: w.servers[0].address, Process: 8})
		if code := status.Code(err); code != codes.NotFound {
			t.Errorf("a server of a job that is over joins: %v", err)
		}
		if s := w.look(); s.RecordsDone != before.RecordsDone || s.RecordsDone == 0 ||
			s.ModelGeneration != 1 || s.RollbackReason != "" {
			t.Errorf("%d records in generation %d, there were %d; %q", s.RecordsDone, s.ModelGeneration,
				before.RecordsDone, s.RollbackReason)
		}
		<-w.ended
	})
}

// When a server is lost before anything was trained on, it is replaced, and no training is reported
// as lost.
func TestServerLostAtFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		w.pods.end(ps(0), pod.Exit{NodeLost: true})
		time.Sleep(2 * time.Second)
		w.join()
		s, err := w.Status(t.Context(), &wire.StatusRequest{})
		if err != nil || s.RollbackReason != "" || s.ModelGeneration != 2 {
			t.Error(s, err)
		}
	})
}

// When another server is lost before the training has started over, the reason that is reported is
// the newer loss.
func TestServerLostAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lives []TrainingRestarted
		w := start(t, func(c *Config) {
			c.Job.NumPS = 2
			c.OnEvent = func(e Event) {
				if e, ok := e.(TrainingRestarted); ok {
					lives = append(lives, e)
				}
			}
		})
		w.join()
		w.done(0, w.task(0))
		for i := range 2 {
			w.pods.end(ps(i), pod.Exit{NodeLost: true})
			time.Sleep(2 * time.Second)
		}
		s := w.look()
		if want := "the training started over: ps-1 was lost with its part of the model: node lost; " +
			"nothing was trained on since the time before"; s.ModelGeneration != 3 || s.Rollbacks != 2 ||
			s.RollbackReason != want {
			t.Errorf("generation %d, %q, want %q", s.ModelGeneration, s.RollbackReason, want)
		}
		if len(lives) != 2 || lives[0].ModelGeneration != 2 || lives[1].ModelGeneration != 3 ||
			!strings.Contains(lives[1].Reason, "ps-1") {
			t.Errorf("it was notified that the training starts over: %+v", lives)
		}
		w.join()
		w.train(0)
		w.leave()
		if w.err != nil || w.status.RecordsDone != 8 {
			t.Error(w.status, w.err)
		}
	})
}

// hanging is a connection to a server that hangs once hangs is closed: then writes block.
type hanging struct {
	net.Conn
	hangs  <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (c *hanging) Write(b []byte) (int, error) {
	select {
	case <-c.hangs:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Write(b)
	}
}

func (c *hanging) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Closing the connection to a server that hangs takes seconds. The mutex is not held meanwhile.
func TestHungServerHoldsNobody(t *testing.T) {
	for name, leave := range map[string]func(*servers) error{
		"it ends": func(s *servers) error {
			s.lost(ps(0), 1, "killed")
			return nil
		},
		"another has joined": func(s *servers) error {
			return s.join(0, 2, &wire.JoinRequest{Process: 2, Address: "elsewhere:1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				hangs := make(chan struct{})
				c := config(t)
				w := &world{T: t, self: c.Self, pods: newFakePods()}
				server := newFakeServer(w, 0)
				c.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
					conn, err := server.lis.DialContext(ctx)
					return &hanging{Conn: conn, hangs: hangs, closed: make(chan struct{})}, err
				}
				m, err := newMaster(c)
				if err != nil {
					t.Fatal(err)
				}
				m.mu.Lock()
				defer m.background.Wait()
				defer m.mu.Unlock()
				if err := m.servers.join(0, 1, &wire.JoinRequest{Process: 1, Address: server.address}); err != nil {
					t.Fatal(err)
				}
				conn := m.servers.lines[0].conn
				conn.Connect()
				synctest.Wait()
				if s := conn.GetState(); s != connectivity.Ready {
					t.Fatal(s)
				}
				close(hangs)
				began := time.Now()
				if err := leave(m.servers); err != nil {
					t.Error(err)
				}
				if took := elapsed(began); took > 0 {
					t.Errorf("the mutex was held for %v", took)
				}
				m.background.Wait()
				if took := elapsed(began); took < time.Second {
					t.Errorf("the connection was closed in %v: it does not hang", took)
				}
				m.servers.lines[0].close()
			})
		})
	}
}

// An older incarnation of a server is refused. It may still run, if its node has lost its
// connection to the cluster but not to the master.
func TestOldIncarnationIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		w.pods.end(ps(0), pod.Exit{NodeLost: true})
		time.Sleep(2 * time.Second)
		w.join()
		h := w.header(ps(0))
		h.Incarnation = 1
		first := wire.NewMasterClient(w.speaker(func(context.Context, any) identity.Header { return h }))
		if reply, err := first.Heartbeat(t.Context(), &wire.HeartbeatRequest{Role: wire.Role_PS,
			Version: 99}); err != nil || !reply.Unknown {
			t.Error(reply, err)
		}
		_, err := first.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_PS, Address: "elsewhere:1"})
		wantCode(t, err, codes.NotFound)
		reply, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_WORKER})
		if err != nil || !slices.Equal(addresses(reply), []string{"server-0:2222 2"}) {
			t.Error(addresses(reply), err)
		}
		if s, err := w.Status(t.Context(), &wire.StatusRequest{}); err != nil || s.Version != 0 {
			t.Error(s, err)
		}
	})
}

// A caller with the wrong job, incarnation, role or index cannot settle a lease, dismiss a pod,
// join or end the job.
func TestForgedCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		w.join()
		lease := w.task(0)
		as := func(change func(*identity.Header)) (wire.MasterClient, wire.JobClient) {
			truth, h := w.header(worker(0)), w.header(worker(0))
			change(&h)
			conn := w.speaker(func(context.Context, any) identity.Header { return h })
			// the certificate of the others matches their header
			if h.Role != identity.User && h.Index == 0 {
				conn.Proves = func(identity.Header) *credential.Credential { return prove.Of(truth) }
			}
			return wire.NewMasterClient(conn), wire.NewJobClient(conn)
		}
		for name, c := range map[string]struct {
			change func(*identity.Header)
			want   codes.Code
		}{
			"another job":         {func(h *identity.Header) { h.Job = "another" }, codes.Unauthenticated},
			"a later incarnation": {func(h *identity.Header) { h.Incarnation++ }, codes.Unauthenticated},
			"another role":        {func(h *identity.Header) { h.Role = identity.User }, codes.PermissionDenied},
			"another worker":      {func(h *identity.Header) { h.Index = 1 }, codes.PermissionDenied},
		} {
			m, j := as(c.change)
			for call, err := range map[string]error{
				"report": second(m.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 0, Lease: lease.Lease})),
				"task":   second(m.GetTask(t.Context(), &wire.GetTaskRequest{Worker: 0})),
				"leave": second(m.Heartbeat(t.Context(),
					&wire.HeartbeatRequest{Role: wire.Role_WORKER, Leave: wire.Leave_READY})),
				"as server": second(m.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_PS, Address: "elsewhere:1"})),
			} {
				if call == "as server" && c.want == codes.PermissionDenied && name != "another role" {
					wantCode(t, err, codes.PermissionDenied) // a worker must not join as a server
					continue
				}
				if got := status.Code(err); got != c.want {
					t.Errorf("%s with %s: %v", call, name, err)
				}
			}
			if name != "another role" {
				if _, err := j.Stop(t.Context(), &wire.StopRequest{}); err == nil {
					t.Errorf("stopped with %s", name)
				}
			}
		}
		// A pod must not stop or scale its job, or read its status.
		_, j := as(func(*identity.Header) {})
		for _, err := range []error{second(j.Stop(t.Context(), &wire.StopRequest{})),
			second(j.Scale(t.Context(), &wire.ScaleRequest{Workers: 1})),
			second(j.Status(t.Context(), &wire.StatusRequest{}))} {
			wantCode(t, err, codes.PermissionDenied)
		}
		if s, err := w.Status(t.Context(), &wire.StatusRequest{}); err != nil || s.RecordsDone != 0 ||
			s.State != "Running" {
			t.Error(s, err)
		}
	})
}

// Where users do not call the master, the calls to stop and scale a job do not exist.
func TestNoCallsOfUsers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Users = false })
		_, err := w.Stop(t.Context(), &wire.StopRequest{})
		wantCode(t, err, codes.Unimplemented)
		_, err = w.Scale(t.Context(), &wire.ScaleRequest{Workers: 1})
		wantCode(t, err, codes.Unimplemented)
	})
}

func second[T any](_ T, err error) error { return err }

// Workers that wait for a server that hangs or is being replaced are not stragglers. When it
// answers again, their time limit starts over.
func TestNobodyIsBlamedForAServer(t *testing.T) {
	for name, absent := range map[string]func(w *world, workersBeat func(time.Duration)){
		"hangs": func(w *world, workersBeat func(time.Duration)) {
			// shorter than the limit after which the server is lost
			workersBeat(4 * time.Second)
		},
		"is replaced late": func(w *world, workersBeat func(time.Duration)) {
			w.pods.end(ps(0), pod.Exit{NodeLost: true})
			workersBeat(20 * time.Second)
			w.join()
			w.task(0)
			w.task(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) { c.Job.TaskTimeout.Duration = 5 * time.Second })
				workersBeat := func(d time.Duration) {
					for range d / (500 * time.Millisecond) {
						for i := range 2 {
							w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: int32(i)})
						}
						time.Sleep(500 * time.Millisecond)
					}
				}
				beats := func(d time.Duration) {
					for range d / (500 * time.Millisecond) {
						w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS})
						workersBeat(500 * time.Millisecond)
					}
				}
				w.join()
				w.task(0)
				w.task(1)
				beats(2 * time.Second)
				absent(w, workersBeat)
				beats(3500 * time.Millisecond)
				for i := range 2 {
					if !w.pods.isRunning(worker(i)) {
						t.Fatalf("worker %d was replaced for want of a server", i)
					}
				}
				// now the servers answer, and the workers are stragglers
				beats(6 * time.Second)
				if w.pods.isRunning(worker(0)) {
					t.Error("a straggler is not replaced")
				}
			})
		})
	}
}

// When a server is lost, workers join again and wait for its successor. They send no heartbeats
// meanwhile, and are not replaced for that.
func TestWorkerThatJoinsAgainIsNotSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) { c.Job.TaskTimeout.Duration = 5 * time.Second })
		w.join()
		w.task(0)
		beat := &wire.HeartbeatRequest{Role: wire.Role_WORKER}
		w.beat(beat)
		w.pods.end(ps(0), pod.Exit{NodeLost: true})
		time.Sleep(500 * time.Millisecond)
		w.beat(beat) // the reply says that a server was lost
		for range 4 {
			if _, err := w.Join(w.Context(), &wire.JoinRequest{Role: wire.Role_WORKER}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		w.join()
		if r, err := w.Join(w.Context(), &wire.JoinRequest{Role: wire.Role_WORKER}); err != nil || len(r.Servers) == 0 {
			t.Fatal(r, err)
		}
		// the worker connects to the servers meanwhile
		time.Sleep(7 * time.Second)
		if !w.pods.isRunning(worker(0)) {
			t.Fatal("a worker that waited for a server was replaced")
		}
		w.beat(beat)
		time.Sleep(7 * time.Second)
		if w.pods.isRunning(worker(0)) {
			t.Error("a worker that was silent is not replaced")
		}
	})
}

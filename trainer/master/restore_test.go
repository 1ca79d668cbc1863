package master

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// memory keeps the last record that a master has written.
type memory struct {
	mu     sync.Mutex
	record []byte
	err    error // error of the next writes
	pods   *fakePods
	ahead  []int // number of running pods at each write
}

func (m *memory) Write(_ context.Context, record []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.record = record
	if m.pods != nil {
		m.ahead = append(m.ahead, len(m.pods.running()))
	}
	return nil
}

// read returns the last record.
func (m *memory) read() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// reigned is a job whose master is replaced.
type reigned struct {
	*world
	memory  *memory
	config  Config
	notices chan Notice
}

// reign starts the first master of a job with a server and two workers, unless change changes it.
func reign(t *testing.T, change func(*Config)) *reigned {
	t.Helper()
	r := &reigned{memory: new(memory), notices: make(chan Notice, 1)}
	r.world = start(t, func(c *Config) {
		c.Memory, c.Notices = r.memory, r.notices
		if change != nil {
			change(c)
		}
		r.config = *c
	})
	r.config.Dial = r.world.dialer()
	return r
}

// ends sends the master a notice, waits until the master has ended, and checks its error.
func (r *reigned) ends(n Notice, want error) {
	r.Helper()
	r.notices <- n
	<-r.ended
	if !errors.Is(r.err, want) {
		r.Fatalf("the master ends with %v, want %v", r.err, want)
	}
}

// follow starts the next master.
func (r *reigned) follow() {
	r.Helper()
	h := r.self.Header()
	c := r.config
	c.Former, c.Self = r.memory.record,
		speak.Self(identity.Header{Job: h.Job, Role: pod.Master, Incarnation: h.Incarnation + 1, ModelGeneration: 1})
	lis := memnet.Listen(1 << 16)
	c.Listener = lis
	r.self, r.ended = c.Self, make(chan struct{})
	ctx, cancel := context.WithCancel(r.Context())
	ended := r.ended
	go func() {
		defer close(ended)
		r.status, r.err = Run(ctx, c)
	}()
	conn := r.dial(lis)
	r.MasterClient, r.JobClient = wire.NewMasterClient(conn), wire.NewJobClient(conn)
	r.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
}

// rejoin makes all servers join again with the values of a generation, and checks that they were
// asked to.
func (r *reigned) rejoin(holds int64) {
	r.Helper()
	for i := range r.servers {
		r.rejoins(i, holds)
	}
}

// rejoins makes one server join again.
func (r *reigned) rejoins(i int, holds int64) {
	r.Helper()
	if reply := r.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: int32(i)}); !reply.Join {
		r.Errorf("server %d, which only the master before knew, is not asked to join again", i)
	}
	r.joins(i, holds)
}

// joins makes one server join with the values of a generation, 0: none.
func (r *reigned) joins(i int, holds int64) {
	r.Helper()
	if _, err := r.Join(r.Context(), &wire.JoinRequest{Role: wire.Role_PS, Index: int32(i),
		Address: r.servers[i].address, Holds: holds, Process: 1}); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

// A restarted master knows the pods, asks the servers which records are in the model, and leases
// the others. A worker keeps the leases that it reports.
func TestMasterComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		first, second := r.task(0), r.task(1)
		r.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0,
			Leases: []*wire.LeaseProgress{{Lease: first.Lease, Done: 1}}})
		r.ends(Leave, ErrLeft)
		created := len(r.pods.created)
		if n := len(r.pods.running()); n != 3 {
			t.Fatalf("%d pods run that the master has left, want 3", n)
		}

		r.servers[0].had.Add(ledger.Task{Epoch: 1, Number: int(first.Number)}, 3, 4)
		r.follow()
		_, err := r.ReportTask(t.Context(), &wire.ReportTaskRequest{Worker: 1, Lease: second.Lease})
		wantCode(t, err, codes.Unavailable)
		if task := r.task(1); task.Kind != wire.TaskKind_WAIT {
			t.Errorf("a worker is given %v before it is known what is in the model", task)
		}
		r.rejoin(1)
		if s := r.look(); s.RecordsDone != 3 || s.ModelGeneration != 1 || s.RollbackReason != "" {
			t.Errorf("the master has come back to %v", s)
		}
		beat := &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 1, Leases: []*wire.LeaseProgress{
			{Lease: second.Lease, Done: 2, Epoch: 1, Number: second.Number},
		}}
		r.beat(beat)
		if s := r.look(); s.RecordsDone != 5 {
			t.Errorf("%d records are done, want 3 of one task and 2 of the other", s.RecordsDone)
		}
		if task := r.task(1, second.Lease); task.Kind != wire.TaskKind_WAIT {
			t.Errorf("%v is given away, which worker 0 may be about to announce", task)
		}
		r.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER}) // without leases
		rest := r.task(0)
		if rest.Number != first.Number || rest.Done != 3 || rest.Lease <= second.Lease {
			t.Errorf("worker 0 is given %v, want what is left of %v under another number", rest, first)
		}
		r.done(1, second)
		r.done(0, rest)
		r.leave()
		if r.err != nil || r.status.RecordsDone != 8 || len(r.pods.created) != created {
			t.Errorf("the job ends with %v, %d records, %d pods created instead of %d", r.err,
				r.status.RecordsDone, len(r.pods.created), created)
		}
	})
}

// Records that some server does not have are trained on again.
func TestWhatAllServersHaveIsCredited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, func(c *Config) { c.Job.NumPS = 2 })
		r.join()
		r.task(0)
		r.ends(Leave, ErrLeft)
		r.servers[0].had.Add(ledger.Task{Epoch: 1}, 3, 4)
		r.servers[0].had.Add(ledger.Task{Epoch: 1, Number: 1}, 4, 4)
		r.servers[1].had.Add(ledger.Task{Epoch: 1}, 1, 4)
		r.follow()
		r.rejoin(1)
		if s := r.look(); s.RecordsDone != 1 || s.ModelGeneration != 1 {
			t.Errorf("%d records are done in generation %d, want the one that both servers have",
				s.RecordsDone, s.ModelGeneration)
		}
	})
}

// The servers are asked also if the record is older than the first lease.
func TestRecordOlderThanTheFirstLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		former := r.memory.record
		r.task(0)
		r.ends(Leave, ErrLeft)
		r.servers[0].had.Add(ledger.Task{Epoch: 1}, 3, 4)
		r.memory.record = former
		r.follow()
		r.rejoin(1)
		if s := r.look(); s.RecordsDone != 3 || s.ModelGeneration != 1 || s.RollbackReason != "" {
			t.Errorf("the servers have 3 records, and the job is at %v", s)
		}
		if rec, err := readRecord(r.memory.read()); err != nil || !rec.Begun {
			t.Errorf("the record says that nothing was trained on in this generation: %v", err)
		}
	})
}

// If one of several servers is lost while there is no master, and the record is older than the
// first lease, a new generation begins: the others may have records that the new server has not.
func TestServerLostAndRecordOlderThanTheFirstLease(t *testing.T) {
	for _, c := range []struct {
		name string
		// model generation whose values server 0 has, and its records of the first task
		holds, has int64
		anew       string
	}{
		{"the other has trained", 1, 3, "3 records were trained on"},
		{"the other is in a generation that could not be written", 2, 3, "3 records were trained on"},
		{"the other has not trained", 1, 0, ""},
		{"the other has no values either", 0, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, func(c *Config) { c.Job.NumPS = 2 })
				r.join()
				former := r.memory.record
				lease := r.task(0)
				r.ends(Leave, ErrLeft)
				r.memory.record = former
				if c.has > 0 {
					r.servers[0].had.Add(ledger.Task{Epoch: 1, Number: int(lease.Number)}, c.has, 4)
				}
				r.pods.end(ps(1), pod.Exit{Code: 137})
				r.follow()
				time.Sleep(2 * time.Second) // until there is another server 1
				r.joins(1, 0)
				if next := r.task(0); next.Kind != wire.TaskKind_WAIT {
					t.Errorf("%v is leased before it is known what is in the model", next)
				}
				r.rejoins(0, c.holds)
				s := r.look()
				if s.ModelGeneration <= 2 || s.RecordsDone != 0 || s.Rollbacks != int32(min(c.has, 1)) ||
					!strings.Contains(s.RollbackReason, c.anew) || c.anew == "" && s.RollbackReason != "" {
					t.Errorf("a server is lost, the other has %d records, and the job is at %v", c.has, s)
				}
				for i, server := range r.servers {
					if o := server.last(); o.ModelGeneration != s.ModelGeneration || o.Base != nil {
						t.Errorf("server %d is notified of %v", i, o)
					}
				}
				// the lease is of a lost model
				r.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 0, Leases: []*wire.LeaseProgress{
					{Lease: lease.Lease, Done: 2, Epoch: 1, Number: lease.Number}}})
				r.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: 1})
				if next := r.train(1); next.Kind != wire.TaskKind_DONE {
					t.Fatalf("worker 1 is given %v in the end", next)
				}
				r.leave()
				if r.err != nil || r.status.RecordsDone != 8 {
					t.Errorf("the job ends with %v, %d records", r.err, r.status.RecordsDone)
				}
			})
		})
	}
}

// A server that is lost or restarted while there is no master has lost its values: a new generation
// begins.
func TestServerLostWithoutMaster(t *testing.T) {
	for name, lose := range map[string]func(r *reigned){
		"gone": func(r *reigned) {
			r.pods.end(ps(0), pod.Exit{Code: 137})
			r.follow()
			time.Sleep(time.Minute)
			r.join()
		},
		"started again in its pod": func(r *reigned) {
			r.follow()
			r.rejoin(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, nil)
				r.join()
				r.done(0, r.task(0))
				r.ends(Leave, ErrLeft)
				r.servers[0].had.Add(ledger.Task{Epoch: 1}, 4, 4)
				lose(r)
				if s := r.look(); s.ModelGeneration != 2 || s.Rollbacks != 1 || s.RecordsDone != 0 ||
					!strings.Contains(s.RollbackReason, "lost") {
					t.Errorf("the values of a server are lost, and the job is at %v", s)
				}
				if o := r.servers[0].last(); o.ModelGeneration != 2 {
					t.Errorf("the server is notified of generation %d", o.ModelGeneration)
				}
				r.ends(Leave, ErrLeft)
				r.follow()
				if s := r.look(); s.Rollbacks != 1 || s.RollbackReason == "" {
					t.Errorf("the next master knows of %d rewinds: %q", s.Rollbacks, s.RollbackReason)
				}
			})
		})
	}
}

// Before anything was trained on, servers that have values and servers that have none begin
// together, in the same generation.
func TestNothingIsLostBeforeTheFirstLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		r.ends(Leave, ErrLeft)
		r.follow()
		r.rejoin(0)
		if s := r.look(); s.ModelGeneration != 1 || s.RollbackReason != "" || r.servers[0].last().ModelGeneration != 1 {
			t.Errorf("the job is at %v, the server is reported %v", s, r.servers[0].last())
		}
	})
}

// A pod is created only after its number is stored, however long that takes.
func TestPodsAreWrittenBeforeTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, func(c *Config) { c.Memory.(*memory).err = errors.New("no API server") })
		time.Sleep(10 * time.Minute)
		if n := len(r.pods.created); n > 0 {
			t.Errorf("%d pods were created, and the next master would not know of them", n)
		}
		r.memory.fail(nil)
		time.Sleep(time.Minute)
		if n := len(r.pods.running()); n == 0 {
			t.Error("no pod is created when the master can write again")
		}
	})
}

// A superseded master ends, and neither creates nor deletes pods.
func TestSupersededMasterEndsNothing(t *testing.T) {
	for name, act := range map[string]func(r *reigned){
		"on its own":     func(*reigned) {},
		"at a job's end": func(r *reigned) { r.JobClient.Stop(r.Context(), &wire.StopRequest{}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, nil)
				r.join()
				r.memory.fail(ErrSuperseded)
				act(r)
				<-r.ended
				if n := len(r.pods.running()); !errors.Is(r.err, ErrSuperseded) || n != 3 || len(r.pods.ended()) > 0 {
					t.Errorf("%v, and %d pods are left of 3", r.err, n)
				}
			})
		})
	}
}

// The master of a suspended job ends the pods. The next master creates others.
func TestSuspension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		r.done(0, r.task(0))
		r.ends(Suspend, ErrSuspended)
		if n := len(r.pods.running()); n != 0 || r.status.State != "Suspended" {
			t.Errorf("%d pods are left of a suspended job, which is %s", n, r.status.State)
		}
		r.follow()
		time.Sleep(time.Minute)
		if ids := r.pods.running(); !slices.Contains(ids, ps(0)) || slices.Contains(ids, worker(0)) ||
			slices.Contains(ids, worker(1)) {
			t.Errorf("the job has %v when it continues, want a server, and other workers", ids)
		}
		r.join()
		if s := r.look(); s.ModelGeneration != 2 {
			t.Errorf("the job is at %v: it has no checkpoint, and its model is lost", s)
		}
	})
}

// A worker that ended when its job was suspended did nothing wrong: its line may fail as
// often as before.
func TestSuspendedWorkersAreNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, func(c *Config) { c.Job.RelaunchOnWorkerFailure = 0 })
		r.join()
		before := len(r.pods.running())
		r.ends(Suspend, ErrSuspended)
		r.pods.kept = []pod.Event{{ID: worker(0), Incarnation: 1, Phase: pod.Succeeded}}
		r.follow()
		time.Sleep(time.Minute)
		if now := r.pods.running(); len(now) != before {
			t.Errorf("%v run, and %d pods did before the suspension", now, before)
		}
	})
}

// A job that an earlier master has ended stays ended.
func TestEndIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, nil)
		r.join()
		r.pods.beStubborn()
		r.JobClient.Stop(t.Context(), &wire.StopRequest{Reason: "enough"})
		synctest.Wait()
		former := slices.Clone(r.memory.record)
		r.memory.fail(ErrSuperseded)
		<-r.ended
		r.memory.fail(nil)
		r.memory.record = former
		r.pods.stubborn = false
		r.follow()
		<-r.ended
		if n := len(r.pods.running()); n > 0 || r.status.State != "Stopped" || r.err == nil ||
			!strings.Contains(r.err.Error(), "enough") {
			t.Errorf("%d pods are left; %v, %v", n, r.status.State, r.err)
		}
	})
}

// FuzzRecord checks that a master with any record either begins, or returns an error that says what
// is wrong with the record.
func FuzzRecord(f *testing.F) {
	f.Add(
		[]byte(
			`{"format":2,"life":3,"base":{"Dir":"d","Number":4},"pods":{"next":2,"workers":2},"spec":2,"begun":true,"tasks":{},"measures":{}}`))
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":2,"life":1,"ring":{"meeting":{"id":1,"formation":1,"members":[{"w":0,"s":1}]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := readRecord(text)
		if err != nil || r == nil {
			return
		}
		c := Config{Job: config(t).Job, Log: config(t).Log,
			Self: rpc.NewSelf(identity.Header{Incarnation: 2, ModelGeneration: 1}, nil)}
		c.Job.EvaluationSteps = 0
		stage, err := newStage(c, r, time.Unix(1e9, 0))
		if err != nil {
			return
		}
		m := newShell(c, stage, r)
		if m.checkpoints, err = newCheckpoints(m); err != nil {
			t.Fatal(err)
		}
		m.servers = newServers(m)
		m.follow(m.servers)
		if r.Ring != nil {
			m.ring = newRing(m)
			m.follow(m.ring)
		}
		if err := m.plan(config(t).Training, nil); err != nil {
			t.Fatal(err)
		}
		m.restore(loaded{}, nil, time.Unix(1e9, 0))
	})
}

// A record of an older format is refused by a text that says why.
func TestRecordOfAnotherFormat(t *testing.T) {
	if _, err := readRecord([]byte(`{"format":1,"life":1}`)); err == nil || !strings.Contains(err.Error(),
		"format 1, expected 2: all masters of a job must be of one version of elasticdl") {
		t.Error(err)
	}
}

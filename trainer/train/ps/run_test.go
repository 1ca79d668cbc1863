package ps

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// fakeMaster sends its job to servers that join, and keeps the heartbeats.
type fakeMaster struct {
	wire.UnimplementedMasterServer
	job  *job.Job
	fail error

	mu      sync.Mutex
	joined  []*wire.JoinRequest
	beats   []*wire.HeartbeatRequest
	at      []time.Time
	unknown bool
}

func (m *fakeMaster) Join(_ context.Context, req *wire.JoinRequest) (*wire.JoinReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined = append(m.joined, req)
	text, err := json.Marshal(m.job)
	if err != nil {
		return nil, err
	}
	return &wire.JoinReply{Job: text, ModelGeneration: 1}, m.fail
}

func (m *fakeMaster) Heartbeat(_ context.Context, req *wire.HeartbeatRequest) (*wire.HeartbeatReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beats, m.at = append(m.beats, req), append(m.at, time.Now())
	return &wire.HeartbeatReply{Unknown: m.unknown}, nil
}

func (m *fakeMaster) last() (*wire.HeartbeatRequest, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.beats) == 0 {
		return nil, time.Time{}
	}
	return m.beats[len(m.beats)-1], m.at[len(m.at)-1]
}

// serve answers on lis until the returned function is called.
func (m *fakeMaster) serve(lis net.Listener) (stop func()) {
	s := rpc.NewServer(speak.Self(identity.Header{Job: uid, Role: pod.Master, Incarnation: 1,
		ModelGeneration: 1}), false)
	wire.RegisterMasterServer(s, m)
	go s.Serve(lis)
	return s.Stop
}

func ps0() *rpc.Self {
	return speak.Self(identity.Header{Job: uid, Role: pod.PS, Incarnation: 1})
}

// twenty is a model of ones.
func twenty(int, int) (param.Layout, []float32, error) { return dense(20, 0), filled(20, 1), nil }

func mnistJob() *job.Job {
	j := job.Default()
	j.ModelDef = "mnist.mnist_functional_api.custom_model"
	j.NumPS = 1
	j.ValidationData = "test"
	j.EvaluationSteps = 2
	return j
}

// running is a server under a fake master.
type running struct {
	// of one address, ps-0, where the server listens
	*fleet
	master *fakeMaster
	ended  chan error
	cancel context.CancelFunc
	leave  chan struct{}
	stop   func()
}

func run(t *testing.T, m *fakeMaster, away time.Duration) *running {
	r := &running{master: m, ended: make(chan error, 1), leave: make(chan struct{})}
	lis := memnet.Listen(1 << 10)
	r.fleet = &fleet{t: t, modelGeneration: 1, layout: dense(20, 0), servers: make([]*Server, 1),
		listeners: []*memnet.Listener{lis}}
	masterAt := memnet.Listen(1 << 10)
	up := time.Now().Add(away)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		r.ended <- Run(ctx, Config{Master: "master", Self: ps0(), Initial: twenty, Listener: lis,
			Advertise: "ps-0", Leave: r.leave, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				if addr != "master" || time.Now().Before(up) {
					return nil, errors.New("connection refused")
				}
				return masterAt.DialContext(ctx)
			}})
	}()
	stop := m.serve(masterAt)
	r.stop = stop
	t.Cleanup(func() {
		cancel()
		stop()
	})
	return r
}

func TestRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := &fakeMaster{job: mnistJob()}
		r := run(t, m, 3*time.Second) // the master is away at first
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if len(m.joined) != 1 || m.joined[0].Address != "ps-0" || m.joined[0].Role != wire.Role_PS {
			t.Fatal(m.joined)
		}
		beat0, at0 := m.last()
		if beat0 == nil || time.Since(at0) > timing.Beat {
			t.Fatal(beat0, at0)
		}
		c := r.client(0, dense(20, 0))
		time.Sleep(10 * time.Millisecond)
		for i := range int64(2) {
			r.push(c, filled(20, 1), Gradient{Versions: Versions{i}})
		}
		synctest.Wait()
		if b, at := m.last(); b.Snapshot != 2 || b.Version != 2 || time.Since(at) != 0 {
			t.Fatal("the snapshot was reported", b, time.Since(at))
		}
		m.mu.Lock()
		m.unknown = true
		m.mu.Unlock()
		if err := <-r.ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestRunEndsWithContext(t *testing.T) {
	for _, away := range []time.Duration{0, time.Hour} {
		bubble(t, func(t *testing.T) {
			r := run(t, &fakeMaster{job: mnistJob()}, away)
			time.Sleep(time.Minute)
			r.cancel()
			if err := <-r.ended; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// One that is asked to leave reports it, and serves until the master does not need it, or is away;
// before it has joined it leaves at once.
func TestRunLeaves(t *testing.T) {
	for name, away := range map[string]time.Duration{"not needed": 0, "the master goes": 0,
		"the master was never there": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := &fakeMaster{job: mnistJob()}
				r := run(t, m, away)
				time.Sleep(time.Minute)
				if beat, _ := m.last(); beat.GetLeave() != wire.Leave_STAYS {
					t.Error("it leaves, and nobody has asked it to")
				}
				close(r.leave)
				if away == 0 {
					time.Sleep(timing.Beat)
					if beat, _ := m.last(); beat.Leave != wire.Leave_ASKED {
						t.Fatalf("it does not say that it leaves: %v", beat)
					}
					got, _ := r.pull(r.client(0, dense(20, 0)), PullOptions{})
					want(t, got, filled(20, 1))
				}
				asked := time.Now()
				if name == "not needed" {
					m.mu.Lock()
					m.unknown = true
					m.mu.Unlock()
				} else {
					r.stop()
				}
				if err := <-r.ended; err != nil || time.Since(asked) > timing.BeatLimit {
					t.Errorf("%v after %v", err, time.Since(asked))
				}
			})
		})
	}
}

// The server continues without its master.
func TestRunWithoutMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, &fakeMaster{job: mnistJob()}, 0)
		time.Sleep(time.Second)
		r.stop()
		time.Sleep(time.Minute)
		c := r.client(0, dense(20, 0))
		got, _ := r.pull(c, PullOptions{})
		want(t, got, filled(20, 1))
	})
}

// A master that never comes back is given up, one that does is not.
func TestRunIsAbandoned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lis, m := memnet.Listen(1<<10), &fakeMaster{job: mnistJob()}
		masterAt := memnet.Listen(1 << 10)
		defer m.serve(masterAt)()
		// away for a minute at times
		up := func(minutes int) bool { return minutes < 30 && minutes%10 != 9 }
		began := time.Now()
		err := Run(t.Context(), Config{Master: "master", Self: ps0(), Initial: twenty, Listener: lis,
			Advertise: "ps-0", Abandoned: 10 * time.Minute,
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				if !up(int(time.Since(began).Minutes())) {
					return nil, errors.New("connection refused")
				}
				c, err := masterAt.DialContext(ctx)
				if err == nil {
					time.AfterFunc(9*time.Minute-time.Since(began)%(10*time.Minute), func() { c.Close() })
				}
				return c, err
			}})
		if !errors.Is(err, ErrAbandoned) || !strings.Contains(err.Error(), "could not be reached for 10m") {
			t.Error(err)
		}
		if took := time.Since(began).Round(10 * time.Second); took != 39*time.Minute {
			t.Errorf("it ended after %v", took)
		}
	})
	bubble(t, func(t *testing.T) {
		err := Run(t.Context(), Config{Master: "master", Self: ps0(), Initial: twenty,
			Listener: memnet.Listen(1 << 10), Advertise: "ps-0", Abandoned: 10 * time.Minute,
			Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("connection refused") }})
		if !errors.Is(err, ErrAbandoned) {
			t.Errorf("a server that never joined: %v", err)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	for name, m := range map[string]*fakeMaster{
		"no such model": {job: &job.Job{ModelSettings: job.ModelSettings{ModelDef: "nothing.like_that"},
			TrainingSettings: job.TrainingSettings{NumPS: 1}}},
		"no such index": {job: func() *job.Job { j := mnistJob(); j.NumPS = -1; return j }()},
		"the master knows no ps-0": {job: mnistJob(),
			fail: grpcstatus.Error(codes.NotFound, "the master knows no ps-0")},
		"asynchronous, and asked to": {job: func() *job.Job {
			j := mnistJob()
			j.UseAsync, j.GradsToWait = true, 2
			return j
		}()},
	} {
		bubble(t, func(t *testing.T) {
			r := run(t, m, 0)
			want := name
			if strings.HasPrefix(want, "no such model") {
				want = "nothing.like_that"
			}
			if err := <-r.ended; err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%s: %v", name, err)
			}
		})
	}
}

// A server that did not hear the answer asks again as the same process; one that was started again
// is another.
func TestRunSaysWhichProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		said := make(map[uint64]int)
		for range 2 {
			m := &fakeMaster{job: mnistJob(), fail: grpcstatus.Error(codes.Unavailable, "the answer was lost")}
			r := run(t, m, 0)
			time.Sleep(5 * time.Second)
			r.cancel()
			<-r.ended
			for _, j := range m.joined {
				said[j.Process]++
			}
		}
		if said[0] > 0 || len(said) != 2 {
			t.Errorf("two processes said that they are %v", said)
		}
		for process, times := range said {
			if times < 2 {
				t.Errorf("process %d asked %d times", process, times)
			}
		}
	})
}

package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// farewell is a master that forgets a worker that has nothing in flight, and asks the worker to
// leave. It has tasks without end.
type farewell struct {
	script
	granted int64
}

func (f *farewell) GetTask(context.Context, *wire.GetTaskRequest, ...grpc.CallOption) (*wire.GetTaskReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.granted++
	return &wire.GetTaskReply{Task: training(f.granted, 12*(f.granted-1), 12*f.granted, 0)}, nil
}

func (f *farewell) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest,
	o ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	f.script.Heartbeat(ctx, r, o...)
	return &wire.HeartbeatReply{Unknown: r.Leave == wire.Leave_READY, ModelGeneration: 1}, nil
}

// leaver asks its worker to leave in the middle of a step.
type leaver struct {
	*counter
	at    int // which step
	leave chan struct{}
	takes time.Duration
}

func (l *leaver) Step(b *zoo.Batch) (float32, error) {
	loss, err := l.counter.Step(b)
	if len(l.steps) == l.at {
		close(l.leave)
		time.Sleep(l.takes)
	}
	return loss, err
}

func newLeaver(t *testing.T, takes time.Duration) (*bench, *farewell) {
	b := newBench(t, ps.ServerConfig{Async: true})
	master, leave := new(farewell), make(chan struct{})
	b.Master, b.Leave = master, leave
	b.Config.Engine = &leaver{b.engine, 5, leave, takes}
	return b, master
}

// When a worker is asked to leave, its current minibatch gets into the model, and the master learns
// which records of the leases are not done.
func TestWorkerIsAskedToLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, master := newLeaver(t, time.Second)
		began := time.Now()
		if err := work(t.Context(), b.Config); !errors.Is(err, membership.ErrLeft) {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("left after %v", took)
		}
		if n := b.pull(t); n != -5 || len(b.engine.steps) != 5 {
			t.Errorf("%v steps are in the model, of %d", -n, len(b.engine.steps))
		}
		var how []wire.Leave
		for _, beat := range master.beats {
			how = append(how, beat.Leave)
		}
		if !slices.Equal(how, []wire.Leave{wire.Leave_ASKED, wire.Leave_ASKED, wire.Leave_READY}) &&
			!slices.Equal(how, []wire.Leave{wire.Leave_ASKED, wire.Leave_ASKED, wire.Leave_ASKED, wire.Leave_READY}) {
			t.Errorf("heartbeats said %v", how)
		}
		last := master.beats[len(master.beats)-1]
		if len(master.reports) != 1 || master.reports[0].Lease != 1 || master.reports[0].Error != "" {
			t.Errorf("reports %v", master.reports)
		}
		if len(last.Leases) == 0 || last.Leases[0].Lease != 2 || last.Leases[0].Done != 8 {
			t.Errorf("it hands back %v", last.Leases)
		}
	})
}

// A minibatch that takes too long is dropped, and the worker does not report that nothing is in
// flight.
func TestWorkerThatCannotEndItsMinibatchLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, master := newLeaver(t, 2*drainLimit)
		if err := work(t.Context(), b.Config); !errors.Is(err, membership.ErrLeft) {
			t.Fatal(err)
		}
		if n := b.pull(t); n != -4 {
			t.Errorf("%v steps are in the model", -n)
		}
		for _, beat := range master.beats {
			if beat.Leave == wire.Leave_READY {
				t.Errorf("it reported it: %v", beat)
			}
		}
	})
}

// slow is a master whose heartbeats take long, whether or not the worker waits for the answer.
type slow struct {
	farewell
	asked bool
}

func (s *slow) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest,
	o ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	reply, err := s.farewell.Heartbeat(ctx, r, o...)
	if r.Leave == wire.Leave_ASKED && !s.asked {
		s.asked = true
		time.Sleep(3 * drainLimit)
	}
	return reply, err
}

// A heartbeat in flight when the worker is cut short does not report that nothing is in flight
// either.
func TestWorkerThatIsCutShortHandsNothingBack(t *testing.T) {
	// the next heartbeat and the end come in either order
	for range 10 {
		bubble(t, func(t *testing.T) {
			b, _ := newLeaver(t, 2*drainLimit)
			master := new(slow)
			b.Master = master
			if err := work(t.Context(), b.Config); !errors.Is(err, membership.ErrLeft) {
				t.Fatal(err)
			}
			for _, beat := range master.beats {
				if beat.Leave == wire.Leave_READY {
					t.Errorf("it reported it: %v", beat)
				}
			}
		})
	}
}

// vanishing is a master that answers only for a while.
type vanishing struct {
	farewell
	until time.Time
	hangs bool // calls do not even fail
}

var errGone = status.Error(codes.Unavailable, "connection refused")

func (g *vanishing) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest,
	o ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	if time.Now().After(g.until) {
		if g.hangs {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return nil, errGone
	}
	return g.farewell.Heartbeat(ctx, r, o...)
}

func (g *vanishing) GetTask(ctx context.Context, r *wire.GetTaskRequest,
	o ...grpc.CallOption) (*wire.GetTaskReply, error) {
	if g.granted == 3 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return g.farewell.GetTask(ctx, r, o...)
}

func TestWorkerGivesItsMasterUp(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			b := newBench(t, ps.ServerConfig{Async: true})
			began := time.Now()
			b.Master, b.Abandoned = &vanishing{until: began.Add(time.Hour), hangs: hangs}, 10*time.Minute
			err := work(t.Context(), b.Config)
			if !errors.Is(err, membership.ErrAbandoned) ||
				!strings.Contains(err.Error(), "the master could not be reached for 10m") {
				t.Error(err)
			}
			if took := time.Since(began).Round(10 * time.Second); took != 70*time.Minute {
				t.Errorf("it ended after %v", took)
			}
		})
	}
}

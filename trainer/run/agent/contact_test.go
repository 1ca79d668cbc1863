package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// absent is a fake master that does not answer heartbeats between two times.
type absent struct {
	wire.MasterClient
	from, until time.Time
	// its node is lost: calls get no answer instead of being refused
	vanished bool
}

func (m *absent) Heartbeat(ctx context.Context, _ *wire.HeartbeatRequest,
	_ ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	if now := time.Now(); now.Before(m.from) || !now.Before(m.until) {
		return new(wire.HeartbeatReply), nil
	}
	if m.vanished {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return nil, status.Error(codes.Unavailable, "connection refused")
}

// A process whose collective has failed gives up its state when the master would have reported a
// lost member by now, and has not. The time in which the master is unreachable does not count, nor
// does the time in which a restored master counts no worker as lost.
func TestUnexplained(t *testing.T) {
	const timeout = 5 * time.Second
	limit := timing.Explain(timeout)
	for _, c := range []struct {
		name        string
		from, until time.Duration // after the failure
		vanished    bool
		least       time.Duration
	}{
		{"there", time.Hour, time.Hour, false, limit},
		{"lost before", -time.Second, time.Minute, false, time.Minute + timing.Return + limit},
		{"lost with a node", 0, time.Minute, true, time.Minute + timing.Return + limit},
		{"lost afterwards", limit / 2, time.Minute, true, time.Minute + timing.Return + limit},
		{"another at once", limit / 2, limit/2 + time.Second, false, limit/2 + time.Second + timing.Return + limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				failed := time.Now().Add(time.Minute + timing.Beat/2)
				j := job.DefaultOf(job.Run)
				j.HeartbeatTimeout.Duration = timeout
				a := &agent{contact: newContact(0), records: newRecords(nil, 0, nil), mail: newMailbox(),
					beats: beats{urgent: make(chan struct{}, 1)}, Config: Config{
						Job: j, Self: rpc.NewSelf(identity.Header{Role: pod.Worker}, nil),
						Master: &absent{from: failed.Add(c.from), until: failed.Add(c.until), vanished: c.vanished},
					}}
				go a.heartbeats(ctx, cancel)
				time.Sleep(time.Until(failed))
				if err := a.unexplained(ctx, time.Now()); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(failed); waited < c.least || waited > c.least+timing.BeatLimit+2*timing.Beat {
					t.Errorf("it is given up after %v, want %v and little more", waited, c.least)
				}
			})
		})
	}
}

// The wait of unexplained ends with the world.
func TestUnexplainedUntilRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{contact: newContact(0), Config: Config{Job: job.DefaultOf(job.Run)}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := a.unexplained(ctx, time.Now()); err != context.DeadlineExceeded {
			t.Errorf("it ends with %v", err)
		}
	})
}

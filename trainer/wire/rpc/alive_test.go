package rpc

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// cable is a connection to a node that can vanish: once the cable is pulled, nothing arrives and
// nothing is reset.
type cable struct {
	net.Conn
	pulled func() bool
	closed chan struct{}
	once   sync.Once
}

func (c *cable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.pulled() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *cable) Write(b []byte) (int, error) {
	if c.pulled() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// mute is a master that answers nothing.
type mute struct{ wire.UnimplementedMasterServer }

func (mute) Join(ctx context.Context, _ *wire.JoinRequest) (*wire.JoinReply, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (mute) Rendezvous(s grpc.BidiStreamingServer[wire.Arrival, wire.Assembly]) error {
	<-s.Context().Done()
	return status.FromContextError(s.Context().Err()).Err()
}

// towards returns a client of a mute master, and a function that pulls the cable to it.
func towards(t *testing.T) (master wire.MasterClient, pull func()) {
	lis := memnet.Listen(8 << 10)
	srv := NewServer(self(identity.Header{Job: "uid", Role: pod.Master, Incarnation: 1}), false)
	wire.RegisterMasterServer(srv, mute{})
	var mu sync.Mutex
	pulled := false
	conn, err := Connect("master:1", func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := lis.DialContext(ctx)
		return &cable{Conn: c, closed: make(chan struct{}), pulled: func() bool {
			mu.Lock()
			defer mu.Unlock()
			return pulled
		}}, err
	}, self(identity.Header{Job: "uid", Role: pod.Worker, Incarnation: 1}),
		Callee{ID: pod.ID{Role: pod.Master}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(lis)
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
	})
	return wire.NewMasterClient(conn), func() {
		mu.Lock()
		defer mu.Unlock()
		pulled = true
	}
}

// A node that vanishes sends neither FIN nor RST. A stream to it ends within timing.Vanish all the
// same.
func TestNodeVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		master, pull := towards(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		stream, err := master.Rendezvous(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(timing.Alive / 2)
		pull()
		began := time.Now()
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ends with %v", err)
		}
		if took := time.Since(began); took > timing.Vanish {
			t.Errorf("noticed after %v", took)
		}
	})
}

// A stream to a live peer that sends nothing does not end.
func TestQuietStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		master, _ := towards(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		stream, err := master.Rendezvous(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the stream ends with %v", err)
		}
	})
}

// A call without a deadline gets one of timing.Call.
func TestCallHasADeadline(t *testing.T) {
	for _, own := range []time.Duration{0, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			master, _ := towards(t)
			want, call := timing.Call, context.Background()
			if own > 0 {
				var end context.CancelFunc
				want = own
				call, end = context.WithTimeout(call, own)
				defer end()
			}
			began := time.Now()
			if _, err := master.Join(call, &wire.JoinRequest{Role: wire.Role_WORKER}); status.Code(
				err) != codes.DeadlineExceeded {
				t.Errorf("the call ends with %v", err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("the call ends after %v, want %v", took, want)
			}
		})
	}
}

package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// alive makes idle connections be tested, even without calls, so that a broken one is found before
// the next call has to wait.
var alive = keepalive.ClientParameters{Time: timing.Alive, Timeout: timing.AliveAnswer, PermitWithoutStream: true}

// limited gives a deadline to a call without one. The returned function ends it, and returns the
// call's error. The deadline is not sent to the server, which would otherwise keep a timer, too: it
// learns when the call is cancelled.
func limited(ctx context.Context) (context.Context, func(error) error) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func(err error) error { return err }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(timing.Call, func() { cancel(context.DeadlineExceeded) })
	return ctx, func(err error) error {
		timer.Stop()
		if err != nil && context.Cause(ctx) == context.DeadlineExceeded {
			err = status.Errorf(codes.DeadlineExceeded, "no answer within %v", timing.Call)
		}
		cancel(nil)
		return err
	}
}

// most bounds what one connection may ask of a server at a time. A pod has a handful of calls under
// way.
const most = 64

// window is the number of bytes that may be under way in a call, and on a connection. Messages here
// are small; and where the window is given, gRPC does not measure the connection for it, which
// takes a frame and its answer with nearly every message.
const window = 1 << 20

// workers is the number of goroutines that are kept for calls: a new one for each call has to make
// its stack larger each time. Calls beyond them get their own.
const workers = 16

// serving returns what every gRPC server of a job is made with: it lets clients test connections at
// rest, and bounds what they may hold. Of those that vanish it closes the connections late, since
// their silence is judged by heartbeats.
func serving() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(timing.Greeting),
		grpc.MaxConcurrentStreams(most),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.NumStreamWorkers(workers),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
	}
}

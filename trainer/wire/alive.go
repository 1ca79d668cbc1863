package wire

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/elasticdl/elasticdl/trainer/timing"
)

// alive tests a connection that is at rest, also one without calls: the next call shall not be the one that waits.
var alive = keepalive.ClientParameters{Time: timing.Alive, Timeout: timing.AliveAnswer, PermitWithoutStream: true}

// limit gives a call a deadline that has none.
func limit(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timing.Call)
		defer cancel()
	}
	return invoke(ctx, method, request, reply, conn, options...)
}

// most bounds what one connection may ask of a server at a time. A pod has a handful of calls under way.
const most = 64

// serving returns what every gRPC server of a job is made with: it lets clients test connections at rest, and bounds what
// they may hold. Of those that vanish it closes the connections late, since their silence is judged by heartbeats.
func serving() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(timing.Greeting),
		grpc.MaxConcurrentStreams(most),
		grpc.MaxHeaderListSize(16 << 10),
	}
}

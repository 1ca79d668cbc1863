package wire

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/elasticdl/elasticdl/trainer/timing"
)

// Dialer opens a connection.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// TCP is the [Dialer] of jobs outside tests.
func TCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: timing.Connect, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: timing.KernelIdle, Interval: timing.KernelInterval, Count: timing.KernelTests,
	}}
	return d.DialContext(ctx, "tcp", address)
}

// Connect makes a connection of self to the pod that listens at address, which need not be there yet, by dial ([TCP] if
// that is nil), whatever proxies the environment names. An answer of anybody else is an error. Calls and streams on it do
// not outlast a node that vanishes for longer than timing.Vanish, and a call without a deadline has one of timing.Call.
func Connect(address string, dial Dialer, self *Self, callee Callee) (*grpc.ClientConn, error) {
	if dial == nil {
		dial = TCP
	}
	return grpc.NewClient("passthrough:///"+address, append(calls(self, callee),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: timing.Reconnect},
			MinConnectTimeout: timing.Connect,
		}),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(alive),
		grpc.WithIdleTimeout(0))...) // it is kept, and tested, also while nobody calls
}

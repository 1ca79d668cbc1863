package wire

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// connectLimit is how long a connection may take to be made before another attempt: a first packet that is lost while
// a cluster's node learns of a service's new endpoint may take a minute to be answered, and the next attempt's is at once.
const connectLimit = 3 * time.Second

// Dialer opens a connection.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// TCP is the [Dialer] of jobs outside tests.
func TCP(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: connectLimit}).DialContext(ctx, "tcp", address)
}

// Connect makes a connection to the role that listens at address, which need not be there yet, by dial ([TCP] if that
// is nil), whatever proxies the environment names.
func Connect(address string, dial Dialer) (*grpc.ClientConn, error) {
	if dial == nil {
		dial = TCP
	}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: time.Second},
			MinConnectTimeout: connectLimit,
		}))
}

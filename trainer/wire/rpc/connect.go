package rpc

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
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

// Connect makes a connection of self to the pod that listens at address, which need not be there
// yet, by dial ([TCP] if that is nil), whatever proxies the environment names. An answer of anybody
// else is an error. Calls and streams on it do not outlast a node that vanishes for longer than
// timing.Vanish, and a call without a deadline has one of timing.Call.
func Connect(address string, dial Dialer, self *Self, callee Callee) (*grpc.ClientConn, error) {
	return connection(address, dial, &caller{self.credential, callee.ID}, calls(self, callee)...)
}

// Through makes a client of a server of [NewOpenServer] at the other end of a connection, which the
// client closes. It has no other connection: when this one breaks, calls fail.
func Through(conn net.Conn) (*grpc.ClientConn, error) {
	once := make(chan net.Conn, 1)
	once <- conn
	dial := func(context.Context, string) (net.Conn, error) {
		select {
		case conn := <-once:
			return conn, nil
		default:
			return nil, net.ErrClosed
		}
	}
	return connection("master", dial, insecure.NewCredentials())
}

func connection(address string, dial Dialer, c credentials.TransportCredentials,
	options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if dial == nil {
		dial = TCP
	}
	return grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(c),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2,
				Jitter: 0.5, MaxDelay: timing.Reconnect},
			MinConnectTimeout: timing.Connect,
		}),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(alive),
		// it is kept, and tested, also while nobody calls
		grpc.WithIdleTimeout(0))...)
}

// caller is the client's side of the handshake: it proves this process's identity, and verifies
// that the called pod answers.
type caller struct {
	credential *credential.Credential
	callee     pod.ID
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *caller) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	made, err := c.credential.Client(ctx, conn, credential.GRPC, identity.Is(c.callee))
	if err != nil {
		return nil, nil, err
	}
	return made, proof(made.Peer), nil
}

// ServerHandshake, Info, Clone and OverrideServerName implement credentials.TransportCredentials.
func (c *caller) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a client is not called")
}
func (c *caller) Info() credentials.ProtocolInfo          { return secured }
func (c *caller) Clone() credentials.TransportCredentials { return c }
func (c *caller) OverrideServerName(string) error         { return nil }

// Certify asks the master at address, which its certificate proves, for a certificate of the
// credential's key, and takes it. The token is of the pod's ServiceAccount. UNAUTHENTICATED: it is
// not good; other errors pass.
func Certify(ctx context.Context, address string, dial Dialer, c *credential.Credential, token string) error {
	request, err := c.Request()
	if err != nil {
		return err
	}
	conn, err := connection(address, dial, &caller{c, pod.ID{Role: pod.Master}})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, end := limited(ctx)
	reply, err := wire.NewCertificationClient(conn).Certify(ctx, &wire.CertifyRequest{Token: token, Request: request})
	if err = end(err); err != nil {
		return err
	}
	return c.Take(reply.Certificate)
}

// proof is the identity that the other end of a connection has proved.
type proof identity.Name

// AuthType implements credentials.AuthInfo.
func (proof) AuthType() string { return "certificate of the job" }

// proved returns the identity that the answering end has proved.
func proved(by *peer.Peer) identity.Name {
	if by == nil {
		return identity.Name{}
	}
	name, _ := by.AuthInfo.(proof)
	return identity.Name(name)
}

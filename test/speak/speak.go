// Package speak lets a test make and answer calls as any pod of a job, chosen for each call.
package speak

import (
	"cmp"
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Header returns the identity under which a request is made. For a stream, request is nil.
type Header func(ctx context.Context, request any) identity.Header

type asKey struct{}

// As returns a context whose calls are made as a pod, whatever pod their requests name.
func As(ctx context.Context, id pod.ID) context.Context { return context.WithValue(ctx, asKey{}, id) }

// ID returns the pod of the context or, without one, the pod that a request names, or the user.
func ID(ctx context.Context, request any) pod.ID {
	if id, ok := ctx.Value(asKey{}).(pod.ID); ok {
		return id
	}
	switch r := request.(type) {
	case interface {
		GetRole() wire.Role
		GetIndex() int32
	}:
		return pod.ID{Role: pod.Role(r.GetRole()), Index: int(r.GetIndex())}
	case interface{ GetWorker() int32 }:
		return pod.ID{Role: pod.Worker, Index: int(r.GetWorker())}
	}
	return pod.ID{Role: identity.User}
}

// Self returns the identity and credential of a process of a job. A job without a name is "uid".
func Self(h identity.Header) *rpc.Self {
	h.Job = cmp.Or(h.Job, "uid")
	return rpc.NewSelf(h, prove.Of(h))
}

// Conn has the connections to one server, one for each pod as which calls were made. It is a
// [grpc.ClientConnInterface].
type Conn struct {
	// Proves returns the credential for a header; nil: the right one.
	Proves func(identity.Header) *credential.Credential

	dial   func(ctx context.Context) (net.Conn, error)
	header Header

	mu   sync.Mutex
	open map[identity.Name]*grpc.ClientConn
}

// Connect returns connections whose calls are made under the identity that header returns. They do
// not check who answers.
func Connect(dial func(ctx context.Context) (net.Conn, error), header Header) *Conn {
	return &Conn{dial: dial, header: header, open: make(map[identity.Name]*grpc.ClientConn)}
}

// Close ends all of them.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		conn.Close()
	}
	clear(c.open)
	return nil
}

// of returns the connection of the pod that makes a call, and the call's context.
func (c *Conn) of(ctx context.Context, request any) (context.Context, *grpc.ClientConn, error) {
	h := c.header(ctx, request)
	ctx = metadata.AppendToOutgoingContext(ctx, rpc.HeaderKey, rpc.Text(h))
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[h.Name()]; conn != nil {
		return ctx, conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithTransportCredentials(proof{func() *credential.Credential {
			return c.proves(h)
		}}), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx) }))
	if err == nil {
		c.open[h.Name()] = conn
	}
	return ctx, conn, err
}

func (c *Conn) proves(h identity.Header) *credential.Credential {
	if c.Proves != nil {
		return c.Proves(h)
	}
	return prove.Of(h)
}

// Invoke implements [grpc.ClientConnInterface].
func (c *Conn) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	ctx, conn, err := c.of(ctx, request)
	if err != nil {
		return err
	}
	return conn.Invoke(ctx, method, request, reply, options...)
}

// NewStream implements [grpc.ClientConnInterface].
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string,
	options ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, conn, err := c.of(ctx, nil)
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, desc, method, options...)
}

// Server returns a gRPC server that answers any caller under the identity that header returns.
func Server(header func() identity.Header) *grpc.Server {
	return grpc.NewServer(grpc.Creds(proof{func() *credential.Credential {
		return prove.Of(header())
	}}), grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		grpc.SetHeader(ctx, metadata.Pairs(rpc.HeaderKey, rpc.Text(header())))
		return handle(ctx, request)
	}))
}

// proof authenticates this end, and accepts any process of the job at the other end.
type proof struct{ by func() *credential.Credential }

func anybody(identity.Name) error { return nil }

func (p proof) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	made, err := p.by().Client(ctx, conn, credential.GRPC, anybody)
	return made, p, err
}

func (p proof) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	made, err := p.by().Server(context.Background(), conn, false, credential.GRPC)
	return made, p, err
}

func (proof) AuthType() string { return "test" }
func (proof) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}
func (p proof) Clone() credentials.TransportCredentials { return p }
func (proof) OverrideServerName(string) error           { return nil }

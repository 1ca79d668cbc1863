// Package speak lets a test speak for any pod of a job, and answer for it: as whom is decided call by call.
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
	"github.com/elasticdl/elasticdl/trainer/credential"
	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Header says as whom a request is made. Of a stream there is no request yet.
type Header func(ctx context.Context, request any) identity.Header

type asKey struct{}

// As makes calls with the context those of a pod, whatever their requests say.
func As(ctx context.Context, id pod.ID) context.Context { return context.WithValue(ctx, asKey{}, id) }

// ID returns the pod that a request names, or that the context was given; where there is none, a user.
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

// Self returns who a process of a job is, and what proves it. A job without a name is "uid".
func Self(h identity.Header) *rpc.Self {
	h.Job = cmp.Or(h.Job, "uid")
	return rpc.NewSelf(h, prove.Of(h))
}

// Conn is connections to one server: one of each pod that was spoken for. It is a [grpc.ClientConnInterface].
type Conn struct {
	// Proves returns what proves whoever a header names; nil: what is true.
	Proves func(identity.Header) *credential.Credential

	dial   func(ctx context.Context) (net.Conn, error)
	header Header

	mu   sync.Mutex
	open map[identity.Name]*grpc.ClientConn
}

// Connect makes connections whose calls are made as header says. Nobody checks who answers.
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

// of returns the connection of who makes a call, and its context.
func (c *Conn) of(ctx context.Context, request any) (context.Context, *grpc.ClientConn, error) {
	h := c.header(ctx, request)
	ctx = metadata.AppendToOutgoingContext(ctx, rpc.HeaderKey, rpc.Text(h))
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[h.Name()]; conn != nil {
		return ctx, conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(proof{func() *credential.Credential { return c.proves(h) }}), grpc.WithNoProxy(),
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
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, conn, err := c.of(ctx, nil)
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, desc, method, options...)
}

// Server makes a gRPC server that answers as header says, whoever calls.
func Server(header func() identity.Header) *grpc.Server {
	return grpc.NewServer(grpc.Creds(proof{func() *credential.Credential { return prove.Of(header()) }}), grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		grpc.SetHeader(ctx, metadata.Pairs(rpc.HeaderKey, rpc.Text(header())))
		return handle(ctx, request)
	}))
}

// proof proves who speaks, and lets anybody be at the other end who is of the job.
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

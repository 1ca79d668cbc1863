package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

const (
	// maxStrangers limits a server's connections whose peer has not proved yet that it is of the
	// job. One more ends the oldest: who belongs to the job reports it at once.
	maxStrangers = 512
	// maxRefusals limits the calls of strangers that are answered on one connection, until it is
	// ended.
	maxRefusals = 16
)

// door admits only pods of its job to a server. A connection proves its identity before anything
// else; a call is refused by its header alone, before its message is read. The number of
// connections that strangers hold is bounded.
type door struct {
	self *Self
	open bool // for strangers, too

	strangers credential.Strangers
}

// guest is a connection to a server.
type guest struct {
	// as it was accepted
	net.Conn
	// is called when the guest has proved who it is, or has ended
	known func()

	// Of the one goroutine that reads the connection:
	listener
	// whom it has proved to be
	peer identity.Name
	// calls of strangers
	refused int
}

func newDoor(self *Self, open bool) *door { return &door{self: self, open: open} }

// ServerHandshake implements credentials.TransportCredentials: it authenticates the dialling end.
func (d *door) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if conn, ok := conn.(*credential.Conn); ok {
		return conn, &guest{Conn: conn, known: func() {}, peer: conn.Peer}, nil
	}
	g := &guest{Conn: conn}
	g.known = d.strangers.Admit(conn, maxStrangers)
	ctx, cancel := context.WithTimeout(context.Background(), timing.Greeting)
	defer cancel()
	secured, err := d.self.credential.Server(ctx, g, d.open, credential.GRPC)
	if err != nil {
		return nil, nil, err
	}
	if g.peer = secured.Peer; g.peer != (identity.Name{}) {
		g.known()
	}
	return secured, g, nil
}

// ClientHandshake, Info, Clone and OverrideServerName implement credentials.TransportCredentials.
func (d *door) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a server does not call")
}
func (d *door) Info() credentials.ProtocolInfo          { return secured }
func (d *door) Clone() credentials.TransportCredentials { return d }
func (d *door) OverrideServerName(string) error         { return nil }

// secured is the type of gRPC's connections.
var secured = credentials.ProtocolInfo{SecurityProtocol: "tls"}

// AuthType implements credentials.AuthInfo.
func (g *guest) AuthType() string { return "certificate of the job" }

// Close implements net.Conn.
func (g *guest) Close() error {
	g.known()
	return g.Conn.Close()
}

// tap puts the caller into the context of its call, if it may make it. gRPC asks for the headers of
// a call, before it reads more.
func (d *door) tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	if identity.Open[call.FullMethodName] {
		return ctx, nil
	}
	p, _ := peer.FromContext(ctx)
	g := p.AuthInfo.(*guest)
	caller, err := g.admit(d.self.Header(), call)
	if errors.Is(err, identity.ErrForeign) {
		if g.refused++; g.refused == maxRefusals {
			g.Conn.Close()
		}
	}
	if err != nil {
		return ctx, Refusal(err)
	}
	if caller.Role == pod.Master {
		d.self.hear(caller.Incarnation)
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

// errNoCall is returned to a pod of the job for a call that does not exist.
var errNoCall = errors.New("no such call")

// admit returns who makes a call, and an error if it may not.
func (g *guest) admit(self identity.Header, call *tap.Info) (identity.Header, error) {
	listed, exists := identity.Calls[call.FullMethodName]
	caller, err := g.header(call.Header[HeaderKey])
	if err == nil {
		err = identity.Admit(self, caller, g.peer, listed.Roles...)
	}
	switch {
	case errors.Is(err, identity.ErrForeign):
	case !exists:
		err = fmt.Errorf("%w: %s", errNoCall, call.FullMethodName)
	case err == nil && listed.ModelGeneration:
		err = identity.SameModelGeneration(self, caller)
	}
	return caller, err
}

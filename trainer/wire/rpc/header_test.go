package rpc

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// busy is a master that answers heartbeats.
type busy struct{ wire.UnimplementedMasterServer }

func (busy) Heartbeat(context.Context, *wire.HeartbeatRequest) (*wire.HeartbeatReply, error) {
	return new(wire.HeartbeatReply), nil
}

func (busy) Rendezvous(s grpc.BidiStreamingServer[wire.Arrival, wire.Assembly]) error {
	_, err := s.Recv()
	return err
}

// self returns an identity with the certificate that proves it.
func self(h identity.Header) *Self { return NewSelf(h, prove.Of(h)) }

// certifying is a server that refuses every request for a certificate.
type certifying struct {
	wire.UnimplementedCertificationServer
}

func (certifying) Certify(context.Context, *wire.CertifyRequest) (*wire.CertifyReply, error) {
	return nil, status.Error(codes.Unauthenticated, "a token of nobody")
}

var (
	theMaster = identity.Header{Job: "uid", Role: pod.Master, Incarnation: 1, ModelGeneration: 1}
	aWorker   = identity.Header{Job: "uid", Role: pod.Worker, Incarnation: 1, ModelGeneration: 1}
)

// guarded serves a master until the test ends. With strangers it accepts callers without a
// certificate, which may ask for one.
func guarded(t *testing.T, strangers bool) *memnet.Listener {
	lis := memnet.Listen(64 << 10)
	srv := NewServer(self(theMaster), strangers)
	wire.RegisterMasterServer(srv, busy{})
	wire.RegisterCertificationServer(srv, certifying{})
	go srv.Serve(lis)
	t.Cleanup(srv.Stop)
	return lis
}

// dialer returns a dialer that connects to a listener and counts the connections.
func dialer(lis *memnet.Listener, dials *int) Dialer {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		*dials++
		return lis.DialContext(ctx)
	}
}

// foreign connects to a server with the credential of a caller, without the header that this
// package adds to each call.
func foreign(t *testing.T, lis *memnet.Listener, c *credential.Credential, dials *int) *grpc.ClientConn {
	conn, err := connection("test", dialer(lis, dials), &caller{c, theMaster.ID()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// nobody returns a credential without a certificate.
func nobody(t *testing.T) *credential.Credential {
	c, err := credential.New(prove.Authority("uid").Root())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// strange are headers that do not match the certificate of their caller.
var strange = map[string]metadata.MD{
	"no header": nil,
	"another's": metadata.Pairs(HeaderKey,
		Text(identity.Header{Job: "uid", Role: pod.Worker, Index: 1, Incarnation: 1, ModelGeneration: 1})),
	"two headers": metadata.Pairs(HeaderKey, "a", HeaderKey, "b"),
	"no base64":   metadata.Pairs(HeaderKey, "{}"),
}

// A caller whose header does not match its certificate is refused with the reason, and learns
// nothing of the job. A caller without a certificate may only ask for one, and cannot connect if
// the server accepts no strangers.
func TestStrangersHearNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		certify := wire.Certification_Certify_FullMethodName
		for name, c := range map[string]struct {
			conn *grpc.ClientConn
			want map[string]codes.Code
		}{
			"a worker": {foreign(t, guarded(t, true), prove.Of(aWorker), &dials), map[string]codes.Code{
				wire.Master_Heartbeat_FullMethodName: codes.Unauthenticated,
				certify:                              codes.Unauthenticated,
				"/elasticdl.Master/Nothing":          codes.Unauthenticated,
				"/grpc.health.v1.Health/Check":       codes.Unauthenticated,
			}},
			"nobody": {foreign(t, guarded(t, true), nobody(t), &dials), map[string]codes.Code{
				wire.Master_Heartbeat_FullMethodName: codes.Unauthenticated, certify: codes.Unauthenticated,
			}},
			"nobody, where none may come": {foreign(t, guarded(t, false), nobody(t), &dials), map[string]codes.Code{
				wire.Master_Heartbeat_FullMethodName: codes.Unavailable, certify: codes.Unavailable,
			}},
		} {
			for says, md := range strange {
				for method, want := range c.want {
					ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), md), time.Second)
					defer cancel()
					var header, trailer metadata.MD
					err := c.conn.Invoke(ctx, method, new(wire.CertifyRequest), new(wire.CertifyReply),
						grpc.Header(&header), grpc.Trailer(&trailer))
					if status.Code(err) != want {
						t.Errorf("%s with %s calls %s: %v", name, says, method, err)
					}
					if heard := fmt.Sprint(header, trailer, err); len(header.Get(HeaderKey)) > 0 {
						t.Errorf("%s with %s calls %s, and hears %q", name, says, method, heard)
					}
				}
			}
		}
	})
}

// A call is refused by its header, before its message arrives, so that no memory is used for the
// message.
func TestStrangersAreRefusedBeforeTheirMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		conn := foreign(t, guarded(t, true), nobody(t), &dials)
		for name, md := range strange {
			ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), md), time.Second)
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{}, wire.Master_Heartbeat_FullMethodName)
			if err == nil {
				err = stream.RecvMsg(new(wire.HeartbeatReply))
			}
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A client refuses the answers of a server that has the certificate, the header or the job of
// another.
func TestWhoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := theMaster
		server.Role = pod.PS
		for name, it := range map[string]*Self{
			"another pod's certificate": NewSelf(theMaster, prove.Of(server)),
			"another pod's header":      NewSelf(server, prove.Of(theMaster)),
			"another job": self(identity.Header{Job: "other", Role: pod.Master,
				Incarnation: 1, ModelGeneration: 1}),
		} {
			lis := memnet.Listen(64 << 10)
			srv := NewServer(it, false)
			wire.RegisterMasterServer(srv, busy{})
			go srv.Serve(lis)
			dials := 0
			conn, err := Connect("master:1", dialer(lis, &dials), self(aWorker), Callee{ID: theMaster.ID()})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := wire.NewMasterClient(conn).Heartbeat(ctx,
				&wire.HeartbeatRequest{Role: wire.Role_WORKER}); err == nil {
				t.Errorf("%s is believed", name)
			}
			cancel()
			conn.Close()
			srv.Stop()
		}
	})
}

// The number of connections without an identity is bounded. They do not displace connections of
// known callers.
func TestStrangersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis, dials := guarded(t, true), 0
		conn, err := Connect("master:1", dialer(lis, &dials), self(aWorker), Callee{ID: pod.ID{Role: pod.Master}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		known, err := wire.NewMasterClient(conn).Rendezvous(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		const more = 3
		var ended [maxStrangers + more]bool
		for i := range ended {
			c, err := lis.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() {
				io.Copy(io.Discard, c)
				ended[i] = true
			}()
			synctest.Wait()
		}
		for i := range ended {
			if want := i < more; ended[i] != want {
				t.Errorf("connection %d of %d is ended: %t", i+1, len(ended), ended[i])
			}
		}
		if err := known.Send(new(wire.Arrival)); err != nil {
			t.Error(err)
		}
		if _, err := known.Recv(); err != io.EOF {
			t.Errorf("one that was known before: %v", err)
		}
	})
}

// A stranger's calls are refused with the reason a few times; then its connection is closed.
func TestStrangersAreNotHeardForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		conn := foreign(t, guarded(t, true), nobody(t), &dials)
		const calls = 3 * maxRefusals
		for range calls {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			conn.Invoke(ctx, wire.Master_Heartbeat_FullMethodName, new(wire.HeartbeatRequest), new(wire.HeartbeatReply))
			cancel()
		}
		if dials < 2 || dials > calls/2 {
			t.Errorf("%d calls over %d connections", calls, dials)
		}
	})
}

// scribe is a parameter server that notes the senders of its orders.
type scribe struct {
	wire.UnimplementedParameterServerServer
	heard []identity.Header
}

func (s *scribe) Control(ctx context.Context, _ *wire.ControlRequest) (*wire.ControlReply, error) {
	s.heard = append(s.heard, Caller(ctx))
	return new(wire.ControlReply), nil
}

// A call may name an earlier generation than that of its caller. A master is refused once a later
// one was heard.
func TestWhoSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := identity.Header{Job: "uid", ModelGeneration: 5}
		its, s := job, new(scribe)
		its.Role = pod.PS
		server := self(its)
		srv := NewServer(server, false)
		wire.RegisterParameterServerServer(srv, s)
		lis := memnet.Listen(64 << 10)
		go srv.Serve(lis)
		defer srv.Stop()
		order := func(ctx context.Context, incarnation int) error {
			master := job
			master.Role, master.Incarnation = pod.Master, incarnation
			conn, err := Connect("ps:1", func(ctx context.Context, _ string) (net.Conn, error) {
				return lis.DialContext(ctx)
			},
				self(master), Callee{ID: pod.ID{Role: pod.PS}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = wire.NewParameterServerClient(conn).Control(ctx, new(wire.ControlRequest))
			return err
		}
		if err := order(t.Context(), 2); err != nil {
			t.Error(err)
		}
		if err := order(InModelGeneration(t.Context(), 3), 2); err != nil {
			t.Error(err)
		}
		if err := order(t.Context(), 1); status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "replaced") {
			t.Errorf("an old master: %v", err)
		}
		if err := order(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if len(s.heard) != 3 || s.heard[0].ModelGeneration != 5 || s.heard[1].ModelGeneration != 3 ||
			server.Header().Master != 3 {
			t.Errorf("heard %v, at last master %d", s.heard, server.Header().Master)
		}
	})
}

// The tables identity.Calls and identity.Open have all calls of all services, each in one of them,
// and no others.
func TestEveryCallIsListed(t *testing.T) {
	var all []string
	for _, service := range []grpc.ServiceDesc{wire.Master_ServiceDesc, wire.Job_ServiceDesc,
		wire.ParameterServer_ServiceDesc, wire.Certification_ServiceDesc} {
		for _, m := range service.Methods {
			all = append(all, "/"+service.ServiceName+"/"+m.MethodName)
		}
		for _, s := range service.Streams {
			all = append(all, "/"+service.ServiceName+"/"+s.StreamName)
		}
	}
	for _, name := range all {
		if _, ok := identity.Calls[name]; ok == identity.Open[name] {
			t.Errorf("%s is not listed, or twice", name)
		}
	}
	for name := range identity.Calls {
		if !slices.Contains(all, name) {
			t.Errorf("%s does not exist", name)
		}
	}
}

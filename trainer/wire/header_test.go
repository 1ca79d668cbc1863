package wire

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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

const secret = "only the job knows"

// busy is a master that has an answer to a heartbeat.
type busy struct{ UnimplementedMasterServer }

func (busy) Heartbeat(context.Context, *HeartbeatRequest) (*HeartbeatReply, error) {
	return new(HeartbeatReply), nil
}

func (busy) Rendezvous(s grpc.BidiStreamingServer[Arrival, Assembly]) error {
	_, err := s.Recv()
	return err
}

// secured serves a master with the secret, until the test ends.
func secured(t *testing.T) *memnet.Listener {
	lis := memnet.Listen(64 << 10)
	srv := NewServer(NewSelf(identity.Header{Job: "uid", Secret: secret, Role: pod.Master, Incarnation: 1, Life: 1}))
	RegisterMasterServer(srv, busy{})
	healthpb.RegisterHealthServer(srv, health.NewServer())
	go srv.Serve(lis)
	t.Cleanup(srv.Stop)
	return lis
}

// foreign connects to a server with nothing of this package.
func foreign(t *testing.T, lis *memnet.Listener, dials *int) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			*dials++
			return lis.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// strange are the headers of callers that do not know the secret.
var strange = map[string]metadata.MD{
	"no header":      nil,
	"a wrong secret": metadata.Pairs(HeaderKey, Text(identity.Header{Job: "uid", Secret: "guessed", Role: pod.Worker, Incarnation: 1, Life: 1})),
	"two headers":    metadata.Pairs(HeaderKey, "a", HeaderKey, "b"),
	"no base64":      metadata.Pairs(HeaderKey, "{}"),
}

// Whoever does not know the secret hears why it is refused, and nothing of the job; not with what needs no secret either.
func TestStrangersHearNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		conn := foreign(t, secured(t), &dials)
		for name, md := range strange {
			for method, want := range map[string]codes.Code{
				Master_Heartbeat_FullMethodName:      codes.Unauthenticated,
				healthpb.Health_Check_FullMethodName: codes.OK,
				healthpb.Health_Watch_FullMethodName: codes.Unauthenticated, // kubelets do not watch
				"/elasticdl.Master/Nothing":          codes.Unauthenticated,
			} {
				ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), md), time.Second)
				defer cancel()
				var header, trailer metadata.MD
				err := conn.Invoke(ctx, method, new(healthpb.HealthCheckRequest), new(healthpb.HealthCheckResponse), grpc.Header(&header), grpc.Trailer(&trailer))
				if status.Code(err) != want {
					t.Errorf("%s calls %s: %v", name, method, err)
				}
				if heard := fmt.Sprint(header, trailer, err); strings.Contains(heard, secret) || len(header.Get(HeaderKey)) > 0 {
					t.Errorf("%s calls %s, and hears %q", name, method, heard)
				}
			}
		}
	})
}

// A call is refused by its header, whether or not its message comes: no memory is taken for that.
func TestStrangersAreRefusedBeforeTheirMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		conn := foreign(t, secured(t), &dials)
		for name, md := range strange {
			ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), md), time.Second)
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{}, Master_Heartbeat_FullMethodName)
			if err == nil {
				err = stream.RecvMsg(new(HeartbeatReply))
			}
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// preface is how a connection of HTTP/2 begins: with the words of its protocol, and settings that set nothing.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// Connections that call nothing, or what needs no secret, are few, and take nobody's place who is known.
func TestStrangersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := secured(t)
		conn, err := Connect("master:1", func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
			NewSelf(identity.Header{Job: "uid", Secret: secret, Role: pod.Worker, Incarnation: 1, Life: 1}), Callee{ID: pod.ID{Role: pod.Master}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		known, err := NewMasterClient(conn).Rendezvous(t.Context())
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
			io.WriteString(c, preface)
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
		if err := known.Send(new(Arrival)); err != nil {
			t.Error(err)
		}
		if _, err := known.Recv(); err != io.EOF {
			t.Errorf("one that was known before: %v", err)
		}
	})
}

// A stranger is heard a few times, so that it learns what is wrong, and then its connection ends.
func TestStrangersAreNotHeardForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		conn := foreign(t, secured(t), &dials)
		const calls = 3 * maxRefusals
		for range calls {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			conn.Invoke(ctx, Master_Heartbeat_FullMethodName, new(HeartbeatRequest), new(HeartbeatReply))
			cancel()
		}
		if dials < 2 || dials > calls/2 {
			t.Errorf("%d calls over %d connections", calls, dials)
		}
	})
}

// scribe is a server that notes who gives it orders.
type scribe struct {
	UnimplementedParameterServerServer
	heard []identity.Header
}

func (s *scribe) Control(ctx context.Context, _ *ControlRequest) (*ControlReply, error) {
	s.heard = append(s.heard, Caller(ctx))
	return new(ControlReply), nil
}

// A call may tell of a life that its caller has left meanwhile. A master is not heard any more when a later one was.
func TestWhoSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := identity.Header{Job: "uid", Secret: secret, Life: 5}
		self, s := job, new(scribe)
		self.Role = pod.PS
		server := NewSelf(self)
		srv := NewServer(server)
		RegisterParameterServerServer(srv, s)
		lis := memnet.Listen(64 << 10)
		go srv.Serve(lis)
		defer srv.Stop()
		order := func(ctx context.Context, incarnation int) error {
			master := job
			master.Role, master.Incarnation = pod.Master, incarnation
			conn, err := Connect("ps:1", func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
				NewSelf(master), Callee{ID: pod.ID{Role: pod.PS}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = NewParameterServerClient(conn).Control(ctx, new(ControlRequest))
			return err
		}
		if err := order(t.Context(), 2); err != nil {
			t.Error(err)
		}
		if err := order(InLife(t.Context(), 3), 2); err != nil {
			t.Error(err)
		}
		if err := order(t.Context(), 1); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("an old master: %v", err)
		}
		if err := order(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if len(s.heard) != 3 || s.heard[0].Life != 5 || s.heard[1].Life != 3 || server.Header().Master != 3 {
			t.Errorf("heard %v, at last master %d", s.heard, server.Header().Master)
		}
	})
}

// The table of calls has those that there are, and no others.
func TestEveryCallIsListed(t *testing.T) {
	var all []string
	for _, service := range []grpc.ServiceDesc{Master_ServiceDesc, Job_ServiceDesc, ParameterServer_ServiceDesc} {
		for _, m := range service.Methods {
			all = append(all, "/"+service.ServiceName+"/"+m.MethodName)
		}
		for _, s := range service.Streams {
			all = append(all, "/"+service.ServiceName+"/"+s.StreamName)
		}
	}
	for _, name := range all {
		if _, ok := identity.Calls[name]; !ok {
			t.Errorf("%s is not listed", name)
		}
	}
	for name := range identity.Calls {
		if !slices.Contains(all, name) {
			t.Errorf("%s does not exist", name)
		}
	}
}

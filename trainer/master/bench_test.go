package master

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// BenchmarkLeases measures GetTask and ReportTask by 64 workers over loopback TCP, each with its
// own connection. leases/s is the number of leases that one master grants and settles. The case
// plain shows the cost of TLS: its connections leave TLS after both ends are authenticated, which
// those of a job never do.
func BenchmarkLeases(b *testing.B) {
	b.Run("tls", func(b *testing.B) { benchmarkLeases(b, connect, func(l net.Listener) net.Listener { return l }) })
	b.Run("plain", func(b *testing.B) {
		benchmarkLeases(b, connectPlain, func(l net.Listener) net.Listener { return plainListener{l} })
	})
}

func benchmarkLeases(b *testing.B, connect func(*testing.B, string, pod.ID) wire.MasterClient,
	listen func(net.Listener) net.Listener) {
	const workers = 64
	j := job.Default()
	j.NumWorkers, j.MinibatchSize, j.NumMinibatchesPerTask = workers, 1, 1
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	pods := newFakePods()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() {
		_, err := Run(ctx, Config{
			Job: j, Training: []task.Shard{{Name: "shard", Count: int64(b.N)}},
			Listener: listen(lis), Self: firstMaster(), Pods: pods, Log: slog.New(slog.DiscardHandler),
		})
		ended <- err
	}()
	server := connect(b, lis.Addr().String(), pod.ID{Role: pod.PS})
	b.ResetTimer()
	if _, err := server.Join(b.Context(),
		&wire.JoinRequest{Role: wire.Role_PS, Address: listenServer(b)}, grpc.WaitForReady(true)); err != nil {
		b.Fatal(err)
	}
	var callers sync.WaitGroup
	for i := range workers {
		client := connect(b, lis.Addr().String(), pod.ID{Role: pod.Worker, Index: i})
		callers.Go(func() {
			defer pods.end(pod.ID{Role: pod.Worker, Index: i}, pod.Exit{})
			if err := takeTasks(b.Context(), client, i); err != nil {
				b.Error(err)
			}
		})
	}
	callers.Wait()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "leases/s")
}

func takeTasks(ctx context.Context, client wire.MasterClient, index int) error {
	for {
		reply, err := client.GetTask(ctx, &wire.GetTaskRequest{Worker: int32(index)})
		if err != nil || reply.Task.Kind == wire.TaskKind_DONE {
			return err
		}
		if reply.Task.Kind == wire.TaskKind_WAIT {
			continue
		}
		if _, err := client.ReportTask(ctx, &wire.ReportTaskRequest{Worker: int32(index),
			Lease: reply.Task.Lease}); err != nil {
			return err
		}
	}
}

func firstMaster() *rpc.Self {
	return speak.Self(identity.Header{Role: pod.Master, Incarnation: 1, ModelGeneration: 1})
}

// connect connects the first incarnation of a pod to the master.
func connect(b *testing.B, address string, id pod.ID) wire.MasterClient {
	self := speak.Self(identity.Header{Role: id.Role, Index: id.Index, Incarnation: 1, ModelGeneration: 1})
	conn, err := rpc.Connect(address, nil, self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return wire.NewMasterClient(conn)
}

// listenServer starts a parameter server that accepts all calls, and returns its address.
func listenServer(b *testing.B) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := speak.Server(func() identity.Header {
		return identity.Header{Job: "uid", Role: pod.PS, Incarnation: 1, ModelGeneration: 1}
	})
	wire.RegisterParameterServerServer(srv, new(fakeServer))
	go srv.Serve(lis)
	b.Cleanup(srv.Stop)
	return lis.Addr().String()
}

// plainListener accepts connections that leave TLS after both ends are authenticated.
type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return prove.Of(firstMaster().Header()).Server(context.Background(), conn, false, credential.GRPC.Plain())
}

// connectPlain does the same as connect, with a connection that leaves TLS after both ends are
// authenticated.
func connectPlain(b *testing.B, address string, id pod.ID) wire.MasterClient {
	self := identity.Header{Job: "uid", Role: id.Role, Index: id.Index, Incarnation: 1, ModelGeneration: 1}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := rpc.TCP(ctx, address)
		if err != nil {
			return nil, err
		}
		return prove.Of(self).Client(ctx, conn, credential.GRPC.Plain(), identity.Is(pod.ID{Role: pod.Master}))
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial), grpc.WithNoProxy(),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any,
			conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(metadata.AppendToOutgoingContext(ctx, rpc.HeaderKey, rpc.Text(self)), method,
				request, reply, conn, options...)
		}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return wire.NewMasterClient(conn)
}

package master

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// playersEnv makes a process of this test binary simulate the server and the thousand workers of a
// job. Its value is the master's address.
const playersEnv = "ELASTICDL_PLAYERS_OF"

// authorityEnv has the authority that signs the certificates of the simulated pods.
const authorityEnv = "ELASTICDL_TEST_AUTHORITY"

func TestMain(m *testing.M) {
	if address := os.Getenv(playersEnv); address != "" {
		playThousand(address)
		return
	}
	os.Exit(m.Run())
}

const (
	thousand = 1000
	perTask  = 5 * time.Second // time of a simulated worker for a lease
	killed   = 100
)

// BenchmarkThousandWorkers measures a master with a thousand workers, which another process
// simulates over loopback TCP. Each sends two heartbeats a second and takes five seconds for a
// lease. cores is the master's use of processors, and MB its memory. ms/100 is the time until a
// hundred workers that are killed at once have successors. cpu-ms/page is the time of a processor
// for one view of the dashboard, with what its caller needs to read it.
func BenchmarkThousandWorkers(b *testing.B) {
	for range b.N {
		runThousand(b)
	}
}

func runThousand(b *testing.B) {
	j := job.Default()
	j.NumWorkers, j.MinibatchSize, j.NumMinibatchesPerTask = thousand, 1, 10
	j.EvaluationSteps = 0
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	pods := newFakePods()
	pods.events = make(chan pod.Event, 4*thousand)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Config{
			Job: j, Training: []task.Shard{{Name: "shard", Count: 2_000_000}},
			OnStatus: func(*wire.JobStatus) {},
			Listener: lis, Self: firstMaster(), Users: true, Pods: pods, Log: slog.New(slog.DiscardHandler),
		})
		ended <- err
	}()
	authority, err := prove.Authority("uid").Encode()
	if err != nil {
		b.Fatal(err)
	}
	players, err := os.StartProcess(os.Args[0], os.Args[:1], &os.ProcAttr{
		Env: append(os.Environ(), playersEnv+"="+lis.Addr().String(), authorityEnv+"="+
			string(authority)), Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer players.Wait()
	defer players.Kill()
	conn := anybody(lis.Addr().String())
	defer conn.Close()
	client := wire.NewJobClient(conn)
	look := func() *wire.JobStatus {
		s, err := client.Status(ctx, &wire.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	for look().RecordsDone < thousand*10 { // one lease for each worker
		time.Sleep(100 * time.Millisecond)
	}
	const window = 10 * time.Second
	before, done := processorTime(b), look().RecordsDone
	time.Sleep(window)
	cores := (processorTime(b) - before).Seconds() / window.Seconds()
	b.ReportMetric(cores, "cores")
	b.ReportMetric(float64(look().RecordsDone-done)/10/window.Seconds(), "leases/s")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse+m.StackInuse)/1e6, "MB-heap")
	b.ReportMetric(float64(resident(b))/1e6, "MB")

	began := time.Now()
	for i := range killed {
		pods.end(worker(i), pod.Exit{Code: 137, Signal: 9})
	}
	for !pods.isRunning(worker(thousand + killed - 1)) {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/100")

	// a page asks once a second
	const views = 50
	before = processorTime(b)
	began = time.Now()
	for range views {
		reply, err := client.Watch(ctx, new(wire.WatchRequest))
		if err != nil || len(reply.Status.Pods) < thousand {
			b.Fatalf("%d pods: %v", len(reply.GetStatus().GetPods()), err)
		}
	}
	used := (processorTime(b) - before).Seconds() - time.Since(began).Seconds()*cores
	b.ReportMetric(used/views*1000, "cpu-ms/page")
	cancel()
	<-ended
}

// playThousand simulates the workers and a server.
func playThousand(address string) {
	if err := prove.Share("uid", []byte(os.Getenv(authorityEnv))); err != nil {
		panic(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	srv := speak.Server(func() identity.Header {
		return identity.Header{Job: "uid", Role: pod.PS, Incarnation: 1, ModelGeneration: 1}
	})
	wire.RegisterParameterServerServer(srv, new(fakeServer))
	go srv.Serve(lis)
	var all sync.WaitGroup
	for i := range thousand {
		all.Go(func() { playWorker(address, lis.Addr().String(), int32(i)) })
	}
	all.Wait()
}

func playWorker(address, server string, index int32) {
	conn := anybody(address)
	defer conn.Close()
	client, ctx := wire.NewMasterClient(conn), context.Background()
	if index == 0 {
		client.Join(ctx, &wire.JoinRequest{Role: wire.Role_PS, Address: server}, grpc.WaitForReady(true))
	}
	client.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER, Index: index}, grpc.WaitForReady(true))
	var lease, steps int64
	var mu sync.Mutex
	go func() {
		time.Sleep(time.Duration(rand.Int64N(int64(500 * time.Millisecond))))
		for range time.Tick(500 * time.Millisecond) {
			mu.Lock()
			steps++
			beat := &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: index, Steps: steps, Loss: 1,
				Leases: []*wire.LeaseProgress{{Lease: lease, Done: steps % 10}}}
			mu.Unlock()
			client.Heartbeat(ctx, beat)
		}
	}()
	for {
		reply, err := client.GetTask(ctx, &wire.GetTaskRequest{Worker: index})
		if err != nil {
			return
		}
		if reply.Task.Kind != wire.TaskKind_TRAINING {
			continue
		}
		mu.Lock()
		lease = reply.Task.Lease
		mu.Unlock()
		time.Sleep(perTask)
		client.ReportTask(ctx, &wire.ReportTaskRequest{Worker: index, Lease: reply.Task.Lease})
	}
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns the resident memory of this process, in bytes.
func resident(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// anybody connects to the master. Each call comes from the first incarnation of the pod that its
// request names.
func anybody(address string) *speak.Conn {
	return speak.Connect(func(ctx context.Context) (net.Conn, error) { return rpc.TCP(ctx, address) },
		func(ctx context.Context, request any) identity.Header {
			id := speak.ID(ctx, request)
			return identity.Header{Job: "uid", Role: id.Role, Index: id.Index, Incarnation: 1, ModelGeneration: 1}
		})
}

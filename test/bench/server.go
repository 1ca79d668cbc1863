package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// modelFloats is the number of values of the model that is pushed and pulled: 100 MB.
const (
	modelFloats = 25_000_000
	modelBytes  = 4 * modelFloats
)

func serverBenchmarks() []benchmark {
	return []benchmark{
		{name: "ps/push+pull 100 MB", run: pushPull},
		{name: "ps/adam", run: adam},
		{name: "ps/memory SGD", run: func(ctx context.Context, b *bench) error {
			return serverMemory(ctx, b, "SGD", "<= 2.1")
		}},
		{name: "ps/memory Adam", run: func(ctx context.Context, b *bench) error {
			return serverMemory(ctx, b, "Adam", "<= 4.1")
		}},
		{name: "master/leases", run: leases},
	}
}

func modelLayout() param.Layout {
	return param.Layout{{Name: "dense/kernel", Shape: []int{modelFloats / 1000, 1000}, Trainable: true}}
}

// startServer starts a parameter server of that model, whose program it builds first.
func (b *bench) startServer(ctx context.Context, optimizer, encryption string) (*child, error) {
	program := filepath.Join(b.dir, "server")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "disable_grpc_modules,grpcnotrace",
		"-ldflags", "-s -w", "-o", program, "./test/bench/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build ./test/bench/server: %w: %s", err, out)
	}
	return start(ctx, []string{program, jobUID, optimizer, encryption, strconv.Itoa(modelFloats / 1000)})
}

func filled() []float32 {
	values := make([]float32, modelFloats)
	for i := range values {
		values[i] = 1e-3
	}
	return values
}

// self returns the identity of a process of the benchmark, in a job of its own.
func self(role pod.Role, index int) *rpc.Self {
	return speak.Self(identity.Header{Job: jobUID, Role: role, Index: index, Incarnation: 1, ModelGeneration: 1})
}

func connect(ctx context.Context, addr string, worker int, plain bool) (*ps.Client, []float32, error) {
	client, err := ps.Dial(ctx, ps.ClientConfig{Self: self(pod.Worker, worker),
		Servers: []ps.Address{{Address: addr}}, Layout: modelLayout(), PlainData: plain})
	if err != nil {
		return nil, nil, err
	}
	return client, filled(), nil
}

// pushPull measures how fast a model moves to a server, which applies it, and back. The peer moves
// the same bytes through one connection on loopback: of crypto/tls, or with --data_encryption=off
// plain TCP.
func pushPull(ctx context.Context, b *bench) error {
	return errors.Join(
		b.pushPull(ctx, "tls", Result{Name: "ps/push+pull 100 MB, SGD", Peer: "crypto/tls of " +
			runtime.Version(), Unit: "GB/s", Threads: 1, Target: ">= 0.9"}),
		b.pushPull(ctx, "off", Result{Name: "ps/push+pull 100 MB, SGD, --data_encryption=off",
			Peer: "plain TCP of Linux, loopback", Unit: "GB/s", Threads: 1, Target: ">= 0.85"}))
}

func (b *bench) pushPull(ctx context.Context, encryption string, r Result) error {
	server, err := b.startServer(ctx, "SGD", encryption)
	if err != nil {
		return err
	}
	defer server.end()
	client, values, err := connect(ctx, server.line, 0, encryption == "off")
	if err != nil {
		return err
	}
	defer client.Close()
	versions, err := client.Pull(ctx, values, ps.PullOptions{})
	if err != nil {
		return err
	}
	stream, err := newLoopback(encryption == "tls")
	if err != nil {
		return err
	}
	defer stream.close()
	sides := []side{
		func() (float64, error) {
			ms, err := typical(2, func() error {
				if _, err := client.Push(ctx, values, ps.Gradient{Versions: versions}); err != nil {
					return err
				}
				versions, err = client.Pull(ctx, values, ps.PullOptions{})
				return err
			})
			return 2 * modelBytes / ms / 1e6, err
		},
		func() (float64, error) {
			ms, err := typical(2, func() error { return stream.copy(values) })
			return modelBytes / ms / 1e6, err
		}}
	if encryption == "off" {
		both, err := stream.roundTrip(values)
		if err != nil {
			return err
		}
		sides = append(sides, both)
	}
	found, err := turns(b.n(9), sides...)
	if err != nil {
		return err
	}
	b.paired(r, found[0], found[1])
	if encryption == "off" {
		r.Peer, r.Target = "plain TCP from and to memory, and an update of it", ">= 0.85"
		b.paired(r, found[0], found[2])
	}
	return nil
}

// roundTrip returns the rate of a push and a pull over plain TCP: the values leave memory, not a
// cache, and all processors update them in between.
func (l *loopback) roundTrip(values []float32) (side, error) {
	optimizer, err := optim.New(optim.Config{Name: "SGD", LearningRate: 1e-3})
	if err != nil {
		return nil, err
	}
	model, gradient := filled(), filled()
	send := func(from []float32) error {
		if _, err := l.conn.Write(param.Encoded(from)); err != nil {
			return err
		}
		<-l.received
		return nil
	}
	return func() (float64, error) {
		ms, err := typical(2, func() error {
			if err := send(values); err != nil {
				return err
			}
			var updating sync.WaitGroup
			each := (modelFloats + runtime.NumCPU() - 1) / runtime.NumCPU()
			for a := 0; a < modelFloats; a += each {
				z := min(a+each, modelFloats)
				updating.Go(func() { optimizer.Apply(model[a:z], gradient[a:z], nil, 1, 0) })
			}
			updating.Wait()
			return send(model)
		})
		return 2 * modelBytes / ms / 1e6, err
	}, nil
}

// adam compares the server's update, by bytes moved (four arrays read, three written), with a
// memory copy (one read, one written) of arrays of the same size.
func adam(_ context.Context, b *bench) error {
	optimizer, err := optim.New(optim.Config{Name: "Adam", LearningRate: 1e-3})
	if err != nil {
		return err
	}
	p, g, m, v := make([]float32, modelFloats), make([]float32, modelFloats),
		make([]float32, modelFloats), make([]float32, modelFloats)
	for i := range g {
		g[i] = 1e-3
	}
	step := int64(0)
	found, err := turns(b.n(7),
		func() (float64, error) {
			ms, err := typical(2, func() error {
				step++
				optimizer.Apply(p, g, [][]float32{m, v}, step, 0)
				return nil
			})
			return 7 * modelBytes / ms / 1e6, err
		},
		func() (float64, error) {
			ms, err := typical(2, func() error { copy(p, g); return nil })
			return 2 * modelBytes / ms / 1e6, err
		})
	if err == nil {
		b.paired(Result{Name: "ps/adam by bytes moved", Peer: "memory copy", Unit: "GB/s", Threads: 1,
			Target: ">= 0.60"}, found[0], found[1])
	}
	return err
}

// serverMemory compares a server's peak memory, while four workers push and pull, with the size of
// its parameters. The bar is of the memory that is the server's own: the pages of its program's
// file are as many for each model, the processes of a machine share them, and the kernel drops them
// when it needs room.
func serverMemory(ctx context.Context, b *bench, optimizer, target string) error {
	server, err := b.startServer(ctx, optimizer, "tls")
	if err != nil {
		return err
	}
	defer server.end()
	const workers, rounds = 4, 5
	failures := make(chan error, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			client, values, err := connect(ctx, server.line, i, false)
			if err != nil {
				failures <- err
				return
			}
			defer client.Close()
			for range rounds {
				versions, err := client.Pull(ctx, values, ps.PullOptions{})
				if err == nil {
					_, err = client.Push(ctx, values, ps.Gradient{Versions: versions})
				}
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	own, err := ownMemory(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	whole, err := peakMemory(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.bar(Result{Name: "ps/peak memory, " + optimizer, Peer: "its parameters", Unit: "MB", Threads: 1,
		Target: target}, modelBytes/1e6, own)
	b.compared(Result{Name: "ps/peak memory with pages of the program, " + optimizer,
		Peer: "its parameters", Unit: "MB", Threads: 1}, []float64{whole}, []float64{modelBytes / 1e6})
	return nil
}

// leases runs the master's own benchmark, which has 64 callers on loopback.
func leases(ctx context.Context, b *bench) error {
	found, err := turns(b.n(3), func() (float64, error) { return leaseRate(ctx, "tls") })
	if err == nil {
		b.bar(Result{Name: "master/task leases", Unit: "leases/s", Threads: 2, Target: ">= 1"}, 10_000, found[0]...)
	}
	return err
}

// leaseRate returns the rate of a benchmark of leases of the master, by name.
func leaseRate(ctx context.Context, name string) (float64, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "./trainer/master", "-run", "^$", "-bench",
		"^BenchmarkLeases$/^"+name+"$", "-benchtime", "2s").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("go test -bench: %w: %s", err, out)
	}
	return metric(string(out), "leases/s")
}

// metric returns the value in "VALUE UNIT" in the output of go test -bench.
func metric(out, unit string) (value float64, err error) {
	fields := strings.Fields(out)
	for i, f := range fields {
		if f == unit && i > 0 {
			_, err := fmt.Sscan(fields[i-1], &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("no %s in %q", unit, out)
}

// loopback is one TCP connection whose far end counts the bytes that it receives.
type loopback struct {
	lis      net.Listener
	conn     net.Conn
	received chan int
	chunk    []byte
}

func newLoopback(encrypted bool) (*loopback, error) {
	shake := func(conn net.Conn, _ func(net.Conn, *tls.Config) *tls.Conn) net.Conn { return conn }
	if encrypted {
		config, err := anyTLS()
		if err != nil {
			return nil, err
		}
		shake = func(conn net.Conn, end func(net.Conn, *tls.Config) *tls.Conn) net.Conn { return end(conn, config) }
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &loopback{lis: lis, received: make(chan int, 1), chunk: make([]byte, 1<<20)}
	go func() {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		conn = shake(conn, tls.Server)
		defer conn.Close()
		into := make([]byte, modelBytes)
		for {
			n, err := io.ReadFull(conn, into)
			if err != nil {
				return
			}
			l.received <- n
		}
	}()
	l.conn, err = net.DialTimeout("tcp", lis.Addr().String(), 5*time.Second)
	if err != nil {
		lis.Close()
		return nil, err
	}
	l.conn = shake(l.conn, tls.Client)
	return l, nil
}

// copy sends the number of bytes of values, in writes of 1 MiB.
func (l *loopback) copy(values []float32) error {
	for sent := 0; sent < 4*len(values); {
		n, err := l.conn.Write(l.chunk[:min(len(l.chunk), 4*len(values)-sent)])
		if err != nil {
			return err
		}
		sent += n
	}
	<-l.received
	return nil
}

func (l *loopback) close() {
	l.conn.Close()
	l.lis.Close()
}

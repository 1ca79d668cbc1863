package ps

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

const benchElements = 25 << 20 // 100 MiB

// compare runs ours and a peer in turn and reports, of bytes moved by each, the median rates and
// the ratios of the best and of the median runs.
func compare(b *testing.B, ours, peer func(), oursBytes, peerBytes float64) {
	b.Helper()
	times := [2][]float64{}
	ours()
	peer()
	for b.Loop() {
		for i, f := range []func(){ours, peer} {
			start := time.Now()
			f()
			times[i] = append(times[i], time.Since(start).Seconds())
		}
	}
	rate := func(i int, bytes float64, at int) float64 {
		slices.Sort(times[i])
		return bytes / times[i][at] / 1e9
	}
	mid := len(times[0]) / 2
	b.ReportMetric(rate(0, oursBytes, mid), "GB/s")
	b.ReportMetric(rate(1, peerBytes, mid), "peer-GB/s")
	b.ReportMetric(rate(0, oursBytes, mid)/rate(1, peerBytes, mid), "ratio")
	b.ReportMetric(rate(0, oursBytes, 0)/rate(1, peerBytes, 0), "best-ratio")
}

// onLoopback starts a server with n values on TCP, and a client of it.
func onLoopback(tb testing.TB, n int, config ServerConfig) *Client {
	tb.Helper()
	config.Self = speak.Self(identity.Header{Role: pod.PS, ModelGeneration: 1})
	config.Initial = func(int, int) (param.Layout, []float32, error) { return dense(n, 0), make([]float32, n), nil }
	s, err := NewServer(config)
	if err != nil {
		tb.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	go s.Serve(lis)
	tb.Cleanup(s.Stop)
	c, err := Dial(tb.Context(), ClientConfig{
		Self:    speak.Self(identity.Header{Role: pod.Worker, ModelGeneration: 1}),
		Servers: []Address{{Address: lis.Addr().String()}}, Layout: dense(n, 0), PlainData: config.PlainData})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// echo returns a function that moves as many bytes there and back over a plain TCP connection.
func echo(tb testing.TB, bytes int) func() {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { lis.Close() })
	go func() {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		far := make([]byte, bytes)
		for {
			if _, err := io.ReadFull(conn, far); err != nil {
				return
			}
			if _, err := conn.Write(far); err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	near := make([]byte, bytes)
	return func() {
		must(conn.Write(near))
		must(io.ReadFull(conn, near))
	}
}

// BenchmarkPushPull moves 100 MiB to the server and back, an update in between, compared with a
// plain TCP connection.
func BenchmarkPushPull(b *testing.B) {
	for _, name := range []string{optim.SGD, optim.Adam} {
		b.Run(name, func(b *testing.B) {
			c := onLoopback(b, benchElements, ServerConfig{Optimizer: optim.Config{Name: name}})
			values, grads := make([]float32, benchElements), filled(benchElements, 1e-3)
			versions := Versions{0}
			const moved = 2 * 4 * benchElements
			compare(b, func() {
				_, err := c.Push(b.Context(), grads, Gradient{Versions: versions})
				if err != nil {
					b.Fatal(err)
				}
				versions = must(c.Pull(b.Context(), values, PullOptions{}))
			}, echo(b, moved/2), moved, moved)
		})
	}
}

// BenchmarkApply compares an update of 100 MiB of parameters with a memory copy, by the bytes that
// each reads and writes.
func BenchmarkApply(b *testing.B) {
	for _, c := range []struct {
		optimizer string
		passes    float64 // over the 4 bytes of each parameter
	}{{optim.SGD, 3}, {optim.Adam, 7}} {
		b.Run(c.optimizer, func(b *testing.B) {
			s := &store{optimizer: must(optim.New(optim.Config{Name: c.optimizer}))}
			s.fill(dense(benchElements, 0), param.Range{End: benchElements}, make([]float32, benchElements), 0)
			copy(s.room(), filled(benchElements, 1e-3))
			from, to := filled(benchElements, 1), filled(benchElements, 2)
			compare(b, func() {
				s.add([]float64{1})
				s.apply([]float64{1}, 0.01)
			}, func() { copy(to, from) }, c.passes*4*benchElements, 2*4*benchElements)
		})
	}
}

// BenchmarkPush and BenchmarkPull are 100 MiB one way.
func BenchmarkPush(b *testing.B) {
	for _, name := range []string{optim.SGD, optim.Adam} {
		b.Run(name, func(b *testing.B) {
			c := onLoopback(b, benchElements, ServerConfig{Optimizer: optim.Config{Name: name}})
			grads := filled(benchElements, 1e-3)
			b.SetBytes(4 * benchElements)
			for b.Loop() {
				if _, err := c.Push(b.Context(), grads, Gradient{Versions: Versions{0}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPull(b *testing.B) {
	c := onLoopback(b, benchElements, ServerConfig{Optimizer: optim.Config{Name: optim.SGD}})
	values := make([]float32, benchElements)
	b.SetBytes(4 * benchElements)
	for b.Loop() {
		must(c.Pull(b.Context(), values, PullOptions{}))
	}
}

// BenchmarkSmall is a push and a pull of a model that fits one segment: what a call costs.
func BenchmarkSmall(b *testing.B) {
	c := onLoopback(b, 1000, ServerConfig{Optimizer: optim.Config{Name: optim.SGD}})
	x := make([]float32, 1000)
	for b.Loop() {
		_, err := c.Push(b.Context(), x, Gradient{Versions: Versions{0}})
		if err != nil {
			b.Fatal(err)
		}
		must(c.Pull(b.Context(), x, PullOptions{}))
	}
}

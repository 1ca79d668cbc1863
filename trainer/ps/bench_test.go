package ps

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/optim"
)

const benchElements = 25 << 20 // 100 MiB

// onLoopback starts a server with n values on TCP, and a client of it.
func onLoopback(tb testing.TB, n int, config ServerConfig) (*Server, *Client) {
	tb.Helper()
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
	c, err := Dial(tb.Context(), ClientConfig{Addresses: []string{lis.Addr().String()}, Layout: dense(n, 0)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	if err := c.Init(tb.Context(), make([]float32, n)); err != nil {
		tb.Fatal(err)
	}
	return s, c
}

// BenchmarkPushPull moves 100 MiB to the server and back.
func BenchmarkPushPull(b *testing.B) {
	for _, name := range []string{optim.SGD, optim.Adam} {
		b.Run(name, func(b *testing.B) {
			_, c := onLoopback(b, benchElements, ServerConfig{Optimizer: optim.Config{Name: name}})
			values, grads := make([]float32, benchElements), filled(benchElements, 1e-3)
			versions := Versions{0}
			b.SetBytes(2 * 4 * benchElements)
			for b.Loop() {
				if _, _, err := c.Push(b.Context(), grads, Gradient{Versions: versions}); err != nil {
					b.Fatal(err)
				}
				v, err := c.Pull(b.Context(), values, PullOptions{})
				if err != nil {
					b.Fatal(err)
				}
				versions = v
			}
		})
	}
}

func BenchmarkPush(b *testing.B) {
	for _, name := range []string{optim.SGD, optim.Adam} {
		b.Run(name, func(b *testing.B) {
			_, c := onLoopback(b, benchElements, ServerConfig{Optimizer: optim.Config{Name: name}})
			grads := filled(benchElements, 1e-3)
			b.SetBytes(4 * benchElements)
			for b.Loop() {
				if _, _, err := c.Push(b.Context(), grads, Gradient{Versions: Versions{0}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPull(b *testing.B) {
	_, c := onLoopback(b, benchElements, ServerConfig{Optimizer: optim.Config{Name: optim.SGD}})
	values := make([]float32, benchElements)
	b.SetBytes(4 * benchElements)
	for b.Loop() {
		if _, err := c.Pull(b.Context(), values, PullOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTCP is the peer: the same bytes there and back over a plain connection.
func BenchmarkTCP(b *testing.B) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer lis.Close()
	far := make([]byte, 4*benchElements)
	go func() {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
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
		b.Fatal(err)
	}
	defer conn.Close()
	near := make([]byte, 4*benchElements)
	b.SetBytes(2 * 4 * benchElements)
	for b.Loop() {
		if _, err := conn.Write(near); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, near); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSmall is a push and a pull of a model that fits one segment: the cost of a call.
func BenchmarkSmall(b *testing.B) {
	_, c := onLoopback(b, 1000, ServerConfig{Optimizer: optim.Config{Name: optim.SGD}})
	x := make([]float32, 1000)
	for b.Loop() {
		c.Push(b.Context(), x, Gradient{Versions: Versions{0}})
		c.Pull(b.Context(), x, PullOptions{})
	}
}

// BenchmarkMemory is the server's memory beyond the Go program's at the start, over that
// of its parameters, while four workers push. It needs a process of its own for each optimizer.
func BenchmarkMemory(b *testing.B) {
	name := os.Getenv("ELASTICDL_BENCH_OPTIMIZER")
	if name == "" {
		name = optim.SGD
	}
	_ = name
	_ = fmt.Sprint
	_ = strconv.Itoa
	_ = strings.Fields
	var wg sync.WaitGroup
	wg.Wait()
}

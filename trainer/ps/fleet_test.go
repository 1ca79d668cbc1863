package ps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// fleet is the servers of a job on an in-memory network, by address.
type fleet struct {
	t         *testing.T
	config    ServerConfig
	mu        sync.Mutex
	servers   []*Server
	listeners []*memnet.Listener
	conns     []net.Conn // of the clients
}

// newFleet starts n servers. Everything ends with the test, or with the bubble.
func newFleet(t *testing.T, n int, config ServerConfig) *fleet {
	f := &fleet{t: t, config: config, servers: make([]*Server, n), listeners: make([]*memnet.Listener, n)}
	f.config.Servers = n
	if f.config.Optimizer.Name == "" {
		f.config.Optimizer = optim.Config{Name: optim.SGD, LearningRate: 1}
	}
	for i := range n {
		f.start(i)
	}
	t.Cleanup(func() {
		for i := range n {
			f.kill(i)
		}
	})
	return f
}

func (f *fleet) start(i int) {
	config := f.config
	config.Index = i
	s, err := NewServer(config)
	if err != nil {
		f.t.Fatal(err)
	}
	lis := memnet.Listen(1 << 10) // small, so that senders feel the receiver
	go s.Serve(lis)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[i], f.listeners[i] = s, lis
}

// kill ends a server; nothing answers at its address until it is started again.
func (f *fleet) kill(i int) {
	f.mu.Lock()
	s := f.servers[i]
	f.servers[i], f.listeners[i] = nil, nil
	f.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

func (f *fleet) server(i int) *Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servers[i]
}

func (f *fleet) dial(ctx context.Context, addr string) (net.Conn, error) {
	var i int
	fmt.Sscanf(addr, "ps-%d", &i)
	f.mu.Lock()
	lis := f.listeners[i]
	f.mu.Unlock()
	if lis == nil {
		return nil, errors.New("connection refused")
	}
	conn, err := lis.DialContext(ctx)
	if err == nil {
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
	}
	return conn, err
}

// cut ends all connections that were opened so far.
func (f *fleet) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

func (f *fleet) clientConfig(worker int, layout param.Layout) ClientConfig {
	c := ClientConfig{Worker: worker, Layout: layout, Dial: f.dial}
	for i := range f.servers {
		c.Addresses = append(c.Addresses, fmt.Sprintf("ps-%d", i))
	}
	return c
}

func (f *fleet) client(worker int, layout param.Layout) *Client {
	f.t.Helper()
	c, err := Dial(f.t.Context(), f.clientConfig(worker, layout))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// control is the master's line to a server.
func (f *fleet) control(i int) wire.ParameterServerClient {
	f.t.Helper()
	conn, err := grpc.NewClient(fmt.Sprintf("passthrough:///ps-%d", i),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(f.dial))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return wire.NewParameterServerClient(conn)
}

func (f *fleet) tell(i int, req *wire.ControlRequest) {
	f.t.Helper()
	if _, err := f.control(i).Control(f.t.Context(), req); err != nil {
		f.t.Fatal(err)
	}
}

// dense is a layout of n trainable elements and m of state, whose momentum is 0.75.
func dense(n, m int) param.Layout {
	l := param.Layout{{Name: "dense/kernel", Shape: []int{n}, Trainable: true}}
	if m > 0 {
		l = append(l, param.Variable{Name: "norm/mean", Shape: []int{m}, Momentum: 0.75})
	}
	return l
}

func filled(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (f *fleet) pull(c *Client, o PullOptions) ([]float32, Versions) {
	f.t.Helper()
	dst := make([]float32, c.layout.Len())
	v, err := c.Pull(f.t.Context(), dst, o)
	if err != nil {
		f.t.Fatal(err)
	}
	return dst, v
}

func (f *fleet) push(c *Client, grads []float32, g Gradient) (bool, Versions) {
	f.t.Helper()
	accepted, v, err := c.Push(f.t.Context(), grads, g)
	if err != nil {
		f.t.Fatal(err)
	}
	return accepted, v
}

func (f *fleet) init(c *Client, values []float32) {
	f.t.Helper()
	if err := c.Init(f.t.Context(), values); err != nil {
		f.t.Fatal(err)
	}
}

func want(t *testing.T, got, want []float32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// bubble runs test with virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

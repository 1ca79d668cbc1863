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

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// fleet is the servers of a job on an in-memory network, by address.
type fleet struct {
	t               *testing.T
	config          ServerConfig
	layout          param.Layout
	initial         []float32 // nil: zeros
	orders          int64
	mu              sync.Mutex
	modelGeneration int64
	incarnations    []int
	servers         []*Server
	listeners       []*memnet.Listener
	conns           []net.Conn // of the clients
}

// newFleet makes n servers, which are started when the model's layout is known: with the first
// client. Everything ends with the test, or with the bubble.
func newFleet(t *testing.T, n int, config ServerConfig) *fleet {
	f := &fleet{t: t, config: config, modelGeneration: 1, incarnations: make([]int, n), servers: make([]*Server, n),
		listeners: make([]*memnet.Listener, n)}
	f.config.Servers = n
	if f.config.Optimizer.Name == "" {
		f.config.Optimizer = optim.Config{Name: optim.SGD, LearningRate: 1}
	}
	f.config.Initial = func(part, parts int) (param.Layout, []float32, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		span := param.Partition(f.layout.Len(), parts)[part]
		if f.initial != nil {
			return f.layout, slices.Clone(f.initial[span.Start:span.End]), nil
		}
		return f.layout, make([]float32, span.Len()), nil
	}
	t.Cleanup(func() {
		for i := range n {
			f.kill(i)
		}
	})
	return f
}

// of starts the servers with a layout, unless they have one.
func (f *fleet) of(layout param.Layout) {
	f.mu.Lock()
	begin := f.layout == nil
	if begin {
		f.layout = layout
	}
	f.mu.Unlock()
	if begin {
		for i := range f.servers {
			f.start(i)
		}
	}
}

const uid = "uid"

func (f *fleet) self(r pod.Role, index, incarnation int) *rpc.Self {
	f.mu.Lock()
	defer f.mu.Unlock()
	return speak.Self(identity.Header{Job: uid, Role: r, Index: index, Incarnation: incarnation,
		ModelGeneration: f.modelGeneration})
}

func (f *fleet) start(i int) {
	config := f.config
	config.Index = i
	f.incarnations[i]++
	config.Self = f.self(pod.PS, i, f.incarnations[i])
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
	c := ClientConfig{Self: f.self(pod.Worker, worker, 1), Layout: layout, Dial: f.dial}
	for i := range f.servers {
		c.Servers = append(c.Servers, Address{Address: fmt.Sprintf("ps-%d", i)})
	}
	return c
}

func (f *fleet) client(worker int, layout param.Layout) *Client {
	f.t.Helper()
	f.of(layout)
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
	conn, err := rpc.Connect(fmt.Sprintf("ps-%d", i), f.dial, f.self(pod.Master, 0, 1),
		rpc.Callee{ID: pod.ID{Role: pod.PS, Index: i}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return wire.NewParameterServerClient(conn)
}

func (f *fleet) tell(i int, req *wire.ControlRequest) {
	f.t.Helper()
	f.mu.Lock()
	f.orders++
	req.Number = f.orders
	if req.ModelGeneration == 0 {
		req.ModelGeneration = f.modelGeneration
	}
	f.mu.Unlock()
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
	p, err := c.Push(f.t.Context(), grads, g)
	if err != nil {
		f.t.Fatal(err)
	}
	return p.Accepted, p.Versions
}

// init makes values the initial ones.
func (f *fleet) init(_ *Client, values []float32) {
	f.t.Helper()
	f.mu.Lock()
	f.initial = slices.Clone(values)
	f.mu.Unlock()
	for i := range f.servers {
		if err := f.server(i).fill(f.server(i).self.ModelGeneration()); err != nil {
			f.t.Fatal(err)
		}
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

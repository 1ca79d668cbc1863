package ps

import (
	"context"
	"errors"
	"net"

	"github.com/elasticdl/elasticdl/trainer/param"
)

var (
	// ErrUninitialized: a server has no values (yet, or again after it was
	// replaced). Init sends the worker's own; then the call is made once more.
	ErrUninitialized = errors.New("parameter server has no values")
	// ErrNoSnapshot: a server does not hold the snapshot, which was released or never taken.
	ErrNoSnapshot = errors.New("parameter server holds no such snapshot")
	// ErrRefused: what was sent can never be accepted: a layout that is not the
	// server's, a gradient that is not finite. The text names the parameter.
	ErrRefused = errors.New("refused")
)

// Versions is one version per server, in order of their index.
type Versions []int64

// ClientConfig is a worker's end of the servers.
type ClientConfig struct {
	Worker    int
	Addresses []string // all servers, in order of their index
	Layout    param.Layout
	// Dial opens a connection, for control as for data; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Client pushes to and pulls from all servers at once. A call retries what can
// be retried, a server that is away included, until its context ends; then it returns
// the context's error and the last one. One Push and one Pull may run at once.
type Client struct {
	config ClientConfig
}

// Dial declares the layout at every server.
func Dial(ctx context.Context, config ClientConfig) (*Client, error) {
	return nil, errors.ErrUnsupported
}

// Initialized tells whether every server has values, as far as the client knows.
func (c *Client) Initialized() bool { return false }

// Init sends values to the servers that have none; the first worker to do so wins.
func (c *Client) Init(ctx context.Context, values []float32) error { return errors.ErrUnsupported }

// PullOptions says what a pull is of. The zero value: the values as they stand.
type PullOptions struct {
	// After waits, at each server, until this worker's last accepted gradient is in the
	// values: a synchronous worker's pull.
	After bool
	// Whole repeats a pull into which an update fell, a few times.
	Whole bool
	// Snapshot pulls the values of that version; ErrNoSnapshot.
	Snapshot int64
	// Flush applies what is gathered first.
	Flush bool
}

// Pull writes all values into dst, which has the layout's length, and returns
// the version at each server. After an error dst holds old and new values.
func (c *Client) Pull(ctx context.Context, dst []float32, o PullOptions) (Versions, error) {
	return nil, errors.ErrUnsupported
}

// Gradient says what a gradient is of.
type Gradient struct {
	Versions Versions // of the values it was computed with, as Pull returned them
	// Lease and Done are the records that the gradient is of: it is the lease's next, up to
	// Done records from the task's start. A repeated (Lease, Done) has no
	// effect. Lease 0 is none: a repeat is another gradient.
	Lease, Done int64
}

// Push sends grads, which has the layout's length, to all servers. It returns
// whether all of them took it, and their versions after it. If one did
// not (it is too old), the worker pulls, computes the same records
// again and pushes them with the same Lease and Done: those that took it keep the first.
// grads is free for use when Push returns.
func (c *Client) Push(ctx context.Context, grads []float32, g Gradient) (accepted bool, v Versions, err error) {
	return false, nil, errors.ErrUnsupported
}

// Close ends the connections.
func (c *Client) Close() error { return nil }

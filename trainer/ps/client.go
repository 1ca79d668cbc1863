package ps

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var (
	// ErrUninitialized: a server has no values (yet, or again after it was
	// replaced). Init sends the worker's own; then the call is made once more.
	ErrUninitialized = errors.New("no values yet")
	// ErrNoSnapshot: a server does not hold the snapshot, which was released or never taken.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrRefused: what was sent can never be accepted: a layout that is not the
	// server's, values that are not finite. The text names the parameter.
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
	Dial wire.Dialer
}

// Client pushes to and pulls from all servers at once. A call retries what can
// be retried, a server that is away included, until its context ends. One Push
// and one Pull may run at once.
type Client struct {
	layout  param.Layout
	servers []*peer
}

// Dial declares the layout at every server.
func Dial(ctx context.Context, config ClientConfig) (*Client, error) {
	if len(config.Addresses) == 0 {
		return nil, errors.New("dial parameter servers: no addresses")
	}
	c := &Client{layout: config.Layout}
	spans := param.Partition(config.Layout.Len(), len(config.Addresses))
	for i, span := range spans {
		p, err := newPeer(config, i, span)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.servers = append(c.servers, p)
	}
	err := c.each(ctx, func(ctx context.Context, p *peer) error { return p.declare(ctx, 0) })
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("declare to %w", err)
	}
	return c, nil
}

// each calls f for every server at once. The first error ends the other calls.
func (c *Client) each(ctx context.Context, f func(ctx context.Context, p *peer) error) error {
	if len(c.servers) == 1 {
		return c.servers[0].named(f(ctx, c.servers[0]))
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range c.servers {
		group.Go(func() error { return p.named(f(ctx, p)) })
	}
	return group.Wait()
}

// Initialized tells whether every server has values, as far as the client knows.
func (c *Client) Initialized() bool {
	for _, p := range c.servers {
		if !p.initialized.Load() {
			return false
		}
	}
	return true
}

// Init sends values to the servers that have none; the first worker to do so
// wins. A server that was replaced goes on from the version that the client has
// seen, if it has pulled since: values that no pull has touched are of version 0.
func (c *Client) Init(ctx context.Context, values []float32) error {
	if err := c.check(values); err != nil {
		return fmt.Errorf("init: values: %w", err)
	}
	err := c.each(ctx, func(ctx context.Context, p *peer) error {
		if p.initialized.Load() {
			return nil
		}
		var version int64
		if p.pulled.Load() {
			version = p.version.Load()
		}
		_, err := p.call(ctx, &p.push, request{op: opInit, version: version}, p.part(values), nil)
		if err == nil {
			p.initialized.Store(true)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("init %w", err)
	}
	return nil
}

// PullOptions says what a pull is of. The zero value: the values as they stand.
type PullOptions struct {
	// After waits until this worker's last gradient is in the values, at each server
	// that took it: a synchronous worker's pull.
	After bool
	// Whole repeats a pull into which an update fell, a few times.
	Whole bool
	// Snapshot pulls the values of that version; ErrNoSnapshot.
	Snapshot int64
	// Flush applies what is gathered first.
	Flush bool
}

// wholeTries is how often a pull is repeated for Whole: where updates follow each
// other faster than a pull takes, there is no end to it.
const wholeTries = 4

// Pull writes all values into dst, which has the layout's length, and returns
// the version at each server. After an error dst holds old and new values.
//
// With several servers, fewer gradients in an update than workers, and one of
// them gone, a worker's gradient may wait at one server for another worker, whose own
// waits for the first at another server. So once After is met at one server the
// others have a quarter of a second: if all workers waited at all servers, each server
// would have as many gradients as there are workers, which is an update.
func (c *Client) Pull(ctx context.Context, dst []float32, o PullOptions) (Versions, error) {
	if len(dst) != c.layout.Len() {
		return nil, fmt.Errorf("pull: room for %d values, the layout has %d", len(dst), c.layout.Len())
	}
	versions := make(Versions, len(c.servers))
	var met atomic.Bool
	err := c.each(ctx, func(ctx context.Context, p *peer) error {
		req := o.request()
		for try := 0; ; {
			a, err := p.call(ctx, &p.pull, req, nil, p.part(dst))
			switch {
			case err != nil:
				return err
			case a.status == statusWait:
				if met.Load() {
					req.flags &^= flagAfter
				}
			case o.Whole && a.torn && try < wholeTries:
				try++
			default:
				met.Store(true)
				p.pulled.Store(true)
				versions[p.index] = a.version
				return nil
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("pull from %w", err)
	}
	return versions, nil
}

func (o PullOptions) request() request {
	req := request{op: opPull, snapshot: o.Snapshot}
	for flag, on := range map[uint32]bool{flagAfter: o.After, flagWhole: o.Whole, flagFlush: o.Flush} {
		if on {
			req.flags |= flag
		}
	}
	return req
}

// Gradient says what a gradient is of.
type Gradient struct {
	Versions Versions // of the values it was computed with, as Pull returned them
	// Lease and Done are the records that the gradient is of: the lease's next, up to
	// Done records from the task's start. A repeated (Lease, Done) has no
	// effect. Lease 0 is none: a repeat is another gradient.
	Lease, Done int64
}

// Push sends grads, which has the layout's length, to all servers. It returns
// whether all of them took it, and their versions after it. If one did not
// (it is too old), the worker pulls, computes the same records again and pushes
// them with the same Lease and Done: the servers that took it keep the first.
// grads is free for use when Push returns.
func (c *Client) Push(ctx context.Context, grads []float32, g Gradient) (accepted bool, v Versions, err error) {
	if len(g.Versions) != len(c.servers) {
		return false, nil, fmt.Errorf("push: %d versions for %d servers", len(g.Versions), len(c.servers))
	}
	if err := c.check(grads); err != nil {
		return false, nil, fmt.Errorf("push: gradient: %w", err)
	}
	versions := make(Versions, len(c.servers))
	var stale atomic.Bool
	err = c.each(ctx, func(ctx context.Context, p *peer) error {
		req := request{op: opPush, version: g.Versions[p.index], lease: g.Lease, done: g.Done}
		a, err := p.call(ctx, &p.push, req, p.part(grads), nil)
		if a.status == statusStale {
			stale.Store(true)
		}
		versions[p.index] = a.version
		return err
	})
	if err != nil {
		return false, nil, fmt.Errorf("push to %w", err)
	}
	return !stale.Load(), versions, nil
}

// check refuses what no server would take. One server alone checks by itself;
// of several, one would apply its part before another refuses.
func (c *Client) check(values []float32) error {
	if len(values) != c.layout.Len() {
		return fmt.Errorf("%w: %d values, the layout has %d", ErrRefused, len(values), c.layout.Len())
	}
	if len(c.servers) > 1 {
		if bad := notFinite(c.layout, 0, values); bad != "" {
			return fmt.Errorf("%w: %s", ErrRefused, bad)
		}
	}
	return nil
}

// Close ends the connections, and with them the calls.
func (c *Client) Close() error {
	for _, p := range c.servers {
		p.close()
	}
	return nil
}

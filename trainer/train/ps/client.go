package ps

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

var (
	// ErrStaleModel: the model is in a later generation, or a server has been replaced. The worker
	// has to drop its copy of the model, and to ask the master for the current generation.
	ErrStaleModel = errors.New("the model has started over")
	// ErrNoSnapshot: a server does not hold the snapshot, which was released or never taken.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrRefused: what was sent can never be accepted: a layout that is not the
	// server's, values that are not finite, another job. The text says what.
	ErrRefused = errors.New("refused")
)

// Versions is one version per server, in order of their index.
type Versions []int64

// Address is the address of a server, with its incarnation.
type Address struct {
	Address     string
	Incarnation int // 0: any
}

// ClientConfig is a worker's end of the servers.
type ClientConfig struct {
	// the worker, in the model generation that it works in
	Self *rpc.Self
	// all of them, in order of their index
	Servers []Address
	Layout  param.Layout
	// Dial opens a connection, for control as for data; nil: TCP.
	Dial rpc.Dialer
	// PlainData has data connections leave TLS when both ends are proved, as the servers expect.
	PlainData bool
	// OnWait hears when calls have been waiting for a server for five seconds, and when they
	// continue. It must not call the client. nil: nobody hears.
	OnWait func(Wait)
	// Traffic counts the bytes of gradients and values; nil: nothing counts them.
	Traffic *Traffic
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
	if len(config.Servers) == 0 {
		return nil, errors.New("dial parameter servers: no addresses")
	}
	c := &Client{layout: config.Layout}
	spans := param.Partition(config.Layout.Len(), len(config.Servers))
	for i, span := range spans {
		p, err := newPeer(config, i, span)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.servers = append(c.servers, p)
	}
	err := c.each(ctx, func(ctx context.Context, p *peer) error { return p.declare(ctx) })
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

// PullOptions selects what Pull returns. The zero value selects the current values.
type PullOptions struct {
	// After waits until this worker's last gradient is in the values, on each server that
	// accepted it: the pull of a synchronous worker.
	After bool
	// Whole repeats a pull during which the values were updated, a few times.
	Whole bool
	// Snapshot is the version of a snapshot to pull, 0 for none. Pull returns ErrNoSnapshot if
	// a server does not have it.
	Snapshot int64
}

// wholeTries limits the pulls of Whole: if updates are more frequent than the duration of a pull,
// there may never be a whole one.
const wholeTries = 4

// Pull writes all values into dst, which has the layout's length, and returns
// the version at each server. After an error dst holds old and new values.
//
// With several servers, fewer gradients in an update than workers, and one worker lost, a worker's
// gradient may wait at one server for another worker, whose own waits for the first at another
// server. So once After is met at one server the others have a quarter of a second: if all workers
// waited at all servers, each server would have as many gradients as there are workers, which is an
// update.
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
	for flag, on := range map[uint32]bool{flagAfter: o.After, flagWhole: o.Whole} {
		if on {
			req.flags |= flag
		}
	}
	return req
}

// Gradient says what a gradient is of.
type Gradient struct {
	// of the values that it was computed with, as Pull returned them
	Versions Versions
	// Epoch and Task name the training task, From and To the records of its order, Of how many it
	// has. A server has each record of a task once, pushed by any worker. Epoch 0 is no task: a
	// repeat is another gradient.
	Epoch    int
	Task     int64
	From, To int64
	Of       int64
}

// Pushed is the result of a push.
type Pushed struct {
	// Accepted: every server has it now, or had it.
	Accepted bool
	// Cut is the position of a server within the gradient's records, or of the server that is
	// farthest behind them; -1: they all are at its beginning or past its end. The worker computes
	// the records from there again.
	Cut      int64
	Versions Versions // of the servers, after it
}

// Push sends grads, which has the layout's length, to all servers. If one does not take it, since
// it is too old or begins elsewhere than the server is, the worker pulls, computes the records
// again that are not had everywhere, and pushes them: servers that have them already keep the
// first. grads is free for use when Push returns.
func (c *Client) Push(ctx context.Context, grads []float32, g Gradient) (Pushed, error) {
	if len(g.Versions) != len(c.servers) {
		return Pushed{}, fmt.Errorf("push: %d versions for %d servers", len(g.Versions), len(c.servers))
	}
	if err := c.checkValues(grads); err != nil {
		return Pushed{}, fmt.Errorf("push: gradient: %w", err)
	}
	answers := make([]answer, len(c.servers))
	err := c.each(ctx, func(ctx context.Context, p *peer) (err error) {
		req := request{op: opPush, version: g.Versions[p.index], epoch: g.Epoch, task: g.Task,
			from: g.From, to: g.To, of: g.Of}
		answers[p.index], err = p.call(ctx, &p.push, req, p.part(grads), nil)
		return err
	})
	if err != nil {
		return Pushed{}, fmt.Errorf("push to %w", err)
	}
	pushed := Pushed{Accepted: true, Cut: -1, Versions: make(Versions, len(c.servers))}
	for i, a := range answers {
		pushed.Versions[i] = a.version
		switch a.status {
		case statusStale:
			pushed.Accepted = false
		case statusCut:
			pushed.Accepted = false
			if pushed.Cut < 0 || a.detail < pushed.Cut {
				pushed.Cut = a.detail
			}
		}
	}
	return pushed, nil
}

// checkValues refuses what no server would take. One server alone checks on its own;
// of several, one would apply its part before another refuses.
func (c *Client) checkValues(values []float32) error {
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

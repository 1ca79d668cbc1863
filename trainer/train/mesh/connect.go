package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

// Connect connects this worker with its peers in the world, and waits for those that have not heard
// of it yet, until ctx is done. A generation is connected once, whatever comes of it. A
// [BrokenError] names a peer that refuses, or that did not come.
func (n *Node) Connect(ctx context.Context, w Group) (*Mesh, error) {
	peers := ring.Peers(w.Rank, len(w.Peers))
	f, err := n.expect(w)
	if err != nil {
		return nil, err
	}
	conns, err := n.connectPeers(ctx, f, peers)
	n.mu.Lock()
	got := f.got
	f.got = nil
	n.mu.Unlock()
	close(got)
	for a := range got {
		a.conn.Close()
	}
	var accesses map[int]memoryAccess
	if err == nil {
		admit()
		var rank int
		if accesses, rank, err = negotiateAccess(ctx, n.ctx, conns); err != nil {
			err = &BrokenError{w.Generation, rank, cmp.Or(context.Cause(ctx), err)}
		}
	}
	if err != nil {
		n.mu.Lock()
		f.abandoned = true
		n.mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	m := newMesh(w, conns, accesses, n.config.Traffic)
	if n.config.Silence > 0 {
		m.watchSilence(n.config.Silence, func(ctx context.Context, rank int) (answer, error) {
			conn, a, err := n.call(ctx, w, rank, toAsk)
			if err == nil {
				conn.Close()
			}
			return a, err
		})
	}
	n.mu.Lock()
	if n.world == f {
		n.mesh = m
	}
	n.mu.Unlock()
	return m, nil
}

// expect makes w the world whose peers are welcome.
func (n *Node) expect(w Group) (*forming, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.Generation <= n.newest {
		return nil, fmt.Errorf("connect world %d: world %d was connected before", w.Generation, n.newest)
	}
	if n.ctx.Err() != nil {
		return nil, fmt.Errorf("connect world %d: %w", w.Generation, net.ErrClosed)
	}
	f := &forming{Group: w, got: make(chan accepted, parkedMost)}
	n.world, n.newest, n.mesh = f, w.Generation, nil
	var later []parked
	for _, p := range n.parked {
		switch v := n.judge(p.hello); {
		case p.hello.generation > w.Generation:
			later = append(later, p)
			continue
		case v == welcome:
			f.got <- accepted{p.hello.fromRank, p.conn}
		default:
			p.conn.Close() // it dials again and hears why
		}
		delete(n.conns, p.conn)
	}
	n.parked = later
	return f, nil
}

// connectPeers returns a connection to each of the peers; with an error, those that it has.
func (n *Node) connectPeers(ctx context.Context, f *forming, peers []int) (map[int]net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.ctx, cancel)
	type dialled struct {
		rank int
		conn net.Conn
		err  error
	}
	results := make(chan dialled, len(peers))
	var dials sync.WaitGroup
	defer func() {
		stop()
		cancel()
		dials.Wait()
		close(results)
		for d := range results {
			if d.conn != nil {
				d.conn.Close()
			}
		}
	}()
	conns := make(map[int]net.Conn)
	for _, r := range peers {
		if r < f.Rank {
			dials.Go(func() {
				conn, err := n.dial(ctx, f.Group, r)
				results <- dialled{r, conn, err}
			})
		}
	}
	for len(conns) < len(peers) {
		select {
		case d := <-results:
			if d.err != nil {
				return conns, &BrokenError{f.Generation, d.rank, d.err}
			}
			conns[d.rank] = d.conn
		case a := <-f.got:
			a.conn.SetWriteDeadline(time.Now().Add(timing.Greeting))
			yes := answer{verdict: welcome, generation: f.Generation, from: n.config.Self()}
			if _, err := a.conn.Write(yes.append(nil)); err != nil {
				a.conn.Close() // it dials again
				continue
			}
			a.conn.SetWriteDeadline(time.Time{})
			if old := conns[a.rank]; old != nil {
				old.Close()
			}
			conns[a.rank] = a.conn
		case <-ctx.Done():
			return conns, missing(f, peers, conns, context.Cause(ctx))
		}
	}
	return conns, nil
}

// missing says who did not come.
func missing(f *forming, peers []int, conns map[int]net.Conn, cause error) error {
	for _, r := range peers {
		if conns[r] == nil {
			return &BrokenError{f.Generation, r, fmt.Errorf("worker %d at %s: %w", f.Peers[r].Worker,
				f.Peers[r].Address, cause)}
		}
	}
	return cause
}

// dial connects to one peer, again and again until ctx is done.
func (n *Node) dial(ctx context.Context, w Group, rank int) (net.Conn, error) {
	pause := redial
	for {
		conn, _, err := n.call(ctx, w, rank, toLink)
		if err == nil || final(err) {
			return conn, err
		}
		n.config.Log.Debug("A peer is dialled again", "worker", w.Peers[rank].Worker, "address",
			w.Peers[rank].Address, "error", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("worker %d: %w: %w", w.Peers[rank].Worker, context.Cause(ctx), err)
		case <-time.After(pause):
			pause = min(2*pause, redialMost)
		}
	}
}

// refusedError is a peer's answer other than welcome.
type refusedError struct {
	peer Peer
	answer
}

func (e *refusedError) final() bool { return e.verdict != crowded }

func (e *refusedError) Error() string {
	text := map[verdict]string{
		outdated: fmt.Sprintf("it is in world %d already, or has left this one", e.generation),
		stranger: "it is another worker, or has another place",
		crowded:  "it has no room",
		foreign:  strconv.Quote(e.text),
	}
	return fmt.Sprintf("worker %d at %s refuses: %s", e.peer.Worker, e.peer.Address, text[e.verdict])
}

// impostorError is an answer of somebody else than the worker that was called.
type impostorError struct {
	peer Peer
	err  error
}

func (e *impostorError) Error() string {
	return fmt.Sprintf("at %s of worker %d answers another: %v", e.peer.Address, e.peer.Worker, e.err)
}

func (e *impostorError) Unwrap() error { return e.err }

// final reports whether an error of call stays what it is.
func final(err error) bool {
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return refused.final()
	}
	_, ok := errors.AsType[*impostorError](err)
	return ok
}

// call dials once, says hello, and waits for the answer, which is of that worker.
func (n *Node) call(ctx context.Context, w Group, rank int, what errand) (net.Conn, answer, error) {
	peer := w.Peers[rank]
	raw, err := n.config.Dial(ctx, peer.Address)
	if err != nil {
		return nil, answer{}, err
	}
	keep(raw)
	made, err := n.config.Credential.Client(ctx, raw, n.speaks,
		identity.Is(pod.ID{Role: pod.Worker, Index: peer.Worker}))
	switch {
	case errors.Is(err, identity.ErrForeign), errors.Is(err, identity.ErrForbidden):
		return nil, answer{}, &impostorError{peer, err}
	case err != nil:
		return nil, answer{}, err
	}
	conn := made.Bare()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	self := n.config.Self()
	h := hello{self, w.Generation, peer.Worker, w.Rank, rank, len(w.Peers), what}
	var a answer
	if _, err = conn.Write(h.append(nil)); err == nil {
		a, err = readAnswer(conn)
	}
	switch {
	case err == nil:
		err = judgeAnswer(self, made.Peer, peer, a)
	case errors.Is(err, identity.ErrForeign):
		err = &impostorError{peer, err}
	}
	if !stop() {
		err = cmp.Or(err, context.Cause(ctx))
	}
	if err != nil {
		conn.Close()
		return nil, a, err
	}
	return conn, a, nil
}

// judgeAnswer says what is wrong with an answer; nil: nothing.
func judgeAnswer(self identity.Header, proved identity.Name, peer Peer, a answer) error {
	if a.verdict != foreign {
		if err := identity.Expect(self, a.from, proved, pod.ID{Role: pod.Worker, Index: peer.Worker}, 0); err != nil {
			return &impostorError{peer, err}
		}
	}
	if a.verdict != welcome {
		return &refusedError{peer, a}
	}
	return nil
}

package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

const (
	// Between two tries; doubled each time.
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
	// patience limits the time of a call without a byte: the pushes of many workers may stand
	// before this one's. A dead host is found sooner, by the control connection: see watch.
	patience = timing.Patience
	// stride is the number of elements written under one deadline, piece of those read.
	stride = 1 << 20
	piece  = 256 << 10
)

// peer is the client's end of one server.
type peer struct {
	index   int
	self    *rpc.Self
	callee  rpc.Callee
	addr    string
	span    param.Range
	dial    rpc.Dialer
	pushes  credential.Protocol // of data connections
	control *grpc.ClientConn
	request *wire.DeclareRequest

	closed atomic.Bool
	onWait func(Wait)
	waits  waits

	traffic *Traffic

	push, pull link
}

// link is one data connection, opened at its first call and again after an error.
type link struct {
	calling chan struct{} // held by the call
	mu      sync.Mutex
	conn    net.Conn
}

func newPeer(config ClientConfig, index int, span param.Range) (*peer, error) {
	at := config.Servers[index]
	p := &peer{
		index:  index,
		self:   config.Self,
		callee: rpc.Callee{ID: pod.ID{Role: pod.PS, Index: index}, Incarnation: at.Incarnation},
		addr:   at.Address,
		span:   span,
		dial:   config.Dial,
		pushes: credential.Push,
		onWait: config.OnWait, traffic: cmp.Or(config.Traffic, new(Traffic)),
		push: link{calling: make(chan struct{}, 1)},
		pull: link{calling: make(chan struct{}, 1)},
		request: &wire.DeclareRequest{Worker: int32(config.Self.Header().Index), Server: int32(index),
			Servers: int32(len(config.Servers)), Variables: rpc.Variables(config.Layout)},
	}
	if p.dial == nil {
		p.dial = rpc.TCP
	}
	if config.PlainData {
		p.pushes = p.pushes.Plain()
	}
	var err error
	p.control, err = rpc.Connect(p.addr, p.dial, p.self, p.callee)
	if err != nil {
		return nil, p.named(err)
	}
	go p.watch()
	return p, nil
}

// watch closes the data connections whenever the control connection is lost, until that is closed.
// A data connection whose server's node has vanished may look alive for as long as patience; the
// control connection is tested all the time.
func (p *peer) watch() {
	for state := p.control.GetState(); state != connectivity.Shutdown; state = p.control.GetState() {
		if state == connectivity.Idle {
			p.control.Connect()
		}
		p.control.WaitForStateChange(context.Background(), state)
		if state == connectivity.Ready {
			p.push.drop()
			p.pull.drop()
		}
	}
}

// named adds to err which server it is of.
func (p *peer) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ps-%d at %s: %w", p.index, p.addr, err)
}

// part returns the server's part of a flat array.
func (p *peer) part(flat []float32) []float32 { return flat[p.span.Start:p.span.End] }

// answer is the result of a call.
type answer struct {
	reply
	torn bool
}

var errClosed = errors.New("client is closed")

// permanent reports whether no retry mends an error.
func permanent(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrStaleModel) || errors.Is(err, ErrNoSnapshot) ||
		errors.Is(err, errClosed)
}

// call sends req with the values out, and reads values into in, until it
// succeeds or the error is permanent. It waits for the call before it on the same link.
func (p *peer) call(ctx context.Context, l *link, req request, out, in []float32) (answer, error) {
	select {
	case l.calling <- struct{}{}:
		defer func() { <-l.calling }()
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
	req.length = 4 * uint64(len(out))
	var a answer
	err := p.retry(ctx, func() (err error) {
		a, err = p.try(ctx, l, req, out, in)
		return err
	})
	if err == nil {
		p.traffic.Pushed.Add(int64(req.length))
		if req.op == opPull && a.status == statusOK {
			p.traffic.Pulled.Add(int64(a.length))
		}
	}
	return a, err
}

// retry calls f until its error is none or permanent, or ctx ends.
func (p *peer) retry(ctx context.Context, f func() error) error {
	w := p.await()
	defer w.end()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := f()
		if p.closed.Load() {
			err = errClosed
		}
		if err == nil || permanent(err) {
			return err
		}
		w.failed(err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// declareLimit limits a server's time to answer a declaration. A server that vanished is asked
// again then.
const declareLimit = timing.Connect + timing.Greeting

// declare has the server check the layout.
func (p *peer) declare(ctx context.Context) error {
	return p.retry(ctx, func() error {
		limited, cancel := context.WithTimeout(ctx, declareLimit)
		defer cancel()
		_, err := wire.NewParameterServerClient(p.control).Declare(limited, p.request)
		switch grpcstatus.Code(err) {
		case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied:
			return fmt.Errorf("%w: %s", ErrRefused, grpcstatus.Convert(err).Message())
		case codes.Aborted:
			// one of the two is behind: the master tells
			return fmt.Errorf("%w: %s", ErrStaleModel, grpcstatus.Convert(err).Message())
		}
		return err
	})
}

// try makes the call once. An error ends the connection.
func (p *peer) try(ctx context.Context, l *link, req request, out, in []float32) (a answer, err error) {
	conn, err := p.connect(ctx, l)
	if err != nil {
		return answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	a, err = exchange(conn, req, out, in)
	if !stop() || err != nil && !permanent(err) {
		l.drop()
	}
	return a, err
}

// openLimit limits the time to connect and to identify the server.
const openLimit = timing.Connect + timing.Greeting

// connect returns the link's connection, opened by both ends saying who they are.
func (p *peer) connect(ctx context.Context, l *link) (net.Conn, error) {
	if conn := l.opened(); conn != nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	raw, err := p.dial(ctx, p.addr)
	if err != nil {
		return nil, err
	}
	made, err := p.self.Credential().Client(ctx, raw, p.pushes, identity.Is(p.callee.ID))
	if err != nil {
		return nil, err
	}
	conn := made.Bare()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = p.introduce(conn, made.Peer)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.closed.Load() {
		conn.Close()
		return nil, errClosed
	}
	l.conn = conn
	return conn, nil
}

// introduce says who the worker is, and checks who answers.
func (p *peer) introduce(conn net.Conn, proved identity.Name) error {
	conn.SetDeadline(time.Now().Add(openLimit))
	self := p.self.Header()
	header := self.Append(nil)
	if _, err := conn.Write(append(request{op: opOpen, length: uint64(len(header))}.appendTo(nil),
		header...)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	head := make([]byte, replySize)
	if _, err := io.ReadFull(conn, head); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	r, err := parseReply(head)
	switch {
	case err != nil:
		return err
	case r.length > identity.MaxSize && r.status == statusOK:
		return fmt.Errorf("receive: an identity of %d bytes", r.length)
	}
	text := make([]byte, r.length)
	if _, err := io.ReadFull(conn, text); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	switch r.status {
	case statusModelGeneration:
		return otherModelGeneration(r.detail, self.ModelGeneration)
	case statusRefused:
		return fmt.Errorf("%w: %s", ErrRefused, text)
	case statusOK:
	default:
		return fmt.Errorf("receive: status %d in answer to an introduction", r.status)
	}
	server, err := identity.Parse(text)
	if err == nil {
		err = identity.Expect(self, server, proved, p.callee.ID, p.callee.Incarnation)
	}
	if err == nil {
		err = identity.SameModelGeneration(self, server)
	}
	if err == nil {
		return conn.SetDeadline(time.Time{})
	}
	return foreseen(err)
}

// otherModelGeneration returns the error of a server in another generation: one that is behind will
// hear of it, from one that is ahead the worker has yet to.
func otherModelGeneration(server, own int64) error {
	if server > own {
		return fmt.Errorf("%w: the server is in generation %d of it, this worker in %d", ErrStaleModel, server, own)
	}
	return fmt.Errorf("the server is in model generation %d still, this worker in %d", server, own)
}

// foreseen returns what a wrong identity of the server means for the worker.
func foreseen(err error) error {
	switch {
	case errors.Is(err, identity.ErrModelGeneration):
		return fmt.Errorf("%w: %w", ErrStaleModel, err)
	case errors.Is(err, identity.ErrForeign), errors.Is(err, identity.ErrForbidden):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// opened returns the connection, nil if there is none.
func (l *link) opened() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// drop closes the connection. A call on it fails, and opens another.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

func (p *peer) close() {
	p.closed.Store(true)
	p.control.Close()
	p.push.drop()
	p.pull.drop()
}

// exchange sends a request with the values out, and reads its reply, whose values, if
// it has any, go into in.
func exchange(conn net.Conn, req request, out, in []float32) (answer, error) {
	deadline := func() { conn.SetDeadline(time.Now().Add(patience)) }
	deadline()
	head := req.appendTo(make([]byte, 0, requestSize))
	first := out[:min(len(out), stride)]
	if err := together(conn, head, param.Encoded(first)); err != nil {
		return answer{}, fmt.Errorf("send: %w", err)
	}
	for rest := out[len(first):]; len(rest) > 0; {
		part := rest[:min(len(rest), stride)]
		deadline()
		if _, err := conn.Write(param.Encoded(part)); err != nil {
			return answer{}, fmt.Errorf("send: %w", err)
		}
		rest = rest[len(part):]
	}
	a, err := receive(conn, req.op, in, deadline)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return a, err
}

// together writes two slices by one system call.
func together(conn net.Conn, a, b []byte) (err error) {
	if secured, ok := conn.(*credential.Conn); ok {
		_, err = secured.WriteAll(a, b)
	} else {
		_, err = (&net.Buffers{a, b}).WriteTo(conn)
	}
	return err
}

// receive reads a reply.
func receive(conn net.Conn, of op, in []float32, deadline func()) (answer, error) {
	head := make([]byte, replySize)
	deadline()
	if _, err := io.ReadFull(conn, head); err != nil {
		return answer{}, fmt.Errorf("receive: %w", err)
	}
	r, err := parseReply(head)
	if err != nil {
		return answer{}, err
	}
	a := answer{reply: r}
	switch r.status {
	case statusOK:
		if r.length != 4*uint64(len(in)) {
			return answer{}, fmt.Errorf("receive: %d bytes of values, want %d", r.length, 4*len(in))
		}
		if of != opPull {
			return a, nil
		}
		return a.values(conn, in, deadline)
	case statusNoSnapshot:
		return a, ErrNoSnapshot
	case statusModelGeneration:
		return a, ErrStaleModel
	case statusRefused:
		text := make([]byte, r.length)
		if _, err := io.ReadFull(conn, text); err != nil {
			return answer{}, fmt.Errorf("receive: %w", err)
		}
		return a, fmt.Errorf("%w: %s", ErrRefused, text)
	}
	return a, nil
}

// values reads the values of a pull, and what follows them.
func (a answer) values(conn net.Conn, in []float32, deadline func()) (answer, error) {
	wakes := wakes{socket: credential.Socket(conn), most: pullWake}
	for len(in) > 0 {
		part := in[:min(len(in), piece)]
		deadline()
		wakes.before(4*len(part), 4*len(in))
		if err := readFloats(conn, part); err != nil {
			return answer{}, fmt.Errorf("receive values: %w", err)
		}
		in = in[len(part):]
	}
	end := make([]byte, trailerSize)
	if _, err := io.ReadFull(conn, end); err != nil {
		return answer{}, fmt.Errorf("receive values: %w", err)
	}
	t, err := parseTrailer(end)
	a.torn = t.torn
	return a, err
}

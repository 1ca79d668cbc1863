package ps

import (
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
	grpcstatus "google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	// Between two tries; doubled each time.
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
	// patience is how long a server may leave a call without a byte: the pushes of
	// many workers may stand before this one's. A dead host is found sooner, by keep-alive.
	patience = 2 * time.Minute
	// stride is how much is written or read under one deadline, in elements.
	stride = 1 << 20
)

// peer is the client's end of one server.
type peer struct {
	index   int
	addr    string
	span    param.Range
	dial    wire.Dialer
	control *grpc.ClientConn
	request *wire.DeclareRequest

	initialized atomic.Bool
	version     atomic.Int64 // the newest seen
	pulled      atomic.Bool  // the worker has values of the server, which Init may bring back
	closed      atomic.Bool

	declaring chan struct{} // held by the one who declares
	session   atomic.Uint64

	push, pull link
}

// link is one data connection, opened at its first call and again after an error.
type link struct {
	calling chan struct{} // held by the call
	mu      sync.Mutex
	conn    net.Conn
}

func newPeer(config ClientConfig, index int, span param.Range) (*peer, error) {
	p := &peer{
		index:     index,
		addr:      config.Addresses[index],
		span:      span,
		dial:      config.Dial,
		declaring: make(chan struct{}, 1),
		push:      link{calling: make(chan struct{}, 1)},
		pull:      link{calling: make(chan struct{}, 1)},
		request:   &wire.DeclareRequest{Worker: int32(config.Worker), Server: int32(index), Servers: int32(len(config.Addresses))},
	}
	if p.dial == nil {
		p.dial = wire.TCP
	}
	for _, v := range config.Layout {
		shape := make([]int64, len(v.Shape))
		for i, d := range v.Shape {
			shape[i] = int64(d)
		}
		p.request.Variables = append(p.request.Variables, &wire.Variable{Name: v.Name, Shape: shape, Trainable: v.Trainable, Momentum: v.Momentum})
	}
	var err error
	p.control, err = wire.Connect(p.addr, p.dial)
	if err != nil {
		return nil, p.named(err)
	}
	return p, nil
}

// named says which server err is of.
func (p *peer) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("parameter server %d at %s: %w", p.index, p.addr, err)
}

// part is the server's part of a flat array.
func (p *peer) part(flat []float32) []float32 { return flat[p.span.Start:p.span.End] }

// saw keeps the newest version seen.
func (p *peer) saw(version int64) {
	for {
		old := p.version.Load()
		if version <= old || p.version.CompareAndSwap(old, version) {
			return
		}
	}
}

// answer is what came of a call.
type answer struct {
	reply
	torn bool
}

var (
	errClosed    = errors.New("client is closed")
	errNoSession = errors.New("the server knows no such session")
)

// permanent tells the errors that no retry mends.
func permanent(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrUninitialized) || errors.Is(err, ErrNoSnapshot) || errors.Is(err, errClosed)
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
	p.saw(a.version)
	return a, err
}

// retry calls f until its error is none or permanent, or ctx ends.
func (p *peer) retry(ctx context.Context, f func() error) error {
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := f()
		if p.closed.Load() {
			err = errClosed
		}
		if err == nil || permanent(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// declare opens a session in the place of the one given; nothing is done if it was replaced already.
func (p *peer) declare(ctx context.Context, session uint64) error {
	select {
	case p.declaring <- struct{}{}:
		defer func() { <-p.declaring }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.session.Load() != session {
		return nil
	}
	return p.retry(ctx, func() error {
		r, err := wire.NewParameterServerClient(p.control).Declare(ctx, p.request)
		if grpcstatus.Code(err) == codes.InvalidArgument {
			return fmt.Errorf("%w: %s", ErrRefused, grpcstatus.Convert(err).Message())
		}
		if err != nil {
			return err
		}
		p.session.Store(r.Session)
		p.initialized.Store(r.Initialized)
		p.saw(r.Version)
		return nil
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
	if errors.Is(err, ErrUninitialized) {
		p.initialized.Store(false)
	}
	return a, err
}

// connect returns the link's connection, opened with the session.
func (p *peer) connect(ctx context.Context, l *link) (net.Conn, error) {
	if l.conn != nil {
		return l.conn, nil
	}
	session := p.session.Load()
	conn, err := p.dial(ctx, p.addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_, err = exchange(conn, request{op: opOpen, session: session}, nil, nil)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		if errors.Is(err, errNoSession) {
			err = errors.Join(err, p.declare(ctx, session))
		}
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
	for _, l := range []*link{&p.push, &p.pull} {
		l.mu.Lock()
		if l.conn != nil {
			l.conn.Close() // the call that has it drops it
		}
		l.mu.Unlock()
	}
}

// exchange sends a request with the values out, and reads its reply, whose values, if
// it has any, go into in.
func exchange(conn net.Conn, req request, out, in []float32) (answer, error) {
	deadline := func() { conn.SetDeadline(time.Now().Add(patience)) }
	deadline()
	head := req.appendTo(make([]byte, 0, requestSize))
	first := out[:min(len(out), stride)]
	buffers := net.Buffers{head, wireBytes(first)} // one system call for both
	if _, err := buffers.WriteTo(conn); err != nil {
		return answer{}, fmt.Errorf("send: %w", err)
	}
	for rest := out[len(first):]; len(rest) > 0; {
		part := rest[:min(len(rest), stride)]
		deadline()
		if _, err := conn.Write(wireBytes(part)); err != nil {
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
	case statusUninitialized:
		return a, ErrUninitialized
	case statusNoSnapshot:
		return a, ErrNoSnapshot
	case statusNoSession:
		return a, errNoSession
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
	for len(in) > 0 {
		part := in[:min(len(in), stride)]
		deadline()
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

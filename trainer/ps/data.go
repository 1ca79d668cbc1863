package ps

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// stall is how long a sender may take for the next chunk of values. The others
	// wait that long for one that hangs.
	stall = 2 * time.Second
	// drag is how long a reader may take for the next chunk; it keeps nobody waiting.
	drag = 30 * time.Second
	// resumeWait is how long a server that replaces another waits for a worker that has trained.
	resumeWait = 10 * time.Second
	// afterWait is how long a pull waits for an update before it answers: not yet.
	afterWait = 250 * time.Millisecond
)

// dataConn is the server's end of one data connection.
type dataConn struct {
	server  *Server
	conn    net.Conn
	worker  int // -1 until the connection is opened
	scratch []float32
}

// serve answers requests until the connection ends. The magic of the first is read already.
func (d *dataConn) serve() error {
	head := make([]byte, requestSize)
	for read := copy(head, requestMagic[:]); ; read = 0 {
		if _, err := io.ReadFull(d.conn, head[read:]); err != nil {
			return err
		}
		req, err := parseRequest(head)
		if err != nil {
			return err
		}
		if err := d.answer(req); err != nil {
			return err
		}
	}
}

var errSession = errors.New("no session")

func (d *dataConn) answer(req request) error {
	if (req.op == opOpen) != (d.worker < 0) {
		return errSession
	}
	switch req.op {
	case opOpen:
		return d.opened(req)
	case opInit, opPush:
		if want := 4 * uint64(d.server.span.Len()); req.length != want {
			return fmt.Errorf("payload of %d bytes, want %d", req.length, want)
		}
		if req.op == opInit {
			return d.init(req)
		}
		return d.push(req)
	default:
		return d.pull(req)
	}
}

func (d *dataConn) opened(req request) error {
	s := d.server
	s.mu.Lock()
	worker, ok := s.sessions[req.session]
	s.mu.Unlock()
	if !ok {
		return errors.Join(errSession, d.reply(statusNoSession, ""))
	}
	d.worker = worker
	d.scratch = make([]float32, (replySize+trailerSize)/4+min(chunk, s.span.Len()))
	return d.reply(statusOK, "")
}

// reply answers without values.
func (d *dataConn) reply(st status, text string) error {
	text = text[:min(len(text), maxText)]
	r := reply{status: st, length: uint64(len(text)), version: d.server.Version()}
	d.conn.SetWriteDeadline(time.Now().Add(drag))
	_, err := d.conn.Write(append(r.appendTo(nil), text...))
	return err
}

// init receives the first values.
func (d *dataConn) init(req request) error {
	s := d.server
	if req.version == 0 && s.config.Resume > 0 {
		s.preferTrained()
	}
	if err := s.takeTurn(s.ctx); err != nil {
		return err
	}
	if s.hasValues() {
		s.yieldTurn()
		return errors.Join(d.drain(req.length), d.reply(statusOK, ""))
	}
	bad, err := d.initTurn(req)
	switch {
	case err != nil:
		return err
	case bad != "":
		return d.reply(statusRefused, "value of "+bad)
	}
	return d.reply(statusOK, "")
}

// preferTrained holds up the values of a worker that has just started: where a server
// replaces one, those that have trained are to bring theirs, if any of them lives.
func (s *Server) preferTrained() {
	select {
	case <-s.filled:
	case <-time.After(time.Until(s.started.Add(resumeWait))):
		s.log.Warn("No worker has the values of the server before: starting from initial ones", "version", s.config.Resume)
	case <-s.ctx.Done():
	}
}

// initTurn is init with the turn, which it yields.
func (d *dataConn) initTurn(req request) (bad string, err error) {
	s := d.server
	defer s.yieldTurn()
	s.store.allocate(s.layout, s.span)
	if bad, err = d.receive(s.store.values); bad != "" || err != nil {
		return bad, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rule.start(max(req.version, s.config.Resume))
	s.initialized = true
	close(s.filled)
	return "", nil
}

func (s *Server) hasValues() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialized
}

// push receives a gradient, and gathers it if the rule takes it.
func (d *dataConn) push(req request) error {
	s := d.server
	if !s.hasValues() {
		return errors.Join(d.drain(req.length), d.reply(statusUninitialized, ""))
	}
	if err := s.takeTurn(s.ctx); err != nil {
		return err
	}
	p := push{d.worker, req.version, req.lease, req.done}
	s.mu.Lock()
	v := s.rule.judge(p)
	s.mu.Unlock()
	if v != taken {
		s.yieldTurn()
		st := map[verdict]status{repeated: statusOK, stale: statusStale}[v]
		return errors.Join(d.drain(req.length), d.reply(st, ""))
	}
	bad, err := d.pushTurn(p)
	switch {
	case err != nil:
		return err
	case bad != "":
		return d.reply(statusRefused, "gradient of "+bad)
	}
	return d.reply(statusOK, "")
}

// pushTurn is push with the turn, which it yields.
func (d *dataConn) pushTurn(p push) (bad string, err error) {
	s := d.server
	defer s.yieldTurn()
	if bad, err = d.receive(s.store.room()); bad == "" && err == nil {
		s.gather(p)
	}
	return bad, err
}

// receive fills x. If it is not finite, bad says where.
func (d *dataConn) receive(x []float32) (bad string, err error) {
	for a := 0; a < len(x); a += chunk {
		part := x[a:min(a+chunk, len(x))]
		d.conn.SetReadDeadline(time.Now().Add(stall))
		if err := readFloats(d.conn, part); err != nil {
			return "", fmt.Errorf("receive values: %w", err)
		}
		if bad == "" {
			bad = notFinite(d.server.layout, d.server.span.Start+a, part)
		}
	}
	return bad, d.conn.SetReadDeadline(time.Time{})
}

// drain reads a payload that has no effect.
func (d *dataConn) drain(length uint64) error {
	for length > 0 {
		b := raw(d.scratch)
		b = b[:min(length, uint64(len(b)))]
		d.conn.SetReadDeadline(time.Now().Add(stall))
		if _, err := io.ReadFull(d.conn, b); err != nil {
			return fmt.Errorf("drain values: %w", err)
		}
		length -= uint64(len(b))
	}
	return d.conn.SetReadDeadline(time.Time{})
}

// pull sends the values, or a snapshot of them.
func (d *dataConn) pull(req request) error {
	s := d.server
	if !s.hasValues() {
		return d.reply(statusUninitialized, "")
	}
	if req.flags&flagFlush != 0 {
		if err := s.flush(s.ctx); err != nil {
			return err
		}
	}
	if req.snapshot != 0 && req.snapshot != s.Snapshot() {
		return d.reply(statusNoSnapshot, "")
	}
	if !s.await(func() bool {
		return req.flags&flagAfter != 0 && s.rule.waits(d.worker) || req.flags&flagWhole != 0 && s.updating
	}) {
		return d.reply(statusWait, "")
	}
	return d.send(req.snapshot)
}

// await waits until busy, which is asked with mu held at each update, is false; not longer than afterWait.
func (s *Server) await(busy func() bool) bool {
	var limit <-chan time.Time
	for {
		s.mu.Lock()
		wait, changed := busy(), s.changed
		s.mu.Unlock()
		if !wait {
			return true
		}
		if limit == nil {
			limit = time.After(afterWait)
		}
		select {
		case <-changed:
		case <-limit:
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// send copies the values chunk by chunk, each under the lock, and writes them
// without it.
func (d *dataConn) send(snapshot int64) error {
	s := d.server
	n := s.span.Len()
	begin, torn := s.moment()
	out := reply{status: statusOK, length: 4 * uint64(n), version: begin}.appendTo(raw(d.scratch)[:0])
	for a := 0; ; a += chunk {
		b := min(a+chunk, n)
		if !s.store.read(d.scratch[replySize/4:][:b-a], a, snapshot) {
			return fmt.Errorf("send snapshot %d: released meanwhile", snapshot)
		}
		values := raw(d.scratch)[replySize:][:4*(b-a)]
		if !littleEndian {
			swap(values)
		}
		out = out[:len(out)+len(values)]
		if b == n {
			end, updating := s.moment()
			torn = snapshot == 0 && (torn || updating || begin != end)
			out = trailer{torn, end}.appendTo(out)
		}
		d.conn.SetWriteDeadline(time.Now().Add(drag))
		if _, err := d.conn.Write(out); err != nil {
			return err
		}
		if b == n {
			return nil
		}
		out = raw(d.scratch)[replySize:replySize]
	}
}

// moment is the version, and whether an update is being applied.
func (s *Server) moment() (version int64, updating bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rule.version, s.updating
}

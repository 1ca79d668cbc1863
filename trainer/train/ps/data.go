package ps

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

const (
	// stall limits a sender's time for the next chunk of values. The others wait that long for one
	// that hangs.
	stall = 2 * time.Second
	// drag limits a reader's time for the next chunk; it keeps nobody waiting.
	drag = 30 * time.Second
	// leastRate is the minimum rate of a sender, in bytes per second: it keeps the others waiting.
	leastRate = 1 << 20
	// afterWait limits a pull's wait for an update before it answers: not yet.
	afterWait = 250 * time.Millisecond
)

// dataConn is the server's end of one data connection.
type dataConn struct {
	server *Server
	// as it was accepted
	raw net.Conn
	// what is reported
	conn net.Conn
	// who has dialled
	peer identity.Name
	// is called when the worker has said who it is
	known  func()
	opened bool
	worker int
	// in which it was opened: it serves no other
	modelGeneration int64
	// of raw, if values are not encrypted, else nil
	plain syscall.RawConn
	// nil: values are copied, and then written
	direct *direct
}

// portion is the number of values that are sent at a time: 128 KB, as much as TLS writes at a time.
const portion = 32 << 10

// frame has room for the head of a reply, a portion of values, and a trailer.
type frame [(replySize+trailerSize)/4 + portion]float32

// frames are of those connections that send values at the moment: most are idle at most times.
var frames = sync.Pool{New: func() any { return new(frame) }}

// serve answers requests until the connection ends.
func (d *dataConn) serve() error {
	head := make([]byte, requestSize)
	for {
		if _, err := io.ReadFull(d.conn, head); err != nil {
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

var (
	errUnopened        = errors.New("the connection was not opened before this request, or was opened twice")
	errModelGeneration = errors.New("the model has started over")
)

func (d *dataConn) answer(req request) error {
	if (req.op == opOpen) == d.opened {
		return errUnopened
	}
	switch req.op {
	case opOpen:
		return d.open(req)
	case opPush:
		if want := 4 * uint64(d.server.span.Len()); req.length != want {
			return fmt.Errorf("payload of %d bytes, want %d", req.length, want)
		}
		return d.push(req)
	default:
		return d.pull(req)
	}
}

// open reads who the worker is. The deadline of the greeting stands until then, and no memory is
// taken.
func (d *dataConn) open(req request) error {
	s := d.server
	text := make([]byte, req.length)
	if _, err := io.ReadFull(d.conn, text); err != nil {
		return err
	}
	self := s.self.Header()
	caller, err := identity.Parse(text)
	if err == nil {
		err = identity.Admit(self, caller, d.peer, pod.Worker)
	}
	if err != nil {
		return errors.Join(err, d.refuse(reply{status: statusRefused}, err.Error()))
	}
	if err := d.enter(caller); err != nil {
		return err
	}
	return d.refuse(reply{status: statusOK}, string(self.Append(nil)))
}

// enter makes the connection one of the server's generation, if the worker is in that.
func (d *dataConn) enter(caller identity.Header) error {
	s := d.server
	s.mu.Lock()
	modelGeneration := s.modelGeneration
	if caller.ModelGeneration == modelGeneration {
		s.data[d.raw] = true
	}
	s.mu.Unlock()
	if caller.ModelGeneration != modelGeneration {
		return errors.Join(errModelGeneration,
			d.refuse(reply{status: statusModelGeneration, detail: modelGeneration}, ""))
	}
	d.known()
	d.opened, d.worker, d.modelGeneration = true, caller.Index, modelGeneration
	return d.conn.SetDeadline(time.Time{})
}

// reply answers without values.
func (d *dataConn) reply(st status) error { return d.refuse(reply{status: st}, "") }

// refuse answers with a text.
func (d *dataConn) refuse(r reply, text string) error {
	text = text[:min(len(text), maxText)]
	r.length, r.version = uint64(len(text)), d.server.Version()
	d.conn.SetWriteDeadline(time.Now().Add(drag))
	_, err := d.conn.Write(append(r.appendTo(nil), text...))
	return err
}

// current reports whether the generation which the connection was opened in is the server's. The
// caller holds mu.
func (d *dataConn) current() bool { return d.modelGeneration == d.server.modelGeneration }

// push receives a gradient, and gathers it if the rule takes it.
func (d *dataConn) push(req request) error {
	s := d.server
	p := push{d.worker, req.version, ledger.Task{Epoch: req.epoch, Number: int(req.task)}, req.from, req.to, req.of}
	if err := s.enter(p); err != nil {
		return err
	}
	s.mu.Lock()
	current, v, done := d.current(), s.rule.judge(p), s.rule.done(p.task)
	s.mu.Unlock()
	if current {
		s.config.Meter.judged(v)
		defer s.config.Meter.Received.Add(int64(req.length))
	}
	switch {
	case !current:
		s.yieldTurn()
		return errModelGeneration
	case v != accepted:
		s.yieldTurn()
		r := map[verdict]reply{repeated: {status: statusOK}, cut: {status: statusCut, detail: done},
			stale: {status: statusStale}}[v]
		return errors.Join(d.drain(req.length), d.refuse(r, ""))
	}
	bad, err := d.pushTurn(p)
	switch {
	case err != nil:
		return err
	case bad != "":
		return d.refuse(reply{status: statusRefused}, "gradient of "+bad)
	}
	return d.reply(statusOK)
}

// pushTurn does what push does with the turn, which it yields.
func (d *dataConn) pushTurn(p push) (bad string, err error) {
	s := d.server
	defer s.yieldTurn()
	if bad, err = d.receive(s.store.room()); bad == "" && err == nil {
		s.gather(p)
		s.copyCut()
	}
	return bad, err
}

// receive fills x. If it is not finite, bad says where.
func (d *dataConn) receive(x []float32) (bad string, err error) {
	latest := time.Now().Add(stall + time.Duration(4*len(x))*time.Second/leastRate)
	wakes := wakes{socket: d.plain, most: pushWake}
	for a := 0; a < len(x); a += chunk {
		part := x[a:min(a+chunk, len(x))]
		by := time.Now().Add(stall)
		if latest.Before(by) {
			by = latest
		}
		d.conn.SetReadDeadline(by)
		wakes.before(4*len(part), 4*(len(x)-a))
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
	f := frames.Get().(*frame)
	defer frames.Put(f)
	for length > 0 {
		b := param.Bytes(f[:])
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
	if req.snapshot != 0 && req.snapshot != s.Snapshot() {
		return d.reply(statusNoSnapshot)
	}
	if !s.await(func() bool {
		return d.current() && (req.flags&flagAfter != 0 && s.rule.waits(d.worker) ||
			req.flags&flagWhole != 0 && s.updating)
	}) {
		return d.reply(statusWait)
	}
	return d.send(req.snapshot)
}

// await waits until busy, which is asked with mu held at each update, is false; not longer than
// afterWait.
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

// sending is the answer to a pull.
type sending struct {
	// of the store, with which it began
	snapshot int64
	begun    int
	version  int64
	torn     bool
}

// send sends the values, or a snapshot of them.
func (d *dataConn) send(snapshot int64) error {
	s := d.server
	p := sending{snapshot: snapshot, begun: s.store.times()}
	p.version, p.torn = s.moment()
	if err := d.checkModelGeneration(); err != nil {
		return err
	}
	if d.direct != nil && s.span.Len() > chunk {
		return d.sendDirectly(p)
	}
	return d.sendCopies(p)
}

// head returns what is before the values.
func (d *dataConn) head(p sending) reply {
	return reply{status: statusOK, length: 4 * uint64(d.server.span.Len()), version: p.version}
}

// end returns what is after the values.
func (d *dataConn) end(p sending) trailer {
	version, updating := d.server.moment()
	return trailer{p.snapshot == 0 && (p.torn || updating || p.version != version), version}
}

// sent counts values, or returns that they were not there any more.
func (d *dataConn) sent(p sending, n int, there bool) error {
	if !there {
		return fmt.Errorf("send snapshot %d of generation %d: closed meanwhile", p.snapshot, d.modelGeneration)
	}
	d.server.config.Meter.Sent.Add(int64(4 * n))
	return nil
}

// sendCopies copies the values portion by portion, each under the lock, and writes them without it.
func (d *dataConn) sendCopies(p sending) error {
	n := d.server.span.Len()
	f := frames.Get().(*frame)
	defer frames.Put(f)
	out := d.head(p).appendTo(param.Bytes(f[:])[:0])
	for a := 0; ; a += portion {
		b := min(a+portion, n)
		part := f[replySize/4:][:b-a]
		there := d.server.store.read(part, a, p.snapshot, p.begun)
		if err := d.sent(p, len(part), there); err != nil {
			return err
		}
		// to the order of the wire is the same turn
		param.Decode(part)
		out = out[:len(out)+4*len(part)]
		if b == n {
			out = d.end(p).appendTo(out)
		}
		d.conn.SetWriteDeadline(time.Now().Add(drag))
		if _, err := d.conn.Write(out); err != nil || b == n {
			return err
		}
		out = param.Bytes(f[:])[replySize:replySize]
	}
}

// sendDirectly has the kernel copy the values, chunk by chunk, each under the lock.
func (d *dataConn) sendDirectly(p sending) error {
	d.conn.SetWriteDeadline(time.Now().Add(drag))
	if _, err := d.conn.Write(d.head(p).appendTo(nil)); err != nil {
		return err
	}
	for a, n := 0, d.server.span.Len(); a < n; a += chunk {
		b := min(a+chunk, n)
		d.conn.SetWriteDeadline(time.Now().Add(drag))
		there, err := d.direct.send(&d.server.store, a, b, p.snapshot, p.begun)
		if err = cmp.Or(err, d.sent(p, b-a, there)); err != nil {
			return err
		}
	}
	_, err := d.conn.Write(d.end(p).appendTo(nil))
	return err
}

// checkModelGeneration returns an error if the connection's generation is over.
func (d *dataConn) checkModelGeneration() error {
	d.server.mu.Lock()
	defer d.server.mu.Unlock()
	if !d.current() {
		return errModelGeneration
	}
	return nil
}

// moment returns the version, and whether an update is being applied.
func (s *Server) moment() (version int64, updating bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rule.version, s.updating
}

package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/leases"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// scripts serves the processes that use the Python package. The protocol is
// trainer/run/python/PROTOCOL.md.
type scripts struct {
	listener Listener
	records  *records
	// connects to the store of a world
	dial func(ctx context.Context, address string) (net.Conn, error)
	// passes a message to the loop; it does not block
	heard func(message)
	// returns when the master would have reported any member that was lost before a time
	unexplained func(ctx context.Context, asked time.Time) error
	group       sync.WaitGroup
	// ended by close
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	conns map[*script]bool
	// number of the newest connection
	last  int
	world served
}

// served is the world whose store the processes can use.
type served struct {
	generation int64
	// address of its store
	address string
	// ends with the world
	ctx context.Context
}

// script is the connection of one process.
type script struct {
	owner  *scripts
	number int
	conn   Connection
	// pid of the process, and of its session leader
	pid, leader int
	// hello and last arrival of the process; only the loop uses them
	hello   helloMessage
	arrived arriveMessage

	// guards writes to conn
	mu sync.Mutex
}

// message is a message of a process for the loop, or [closed] when the connection has ended.
type message struct {
	from *script
	inbound
}

// closed is the event of a connection's end, after all its messages.
type closed struct{}

// endedLimit is the time limit for announcing to the other processes that one has ended.
const endedLimit = 2 * time.Second

// writeLimit is the time limit for a write to a process that does not read.
const writeLimit = 5 * time.Second

// mostLine is the maximum length of a message in bytes. The largest one has the ledger of an open
// epoch as text.
const mostLine = 64 << 20

// newScripts serves the connections of a listener, which it closes.
func newScripts(l Listener, dial func(context.Context, string) (net.Conn, error), r *records,
	unexplained func(context.Context, time.Time) error, heard func(message)) *scripts {
	s := &scripts{listener: l, dial: dial, records: r, unexplained: unexplained, heard: heard,
		conns: make(map[*script]bool)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.group.Go(s.accept)
	return s
}

// serve lets the processes use the store of a world until ctx ends.
func (s *scripts) serve(ctx context.Context, generation int64, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world = served{generation, address, ctx}
}

// served returns the world whose store the processes can use.
func (s *scripts) served() served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world
}

// close closes the listener and all connections, and waits for what serves them.
func (s *scripts) close() {
	s.cancel()
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

// accept takes connections until the listener is closed.
func (s *scripts) accept() {
	for {
		var conn Connection
		// retry: an error may mean that file descriptors are used up for now
		err := membership.Retry(s.ctx, func() (err error) {
			if conn, err = s.listener.Accept(); errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		})
		if err != nil || conn == nil {
			return
		}
		s.group.Go(func() { s.attend(conn) })
	}
}

// attend serves a connection until it ends.
func (s *scripts) attend(conn Connection) {
	c := &script{owner: s, conn: conn}
	c.pid, c.leader = conn.Peer()
	s.mu.Lock()
	s.last++
	c.number = s.last
	s.conns[c] = true
	s.mu.Unlock()
	c.read()
	conn.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.heard(message{c, closed{}})
}

// read handles messages until the connection ends.
func (c *script) read() {
	lines := bufio.NewScanner(c.conn)
	lines.Buffer(nil, mostLine)
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for greeted := false; lines.Scan(); {
		m, q, err := parse(lines.Bytes())
		_, hello := m.(helloMessage)
		switch greeted = greeted || hello; {
		case err != nil && (!greeted || q == nil):
			c.say(endMessage{Code: 1, Why: "malformed message: " + err.Error()})
			return
		case !greeted:
			return
		case err != nil:
			c.write(answer(*q, nil, err))
			continue
		}
		if asked := c.take(m); asked && q != nil {
			at := time.Now()
			asking.Go(func() {
				ok, err := c.execute(ctx, m, at)
				c.write(answer(*q, ok, err))
			})
		}
	}
}

// take handles a message that needs no answer. It reports true, and does nothing, for a request.
func (c *script) take(m inbound) (asked bool) {
	switch m := m.(type) {
	case request, operation:
		return true
	case beatMessage:
		if m.Spent != nil {
			c.owner.records.spents.add(c.number, *m.Spent)
		}
	case roundMessage:
		if c.owner.records.round(c, m) {
			c.owner.heard(message{c, m})
		}
	case metMessage:
		c.owner.records.met(c)
		c.owner.heard(message{c, m})
	case stateMessage:
		c.owner.records.receivedState(c, m.Leases)
	default:
		c.owner.heard(message{c, m})
	}
	return false
}

// execute executes a request that was received at a time, and returns its result.
func (c *script) execute(ctx context.Context, m inbound, at time.Time) (any, error) {
	switch m := m.(type) {
	case request:
		return m.answer(ctx, c, at)
	case operation:
		return c.owner.inWorld(ctx, m.generation(), func(ctx context.Context, world served) (any, error) {
			return c.owner.operate(ctx, world.address, m)
		})
	}
	panic(fmt.Sprintf("agent: %T is no request", m))
}

// say sends a message.
func (c *script) say(m outbound) { c.write(encode(m)) }

// write writes a line. It closes the connection if the process does not read for writeLimit.
func (c *script) write(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	if _, err := c.conn.Write(line); err != nil {
		c.conn.Close()
	}
}

// errOver answers requests that belong to a world that has ended.
var errOver = errors.New("the world has ended")

// ended announces to the members of a world that a process which has not used the Python package
// has exited with 0: members that use the package would wait for it.
func (s *scripts) ended(generation int64, rank int) {
	world := s.served()
	if world.generation != generation {
		return
	}
	s.group.Go(func() {
		ctx, cancel := context.WithTimeout(world.ctx, endedLimit)
		defer cancel()
		for _, key := range []string{fmt.Sprint("elasticdl/ended/", rank), "elasticdl/ended/any",
			fmt.Sprint("elasticdl/come/", rank)} {
			if _, err := s.operate(ctx, world.address, setRequest{Key: key}); err != nil {
				return // the world has ended
			}
		}
	})
}

func (m leaseRequest) answer(ctx context.Context, c *script, at time.Time) (any, error) {
	r := c.owner.records
	a := r.ask(c, at)
	if a.Kind == leases.AskMaster {
		grant, err := r.lease(ctx)
		if why := refused(err); why != nil {
			return nil, why
		}
		a = r.answered(c, grant, err, time.Now())
	}
	return grantReply(a)
}

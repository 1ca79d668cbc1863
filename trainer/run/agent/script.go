package agent

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
)

// scripts serves the processes that keep their state, by the protocol of
// trainer/run/python/PROTOCOL.md.
type scripts struct {
	listener net.Listener
	records  *records
	// passes a message to the loop; it does not block
	heard func(message)
	// returns when the master, had it lost a member, would have said so
	unexplained func(ctx context.Context) error
	group       sync.WaitGroup

	mu    sync.Mutex
	conns map[*script]bool
	world served
}

// served is the world whose store is served.
type served struct {
	formation int64
	address   string
	ctx       context.Context // ends with the world
}

// script is the connection of one process.
type script struct {
	owner *scripts
	conn  net.Conn
	// of the process
	pid int
	// pid of the leader of its session, which the agent has started
	leader int
	// it has said hello
	greeted bool
	// the process enters the next world with its state
	keeps bool
	// the connection has ended, and all its messages are handled; only the loop uses it
	ended bool

	// guards writing
	mu sync.Mutex
}

// message is a message of a process for the loop: hello, arrive, met, the first round of a world,
// account, saved, rest, doubt, done, or "" when its connection has ended.
type message struct {
	from *script
	word
}

// word is a message of a script, with the fields of all kinds.
type word struct {
	Op string `json:"op"`
	Q  *int64 `json:"q"`

	Survives bool   `json:"survives"`
	Backend  string `json:"backend"`
	Torch    string `json:"torch"`

	Formation int64 `json:"formation"`
	Round     int64 `json:"round"`
	// the state was read from the program's own checkpoint, and is of no world
	Read    bool       `json:"read"`
	Ledger  [][3]int64 `json:"ledger"`
	Settled int        `json:"settled"`
	Why     string     `json:"why"`
	Path    string     `json:"path"`

	Leases [][2]int64 `json:"leases"`
	Loss   *float32   `json:"loss"`

	Size           int64  `json:"size"`
	Epochs         int32  `json:"epochs"`
	Shuffle        bool   `json:"shuffle"`
	Seed           uint64 `json:"seed"`
	RecordsPerTask int64  `json:"records_per_task"`

	F  int64    `json:"f"`
	K  string   `json:"k"`
	Ks []string `json:"ks"`
	// a text in requests to the store; the version in hello
	V any    `json:"v"`
	E string `json:"e"`
	N int64  `json:"n"`
}

// parse decodes the line of a message, and checks that the master can take its ledger.
func parse(line []byte) (w word, err error) {
	if err = json.Unmarshal(line, &w); err != nil {
		return w, err
	}
	for _, s := range w.Ledger {
		if s[0] < 0 || s[0] >= math.MaxInt32 || s[1] < 0 || s[1] >= ledger.MaxTasks || s[2] < 0 {
			return w, fmt.Errorf("a ledger of %v: expected an epoch, a task and its records, none below 0", s)
		}
	}
	return w, nil
}

// endedLimit is how long the agent tries to tell the others that a process has ended.
const endedLimit = 2 * time.Second

// mostLine is the largest length of a message in bytes: that of the ledger of an open epoch, as
// text.
const mostLine = 64 << 20

// newScripts listens in a directory of the agent's own.
func newScripts(dir string, r *records, unexplained func(context.Context) error,
	heard func(message)) (*scripts, error) {
	l, err := net.Listen("unix", filepath.Join(dir, "agent.sock"))
	if err != nil {
		return nil, fmt.Errorf("listen for the program's processes: %w", err)
	}
	s := &scripts{listener: l, records: r, unexplained: unexplained, heard: heard, conns: make(map[*script]bool)}
	s.group.Go(s.accept)
	return s, nil
}

// address returns the value of ELASTICDL_SOCKET.
func (s *scripts) address() string { return s.listener.Addr().String() }

// serve lets the processes use the store of a world until ctx ends.
func (s *scripts) serve(ctx context.Context, formation int64, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world = served{formation, address, ctx}
}

// close ends all connections.
func (s *scripts) close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

func (s *scripts) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // file descriptors may become free
			continue
		}
		c := &script{owner: s, conn: conn}
		c.pid, c.leader = peerOf(conn)
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.group.Go(func() {
			c.read()
			conn.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			s.heard(message{from: c})
		})
	}
}

// read takes messages until the connection ends.
func (c *script) read() {
	lines := bufio.NewScanner(c.conn)
	lines.Buffer(nil, mostLine)
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for lines.Scan() {
		w, err := parse(lines.Bytes())
		if err != nil {
			c.say(map[string]any{"op": "end", "code": 1, "why": "malformed message: " + err.Error()})
			return
		}
		switch {
		case w.Op == "hello":
			c.greeted, c.keeps = true, w.Survives
			c.owner.heard(message{c, w})
		case !c.greeted:
			return
		case w.Op == "round":
			if c.owner.records.round(c, w) {
				c.owner.heard(message{c, w})
			}
		case w.Op == "met":
			c.owner.records.met(c)
			c.owner.heard(message{c, w})
		case w.Op == "had":
			c.owner.records.receivedState(c, w.Leases)
		case w.Op == "beat":
		case w.Q != nil:
			asking.Go(func() { c.answer(*w.Q, func() (any, error) { return c.ask(ctx, w) }) })
		default:
			c.owner.heard(message{c, w})
		}
	}
}

// drain lets the connection end as soon as all is read that its process had sent: children of the
// process may have it, too.
func (c *script) drain() {
	if conn, ok := c.conn.(*net.UnixConn); ok {
		conn.CloseRead() // it fails if the connection has ended
	}
}

// answer sends the reply to a request.
func (c *script) answer(q int64, ask func() (any, error)) {
	ok, err := ask()
	if err != nil {
		c.say(map[string]any{"q": q, "err": err.Error(), "cancelled": errors.Is(err, errOver)})
		return
	}
	c.say(map[string]any{"q": q, "ok": ok})
}

// errOver answers requests that belong to a world that has ended.
var errOver = errors.New("the world has ended")

// say sends a message. It does not wait long for a process that does not read.
func (c *script) say(m map[string]any) {
	line, err := json.Marshal(m)
	if err != nil {
		return // cannot happen: m holds numbers and texts
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		c.conn.Close()
	}
}

// ask executes a request and returns its result.
func (c *script) ask(ctx context.Context, w word) (any, error) {
	switch w.Op {
	case "checkpoint":
		claim, err := c.owner.records.claim(ctx, w.Path)
		return map[string]any{"claim": claim}, err
	case "dataset":
		return map[string]any{}, c.owner.records.declare(ctx, w)
	case "lease":
		return c.owner.records.lease(ctx, c)
	}
	return c.owner.inWorld(ctx, w)
}

// inWorld executes a request that belongs to a world, until the world ends.
func (s *scripts) inWorld(ctx context.Context, w word) (any, error) {
	s.mu.Lock()
	world := s.world
	s.mu.Unlock()
	if world.formation != w.F || world.ctx.Err() != nil {
		return nil, errOver
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(world.ctx, cancel)()
	var ok any
	var err error
	if w.Op == "explain" {
		err = s.unexplained(ctx)
	} else {
		ok, err = store(ctx, world.address, w)
	}
	if err != nil && world.ctx.Err() != nil {
		return nil, errOver
	}
	return ok, err
}

// ended tells the members of a world that a process has ended with 0 without having used the
// package: those that use it would wait for it.
func (s *scripts) ended(formation int64, rank int) {
	s.mu.Lock()
	world := s.world
	s.mu.Unlock()
	if world.formation != formation {
		return
	}
	s.group.Go(func() {
		ctx, cancel := context.WithTimeout(world.ctx, endedLimit)
		defer cancel()
		for _, key := range []string{fmt.Sprint("elasticdl/ended/", rank), "elasticdl/ended/any",
			fmt.Sprint("elasticdl/come/", rank)} {
			if _, err := store(ctx, world.address, word{Op: "set", K: key}); err != nil {
				return // the world is at its end
			}
		}
	})
}

// store executes an operation on the store of a world. Each has its own connection, as some wait.
func store(ctx context.Context, address string, w word) (any, error) {
	client, err := tcpstore.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return operate(ctx, client, w)
}

func operate(ctx context.Context, c *tcpstore.Client, w word) (any, error) {
	encoded, _ := w.V.(string) // an absent value is empty
	value, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("the value of %q: %w", w.K, err)
	}
	text := func(b []byte, err error) (any, error) { return base64.StdEncoding.EncodeToString(b), err }
	switch w.Op {
	case "set":
		if err = c.Set(ctx, w.K, value); err == nil {
			// its answer proves that the write before is applied
			_, err = c.Check(ctx, w.K)
		}
		return nil, err
	case "get":
		return text(c.Get(ctx, w.K))
	case "wait":
		return nil, c.Wait(ctx, w.Ks...)
	case "check":
		return c.Check(ctx, w.Ks...)
	case "add":
		return c.Add(ctx, w.K, w.N)
	case "compare_set":
		expected, err := base64.StdEncoding.DecodeString(w.E)
		if err != nil {
			return nil, fmt.Errorf("the expected value of %q: %w", w.K, err)
		}
		return text(c.CompareSet(ctx, w.K, expected, value))
	case "delete":
		return c.Delete(ctx, w.K)
	case "num":
		return c.Keys(ctx)
	}
	return nil, fmt.Errorf("unknown request %q", w.Op)
}

// environment returns the environment variables by which a process finds the agent.
func (a *agent) environment() []string {
	paths := filepath.Join(a.dir, "python")
	if before := os.Getenv("PYTHONPATH"); before != "" {
		paths += string(os.PathListSeparator) + before
	}
	env := []string{"ELASTICDL_SOCKET=" + a.scripts.address(), "PYTHONPATH=" + paths}
	if os.Getenv("WORKER_NUM") == "" {
		env = append(env, "WORKER_NUM="+strconv.Itoa(a.Job.NumWorkers))
	}
	if n := a.Job.NumMinibatchesPerTask; n > 0 { // for elasticai_api
		env = append(env, "ELASTICDL_NUM_MINIBATCHES_PER_TASK="+strconv.Itoa(n))
	}
	return env
}

package trainer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/agent"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// machine runs the simulated processes of one agent. It is the agent's backend, and the program
// that it starts. The mutex guards what changes.
type machine struct {
	*simulation
	pod *process
	// of the agent: what is drawn or named goes by this number, so that a seed is replayed whatever
	// happens at the same time
	number int
	// of the listener for the processes of the program
	address string
	random  *rand.Rand

	mu sync.Mutex
	// it was lost, with all its processes
	lost bool
	// the agent has returned
	left bool
	// when the fork server has imported what it has to
	warm time.Time
	// a forked process has crashed: the others are started without a fork server
	unforked bool
	// of processes killed as memory was used up
	ooms int
	// stores that were listened for, and processes that were started
	stores, started int
	procs           []*fakeProcess

	attendance
}

// errLost is the error of an agent whose machine is lost.
var errLost = errors.New("the machine is lost")

// runAgent is the agent itself, on a simulated machine.
func (s *simulation) runAgent(ctx context.Context, it *process) error {
	p := s.program
	m := &machine{simulation: s, pod: it, attendance: attendance{absent: make(map[int]*absence)}}
	s.note(func() {
		p.starts[it.ID.Index]++
		m.number = it.ID.Index*mostStarts + p.starts[it.ID.Index]
	})
	m.address = fmt.Sprintf("%s.%d/agent", it.host.name, m.number)
	m.random = s.source(it.host.name, m.number, "machine")
	defer context.AfterFunc(ctx, m.lose)()
	who := self(it.ID, it.Incarnation)
	client, closing, err := s.master(it.host, who)
	if err != nil {
		return err
	}
	defer closing()
	client.arrives, client.regranted = m.arrives, m.regranted
	m.begins()
	defer m.ends()
	joined, err := membership.Member{Master: client, Self: who, Leave: it.leave}.Join(ctx)
	if err == nil {
		err = agent.Run(ctx, agent.Config{
			Job: joined.Job, Keeps: joined.Keeps, Self: who, Master: client, Host: it.host.name, Processors: 4,
			Workers: 1, Leave: it.leave, Grace: scriptGrace, Output: io.Discard, Log: s.log(it.host.name), Backend: m,
			Open: func(_ context.Context, place string) (checkpoint.Files, error) {
				return checkpoint.Local(place), nil
			},
		})
	}
	m.mu.Lock()
	m.left = true
	m.mu.Unlock()
	if alive := m.living(); len(alive) > 0 && ctx.Err() == nil {
		s.note(func() { s.complain("%s has ended (%v), and its process %d runs", it.host.name, err, alive[0].pid) })
	}
	m.lose()
	return err
}

// mostStarts is more than how often the agent of a pod is started, or the processes and stores of
// an agent.
const mostStarts = 1000

// scriptGrace is the time in which processes end after SIGTERM when their worker is asked to
// leave.
const scriptGrace = 20 * time.Second

// lose loses the machine: everything on it ends at once.
func (m *machine) lose() {
	m.mu.Lock()
	m.lost = true
	m.mu.Unlock()
	for _, p := range m.living() {
		p.kill()
	}
}

// living returns the processes that run, in the order of their starts.
func (m *machine) living() (all []*fakeProcess) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		if p.lives() {
			all = append(all, p)
		}
	}
	return all
}

// rand returns a random number below n.
func (m *machine) rand(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

// within returns a random duration.
func (m *machine) within(least, most time.Duration) time.Duration {
	return least + time.Duration(m.rand(int(most-least)))
}

// Listen implements agent.Backend.
func (m *machine) Listen(context.Context) (agent.Listener, error) {
	return connections{m.network.listen(m.pod.host, m.address), m}, nil
}

// connections are those of the processes of a machine.
type connections struct {
	net.Listener
	machine *machine
}

func (c connections) Accept() (agent.Connection, error) {
	inner, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{closeReader: inner.(closeReader), machine: c.machine}, nil
}

type closeReader interface {
	net.Conn
	CloseRead() error
}

// connection is that of a process to its agent. It begins with the pid of the process.
type connection struct {
	closeReader
	machine *machine
	from    *fakeProcess
}

// Peer implements agent.Connection.
func (c *connection) Peer() (pid, leader int) {
	var number uint32
	if binary.Read(c.closeReader, binary.BigEndian, &number) != nil {
		return 0, 0
	}
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	i := slices.IndexFunc(c.machine.procs, func(p *fakeProcess) bool { return p.pid == int(number) })
	if i < 0 {
		return 0, 0
	}
	c.from = c.machine.procs[i]
	if !c.from.lives() {
		return int(number), 0
	}
	return int(number), int(number)
}

// Ended implements agent.Connection.
func (c *connection) Ended() bool { return c.from == nil || !c.from.lives() }

// Load implements agent.Backend.
func (m *machine) Load(ctx context.Context) (agent.Program, error) {
	sleep(ctx, m.within(0, m.program.fetch+time.Millisecond))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m.importTorch()
	return code{m}, nil
}

// importTorch starts a fork server, which takes a while to import torch.
func (m *machine) importTorch() {
	d := m.within(100*time.Millisecond, m.program.imports+200*time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warm = time.Now().Add(d)
}

// address is that of a listener.
type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

// addressed is a listener that knows its address.
type addressed struct {
	net.Listener
	address
}

func (a addressed) Addr() net.Addr { return a.address }

// ListenStore implements agent.Backend.
func (m *machine) ListenStore() (net.Listener, error) {
	m.mu.Lock()
	m.stores++
	where := fmt.Sprintf("%s:%d", m.pod.host.name, m.number*mostStarts+m.stores)
	m.mu.Unlock()
	return addressed{m.network.listen(m.pod.host, where), address(where)}, nil
}

// DialStore implements agent.Backend.
func (m *machine) DialStore(ctx context.Context, address string) (net.Conn, error) {
	return m.network.dial(m.pod.host)(ctx, address)
}

// Close implements agent.Backend.
func (m *machine) Close() {}

// code is the program of a machine.
type code struct{ *machine }

// Close implements agent.Program. It returns when nothing of the processes is left.
func (c code) Close() {
	for _, p := range c.living() {
		p.kill()
	}
}

// Ready implements agent.Program.
func (c code) Ready(ctx context.Context) { c.awaitImports(ctx) }

// awaitImports returns when processes can be started, and reports whether they are forked.
func (m *machine) awaitImports(ctx context.Context) bool {
	for {
		m.mu.Lock()
		left, unforked := time.Until(m.warm), m.unforked
		m.mu.Unlock()
		if left <= 0 || unforked || ctx.Err() != nil {
			return !unforked
		}
		sleep(ctx, left)
	}
}

// Stopped implements agent.Program.
func (c code) Stopped(pids []int) (all []int) {
	for _, p := range c.living() {
		if slices.Contains(pids, p.pid) && p.isFrozen() {
			all = append(all, p.pid)
		}
	}
	return all
}

// Checkpoint implements agent.Program.
func (c code) Checkpoint() (newest time.Time) {
	c.note(func() { newest = c.program.touched })
	return newest
}

// OOMKills implements agent.Program.
func (c code) OOMKills() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ooms
}

// Cores implements agent.Program. Processes compute: whatever they do, the master must not suspect
// that they hang.
func (c code) Cores(_ time.Time, pids []int) map[int]float64 {
	cores := make(map[int]float64)
	for _, pid := range pids {
		cores[pid] = 1
	}
	return cores
}

// Vitals implements agent.Program.
func (c code) Vitals(pids []int) map[int]program.Vital {
	vitals := make(map[int]program.Vital)
	for _, p := range c.living() {
		if slices.Contains(pids, p.pid) {
			vitals[p.pid] = program.Vital{Ready: true, Held: p.isFrozen()}
		}
	}
	return vitals
}

// Start implements agent.Program.
func (c code) Start(ctx context.Context, position program.Position) (agent.Group, error) {
	m := c.machine
	forked := m.awaitImports(ctx)
	// so a start takes no time that is known
	sleep(ctx, m.within(time.Millisecond, 30*time.Millisecond))
	g := &group{exits: make(chan program.Exit, len(position.Locals)), left: len(position.Locals)}
	for _, local := range position.Locals {
		m.program.check(m, position)
		p := m.newProcess(g, position, local, forked)
		g.procs = append(g.procs, p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost {
		return nil, errLost
	}
	for _, p := range g.procs {
		m.procs = append(m.procs, p)
		m.pods.wg.Go(p.run)
	}
	return g, nil
}

// group is the processes of one start.
type group struct {
	procs []*fakeProcess
	exits chan program.Exit

	mu   sync.Mutex
	left int
}

func (g *group) Exits() <-chan program.Exit { return g.exits }

func (g *group) Pids() (all []int) {
	for _, p := range g.procs {
		all = append(all, p.pid)
	}
	return all
}

// of returns the process of a local rank.
func (g *group) of(local int) *fakeProcess {
	return g.procs[slices.IndexFunc(g.procs, func(p *fakeProcess) bool { return p.local == local })]
}

func (g *group) Kill(local int, grace time.Duration)               { g.of(local).end(grace) }
func (g *group) Wrote(local int) bool                              { return g.of(local).wrote() }
func (g *group) Output(local int, secrets []string) program.Output { return program.Output{} }

func (g *group) Place(int) (p program.Place) { return p }

// Stack of a simulated process does not exist.
func (g *group) Stack(_ context.Context, local int) program.Stack {
	return program.Stack{Local: local, Pid: g.of(local).pid, Why: program.NotPython}
}

// ended tells the agent of the end of a process.
func (g *group) ended(e program.Exit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exits <- e
	if g.left--; g.left == 0 {
		close(g.exits)
	}
}

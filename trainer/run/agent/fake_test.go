package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// fakeBackend runs fake processes in the virtual time of a bubble of testing/synctest.
type fakeBackend struct {
	sockets, stores *memnet.Listener
	// main function of each process, which returns the exit code
	script func(ctx context.Context, p *fakeProcess) int

	mu   sync.Mutex
	pids int
	live map[int]*fakeProcess
}

// fakeProcess is a process that is a goroutine. It ends with ctx.
type fakeProcess struct {
	backend    *fakeBackend
	local, pid int
	kill       context.CancelFunc
	// the process is stopped by a signal
	frozen bool
	killed syscall.Signal
}

func newFakeBackend(script func(context.Context, *fakeProcess) int) *fakeBackend {
	return &fakeBackend{sockets: memnet.Listen(1 << 16), stores: memnet.Listen(1 << 16), script: script,
		live: make(map[int]*fakeProcess)}
}

func (b *fakeBackend) Listen(context.Context) (Listener, error) { return fakeListener{b}, nil }
func (b *fakeBackend) Load(context.Context) (Program, error)    { return fakeProgram{b}, nil }
func (b *fakeBackend) Close()                                   {}

func (b *fakeBackend) ListenStore() (net.Listener, error) {
	return fakeStore{memnet.Listen(1 << 16)}, nil
}

func (b *fakeBackend) DialStore(ctx context.Context, _ string) (net.Conn, error) {
	return b.stores.DialContext(ctx)
}

// fakeStore has an address with a port.
type fakeStore struct{ *memnet.Listener }

func (fakeStore) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 29500} }

// fakeListener accepts processes, whose first line is their pid.
type fakeListener struct{ *fakeBackend }

func (l fakeListener) Close() error { return l.sockets.Close() }

func (l fakeListener) Accept() (Connection, error) {
	conn, err := l.sockets.Accept()
	if err != nil {
		return nil, err
	}
	var pid int
	_, err = fmt.Fscanln(conn, &pid)
	return fakeConn{conn, pid}, err
}

type fakeConn struct {
	net.Conn
	pid int
}

func (c fakeConn) Peer() (pid, leader int) { return c.pid, c.pid }
func (c fakeConn) Ended() bool             { return false }
func (c fakeConn) CloseRead() error        { return c.Close() }

// fakeProgram starts fake processes.
type fakeProgram struct{ *fakeBackend }

func (p fakeProgram) Ready(context.Context)                  {}
func (p fakeProgram) Checkpoint() time.Time                  { return time.Time{} }
func (p fakeProgram) OOMKills() int                          { return 0 }
func (p fakeProgram) Cores(time.Time, []int) map[int]float64 { return nil }
func (p fakeProgram) Vitals([]int) map[int]program.Vital     { return nil }

func (p fakeProgram) Stopped(pids []int) (all []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range pids {
		if it := p.live[pid]; it != nil && it.frozen {
			all = append(all, pid)
		}
	}
	return all
}

func (p fakeProgram) Start(_ context.Context, position program.Position) (Group, error) {
	g := &fakeGroup{exits: make(chan program.Exit, len(position.Locals)), processes: make(map[int]*fakeProcess)}
	var left sync.WaitGroup
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, local := range position.Locals {
		p.pids++
		ctx, kill := context.WithCancel(context.Background())
		it := &fakeProcess{backend: p.fakeBackend, local: local, pid: p.pids, kill: kill}
		p.live[it.pid], g.processes[local] = it, it
		g.pids = append(g.pids, it.pid)
		left.Go(func() {
			e := program.Exit{Local: local, Rank: position.FirstRank + local, Pid: it.pid, Code: p.script(ctx, it)}
			p.mu.Lock()
			delete(p.live, it.pid)
			if it.killed > 0 {
				e.Code, e.Signal, e.Stopped = -int(it.killed), int(it.killed), true
			}
			p.mu.Unlock()
			e.At = time.Now()
			g.exits <- e
		})
	}
	go func() {
		left.Wait()
		close(g.exits)
	}()
	return g, nil
}

func (p fakeProgram) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range p.live {
		it.kill()
	}
}

// fakeGroup is the processes of one start.
type fakeGroup struct {
	pids      []int
	exits     chan program.Exit
	processes map[int]*fakeProcess
}

func (g *fakeGroup) Pids() []int                             { return g.pids }
func (g *fakeGroup) Exits() <-chan program.Exit              { return g.exits }
func (g *fakeGroup) Wrote(int) bool                          { return true }
func (g *fakeGroup) Output(int, []string) (o program.Output) { return o }

// Stack of a process takes as long as one of a process that does not answer.
func (g *fakeGroup) Stack(ctx context.Context, local int) program.Stack {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	return program.Stack{Local: local, Pid: g.pids[local], Why: program.Silent}
}

func (g *fakeGroup) Place(int) (p program.Place) { return p }

// Kill ends a process at once, as it handles no signals. A frozen process ends after the grace, by
// SIGKILL.
func (g *fakeGroup) Kill(local int, grace time.Duration) {
	it := g.processes[local]
	it.backend.mu.Lock()
	defer it.backend.mu.Unlock()
	if it.killed = syscall.SIGTERM; grace <= 0 {
		it.killed = syscall.SIGKILL
	}
	it.kill()
}

// speaks sends hello and an arrival, like a process that uses the Python package, and returns the
// messages of the agent.
func (p *fakeProcess) speaks(ctx context.Context) <-chan string {
	conn, err := p.backend.sockets.DialContext(ctx)
	if err != nil {
		panic(err)
	}
	said := make(chan string, 100)
	go func() {
		<-ctx.Done()
		conn.Close()
	}()
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	for _, line := range []any{p.pid, map[string]any{"op": "hello", "survives": true},
		map[string]any{"op": "arrive", "round": -1}} {
		text, _ := json.Marshal(line)
		fmt.Fprintf(conn, "%s\n", text)
	}
	return said
}

// An agent runs fake processes in virtual time. A frozen process is killed, and the next arrival
// reports that failure.
func TestFakeProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		worlds := make(chan string, 10)
		b := newFakeBackend(func(ctx context.Context, p *fakeProcess) int {
			for line := range p.speaks(ctx) {
				worlds <- line
			}
			<-ctx.Done()
			return 1
		})
		h := &hall{T: t, arrivals: make(chan *wire.Arrival, 10), words: make(chan *wire.Assembly, 10),
			beats: make(chan *wire.HeartbeatRequest), origins: make(chan *wire.Origin, 10)}
		j := job.DefaultOf(job.Run)
		j.Name, j.NumWorkers, j.Program.Command, j.Program.Processes = "j", 1, []string{"main.py"}, "1"
		j.HeartbeatTimeout.Duration = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- Run(ctx, Config{Job: j, Self: rpc.NewSelf(identity.Header{Role: pod.Worker}, nil), Master: h,
				Host: "10.0.0.1", Processors: 1, Log: slog.New(slog.DiscardHandler), Backend: b})
		}()
		h.give(<-h.arrivals)
		if line := <-worlds; !strings.Contains(line, `"op":"world","formation":1,"rank":0`) {
			t.Errorf("the process hears %s", line)
		}
		b.mu.Lock()
		b.live[1].frozen = true
		b.mu.Unlock()
		h.checkFailures(<-h.arrivals, 1, 0, &wire.Failure{Signal: int32(syscall.SIGKILL)})
		cancel()
		<-ended
	})
}

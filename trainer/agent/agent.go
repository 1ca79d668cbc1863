// Package agent is a worker whose engine is a user's program: it takes part in the rendezvous, starts the program's processes with torchrun's
// environment, watches them, and starts them again when the world changes. A process that keeps its state says so over a socket, and is
// told of the next world instead.
//
//	arrive at the rendezvous ─> world ─> start or tell the processes ─> all end with 0 ─> the job's end
//	        ^                                       │
//	        └── one fails, a member is lost, somebody joins or leaves: stop, or recall, the processes
//
// What is decided about the program as a whole, the master decides: whether a failure is charged, who is in the world, when the job is done. An
// agent tells what it sees.
//
// Laws:
//
//  1. Processes of two worlds never run at once on a worker, but those that came over to the next one. None outlives its agent.
//  2. The key-value store of a world is empty at its beginning, listens before anybody is told of it, and outlives every process of that world.
//  3. A process that ends by itself is told to the master with its reason, once. One that the agent ends is not.
//  4. A departure is acted upon at once. For the sake of those that join nobody is started again against --restart_on_join.
//  5. A master that is away stops nobody.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/program"
	"github.com/elasticdl/elasticdl/trainer/tcpstore"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

// Config is the agent's place in a job.
type Config struct {
	Job        *job.Job
	Self       *wire.Self
	Master     wire.MasterClient
	Host       string          // IP address under which other workers reach this one
	Processors int             // that the processes share
	Leave      <-chan struct{} // closed when the worker is asked to leave; nil: it is not
	Grace      time.Duration   // what the processes have to end after that
	Abandoned  time.Duration   // a master that was away for so long does not come back; 0: it always may
	Output     io.Writer       // of the processes
	Log        *slog.Logger
}

// errDone ends the work of an agent whose job has ended.
var errDone = errors.New("the job has ended")

// agent is the shell around one worker's processes. Its loop owns all but what mutexes guard.
type agent struct {
	Config
	count   int // processes
	program *program.Program
	meeting *worker.Meeting
	dir     string           // its own, removed at the end
	store   *tcpstore.Server // of the world, or for the next one
	group   *program.Group   // the processes of the last world; nil: there was none
	closing sync.WaitGroup   // of stores
	stopped chan struct{}    // closed when those are gone that were to be stopped
	over    chan struct{}    // closed when the master says that the job has ended
	beats   beats
}

// Run works until the job has ended, the worker is asked to leave ([worker.ErrLeft]) or replaced ([worker.ErrReplaced]), or ctx ends. No process is left
// when it returns.
func Run(ctx context.Context, c Config) (err error) {
	a := &agent{Config: c, meeting: worker.NewMeeting(c.Master, c.Self), over: make(chan struct{}), beats: beats{urgent: make(chan struct{}, 1)}}
	if a.count, err = processes(c.Job.Program.Processes, c.Processors); err != nil {
		return err
	}
	if a.dir, err = os.MkdirTemp("", "elasticdl-agent-"); err != nil {
		return err
	}
	defer os.RemoveAll(a.dir)
	options, err := a.options()
	if err != nil {
		return err
	}
	if a.program, err = program.New(options); err != nil {
		return err
	}
	defer a.program.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	defer a.meeting.Close()
	background.Go(func() { a.heartbeats(ctx, cancel) })
	a.Log.Info("Agent started", "program", c.Job.Program.Command, "processes", a.count, "host", c.Host)
	background.Go(func() {
		select {
		case <-a.over:
			cancel(errDone)
		case <-ctx.Done():
		}
	})
	err = a.work(ctx)
	a.stop(a.Job.Program.Grace.Duration)
	a.release()
	<-a.stopped
	a.closing.Wait()
	switch cause := context.Cause(ctx); {
	case cause == errDone:
		return nil
	case errors.Is(cause, worker.ErrReplaced) && a.leaving():
		return worker.ErrLeft
	case cause != nil:
		return cause
	}
	return err
}

// processes is how many each worker has.
func processes(asked string, processors int) (int, error) {
	if n, err := strconv.Atoi(asked); err == nil {
		return n, nil
	}
	gpus := GPUs()
	switch {
	case asked == "cpu", asked == "auto" && gpus == 0:
		return max(1, processors), nil
	case gpus > 0:
		return gpus, nil
	}
	return 0, errors.New("--nproc_per_node=gpu: this worker has no GPU; expected a number, auto or cpu")
}

// GPUs is how many GPUs this process can use: those that CUDA_VISIBLE_DEVICES names, or else those that the machine has.
func GPUs() int {
	if names, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		n := 0
		for name := range strings.SplitSeq(names, ",") {
			if name = strings.TrimSpace(name); name == "" || name == "-1" { // what follows is not seen either
				break
			}
			n++
		}
		return n
	}
	found, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is right
	return len(found)
}

// options is the program as package program has it.
func (a *agent) options() (program.Options, error) {
	g := a.Job.Program
	redirects, err := program.ParseStreams("redirects", g.Redirects)
	if err != nil {
		return program.Options{}, err
	}
	tee, err := program.ParseStreams("tee", g.Tee)
	if err != nil {
		return program.Options{}, err
	}
	start := program.Fork
	if g.StartMethod == job.StartExec {
		start = program.Exec
	}
	return program.Options{
		Command: g.Command, Module: g.Module, NoPython: g.NoPython, Env: os.Environ(), Role: g.Role, RunID: a.Job.Name, MaxRestarts: g.MaxRestarts,
		LocalSize: a.count, LogDir: g.LogDir, Redirects: redirects, Tee: tee, StartMethod: start, Stdout: a.Output, Stderr: a.Output, Log: a.Log,
	}, nil
}

// work goes from one world to the next.
func (a *agent) work(ctx context.Context) error {
	arrival := &wire.Arrival{Worker: int32(a.Self.Header().Index), Suspect: -1, Process: 1 + rand.Uint64N(math.MaxUint64), Round: -1}
	for {
		if err := a.listen(arrival); err != nil {
			return err
		}
		next, err := a.arrive(ctx, arrival)
		if err != nil {
			return err
		}
		arrival.Formation = next.Formation
		if arrival.Failures, err = a.live(ctx, next); err != nil {
			return err
		}
	}
}

// listen makes the store for the next world, if this worker comes to be its first.
func (a *agent) listen(arrival *wire.Arrival) error {
	a.release()
	store, err := tcpstore.Listen(net.JoinHostPort(a.Host, "0"), tcpstore.Options{})
	if err != nil {
		return fmt.Errorf("serve the processes' store: %w", err)
	}
	a.store, arrival.Address = store, store.Addr().String()
	arrival.Crew = &wire.Crew{Processes: int32(a.count), Store: arrival.Address}
	return nil
}

// release closes the store when the processes are gone that may use it.
func (a *agent) release() {
	store, stopped := a.store, a.stopped
	a.store = nil
	if store == nil {
		return
	}
	a.closing.Go(func() {
		if stopped != nil {
			<-stopped
		}
		store.Close()
	})
}

// arrive waits for the next world.
func (a *agent) arrive(ctx context.Context, arrival *wire.Arrival) (worker.Place, error) {
	met := make(chan struct{})
	defer close(met)
	go func() {
		select {
		case <-a.Leave:
			a.beats.leave() // the answer is that it may go
		case <-met:
		}
	}()
	return a.meeting.Arrive(ctx, arrival)
}

// leaving reports whether the worker was asked to leave.
func (a *agent) leaving() bool {
	select {
	case <-a.Leave:
		return true
	default:
		return false
	}
}

// stop begins to end the processes that are left of the last world. Stopped is closed when they are gone.
func (a *agent) stop(grace time.Duration) {
	before, group := a.stopped, a.group
	done := make(chan struct{})
	a.stopped = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if group != nil {
			group.Stop(syscall.SIGTERM, grace)
		}
	}()
}

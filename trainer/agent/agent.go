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
//  3. A process that fails by itself is told to the master with its reason, once, also while its world is left. One that the agent ends is not.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/program"
	"github.com/elasticdl/elasticdl/trainer/program/python"
	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/tcpstore"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

// Config is the agent's place in a job.
type Config struct {
	Job        *job.Job
	Keeps      bool // processes of the program keep their state: those that begin join a world when they are ready for it
	Self       *rpc.Self
	Master     wire.MasterClient
	Host       string                                                               // IP address under which other workers reach this one
	Processors int                                                                  // that the processes share
	Leave      <-chan struct{}                                                      // closed when the worker is asked to leave; nil: it is not
	Grace      time.Duration                                                        // what the processes have to end after that
	Abandoned  time.Duration                                                        // a master that was away for so long does not come back; 0: it always may
	Dir        string                                                               // for its files, which whoever made it removes; "": a temporary one of its own
	Output     io.Writer                                                            // of the processes
	Open       func(ctx context.Context, location string) (checkpoint.Files, error) // what an object of a bucket is in; nil: no code comes from buckets
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
	workdir string           // where the processes start; "": where the agent did
	store   *tcpstore.Server // of the world, or for the next one
	last    *tcpstore.Server // of the world that is left, until the next one is formed
	closing sync.WaitGroup   // of stores
	scripts *scripts
	records *records
	reports chan *wire.ReportTaskRequest
	procs   []*process // by local rank; nil: never started
	mail    mailbox
	over    chan struct{} // closed when the master says that the job has ended
	beats   beats
	watch   *watch
}

// process is one of the program's.
type process struct {
	local int
	pid   int
	group *program.Group
	exit  *program.Exit // nil: it lives
	// What it has said of itself.
	script  *script // nil: nothing; it keeps no state
	waits   *word   // its arrival: it waits for a world
	member  bool    // of the world, or of the next one
	done    bool    // it needs none any more
	entered int64   // formation of the world that it was told last
}

// keeps reports whether a process comes over to the next world.
func (p *process) keeps() bool {
	return p != nil && p.exit == nil && p.script != nil && p.script.keeps && !p.done
}

// retired reports whether a process that kept its state needs no further world.
func (p *process) retired() bool { return p != nil && p.done }

// lives reports whether a process is there.
func (p *process) lives() bool { return p != nil && p.exit == nil }

// Run works until the job has ended, the worker is asked to leave ([worker.ErrLeft]) or replaced ([worker.ErrReplaced]), or ctx ends. No process is left
// when it returns.
func Run(ctx context.Context, c Config) (err error) {
	a := &agent{Config: c, meeting: worker.NewMeeting(c.Master, c.Self), over: make(chan struct{}), watch: newWatch(), beats: beats{urgent: make(chan struct{}, 1)}, mail: newMailbox(), reports: make(chan *wire.ReportTaskRequest, 1024)}
	if a.count, err = processes(c.Job.Program.Processes, c.Processors); err != nil {
		return err
	}
	if a.dir, err = c.makeDir(); err != nil {
		return err
	}
	defer os.RemoveAll(a.dir)
	a.records = newRecords(c.Master, c.Self.Header().Index, func(r *wire.ReportTaskRequest) { a.reports <- r })
	if err := python.Unpack(filepath.Join(a.dir, "python")); err != nil {
		return err
	}
	if a.scripts, err = newScripts(a.dir, a.records, a.unexplained, func(m message) { a.mail.put(event{said: &m}) }); err != nil {
		return err
	}
	defer a.scripts.close()
	a.procs = make([]*process, a.count)
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	background.Go(func() { a.heartbeats(ctx, cancel) }) // while the program is fetched, too: a master that has come back judges silence
	background.Go(func() {
		select {
		case <-a.over:
			cancel(errDone)
		case <-ctx.Done():
		}
	})
	if err := a.load(ctx); err != nil {
		return a.verdict(ctx, err)
	}
	defer a.program.Close()
	background.Go(func() { a.report(ctx) })
	background.Go(func() { cancel(a.meeting.Attend(ctx)) })
	a.Log.Info("Agent started", "program", c.Job.Title(), "processes", a.count, "host", c.Host)
	err = a.work(ctx)
	a.end(a.Job.Program.Grace.Duration)
	a.last, a.store = a.release(a.last), a.release(a.store)
	a.closing.Wait()
	return a.verdict(ctx, err)
}

// makeDir makes the directory of the agent's own files.
func (c Config) makeDir() (string, error) {
	if c.Dir == "" {
		return os.MkdirTemp("", "elasticdl-agent-")
	}
	return c.Dir, os.Mkdir(c.Dir, 0o700)
}

// load brings the program, ready to be started.
func (a *agent) load(ctx context.Context) error {
	command, workdir, err := a.bringCode(ctx)
	if err != nil {
		return err
	}
	a.workdir = workdir
	options, err := a.options(command)
	if err != nil {
		return err
	}
	a.program, err = program.New(options)
	return err
}

// verdict returns what the agent's work ends with, of which err is what it met.
func (a *agent) verdict(ctx context.Context, err error) error {
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

// processes returns how many each worker has.
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

// GPUs returns how many GPUs this process can use: those that CUDA_VISIBLE_DEVICES names, or else those that the machine has.
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

// options returns the program as package program has it.
func (a *agent) options(command []string) (program.Options, error) {
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
		Command: command, Dir: a.workdir, Module: g.Module, NoPython: g.NoPython, Env: append(os.Environ(), a.environment()...), Role: g.Role, RunID: a.Job.Name, MaxRestarts: g.MaxRestarts,
		LocalSize: a.count, LogDir: g.LogDir, Redirects: redirects, Tee: tee, StartMethod: start, Stdout: a.Output, Stderr: a.Output, Log: a.Log,
	}, nil
}

// work goes from one world to the next.
func (a *agent) work(ctx context.Context) error {
	arrival := &wire.Arrival{Worker: int32(a.Self.Header().Index), Suspect: -1, Process: 1 + rand.Uint64N(math.MaxUint64), Round: -1}
	var beginning int64
	if a.Keeps {
		if err := a.prepare(ctx); err != nil {
			return err
		}
	} else if a.Self.Header().Index >= a.Job.NumWorkers { // it replaces another, or is one more: the others step, and must not wait for an import
		a.warm(ctx)
	}
	for {
		if err := a.listen(); err != nil {
			return err
		}
		a.bring(arrival, beginning)
		next, err := a.arrive(ctx, arrival)
		if err != nil {
			return err
		}
		arrival.Formation, beginning = next.Formation, next.Beginning
		if arrival.Failures, err = a.live(ctx, next); err != nil {
			return err
		}
		arrival.Finished = a.finished()
	}
}

// finished reports whether all processes have ended with 0, and by themselves.
func (a *agent) finished() bool {
	return !slices.ContainsFunc(a.procs, func(p *process) bool { return p == nil || p.lives() || p.exit.Failed() || p.exit.Stopped })
}

// listen makes the store for the next world, if this worker comes to be its first. The one of the world that it leaves is served until
// that one is formed: others' processes may be making their group still, and leave after a round.
func (a *agent) listen() error {
	a.last, a.store = a.store, nil
	store, err := tcpstore.Listen(net.JoinHostPort(a.Host, "0"), tcpstore.Options{Log: a.Log, Linger: storeLinger})
	if err != nil {
		return fmt.Errorf("serve the processes' store: %w", err)
	}
	a.store = store
	return nil
}

// storeLinger is how long processes that are ending have to close their connections to the store: a reset would abort those of PyTorch 1.x.
const storeLinger = 5 * time.Second

// release closes the store of a world that is over, and returns none.
func (a *agent) release(store *tcpstore.Server) *tcpstore.Server {
	if store != nil {
		a.closing.Go(store.Close)
	}
	return nil
}

// beginnings is where a round's number says with which formation the states began that it is of, as with the members of any ring.
const beginnings = 32

// bring enters in the arrival what the worker's processes bring to the next world: the newest of their states.
func (a *agent) bring(arrival *wire.Arrival, beginning int64) {
	arrival.Address = a.store.Addr().String()
	crew := &wire.Crew{Store: arrival.Address}
	arrival.Crew, arrival.Round, arrival.Version, arrival.Ledger = crew, -1, 0, nil
	for _, p := range a.procs {
		if p == nil {
			continue
		}
		crew.Keeps = crew.Keeps || p.keeps()
		p.member = !p.retired() && (!a.Keeps || p.keeps() && p.waits != nil)
		if !p.member {
			continue
		}
		crew.Processes++
		if p.keeps() && p.waits != nil && p.waits.Round >= 0 && beginning<<beginnings|p.waits.Round > arrival.Round {
			arrival.Round, arrival.Version = beginning<<beginnings|p.waits.Round, p.waits.Round
			arrival.Ledger = a.records.ledger(p.waits.Ledger, p.waits.Settled)
			crew.Source = crew.Processes - 1
		}
	}
	if a.procs[0] == nil { // none was started yet
		crew.Processes = int32(a.count)
	}
}

// prepare starts the processes of a worker that comes to a program whose processes keep their state, and returns when they are ready: the
// others do not wait for what they import.
func (a *agent) prepare(ctx context.Context) error {
	place := program.Place{WorldSize: a.count, LocalSize: a.count, GroupWorldSize: 1, MasterAddr: a.Host, MasterPort: 1, Interface: a.networkInterface()}
	if err := a.launch(ctx, place, allLocals(a.count)); err != nil {
		return err
	}
	for {
		var failed []program.Exit
		a.absorb(func(e event) {
			if e.exit != nil && e.exit.Failed() {
				failed = append(failed, *e.exit)
			}
		})
		if root := program.RootCause(failed); root != nil {
			return fmt.Errorf("the program failed before it was in a world: %s", root.Message())
		}
		if !slices.ContainsFunc(a.procs, func(p *process) bool { return p.lives() && p.waits == nil }) {
			return nil
		}
		select {
		case <-a.mail.ready:
		case <-a.Leave:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// warm returns when the program's processes can be started at once, or the worker is asked to leave.
func (a *agent) warm(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.Leave:
			cancel()
		case <-ctx.Done():
		}
	}()
	a.program.Ready(ctx)
}

func allLocals(n int) (locals []int) {
	for i := range n {
		locals = append(locals, i)
	}
	return locals
}

// launch starts processes.
func (a *agent) launch(ctx context.Context, place program.Place, locals []int) error {
	place.Locals = locals
	group, err := a.program.Start(ctx, place)
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	pids := group.Pids()
	started := make(map[int]*process)
	for i, local := range locals {
		p := &process{local: local, pid: pids[i], group: group}
		a.procs[local], started[local] = p, p
	}
	go func() {
		for e := range group.Exits() {
			a.mail.put(event{exit: &e, of: started[e.Local]})
		}
	}()
	return nil
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

// report delivers the ends of leases, in order.
func (a *agent) report(ctx context.Context) {
	for {
		select {
		case r := <-a.reports:
			err := worker.Retry(ctx, func() error {
				_, err := a.Master.ReportTask(ctx, r)
				return err
			})
			if err != nil && ctx.Err() == nil {
				a.Log.Warn("The lease was taken back before its report", "lease", r.Lease, "error", err)
			}
			a.records.reported(r.Lease)
		case <-ctx.Done():
			return
		}
	}
}

// kill begins to end the processes that fits names: SIGTERM, and SIGKILL after the grace.
func (a *agent) kill(grace time.Duration, fits func(*process) bool) {
	for _, p := range a.procs {
		if p.lives() && fits(p) {
			p.group.Kill(p.local, grace)
		}
	}
}

// end ends all processes, and returns when they are gone.
func (a *agent) end(grace time.Duration) {
	a.kill(grace, func(*process) bool { return true })
	a.await(grace+killLimit, nil, func(event) {}, func() bool { return !slices.ContainsFunc(a.procs, (*process).lives) })
}

// killLimit is how long processes may take to end after SIGKILL: a driver may hold them.
const killLimit = 30 * time.Second

// await takes what happens, and tells it, until ready. It gives up when stop is closed, and after the limit: then it returns false.
func (a *agent) await(limit time.Duration, stop <-chan struct{}, tell func(event), ready func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		a.absorb(tell)
		if ready() {
			return true
		}
		select {
		case <-a.mail.ready:
		case <-stop:
			return false
		case <-timer.C:
			return false
		}
	}
}

// account asks the processes which records are in the state of every rank. If none can, they say so when they meet again.
func (a *agent) account() {
	asked := false
	for _, p := range a.procs {
		if p.lives() && p.script != nil && p.member && !p.done {
			asked = true
			p.script.say(map[string]any{"op": "account"})
		}
	}
	if !asked {
		a.meeting.Recall()
	}
}

// event is the end of a process, what one has said, or neither: the master asks for the account.
type event struct {
	exit *program.Exit
	of   *process
	said *message
}

// absorb notes what has happened, and tells it.
func (a *agent) absorb(tell func(event)) {
	for _, e := range a.mail.take() {
		switch {
		case e.exit == nil && e.said == nil:
			a.account()
		case e.exit != nil:
			e.of.exit = e.exit
			switch {
			case e.of.exit.Failed(): // what it was to do after the training it has not done
				e.of.done = false
			case e.of.script != nil:
				e.of.done = true // it has come to its end with its state
			}
			a.records.gone(e.of.local)
		case e.said.Op == "hello":
			e.of = a.speaker(e.said)
			if e.of != nil {
				e.of.script = e.said.from
				a.Log.Debug("A process speaks", "local_rank", e.of.local, "pid", e.said.Pid, "keeps_state", e.said.Survives, "backend", e.said.Backend, "torch", e.said.Torch)
				a.Keeps = a.Keeps || e.said.Survives
			}
		default:
			i := slices.IndexFunc(a.procs, func(p *process) bool { return p != nil && p.script == e.said.from })
			if i < 0 {
				continue // of a process that is gone
			}
			e.of = a.procs[i]
			switch e.said.Op {
			case "arrive":
				e.of.waits = &e.said.word
			case "done":
				e.of.done = true
				a.beats.end()
			case "account":
				a.beats.tell(e.said.Formation, a.records.ledger(e.said.Ledger, e.said.Settled))
			case "doubt":
				a.Log.Warn("A process doubts its state, and starts again", "local_rank", e.of.local, "why", e.said.Why)
			}
		}
		tell(e)
	}
}

// speaker returns the process that says hello; nil: it is gone, or none of this worker's.
func (a *agent) speaker(m *message) *process {
	for _, p := range a.procs {
		if p.lives() && p.pid == m.Pid {
			return p
		}
	}
	return nil
}

// mailbox is what has happened and was not taken yet, without limit: who puts something never waits.
type mailbox struct {
	mu    *sync.Mutex
	all   *[]event
	ready chan struct{} // has an element when there is something
}

func newMailbox() mailbox { return mailbox{new(sync.Mutex), new([]event), make(chan struct{}, 1)} }

func (m mailbox) put(e event) {
	m.mu.Lock()
	*m.all = append(*m.all, e)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m mailbox) take() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := *m.all
	*m.all = nil
	return all
}

// Package agent is a worker whose engine is a user's program: it takes part in the rendezvous,
// starts the program's processes with torchrun's environment, watches them, and starts them again
// when the world changes. A process that keeps its state says so over a socket, and is told of the
// next world instead.
//
//	arrive at the rendezvous ─> world ─> start or tell the processes ─> all end with 0 ─> the end
//	        ^                                       │
//	        └── a process fails, a member is lost, a worker joins or leaves: stop or recall them
//
// The master decides about the program as a whole: whether a failure is charged, which workers are
// in the world, when the job is done. An agent only reports what it observes.
//
// Laws:
//
//  1. Processes of two worlds never run at once on a worker, except for those that keep their state
//     and enter the next world. No process outlives its agent.
//  2. The key-value store of a world is empty at its beginning, listens before its address is told,
//     and outlives every process of that world.
//  3. A process that fails by itself is reported to the master once, with its reason, also while
//     its world ends. One that the agent ends is not.
//  4. The agent reacts to a departure at once, but processes that are past their training complete
//     what they do before they start again. Newcomers do not restart running processes unless
//     --restart_on_join allows it.
//  5. The program goes on while the master is away.
//  6. A process that is ended gets one SIGTERM. It has --restart_grace if it is to start again, and
//     the whole grace period in a planned stop, in whatever order the agent hears that its worker
//     is to leave and that the job has ended.
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
	"strings"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/run/python"
	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Config holds what an agent needs for its job.
type Config struct {
	Job *job.Job
	// processes of the program keep their state; new ones join a world when they are ready
	Keeps  bool
	Self   *rpc.Self
	Master wire.MasterClient
	// IP address under which other workers reach this one
	Host string
	// number of processors that the processes share
	Processors int
	// the processors are fewer than the machine has: libraries do not find that out
	Limited bool
	// number of workers of the job that share the processors, this one included; 0: this one has
	// them alone
	Workers int
	// closed when the worker is asked to leave; nil: it never is
	Leave <-chan struct{}
	// time that the processes have to end after SIGTERM, once Leave is closed
	Grace time.Duration
	// how long the master may be unreachable before the agent ends; 0: without limit
	Abandoned time.Duration
	// directory for the agent's files, which its creator removes; "": a temporary one of the
	// agent's own
	Dir string
	// file that receives the first failure of the processes, while they do not run because of it;
	// "": none
	ErrorFile string
	// log that receives what the processes write, in lines
	Output io.Writer
	// receives reports of failures; nil: Output
	Messages io.Writer
	// shows what the processes write; nil: nobody looks
	Display *program.Display
	// opens the bucket of a location; nil: code cannot come from buckets
	Open func(ctx context.Context, location string) (checkpoint.Files, error)
	Log  *slog.Logger
}

// errDone ends the work of an agent when the job has ended.
var errDone = errors.New("the job has ended")

// agent is the shell around one worker's processes. Its loop owns every field that no mutex guards.
type agent struct {
	Config
	// number of processes
	count   int
	program *program.Program
	meeting *membership.Meeting
	// directory of the agent's own, removed at the end
	dir string
	// working directory of the processes; "": the agent's
	workdir string
	// store of the current world, or for the next one
	store *tcpstore.Server
	// store of the previous world, until the next one is formed
	last *tcpstore.Server
	// stores that are being closed
	closing sync.WaitGroup
	scripts *scripts
	records *records
	reports chan *wire.ReportTaskRequest
	// by local rank; nil: never started
	procs []*process
	mail  mailbox
	// closed when the master says that the job has ended
	over   chan struct{}
	beats  beats
	stages stages
	blame  errorFile
	// end of the grace period; it begins with the first call
	endBy func() time.Time
	stop  stopping
	// the processes of the last world were not started: it ended in the pause before
	rested bool
	watch  *watch

	// a process may have left the last world in the middle of a round
	brokeOff bool
	// no process can tell which records are in its state: they have to meet again
	unknown bool
}

// Run works until the job has ended, the worker is asked to leave ([membership.ErrLeft]) or
// replaced ([membership.ErrReplaced]), or ctx ends. No process of the program is left when it
// returns.
func Run(ctx context.Context, c Config) (err error) {
	a := &agent{Config: c, meeting: membership.New(c.Master, c.Self), over: make(chan struct{}),
		watch: newWatch(), beats: beats{urgent: make(chan struct{}, 1)}, mail: newMailbox(),
		blame: errorFile{path: c.ErrorFile}, reports: make(chan *wire.ReportTaskRequest, 1024)}
	a.endBy = sync.OnceValue(func() time.Time { return time.Now().Add(a.Grace) })
	if a.Messages == nil {
		a.Messages = a.Output
	}
	if a.count, err = Processes(c.Job.Program.Processes, c.Processors); err != nil {
		return err
	}
	if a.dir, err = c.makeDir(); err != nil {
		return err
	}
	defer os.RemoveAll(a.dir)
	a.records = newRecords(c.Master, c.Self.Header().Index, func(r *wire.ReportTaskRequest) { a.reports <- r })
	if err := a.withRoom(ctx, func() error { return python.Unpack(filepath.Join(a.dir, "python")) }); err != nil {
		return err
	}
	if a.scripts, err = newScripts(a.dir, a.records, a.unexplained, func(m message) {
		a.mail.put(event{said: &m})
	}); err != nil {
		return err
	}
	defer a.scripts.close()
	a.procs = make([]*process, a.count)
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	// also while the program is fetched: a silent worker would count as lost
	background.Go(func() { a.heartbeats(ctx, cancel) })
	background.Go(func() {
		select {
		case <-a.Leave:
			a.endBy()
		case <-ctx.Done():
		}
	})
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
	background.Go(func() { a.observe(ctx) })
	background.Go(func() { cancel(a.meeting.Attend(ctx)) })
	a.Log.Info("Agent started", "program", c.Job.Title(), "processes", a.count, "host", c.Host)
	err = a.work(ctx)
	a.end(a.lastGrace())
	a.last, a.store = a.release(a.last), a.release(a.store)
	a.closing.Wait()
	return a.verdict(ctx, err)
}

// makeDir makes the directory of the agent's own files.
func (c Config) makeDir() (string, error) {
	if c.Dir == "" {
		return program.MakeTemporary("elasticdl-agent-", len("agent.sock"))
	}
	return c.Dir, os.Mkdir(c.Dir, 0o700)
}

// load fetches the program and makes it ready to be started.
func (a *agent) load(ctx context.Context) error {
	a.stages.does(wire.Stage_STAGE_FETCHING)
	defer a.stages.does(wire.Stage_STAGE_UNKNOWN)
	command, workdir, err := a.bringCode(ctx)
	if err != nil {
		return err
	}
	a.workdir = workdir
	options, err := a.options(command)
	if err != nil {
		return err
	}
	err = a.withRoom(ctx, func() (err error) {
		a.program, err = program.New(options)
		return err
	})
	if err != nil {
		return err
	}
	if hidden := options.Hides("elasticai_api", "elasticdl"); hidden != nil {
		a.Log.Warn("the program's own packages hide those that elasticdl brings: start it in a "+
			"directory without them, such as a copy of its scripts", "packages", strings.Join(hidden, " "))
	}
	return nil
}

// verdict returns the error with which the agent ends, given the error err of its work.
func (a *agent) verdict(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == errDone:
		return nil
	case errors.Is(cause, membership.ErrReplaced) && a.leaving():
		return membership.ErrLeft
	case cause != nil:
		return cause
	}
	return err
}

// work goes from one world to the next.
func (a *agent) work(ctx context.Context) error {
	arrival := &wire.Arrival{Worker: int32(a.Self.Header().Index), Suspect: -1,
		Process: 1 + rand.Uint64N(math.MaxUint64), Round: -1}
	var beginning int64
	if a.Keeps {
		if err := a.prepare(ctx); err != nil {
			return err
		}
	} else if a.Self.Header().Index >= a.Job.NumWorkers {
		// a replacement or an additional worker: the others are training, and must not wait for its
		// imports
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
		arrival.Output, arrival.CheckpointUnixMs = a.progress()
	}
}

// finished reports whether all processes of this worker that are in the last world have ended by
// themselves with 0, and none is running.
func (a *agent) finished() bool {
	unfinished := func(p *process) bool {
		return p == nil || p.lives() || p.member && (p.exit.Failed() || p.exit.Stopped)
	}
	return !a.rested && slices.ContainsFunc(a.procs, func(p *process) bool {
		return p != nil && p.member
	}) && !slices.ContainsFunc(a.procs, unfinished)
}

// listen makes the store for the next world, in case this worker becomes its first. The store of
// the world that it leaves is served until the next one is formed: processes of other workers may
// still be building their process group, and leave after a round.
func (a *agent) listen() error {
	a.last, a.store = a.store, nil
	store, err := tcpstore.Listen(net.JoinHostPort(a.Host, "0"), tcpstore.Options{Log: a.Log, Linger: storeLinger})
	if err != nil {
		return fmt.Errorf("serve the processes' store: %w", err)
	}
	a.store = store
	return nil
}

// storeLinger is how long processes that are ending have to close their connections to the store: a
// reset would abort those of PyTorch 1.x.
const storeLinger = 5 * time.Second

// release closes the store of a world that is over, and returns none.
func (a *agent) release(store *tcpstore.Server) *tcpstore.Server {
	if store != nil {
		a.closing.Go(store.Close)
	}
	return nil
}

// bring sets in the arrival what the worker's processes bring to the next world: the newest of
// their states.
func (a *agent) bring(arrival *wire.Arrival, beginning int64) {
	arrival.Address = a.store.Addr().String()
	crew := &wire.Crew{Store: arrival.Address}
	arrival.Crew, arrival.Round, arrival.Version, arrival.Ledger, arrival.BrokeOff = crew, -1, 0, nil, a.brokeOff
	newest := rendezvous.NoState
	for _, p := range a.procs {
		if p != nil {
			p.member = !p.retired() && (!a.Keeps && !a.leaving() || p.keeps() && p.waits != nil)
		}
	}
	for _, p := range a.crew(math.MaxInt64) {
		crew.Processes++
		if !p.keeps() || p.waits == nil || p.waits.Round < 0 {
			continue
		}
		at := rendezvous.Position{Beginning: beginning, Round: p.waits.Round}
		if p.waits.Read {
			at.Beginning = 0
		}
		if at.Compare(newest) > 0 {
			newest, arrival.Version = at, at.Round
			arrival.Ledger = a.records.ledger(p.waits.Ledger, p.waits.Settled)
			crew.Source = crew.Processes - 1
		}
	}
	arrival.Beginning, arrival.Round = newest.Beginning, newest.Round
	if a.procs[0] == nil && !a.leaving() { // none was started yet
		crew.Processes = int32(a.count)
	}
}

// prepare starts the processes of a worker that joins a program whose processes keep their state,
// and returns when they are ready, so that the others do not wait for their imports.
func (a *agent) prepare(ctx context.Context) error {
	position := program.Position{WorldSize: a.count, LocalSize: a.count, GroupWorldSize: 1,
		MasterAddr: a.Host, MasterPort: 1, Interface: a.networkInterface(), Threads: a.threads(a.count)}
	if err := a.launch(ctx, position, allLocals(a.count)); err != nil {
		return err
	}
	for {
		var failed []program.Exit
		a.absorb(func(e event) {
			if e.exit != nil && e.exit.Failed() {
				failed = append(failed, *e.exit)
			}
		})
		if crashed := forked(failed); len(crashed) > 0 && len(crashed) == len(failed) {
			if err := a.launch(ctx, position, crashed); err != nil {
				return err
			}
		} else if root := program.RootCause(failed); root != nil {
			return fmt.Errorf("the program failed before it joined a world: %s", root.Message())
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

// warm returns when the program's processes can be started at once, or the worker is asked to
// leave.
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
func (a *agent) launch(ctx context.Context, position program.Position, locals []int) error {
	position.Locals = locals
	a.stages.does(wire.Stage_STAGE_IMPORTING)
	defer a.stages.does(wire.Stage_STAGE_UNKNOWN)
	group, err := a.program.Start(ctx, position)
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	pids := group.Pids()
	started := make(map[int]*process)
	for i, local := range locals {
		p := &process{local: local, rank: position.FirstRank + local, pid: pids[i], group: group}
		if a.Keeps { // it is told when it joins
			p.rank = -1
		}
		a.procs[local], started[local] = p, p
	}
	a.show()
	a.stages.watch(a.procs)
	go func() {
		for e := range group.Exits() {
			a.mail.put(event{exit: &e, of: started[e.Local]})
		}
	}()
	return nil
}

// arrive waits for the next world.
func (a *agent) arrive(ctx context.Context, arrival *wire.Arrival) (membership.World, error) {
	met := make(chan struct{})
	defer close(met)
	go func() {
		select {
		case <-a.Leave:
			// the master's answer is that the worker may go
			a.beats.readyToLeave()
		case <-met:
		}
	}()
	// it only tells how they ended: a master that is away need not know
	if a.leaving() && !slices.ContainsFunc(a.procs, (*process).lives) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, farewellLimit, membership.ErrLeft)
		defer cancel()
	}
	return a.meeting.Arrive(ctx, arrival)
}

// farewellLimit is how long a worker that leaves, and whose processes have ended, waits for the
// master's answer to that.
const farewellLimit = 2 * time.Second

// report delivers the reports of ended leases, in order.
func (a *agent) report(ctx context.Context) {
	for {
		select {
		case r := <-a.reports:
			err := membership.Retry(ctx, func() error {
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

// kill begins to end the processes for which fits is true: SIGTERM, and SIGKILL after the grace.
func (a *agent) kill(grace time.Duration, fits func(*process) bool) {
	for _, p := range a.procs {
		if p.lives() && fits(p) {
			p.group.Kill(p.local, grace)
		}
	}
}

// lastGrace returns how long the processes have to end when the work of this worker has: what the
// master says at the end of the job, what is left of the worker's grace period if it was asked to
// leave, or else as long as when they start again.
func (a *agent) lastGrace() time.Duration {
	grace := a.Job.Program.Grace.Duration
	if a.leaving() {
		grace = max(grace, time.Until(a.endBy()))
	}
	return max(grace, a.beats.endGrace())
}

// end ends all processes, and returns when they have ended.
func (a *agent) end(grace time.Duration) {
	a.kill(grace, func(*process) bool { return true })
	a.await(grace+killLimit, nil, func(event) {}, func() bool {
		return !slices.ContainsFunc(a.procs, (*process).lives)
	})
}

// killLimit is how long processes may take to end after SIGKILL: a driver may delay them.
const killLimit = 30 * time.Second

// await handles events, and passes each to tell, until ready. It returns false when stop is closed,
// or after the limit.
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

// account asks the processes which records are in the state of every rank. If none can tell, they
// report it at the next rendezvous.
func (a *agent) account() {
	asked := false
	for _, p := range a.procs {
		if p.lives() && p.script != nil && p.member && !p.done {
			asked = true
			p.script.say(map[string]any{"op": "account"})
		}
	}
	if !asked && !a.beats.ask() { // not told meanwhile, either
		a.unknown = true
		a.meeting.Recall()
	}
}

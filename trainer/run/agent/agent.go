// Package agent is a worker whose engine is a user's program: it takes part in the rendezvous,
// starts the program's processes with torchrun's environment, watches them, and restarts them when
// the world changes. A process that keeps its state reports it over a socket, and is notified of
// the next world instead of being restarted.
//
//	arrive at the rendezvous ─> world ─> start or notify processes ─> all exit with 0 ─> the end
//	        ^                                       │
//	        └── a process fails, a member is lost, a worker joins or leaves: stop or recall them
//
// The master decides about the program as a whole: whether a failure counts, which workers are in
// the world, when the job is done. The pure machine elastic/supervise decides this worker's
// reaction, and elastic/leases which process trains with which lease. This package is the shell
// around these machines:
//
//	processes ── messages, exits ──> socket.go ─┐
//	master ── heartbeats, worlds ──> beat.go ───┼─> shell.go ── events ──> supervise.Supervisor
//	SIGTERM, timer ─────────────────────────────┘                              │
//	processes, connections, heartbeats <── perform.go <──────── actions ───────┘
//
//	processes ── asks for leases, rounds ──> records.go ── calls ──> leases.Holder
//	master <── requests, reports of leases ──────┘
//
// Processes run in a [Backend]: on this machine, or simulated ones in virtual time.
//
// Laws:
//
//  1. Processes of two worlds never run on a worker at the same time, except for those that keep
//     their state and enter the next world. No process outlives its agent.
//  2. The key-value store of a world is empty at its beginning, listens before its address is
//     announced, and outlives every process of that world.
//  3. A process that fails on its own is reported to the master once, with its reason, also while
//     its world ends. One that the agent ends is not.
//  4. The agent reacts at once when a member leaves or is lost, but processes that have completed
//     their training run to their end before they are restarted. New workers do not restart running
//     processes unless --restart_on_join allows it.
//  5. The program continues while the master is unreachable.
//  6. A process that the agent ends gets one SIGTERM. Then it has --restart_grace if it is
//     restarted, and the whole grace period in a planned stop, whether the agent first learns that
//     its worker leaves or that the job has ended.
package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/run/program"
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
	// the processors are fewer than the machine has, which libraries do not detect
	Limited bool
	// number of workers of the job that share the processors, including this one; 0: they are not
	// shared
	Workers int
	// closed when the worker is asked to leave; nil: it never is
	Leave <-chan struct{}
	// time that the processes have to end after SIGTERM, once Leave is closed
	Grace time.Duration
	// how long the master may be unreachable before the agent ends; 0: no limit
	Abandoned time.Duration
	// directory for the agent's files, which its creator removes; "": a temporary one of the
	// agent's own
	Dir string
	// file that receives the first failure of the processes, and is removed when they restart; "":
	// none
	ErrorFile string
	// receives the output of the processes, line by line
	Output io.Writer
	// receives the reports of failures; nil: Output
	Messages io.Writer
	// shows the output of the processes to a user; nil: no user is watching
	Display *program.Display
	// opens the bucket of a location; nil: code cannot be fetched from buckets
	Open func(ctx context.Context, location string) (checkpoint.Files, error)
	Log  *slog.Logger
	// runs the processes; nil: this machine does. Run closes it
	Backend Backend
}

// errDone ends the work of an agent when the job has ended.
var errDone = errors.New("the job has ended")

// agent is the shell around the supervisor of one worker's processes. Its loop owns every field
// that no mutex guards.
type agent struct {
	Config
	// number of processes
	count      int
	supervisor *supervise.Supervisor
	program    Program
	meeting    *membership.Meeting
	// distinguishes this start of the agent from others
	incarnation uint64
	mail        mailbox
	records     *records
	reports     chan *wire.ReportTaskRequest
	scripts     *scripts
	// connections of processes, by number
	conns map[int]*script
	// by local rank: the process that was started last; nil: none was
	procs  []*process
	world  current
	stores stores
	// goroutines of arrivals and of the program's preparation
	group   sync.WaitGroup
	beats   beats
	stages  stages
	contact *contact
	blame   errorFile
	// number of the master's newest request for stacks, which heartbeats have brought
	lastStacks int64
	// has the number of a request for stacks that is to be answered
	stackAsks chan int64
}

// process is one process of the program.
type process struct {
	local, pid int
	group      Group
	// nil: it is running
	exit *program.Exit
}

// Run runs the agent until the job has ended, the worker is asked to leave
// ([membership.ErrLeft]) or replaced ([membership.ErrReplaced]), or ctx ends. No process of the
// program is left when it returns.
func Run(ctx context.Context, c Config) error {
	count, err := Processes(c.Job.Program.Processes, c.Processors)
	if err != nil {
		return err
	}
	if c.Messages == nil {
		c.Messages = c.Output
	}
	if c.Backend == nil {
		if c.Backend, err = newLocal(c, count); err != nil {
			return err
		}
	}
	defer c.Backend.Close()
	a := newAgent(c, count)
	listener, err := c.Backend.Listen(ctx)
	if err != nil {
		return err
	}
	a.scripts = newScripts(listener, c.Backend.DialStore, a.records, a.unexplained, func(m message) { a.mail.put(m) })
	defer a.scripts.close()
	defer a.stores.close()
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	// from now on, as fetching the program may take long: a silent worker would count as lost
	background.Go(func() { a.heartbeats(ctx, cancel) })
	background.Go(func() { a.awaitLeave(ctx) })
	a.stages.does(wire.Stage_STAGE_FETCHING)
	a.program, err = c.Backend.Load(ctx)
	a.stages.does(wire.Stage_STAGE_UNKNOWN)
	if err != nil {
		return a.verdict(ctx, err)
	}
	defer a.program.Close()
	background.Go(func() { a.report(ctx) })
	background.Go(func() { a.observe(ctx) })
	background.Go(func() { a.reportStacks(ctx) })
	background.Go(func() { cancel(a.meeting.Attend(ctx)) })
	a.Log.Info("Agent started", "program", c.Job.Title(), "processes", a.count, "host", c.Host)
	err = a.work(ctx)
	a.group.Wait()
	return a.verdict(ctx, err)
}

func newAgent(c Config, count int) *agent {
	g := c.Job.Program
	a := &agent{Config: c, count: count, stackAsks: make(chan int64, 1), meeting: membership.New(c.Master, c.Self),
		incarnation: 1 + rand.Uint64N(math.MaxUint64), mail: newMailbox(), conns: make(map[int]*script),
		procs: make([]*process, count), contact: newContact(c.Abandoned), beats: beats{urgent: make(chan struct{}, 1)},
		stores: stores{listen: c.Backend.ListenStore, log: c.Log},
		blame:  errorFile{path: c.ErrorFile}, reports: make(chan *wire.ReportTaskRequest, 1024)}
	a.meeting.Renew = func(again *wire.Arrival) error {
		address, err := a.stores.offer()
		if err == nil {
			again.Address, again.Crew.Store = address, address
		}
		return err
	}
	a.supervisor = supervise.New(supervise.Policy{
		Processes: count, Keeps: c.Keeps, Joins: c.Self.Header().Index >= c.Job.NumWorkers,
		RestartGrace: g.Grace.Duration, HeartbeatTimeout: c.Job.HeartbeatTimeout.Duration,
		TaskTimeout: c.Job.TaskTimeout.Duration, RestartOnJoin: g.RestartOnJoin,
	})
	a.records = newRecords(c.Master, c.Self.Header().Index, func(r *wire.ReportTaskRequest) { a.reports <- r })
	a.records.open = c.Open
	a.records.pending = func(some bool) { a.mail.put(supervise.Leases{Unreported: some}) }
	return a
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

// leaving reports whether the worker was asked to leave.
func (a *agent) leaving() bool {
	select {
	case <-a.Leave:
		return true
	default:
		return false
	}
}

// report delivers the reports of completed leases to the master, in order, until ctx ends.
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

package role

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/run/agent"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/runtime/metrics"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/worker"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Role is the configuration of a server or worker: the flags of its command, and its environment.
type Role struct {
	// --master_address
	Master string
	// --index
	Index int
	// --launch: incarnation of the pod, from 1
	Incarnation int
	// UID of the job, by the environment: see [Role.Identify]
	Job string
	// certificate of the job's authority, by the environment of a pod
	Authority string
	// file of the pod's token, by the environment of a pod
	Token string
	// certificate and key of a process of this machine; nil: the master gives a certificate
	Card []byte
	// --address: where a server listens; "" = any port of the loopback interface
	Address string
	// --advertise: where others reach a server; "" = where it listens
	Advertise string
	// --listen: where other workers of a ring reach a worker; "" = any port of the loopback
	// interface
	Listen string
	// of the failure of a worker's program, by the environment, as torchrun has it; "" = none
	ErrorFile string
	// --scratch_dir: directory that a worker makes for its files, and its launcher removes; "": one
	// for temporary files
	Scratch string
	// --grace: from SIGTERM until the runtime kills this process; 0: the default of --grace_period
	Grace time.Duration
	// set when this worker begins to run a program; nil: nobody asks
	Runs *atomic.Bool
	// --threads of a worker's engine, unless the job sets them; 0 = one for each processor of this
	// process
	Threads int
	// --workers: number of workers of the job on this machine, this one included; 0 = one has its
	// container alone
	Workers int
	// --notice_metadata: cloud that is asked whether this machine will be taken away; "" = none
	Cloud string
	// --metrics_address: where metrics are served, host:port; "" = nowhere
	Metrics string
	// --log_level; "" = INFO
	LogLevel string
	// standard error
	Log io.Writer

	// of the command that attends the job of a worker; nil: none does
	Display *program.Display
}

// inPod reports whether this process is the main one of a container: only there it is given an
// address to advertise.
func (r Role) inPod() bool { return r.Advertise != "" || r.Listen != "" }

// lastWords returns err, after writing it to the termination log of a pod.
func (r Role) lastWords(err error) error {
	if r.inPod() {
		LastWords(err)
	}
	return err
}

// RunPS runs a parameter server. It is the main function of the process.
func RunPS(ctx context.Context, r Role) error {
	r.Log = Lossy(r.Log)
	log := Logger(r.Log, r.LogLevel)
	self, stopRenewing, err := r.prove(ctx, pod.PS, log)
	if err != nil {
		return r.lastWords(err)
	}
	defer stopRenewing()
	defer r.heed(ctx, self, log)()
	listener, err := listen(ctx, cmp.Or(r.Address, r.local()))
	if err != nil {
		return r.lastWords(err)
	}
	defer listener.Close()
	serving, stop := ctx, func() {}
	var leave <-chan struct{}
	// on this machine a server is asked to leave only when the job ends
	if r.inPod() {
		serving, stop = work(ctx, timing.Leave(r.killed()), r.runsProgram)
		leave = ctx.Done()
	}
	defer stop()
	var meter ps.Meter
	var measured *measured
	defer func() { measured.end() }()
	err = ps.Run(serving, ps.Config{
		Through: func(j *job.Job, c wire.MasterClient) wire.MasterClient {
			measured = r.measure(j.Name, log,
				func(b *metrics.Beats) metrics.Source { return metrics.OfServer(b, &meter) })
			return measured.through(c)
		},
		Meter:  &meter,
		Master: r.Master, Self: self, Listener: listener, Advertise: r.Advertise, Leave: leave,
		Abandoned: r.abandoned(),
		Open:      bucket.Opener(context.WithoutCancel(ctx)), Log: log,
	})
	// it was asked to leave, and its job may continue
	if err == nil && ctx.Err() != nil && r.inPod() {
		err = ErrLeft
	}
	return r.lastWords(err)
}

// listen listens on an address. It waits up to ten seconds for one in use: a
// server that replaces another takes over its port.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// host is the address under which other workers reach this one.
func (r Role) host() string {
	host, _, err := net.SplitHostPort(cmp.Or(r.Listen, r.local()))
	if err != nil {
		return "127.0.0.1"
	}
	return host
}

// local is the address at which a process of this machine listens, on any port: that of the
// loopback interface which its master uses.
func (r Role) local() string {
	host, _, err := net.SplitHostPort(r.Master)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsLoopback() {
		return net.JoinHostPort(host, "0")
	}
	return "127.0.0.1:0"
}

// RunWorker runs a worker. It is the main function of the process.
func RunWorker(ctx context.Context, r Role) error {
	r.Log = Lossy(r.Log)
	messages := attended(r.Log, r.Display)
	log := Logger(messages, r.LogLevel)
	self, stopRenewing, err := r.prove(ctx, pod.Worker, log)
	if err != nil {
		return r.lastWords(err)
	}
	defer stopRenewing()
	defer r.heed(ctx, self, log)()
	conn, err := rpc.Connect(r.Master, nil, self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		return r.lastWords(err)
	}
	defer conn.Close()
	working, stop := work(ctx, timing.Leave(r.killed()), r.runsProgram)
	defer stop()
	member := membership.Member{Master: wire.NewMasterClient(conn), Self: self, Leave: ctx.Done(),
		Abandoned: r.abandoned()}
	joined, err := member.Join(working)
	if err != nil {
		return r.lastWords(err)
	}
	var meter *worker.Meter
	if !joined.Job.Runs() {
		meter = new(worker.Meter)
	}
	measured := r.measure(joined.Job.Name, log,
		func(b *metrics.Beats) metrics.Source { return metrics.OfWorker(b, meter) })
	defer measured.end()
	member.Master = measured.through(member.Master)
	switch {
	case joined.Job.Runs():
		err = r.runProgram(working, member, joined, messages, log)
	default:
		err = worker.Run(working, worker.Options{
			Member: member, Joined: joined, Meter: meter, Threads: cmp.Or(r.Threads, processors(cgroupRoot)), Log: log,
			Open: bucket.Opener(context.WithoutCancel(ctx)), Buckets: Buckets(context.WithoutCancel(ctx)),
			Listen: func() (net.Listener, error) { return net.Listen("tcp", cmp.Or(r.Listen, r.local())) },
		})
	}
	return r.lastWords(err)
}

// runProgram runs the program of a job that the worker has joined. messages receives the reports of
// its failures.
func (r Role) runProgram(ctx context.Context, m membership.Member, joined membership.Joined, messages io.Writer,
	log *slog.Logger) error {
	if r.Runs != nil {
		r.Runs.Store(true)
	}
	cpus := processors(cgroupRoot)
	return agent.Run(ctx, agent.Config{
		Job: joined.Job, Keeps: joined.Keeps, Self: m.Self, Master: m.Master, Host: r.host(),
		Processors: cpus, Limited: cpus < runtime.NumCPU(), Workers: r.Workers,
		Leave: m.Leave, Grace: timing.Script(r.killed()), Abandoned: m.Abandoned,
		Dir: r.Scratch, ErrorFile: r.ErrorFile, Output: r.Log, Messages: messages,
		Display: r.Display, Open: bucket.Open, Log: log,
	})
}

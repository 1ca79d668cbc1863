package role

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/agent"
	"github.com/elasticdl/elasticdl/trainer/checkpoint/bucket"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/ps"
	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

// Role is the place of a server or a worker in its job: the flags of its command, and its environment.
type Role struct {
	Master    string    // --master_address
	Index     int       // --index
	Launch    int       // --launch: which start of that index this is, from 1
	Job       string    // UID of the job, by the environment: see [Role.Identify]
	Authority string    // certificate of the job's authority, by the environment of a pod
	Token     string    // file of the pod's token, by the environment of a pod
	Card      []byte    // certificate and key of a process of this machine; nil: the master gives a certificate
	Address   string    // --address where a server listens; "" = 127.0.0.1:0
	Advertise string    // --advertise: where others find a server; "" = where it listens
	Listen    string    // --listen: where other workers of a ring find a worker; "" = 127.0.0.1:0
	Scratch   string    // --scratch_dir: which a worker makes for its files, and its launcher removes; "": one for temporary files
	Threads   int       // --threads of a worker's engine, if the job does not say; 0 = as many as this process has processors
	LogLevel  string    // --log_level; "" = INFO
	Log       io.Writer // standard error
}

// inPod reports whether this process is the main one of a container, whose addresses are the cluster's.
func (r Role) inPod() bool { return r.Advertise != "" || r.Listen != "" }

// lastWords tells why a role ends to whoever looks at its pod.
func (r Role) lastWords(err error) error {
	if r.inPod() {
		LastWords(err)
	}
	return err
}

// RunPS runs a parameter server: the main of its process.
func RunPS(ctx context.Context, r Role) error {
	log := Logger(r.Log, r.LogLevel)
	self, stopRenewing, err := r.prove(ctx, pod.PS, log)
	if err != nil {
		return r.lastWords(err)
	}
	defer stopRenewing()
	listener, err := listen(ctx, cmp.Or(r.Address, "127.0.0.1:0"))
	if err != nil {
		return r.lastWords(err)
	}
	defer listener.Close()
	serving, stop := ctx, func() {}
	var leave <-chan struct{}
	if r.inPod() { // on this machine nobody asks a server to go but when the job ends
		serving, stop = work(ctx, leaveGrace)
		leave = ctx.Done()
	}
	defer stop()
	err = ps.Run(serving, ps.Config{
		Master: r.Master, Self: self, Listener: listener, Advertise: r.Advertise, Leave: leave, Abandoned: r.abandoned(),
		Open: bucket.Opener(context.WithoutCancel(ctx)), Log: log,
	})
	if err == nil && ctx.Err() != nil && r.inPod() { // not its job's end, as far as it knows
		err = ErrLeft
	}
	return r.lastWords(err)
}

// listen waits up to ten seconds for an address that another still holds: a
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
	host, _, err := net.SplitHostPort(r.Listen)
	if err != nil {
		return "127.0.0.1"
	}
	return host
}

// RunWorker runs a worker: the main of its process.
func RunWorker(ctx context.Context, r Role) error {
	log := Logger(r.Log, r.LogLevel)
	self, stopRenewing, err := r.prove(ctx, pod.Worker, log)
	if err != nil {
		return r.lastWords(err)
	}
	defer stopRenewing()
	conn, err := rpc.Connect(r.Master, nil, self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		return r.lastWords(err)
	}
	defer conn.Close()
	if r.Threads == 0 {
		r.Threads = processors("/sys/fs/cgroup")
	}
	working, stop := work(ctx, leaveGrace)
	defer stop()
	return r.lastWords(worker.Main(working, worker.Options{
		Program: func(working context.Context, j *job.Job, keeps bool) error {
			return agent.Run(working, agent.Config{
				Job: j, Keeps: keeps, Self: self, Master: wire.NewMasterClient(conn), Host: r.host(), Processors: processors("/sys/fs/cgroup"),
				Leave: ctx.Done(), Grace: leaveGrace - time.Second, Abandoned: r.abandoned(), Dir: r.Scratch, Output: r.Log, Open: bucket.Open, Log: log,
			})
		},
		Leave: ctx.Done(), Abandoned: r.abandoned(), Open: bucket.Opener(context.WithoutCancel(ctx)),
		Master: wire.NewMasterClient(conn), Self: self, Threads: r.Threads, Log: log,
		Listen: func() (net.Listener, error) { return net.Listen("tcp", cmp.Or(r.Listen, "127.0.0.1:0")) },
	}))
}

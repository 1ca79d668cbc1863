package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// Role is the place of a server or a worker in its job: the flags of its command.
type Role struct {
	Master    string    // --master_address
	Index     int       // --index
	Address   string    // --address where a server listens; "" = 127.0.0.1:0
	Advertise string    // --advertise: where others find a server; "" = where it listens
	Listen    string    // --listen: where other workers of a ring find a worker; "" = 127.0.0.1:0
	Threads   int       // --threads of a worker's engine, if the job does not say; 0 = as many as this process has processors
	LogLevel  string    // --log_level; "" = INFO
	Log       io.Writer // standard error
}

// Logger logs as ElasticDL does, what its --log_level wants; "" = INFO.
func Logger(out io.Writer, logLevel string) *slog.Logger {
	return slog.New(logline.New(out, level(logLevel)))
}

// inPod says that this process is the main one of a container, whose addresses are the cluster's.
func (r Role) inPod() bool { return r.Advertise != "" || r.Listen != "" }

// leave tells why a role ends to whoever looks at its pod.
func (r Role) leave(err error) error {
	if r.inPod() {
		LastWords(err)
	}
	return err
}

// terminationLog is where a container says in a line or two why it failed.
const terminationLog = "/dev/termination-log"

// LastWords has `kubectl describe` show why this process, the main one of a container, fails; nil is no failure. What
// cannot be told is not: the log says it, too.
func LastWords(err error) { lastWords(terminationLog, err) }

func lastWords(path string, err error) {
	if err == nil {
		return
	}
	file, openErr := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0) // never made where there is no kubelet to read it
	if openErr != nil {
		return
	}
	defer file.Close()
	const most = 4096 // is read
	text := err.Error()
	io.WriteString(file, text[:min(len(text), most)])
}

// level is ElasticDL's --log_level for slog.
func level(name string) slog.Level {
	switch strings.ToUpper(name) {
	case "DEBUG":
		return slog.LevelDebug
	case "WARNING":
		return slog.LevelWarn
	case "ERROR":
		return slog.LevelError
	case "CRITICAL":
		return slog.LevelError + 4
	}
	return slog.LevelInfo
}

// RunPS is the main of a parameter server.
func RunPS(ctx context.Context, r Role) error {
	listener, err := listen(ctx, cmp.Or(r.Address, "127.0.0.1:0"))
	if err != nil {
		return r.leave(err)
	}
	defer listener.Close()
	err = ps.Run(ctx, ps.Config{
		Master: r.Master, Index: r.Index, Listener: listener, Advertise: r.Advertise, Abandoned: r.abandoned(),
		Log: Logger(r.Log, r.LogLevel),
	})
	if err == nil && ctx.Err() != nil && r.inPod() { // not its job's end, as far as it knows
		err = ErrLeft
	}
	return r.leave(err)
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

// RunWorker is the main of a worker.
func RunWorker(ctx context.Context, r Role) error {
	conn, err := wire.Connect(r.Master, nil)
	if err != nil {
		return r.leave(err)
	}
	defer conn.Close()
	if r.Threads == 0 {
		r.Threads = processors("/sys/fs/cgroup")
	}
	working, stop := work(ctx, leaveGrace)
	defer stop()
	return r.leave(worker.Main(working, worker.Options{
		Leave: ctx.Done(), Abandoned: r.abandoned(),
		Master: conn, Index: r.Index, Threads: r.Threads, Log: Logger(r.Log, r.LogLevel),
		Listen: func() (net.Listener, error) { return net.Listen("tcp", cmp.Or(r.Listen, "127.0.0.1:0")) },
	}))
}

// processors is how many processors this process has: those of its container, if that has a limit, to the nearest whole
// number. The runtime's own count is never 1 in a container.
func processors(cgroup string) int {
	read := func(file string) []string {
		text, err := os.ReadFile(filepath.Join(cgroup, file))
		if err != nil {
			return nil
		}
		return strings.Fields(string(text))
	}
	limit := read("cpu.max") // of cgroup v2: quota and period, in microseconds
	if len(limit) == 0 {
		limit = append(read("cpu/cpu.cfs_quota_us"), read("cpu/cpu.cfs_period_us")...)
	}
	all := runtime.GOMAXPROCS(0)
	if len(limit) != 2 {
		return all
	}
	quota, err := strconv.ParseFloat(limit[0], 64) // "max", or -1: none
	period, err2 := strconv.ParseFloat(limit[1], 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 {
		return all
	}
	return min(all, max(1, int(math.Round(quota/period))))
}

// Plan is what a master needs to know of a job, but for where it listens and where its pods run: the
// metrics of its model and the shards of its data, which this machine must have.
func Plan(j *job.Job, log *slog.Logger) (master.Config, error) {
	config := master.Config{Job: j, Log: log}
	model, err := zoo.Lookup(j.ModelDef)
	if err != nil {
		return config, err
	}
	config.Metric = results(model)
	if config.Training, err = shards(j.TrainingData, j.DataReaderParams); err != nil {
		return config, fmt.Errorf("--training_data: %w", err)
	}
	if config.Validation, err = shards(j.ValidationData, j.DataReaderParams); err != nil {
		return config, fmt.Errorf("--validation_data: %w", err)
	}
	return config, nil
}

// threads is what a worker computes with, if the job does not say: its part of this machine. It stays
// so if the job is scaled, as an engine's threads are given to it when it is made.
func threads(j *job.Job) int { return max(1, runtime.NumCPU()/max(1, j.NumWorkers)) }

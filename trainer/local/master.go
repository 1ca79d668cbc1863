package local

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// lockEnv announces the descriptor of the job's lock.
const lockEnv = "ELASTICDL_LOCK"

// lock is of the job whose master this process is. The death of the process gives it back, and nothing
// before: who finds it free finds no process of the job.
var lock *os.File

// RunMaster is the main of a master: it runs the job of the directory --job_dir, from its newest checkpoint on if it is to resume it,
// and returns when every process of it is gone. It is nil if every record was done.
func RunMaster(ctx context.Context, jobDir string, resume bool, output io.Writer) error {
	d := dir(jobDir)
	if lock = inherited(lockEnv); lock == nil {
		var err error
		if lock, err = d.lock(); err != nil {
			return err
		}
	}
	started := time.Now()
	m := localMaster{dir: d, resume: resume, status: &wire.JobStatus{
		Name: d.name(), State: string(job.Pending), StartedUnixMs: started.UnixMilli(),
	}}
	err := m.run(ctx, output)
	if !job.State(m.status.State).Ended() {
		m.status.State, m.status.EndedUnixMs = string(job.Failed), time.Now().UnixMilli()
		if err != nil {
			m.status.Reason = err.Error()
		}
	}
	return errors.Join(err, d.store(m.status))
}

// localMaster is a job in its directory.
type localMaster struct {
	dir    dir
	resume bool
	status *wire.JobStatus
}

func (m *localMaster) run(ctx context.Context, output io.Writer) error {
	if err := m.dir.writeJSON("master.json", address{PID: os.Getpid()}); err != nil {
		return err
	}
	var j job.Job
	if err := m.dir.readJSON("job.json", &j); err != nil {
		return err
	}
	self, err := m.dir.identity(pod.Master)
	if err != nil {
		return err
	}
	m.status.Strategy, m.status.Workers = string(j.Strategy), int32(j.NumWorkers)
	log := role.Logger(output, j.LogLevel)
	config, err := role.Plan(&j, log)
	if err != nil {
		return err
	}
	if config.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	defer config.Listener.Close()
	at := config.Listener.Addr().String()
	pods, err := NewRuntime(RuntimeConfig{
		Master: at, Job: self.Job, Secret: self.Secret, Logs: m.dir.logs(), LogLevel: j.LogLevel, Threads: threads(&j), Env: j.Envs,
	})
	if err != nil {
		return err
	}
	defer pods.Close()
	// An orphan has a second: what would be asked to leave is killed.
	defer context.AfterFunc(ctx, func() {
		if context.Cause(ctx) == role.ErrOrphaned {
			pods.Kill()
		}
	})()
	config.Pods, config.Resume = pods, m.resume
	config.Self, config.Users = wire.NewSelf(self), true
	config.OnStatus = func(s *wire.JobStatus) {
		if err := m.dir.store(s); err != nil {
			log.Error("Write the job's status", "error", err)
		}
	}
	if err := m.dir.writeJSON("master.json", address{PID: os.Getpid(), Address: at}); err != nil {
		return err
	}
	final, err := master.Run(ctx, config)
	if final != nil {
		m.status = final
	}
	return err
}

// threads is what a worker computes with, if the job does not say: its part of this machine. It stays
// so if the job is scaled, as an engine's threads are given to it when it is made.
func threads(j *job.Job) int { return max(1, runtime.NumCPU()/max(1, j.NumWorkers)) }

package local

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/role"
)

// deleteGrace is what a pod has between SIGTERM and SIGKILL.
const deleteGrace = 5 * time.Second

// RuntimeConfig is where and how pods are started.
type RuntimeConfig struct {
	Binary   string            // elasticdl; "" = this program
	Master   string            // address of the master
	Job      string            // UID of the job
	Secret   string            // of the job
	Logs     string            // directory of <pod>.log
	LogLevel string            // of the pods; "" = INFO
	Threads  int               // of each worker's engine; 0: one
	Env      map[string]string // beside the environment of this process
	Grace    time.Duration     // from SIGTERM to SIGKILL; 0: five seconds
}

// Runtime runs the pods of one job as processes: a [master.Pods].
type Runtime struct {
	config  RuntimeConfig
	events  chan pod.Event
	closing chan struct{}
	watches sync.WaitGroup

	mu     sync.Mutex
	closed bool
	live   map[pod.ID]*running
}

// running is a pod that has not ended.
type running struct {
	*process
	deleted bool
	killer  *time.Timer // after a deletion
}

var _ master.Pods = (*Runtime)(nil)

// NewRuntime makes a runtime, which its owner closes.
func NewRuntime(config RuntimeConfig) (*Runtime, error) {
	if config.Binary == "" {
		binary, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		config.Binary = binary
	}
	config.Grace = cmp.Or(config.Grace, deleteGrace)
	return &Runtime{
		config: config, live: make(map[pod.ID]*running),
		events: make(chan pod.Event, 64), closing: make(chan struct{}),
	}, nil
}

// Events tells that a pod runs, with its pid, and how it ended. Nothing more comes after Close.
func (r *Runtime) Events() <-chan pod.Event { return r.events }

// Create starts a pod. Its end, however early, is an event.
func (r *Runtime) Create(_ context.Context, p master.Pod) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return fmt.Errorf("create %v: the job is ending", p.ID)
	case r.live[p.ID] != nil:
		return fmt.Errorf("create %v: it is running", p.ID)
	}
	log := filepath.Join(r.config.Logs, p.ID.String()+".log")
	started, err := command{
		binary: r.config.Binary, args: r.config.args(p), log: log, env: r.config.env(),
	}.start()
	if err != nil {
		return fmt.Errorf("create %v: %w", p.ID, err)
	}
	it := &running{process: started}
	r.live[p.ID] = it
	r.watches.Go(func() { r.watch(p, it, log) })
	return nil
}

// env is what a pod finds in its environment: the job's variables, and its identity, which only this user's processes can read there.
func (c RuntimeConfig) env() map[string]string {
	env := map[string]string{}
	maps.Copy(env, c.Env)
	env[job.EnvUID], env[job.EnvSecret] = c.Job, c.Secret
	return env
}

// args is the command of a pod.
func (c RuntimeConfig) args(p master.Pod) []string {
	args := []string{
		p.ID.Role.String(), "--master_address=" + c.Master, fmt.Sprintf("--index=%d", p.ID.Index), fmt.Sprintf("--launch=%d", p.Launch),
		"--log_level=" + cmp.Or(c.LogLevel, "INFO"),
	}
	if p.ID.Role == pod.Worker {
		args = append(args, fmt.Sprintf("--threads=%d", max(1, c.Threads)))
	}
	if p.Address != "" {
		args = append(args, "--address="+p.Address)
	}
	return args
}

// watch owns a pod from its start to its end.
func (r *Runtime) watch(p master.Pod, it *running, log string) {
	r.send(pod.Event{ID: p.ID, Launch: p.Launch, Phase: pod.Running, PID: it.pid()})
	state := it.wait()
	r.mu.Lock()
	delete(r.live, p.ID)
	if it.killer != nil {
		it.killer.Stop()
	}
	deleted := it.deleted
	r.mu.Unlock()
	e := pod.Event{ID: p.ID, Launch: p.Launch, PID: it.pid()}
	e.Phase, e.Exit = ending(state, deleted)
	if e.Phase == pod.Failed && e.Exit.Signal == 0 {
		e.Exit.Reason = role.Brief(lastLine(log))
	}
	r.send(e)
}

// ending is what a process state says about a pod.
func ending(state *os.ProcessState, deleted bool) (pod.Phase, pod.Exit) {
	e := pod.Exit{Code: state.ExitCode(), Deleted: deleted}
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		e.Signal = int(status.Signal())
		e.Code = 128 + e.Signal
	}
	switch {
	case e.Code == 0:
		return pod.Succeeded, e
	case deleted:
		return pod.Deleted, e
	}
	return pod.Failed, e
}

func (r *Runtime) send(e pod.Event) {
	select {
	case r.events <- e:
	case <-r.closing:
	}
}

// Adopt implements master.Pods.
func (r *Runtime) Adopt(context.Context) ([]pod.Event, error) { return nil, nil }

// Delete asks a pod to end, and kills it if it has not after the grace. A pod that is gone is no error.
func (r *Runtime) Delete(_ context.Context, id pod.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.live[id]
	if it == nil || it.deleted {
		return nil
	}
	it.deleted = true
	// The leader alone: what is left of its group is killed after it. If it is stopped it goes on, to its end.
	it.cmd.Process.Signal(syscall.SIGTERM)
	it.cmd.Process.Signal(syscall.SIGCONT)
	it.killer = time.AfterFunc(r.config.Grace, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.live[id] == it {
			it.signal(syscall.SIGKILL)
		}
	})
	return nil
}

// Kill kills every pod. No pod can be created after it.
func (r *Runtime) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, it := range r.live {
		it.signal(syscall.SIGKILL)
	}
}

// Close kills every pod that is left and returns when all are gone. It is called once.
func (r *Runtime) Close() {
	r.Kill()
	close(r.closing)
	r.watches.Wait()
}

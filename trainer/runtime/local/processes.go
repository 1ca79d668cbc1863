package local

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// killGrace returns the time between SIGTERM and SIGKILL when a pod of a job is deleted: a little
// more than its program has.
func killGrace(j *job.Job) time.Duration { return j.TimeToEnd() + timing.GraceSlack }

// podConfig states how pods are started.
type podConfig struct {
	// elasticdl
	Binary string
	// lock of the job, which each pod inherits
	Lock *os.File
	// address of the master
	Master string
	// UID of the job
	Job string
	// of the job
	Authority *credential.Authority
	// directory of <pod>.log
	Logs string
	// directory with a directory for each living worker that runs a program; "": the job has none
	Scratch string
	// of the pods; "" = INFO
	LogLevel string
	// of each worker's engine; 0: one
	Threads int
	// number of workers with which the job starts
	Workers int
	// in addition to the environment of this process
	Env map[string]string
	// workers write the failures of their programs to files in Scratch
	ErrorFiles bool
	// of the files of the state that cannot be written
	Backlog *backlog
	// shows what workers write; nil: nothing does
	Display *display
	// from SIGTERM to SIGKILL
	Grace time.Duration
	// where each pod serves its metrics, on any port; "": nowhere
	Metrics string
}

// processes starts and ends the servers and workers of one job for the living master. They outlive
// that master.
type processes struct {
	config  podConfig
	watches sync.WaitGroup

	mu     sync.Mutex
	closed bool
	live   map[pod.ID]*running
	// last event of each pod, ended ones included
	known map[pod.ID]pod.Event
	// events that no master has received
	news []pod.Event
	// closed when there are news
	changed chan struct{}
}

// running is a pod that has not ended.
type running struct {
	*process
	started time.Time
	deleted bool
	// kills the pod after a deletion's grace; nil: it was not deleted
	killer *time.Timer
}

// newProcesses returns the processes of a job, none of them started. The caller closes it.
func newProcesses(config podConfig) *processes {
	return &processes{
		config: config, live: make(map[pod.ID]*running), known: make(map[pod.ID]pod.Event),
		changed: make(chan struct{}),
	}
}

// create starts a pod for a master. The pod's end is an event, however early it is.
func (r *processes) create(s *session, p master.Pod) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case s.ended:
		return errEnded
	case r.closed:
		return fmt.Errorf("create %v: the job is ending", p.ID)
	case r.live[p.ID] != nil:
		return fmt.Errorf("create %v: it is running", p.ID)
	}
	log := filepath.Join(r.config.Logs, p.ID.String()+".log")
	card, err := r.config.card(p)
	if err != nil {
		return fmt.Errorf("create %v: %w", p.ID, err)
	}
	defer card.Close()
	streams, env, detach, err := r.config.Display.attach(p.ID, r.alone(p.ID))
	if err != nil {
		return fmt.Errorf("create %v: %w", p.ID, err)
	}
	defer detach()
	maps.Copy(env, r.config.env(p.ID))
	started, err := command{
		binary: r.config.Binary, args: r.config.args(p, r.workers(p.ID)), log: log, env: env,
		inherit: append(streams, inheritance{lockEnv, r.config.Lock}, inheritance{cardEnv, card}),
	}.start()
	if err != nil {
		return fmt.Errorf("create %v: %w", p.ID, err)
	}
	it := &running{process: started, started: time.Now()}
	r.live[p.ID] = it
	r.publish(pod.Event{ID: p.ID, Incarnation: p.Incarnation, Phase: pod.Running, PID: it.pid(),
		Address: p.Address, Started: it.started})
	r.watches.Go(func() { r.watch(p, it, log) })
	return nil
}

// card returns a pipe with a pod's certificate and key. The key is stored nowhere else.
func (c podConfig) card(p master.Pod) (*os.File, error) {
	name := identity.Name{Job: c.Job, ID: p.ID, Incarnation: p.Incarnation}
	card, err := c.Authority.Issue(name, time.Now(), credential.Lasting)
	if err != nil {
		return nil, err
	}
	text, err := card.Encode()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	if _, err := write.Write(text); err != nil { // it fits into the pipe
		read.Close()
		return nil, err
	}
	return read, nil
}

// secretsHere returns an error that names the variables of --env_secret which the environment of
// this process lacks. There are no Secrets on one machine: the job's processes inherit the
// variables, and no file has them.
func secretsHere(j *job.Job) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(j.EnvSecrets)) {
		if _, set := os.LookupEnv(name); !set {
			problems = append(problems,
				fmt.Errorf("--env_secret=%s=%v: on this machine %[1]s comes from this command's "+
					"environment, where it is not set: export it", name, j.EnvSecrets[name]))
		}
	}
	return errors.Join(problems...)
}

// env returns the variables that a pod gets: those of the job, its UID, and a worker's error file,
// which is not that of the launcher.
func (c podConfig) env(id pod.ID) map[string]string {
	env := map[string]string{}
	maps.Copy(env, c.Env)
	env[job.EnvUID] = c.Job
	if c.ErrorFiles && id.Role == pod.Worker {
		env[program.ErrorFileVariable] = c.errorFile(id)
	}
	return env
}

// alone reports whether no other worker runs. The caller holds the mutex.
func (r *processes) alone(id pod.ID) bool {
	for other := range r.live {
		if other.Role == pod.Worker && other != id {
			return false
		}
	}
	return true
}

// workersDo calls f with the process of each worker that runs.
func (r *processes) workersDo(f func(*process)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, it := range r.live {
		if id.Role == pod.Worker {
			f(it.process)
		}
	}
}

// workers returns how many workers share this machine when a pod starts: those that run, with it,
// and at least as many as the job starts with. The caller holds the mutex.
func (r *processes) workers(starts pod.ID) int {
	n := 0
	for id := range r.live {
		if id.Role == pod.Worker && id != starts {
			n++
		}
	}
	return max(n+1, r.config.Workers)
}

// args returns the command line of a pod, where that many workers share this machine.
func (c podConfig) args(p master.Pod, workers int) []string {
	args := []string{
		p.ID.Role.String(), "--master_address=" + c.Master, fmt.Sprintf("--index=%d", p.ID.Index),
		fmt.Sprintf("--launch=%d", p.Incarnation),
		"--log_level=" + cmp.Or(c.LogLevel, "INFO"), "--grace=" + c.Grace.String(),
	}
	if p.ID.Role == pod.Worker {
		args = append(args, fmt.Sprintf("--threads=%d", max(1, c.Threads)),
			fmt.Sprintf("--workers=%d", workers), "--scratch_dir="+c.scratch(p.ID))
	}
	if p.Address != "" {
		args = append(args, "--address="+p.Address)
	}
	if c.Metrics != "" {
		args = append(args, "--metrics_address="+c.Metrics)
	}
	return args
}

// scratch returns the directory of a worker's files while it lives; "": it makes none.
func (c podConfig) scratch(id pod.ID) string {
	if c.Scratch == "" {
		return ""
	}
	return filepath.Join(c.Scratch, id.String())
}

// watch owns a pod from its start to its end.
func (r *processes) watch(p master.Pod, it *running, log string) {
	state := it.wait()
	if p.ID.Role == pod.Worker {
		// missing if the worker ended before it made it
		os.RemoveAll(r.config.scratch(p.ID))
	}
	e := pod.Event{ID: p.ID, Incarnation: p.Incarnation, PID: it.pid(), Address: p.Address, Started: it.started}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, p.ID)
	if it.killer != nil {
		it.killer.Stop()
	}
	e.Phase, e.Exit = ending(state, it.deleted)
	if e.Exit.Signal != 0 && !it.deleted && !r.closed && r.config.ErrorFiles {
		// the job continues without the worker; missing if it has written none
		os.Remove(r.config.errorFile(p.ID))
	}
	if e.Phase == pod.Failed && e.Exit.Signal == 0 {
		e.Exit.Reason = role.Brief(lastLine(log))
	}
	r.publish(e)
}

// ending returns the phase and exit of a pod from the state of its ended process.
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

// publish adds an event of a pod, for the living master or the next one. The caller holds the
// mutex.
func (r *processes) publish(e pod.Event) {
	r.known[e.ID] = e
	r.news = append(r.news, e)
	close(r.changed)
	r.changed = make(chan struct{})
}

// next waits for the next events of pods, after those that the last call or adopt returned, and
// returns them.
func (r *processes) next(s *session) ([]pod.Event, error) {
	for {
		r.mu.Lock()
		news, changed, ended := r.news, r.changed, s.ended
		if !ended {
			r.news = nil
		}
		r.mu.Unlock()
		switch {
		case ended:
			return nil, errEnded
		case len(news) > 0:
			return news, nil
		}
		select {
		case <-changed:
		case <-s.over:
		}
	}
}

// adopt returns the last event of each pod that any master has created, ended ones included. Later
// events are returned by next.
func (r *processes) adopt(s *session) ([]pod.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.ended {
		return nil, errEnded
	}
	r.news = nil
	all := slices.SortedFunc(maps.Values(r.known), func(a, b pod.Event) int {
		return a.ID.Compare(b.ID)
	})
	for i, e := range all {
		if it := r.live[e.ID]; it != nil && it.deleted {
			all[i].Phase, all[i].Exit = pod.Leaving, pod.Exit{Deleted: true}
		}
	}
	return all, nil
}

// remove asks a pod to end, and kills it if it has not ended after the grace. It does nothing if
// the pod has ended.
func (r *processes) remove(s *session, id pod.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.live[id]
	switch {
	case s.ended:
		return errEnded
	case it == nil || it.deleted:
		return nil
	}
	it.deleted = true
	// Only the group's leader gets it: wait kills the rest of the group. SIGCONT lets a stopped
	// process handle SIGTERM.
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

// announce tells every pod that a planned stop has begun.
func (r *processes) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range r.live {
		it.announce()
	}
}

// kill kills every pod.
func (r *processes) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range r.live {
		it.signal(syscall.SIGKILL)
	}
}

// forget kills every pod, and returns when all have ended and none is known any more. No master may
// be living.
func (r *processes) forget() {
	r.kill()
	r.watches.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.news = nil
	clear(r.known)
}

// close kills every pod that is left and returns when all have ended. After it no pod can be
// created.
func (r *processes) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.kill()
	r.watches.Wait()
}

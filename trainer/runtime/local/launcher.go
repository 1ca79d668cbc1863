package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// launcher owns a job: its lock, its master's address, and all its processes.
type launcher struct {
	dir     dir
	job     *job.Job
	options StartOptions
	lock    *os.File
	// on which the masters accept; the launcher accepts no connection
	listener net.Listener
	// the same socket, for the masters to inherit
	socket  *os.File
	pods    *processes
	backlog *backlog
	times   *logTimes
	// nil: nobody looks
	display *display
	output  io.WriteCloser
	log     *slog.Logger
	// directory for the files of workers that run a program; "": the job has none
	scratch string
	// receives why the program has failed; "": none does
	errorFile string

	// closed when the job is to end
	stopping chan struct{}
	// closed when no process of the job is left
	ended chan struct{}

	mu sync.Mutex
	// why the job is to end
	reason string
	// nil while none lives
	master *process
}

// launchers has the launchers that run in this process, by [dir].
var launchers sync.Map

// RunLauncher is the main function of a detached job's launcher. It runs the job of the directory,
// from its newest checkpoint if resume is set, and returns when every process of the job has ended.
// The end of ctx stops the job, and hurry, once it is closed, at once.
func RunLauncher(ctx context.Context, hurry <-chan struct{}, jobDir string, resume bool) error {
	d := dir(jobDir)
	lock := inherited(lockEnv)
	if lock == nil {
		return errors.New("run a launcher: it was not started by elasticdl train --runtime=local --detach")
	}
	var j job.Job
	err := d.readJSON("job.json", &j)
	if err == nil {
		var l *launcher
		if l, err = newLauncher(d, &j, StartOptions{resume: resume}, lock); err == nil {
			defer context.AfterFunc(ctx, func() { l.stop(context.Cause(ctx).Error()) })()
			go func() {
				select {
				case <-hurry:
					l.kill()
				case <-l.ended:
				}
			}()
			l.run()
			return nil
		}
	}
	return errors.Join(err, d.store(&wire.JobStatus{Name: d.name(), State: string(job.Failed), Reason: err.Error()}))
}

// newLauncher returns the launcher of a job whose directory exists. It takes over the lock, unless
// it returns an error.
func newLauncher(d dir, j *job.Job, o StartOptions, lock *os.File) (*launcher, error) {
	l := &launcher{dir: d, job: j, options: o, lock: lock, errorFile: errorFileOf(j),
		stopping: make(chan struct{}), ended: make(chan struct{})}
	if o.Binary == "" {
		var err error
		if l.options.Binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	uid, authority, err := d.authority()
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(d.logFile("master"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, private)
	if err != nil {
		return nil, err
	}
	if l.display, err = newDisplay(o.Display, j); err != nil {
		output.Close()
		return nil, err
	}
	listener, err := listenLocally()
	if err != nil {
		output.Close()
		return nil, err
	}
	if l.socket, err = listener.(*net.TCPListener).File(); err != nil {
		output.Close()
		listener.Close()
		return nil, err
	}
	if err = d.reserve(); err == nil && j.Runs() {
		l.scratch, err = newScratch()
	}
	if err == nil {
		err = d.writeJSON("launcher.json", address{PID: os.Getpid(), Scratch: l.scratch})
	}
	if err != nil {
		output.Close()
		listener.Close()
		l.socket.Close()
		os.RemoveAll(l.scratch)
		return nil, err
	}
	l.listener, l.output, l.log = listener, output, role.Logger(output, j.LogLevel)
	l.backlog, l.times = newBacklog(d, l.log), newLogTimes(d, time.Now())
	l.pods = newProcesses(podConfig{
		Binary: l.options.Binary, Lock: lock, Master: listener.Addr().String(), Job: uid,
		Authority: authority, Logs: d.logs(), Scratch: l.scratch, Backlog: l.backlog,
		LogLevel: j.LogLevel, Threads: threads(j), Workers: j.NumWorkers, Env: j.Envs,
		ErrorFiles: l.errorFile != "", Display: l.display, Grace: killGrace(j),
		Metrics: metricsAddress(j, listener.Addr(), 0),
	})
	l.display.follow(l.pods.workersDo)
	launchers.Store(d, l)
	return l, nil
}

// threads returns the number of threads of a worker, unless the job sets it: its share of this
// machine's processors. Scaling the job does not change it, because an engine gets its threads when
// it is made.
func threads(j *job.Job) int { return max(1, runtime.NumCPU()/max(1, j.NumWorkers)) }

// run runs the job: it starts a master, and another one when that dies, until the end of the job is
// written.
func (l *launcher) run() {
	defer close(l.ended)
	defer launchers.CompareAndDelete(l.dir, l)
	defer l.lock.Close()
	var keeping sync.WaitGroup
	keeping.Go(func() { l.backlog.run(l.ended) })
	var noting sync.WaitGroup
	noted := make(chan struct{})
	noting.Go(func() { l.times.run(noted) })
	state, reason := l.masters()
	l.pods.close()
	l.display.close()
	l.listener.Close()
	l.socket.Close()
	if state != "" {
		l.finish(state, reason)
	}
	l.blame()
	l.settle()
	os.RemoveAll(l.scratch)
	l.output.Close()
	close(noted)
	noting.Wait()
}

// masters runs one master after the other. It returns the final state of the job and the reason, if
// no master has written them.
func (l *launcher) masters() (job.State, string) {
	restarts := l.options.restarts
	for first := true; ; first = false {
		began := time.Now()
		incarnation, exit := l.runMaster()
		status, err := l.stored()
		if err == nil && (job.State(status.State).Ended() || status.State == string(job.Suspended)) {
			return "", ""
		}
		if reason, stopping := l.stopped(); stopping {
			return job.Stopped, "stopped: " + reason
		}
		// it never listened: no pod depends on it yet, and the command that started the job waits
		if first && l.launched() != incarnation {
			return job.Failed, fmt.Sprintf("master died: %v", exit)
		}
		running := err == nil && status.State == string(job.Running) && l.storedSince(began)
		pause, ok := restarts.Next(time.Since(began), running, exit.Signal != 0)
		if !ok {
			return job.Failed, fmt.Sprintf("master died %d times in a row: %v", restarts.Early(), exit)
		}
		l.log.Warn("The master died and is started again", "reason", exit, "incarnation", incarnation+1, "after", pause)
		select {
		case <-time.After(pause):
		case <-l.stopping:
		}
	}
}

// runMaster runs a master from its start to its end, and returns its incarnation and how it ended.
func (l *launcher) runMaster() (incarnation int, exit pod.Exit) {
	incarnation, err := l.raise()
	if err != nil {
		return incarnation, pod.Exit{Code: 1, Reason: err.Error()}
	}
	if _, err := l.read(recordFile); errors.Is(err, fs.ErrNotExist) {
		l.pods.forget() // no master knows what they do
	}
	log := logSize(l.dir.logFile("master"))
	p, s, err := l.startMaster(incarnation)
	if err != nil {
		return incarnation, pod.Exit{Code: 1, Reason: err.Error()}
	}
	_, exit = ending(p.wait(), false)
	l.mu.Lock()
	l.master = nil
	l.mu.Unlock()
	s.end()
	if exit.Signal == 0 && logSize(l.dir.logFile("master")) > log {
		exit.Reason = role.Brief(lastLine(l.dir.logFile("master")))
	}
	return incarnation, exit
}

// startMaster starts a master, and serves its requests.
func (l *launcher) startMaster(incarnation int) (*process, *session, error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	args := []string{"master", "--job_dir=" + string(l.dir), fmt.Sprintf("--launch=%d", incarnation)}
	if l.options.resume {
		args = append(args, "--resume")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != "" {
		ours.Close()
		return nil, nil, errors.New("the job is stopped")
	}
	p, err := command{
		binary: l.options.Binary, args: args, log: l.dir.logFile("master"), env: l.job.Envs,
		inherit: []inheritance{{lockEnv, l.lock}, {listenerEnv, l.socket}, {sessionEnv, theirs}},
	}.start()
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	l.master = p
	return p, l.pods.serve(ours), nil
}

// finish writes the final status of a job, if no master has.
func (l *launcher) finish(state job.State, reason string) {
	status, err := l.stored()
	if err != nil {
		status = &wire.JobStatus{Name: l.dir.name()}
	}
	conclude(status, state, reason, time.Now())
	if text, err := encode(status); err == nil {
		l.backlog.put(statusFile, text)
	}
}

// settle writes the final status of the job if that was not possible till then: into the room
// that is kept for it, or when there is room.
func (l *launcher) settle() {
	for began := time.Now(); ; time.Sleep(keepEvery) {
		it, ok := l.backlog.get(statusFile)
		if !ok {
			return
		}
		status, err := decode(it.text)
		if err == nil {
			status.Problems = []string{it.problem + " when the job ended"}
			err = l.dir.store(status)
		}
		if err == nil {
			l.backlog.mu.Lock()
			l.backlog.forget(statusFile)
			l.backlog.mu.Unlock()
			return
		}
		if time.Since(began) >= settleLimit {
			l.log.Error("The end of the job could not be written", "state", status.GetState(), "reason",
				status.GetReason(), "error", err)
			return
		}
	}
}

// settleLimit is the time that a job that has ended waits until its end can be written.
const settleLimit = 5 * time.Second

// stopped returns why the job is to end; is reports whether it is.
func (l *launcher) stopped() (reason string, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason, l.reason != ""
}

// stop ends the job, and returns when no process of it is left. It asks the master, then sends it
// SIGTERM, then kills it. It writes down first that it was asked to: the caller may kill this
// process the next moment, as notebooks do.
func (l *launcher) stop(reason string) {
	l.mu.Lock()
	if l.reason == "" {
		l.reason = cmp.Or(reason, "stopped")
		close(l.stopping)
		if err := l.dir.writeJSON(stopFile, stopRecord{Reason: l.reason}); err != nil {
			l.log.Warn("Writing down that the job was asked to stop failed", "error", err)
		}
		l.pods.announce()
	}
	l.mu.Unlock()
	if l.dir.ask(context.Background(), stopping(reason)) == nil && l.endsIn(stopLimit(l.job)) {
		return
	}
	l.signal(syscall.SIGTERM)
	if !l.endsIn(termGrace) {
		l.kill()
	}
}

// kill ends the job without waiting for its master.
func (l *launcher) kill() {
	l.mu.Lock()
	if l.reason == "" {
		l.reason = "killed"
		close(l.stopping)
	}
	l.mu.Unlock()
	l.signal(syscall.SIGKILL)
	<-l.ended
}

// signal sends a signal to the process group of the living master.
func (l *launcher) signal(s syscall.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.master != nil {
		l.master.signal(s)
	}
}

// endsIn waits for the end of the job, and reports whether it ended within grace.
func (l *launcher) endsIn(grace time.Duration) bool {
	select {
	case <-l.ended:
		return true
	case <-time.After(grace):
		return false
	}
}

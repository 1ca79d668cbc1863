package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/launch"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Limits on the time of a master's answer.
const (
	answerLimit = 2 * time.Second  // if the caller can do without the answer
	orderLimit  = 15 * time.Second // if it cannot
)

// StartOptions states how a job is started.
type StartOptions struct {
	Detach bool   // the job outlives this process
	Binary string // path of elasticdl; "" = this program
	// Display shows what a program writes; nil, or a detached job: nothing does.
	Display *Display

	// Check returns what a job to resume needs and does not find; nil: it needs nothing.
	Check func(*job.Job) error

	resume   bool
	restarts launch.Restarts
}

// Handle is a job that this process has started.
type Handle struct {
	dir      dir
	launcher *launcher     // nil if the job is detached
	ended    chan struct{} // closed when the launcher has ended
}

// Start starts a job and returns when its master listens. This process becomes the job's launcher
// unless the job is detached. It returns [job.ErrRunning] if a job of that name runs, and
// [ErrSuspended] if one is suspended; an ended one is replaced.
func Start(ctx context.Context, j *job.Job, o StartOptions) (*Handle, error) {
	d, err := openDir(j.Name)
	if err = errors.Join(err, secretsHere(j)); err != nil {
		return nil, err
	}
	lock, err := d.lockOver(ctx)
	if err != nil {
		return nil, err
	}
	if d.rests() {
		lock.Close()
		return nil, fmt.Errorf("job %s %w", j.Name, ErrSuspended)
	}
	if err := errors.Join(d.clear(), d.identify(), d.writeJSON("job.json", j)); err != nil {
		lock.Close()
		if full := noSpace(err); full != nil {
			return nil, d.unwritable(full)
		}
		return nil, fmt.Errorf("start job %s: %w", j.Name, err)
	}
	return d.launch(ctx, j, o, lock)
}

// Resume starts a job that has ended without success again, from its newest checkpoint, and
// returns it. If the job cannot be resumed, the error is [job.ErrRunning], [ErrNotFound],
// [job.ErrSucceeded] or [job.ErrNoCheckpoints]. After any error the job is as it was.
func Resume(ctx context.Context, name string, o StartOptions) (*Handle, *job.Job, error) {
	d, err := existing(name)
	if err != nil {
		return nil, nil, err
	}
	lock, err := d.lockOver(ctx)
	if err != nil {
		return nil, nil, err
	}
	before, err := os.ReadFile(d.path(statusFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		lock.Close()
		return nil, nil, fmt.Errorf("resume job %s: %w", name, err)
	}
	j, err := d.reopen(o.Check)
	if err != nil {
		err = errors.Join(err, d.restoreStatus(before))
		lock.Close()
		return nil, nil, err
	}
	o.resume = true
	h, err := d.launch(ctx, j, o, lock)
	if err == nil {
		return h, j, nil
	}
	// else another process was faster to start it
	if lock, e := d.lock(); e == nil {
		err = errors.Join(err, d.restoreStatus(before))
		lock.Close()
	}
	return nil, nil, fmt.Errorf("resume job %s: %w", name, err)
}

// restoreStatus makes the status of a job that could not be resumed what it was before. The caller
// holds the lock.
func (d dir) restoreStatus(before []byte) error {
	if before == nil {
		return nil
	}
	err := d.write(statusFile, before)
	if noSpace(err) != nil {
		err = d.writeReserved(statusFile, before)
	}
	return err
}

// reopen prepares the directory of an ended job for its resumption from the newest checkpoint,
// unless check returns an error about it. The caller holds the lock.
func (d dir) reopen(check func(*job.Job) error) (*job.Job, error) {
	var j job.Job
	if err := d.readJSON("job.json", &j); err != nil {
		return nil, fmt.Errorf("resume job %s: %w", d.name(), err)
	}
	ended := job.Failed
	before, err := d.stored()
	if err == nil {
		ended = job.State(before.State)
	}
	if err := errors.Join(j.Resumable(ended), secretsHere(&j)); err != nil {
		return nil, err
	}
	if check != nil {
		if err := check(&j); err != nil {
			return nil, fmt.Errorf("resume job %s: %w; the job stays %s", d.name(), err, ended)
		}
	}
	if n := int(before.GetWorkers()); n > 0 && n != j.NumWorkers { // it was scaled
		j.NumWorkers = n
		if err := d.writeJSON("job.json", &j); err != nil {
			return nil, fmt.Errorf("resume job %s: %w", d.name(), err)
		}
	}
	past, err := d.journal()
	if err != nil { // the job can continue without it
		past = journal.Snapshot{}
	}
	if err := d.writeJournal(past, before); err != nil {
		return nil, fmt.Errorf("resume job %s: %w", d.name(), err)
	}
	err = d.keep(journalFile, "job.json", "uid", authorityFile, "logs", checkpoints, formerCheckpoints, result,
		statusFile+roomSuffix, masterFile+roomSuffix)
	if err != nil {
		return nil, fmt.Errorf("resume job %s: %w", d.name(), err)
	}
	return &j, nil
}

// launch starts the launcher of a job whose directory exists, passes it the lock, and returns when
// the master listens.
func (d dir) launch(ctx context.Context, j *job.Job, o StartOptions, lock *os.File) (*Handle, error) {
	start := d.attach
	if o.Detach {
		start = d.detach
	}
	h, kill, err := start(j, o, lock)
	if err == nil {
		if err = h.ready(ctx); err == nil {
			return h, nil
		}
		kill()
		<-h.ended
	}
	return nil, fmt.Errorf("start job %s: %w", j.Name, err)
}

// attach makes this process the launcher of a job.
func (d dir) attach(j *job.Job, o StartOptions, lock *os.File) (h *Handle, kill func(), err error) {
	l, err := newLauncher(d, j, o, lock)
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	go l.run()
	return &Handle{dir: d, launcher: l, ended: l.ended}, l.kill, nil
}

// detach starts a process that is the launcher of a job.
func (d dir) detach(_ *job.Job, o StartOptions, lock *os.File) (h *Handle, kill func(), err error) {
	defer lock.Close() // the launcher has inherited it
	args := []string{"launcher", "--job_dir=" + string(d)}
	if o.resume {
		args = append(args, "--resume")
	}
	if o.Binary == "" {
		if o.Binary, err = os.Executable(); err != nil {
			return nil, nil, err
		}
	}
	p, err := command{binary: o.Binary, args: args, log: d.logFile("master"), detached: true,
		inherit: []inheritance{{lockEnv, lock}}}.start()
	if err != nil {
		return nil, nil, err
	}
	h = &Handle{dir: d, ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		p.wait()
	}()
	return h, func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-h.ended:
		case <-time.After(2 * termGrace):
			p.signal(syscall.SIGKILL)
		}
	}, nil
}

// ready waits until the master listens.
func (h *Handle) ready(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ended := false; ; {
		var at address
		if err := h.dir.readJSON("master.json", &at); err == nil && at.Address != "" {
			return nil
		}
		if ended {
			status, err := h.dir.stored()
			if err != nil {
				return err
			}
			return errors.New(status.Reason)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.ended:
			ended = true
		case <-tick.C:
		}
	}
}

// Kill ends the job at once, whatever its processes do, if this process is its launcher.
func (h *Handle) Kill() {
	if h.launcher != nil {
		h.launcher.kill()
	}
}

// Wait returns the final status of the job. If ctx ends first the job is
// stopped, unless it is detached: then Wait returns the context's cause.
func (h *Handle) Wait(ctx context.Context) (*wire.JobStatus, error) {
	select {
	case <-h.ended:
	case <-ctx.Done():
		if h.launcher == nil {
			return nil, context.Cause(ctx)
		}
		h.launcher.display.release()
		h.launcher.stop(context.Cause(ctx).Error())
		<-h.ended
	}
	if h.launcher != nil {
		return h.launcher.stored() // even if it could not be written
	}
	return h.dir.stored()
}

// Wait returns the final status of a job, whichever process started it. It calls rests when it
// finds the job suspended, and waits on.
func Wait(ctx context.Context, name string, rests func()) (*wire.JobStatus, error) {
	d, err := existing(name)
	if err != nil {
		return nil, err
	}
	for rested := false; ; {
		if err := d.awaitEnd(ctx); err != nil {
			return nil, err
		}
		s, err := d.stored()
		if err != nil || s.State != string(job.Suspended) {
			return s, err
		}
		if !rested {
			rests()
		}
		for rested = true; rested && d.rests(); rested = d.rests() {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(pollInterval / 2):
			}
		}
	}
}

// Status returns the status of a job: its master's answer, or the status written last
// if no master lives. It returns [ErrNotFound] if there is no such job.
func Status(ctx context.Context, name string) (*wire.JobStatus, error) {
	d, err := existing(name)
	if err != nil {
		return nil, err
	}
	return d.status(ctx)
}

// status returns the status of a job as its master reports it, or the last one if none lives.
func (d dir) status(ctx context.Context) (*wire.JobStatus, error) {
	if !d.alive() {
		return d.stored()
	}
	var status *wire.JobStatus
	err := d.ask(ctx, func(ctx context.Context, m wire.JobClient) (err error) {
		status, err = m.Status(ctx, &wire.StatusRequest{})
		return err
	})
	if err != nil {
		if status, err = d.stored(); err != nil || job.State(status.State).Ended() {
			return status, err
		}
	}
	return d.withMaster(status), nil
}

// withMaster adds the master to the pods in the status of a living job.
func (d dir) withMaster(status *wire.JobStatus) *wire.JobStatus {
	var at address
	if d.readJSON("master.json", &at) == nil {
		p := &wire.PodStatus{
			Role: wire.Role_MASTER, State: pod.Running.String(), Incarnation: int32(at.Incarnation),
			Pid: int32(at.PID), Address: at.Address,
			StartedUnixMs: at.StartedUnixMs,
		}
		if at.dead() {
			p.State, p.Pid, p.Reason = pod.Pending.String(), 0, "it died, and is started again"
		}
		status.Pods = append(status.Pods, p)
	}
	return status
}

// List returns the status of every job of this user, sorted by name.
func List(ctx context.Context) ([]*wire.JobStatus, error) {
	home, err := Home()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(home, "jobs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	found := make([]*wire.JobStatus, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		wg.Go(func() {
			status, err := Status(ctx, e.Name())
			switch {
			case errors.Is(err, ErrNotFound): // not a job's directory
			case err != nil:
				found[i] = &wire.JobStatus{Name: e.Name(), State: "Unknown", Reason: err.Error()}
			default:
				found[i] = status
			}
		})
	}
	wg.Wait()
	jobs := make([]*wire.JobStatus, 0, len(found))
	for _, status := range found {
		if status != nil {
			jobs = append(jobs, status)
		}
	}
	return jobs, nil
}

// Job returns the specification with which a job was started.
func Job(name string) (*job.Job, error) {
	d, err := existing(name)
	if err != nil {
		return nil, err
	}
	j := new(job.Job)
	return j, d.readJSON("job.json", j)
}

// Scale changes the requested number of workers of a living job, and returns the number before.
func Scale(ctx context.Context, name string, workers int) (before int, err error) {
	d, err := existing(name)
	if err != nil {
		return 0, err
	}
	if !d.alive() {
		last, err := d.stored()
		if err != nil {
			return 0, err
		}
		if d.rests() {
			return 0, fmt.Errorf("scale job %s: it is suspended; resume it first", name)
		}
		return 0, fmt.Errorf("scale job %s: it has ended: %s", name, last.State)
	}
	err = d.call(ctx, orderLimit, func(ctx context.Context, m wire.JobClient) error {
		reply, err := m.Scale(ctx, &wire.ScaleRequest{Workers: int32(workers)})
		before = int(reply.GetBefore())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("scale job %s: %s", name, status.Convert(err).Message())
	}
	return before, nil
}

// stacksLimit limits a request for stacks: the master gives what it has after timing.Poll.
const stacksLimit = timing.Poll + 2*answerLimit

// Stacks returns the Python stacks of all processes of a program. It returns [ErrNotFound] if there
// is no such job.
func Stacks(ctx context.Context, name string) (reply *wire.StacksReply, err error) {
	d, err := existing(name)
	if err != nil {
		return nil, err
	}
	if !d.alive() {
		last, err := d.stored()
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("stacks of job %s: it does not run: %s", name, last.State)
	}
	err = d.call(ctx, stacksLimit, func(ctx context.Context, m wire.JobClient) error {
		reply, err = m.Stacks(ctx, &wire.StacksRequest{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stacks of job %s: %s", name, status.Convert(err).Message())
	}
	return reply, nil
}

// ask calls the master within answerLimit. It returns an error at once if the master is dead.
func (d dir) ask(ctx context.Context, f func(context.Context, wire.JobClient) error) error {
	var at address
	if err := d.readJSON("master.json", &at); err != nil {
		return err
	}
	if at.dead() {
		return fmt.Errorf("master of job %s died, and is started again", d.name())
	}
	return d.call(ctx, answerLimit, f)
}

// call calls the master, or the next one if that is dead, within limit.
func (d dir) call(ctx context.Context, limit time.Duration, f func(context.Context, wire.JobClient) error) error {
	var at address
	if err := d.readJSON("master.json", &at); err != nil {
		return err
	}
	self, err := d.self(identity.User, 0)
	if err != nil {
		return err
	}
	conn, err := rpc.Connect(at.Address, nil, self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx, wire.NewJobClient(conn))
}

// existing returns the directory of a job that was started, or [ErrNotFound].
func existing(name string) (dir, error) {
	d, err := openDir(name)
	if err == nil && !d.exists() {
		err = &Missing{name}
	}
	return d, err
}

// stored returns the last status that was written, completed by what is known without a master: a
// job without a status is starting, or its launcher has died.
func (d dir) stored() (*wire.JobStatus, error) {
	// asked first: the last status is written before the lock is released
	alive := d.alive()
	status := &wire.JobStatus{Name: d.name(), State: string(job.Pending)}
	written, _ := os.Stat(d.path("status.json"))
	text, err := os.ReadFile(d.path("status.json"))
	if err == nil {
		status, err = decode(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("status of job %s: %w", d.name(), err)
	}
	switch {
	case alive:
	case job.State(status.State).Ended():
		// its master may have died while the pods ended
		bury(status, "the job is over", time.UnixMilli(status.EndedUnixMs))
	case status.State != string(job.Suspended):
		at := time.UnixMilli(0)
		if written != nil {
			at = written.ModTime() // a second before it died, or less
		}
		var stop stopRecord
		if d.readJSON(stopFile, &stop) == nil {
			conclude(status, job.Stopped, "stopped: "+stop.Reason+"; its command was killed before all had ended", at)
			break
		}
		reason := "launcher died"
		if full := d.full(); full != "" { // then nobody knows how it has ended
			reason = "its launcher has ended, and could not write how the job ended: " + full
		}
		conclude(status, job.Failed, reason, at)
		var j job.Job
		if d.readJSON("job.json", &j) == nil && j.Resumable(job.Failed) == nil {
			status.Reason += "; continue with: elasticdl resume " + d.name()
		}
	}
	return status, nil
}

// decode returns the status that encode has encoded.
func decode(text []byte) (*wire.JobStatus, error) {
	status := new(wire.JobStatus)
	return status, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, status)
}

// conclude marks a job as ended in a status in which it runs.
func conclude(status *wire.JobStatus, state job.State, reason string, at time.Time) {
	status.State, status.Reason, status.RecordsPerSecond = string(state), reason, 0
	status.EndedUnixMs = at.UnixMilli()
	bury(status, reason, at)
	master.Rejudge(status, at)
}

// bury marks the pods as ended in a status in which they run.
func bury(status *wire.JobStatus, reason string, at time.Time) {
	for _, p := range status.Pods {
		if pod.Running.Is(p.State) || pod.Pending.Is(p.State) || pod.Leaving.Is(p.State) {
			p.State, p.Reason, p.EndedUnixMs = pod.Deleted.String(), reason, at.UnixMilli()
		}
	}
}

package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Program is a user's training program on this node. Its owner closes it.
type Program struct {
	options Options
	command *invocation
	guard   *watchdog
	// nil if processes are never forked
	server *forkServers
	// the directory of all attempts
	logs string
	// directory by which interpreters find how to write stacks; "": there is none
	bootDir string
	// run by the thread whose end would end the processes
	starts chan func()
	torch  func() torchVersion
	// background work
	work sync.WaitGroup

	// ends with Close
	ctx    context.Context
	cancel context.CancelFunc
	// held during a start
	starting sync.Mutex
	// held while lines are written to the log
	logging sync.Mutex

	terminals *terminals

	mu     sync.Mutex
	groups map[*Group]bool
	// number of threads of a process that was logged last
	threads int
	// the log directory stays: the user has asked for it, output goes to files, or a process wrote
	// an error file
	keepLog bool
}

// Position is the position of the processes of one start in the world.
type Position struct {
	// Generation is the number of the world, for the log.
	Generation int64
	// FirstRank is the rank of the process with local rank 0; the others follow it.
	FirstRank int
	WorldSize int
	// LocalSize is the number of that world's processes on this node.
	LocalSize int
	// Locals are the local ranks that are started now; nil: all.
	Locals []int
	// GroupRank is the rank of this node.
	GroupRank      int
	GroupWorldSize int
	// Restarts counts the earlier starts of the processes, TORCHELASTIC_RESTART_COUNT.
	Restarts int
	// MaxRestarts is TORCHELASTIC_MAX_RESTARTS; 0: that of the options.
	MaxRestarts int
	MasterAddr  string
	MasterPort  int
	// Interface is the network interface for gloo and NCCL, unless the user has named one; "": they
	// choose.
	Interface string
	// Threads is the OMP_NUM_THREADS of each process, unless the user sets it. 0: that of the fork
	// server.
	Threads int
	// Env adds variables for a process, as os.Environ; nil: none. They win over all others.
	Env func(local int) []string
}

func (p Position) validate() error {
	switch {
	case p.LocalSize < 1:
		return fmt.Errorf("LocalSize %d: expected at least one process", p.LocalSize)
	case len(p.Locals) > 0 && (slices.Min(p.Locals) < 0 || slices.Max(p.Locals) >= p.LocalSize):
		return fmt.Errorf("the local ranks %v: expected local ranks of %d processes", p.Locals, p.LocalSize)
	case p.FirstRank < 0 || p.FirstRank+p.LocalSize > p.WorldSize:
		return fmt.Errorf("ranks %d to %d: expected ranks of a world of %d", p.FirstRank,
			p.FirstRank+p.LocalSize-1, p.WorldSize)
	}
	return nil
}

// New validates the options, and starts the fork server in the background if the program can be
// forked.
func New(options Options) (*Program, error) {
	p := &Program{options: options, groups: make(map[*Group]bool)}
	o := &p.options
	toFiles := o.Redirects.some() || o.Tee.some()
	p.keepLog = o.LogDir != "" || toFiles
	var err error
	if p.command, err = o.normalize(); err != nil {
		return nil, err
	}
	if p.logs, err = o.makeLogs(); err != nil {
		return nil, err
	}
	if toFiles {
		o.Log.Info("The output of the processes is kept", "dir", p.logs)
	}
	p.terminals = startTerminals(o.Display)
	children.open()
	if p.command.python {
		p.writeBoot()
	}
	temporary := p.logs
	if p.keepLog {
		temporary = ""
	}
	if p.guard, err = startWatchdog(ErrorFileVariable+"="+p.logs+string(filepath.Separator), temporary); err != nil {
		o.Log.Warn("only the kernel ends the program if this process is killed: children of its "+
			"processes may outlive it", "error", err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.torch = sync.OnceValue(p.probeTorch)
	p.work.Go(func() { p.torch() }) // its answer is needed at the first start
	p.starts = make(chan func())
	go p.start(p.starts)
	p.prepareForks(adopt())
	return p, nil
}

// prepareForks starts a fork server, or logs why there is none. The argument is the reason why this
// process cannot adopt forked processes, nil if it can.
func (p *Program) prepareForks(adopted error) {
	o := &p.options
	switch {
	case o.StartMethod == Exec:
	case !p.command.python && p.command.runsPython():
		o.Log.Info(byExec, "reason", p.command.args[0]+
			" starts the program; what can be forked is python3 main.py or python3 -m "+
			"package.module, with no other options of Python than -b -B -d -O -q -u -v -W -X")
	case !p.command.python:
		o.Log.Debug(byExec, "reason", p.command.display+" is not a Python script")
	case adopted != nil:
		o.Log.Info(byExec, "reason", fmt.Errorf("this process cannot adopt forked processes: %w", adopted))
	default:
		p.server = newForkServers(p)
		p.server.want(o.base())
	}
}

// byExec is the message with which the log says why no process is forked.
const byExec = "processes are started by exec"

var shells = regexp.MustCompile(`^(ba|da|z|k|a)?sh$`)

// runsPython reports whether the user may expect that the program is forked although it is not: it
// is a Python, or a shell, which may start one.
func (it *invocation) runsPython() bool {
	name := filepath.Base(it.args[0])
	return interpreters.MatchString(name) || shells.MatchString(name)
}

// makeLogs makes the directory of this run.
func (o *Options) makeLogs() (string, error) {
	name := strings.Map(func(r rune) rune {
		if r == filepath.Separator || r == '*' {
			return '_'
		}
		return r
	}, o.RunID) + "_*"
	if o.LogDir == "" {
		dir, err := makeTemporary("elasticdl_"+name, func(string) error { return nil })
		if err != nil {
			return "", fmt.Errorf("%w; name one that can be written by --log_dir, or by TMPDIR", err)
		}
		return dir, nil
	}
	parent := o.LogDir
	if !filepath.IsAbs(parent) {
		parent = filepath.Join(o.Dir, parent)
	}
	err := os.MkdirAll(parent, 0o755)
	dir := ""
	if err == nil {
		dir, err = os.MkdirTemp(parent, name)
	}
	if err != nil {
		return "", fmt.Errorf("--log_dir=%s: %w", o.LogDir, err)
	}
	return dir, nil
}

// Name returns the name of the program in reports: the script as the user named it.
func (p *Program) Name() string { return p.command.display }

// LogDir returns the log directory of this run. The output of a process is in attempt_<n>/<local
// rank>/ below it.
func (p *Program) LogDir() string { return p.logs }

// start runs the functions that start processes, all on one thread: when the thread that started a
// process ends, the kernel ends the process.
func (p *Program) start(starts <-chan func()) {
	runtime.LockOSThread()
	for f := range starts {
		f()
	}
}

// launch starts a command whose process is killed when this one dies, and which this process waits
// for.
func (p *Program) launch(cmd *exec.Cmd) error {
	children.starting.RLock()
	defer children.starting.RUnlock()
	done := make(chan error)
	p.starts <- func() { done <- cmd.Start() }
	err := <-done
	if err == nil {
		children.know(cmd.Process.Pid)
	}
	return err
}

var errClosed = errors.New("the program is closed")

// Start starts one process for each local rank. It does not stop a Group that was started before:
// its owner does.
func (p *Program) Start(ctx context.Context, position Position) (*Group, error) {
	if err := position.validate(); err != nil {
		return nil, err
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.ctx.Err() != nil {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(errClosed) })()
	p.noteThreads(position.Threads)
	g, err := p.newGroup(position)
	if err != nil {
		return nil, err
	}
	if err := p.startGroup(ctx, g); err != nil {
		g.abandon()
		return nil, err
	}
	p.mu.Lock()
	p.groups[g] = true
	p.mu.Unlock()
	g.run()
	return g, nil
}

// Ready returns when processes can be started at once: a fork server has imported torch, or there
// will be none. It returns early when ctx ends.
func (p *Program) Ready(ctx context.Context) {
	if p.server != nil {
		p.server.ready(ctx, p.options.base()) // an error is handled by Start
	}
}

// startGroup starts the processes by the first method that works.
func (p *Program) startGroup(ctx context.Context, g *Group) error {
	if p.server != nil {
		err := p.server.start(ctx, g)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.server.excuse(err)
	}
	g.method = Exec
	for _, it := range g.processes {
		if it.pid != 0 { // a standby
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cmd := &exec.Cmd{
			Path: p.command.path, Args: p.command.args, Dir: p.options.Dir, Env: it.env.with(it.bootstrap()).list(),
			Stdin: it.stdio[0], Stdout: it.stdio[1], Stderr: it.stdio[2],
			SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: it.typed != nil, Pdeathsig: syscall.SIGKILL},
		}
		if err := p.launch(cmd); err != nil {
			return fmt.Errorf("start %s: %w", p.command.display, err)
		}
		it.started(cmd.Process.Pid)
		cmd.Process.Release() // the group waits for it
	}
	return nil
}

// noteThreads logs, as torchrun does, that OMP_NUM_THREADS is set, and each other value that it
// gets.
func (p *Program) noteThreads(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 0 || n == p.threads || p.options.setsThreads() {
		return
	}
	p.threads = n
	p.options.Log.Info(fmt.Sprintf("OMP_NUM_THREADS is set to %d for each process, its share of the "+
		"processors: set it to tune the program", n))
}

func (p *Program) forget(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, g)
}

// Close kills the remaining processes, and ends the fork server. It returns when all have ended.
func (p *Program) Close() {
	p.cancel()
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.starts == nil {
		return // closed already
	}
	p.mu.Lock()
	var groups []*Group
	for g := range p.groups {
		groups = append(groups, g)
	}
	p.mu.Unlock()
	for _, g := range groups {
		g.Stop(syscall.SIGKILL, 0)
	}
	if p.server != nil {
		p.server.close()
	}
	p.work.Wait()
	p.terminals.close()
	p.guard.close()
	children.close()
	close(p.starts)
	p.starts = nil
	os.RemoveAll(p.boot())
	if !p.keepLog {
		os.RemoveAll(p.logs)
	}
}

// attempt returns the log directory of one start of one local rank.
func (p *Program) attempt(restarts, local int) string {
	return filepath.Join(p.logs, "attempt_"+strconv.Itoa(restarts), strconv.Itoa(local))
}

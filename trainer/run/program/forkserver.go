package program

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed forkserver.py
var forkServerSource string

//go:embed standby.py
var standbySource string

// forkServerBoot is the Python code on the command line. The rest of the source comes through a
// pipe, so that ps shows the program's arguments behind a short text.
const forkServerBoot = `import os;` +
	`exec(compile(os.fdopen(4).read(),"<elasticdl fork server>","exec"),{"__name__":"elasticdl_fork_server"})`

// mostForked is the largest number of processes in one message: the kernel passes at most 253
// descriptors, and each has three.
const mostForked = 84

const (
	// enough for an import of torch from a slow image
	importLimit = 5 * time.Minute
	orderLimit  = 30 * time.Second // a fork takes milliseconds
)

// errNoTorch is the reason why programs without PyTorch are started by exec. It is logged without a
// warning, as they do without the import.
var errNoTorch = errors.New("the program's interpreter has no torch")

// forkServer is a running fork server, or a standby: a process that has imported the same, and
// becomes one process of the program instead of forking it.
type forkServer struct {
	env     environ
	learned []string
	standby bool
	// closed when it is known whether it can fork
	ready chan struct{}
	// closed when it has ended
	dead chan struct{}

	// held during an order
	mu sync.Mutex
	// why it cannot fork; set before ready is closed
	err error
	// name of a module that must not be imported before a fork: it starts threads, uses a GPU, or
	// reads what each process has its own of
	bad string
	// a standby must not import it, either
	always  bool
	outcome outcome
	// when it became ready
	since   time.Time
	cmd     *exec.Cmd
	pid     int
	conn    *net.UnixConn
	replies *bufio.Reader
	errors  tail
}

// outcome tells whether a standby has become a process of the program, or has ended.
type outcome struct {
	mu sync.Mutex
	// it is a process of the program: fork, or the owner of that process, waits for it
	taken bool
	// it has ended before
	ended bool
}

// take makes it a process of the program, and returns false if it has ended.
func (o *outcome) take() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = !o.ended
	return o.taken
}

// end notes its end, and returns false if it was a process of the program.
func (o *outcome) end() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = !o.taken
	return o.ended
}

// kill kills it, unless it is a process of the program.
func (o *outcome) kill(p *os.Process) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.taken {
		p.Kill()
	}
}

// reply is a message of the fork server.
type reply struct {
	None string `json:"none"`
	Bad  string `json:"bad"`
	Why  string `json:"why"`
	// whatever imports it before a process begins
	Always bool   `json:"always"`
	Ready  bool   `json:"ready"`
	Error  string `json:"error"`
	Pids   []int  `json:"pids"`
	Went   bool   `json:"went"`
}

// order asks the fork server to start processes.
type order struct {
	Script    string         `json:"script,omitempty"`
	Module    string         `json:"module,omitempty"`
	Argv      []string       `json:"argv"`
	Orig      []string       `json:"orig"`
	Processes []orderProcess `json:"processes"`
}

type orderProcess struct {
	Env   environ `json:"env"`
	Learn string  `json:"learn,omitempty"`
	Typed bool    `json:"typed,omitempty"` // its standard input is its terminal
	// file for its stacks, and the signal that asks for them
	Stacks string `json:"stacks,omitempty"`
	Signal int    `json:"signal"`
	// what an interpreter needs that it starts again with
	Boot environ `json:"boot"`
}

// startForkServer starts one in the background.
func startForkServer(p *Program, env environ, learned []string) *forkServer {
	return (&forkServer{env: env, learned: learned}).start(p)
}

func (f *forkServer) start(p *Program) *forkServer {
	f.ready, f.dead = make(chan struct{}), make(chan struct{})
	if err := f.launch(p); err != nil {
		f.err = fmt.Errorf("start a fork server: %w", err)
		close(f.ready)
		close(f.dead)
		return f
	}
	go func() {
		defer close(f.dead)
		f.reap()
	}()
	go func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		defer close(f.ready)
		if f.err = f.load(p); f.err != nil {
			f.close()
		}
		f.since = time.Now()
	}()
	return f
}

// reap returns when it has ended. Its owner waits for a process of the program.
func (f *forkServer) reap() {
	if f.standby {
		if waitEnd(f.pid); !f.outcome.end() {
			return
		}
		syscall.Kill(-f.pid, syscall.SIGKILL) // what its imports have started
	}
	f.cmd.Wait()
	children.forget(f.pid)
}

func (f *forkServer) launch(p *Program) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "fork server"), os.NewFile(uintptr(pair[1]), "agent")
	defer ours.Close()
	defer theirs.Close()
	source, sourceEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer source.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		sourceEnd.Close()
		return err
	}
	f.conn = conn.(*net.UnixConn)
	f.replies = bufio.NewReader(f.conn)
	c := p.command
	args := append([]string{c.args[0], "-u"}, c.flags...)
	args = append(args, "-c", forkServerBoot, c.script+c.module)
	f.cmd = &exec.Cmd{
		Path: c.path, Args: append(args, c.rest...), Dir: p.options.Dir, Env: f.env.list(),
		ExtraFiles: []*os.File{theirs, source}, Stderr: &f.errors, WaitDelay: time.Second,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	go func() {
		defer sourceEnd.Close()
		sourceEnd.WriteString(stacksSource + "\n\n" + standbySource + "\n\n" + forkServerSource)
	}()
	if err := p.launch(f.cmd); err != nil {
		f.conn.Close()
		return err
	}
	f.pid = f.cmd.Process.Pid
	return nil
}

// load makes the fork server import torch.
func (f *forkServer) load(p *Program) error {
	learned := f.learned
	if learned == nil {
		learned = []string{}
	}
	f.conn.SetDeadline(time.Now().Add(importLimit))
	r, err := f.ask(map[string]any{
		"agent": os.Getpid(), "path": p.command.path, "orig": p.command.args, "env": f.env,
		"learned": learned, "start": readAtStart, "early": p.early(), "own": own,
		"devices": p.options.devices, "standby": f.standby,
	}, nil)
	switch {
	case err != nil:
		return err
	case r.None != "":
		return fmt.Errorf("%w: %s", errNoTorch, r.None)
	case r.Bad != "":
		f.bad, f.always = r.Bad, r.Always
		return fmt.Errorf("a process that has imported %s has %s", r.Bad, r.Why)
	case !r.Ready:
		return errors.New("the fork server did not report that it is ready")
	}
	return nil
}

// ask sends a message with descriptors, and returns the reply.
func (f *forkServer) ask(message any, fds []int) (reply, error) {
	if err := f.send(message, fds); err != nil {
		return reply{}, f.lost(err)
	}
	line, err := f.replies.ReadBytes('\n')
	if err != nil {
		return reply{}, f.lost(err)
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return reply{}, fmt.Errorf("unexpected reply of the fork server %.100q: %w", line, err)
	}
	return r, nil
}

func (f *forkServer) send(message any, fds []int) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if len(fds) > 0 {
		// The descriptors go with one byte, which is sent whole or not at all.
		if _, _, err := f.conn.WriteMsgUnix(text[:1], unix.UnixRights(fds...), nil); err != nil {
			return err
		}
		text = text[1:]
	}
	_, err = f.conn.Write(text)
	return err
}

// lost explains an error of the connection by what the fork server said last.
func (f *forkServer) lost(err error) error {
	select {
	case <-f.dead:
	case <-time.After(100 * time.Millisecond):
		// its last output comes just before its end
	}
	if words := f.errors.last(); words != "" {
		return fmt.Errorf("the fork server failed: %s", words)
	}
	return fmt.Errorf("the fork server failed: %w", err)
}

// fork starts processes. A standby becomes the only one.
func (f *forkServer) fork(p *Program, processes []*process, learn string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	children.starting.RLock() // until the processes are known
	defer children.starting.RUnlock()
	c := p.command
	o := order{Script: c.script, Module: c.module, Orig: c.args, Argv: append([]string{c.script}, c.rest...)}
	if c.module != "" {
		o.Argv[0] = "-m"
	}
	var fds []int
	for i, it := range processes {
		process := orderProcess{Env: it.env, Typed: it.typed != nil, Boot: it.bootstrap(), Signal: int(stackSignal)}
		if it.stacks != nil {
			process.Stacks = it.stacks.path()
		}
		if i == 0 {
			process.Learn = learn
		}
		o.Processes = append(o.Processes, process)
		for _, file := range it.stdio {
			// which makes its reads and writes block, as programs expect
			fds = append(fds, int(file.Fd()))
		}
	}
	f.conn.SetDeadline(time.Now().Add(orderLimit))
	r, err := f.ask(o, fds)
	if err == nil && r.Error == "" && len(r.Pids) != len(processes) {
		err = fmt.Errorf("the fork server started %d of %d processes", len(r.Pids), len(processes))
	}
	if err == nil && r.Error == "" && f.standby && !f.outcome.take() {
		return errors.New("the standby process has ended")
	}
	if err == nil && r.Error == "" {
		for _, pid := range r.Pids {
			p.guard.watch(pid)
		}
		// Without the answer, processes of a fork server that was killed may wait for it, and end
		// with 1.
		var run reply
		if run, err = f.ask(map[string]bool{"go": true}, nil); err == nil && run.Went {
			for i, it := range processes {
				it.started(r.Pids[i])
			}
			if f.standby {
				f.cmd.Process.Release()
				f.conn.Close()
			}
			return nil
		} else if err == nil {
			err = errors.New("the fork server did not report that the processes run")
		}
	}
	// they wait for a message that will not come
	for _, pid := range r.Pids {
		syscall.Kill(pid, syscall.SIGKILL)
		waitEnd(pid)
		reap(pid)
		p.guard.forget(pid)
		children.forget(pid)
	}
	if err != nil {
		return err
	}
	return errors.New(r.Error)
}

// close ends the fork server. Processes that it has forked continue.
func (f *forkServer) close() {
	if f.conn == nil {
		return
	}
	f.conn.Close()
	select {
	case <-f.dead:
	case <-time.After(time.Second): // it is importing
		f.end()
		<-f.dead
	}
}

// end kills it, unless it is a process of the program.
func (f *forkServer) end() { f.outcome.kill(f.cmd.Process) }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

// last returns the last line.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.text)
	return strings.TrimSpace(string(text[bytes.LastIndexByte(text, '\n')+1:]))
}

// forkable returns why the program's processes cannot be forked whatever the interpreter has, nil
// if they may be.
func (p *Program) forkable() error {
	c := p.command
	if c.script != "" {
		if info, err := os.Stat(p.options.inDir(c.script)); err != nil || !info.Mode().IsRegular() ||
			!strings.HasSuffix(c.script, ".py") {
			return fmt.Errorf("%s is not a file of Python source", c.script)
		}
	}
	return nil
}

// same returns why the processes of a group cannot come from one fork server, and the environment
// that it needs.
func (g *Group) same(o *Options) (environ, error) {
	first := g.processes[0].env.atStart()
	for _, it := range g.processes[1:] {
		if name := it.env.atStart().difference(first); name != "" {
			return nil, fmt.Errorf("%s, which is read when Python or a library starts, differs "+
				"between the processes", name)
		}
	}
	if len(g.processes) > mostForked {
		return nil, fmt.Errorf("%d processes are more than the %d that a fork server starts at once",
			len(g.processes), mostForked)
	}
	env := o.base()
	if !o.setsThreads() { // a forked process applies its own number
		delete(first, threadsVariable)
	}
	maps.Copy(env, first)
	return env, nil
}

// wait returns when the fork server is ready.
func (f *forkServer) wait(ctx context.Context) error {
	select {
	case <-f.ready:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

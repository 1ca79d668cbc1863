package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/run/python"
)

// local is the backend that runs processes on this machine.
type local struct {
	Config
	// number of processes
	count int
	// directory of the agent's own files
	dir string
	// working directory of the processes; "": the agent's
	workdir string
}

// newLocal returns a backend, and creates the directory of the agent's own files.
func newLocal(c Config, count int) (*local, error) {
	l := &local{Config: c, count: count, dir: c.Dir}
	if c.Dir != "" {
		return l, os.Mkdir(c.Dir, 0o700)
	}
	var err error
	l.dir, err = program.MakeTemporary("elasticdl-agent-", len("agent.sock"))
	return l, err
}

// Close removes the directory of the agent's own files.
func (l *local) Close() { os.RemoveAll(l.dir) }

// socket returns the path of the agent's socket: the value of ELASTICDL_SOCKET.
func (l *local) socket() string { return filepath.Join(l.dir, "agent.sock") }

// Listen unpacks the Python package, and listens on a unix socket.
func (l *local) Listen(ctx context.Context) (Listener, error) {
	if err := l.withRoom(ctx, func() error {
		return python.Unpack(filepath.Join(l.dir, "python"))
	}); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", l.socket())
	if err != nil {
		return nil, fmt.Errorf("listen for the program's processes: %w", err)
	}
	return unixListener{listener}, nil
}

// unixListener is a [Listener] on a unix socket.
type unixListener struct{ net.Listener }

// Accept returns the connection of a process of this machine.
func (l unixListener) Accept() (Connection, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := peer{UnixConn: conn.(*net.UnixConn)}
	c.pid, c.leader = peerOf(conn)
	return c, nil
}

// peer is a connection with the identity of the process at its other end; see [Connection].
type peer struct {
	*net.UnixConn
	pid, leader int
}

func (p peer) Peer() (pid, leader int) { return p.pid, p.leader }

func (p peer) Ended() bool { return p.pid > 0 && errors.Is(unix.Kill(p.pid, 0), unix.ESRCH) }

// peerOf returns the pid of the process at the other end of a connection, 0 if this system does not
// report it, and the pid of its session leader, 0 if the process has ended.
func peerOf(conn net.Conn) (pid, leader int) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, 0
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil || err != nil || cred.Pid <= 0 {
		return 0, 0
	}
	pid = int(cred.Pid)
	// any other error: a security module forbids it
	if leader, err = unix.Getsid(pid); err != nil && !errors.Is(err, unix.ESRCH) {
		leader = pid
	}
	return pid, max(leader, 0)
}

// ListenStore listens on a port of the worker's address.
func (l *local) ListenStore() (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort(l.Host, "0"))
}

// DialStore connects to a store of another worker, or of this one.
func (l *local) DialStore(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// Load fetches the program and prepares it for its start.
func (l *local) Load(ctx context.Context) (Program, error) {
	command, workdir, err := l.bringCode(ctx)
	if err != nil {
		return nil, err
	}
	l.workdir = workdir
	options, err := l.options(command)
	if err != nil {
		return nil, err
	}
	p := &localProgram{local: l}
	err = l.withRoom(ctx, func() (err error) {
		p.Program, err = program.New(options)
		return err
	})
	if err != nil {
		return nil, err
	}
	if hidden := options.Hides("elasticai_api", "elasticdl"); hidden != nil {
		l.Log.Warn("the program's own packages hide those that elasticdl brings: start it in a "+
			"directory without them, such as a copy of its scripts", "packages", strings.Join(hidden, " "))
	}
	return p, nil
}

// localProgram is a program whose processes run on this machine.
type localProgram struct {
	*program.Program
	local  *local
	usage  program.Usage
	vitals program.Vitals
	// the processes of this machine at the last call of Cores
	running []program.Running
}

// Start starts processes that communicate over the network interface of the worker's address.
func (p *localProgram) Start(ctx context.Context, position program.Position) (Group, error) {
	position.Interface = p.local.networkInterface()
	group, err := p.Program.Start(ctx, position)
	if err != nil {
		return nil, err
	}
	return group, nil
}

// Stopped reads the states of processes from /proc.
func (p *localProgram) Stopped(pids []int) (all []int) {
	for _, pid := range pids {
		if stopped(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strconv.Itoa(pid)))
	i := bytes.LastIndexByte(text, ')')
	return err == nil && i >= 0 && i+2 < len(text) && text[i+2] == 'T'
}

// Checkpoint returns the modification time of the newest file of --checkpoint_file; zero: there is
// none.
func (p *localProgram) Checkpoint() time.Time {
	pattern := p.local.checkpoint()
	if pattern == "" {
		return time.Time{}
	}
	return newestOf(pattern)
}

// checkpoint returns the pattern of --checkpoint_file, "" if it was not given. A relative pattern
// is joined to the working directory of the processes.
func (l *local) checkpoint() string {
	pattern := l.Job.Program.Checkpoint
	if pattern == "" || filepath.IsAbs(pattern) {
		return pattern
	}
	return filepath.Join(l.workdir, pattern)
}

// newestOf returns the modification time of the newest file that matches a pattern; zero: there is
// none.
func newestOf(pattern string) (newest time.Time) {
	paths, _ := filepath.Glob(pattern) // the pattern is valid
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}

// OOMKills reads the count from the events of this worker's cgroup.
func (p *localProgram) OOMKills() int {
	own, _ := os.ReadFile("/proc/self/cgroup")
	events, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", unified(string(own)), "memory.events"))
	return oomKillsIn(string(events))
}

// unified returns the path of the cgroup v2 that the text of /proc/PID/cgroup names.
func unified(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path)
		}
	}
	return ""
}

// oomKillsIn returns the oom_kill count in the text of a cgroup's memory.events; 0: it has none.
func oomKillsIn(events string) int {
	for line := range strings.Lines(events) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(count)) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// Cores computes the values from the CPU times of all processes of this machine.
func (p *localProgram) Cores(now time.Time, pids []int) map[int]float64 {
	p.running = program.Processes()
	return p.usage.Cores(now, p.running, pids)
}

// Vitals reads the values from /proc.
func (p *localProgram) Vitals(pids []int) map[int]program.Vital {
	return p.vitals.Look(p.running, pids)
}

// networkInterface returns the name of the network interface that has the worker's address, for
// gloo and NCCL; "" if none is found.
func (l *local) networkInterface() string {
	if name := l.Job.Program.Interface; name != "" {
		return name
	}
	all, err := net.Interfaces()
	if err != nil {
		return ""
	}
	ip := net.ParseIP(l.Host)
	for _, i := range all {
		addrs, _ := i.Addrs() // none in case of an error
		for _, addr := range addrs {
			if n, ok := addr.(*net.IPNet); ok && n.IP.Equal(ip) {
				return i.Name
			}
		}
	}
	return ""
}

// options returns the options with which package program runs the command.
func (l *local) options(command []string) (program.Options, error) {
	g := l.Job.Program
	redirects, err := program.ParseStreams("redirects", g.Redirects)
	if err != nil {
		return program.Options{}, err
	}
	tee, err := program.ParseStreams("tee", g.Tee)
	if err != nil {
		return program.Options{}, err
	}
	var shown []int
	for text := range strings.FieldsFuncSeq(g.LocalRanks, func(r rune) bool { return r == ',' }) {
		local, err := strconv.Atoi(text)
		if err != nil {
			return program.Options{},
				fmt.Errorf("--local_ranks_filter=%s: expected local ranks with commas between, as 0,1", g.LocalRanks)
		}
		shown = append(shown, local)
	}
	start := program.Fork
	if g.StartMethod == job.StartExec {
		start = program.Exec
	}
	return program.Options{
		Command: command, Dir: l.workdir, Module: g.Module, NoPython: g.NoPython,
		Env: append(os.Environ(), l.environment()...), Role: g.Role, RunID: l.Job.Name, MaxRestarts: g.MaxRestarts,
		Threads: l.threads(l.count, l.count), LogDir: g.LogDir, Redirects: redirects, Tee: tee,
		LocalRanksFilter: shown, StartMethod: start, Stdout: l.Output, Stderr: l.Output,
		Display: l.display(), Log: l.Log,
	}, nil
}

// display returns the display of the processes. Only a single process gets the standard input of
// the command.
func (l *local) display() *program.Display {
	if l.Display == nil || l.count == 1 {
		return l.Display
	}
	d := *l.Display
	d.Stdin, d.Keyboard = nil, false
	return &d
}

// environment returns the environment variables by which a process finds the agent.
func (l *local) environment() []string {
	dir := filepath.Join(l.dir, "python")
	paths := dir
	if before := os.Getenv("PYTHONPATH"); before != "" {
		paths += string(os.PathListSeparator) + before
	}
	env := []string{"ELASTICDL_SOCKET=" + l.socket(), "ELASTICDL_PACKAGE=" + dir, "PYTHONPATH=" + paths}
	if os.Getenv("WORKER_NUM") == "" {
		env = append(env, "WORKER_NUM="+strconv.Itoa(l.Job.NumWorkers))
	}
	if n := l.Job.NumMinibatchesPerTask; n > 0 { // for elasticai_api
		env = append(env, "ELASTICDL_NUM_MINIBATCHES_PER_TASK="+strconv.Itoa(n))
	}
	return env
}

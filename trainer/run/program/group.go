package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/console"
)

// Group is the processes of one start.
type Group struct {
	program   *Program
	position  Position
	method    StartMethod
	processes []*process
	exits     chan Exit
	done      chan struct{} // closed when no process is left
}

// process is one local rank.
type process struct {
	local, rank int
	env         environ
	// directory of its logs
	dir string
	// standard streams of the child; closed here once it has them
	stdio [3]*os.File
	// that of them which is not closed; nil: none
	kept *os.File
	// gets what is typed; nil: none does
	typed  *terminal
	copies sync.WaitGroup
	// keeps the end of its standard error
	words *words
	// keep what tells whether its output is new
	traces []*trace
	// read ends of the streams that are pipes
	readers []*os.File
	begun   time.Time
	guard   *watchdog
	// its interpreter; "": it is no Python script
	python string
	// gets its stacks; nil: it is no Python script
	stacks *stackFile
	// directory by which an interpreter finds how to write them
	bootDir string

	mu sync.Mutex
	// 0 before the start
	pid    int
	reaped bool
	// when it was asked to end; zero: it was not
	stopped time.Time
	// when it is killed; zero: it was sent no SIGTERM
	killAt time.Time
	// kills it at killAt; nil: it was sent no SIGTERM
	killer *time.Timer
}

// newGroup opens what the processes write to.
func (p *Program) newGroup(position Position) (*Group, error) {
	g := &Group{program: p, position: position, exits: make(chan Exit, position.LocalSize), done: make(chan struct{})}
	for local := range position.LocalSize {
		if position.Locals != nil && !slices.Contains(position.Locals, local) {
			continue
		}
		it := &process{local: local, rank: position.FirstRank + local,
			dir: p.attempt(position.Restarts, local), guard: p.guard, bootDir: p.bootDir}
		if p.command.python {
			it.python = p.command.path
		}
		g.processes = append(g.processes, it)
		if err := it.open(p, position); err != nil {
			g.abandon()
			return nil, fmt.Errorf("logs of local rank %d: %w", local, err)
		}
	}
	return g, nil
}

// open makes the directory of logs, and the standard streams.
func (it *process) open(p *Program, position Position) error {
	o := &p.options
	if err := os.MkdirAll(it.dir, 0o755); err != nil {
		return err
	}
	errorFile := filepath.Join(it.dir, "error.json")
	if err := os.Remove(errorFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	it.env = o.environ(position, it.local, errorFile, p.torch())
	it.openStacks(p)
	if err := it.openOutputs(p); err != nil {
		return err
	}
	return it.openInput(p)
}

// shown reports whether the user sees what a local rank writes.
func (o *Options) shown(local int) bool {
	return len(o.LocalRanksFilter) == 0 || slices.Contains(o.LocalRanksFilter, local)
}

// openOutputs opens what the process writes to. One pseudo-terminal is both streams if one terminal
// shows them, so that their order is kept, and neither goes to a file.
func (it *process) openOutputs(p *Program) error {
	o := &p.options
	d := o.Display
	toFile := o.Tee.Of(it.local) | o.Redirects.Of(it.local)
	if d != nil && d.Stdout == d.Stderr && d.Stdout.Terminal() && toFile == None && o.shown(it.local) {
		it.words = newWords()
		return it.copy(p, []Std{Stdout, Stderr}, d.Stdout, console.NewLog(&p.logging, o.Stdout, "", true), it.words)
	}
	for _, std := range []Std{Stdout, Stderr} {
		if err := it.openOutput(p, std, toFile&std != 0); err != nil {
			return err
		}
	}
	return nil
}

// openOutput opens one stream of the process.
func (it *process) openOutput(p *Program, std Std, toFile bool) error {
	o := &p.options
	log := map[Std]io.Writer{Stdout: o.Stdout, Stderr: o.Stderr}[std]
	var to []io.WriteCloser
	var file *os.File
	if toFile {
		var err error
		name := map[Std]string{Stdout: "stdout.log", Stderr: "stderr.log"}[std]
		if file, err = os.OpenFile(filepath.Join(it.dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND,
			0o644); err != nil {
			return err
		}
		to = append(to, file)
	}
	if std == Stderr {
		it.words = newWords()
	}
	stream := o.Display.stream(std)
	switch tee := o.Tee.Of(it.local)&std != 0; {
	case toFile && !(tee && o.shown(it.local)):
		if it.words != nil {
			it.words.file = file.Name()
		}
		it.stdio[std] = file
		return nil
	case tee:
		prefix := o.prefix(it.env, it.rank, it.local)
		to = append(to, console.NewLog(&p.logging, log, prefix, false))
		if stream != nil {
			to = append(to, stream.Source(prefix))
		}
	case o.shown(it.local):
		terminal := stream != nil && stream.Terminal()
		to = append(to, console.NewLog(&p.logging, log, "", terminal))
		if it.words != nil {
			to = append(to, it.words)
		}
		return it.copy(p, []Std{std}, stream, to...)
	}
	// of a stream that is not shown the end is kept
	if it.words != nil {
		to = append(to, it.words)
	}
	return it.copy(p, []Std{std}, nil, to...)
}

// copy makes the process write to a pipe, or to a pseudo-terminal if a terminal shows the stream,
// from which all is copied to the stream, if there is one, and to the others, which it closes.
func (it *process) copy(p *Program, streams []Std, shows *console.Stream, to ...io.WriteCloser) error {
	var reader, writer *os.File
	var err error
	var tty *terminal
	if shows != nil && shows.Terminal() {
		d := p.options.Display
		types := d.Keyboard && streams[0] == Stdout
		if tty, err = openTerminal(d.Terminal, types); err == nil {
			reader, writer = tty.master, tty.slave
			p.terminals.add(tty, types)
			if types {
				it.typed = tty
			}
		}
	} else {
		reader, writer, err = os.Pipe()
	}
	if err != nil {
		for _, w := range to {
			w.Close()
		}
		return err
	}
	if shows != nil {
		to = append([]io.WriteCloser{shows.Source("")}, to...)
	}
	for _, std := range streams {
		it.stdio[std] = writer
	}
	it.readers = append(it.readers, reader)
	seen := &trace{}
	it.traces = append(it.traces, seen)
	it.copies.Go(func() {
		if tty != nil {
			defer p.terminals.remove(tty)
		}
		buffer := make([]byte, 32<<10)
		for {
			n, err := reader.Read(buffer)
			seen.Write(buffer[:n])
			for _, w := range to {
				w.Write(buffer[:n]) // a full disk must not end a training
			}
			if err != nil {
				break
			}
		}
		for _, w := range to {
			w.Close()
		}
	})
	return nil
}

// openInput opens the standard input of the process: what the command passes on, which is a
// pseudo-terminal if it is typed, or nothing.
func (it *process) openInput(p *Program) (err error) {
	d := p.options.Display
	switch {
	case d == nil || d.Stdin == nil:
		it.stdio[0], err = os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	case !d.Keyboard:
		// the next process continues where this one stops reading
		it.stdio[0], it.kept = d.Stdin, d.Stdin
	case it.typed != nil:
		it.stdio[0] = it.typed.slave
	default:
		// the command's terminal shows what is typed
		if it.typed, err = openTerminal(d.Terminal, false); err != nil {
			return err
		}
		p.terminals.add(it.typed, true)
		it.stdio[0] = it.typed.slave
		it.readers = append(it.readers, it.typed.master)
		it.copies.Go(func() { it.prompts(p, it.typed) })
	}
	return err
}

// prompts shows what a process writes to the terminal that it has for its input only, as the
// question for a password.
func (it *process) prompts(p *Program, tty *terminal) {
	defer p.terminals.remove(tty)
	buffer := make([]byte, 1<<10)
	for {
		n, err := tty.master.Read(buffer)
		if n > 0 {
			p.options.Display.Stderr.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// handedOver closes this process's copies of what the child writes to.
func (it *process) handedOver() {
	for i, file := range it.stdio {
		if file != nil && file != it.kept && !slices.Contains(it.stdio[:i], file) {
			file.Close()
		}
	}
	it.stdio = [3]*os.File{}
}

// started notes the pid of the child, the leader of a session of its own.
func (it *process) started(pid int) {
	it.guard.watch(pid)
	children.know(pid)
	it.mu.Lock()
	it.pid, it.begun = pid, time.Now()
	it.mu.Unlock()
	it.handedOver()
}

// signal sends a signal to the whole process group, as long as its number is not reused.
func (it *process) signal(s syscall.Signal, stop bool) {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.pid == 0 || it.reaped {
		return
	}
	if stop {
		it.stop()
	}
	syscall.Kill(-it.pid, s)
}

// stop notes that the process is asked to end. The mutex is held.
func (it *process) stop() {
	if it.stopped.IsZero() {
		it.stopped = time.Now()
	}
}

// end asks the process group to end: SIGTERM now, and SIGKILL after the grace. SIGTERM is sent
// once, for any number of requests: a later call can only put SIGKILL off. A grace of 0 or less
// kills at once.
func (it *process) end(sig syscall.Signal, grace time.Duration) {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.pid == 0 || it.reaped {
		return
	}
	it.stop()
	at := time.Now().Add(grace)
	switch {
	case grace <= 0 || sig == syscall.SIGKILL:
		syscall.Kill(-it.pid, syscall.SIGKILL)
	case it.killer == nil:
		syscall.Kill(-it.pid, sig)
		it.killAt, it.killer = at, time.AfterFunc(grace, it.overdue)
	case at.After(it.killAt):
		it.killAt = at
		it.killer.Reset(grace)
	}
}

// overdue kills the process group if its grace is over.
func (it *process) overdue() {
	it.mu.Lock()
	defer it.mu.Unlock()
	if !it.reaped && !time.Now().Before(it.killAt) { // otherwise it was put off meanwhile
		syscall.Kill(-it.pid, syscall.SIGKILL)
	}
}

// wait returns how the process ended, as soon as it has; its group is killed then.
func (it *process) wait() Exit {
	waitEnd(it.pid)
	e := it.reap(time.Now())
	if e.Code > 0 && !e.Stopped && e.Failure == nil {
		e.Words = withInterpreter(it.words.last(), it.python)
	}
	if e.Failed() {
		e.Output = it.output()
	}
	return e
}

func (it *process) reap(at time.Time) Exit {
	it.mu.Lock()
	defer it.mu.Unlock()
	syscall.Kill(-it.pid, syscall.SIGKILL)
	e := Exit{Local: it.local, Rank: it.rank, Pid: it.pid, At: at, Stopped: !it.stopped.IsZero()}
	e.Code, e.Signal = reap(it.pid)
	children.forget(it.pid)
	it.reaped = true
	it.closeStacks()
	if it.killer != nil {
		it.killer.Stop()
	}
	if e.Failure = readFailure(filepath.Join(it.dir, "error.json")); e.Failure != nil {
		e.Failure.Message = withInterpreter(e.Failure.Message, it.python)
		if e.Stopped && e.Failure.Written.Before(it.stopped) {
			e.Stopped = false
			if e.Signal == int(syscall.SIGTERM) || e.Signal == int(syscall.SIGKILL) {
				e.Code, e.Signal = 1, 0
			}
		}
	}
	return e
}

// outputGrace is the time that the last output may take to arrive once no process of the session is
// left: a daemon may hold the pipe without limit.
const outputGrace = time.Second

// clear returns when no process of the session is left and all output was passed on.
func (it *process) clear() error {
	err := sweep(it.pid)
	sweepTemporary(it.env["TMPDIR"], it.begun)
	it.guard.forget(it.pid)
	timer := time.AfterFunc(outputGrace, it.closeReaders)
	it.copies.Wait()
	timer.Stop()
	it.closeReaders()
	return err
}

func (it *process) closeReaders() {
	for _, reader := range it.readers {
		reader.Close()
	}
}

// run watches the processes after all of them were started.
func (g *Group) run() {
	var left sync.WaitGroup
	for _, it := range g.processes {
		left.Go(func() {
			e := it.wait()
			age := e.At.Sub(it.begun)
			e.Forked = blamesFork(g.method, e, age)
			g.program.ended(e, age)
			g.exits <- e
			if err := it.clear(); err != nil {
				g.program.options.Log.Error("a process of the program could not be ended", "rank",
					it.rank, "error", err)
			}
		})
	}
	go func() {
		left.Wait()
		close(g.exits)
		g.program.forget(g)
		close(g.done)
	}()
}

// abandon ends a group of which not all processes could be started.
func (g *Group) abandon() {
	for _, it := range g.processes {
		it.handedOver()
		if it.pid != 0 {
			it.signal(syscall.SIGKILL, true)
			it.wait()
			it.clear()
		}
		it.closeReaders()
		it.closeStacks()
		it.copies.Wait()
	}
}

// Exits returns a channel with the end of each process, once and at once. It is closed
// when nothing of any of them is left and all their output was passed on.
func (g *Group) Exits() <-chan Exit { return g.exits }

// Method returns how the processes were started.
func (g *Group) Method() StartMethod { return g.method }

// Wrote reports whether the process with a local rank has written anything.
func (g *Group) Wrote(local int) bool {
	return slices.ContainsFunc(g.processes, func(it *process) bool { return it.local == local && it.wrote() })
}

// Pids returns the processes, in the order of their local ranks.
func (g *Group) Pids() []int {
	var pids []int
	for _, it := range g.processes {
		pids = append(pids, it.pid)
	}
	return pids
}

// Signal sends a signal to the process group of each process that lives, and does not count as a
// stop.
func (g *Group) Signal(sig syscall.Signal) {
	for _, it := range g.processes {
		it.signal(sig, false)
	}
}

// Kill ends the process with that local rank: SIGTERM, and SIGKILL after the grace. It does not
// wait. A process gets SIGTERM once: a further call can only give it more time, or with a grace of
// 0 kill it.
func (g *Group) Kill(local int, grace time.Duration) {
	for _, it := range g.processes {
		if it.local == local {
			it.end(syscall.SIGTERM, grace)
		}
	}
}

// stopLimit is the time that Stop waits after SIGKILL: a process in a driver that does not answer
// cannot be ended.
const stopLimit = 30 * time.Second

// Stop sends the signal to all processes, SIGKILL after the grace, and returns when nothing of them
// is left.
func (g *Group) Stop(sig syscall.Signal, grace time.Duration) {
	end := func(grace time.Duration) {
		for _, it := range g.processes {
			it.end(sig, grace)
		}
	}
	end(grace)
	if grace > 0 && sig != syscall.SIGKILL {
		select {
		case <-g.done:
			return
		case <-time.After(grace):
		}
		end(0)
	}
	select {
	case <-g.done:
	case <-time.After(stopLimit):
		g.program.options.Log.Error("processes of the program did not end after SIGKILL: they may "+
			"hold a device that does not answer", "pids", g.Pids())
	}
}

// ended keeps the logs if there is an error file, and stops forking if that may have ended the
// process.
func (p *Program) ended(e Exit, age time.Duration) {
	if e.Failure != nil {
		p.mu.Lock()
		p.keepLog = true
		p.mu.Unlock()
	}
	if e.Forked {
		p.server.crashed(e, age)
	}
}

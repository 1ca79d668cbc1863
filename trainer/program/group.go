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
	dir         string      // directory of its logs
	stdio       [2]*os.File // stdout and stderr of the child; closed here once it has them
	copies      sync.WaitGroup
	words       *words     // keeps the end of its standard error
	traces      []*trace   // keep what tells whether its output is new
	readers     []*os.File // read ends of the streams that are pipes
	begun       time.Time
	guard       *guardian
	python      string // its interpreter; "": it is no Python script

	mu      sync.Mutex
	pid     int // 0 before the start
	reaped  bool
	stopped bool // it was asked to end
}

// newGroup opens what the processes write to.
func (p *Program) newGroup(position Position) (*Group, error) {
	g := &Group{program: p, position: position, exits: make(chan Exit, position.LocalSize), done: make(chan struct{})}
	for local := range position.LocalSize {
		if position.Locals != nil && !slices.Contains(position.Locals, local) {
			continue
		}
		it := &process{local: local, rank: position.FirstRank + local, dir: p.attempt(position.Restarts, local), guard: p.guard}
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

// open makes the directory of logs, and the two streams.
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
	shown := len(o.LocalRanksFilter) == 0 || slices.Contains(o.LocalRanksFilter, it.local)
	for i, std := range []Std{Stdout, Stderr} {
		console := []io.Writer{p.console.out, p.console.err}[i]
		tee, redirect := o.Tee.Of(it.local)&std != 0, o.Redirects.Of(it.local)&std != 0
		var file *os.File
		var err error
		if tee || redirect {
			name := []string{"stdout.log", "stderr.log"}[i]
			if file, err = os.OpenFile(filepath.Join(it.dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
				return err
			}
		}
		var end *words
		if std == Stderr {
			end = newWords()
			it.words = end
		}
		var to *lineWriter
		switch {
		case tee && shown:
			to = p.console.lines(console, o.prefix(it.env, it.rank, it.local))
		case !redirect && shown:
			to = p.console.lines(console, "")
		case end != nil && file == nil: // it is discarded, but for its end
			to = p.console.lines(io.Discard, "")
		case file == nil:
			if file, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
				return err
			}
		}
		if to == nil {
			if end != nil {
				end.file = file.Name()
			}
			it.stdio[i] = file
			continue
		}
		if err := it.copy(i, file, end, to); err != nil {
			return err
		}
	}
	return nil
}

// copy reads a stream of the process and writes it to the file, if there is one, to the buffer of its end, and line by line to the console.
func (it *process) copy(stream int, file *os.File, end *words, to *lineWriter) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		if file != nil {
			file.Close()
		}
		return err
	}
	it.stdio[stream] = writer
	it.readers = append(it.readers, reader)
	seen := &trace{}
	it.traces = append(it.traces, seen)
	it.copies.Go(func() {
		defer to.finish()
		all := []io.Writer{to}
		if end != nil {
			defer end.close()
			all = append(all, end)
		}
		if file != nil {
			defer file.Close()
			all = append(all, file)
		}
		buffer := make([]byte, 32<<10)
		for {
			n, err := reader.Read(buffer)
			seen.Write(buffer[:n])
			for _, w := range all {
				w.Write(buffer[:n]) // a full disk must not end a training
			}
			if err != nil {
				return
			}
		}
	})
	return nil
}

// handedOver closes this process's copies of what the child writes to.
func (it *process) handedOver() {
	for _, file := range it.stdio {
		if file != nil {
			file.Close()
		}
	}
	it.stdio = [2]*os.File{}
}

// started notes the pid of the child, the leader of a session of its own.
func (it *process) started(pid int) {
	it.guard.watch(pid)
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
	it.stopped = it.stopped || stop
	syscall.Kill(-it.pid, s)
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
	e := Exit{Local: it.local, Rank: it.rank, Pid: it.pid, At: at, Stopped: it.stopped}
	e.Code, e.Signal = reap(it.pid)
	it.reaped = true
	if e.Failure = readFailure(filepath.Join(it.dir, "error.json")); e.Failure != nil {
		e.Failure.Message = withInterpreter(e.Failure.Message, it.python)
	}
	return e
}

// outputGrace is how long the last output may take to arrive once no process of the session is left: a daemon may hold the pipe without limit.
const outputGrace = time.Second

// clear returns when no process of the session is left and all output was passed on.
func (it *process) clear() error {
	err := sweep(it.pid)
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
				g.program.options.Log.Error("a process of the program could not be ended", "rank", it.rank, "error", err)
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
		it.copies.Wait()
	}
}

// Exits returns a channel with the end of each process, once and at once. It is closed
// when nothing of any of them is left and all their output was passed on.
func (g *Group) Exits() <-chan Exit { return g.exits }

// Method returns how the processes were started.
func (g *Group) Method() StartMethod { return g.method }

// Pids returns the processes, in the order of their local ranks.
func (g *Group) Pids() []int {
	var pids []int
	for _, it := range g.processes {
		pids = append(pids, it.pid)
	}
	return pids
}

// Signal sends a signal to the process group of each process that lives, and does not count as a stop.
func (g *Group) Signal(sig syscall.Signal) {
	for _, it := range g.processes {
		it.signal(sig, false)
	}
}

// Kill ends the process with that local rank: SIGTERM, and SIGKILL after the grace. It does not wait.
func (g *Group) Kill(local int, grace time.Duration) {
	i := slices.IndexFunc(g.processes, func(it *process) bool { return it.local == local })
	if i < 0 {
		return
	}
	it := g.processes[i]
	if grace <= 0 {
		it.signal(syscall.SIGKILL, true)
		return
	}
	it.signal(syscall.SIGTERM, true)
	time.AfterFunc(grace, func() { it.signal(syscall.SIGKILL, true) })
}

// stopLimit is how long Stop waits after SIGKILL: a process in a driver that does not answer cannot be ended.
const stopLimit = 30 * time.Second

// Stop sends the signal to all processes, SIGKILL after the grace, and returns when nothing of them is left.
func (g *Group) Stop(sig syscall.Signal, grace time.Duration) {
	signal := func(s syscall.Signal) {
		for _, it := range g.processes {
			it.signal(s, true)
		}
	}
	if grace > 0 && sig != syscall.SIGKILL {
		signal(sig)
		select {
		case <-g.done:
			return
		case <-time.After(grace):
		}
	}
	signal(syscall.SIGKILL)
	select {
	case <-g.done:
	case <-time.After(stopLimit):
		g.program.options.Log.Error("processes of the program did not end after SIGKILL: they may hold a device that does not answer", "pids", g.Pids())
	}
}

// ended keeps the logs if there is an error file, and stops forking if that may have ended the process.
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

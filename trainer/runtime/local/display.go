package local

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/elasticdl/elasticdl/trainer/console"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// Display is the streams of a command that starts a program and stays until its end.
type Display struct {
	// passed to the only process of the program; nil: it gets nothing
	Stdin *os.File
	// show what the processes write
	Stdout, Stderr io.Writer
}

// Environment variables of a worker that announce the streams of the command that attends its job.
const (
	stdinEnv    = "ELASTICDL_STDIN"
	stdoutEnv   = "ELASTICDL_STDOUT"
	stderrEnv   = "ELASTICDL_STDERR"   // not set if one terminal shows both
	terminalEnv = "ELASTICDL_TERMINAL" // the terminal itself, for its size
	// names of the streams that are terminals, with commas between
	terminalsEnv = "ELASTICDL_TERMINALS"
)

// display shows what the workers of a job write, in the launcher.
type display struct {
	// the same if one terminal shows both
	stdout, stderr *console.Stream
	// lines have the names of their workers before them
	names bool
	// nil: none is passed on
	stdin *os.File
	// passes on what is typed; nil: nothing is
	keyboard *keyboard
	// of the command; nil: it has none
	terminal *os.File
	resized  chan os.Signal
	// of what workers write
	copies sync.WaitGroup
	// of the terminal's size
	following sync.WaitGroup
}

// newDisplay returns the display of a job on the streams of a command, nil if there are none.
func newDisplay(of *Display, j *job.Job) (*display, error) {
	if of == nil {
		return nil, nil
	}
	single := j.NumWorkers == 1 && j.MaxWorkers <= 1
	d := &display{names: !single, stdin: of.Stdin, resized: make(chan os.Signal, 1)}
	out, err := terminalOf(of.Stdout), terminalOf(of.Stderr)
	d.stdout, d.stderr = console.New(of.Stdout, out != nil), console.New(of.Stderr, err != nil)
	if out != nil && err != nil && sameFile(out, err) || of.Stdout == of.Stderr {
		d.stderr = d.stdout
	}
	if d.terminal = out; out == nil {
		d.terminal = err
	}
	if d.stdin != nil && terminalOf(d.stdin) != nil {
		var e error
		if d.keyboard, e = newKeyboard(d.stdin, out != nil); e != nil {
			return nil, e
		}
		d.stdin = d.keyboard.typed
	}
	return d, nil
}

// terminalOf returns the terminal that shows what is written, nil if none does.
func terminalOf(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && f != nil && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// Notes returns where the command writes messages among the lines of the program.
func (h *Handle) Notes() io.Writer { return h.launcher.display.stderr }

// Shown returns why not all could be shown that the processes have written, nil if it was.
func (h *Handle) Shown() error {
	if err := h.launcher.display.stdout.Err(); err != nil {
		return fmt.Errorf("write what the program wrote to standard output: %w", err)
	}
	return nil
}

// attach opens what a worker writes to and reads from. The caller starts the worker with the files
// and variables, and then closes the files with detach.
func (d *display) attach(id pod.ID, alone bool) (files []inheritance, env map[string]string, detach func(), err error) {
	if d == nil || id.Role != pod.Worker {
		return nil, map[string]string{}, func() {}, nil
	}
	var ours, theirs []*os.File
	detach = func() {
		for _, f := range theirs {
			f.Close()
		}
	}
	streams := []*console.Stream{d.stdout, d.stderr}
	if d.stdout == d.stderr {
		streams = streams[:1]
	}
	var terminals []string
	for i, name := range []string{stdoutEnv, stderrEnv}[:len(streams)] {
		read, write, err := os.Pipe()
		if err != nil {
			detach()
			for _, f := range ours {
				f.Close()
			}
			return nil, nil, nil, fmt.Errorf("show what %v writes: %w", id, err)
		}
		ours, theirs = append(ours, read), append(theirs, write)
		files = append(files, inheritance{name, write})
		if streams[i].Terminal() {
			terminals = append(terminals, name)
		}
	}
	if d.terminal != nil {
		files = append(files, inheritance{terminalEnv, d.terminal})
	}
	if d.stdin != nil && alone {
		files = append(files, inheritance{stdinEnv, d.stdin})
		if d.keyboard != nil {
			terminals = append(terminals, stdinEnv)
		}
	}
	for i, read := range ours {
		source := streams[i].Source(d.prefix(id, streams[i]))
		d.copies.Go(func() {
			defer read.Close()
			defer source.Close()
			io.Copy(source, read) // it ends with the worker
		})
	}
	return files, map[string]string{terminalsEnv: strings.Join(terminals, ",")}, detach, nil
}

// prefix returns the text before each line of a worker: its name, unless it is the first of one, or
// another program may read the lines.
func (d *display) prefix(id pod.ID, on *console.Stream) string {
	if !d.names && id.Index == 0 || on != d.stderr && !on.Terminal() {
		return ""
	}
	return "[" + id.String() + "] "
}

// follow passes on to the workers that the terminal has another size, and what is typed.
func (d *display) follow(workers func(func(*process))) {
	if d == nil {
		return
	}
	if d.keyboard != nil {
		d.keyboard.start()
	}
	signal.Notify(d.resized, syscall.SIGWINCH)
	d.following.Go(func() {
		for range d.resized {
			workers(func(p *process) { p.cmd.Process.Signal(syscall.SIGWINCH) })
		}
	})
}

// release gives the terminal back to the command.
func (d *display) release() {
	if d != nil && d.keyboard != nil {
		d.keyboard.stop()
	}
}

// close returns when all is shown that the workers, which have ended, have written.
func (d *display) close() {
	if d == nil {
		return
	}
	d.copies.Wait()
	d.release()
	signal.Stop(d.resized)
	close(d.resized)
	d.following.Wait()
}

// AttendedBy returns the streams of the command that attends the job of this worker, nil if it is
// detached, or on a cluster.
func AttendedBy() *program.Display {
	terminals := strings.Split(os.Getenv(terminalsEnv), ",")
	os.Unsetenv(terminalsEnv)
	is := func(name string) bool {
		return slices.Contains(terminals, name)
	}
	stdout, stderr := inherited(stdoutEnv), inherited(stderrEnv)
	if stdout == nil {
		return nil
	}
	d := &program.Display{Stdout: console.New(stdout, is(stdoutEnv)), Stdin: inherited(stdinEnv),
		Keyboard: is(stdinEnv), Terminal: inherited(terminalEnv)}
	if d.Stderr = d.Stdout; stderr != nil {
		d.Stderr = console.New(stderr, is(stderrEnv))
	}
	return d
}

package program

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stacksSource is the Python code that registers the handler. A process that is started by exec
// finds it by startExecSource.
//
//go:embed stacks.py
var stacksSource string

//go:embed startexec.py
var startExecSource string

const (
	// stackSignal has the interpreter write its stacks. A process that has no handler for it, as
	// one that has just called exec, ignores it: that is the signal's default. Few programs use it.
	stackSignal = syscall.SIGURG
	// stackLimit is the time that a process has to write its stacks.
	stackLimit = 2 * time.Second
	// stackMost limits the text of one process, in bytes. The end is kept, as the main thread is
	// the last one.
	stackMost = 256 << 10
)

// NoStack is the reason why a process has no Python stacks; "": it has some.
type NoStack string

// The reasons.
const (
	NotPython  NoStack = "not a Python program"
	NotStarted NoStack = "the interpreter has not reached the script, or does not read PYTHONPATH"
	Replaced   NoStack = "the program has replaced its interpreter"
	Finished   NoStack = "the interpreter has ended, and its process has not"
	Closed     NoStack = "the program has closed the file that they are written to"
	Halted     NoStack = "a signal has stopped the process"
	Traced     NoStack = "a debugger holds the process"
	Blocked    NoStack = "every thread of the process blocks the signal, or cannot be interrupted"
	Silent     NoStack = "the process did not answer within 2 s"
	Deaf       NoStack = "the program has a signal handler of its own"
	Ended      NoStack = "the process has ended"
	Cancelled  NoStack = "the request was cancelled"
)

// String returns the reason for the user.
func (r NoStack) String() string { return "no stacks: " + string(r) }

// Stack describes the work of a process at one time.
type Stack struct {
	Local, Rank, Pid int
	// Text has the stacks of all threads, as Python's faulthandler writes them, the main thread
	// last. It may lack its beginning.
	Text string
	// Why is the reason if Text is empty.
	Why NoStack
	// Place describes the main thread, before the signal.
	Place Place
}

// Stack returns the Python stacks of the process with that local rank. It sends a signal to this
// process, which interrupts its sleeps in C, so it is for requests and suspicions only. It takes
// 2 s at most, of which it sleeps most; calls for one process wait for one another.
func (g *Group) Stack(ctx context.Context, local int) Stack {
	for _, it := range g.processes {
		if it.local == local {
			return it.stack(ctx)
		}
	}
	return Stack{Local: local, Why: Ended}
}

// Place returns what the kernel shows of the main thread of the process with that local rank. It
// disturbs nothing.
func (g *Group) Place(local int) Place {
	for _, it := range g.processes {
		if _, lives := it.status(); it.local == local && lives {
			return placeOf(it.pid)
		}
	}
	return Place{}
}

func (it *process) stack(ctx context.Context) Stack {
	ctx, cancel := context.WithTimeout(ctx, stackLimit)
	defer cancel()
	s := Stack{Local: it.local, Rank: it.rank, Pid: it.pid, Place: placeOf(it.pid)}
	if it.stacks == nil {
		s.Why = NotPython
		if _, ok := it.status(); !ok {
			s.Why = Ended
		}
		return s
	}
	select {
	case it.stacks.turn <- struct{}{}:
		defer func() { <-it.stacks.turn }()
	case <-ctx.Done():
		s.Why = Silent
		return s
	}
	s.Text, s.Why = it.ask(ctx)
	return s
}

// stackFile is the file that one process writes its stacks to. It is a memfd of the agent's: a
// writer that waits for no reader, and no name that another user could find.
type stackFile struct {
	// has an element while a request has its turn
	turn chan struct{}
	// closed once the process is reaped
	file *os.File

	// The rest is of the request that has its turn.

	// descriptor in the process; 0: the process has not reported it
	fd int
	// thread that was sent the signal, as far as it has not been answered; 0: none
	asked int
	// the signal has arrived, and nothing was written: never send it again
	deaf bool
}

func newStackFile() (*stackFile, error) {
	fd, err := unix.MemfdCreate("elasticdl-stacks", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return &stackFile{turn: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "stacks")}, nil
}

// path returns the path by which a child of this process opens the file.
func (f *stackFile) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.file.Fd()) }

// text returns the end of what was written.
func (f *stackFile) text() string {
	info, err := f.file.Stat()
	if err != nil {
		return ""
	}
	begin := max(0, info.Size()-stackMost)
	text, err := io.ReadAll(io.NewSectionReader(f.file, begin, stackMost))
	if err != nil {
		return ""
	}
	if begin > 0 {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return string(text)
}

// note takes the number of the descriptor that an interpreter has written, and removes what was
// written since the last answer.
func (f *stackFile) note() error {
	text := f.text()
	for line := range strings.Lines(text) {
		if fd, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil && fd > 0 {
			f.fd, f.deaf, f.asked = fd, false, 0
		}
	}
	if text == "" {
		return nil
	}
	if isDump(text) {
		f.deaf = false // it was late
	}
	return f.file.Truncate(0)
}

// has reports whether the process still has the file at the descriptor. Otherwise the stacks would
// be written to another file of the program.
func (f *stackFile) has(pid int) bool {
	of, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, f.fd))
	if err != nil {
		return false
	}
	own, err := f.file.Stat()
	return err == nil && os.SameFile(of, own)
}

// ask has the process write its stacks. The request has its turn.
func (it *process) ask(ctx context.Context) (string, NoStack) {
	f := it.stacks
	status, ok := it.status()
	if !ok {
		return "", Ended
	}
	if err := f.note(); err != nil {
		return "", Ended // the file is closed
	}
	if why := f.refusal(it.pid, status); why != "" {
		return "", why
	}
	if waits, _ := f.handles(it.pid); !waits {
		if f.asked = threadFor(it.pid); f.asked == 0 {
			return "", Blocked
		}
		if !it.signalThread(f.asked) {
			return "", Ended
		}
	}
	return it.answer(ctx)
}

// refusal returns why the signal must not be sent, "" if it may.
func (f *stackFile) refusal(pid int, s status) NoStack {
	catches := s.caught&maskOf(stackSignal) != 0
	switch {
	case f.fd == 0:
		return NotStarted
	case !catches && f.has(pid):
		return Finished
	case !catches:
		return Replaced
	case s.tracer != 0 || s.state == 't':
		return Traced
	case s.state == 'T':
		return Halted
	case f.deaf:
		return Deaf
	case !f.has(pid):
		return Closed
	}
	return ""
}

// signalThread sends the signal to one thread of the process, as long as the pid is not reused.
func (it *process) signalThread(thread int) bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return !it.reaped && unix.Tgkill(it.pid, thread, stackSignal) == nil
}

// answer returns what the process writes. It is complete when something was written, and after that
// the signal is neither pending nor blocked in the thread that was sent it: the kernel blocks a
// signal while its handler runs. For a moment before the handler, it is neither.
func (it *process) answer(ctx context.Context) (string, NoStack) {
	f := it.stacks
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		begun := isDump(f.text())
		handles, lives := f.handles(it.pid)
		if begun && !handles {
			f.asked = 0
			return f.text(), ""
		}
		select {
		case <-ctx.Done():
			switch _, ok := it.status(); {
			case !ok:
				return "", Ended
			case !errors.Is(ctx.Err(), context.DeadlineExceeded):
				return "", Cancelled
			case !handles && lives:
				f.deaf = true
				return "", Deaf
			}
			return "", Silent
		case <-time.After(pause):
		}
	}
}

// status describes a process or thread, from /proc.
type status struct {
	state  byte
	tracer int
	// sets of signals: pending for the thread, blocked, and caught by a handler
	pending, blocked, caught uint64
}

// maskOf returns the set with one signal.
func maskOf(s syscall.Signal) uint64 { return 1 << (s - 1) }

// status returns that of the process, false if it has ended.
func (it *process) status() (status, bool) {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.pid == 0 || it.reaped {
		return status{}, false
	}
	s, ok := readStatus(filepath.Join("/proc", strconv.Itoa(it.pid)))
	return s, ok && s.state != 'Z' && s.state != 'X'
}

func readStatus(dir string) (status, bool) {
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return status{}, false
	}
	return parseStatus(string(text))
}

// parseStatus reads the text of /proc/<pid>/status.
func parseStatus(text string) (s status, ok bool) {
	sets := map[string]*uint64{"SigPnd": &s.pending, "SigBlk": &s.blocked, "SigCgt": &s.caught}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if set := sets[name]; set != nil {
			n, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return status{}, false
			}
			*set = n
			delete(sets, name)
		}
		switch {
		case name == "State" && value != "":
			s.state = value[0]
		case name == "TracerPid":
			s.tracer, _ = strconv.Atoi(value) // the kernel writes a number
		}
	}
	return s, s.state != 0 && len(sets) == 0
}

// taskOf returns the directory of a thread.
func taskOf(pid, thread int) string { return fmt.Sprintf("/proc/%d/task/%d", pid, thread) }

// handles reports whether the thread that was sent the signal has yet to handle it, or its handler
// is running, and whether that thread lives.
func (f *stackFile) handles(pid int) (handles, lives bool) {
	if f.asked == 0 {
		return false, false
	}
	s, ok := readStatus(taskOf(pid, f.asked))
	return ok && (s.pending|s.blocked)&maskOf(stackSignal) != 0, ok
}

// isDump reports whether a text has the stack of a thread.
func isDump(text string) bool { return strings.Contains(text, "most recent call first") }

// mostThreads limits the threads of which one is chosen.
const mostThreads = 256

// threadFor returns a thread that can handle the signal, 0 if there is none: the main thread, if
// it does not block the signal, and does not wait for a device or file system without interruption.
func threadFor(pid int) int {
	threads := []int{pid}
	if dir, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "task")); err == nil {
		names, _ := dir.Readdirnames(mostThreads)
		dir.Close()
		for _, name := range names {
			if thread, err := strconv.Atoi(name); err == nil && thread != pid {
				threads = append(threads, thread)
			}
		}
	}
	for _, thread := range threads {
		s, ok := readStatus(taskOf(pid, thread))
		if ok && (s.pending|s.blocked)&maskOf(stackSignal) == 0 && !strings.ContainsRune("DZXTt", rune(s.state)) {
			return thread
		}
	}
	return 0
}

const (
	// stacksVariable has the signal and the file for a process that is started by exec.
	stacksVariable = "ELASTICDL_STACKS"
	// pathVariable has the value of PYTHONPATH for the script, if it has one.
	pathVariable = "ELASTICDL_PYTHONPATH"
)

// boot returns the path of the directory whose sitecustomize.py registers the stacks.
func (p *Program) boot() string { return filepath.Join(p.logs, "boot") }

// writeBoot makes that directory, if it can.
func (p *Program) writeBoot() {
	err := os.Mkdir(p.boot(), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.boot(), "sitecustomize.py"),
			[]byte(stacksSource+"\n\n"+startExecSource), 0o600)
	}
	if err != nil {
		p.options.Log.Debug("the stacks of processes that are started by exec cannot be shown", "error", err)
		return
	}
	p.bootDir = p.boot()
}

// openStacks makes the file for the stacks of a process that is a Python script. Without it the
// process runs as well.
func (it *process) openStacks(p *Program) {
	if !p.command.python {
		return
	}
	var err error
	if it.stacks, err = newStackFile(); err != nil {
		p.options.Log.Debug("the stacks of a process cannot be shown", "rank", it.rank, "error", err)
	}
}

// closeStacks closes the file. A request that has its turn ends.
func (it *process) closeStacks() {
	if it.stacks != nil {
		it.stacks.file.Close()
	}
}

// bootstrap returns the variables with which an interpreter that is started by exec registers the
// stacks. It removes them before the script begins.
func (it *process) bootstrap() environ {
	if it.stacks == nil || it.bootDir == "" {
		return environ{}
	}
	boot := it.bootDir
	e := environ{stacksVariable: fmt.Sprintf("%d %s", stackSignal, it.stacks.path())}
	before, ok := it.env["PYTHONPATH"]
	if ok {
		e[pathVariable] = before
	}
	if before != "" {
		boot += string(os.PathListSeparator) + before
	}
	e["PYTHONPATH"] = boot
	return e
}

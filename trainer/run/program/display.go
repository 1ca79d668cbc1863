package program

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/console"
)

// Display is the streams of the command that attends the job: the output of the processes that it
// shows, in addition to their log, and its input for them. Where the command has a terminal, the
// processes have pseudo-terminals.
type Display struct {
	// Stdout and Stderr show what the processes write. They are the same if one terminal shows
	// both.
	Stdout, Stderr *console.Stream
	// Stdin is the standard input of the program, which has one process; nil: /dev/null.
	Stdin *os.File
	// Keyboard reports that Stdin has what is typed at the command's terminal.
	Keyboard bool
	// Terminal is the terminal of the command, whose size the pseudo-terminals have; nil: there is
	// none.
	Terminal *os.File
}

// stream returns where a standard stream of the processes is shown, nil if it is not.
func (d *Display) stream(std Std) *console.Stream {
	switch {
	case d == nil:
		return nil
	case std == Stdout:
		return d.Stdout
	}
	return d.Stderr
}

// terminal is a pseudo-terminal of one process.
type terminal struct {
	master *os.File
	slave  *os.File
}

// openTerminal returns a pseudo-terminal with the size of another, if that is one. echo reports
// that it shows what is typed.
func openTerminal(like *os.File, echo bool) (*terminal, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a pseudo-terminal: /dev/ptmx: %w", err)
	}
	t := &terminal{master: os.NewFile(uintptr(fd), "/dev/ptmx")}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		t.slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.master.Close()
		return nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	t.resize(like)
	t.setMode(echo)
	return t, nil
}

// setMode leaves line ends unchanged, since the command's terminal adds the carriage returns, and
// turns the echo off if it is not wanted.
func (t *terminal) setMode(echo bool) {
	control(t.slave, func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		mode.Oflag &^= unix.ONLCR
		if !echo {
			mode.Lflag &^= unix.ECHO
		}
		return unix.IoctlSetTermios(fd, unix.TCSETS, mode)
	})
}

// resize gives the pseudo-terminal the size of another terminal, if that is one.
func (t *terminal) resize(like *os.File) {
	var size *unix.Winsize
	if like == nil || control(like, func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	}) != nil {
		return
	}
	// it fails if the process has ended
	control(t.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// control calls f with the descriptor of an open file.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	if failed != nil {
		return failed
	}
	return err
}

// terminals has the pseudo-terminals of the processes that run. It passes on what is typed, and the
// size of the command's terminal.
type terminals struct {
	display *Display
	signals chan os.Signal
	ended   chan struct{}

	following sync.WaitGroup

	mu      sync.Mutex
	all     map[*terminal]bool
	typed   *terminal     // gets what is typed; nil: none does
	changed chan struct{} // closed when typed changes
}

// startTerminals begins to follow the command's terminal.
func startTerminals(d *Display) *terminals {
	t := &terminals{display: d, signals: make(chan os.Signal, 1), ended: make(chan struct{}),
		all: make(map[*terminal]bool), changed: make(chan struct{})}
	if d == nil {
		return t
	}
	signal.Notify(t.signals, syscall.SIGWINCH) // the command passes it on
	t.following.Go(func() {
		for {
			select {
			case <-t.signals:
				t.mu.Lock()
				for one := range t.all {
					one.resize(d.Terminal)
				}
				t.mu.Unlock()
			case <-t.ended:
				return
			}
		}
	})
	if d.Keyboard {
		t.following.Go(func() { t.pass(d.Stdin) })
	}
	return t
}

// close ends what startTerminals has begun.
func (t *terminals) close() {
	signal.Stop(t.signals)
	close(t.ended)
	t.following.Wait()
}

// typeLook is the interval at which the reader of typed text checks whether to end, in
// milliseconds.
const typeLook = 100

// add notes the pseudo-terminal of a process that starts.
func (t *terminals) add(one *terminal, typed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[one] = true
	if typed {
		t.typed = one
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// remove forgets the pseudo-terminal of a process that has ended.
func (t *terminals) remove(one *terminal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, one)
	if t.typed == one {
		t.typed = nil
	}
}

// pass gives what is typed to the process that runs. Between two processes it waits for the next.
func (t *terminals) pass(keyboard *os.File) {
	buffer := make([]byte, 1<<10)
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(keyboard.Fd()), Events: unix.POLLIN}}, typeLook)
		select {
		case <-t.ended:
			return
		default:
		}
		if ready == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		n, err := keyboard.Read(buffer)
		for text := buffer[:n]; len(text) > 0; {
			t.mu.Lock()
			to, changed := t.typed, t.changed
			t.mu.Unlock()
			if to == nil {
				select {
				case <-changed:
				case <-t.ended:
					return
				}
				continue
			}
			written, err := to.master.Write(text)
			text = text[written:]
			if err != nil { // the process has ended
				t.remove(to)
			}
		}
		if err != nil {
			return
		}
	}
}

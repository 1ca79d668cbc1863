package local

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keyboard passes on what is typed at the command's terminal. While the command is in the
// foreground, the terminal passes on each key and echoes none: the pseudo-terminal of the process
// does. Ctrl-C, Ctrl-Z and Ctrl-\ stay with the command.
type keyboard struct {
	terminal *os.File
	// the program sees each key: its terminal is on the screen
	keys bool
	// what is typed, for the workers to inherit
	typed *os.File
	to    *os.File

	// mode of the terminal when the command began
	before  *unix.Termios
	resumed chan os.Signal
	// can be read once nothing more is passed on
	ended *os.File
	// closed to end
	end  *os.File
	done sync.WaitGroup

	mu      sync.Mutex
	begun   bool
	stopped bool
}

// look is the interval at which a command in the background checks whether it is in the foreground.
const look = 200 * time.Millisecond

func newKeyboard(terminal *os.File, keys bool) (*keyboard, error) {
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the mode of the terminal: %w", err)
	}
	k := &keyboard{terminal: terminal, keys: keys, before: before, resumed: make(chan os.Signal, 1)}
	if k.ended, k.end, err = os.Pipe(); err != nil {
		return nil, err
	}
	if k.typed, k.to, err = os.Pipe(); err != nil {
		return nil, err
	}
	return k, nil
}

// start begins to pass on what is typed.
func (k *keyboard) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begun || k.stopped {
		return
	}
	k.begun = true
	// the shell has set the mode of the terminal meanwhile
	signal.Notify(k.resumed, syscall.SIGCONT)
	k.done.Go(k.pass)
}

// stop restores the terminal. Nothing that is typed later is read.
func (k *keyboard) stop() {
	k.mu.Lock()
	if k.stopped {
		k.mu.Unlock()
		return
	}
	k.stopped = true
	k.end.Close()
	k.mu.Unlock()
	k.done.Wait()
	signal.Stop(k.resumed)
	if k.begun && k.foreground() {
		unix.IoctlSetTermios(int(k.terminal.Fd()), unix.TCSETSW, k.before)
	}
	for _, file := range []*os.File{k.typed, k.to, k.ended} {
		file.Close()
	}
}

// foreground reports whether this process may read from the terminal: from the background that
// would stop it.
func (k *keyboard) foreground() bool {
	group, err := unix.IoctlGetInt(int(k.terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// take sets the mode of the terminal.
func (k *keyboard) take() {
	if !k.keys {
		return
	}
	mode := *k.before
	mode.Lflag &^= unix.ICANON | unix.ECHO | unix.IEXTEN
	mode.Iflag &^= unix.ICRNL | unix.IXON
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	unix.IoctlSetTermios(int(k.terminal.Fd()), unix.TCSETSW, &mode)
}

// pass passes on what is typed until stop.
func (k *keyboard) pass() {
	buffer := make([]byte, 1<<10)
	taken := false
	for {
		select {
		case <-k.resumed:
			taken = false
		default:
		}
		wait := []unix.PollFd{{Fd: int32(k.ended.Fd()), Events: unix.POLLIN}}
		if !k.foreground() {
			taken = false
		} else {
			if !taken {
				k.take()
				taken = true
			}
			wait = append(wait, unix.PollFd{Fd: int32(k.terminal.Fd()), Events: unix.POLLIN})
		}
		n, err := unix.Poll(wait, int(look.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil, wait[0].Revents != 0:
			return
		case n == 0, len(wait) == 1, !k.foreground():
			continue
		}
		n, err = k.terminal.Read(buffer)
		if err != nil || n == 0 && k.keys { // the terminal is closed
			return
		}
		if n == 0 {
			// the end of a line of its own, as Ctrl-D types it
			buffer[0], n = 4, 1
		}
		// nobody reads what is typed: it is dropped
		k.to.SetWriteDeadline(time.Now().Add(look))
		k.to.Write(buffer[:n])
	}
}

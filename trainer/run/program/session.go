package program

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waitEnd returns when the child has ended. It stays a zombie, so its pid and its process group's
// are not given to another process.
func waitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// reap returns the status of a child that has ended, and releases its pid.
func reap(pid int) (code, signal int) {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			// it was not a child of this process: its status cannot be known
			return 1, 0
		case status.Signaled():
			return -int(status.Signal()), int(status.Signal())
		}
		return status.ExitStatus(), 0
	}
}

// sweepLimit is the time that sweep waits for processes that were killed: those in a system call
// that cannot be interrupted may stay.
const sweepLimit = 10 * time.Second

// sweep kills the remaining processes of a session whose leader has ended and was reaped, and
// returns when none is left. It reaps those that have become children of this process.
func sweep(session int) error {
	pause := time.Millisecond
	for deadline := time.Now().Add(sweepLimit); ; time.Sleep(pause) {
		left := members(session)
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of session %d are still running %v after SIGKILL: they "+
				"may hold a device or a file system that does not answer",
				left, session, sweepLimit)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// members returns the live processes of a session. It reaps those that have ended and whose parent
// is this process.
func members(session int) []int {
	var live []int
	for pid, text := range stats() {
		state, parent, of, ok := parseStat(text)
		switch {
		case !ok || of != session:
		case state != 'Z' && state != 'X':
			live = append(live, pid)
		case parent == os.Getpid():
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
	return live
}

// stats yields the ID and the text of /proc/<pid>/stat of each process that this process may see.
func stats() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		defer dir.Close()
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			text, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
			if err == nil && !yield(pid, text) { // after an error: it has ended
				return
			}
		}
	}
}

// parseStat takes state, parent and session from the text of /proc/<pid>/stat.
func parseStat(text []byte) (state byte, parent, session int, ok bool) {
	// the command's name may contain spaces and brackets
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return 0, 0, 0, false
	}
	fields := bytes.Fields(text[i+1:])
	if len(fields) < 4 || len(fields[0]) != 1 {
		return 0, 0, 0, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	return fields[0][0], parent, session, err1 == nil && err2 == nil
}

// adopt makes this process the parent of descendants whose parent has ended.
func adopt() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

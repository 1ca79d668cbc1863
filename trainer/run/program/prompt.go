package program

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Calls that only x86-64 has: of poll and select. Elsewhere the C library uses ppoll and pselect6.
const (
	oldPoll   = 7
	oldSelect = 23
)

// awaitsUser reports whether the main thread of a process waits for a user: it reads from a
// terminal, or waits until the terminal that is its standard input has something to read. dir is
// the directory of the process in /proc.
func awaitsUser(pid int, dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "syscall"))
	if err != nil {
		return false
	}
	fd, isRead := awaited(string(text), runtime.GOARCH, func(at uint64) int { return polled(pid, at) })
	if !isRead {
		return false
	}
	target, err := os.Readlink(filepath.Join(dir, "fd", strconv.Itoa(fd)))
	return err == nil && (strings.HasPrefix(target, "/dev/pts/") || strings.HasPrefix(target, "/dev/tty") ||
		target == "/dev/console")
}

// awaited returns the descriptor that a process waits to read from, and no other, given the text of
// /proc/<pid>/syscall; false: it does something else. polled returns the first descriptor of a list
// for poll.
func awaited(text, arch string, polled func(at uint64) int) (fd int, ok bool) {
	var words [3]uint64
	fields := strings.Fields(text)
	if len(fields) < len(words) {
		return 0, false
	}
	for i := range words {
		var err error
		if words[i], err = strconv.ParseUint(fields[i], 0, 64); err != nil {
			return 0, false
		}
	}
	call, first, second := words[0], words[1], words[2]
	old := arch == "amd64"
	switch {
	case call == unix.SYS_READ && first < 1<<20:
		return int(first), true
	case call == unix.SYS_PSELECT6, old && call == oldSelect:
		return 0, first == 1 // only of the descriptor 0
	case call == unix.SYS_PPOLL, old && call == oldPoll:
		if second != 1 {
			return 0, false
		}
		fd := polled(first)
		return fd, fd >= 0
	}
	return 0, false
}

// polled returns the first descriptor of a list for poll in the memory of a process; -1: it cannot
// be read.
func polled(pid int, at uint64) int {
	fd := make([]byte, 4)
	local := []unix.Iovec{{Base: &fd[0], Len: uint64(len(fd))}}
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(fd)}}, 0)
	if err != nil || n != len(fd) {
		return -1
	}
	return int(int32(binary.NativeEndian.Uint32(fd)))
}

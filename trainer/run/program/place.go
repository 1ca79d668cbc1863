package program

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Place describes a thread by what the kernel shows.
type Place struct {
	// State is the letter of its state, as ps shows it: R runs, S sleeps, D cannot be interrupted,
	// T is stopped. 0: it has ended.
	State byte
	// Call is the system call in which it waits, in plain words as "sleep" or "receive"; "": none
	// that is known.
	Call string
	// Kernel is the function of the kernel in which it waits; "": it is not known.
	Kernel string
	// Ticks is the processor time of the thread so far, in hundredths of a second.
	Ticks int64
}

// String describes the place: "sleeping (S) in sleep (hrtimer_nanosleep)".
func (p Place) String() string {
	if p.State == 0 {
		return "ended"
	}
	words := map[byte]string{'R': "running", 'S': "sleeping", 'D': "waiting without interruption",
		'T': "stopped", 't': "held by a debugger", 'Z': "ended"}
	text := strings.TrimSpace(words[p.State] + " (" + string(rune(p.State)) + ")")
	if p.Call != "" {
		text += " in " + p.Call
	}
	if p.Kernel != "" {
		text += " (" + p.Kernel + ")"
	}
	return text
}

// calls names the system calls in which programs wait.
var calls = map[uint64]string{
	unix.SYS_READ: "read", unix.SYS_READV: "read", unix.SYS_PREAD64: "read", unix.SYS_WRITE: "write",
	unix.SYS_WRITEV: "write", unix.SYS_PWRITE64: "write",
	unix.SYS_RECVFROM: "receive", unix.SYS_RECVMSG: "receive", unix.SYS_SENDTO: "send", unix.SYS_SENDMSG: "send",
	unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept",
	unix.SYS_PPOLL: "poll", unix.SYS_PSELECT6: "select", unix.SYS_EPOLL_PWAIT: "poll",
	unix.SYS_FUTEX: "lock", unix.SYS_NANOSLEEP: "sleep", unix.SYS_CLOCK_NANOSLEEP: "sleep",
	unix.SYS_WAIT4: "wait for a child", unix.SYS_WAITID: "wait for a child",
	unix.SYS_FLOCK: "file lock", unix.SYS_FCNTL: "file lock", unix.SYS_FSYNC: "fsync",
	unix.SYS_FDATASYNC: "fsync", unix.SYS_OPENAT: "open", unix.SYS_IOCTL: "device",
	unix.SYS_RT_SIGTIMEDWAIT: "wait for a signal",
}

// older names calls that only x86-64 has.
var older = map[uint64]string{7: "poll", 23: "select", 34: "wait for a signal", 232: "poll"}

// placeOf returns what the kernel shows of the main thread of a process.
func placeOf(pid int) Place {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	s, ok := readStatus(dir)
	if !ok {
		return Place{}
	}
	p := Place{State: s.state}
	if text, err := os.ReadFile(filepath.Join(taskOf(pid, pid), "stat")); err == nil {
		p.Ticks, _ = parseTicks(text, ownTicks)
	}
	call, err := os.ReadFile(filepath.Join(dir, "syscall"))
	if err == nil {
		p.Call = callOf(string(call), runtime.GOARCH)
	}
	if wchan, err := os.ReadFile(filepath.Join(dir, "wchan")); err == nil && string(wchan) != "0" {
		p.Kernel = strings.TrimSpace(string(wchan))
	}
	return p
}

// callOf names the call in the text of /proc/<pid>/syscall; "": it runs, or the call is another.
func callOf(text, arch string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return "" // "running", or -1
	}
	if name := calls[n]; name != "" || arch != "amd64" {
		return name
	}
	return older[n]
}

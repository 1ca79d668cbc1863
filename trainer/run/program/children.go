package program

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// children reaps what becomes a child of this process because its parent has ended: helpers of a
// program that outlive who has started them. Nobody else waits for those while the program runs. It
// leaves alone the children that this process has started: those in its own session, and those that
// it knows.
var children family

// reapPause is the least time between two looks for children that have ended.
const reapPause = 100 * time.Millisecond

type family struct {
	// held for reading while a child starts, until it is known
	starting sync.RWMutex

	mu sync.Mutex
	// children that this process waits for on its own
	known map[int]bool
	// programs that are open
	users int
	stop  func()
}

// know notes that this process waits for a child on its own. The caller holds starting, or has not
// let the child end yet.
func (f *family) know(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = make(map[int]bool)
	}
	f.known[pid] = true
}

// forget notes that a child was waited for: its number may be reused.
func (f *family) forget(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, pid)
}

// open begins to reap, until close was called as often as open.
func (f *family) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users++; f.users > 1 {
		return
	}
	ends, over, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(ends, syscall.SIGCHLD)
	go func() {
		defer close(done)
		for {
			select {
			case <-ends:
			case <-over:
				return
			}
			f.reap()
			select {
			case <-time.After(reapPause):
			case <-over:
				return
			}
		}
	}()
	f.stop = func() {
		signal.Stop(ends)
		close(over)
		<-done
	}
}

func (f *family) close() {
	f.mu.Lock()
	var stop func()
	if f.users--; f.users == 0 {
		stop = f.stop
	}
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// reap releases the children that have ended and that nobody waits for.
func (f *family) reap() {
	// all that this process has started is known
	f.starting.Lock()
	defer f.starting.Unlock()
	own, err := unix.Getsid(0)
	if err != nil {
		return
	}
	for _, pid := range childrenOf(os.Getpid()) {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			continue
		}
		state, parent, session, ok := parseStat(text)
		f.mu.Lock()
		known := f.known[pid]
		f.mu.Unlock()
		if ok && state == 'Z' && parent == os.Getpid() && session != own && !known {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// childrenOf returns the children of a process, or all processes if this system does not list them.
func childrenOf(pid int) (all []int) {
	threads := filepath.Join("/proc", strconv.Itoa(pid), "task")
	paths, _ := filepath.Glob(filepath.Join(threads, "*", "children")) // the pattern is valid
	if len(paths) == 0 {
		paths, _ = filepath.Glob("/proc/[0-9]*")
		for _, path := range paths {
			if pid, err := strconv.Atoi(filepath.Base(path)); err == nil {
				all = append(all, pid)
			}
		}
		return all
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil { // the thread has ended
			continue
		}
		for word := range bytes.FieldsSeq(text) {
			if pid, err := strconv.Atoi(string(word)); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

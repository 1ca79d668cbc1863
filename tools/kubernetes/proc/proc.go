// Package proc starts processes that outlive their parent, and finds them again.
//
// A process is identified by its number and its start time, so that a later process with the same
// number is never taken for it. Its descendants are found by a mark in the environment, which
// children inherit.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Command describes a process to start.
type Command struct {
	// name of the component, unique in a cluster
	Name string `json:"name"`
	// the first is the program's path
	Args []string `json:"args"`
	// NAME=value, added to this process's environment
	Env []string `json:"env"`
	// file to which its output is appended
	Log string `json:"log"`
	// root directory of the process, in which the program's path is; none for this process's own
	Root string `json:"root,omitempty"`
}

// Process is a started Command.
type Process struct {
	Command
	PID int `json:"pid"`
	// start time in clock ticks since the machine's start
	Start uint64 `json:"start"`
}

// State is the state of a process.
type State int

const (
	Ended State = iota
	Running
	Paused // stopped by SIGSTOP
)

func (s State) String() string {
	return [...]string{"ended", "running", "paused"}[s]
}

// Run starts the command in a session of its own, and returns without waiting for its end.
func Run(c Command) (Process, error) {
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return Process{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Chroot: c.Root}
	if c.Root != "" {
		cmd.Dir = "/"
	}
	if err := cmd.Start(); err != nil {
		return Process{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	_, start, err := readStat(cmd.Process.Pid)
	if err != nil {
		return Process{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	// otherwise it stays a zombie as long as this process runs
	go cmd.Wait()
	return Process{Command: c, PID: cmd.Process.Pid, Start: start}, nil
}

// State returns the present state.
func (p Process) State() State {
	state, start, err := readStat(p.PID)
	switch {
	case err != nil || start != p.Start || state == 'Z' || state == 'X':
		return Ended
	case state == 'T':
		return Paused
	}
	return Running
}

// Signal sends s unless the process has ended, and reports whether it sent it.
func (p Process) Signal(s syscall.Signal) bool {
	handle, err := os.FindProcess(p.PID) // from here on the number cannot be reused
	if err != nil {
		return false
	}
	defer handle.Release()
	return p.State() != Ended && handle.Signal(s) == nil
}

// RSS returns the process's resident memory in bytes, or 0 if it has ended.
func (p Process) RSS() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	fields := bytes.Fields(b)
	if err != nil || len(fields) < 2 || p.State() == Ended {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

// Marked returns the processes of this machine that have the entry (NAME=value) in their
// environment.
func Marked(entry string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !hasEntry(environ, entry) {
			// it has ended, or this process may not read it
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		pids = append(pids, pid)
	}
	return pids
}

// Kill kills all processes that list returns, repeatedly until it returns none, because they may be
// forking.
func Kill(list func() []int, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		pids := list()
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill processes %v: they are still there after %v", pids, patience)
		}
	}
}

func hasEntry(environ []byte, entry string) bool {
	return slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(e []byte) bool { return string(e) == entry })
}

func readStat(pid int) (state byte, start uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(b)
}

// parseStat returns the state and the start time from proc_pid_stat(5). The name before them is in
// parentheses, and may itself contain spaces and parentheses.
func parseStat(b []byte) (state byte, start uint64, err error) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("read the status of a process: %q is no line of /proc/PID/stat", b)
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return fields[0][0], start, err
}

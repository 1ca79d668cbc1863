// Package proc starts processes that outlive their parent, and finds them again.
//
// A process is known by its number and the time of its start, so that a later one with the same number is never taken
// for it. What processes start themselves is found by a mark in the environment, which children inherit.
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

// A Command is what to run.
type Command struct {
	Name string   `json:"name"` // of the component, unique in a cluster
	Args []string `json:"args"` // the first is the program's path
	Env  []string `json:"env"`  // NAME=value, beside this process's own
	Log  string   `json:"log"`  // a file to append its output to
}

// A Process is a started Command.
type Process struct {
	Command
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // of the process, in clock ticks since the machine's
}

// State is what a process does.
type State int

const (
	Ended State = iota
	Running
	Paused // by SIGSTOP
)

func (s State) String() string {
	return [...]string{"ended", "running", "paused"}[s]
}

// Run starts the command in a session of its own, and does not wait for it.
func Run(c Command) (Process, error) {
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return Process{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Process{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	_, start, err := readStat(cmd.Process.Pid)
	if err != nil {
		return Process{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go cmd.Wait() // or it stays a zombie for as long as this process is there
	return Process{Command: c, PID: cmd.Process.Pid, Start: start}, nil
}

// State looks now.
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

// Signal sends s if the process has not ended, and tells whether it did.
func (p Process) Signal(s syscall.Signal) bool {
	handle, err := os.FindProcess(p.PID) // from here on the number cannot come to mean another
	if err != nil {
		return false
	}
	defer handle.Release()
	return p.State() != Ended && handle.Signal(s) == nil
}

// RSS is the process's resident memory in bytes, 0 if it has ended.
func (p Process) RSS() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	fields := bytes.Fields(b)
	if err != nil || len(fields) < 2 || p.State() == Ended {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

// Marked returns the processes of this machine that have the entry (NAME=value) in their environment.
func Marked(entry string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !hasEntry(environ, entry) {
			continue // it has ended, or is not ours to read
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		pids = append(pids, pid)
	}
	return pids
}

// Kill ends all processes that list returns, until it returns none: they may be forking.
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

// parseStat reads the state and the time of start from proc_pid_stat(5). The name before them is in parentheses and
// may have spaces and parentheses itself.
func parseStat(b []byte) (state byte, start uint64, err error) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("read the status of a process: %q is no line of /proc/PID/stat", b)
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return fields[0][0], start, err
}

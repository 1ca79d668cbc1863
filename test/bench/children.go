package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/test/prove"
)

// runChild runs one of these roles as a process of its own, whose memory can be measured
// separately:
//
//	process DATA EPOCHS       the MNIST CNN in one process on two threads; prints records per
//	                          second
//	ring RANK HOST DATA       a rank of all-reduce, which listens at HOST; see ring.go
func runChild(ctx context.Context, name string, args []string) error {
	if err := prove.Share(jobUID, []byte(os.Getenv(authorityEnv))); err != nil {
		return err
	}
	switch name {
	case "process":
		return oneProcess(args[0], args[1])
	case "ring":
		return ringRank(ctx, args[0], args[1], args[2] == "off")
	}
	return fmt.Errorf("child %q: unknown", name)
}

// The UID of the children's job, and the name of the environment variable with the authority of
// their credentials.
const (
	jobUID       = "bench"
	authorityEnv = "ELASTICDL_BENCH_AUTHORITY"
)

// child is a running process of the bench.
type child struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	line string // the first line it printed
	end  func()
}

func startChild(ctx context.Context, args ...string) (*child, error) {
	return startChildBehind(ctx, nil, args...)
}

// startChildBehind starts a child with a prefix: the words of a command that runs another command.
func startChildBehind(ctx context.Context, prefix []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, slices.Concat(prefix, []string{self, "-child"}, args))
}

// start starts a process that shares the authority of the bench.
func start(ctx context.Context, words []string) (*child, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stderr = os.Stderr
	authority, err := prove.Authority(jobUID).Encode()
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), authorityEnv+"="+string(authority))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, out: bufio.NewReader(out), end: func() { in.Close(); cmd.Wait() }}
	if c.line, err = c.answer(); err != nil {
		c.end()
		return nil, fmt.Errorf("child %v: %w", words[1:], err)
	}
	return c, nil
}

// answer returns the next line that the child prints.
func (c *child) answer() (string, error) {
	line, err := c.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// peakMemory returns the largest resident set of a process so far, in MB.
func peakMemory(pid int) (float64, error) {
	return residentOf(pid, "VmHWM")
}

// ownMemory returns the part of peakMemory that no other process has and that the kernel cannot
// drop: all but the pages of files, which are those of the program.
func ownMemory(pid int) (float64, error) {
	all, err := residentOf(pid, "VmHWM")
	if err != nil {
		return 0, err
	}
	// a program in a file system in memory has its pages in the second
	for _, field := range []string{"RssFile", "RssShmem"} {
		files, err := residentOf(pid, field)
		if err != nil {
			return 0, err
		}
		all -= files
	}
	return all, nil
}

// residentOf returns a number of the status of a process, in MB.
func residentOf(pid int, field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			var kb float64
			_, err := fmt.Sscan(value, &kb)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

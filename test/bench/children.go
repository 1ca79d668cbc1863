package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
)

// runChild runs one of these roles as a process of its own, whose memory can be measured
// separately:
//
//	server OPTIMIZER DATA     a parameter server with --data_encryption=DATA; prints its address
//	process DATA EPOCHS       the MNIST CNN in one process on two threads; prints records per
//	                          second
//	ring RANK HOST DATA       a rank of all-reduce, which listens at HOST; see ring.go
func runChild(ctx context.Context, name string, args []string) error {
	if err := prove.Share(jobUID, []byte(os.Getenv(authorityEnv))); err != nil {
		return err
	}
	switch name {
	case "server":
		return serve(ctx, args[0], args[1] == "off")
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

// serve runs a parameter server until its standard input ends.
func serve(ctx context.Context, optimizer string, plain bool) error {
	server, err := ps.NewServer(ps.ServerConfig{
		Self: self(pod.PS, 0), Initial: initial, Async: true, Optimizer: optim.Config{Name: optimizer,
			LearningRate: 1e-3}, PlainData: plain,
	})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(lis.Addr())
	go func() {
		bufio.NewReader(os.Stdin).ReadString(0)
		server.Stop()
	}()
	return server.Serve(lis)
}

// child is a running process of runChild.
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
	words := slices.Concat(prefix, []string{self, "-child"}, args)
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
		return nil, fmt.Errorf("child %v: %w", args, err)
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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kb float64
			_, err := fmt.Sscan(value, &kb)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

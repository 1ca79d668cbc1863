package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed peers/clm.py peers/elastic.py peers/first.py peers/gpt.py peers/keeping.py peers/parallel.py
//go:embed peers/replicas.py peers/workload.py
var scripts embed.FS

// python is an interpreter with PyTorch.
type python struct{ path, version string }

var (
	debian = "/usr/bin/python3"                // PyTorch 1.13
	pypi   = "build/tools/torch/bin/python3"   // PyTorch 2.x
	fault  = "build/tools/torchft/bin/python3" // PyTorch 2.x with torchft
	// PyTorch 2.x with Hugging Face's packages
	frameworks = "build/tools/frameworks/bin/python3"
	howTo      = map[string]string{debian: "make bench-peers", pypi: "make torch", fault: "make torchft",
		frameworks: "make frameworks"}
)

// findPython returns an interpreter and the version of a package in it, by the package's name at
// PyPI; the error is a missingPeer if it does not have the package.
func findPython(ctx context.Context, path, pack string) (python, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return python{}, err
	}
	module, _, _ := strings.Cut(pack, "-")
	out, err := exec.CommandContext(ctx, abs, "-c", "import importlib.metadata as m, "+module+
		"; print(m.version('"+pack+"'))").Output()
	if ctx.Err() != nil {
		return python{}, context.Cause(ctx)
	}
	if err != nil {
		return python{}, missingPeer(fmt.Sprintf("%s has no %s: %s installs it", path, pack, howTo[path]))
	}
	if path == debian { // its PyTorch reports the version 1.13.0a0
		if of, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}",
			"python3-torch").Output(); err == nil {
			out = of
		}
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "+")
	return python{abs, version}, nil
}

// setting describes what a job runs.
type setting struct {
	python python
	// script of the peers
	script string
	// size of the parameters in MB; 0 = the MNIST CNN
	megabytes int
	// another argument of the script, see workload.py; "" = none
	more string
	// number of processes, each on a node of its own
	size  int
	limit time.Duration
	// added to the environment of the job; nil: each process has one thread
	env []string
}

// command writes the scripts to a directory and returns the words after the interpreter.
func (s setting) command(dir, steps string) ([]string, error) {
	names, err := fs.Glob(scripts, "peers/*.py")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := scripts.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	command := []string{filepath.Join(dir, s.script), fmt.Sprint(time.Now().Add(s.limit).Unix()), steps,
		fmt.Sprint(s.megabytes)}
	if s.more != "" {
		command = append(command, s.more)
	}
	return command, nil
}

// environ returns the environment of all processes of a script.
func (s setting) environ() []string {
	own := s.env
	if own == nil {
		own = threadsOf(1)
	}
	return append(append(os.Environ(), "GLOO_SOCKET_IFNAME=lo"), own...)
}

// torchrun is an elastic job of PyTorch on this machine: agents of one process each.
type torchrun struct {
	dir      string
	python   python
	endpoint string   // address of the rendezvous
	args     []string // arguments of every agent
	env      []string
	agents   []*exec.Cmd
	serial   int
}

// newTorchrun starts a job with torchrun's defaults, changed by the flags.
func newTorchrun(ctx context.Context, dir, steps string, s setting, flags []string) (crew, error) {
	command, err := s.command(dir, steps)
	if err != nil {
		return nil, err
	}
	endpoint, err := freeAddress()
	if err != nil {
		return nil, err
	}
	t := &torchrun{dir: dir, python: s.python, endpoint: endpoint, env: s.environ(), args: slices.Concat([]string{
		"-m", "torch.distributed.run", fmt.Sprintf("--nnodes=1:%d", s.size), "--nproc_per_node=1",
		"--max_restarts=100000",
		"--rdzv_id=bench", "--rdzv_backend=c10d", "--rdzv_endpoint=" + endpoint,
		// The default, written for a second worker that does not exist: with Python 3.11, PyTorch
		// 1.13 fails on the default itself.
		"--redirects=1:0", "--tee=1:0",
	}, flags, command)}
	if strings.HasPrefix(s.python.version, "2.") { // PyTorch 2 refuses the flags above
		t.args = slices.DeleteFunc(t.args, func(a string) bool { return a == "--redirects=1:0" || a == "--tee=1:0" })
	}
	return t, t.start(ctx, s.size)
}

func freeAddress() (string, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return free.Addr().String(), free.Close()
}

// start starts a number of agents; the others start when the first has opened the rendezvous.
func (t *torchrun) start(ctx context.Context, agents int) error {
	if err := t.join(ctx); err != nil {
		return err
	}
	err := await(ctx, "rendezvous of torchrun", time.Minute, func() (bool, error) {
		conn, err := net.Dial("tcp", t.endpoint)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	for range agents - 1 {
		if err == nil {
			err = t.join(ctx)
		}
	}
	return err
}

// join starts one more agent.
func (t *torchrun) join(context.Context) error {
	// PyTorch 2.15's agents share one store by default, and a node that joins later waits in vain
	// for the store's address.
	env := append(slices.Clone(t.env), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
	cmd, err := background(filepath.Join(t.dir, fmt.Sprintf("agent-%d.log", t.serial)), env, t.python.path, t.args...)
	if err == nil {
		t.serial++
		t.agents = append(t.agents, cmd)
	}
	return err
}

// host returns the agent that hosts the rendezvous; if it is lost, the job ends.
func (t *torchrun) host() int { return t.agents[0].Process.Pid }

// end ends every process of the job.
func (t *torchrun) end(context.Context) {
	for _, a := range t.agents {
		signalAll(tree(a.Process.Pid), syscall.SIGKILL)
		a.Wait()
	}
}

// words returns the last lines of the agents' logs.
func (t *torchrun) words() string { return lastWords(t.dir, "agent-*.log") }

// background starts a process that writes its output to a file.
func background(log string, env []string, program string, args ...string) (*exec.Cmd, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// lastWords returns the last lines of files.
func lastWords(dir, pattern string) string {
	var all strings.Builder
	paths, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are valid
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		fmt.Fprintf(&all, "\n%s: %s", filepath.Base(path), text[max(0, len(text)-1000):])
	}
	return all.String()
}

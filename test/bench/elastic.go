package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

//go:embed peers/elastic.py
var torchElastic string

// torchrunLimit is how long a job of torchrun, and each of its processes, may last.
const torchrunLimit = 5 * time.Minute

// torchrun is an elastic job of PyTorch on this machine: agents of one worker each.
type torchrun struct {
	dir      string
	endpoint string   // of the rendezvous
	args     []string // of every agent
	agents   []*agent // the first holds the rendezvous, and is never killed
	serial   int
}

// agent is one torchrun with its worker, which are a process group.
type agent struct {
	stepLog
	cmd     *exec.Cmd
	started time.Time
	errors  string // its standard error
}

// newTorchrun prepares a job with torchrun's defaults but for the flags.
func newTorchrun(dir string, flags []string) (*torchrun, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "elastic.py")
	if err := os.WriteFile(script, []byte(torchElastic), 0o644); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	endpoint := free.Addr().String()
	free.Close()
	args := slices.Concat([]string{
		"-m", "torch.distributed.run", "--nnodes=1:4", "--nproc_per_node=1", "--max_restarts=1000",
		"--rdzv_id=bench", "--rdzv_backend=c10d", "--rdzv_endpoint=" + endpoint,
		// What is the default, said of a second worker that there is not: with Python 3.11, PyTorch 1.13 fails on the default itself.
		"--redirects=1:0", "--tee=1:0",
	}, flags, []string{script, fmt.Sprint(time.Now().Add(torchrunLimit).Unix())})
	return &torchrun{dir: dir, endpoint: endpoint, args: args}, nil
}

// start starts so many agents; the others when the first holds the rendezvous.
func (t *torchrun) start(ctx context.Context, agents int) error {
	first, err := t.join()
	if err != nil {
		return err
	}
	err = await(ctx, "rendezvous of torchrun", time.Minute, func() (bool, error) {
		conn, err := net.Dial("tcp", t.endpoint)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	if err != nil {
		return t.complain(first, err)
	}
	for range agents - 1 {
		if _, err := t.join(); err != nil {
			return err
		}
	}
	return nil
}

// join starts one more agent.
func (t *torchrun) join() (*agent, error) {
	name := filepath.Join(t.dir, fmt.Sprintf("agent-%d", t.serial))
	t.serial++
	a := &agent{stepLog: stepLog{path: name + ".out", parse: parseTorchStep}, errors: name + ".err"}
	out, err := os.Create(a.path)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	errs, err := os.Create(a.errors)
	if err != nil {
		return nil, err
	}
	defer errs.Close()
	a.cmd = exec.Command("/usr/bin/python3", t.args...)
	a.cmd.Stdout, a.cmd.Stderr = out, errs
	a.cmd.Env = append(a.cmd.Environ(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "OPENBLAS_CORETYPE="+coreType())
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	a.started = time.Now()
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start torchrun (make bench-peers installs it): %w", err)
	}
	t.agents = append(t.agents, a)
	return a, nil
}

// kill kills the newest agent and its worker.
func (t *torchrun) kill() error {
	last := len(t.agents) - 1
	a := t.agents[last]
	t.agents = t.agents[:last]
	err := syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
	a.cmd.Wait()
	return err
}

// end ends every process of the job.
func (t *torchrun) end() {
	for len(t.agents) > 0 {
		t.kill()
	}
}

func (t *torchrun) logs() []*stepLog {
	var all []*stepLog
	for _, a := range t.agents {
		all = append(all, &a.stepLog)
	}
	return all
}

// whole waits until all agents step together.
func (t *torchrun) whole(ctx context.Context) error {
	logs := t.logs()
	return t.complain(t.agents[0], awaitSteps(ctx, "step of all of torchrun's workers", 2*time.Minute, logs, func() bool {
		return together(logs, len(logs))
	}))
}

// complain adds the last words of an agent to an error.
func (t *torchrun) complain(a *agent, err error) error {
	if err == nil {
		return nil
	}
	text, _ := os.ReadFile(a.errors)
	return fmt.Errorf("%w: torchrun (make bench-peers installs it) said: %s", err, text[max(0, len(text)-500):])
}

// parseTorchStep reads a line of peers/elastic.py. A worker lives as long as its world.
func parseTorchStep(line []byte) (s step, ok bool) {
	if !bytes.HasPrefix(line, []byte("STEP ")) {
		return s, false
	}
	var seconds float64
	_, err := fmt.Sscanf(string(line), "STEP %d %d %f", &s.size, &s.world, &seconds)
	s.at = time.UnixMicro(int64(seconds * 1e6))
	return s, err == nil
}

// interruptions are how long a job of several workers took after each loss of one.
type interruptions struct {
	survivors []float64 // seconds from the loss to the survivors' next step, ascending
	newcomers []float64 // seconds from a replacement's start to its first step, ascending
}

// torchrunKills kills agents of four one after the other and puts new ones in their places.
func (b *bench) torchrunKills(ctx context.Context, kills int, flags ...string) (*interruptions, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, torchrunLimit, fmt.Errorf("torchrun: not done in %v", torchrunLimit))
	defer cancel()
	dir, err := os.MkdirTemp(b.dir, "torchrun-")
	if err != nil {
		return nil, err
	}
	t, err := newTorchrun(dir, flags)
	if err != nil {
		return nil, err
	}
	defer t.end()
	if err := t.start(ctx, 4); err != nil {
		return nil, err
	}
	var found interruptions
	for range kills {
		if err := t.whole(ctx); err != nil {
			return nil, err
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
		took, err := resumed(ctx, t.logs()[:3], 2*time.Minute, t.kill)
		if err != nil {
			return nil, t.complain(t.agents[1], err)
		}
		found.survivors = append(found.survivors, took.Seconds())
		if err := t.whole(ctx); err != nil { // they may find one another in more than one round
			return nil, err
		}
		a, err := t.join()
		if err != nil {
			return nil, err
		}
		if err := t.whole(ctx); err != nil {
			return nil, err
		}
		found.newcomers = append(found.newcomers, a.steps[0].at.Sub(a.started).Seconds())
		fmt.Fprintf(os.Stderr, "  torchrun %v: %.1f s to the survivors' next step, newcomer %.1f s\n", flags,
			found.survivors[len(found.survivors)-1], found.newcomers[len(found.newcomers)-1])
	}
	slices.Sort(found.survivors)
	slices.Sort(found.newcomers)
	return &found, nil
}

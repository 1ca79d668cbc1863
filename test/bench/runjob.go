package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/runtime/local"
)

// runJob is a job of `elasticdl run` on this machine: workers of one process each.
type runJob struct {
	dir, name string
	cmd       *exec.Cmd
}

// newRunJob starts a job with the defaults, changed by the flags.
func (b *bench) newRunJob(_ context.Context, dir, steps string, s setting, flags []string) (crew, error) {
	command, err := s.command(dir, steps)
	if err != nil {
		return nil, err
	}
	r := &runJob{dir: dir, name: "bench-run"}
	args := append([]string{"run", "--runtime=local", "--job_name=" + r.name,
		fmt.Sprintf("--num_workers=%d", s.size), "--min_workers=1"}, flags...)
	args = append(append(args, "--", s.python.path), command...)
	r.cmd, err = background(filepath.Join(dir, "run.log"), append(s.environ(), "ELASTICDL_HOME="+b.dir),
		b.binary, args...)
	return r, err
}

// join does nothing: the master replaces lost workers.
func (r *runJob) join(context.Context) error { return nil }

// host returns 0: the job survives the loss of any worker.
func (r *runJob) host() int { return 0 }

// end stops the job.
func (r *runJob) end(ctx context.Context) {
	local.Stop(context.WithoutCancel(ctx), r.name)
	r.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(20*time.Second, func() { signalAll(tree(r.cmd.Process.Pid), syscall.SIGKILL) })
	r.cmd.Wait()
	timer.Stop()
}

// words returns the last lines of the job's log.
func (r *runJob) words() string { return lastWords(r.dir, "run.log") }

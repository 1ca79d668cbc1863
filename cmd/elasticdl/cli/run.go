package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/agent"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func runCommand() *cobra.Command {
	return jobCommand(job.Run, "run [flags] -- SCRIPT [ARGUMENTS]",
		"Run a training program, such as a PyTorch script, on elastic workers")
}

// programHere returns an error if a program cannot start on this machine, because the script, the
// program, its directory or a GPU is missing.
func programHere(j *job.Job) error {
	g := j.Program
	if err := workdirHere(g.Workdir); err != nil {
		return err
	}
	if g.Processes == "gpu" && agent.GPUs() == 0 {
		return errors.New("--nproc_per_node=gpu: this machine has no GPU; give a number, auto or cpu")
	}
	// an invalid command was reported before; workers fetch a program at a URL
	if len(g.Command) == 0 || g.Launcher() != "" || strings.Contains(g.Command[0], "://") {
		return nil
	}
	return program.Options{Command: g.Command, Dir: g.Workdir, Module: g.Module, NoPython: g.NoPython}.Check()
}

// workdirHere returns an error if a program cannot start in a directory of this machine. "" is the
// current directory.
func workdirHere(dir string) error {
	if dir == "" {
		return nil
	}
	found := "it does not exist"
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		found = "it is no directory"
	case !errors.Is(err, fs.ErrNotExist):
		found = err.Error()
	}
	return fmt.Errorf("--workdir=%s: expected a directory of this machine: %s: create it, or name another", dir, found)
}

// attendProgram prints losses and restarts of a program's processes between their output lines
// until the job ends, and returns its final status. The end of ctx stops the job.
func attendProgram(ctx context.Context, h *local.Handle, j *job.Job) (*wire.JobStatus, error) {
	out := h.Notes()
	watched, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		following{
			status: func(ctx context.Context) (*wire.JobStatus, error) { return local.Status(ctx, j.Name) },
			news:   programLines,
			every:  refresh,
		}.show(watched, out)
	})
	ended := whileEnding(ctx, h, j, func(line string) { fmt.Fprintf(out, "elasticdl: %s\n", line) })
	status, err := h.Wait(ctx)
	ended()
	cancel()
	all.Wait()
	if err != nil {
		return nil, err
	}
	return status, errors.Join(conclude(ctx, status, j, out), h.Shown())
}

// programLines returns the news of a program as lines to write between its own.
func programLines(before, after *wire.JobStatus) []string {
	lines := programNews(before, after)
	for i := range lines {
		lines[i] = "elasticdl: " + lines[i]
	}
	return lines
}

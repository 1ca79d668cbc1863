package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// Processes returns the number of processes of each worker, for a value of --nproc_per_node.
func Processes(asked string, processors int) (int, error) {
	if n, err := strconv.Atoi(asked); err == nil {
		return n, nil
	}
	gpus := GPUs()
	switch {
	case asked == "cpu", asked == "auto" && gpus == 0:
		return max(1, processors), nil
	case gpus > 0:
		return gpus, nil
	}
	return 0, errors.New("--nproc_per_node=gpu: this worker has no GPU; expected a number, auto or cpu")
}

// GPUs returns how many GPUs this process can use: those that CUDA_VISIBLE_DEVICES names, or else
// those that the machine has.
func GPUs() int {
	if names, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		n := 0
		for name := range strings.SplitSeq(names, ",") {
			// CUDA ignores what follows such an entry
			if name = strings.TrimSpace(name); name == "" || name == "-1" {
				break
			}
			n++
		}
		return n
	}
	found, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is valid
	return len(found)
}

// threads returns the OMP_NUM_THREADS of a process that starts in a world of so many: its share of
// the processors, by all processes of the job that have them. torchrun sets 1 for more than one
// process of a node, however many processors the node has. 0: the only process of a machine has all
// of them by itself.
func (a *agent) threads(world int) int {
	share := a.count
	if a.Workers > 0 {
		share = max(a.Workers*a.count, world)
	}
	if share <= 1 && !a.Limited {
		return 0
	}
	return max(1, a.Processors/max(1, share))
}

// display returns the display of the processes. Of several, none gets the standard input of the
// command.
func (a *agent) display() *program.Display {
	if a.Display == nil || a.count == 1 {
		return a.Display
	}
	d := *a.Display
	d.Stdin, d.Keyboard = nil, false
	return &d
}

// options returns the options with which package program runs the command.
func (a *agent) options(command []string) (program.Options, error) {
	g := a.Job.Program
	redirects, err := program.ParseStreams("redirects", g.Redirects)
	if err != nil {
		return program.Options{}, err
	}
	tee, err := program.ParseStreams("tee", g.Tee)
	if err != nil {
		return program.Options{}, err
	}
	var shown []int
	for text := range strings.FieldsFuncSeq(g.LocalRanks, func(r rune) bool { return r == ',' }) {
		local, err := strconv.Atoi(text)
		if err != nil {
			return program.Options{},
				fmt.Errorf("--local_ranks_filter=%s: expected local ranks with commas between, as 0,1", g.LocalRanks)
		}
		shown = append(shown, local)
	}
	start := program.Fork
	if g.StartMethod == job.StartExec {
		start = program.Exec
	}
	return program.Options{
		Command: command, Dir: a.workdir, Module: g.Module, NoPython: g.NoPython,
		Env: append(os.Environ(), a.environment()...), Role: g.Role, RunID: a.Job.Name, MaxRestarts: g.MaxRestarts,
		Threads: a.threads(a.count), LogDir: g.LogDir, Redirects: redirects, Tee: tee,
		LocalRanksFilter: shown, StartMethod: start, Stdout: a.Output, Stderr: a.Output,
		Display: a.display(), Log: a.Log,
	}, nil
}

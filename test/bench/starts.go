package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// imported are the imports of a script whose start is measured.
type imported struct {
	// in the names of rows
	name string
	// interpreter that has the package
	path, pack string
	// argument of the script, by which it imports the package
	more string
}

// firstLines compares the time until a script has imported what it imports, and so executes its own
// first line, with that of the bare interpreter: from the command of a job, and from the start of a
// worker that joins others.
func firstLines(ctx context.Context, b *bench) error {
	for _, i := range []imported{{"torch", pypi, "torch", ""},
		{"Hugging Face", frameworks, "transformers", "transformers"}} {
		if err := b.firstLine(ctx, "run/first line, "+i.name, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) firstLine(ctx context.Context, name string, i imported) error {
	python, err := findPython(ctx, i.path, i.pack)
	if err != nil {
		return b.skip(name, err)
	}
	s := setting{python: python, script: "first.py", more: i.more, size: 1, limit: time.Minute}
	bare := func() (float64, error) { return b.untilFirstLine(ctx, s, python.path, "-u") }
	// Once before, so that the files are in the page cache.
	if _, err := bare(); err != nil {
		return err
	}
	joining := s
	joining.script, joining.size = "keeping.py", 2
	found, err := turns(b.events, bare,
		func() (float64, error) {
			return b.untilFirstLine(ctx, s, b.binary, "run", "--runtime=local", "--job_name=bench-first",
				"--num_workers=1", "--", python.path, "-u")
		},
		func() (float64, error) {
			found, err := b.measure(ctx, b.newRunJob, joining, nil, 1, loseNode)
			if err != nil {
				return 0, err
			}
			return found[newcomerLine][0], nil
		})
	if err != nil {
		return err
	}
	peer := fmt.Sprintf("python3 SCRIPT, %s %s", i.pack, python.version)
	for side, what := range []string{1: "from the command", 2: "from the start of a worker that joins"} {
		if side > 0 {
			b.paired(Result{Name: name + ": " + what, Unit: "s", Peer: peer, Target: "<= 1.2"}, found[side], found[0])
		}
	}
	return nil
}

// untilFirstLine runs a script by a command to its end, and returns the seconds until its first
// line.
func (b *bench) untilFirstLine(ctx context.Context, s setting, program string, args ...string) (float64, error) {
	dir, err := os.MkdirTemp(b.dir, "first-")
	if err != nil {
		return 0, err
	}
	steps, err := newWorlds(filepath.Join(dir, "steps"))
	if err != nil {
		return 0, err
	}
	command, err := s.command(dir, steps.dir)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, append(args, command...)...)
	cmd.Env = append(s.environ(), "ELASTICDL_HOME="+b.dir)
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w; it said: %s", cmd, err, out[max(0, len(out)-1000):])
	}
	if err := steps.read(); err != nil {
		return 0, err
	}
	for _, line := range steps.lines {
		return line.Sub(start).Seconds(), nil
	}
	return 0, fmt.Errorf("%s: the script has not written the time of its first line", cmd)
}

// learning is the time after which the agent of a job has imported what the script imports, for its
// next processes.
const learning = 45 * time.Second

// learned waits until a job is as old as that.
func learned(ctx context.Context, j *scriptJob) error {
	return pause(ctx, time.Until(j.start.Add(learning)))
}

// huggingFace measures how long an unmodified script with Hugging Face's Trainer takes to step
// again after a process is killed, and compares it with torchrun.
func huggingFace(ctx context.Context, b *bench) error {
	const name = "run/Hugging Face, unmodified: " + processKilled
	python, err := findPython(ctx, frameworks, "transformers")
	if err != nil {
		return b.skip(name, err)
	}
	pytorch, err := findPython(ctx, frameworks, "torch")
	if err != nil {
		return err
	}
	s := setting{python: pytorch, script: "clm.py", more: "transformers", size: 2}
	found, err := b.inTurns(ctx, block{b.newRunJob, s, nil, b.events, []event{learned, loseProcess}},
		block{newTorchrun, s, tuned, b.peerEvents, []event{loseProcess}})
	if err != nil {
		return err
	}
	b.within(name, found[0][processKilled], 5, 5)
	b.compared(Result{Name: name, Unit: "s", Peer: fmt.Sprintf("torchrun %s, tuned, transformers %s",
		pytorch.version, python.version), Target: "<= 1"}, found[0][processKilled], found[1][processKilled])
	return nil
}

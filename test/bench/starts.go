package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
// worker that joins others. It also compares the time until the script has an optimizer.
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
	var optimizers [2][]float64
	run := func(i int, program string, args ...string) side {
		return func() (float64, error) {
			words := slices.Concat(args, []string{python.path, "-u"})
			line, optimizer, err := b.untilFirstLine(ctx, s, program, words...)
			optimizers[i] = append(optimizers[i], optimizer)
			return line, err
		}
	}
	bare := run(0, "env")
	// Once before, so that the files are in the page cache.
	if _, err := bare(); err != nil {
		return err
	}
	optimizers[0] = nil
	joining := s
	joining.script, joining.size = "keeping.py", 2
	found, err := turns(b.events, bare,
		run(1, b.binary, "run", "--runtime=local", "--job_name=bench-first", "--num_workers=1", "--"),
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
	for _, row := range []struct {
		name         string
		ours, theirs []float64
	}{{"from the command", found[1], found[0]},
		{"from the command until there is an optimizer", optimizers[1], optimizers[0]},
		{"from the start of a worker that joins", found[2], found[0]}} {
		b.paired(Result{Name: name + ": " + row.name, Unit: "s", Peer: peer, Target: "<= 1.2"}, row.ours, row.theirs)
	}
	return nil
}

// untilFirstLine runs first.py by a command to its end. It returns the seconds until the script's
// first line, and until it has an optimizer.
func (b *bench) untilFirstLine(ctx context.Context, s setting, program string, args ...string) (line,
	optimizer float64, err error) {
	dir, err := os.MkdirTemp(b.dir, "first-")
	if err != nil {
		return 0, 0, err
	}
	steps, err := newWorlds(filepath.Join(dir, "steps"))
	if err != nil {
		return 0, 0, err
	}
	command, err := s.command(dir, steps.dir)
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, program, append(args, command...)...)
	cmd.Env = append(s.environ(), "ELASTICDL_HOME="+b.dir)
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w; it said: %s", cmd, err, out[max(0, len(out)-1000):])
	}
	if err := steps.read(); err != nil {
		return 0, 0, err
	}
	for pid, at := range steps.lines {
		if last := steps.newestSteps[pid]; !last.IsZero() {
			return at.Sub(start).Seconds(), last.Sub(start).Seconds(), nil
		}
	}
	return 0, 0, fmt.Errorf("%s: the script has not written its times", cmd)
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

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

const (
	// warmUp is the time that a script trains before its steps are measured.
	warmUp = 3 * time.Second
	// stepsFor is the time that its steps are measured in one turn.
	stepsFor = 10 * time.Second
)

// torchrunStepRatio compares the time of a step of undisturbed scripts with torchrun's, two
// processes on this machine each, in turns. `elasticdl run` has its defaults; torchrun's processes
// have as many threads as those of `elasticdl run` get.
func torchrunStepRatio(ctx context.Context, b *bench) error {
	const name = "run/steps, PyTorch 2.x"
	python, err := findPython(ctx, pypi, "torch")
	if err != nil {
		return b.skip(name, err)
	}
	if _, set := os.LookupEnv("OMP_NUM_THREADS"); set {
		return fmt.Errorf("OMP_NUM_THREADS is set: expected the defaults of elasticdl run; unset it")
	}
	threads := max(1, runtime.NumCPU()/2)
	for _, script := range []struct{ file, model string }{{"gpt.py", "a small GPT, DDP"},
		{"parallel.py", "tensor parallel"}} {
		ours := setting{python: python, script: script.file, size: 2, env: []string{}}
		theirs := ours
		theirs.env = []string{fmt.Sprintf("OMP_NUM_THREADS=%d", threads)}
		var found [2][]float64
		for range b.n(4) {
			for i, k := range []block{{start: b.newRunJob, setting: ours},
				{start: newTorchrun, setting: theirs, flags: tuned}} {
				some, err := b.measure(ctx, k.start, k.setting, k.flags, 1, steps)
				if err != nil {
					return err
				}
				found[i] = append(found[i], some[undisturbed]...)
			}
		}
		b.paired(Result{
			Name: fmt.Sprintf("%s: %s", name, script.model), Unit: "s", Peer: "torchrun " +
				python.version + ", tuned", Target: "<= 1.05",
			Threads: threads,
		}, found[0], found[1])
	}
	return nil
}

// steps measures the steps of all processes of a job for a while.
func steps(ctx context.Context, j *scriptJob) error {
	if _, err := j.whole(ctx, j.size); err != nil {
		return err
	}
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	w, err := j.whole(ctx, j.size)
	if err != nil {
		return err
	}
	from, count := w.last, w.steps
	if err := pause(ctx, stepsFor); err != nil {
		return err
	}
	if w, err = j.whole(ctx, j.size); err != nil {
		return err
	}
	n := (w.steps - count) / j.size
	if n < 1 {
		return fmt.Errorf("%w in %v: %s", errNever, stepsFor, strings.TrimSpace(j.words()))
	}
	j.note(undisturbed, w.last.Sub(from)/time.Duration(n))
	return nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// live is a running job of one of bench's own models, with either strategy, whose workers log every
// step.
type live struct {
	job     *job.Job
	logs    string
	workers map[string]*stepLog // step logs by path
}

// bigBatch is the minibatch size of bench's own models: their size matters, not what they learn.
const bigBatch = 8

// ownJob returns a job of one of bench's own models, on the shipped digits, that trains until it is
// stopped.
func (b *bench) ownJob(ctx context.Context, model string, strategy job.Strategy, workers int) (*job.Job, error) {
	dir, err := b.mnist(ctx)
	if err != nil {
		return nil, err
	}
	j := job.Default()
	j.Name, j.ModelDef, j.TrainingData = "bench-own", model, filepath.Join(dir, "train")
	j.Strategy, j.NumWorkers, j.MinibatchSize, j.NumMinibatchesPerTask = strategy, workers, bigBatch, 16
	j.NumEpochs, j.LogLevel, j.LogLossSteps = 10_000, "DEBUG", 1
	if strategy == job.AllReduce {
		j.NumPS, j.NumThreads = 0, 1
	}
	return j, os.Setenv("ELASTICDL_HOME", b.dir)
}

// startLive starts a job with changes.
func (b *bench) startLive(ctx context.Context, model string, strategy job.Strategy, workers int,
	change func(*job.Job)) (*live, error) {
	j, err := b.ownJob(ctx, model, strategy, workers)
	if err != nil {
		return nil, err
	}
	change(j)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if _, err := local.Start(ctx, j, local.StartOptions{Binary: self}); err != nil {
		return nil, err
	}
	return b.alive(j), nil
}

// alive follows a job that is already started.
func (b *bench) alive(j *job.Job) *live {
	return &live{job: j, logs: filepath.Join(b.dir, "jobs", j.Name, "logs"), workers: make(map[string]*stepLog)}
}

func (l *live) stop(ctx context.Context) { local.Stop(context.WithoutCancel(ctx), l.job.Name) }

func (l *live) paths(pattern string) []string {
	found, _ := filepath.Glob(filepath.Join(l.logs, pattern)) // the pattern is valid
	return found
}

// read reads what the workers have logged since the last call.
func (l *live) read() error {
	parse := parseStep
	if l.job.Strategy == job.ParameterServer {
		parse = parseLoss
	}
	for _, path := range l.paths("worker-*.log") {
		if l.workers[path] == nil {
			l.workers[path] = &stepLog{path: path, parse: parse}
		}
		if err := l.workers[path].read(); err != nil {
			return err
		}
	}
	return nil
}

// steps returns the steps so far, in order: each minibatch with parameter servers, each round of a
// ring.
func (l *live) steps() []step {
	var all []step
	for _, w := range l.workers {
		all = append(all, w.steps...)
	}
	slices.SortFunc(all, func(a, b step) int { return a.at.Compare(b.at) })
	if l.job.Strategy == job.AllReduce { // all workers of a ring log the same steps
		slices.SortStableFunc(all, func(a, b step) int { return cmp.Compare(a.version, b.version) })
		all = slices.CompactFunc(all, func(a, b step) bool { return a.version == b.version })
	}
	return all
}

// since returns the time by which a number of workers had each completed a step after a moment;
// zero if they have not yet.
func (l *live) since(t time.Time, workers int) time.Time {
	var firsts []time.Time
	for _, w := range l.workers {
		for _, s := range w.steps {
			if s.at.After(t) {
				firsts = append(firsts, s.at)
				break
			}
		}
	}
	if len(firsts) < workers {
		return time.Time{}
	}
	slices.SortFunc(firsts, time.Time.Compare)
	return firsts[workers-1]
}

// await waits until a condition on the logs is true, as long as the job trains.
func (l *live) await(ctx context.Context, what string, is func() bool) error {
	looked := time.Now()
	err := await(ctx, what, 10*time.Minute, func() (bool, error) {
		if err := l.read(); err != nil {
			return false, err
		}
		if is() {
			return true, nil
		}
		if time.Since(looked) < 5*time.Second {
			return false, pause(ctx, 20*time.Millisecond)
		}
		// seldom, because each request takes a core for a moment
		looked = time.Now()
		status, err := local.Status(ctx, l.job.Name)
		if err == nil && job.State(status.State).Ended() {
			err = fmt.Errorf("job %s: %s", status.State, status.Reason)
		}
		return false, err
	})
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(l.logs, "master.log"))
		return fmt.Errorf("%w; the master said: %s", err, text[max(0, len(text)-1500):])
	}
	return nil
}

// pids returns the process IDs of the job's running processes of a role.
func (l *live) pids(ctx context.Context, role wire.Role) ([]int, error) {
	status, err := local.Status(ctx, l.job.Name)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, p := range status.Pods {
		if p.Role == role && p.State == "Running" {
			all = append(all, int(p.Pid))
		}
	}
	return all, nil
}

// memory returns the peak memory of the processes that hold the model: the parameter servers, or
// the workers of a ring.
func (l *live) memory(ctx context.Context) (mb float64, err error) {
	role := wire.Role_PS
	if l.job.Strategy == job.AllReduce {
		role = wire.Role_WORKER
	}
	pids, err := l.pids(ctx, role)
	for _, pid := range pids {
		used, err := peakMemory(pid)
		if err != nil {
			return 0, err
		}
		mb = max(mb, used)
	}
	return mb, err
}

// stamp is the format of the time in a line of a log.
const stamp = "2006-01-02 15:04:05,000"

var lossLine = regexp.MustCompile(`^\[([0-9-]{10} [0-9:]{8},\d{3})\] .* Loss = \S+, steps = \d+`)

// parseLoss parses a line in the log of a worker with parameter servers that logs every loss.
func parseLoss(line []byte) (s step, ok bool) {
	m := lossLine.FindSubmatch(line)
	if m == nil {
		return s, false
	}
	var err error
	s.at, err = time.ParseInLocation(stamp, string(m[1]), time.Local)
	s.records = bigBatch
	return s, err == nil
}

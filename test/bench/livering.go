package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// liveRing is a running ring whose workers log every step.
type liveRing struct {
	job     *job.Job
	handle  *local.Handle
	logs    string
	workers map[int]*stepLog // logs of all present and former workers
}

// mnistRing returns a job of a ring on the shipped digits that trains until it is stopped.
func (b *bench) mnistRing(ctx context.Context, workers int) (*job.Job, error) {
	dir, err := b.mnist(ctx)
	if err != nil {
		return nil, err
	}
	j := ringJob("mnist.mnist_functional_api.custom_model", filepath.Join(dir, "train"), workers)
	j.NumEpochs = 10_000
	return j, nil
}

// ringJob returns a job of one epoch on a ring, with one thread per worker.
func ringJob(model, data string, workers int) *job.Job {
	j := job.Default()
	j.Name, j.ModelDef, j.TrainingData = "bench-ring", model, data
	j.Strategy, j.NumPS, j.NumWorkers, j.NumThreads = job.AllReduce, 0, workers, 1
	j.NumMinibatchesPerTask, j.LogLevel = 16, "DEBUG"
	return j
}

func (b *bench) startRing(ctx context.Context, j *job.Job) (*liveRing, error) {
	if err := os.Setenv("ELASTICDL_HOME", b.dir); err != nil {
		return nil, err
	}
	h, err := local.Start(ctx, j, local.StartOptions{Binary: b.binary})
	if err != nil {
		return nil, err
	}
	return &liveRing{job: j, handle: h, logs: filepath.Join(b.dir, "jobs", j.Name, "logs"),
		workers: make(map[int]*stepLog)}, nil
}

func (r *liveRing) stop(ctx context.Context) {
	local.Stop(context.WithoutCancel(ctx), r.job.Name)
}

// read reads what the workers have logged since the last call.
func (r *liveRing) read() error {
	paths, err := filepath.Glob(filepath.Join(r.logs, "worker-*.log"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "worker-"), ".log"))
		if err != nil {
			return err
		}
		if r.workers[n] == nil {
			r.workers[n] = &stepLog{path: path, parse: parseStep}
		}
		if err := r.workers[n].read(); err != nil {
			return err
		}
	}
	return nil
}

// members returns the workers that have stepped in the newest world.
func (r *liveRing) members() map[int]*stepLog {
	var world int64 = -1
	for _, l := range r.workers {
		world = max(world, l.last().world)
	}
	found := make(map[int]*stepLog)
	for n, l := range r.workers {
		if len(l.steps) > 0 && l.last().world == world {
			found[n] = l
		}
	}
	return found
}

// whole waits until the wanted number of workers step together.
func (r *liveRing) whole(ctx context.Context) error {
	return r.await(ctx, "step of all workers together", func() bool { return len(r.members()) == r.job.NumWorkers })
}

func (r *liveRing) await(ctx context.Context, what string, is func() bool) error {
	looked := time.Now()
	err := await(ctx, what, time.Minute, func() (bool, error) {
		if err := r.read(); err != nil {
			return false, err
		}
		if ok := is(); ok || time.Since(looked) < time.Second {
			return ok, nil
		}
		// seldom, because each request takes a core for a moment
		looked = time.Now()
		status, err := local.Status(ctx, r.job.Name)
		if err == nil && job.State(status.State).Ended() {
			err = fmt.Errorf("job %s: %s", status.State, status.Reason)
		}
		return false, err
	})
	if err != nil {
		return r.complain(err)
	}
	return nil
}

// lost describes a worker that was killed or stopped.
type lost struct {
	worker, pid int
	// time until the last of the survivors had stepped without it
	took time.Duration
	// number of its replacement
	next int
}

// lose sends a signal to a random worker after the ring has been complete for a while, and measures
// the consequences.
func (r *liveRing) lose(ctx context.Context, how syscall.Signal) (lost, error) {
	// A worker that ends in its first second is replaced only one second after its start.
	if err := pause(ctx, time.Second+rand.N(500*time.Millisecond)); err != nil {
		return lost{}, err
	}
	if err := r.whole(ctx); err != nil {
		return lost{}, err
	}
	return r.signal(ctx, how)
}

// signal sends a signal to a random worker of the newest world.
func (r *liveRing) signal(ctx context.Context, how syscall.Signal) (lost, error) {
	members := r.members()
	numbers := slices.Collect(maps.Keys(members))
	victim := lost{worker: numbers[rand.IntN(len(numbers))], next: slices.Max(slices.Collect(maps.Keys(r.workers))) + 1}
	delete(members, victim.worker)
	var err error
	if victim.pid, err = r.pid(ctx, victim.worker); err != nil {
		return victim, err
	}
	victim.took, err = resumed(ctx, slices.Collect(maps.Values(members)), time.Minute, func() error {
		return syscall.Kill(victim.pid, how)
	})
	if err != nil {
		return victim, r.complain(err)
	}
	if err := r.read(); err != nil {
		return victim, err
	}
	if r.members()[victim.worker] != nil {
		return victim, r.complain(fmt.Errorf("worker-%d was taken away and has stepped since", victim.worker))
	}
	return victim, nil
}

// complain adds the last lines of the master's log to an error.
func (r *liveRing) complain(err error) error {
	text, _ := os.ReadFile(filepath.Join(r.logs, "master.log"))
	return fmt.Errorf("%w; the master said: %s", err, text[max(0, len(text)-1500):])
}

// updates returns the updates of the model, in order, whichever workers have logged them.
func (r *liveRing) updates() []step {
	byVersion := make(map[int64]step)
	for _, l := range r.workers {
		for _, s := range l.steps {
			if known, ok := byVersion[s.version]; !ok || s.at.Before(known.at) {
				byVersion[s.version] = s
			}
		}
	}
	return slices.SortedFunc(maps.Values(byVersion), func(a, b step) int { return cmp.Compare(a.version, b.version) })
}

// joined waits for the first step of a worker, and returns the time from the start of its process
// to that step.
func (r *liveRing) joined(ctx context.Context, worker int) (time.Duration, error) {
	var first step
	err := r.await(ctx, fmt.Sprintf("step of worker-%d", worker), func() bool {
		l := r.workers[worker]
		if l == nil || len(l.steps) == 0 {
			return false
		}
		first = l.steps[0]
		return true
	})
	if err != nil {
		return 0, err
	}
	pid, err := r.pid(ctx, worker)
	if err != nil {
		return 0, err
	}
	started, err := processStart(pid)
	return first.at.Sub(started), err
}

// replaced checks that only the workers that bench has taken away were replaced.
func (r *liveRing) replaced(ctx context.Context, workers int) error {
	status, err := local.Status(ctx, r.job.Name)
	if err == nil && status.Relaunched != int64(workers) {
		err = fmt.Errorf("%d workers were replaced, %d were taken away", status.Relaunched, workers)
	}
	return err
}

func (r *liveRing) pid(ctx context.Context, worker int) (int, error) {
	status, err := local.Status(ctx, r.job.Name)
	if err != nil {
		return 0, err
	}
	for _, p := range status.Pods {
		if p.Role == wire.Role_WORKER && int(p.Index) == worker && p.State == "Running" {
			return int(p.Pid), nil
		}
	}
	return 0, fmt.Errorf("worker-%d does not run", worker)
}

// processStart returns the start time of a process, rounded down to a hundredth of a second.
func processStart(pid int) (time.Time, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// The start time is the 22nd field. The second field may contain spaces, and ends with the last
	// parenthesis.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks, err := strconv.ParseInt(fields[22-3], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, err
	}
	boot := time.Now().Add(-time.Duration(up.Nano()))
	// Linux counts in hundredths here
	return boot.Add(time.Duration(ticks) * time.Second / 100), nil
}

var stepLine = regexp.MustCompile(
	`^\[([0-9-]{10} [0-9:]{8},\d{3})\] .* Step applied version=(\d+) records=(\d+) workers=(\d+) world=(\d+)`)

// parseStep parses a line of a worker's log.
func parseStep(line []byte) (s step, ok bool) {
	m := stepLine.FindSubmatch(line)
	if m == nil {
		return s, false
	}
	var err error
	if s.at, err = time.ParseInLocation(stamp, string(m[1]), time.Local); err != nil {
		return s, false
	}
	var numbers [4]int64
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(string(m[2+i]), 10, 64); err != nil {
			return s, false
		}
	}
	s.version, s.records, s.size, s.world = numbers[0], numbers[1], int(numbers[2]), numbers[3]
	return s, true
}

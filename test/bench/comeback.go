package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func comebackBenchmarks() []benchmark {
	return []benchmark{
		{name: "comeback/server", run: serverComesBack},
		{name: "comeback/job", run: jobComesBack},
		{name: "comeback/master", run: masterComesBack},
	}
}

// comebacks is the number of times that each kind of process is killed.
const comebacks = 4

// kept starts a job of a model of 100 MB on two servers and two workers, with a checkpoint every 3
// s in its own directory.
func (b *bench) kept(ctx context.Context) (*live, error) {
	return b.startLive(ctx, hundredBytes, job.ParameterServer, 2, func(j *job.Job) {
		j.NumPS, j.CheckpointInterval.Duration = 2, 3*time.Second
		j.CheckpointDir, _ = local.CheckpointDir(j.Name) // without it the job reports why
	})
}

// serverComesBack kills one of two servers, and measures until all workers train again from the
// last checkpoint: until each has completed a step after the servers returned to it.
func serverComesBack(ctx context.Context, b *bench) error {
	l, err := b.kept(ctx)
	if err != nil {
		return err
	}
	defer l.stop(ctx)
	var took []float64
	for i := range b.n(comebacks) {
		if err := l.another(ctx, time.Now()); err != nil {
			return err
		}
		servers, err := l.pids(ctx, wire.Role_PS)
		if err != nil {
			return err
		}
		killed := time.Now()
		if err := syscall.Kill(servers[i%len(servers)], syscall.SIGKILL); err != nil {
			return err
		}
		var back time.Time
		err = l.await(ctx, "step of all workers from the checkpoint", func() bool {
			begun := l.lines("ps-*.log", rolledBack, killed)
			if len(begun) < 2 { // both servers
				return false
			}
			back = l.since(begun[1], 2)
			return !back.IsZero()
		})
		if err != nil {
			return err
		}
		took = append(took, back.Sub(killed).Seconds())
	}
	b.within("comeback/kill -9 of a server of 100 MB to all workers' next step from the checkpoint", took, 3, 3)
	return nil
}

// jobComesBack kills every process of a job, and resumes it by the command of users.
func jobComesBack(ctx context.Context, b *bench) error {
	l, err := b.kept(ctx)
	if err != nil {
		return err
	}
	l.stop(ctx)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var took []float64
	// the first one belongs to the job that was stopped
	for range b.n(comebacks) + 1 {
		began := time.Now()
		resume := exec.Command(self, "resume", l.job.Name)
		resume.Stderr = os.Stderr
		resume.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := resume.Start(); err != nil {
			return err
		}
		var back time.Time
		err := l.await(ctx, "step of all workers of the resumed job", func() bool {
			back = l.since(began, 2)
			return !back.IsZero()
		})
		if err == nil {
			err = l.another(ctx, time.Now())
		}
		err = errors.Join(err, l.killAll(ctx, resume.Process.Pid), ignoreKilled(resume.Wait()))
		if err != nil {
			return err
		}
		took = append(took, back.Sub(began).Seconds())
	}
	took = took[1:]
	b.within("comeback/elasticdl resume after kill -9 of every process, 100 MB, to all workers' "+
		"next step", took, 10, 10)
	return nil
}

// masterComesBack kills the master of a job of 100,000 tasks, and measures from the start of the
// next master's process until it has leased a task.
func masterComesBack(ctx context.Context, b *bench) error {
	const tasks = 100_000 // each task has one record
	dir, err := b.manyRecords(ctx, tasks)
	if err != nil {
		return err
	}
	l, err := b.startLive(ctx, tinyModel, job.ParameterServer, 4, func(j *job.Job) {
		j.TrainingData, j.MinibatchSize, j.NumMinibatchesPerTask, j.LogLossSteps = dir, 1, 1, 100
		j.CheckpointInterval.Duration = 3 * time.Second
		j.CheckpointDir, _ = local.CheckpointDir(j.Name)
	})
	if err != nil {
		return err
	}
	defer l.stop(ctx)
	var took []float64
	for range b.n(comebacks) {
		if err := l.another(ctx, time.Now()); err != nil {
			return err
		}
		old, err := l.pidOf("master.json")
		if err != nil {
			return err
		}
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			return err
		}
		// the next one's start is known to 10 ms only
		killed := time.Now()
		var started time.Time
		var leased []time.Time
		err = l.await(ctx, "task from the next master", func() bool {
			if started.IsZero() {
				if pid, err := l.pidOf("master.json"); err == nil && pid != old {
					started, _ = processStart(pid)
				}
				return false
			}
			leased = l.lines("master.log", taskLeased, killed)
			return len(leased) > 0
		})
		if err != nil {
			return err
		}
		took = append(took, leased[0].Sub(started).Seconds())
	}
	status, err := local.Status(ctx, l.job.Name)
	if err != nil {
		return err
	}
	if each := status.RecordsTotal / int64(l.job.NumEpochs); each < tasks || status.ModelGeneration != 1 {
		return fmt.Errorf("%d tasks, and model generation %d; expected %d, and the first", each,
			status.ModelGeneration, tasks)
	}
	b.within("comeback/a master's start to its first lease, kill -9 of the one before, 100,000 tasks", took, 2, 2)
	return nil
}

// manyRecords creates a directory of at least the given number of records, from the shipped digits.
func (b *bench) manyRecords(ctx context.Context, records int) (string, error) {
	from, err := b.mnist(ctx)
	if err != nil {
		return "", err
	}
	shards, err := filepath.Glob(filepath.Join(from, "train", "*"))
	if err != nil {
		return "", err
	}
	const shipped = 5000 // at least
	dir := filepath.Join(b.dir, "many")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for i := range (records + shipped - 1) / shipped {
		for _, shard := range shards {
			if err := os.Link(shard,
				filepath.Join(dir, fmt.Sprintf("%s-of-copy-%d", filepath.Base(shard), i))); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// Lines of logs.
var (
	rolledBack = regexp.MustCompile(`(?m)^\[([0-9-]{10} [0-9:]{8},\d{3})\] .* The model returns to a checkpoint `)
	taskLeased = regexp.MustCompile(`(?m)^\[([0-9-]{10} [0-9:]{8},\d{3})\] .* Task leased `)
)

// lines returns the times, in order, at which something was logged after a moment.
func (l *live) lines(logs string, what *regexp.Regexp, after time.Time) []time.Time {
	var all []time.Time
	for _, path := range l.paths(logs) {
		text, _ := tail(path, 1<<20)
		for _, m := range what.FindAllSubmatch(text, -1) {
			if at, err := time.ParseInLocation(stamp, string(m[1]), time.Local); err == nil && at.After(after) {
				all = append(all, at)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// tail returns the last bytes of a file.
func tail(path string, bytes int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-bytes), bytes))
}

// another waits for a checkpoint that was made after a moment, and for one second more.
func (l *live) another(ctx context.Context, after time.Time) error {
	asked := time.Now()
	err := l.await(ctx, "another checkpoint", func() bool {
		if time.Since(asked) < 300*time.Millisecond {
			return false
		}
		asked = time.Now()
		status, err := local.Status(ctx, l.job.Name)
		return err == nil && time.UnixMilli(status.GetCheckpoint().GetUnixMs()).After(after)
	})
	if err != nil {
		return err
	}
	// a process that ends in its first second is replaced only one second after its start
	return pause(ctx, time.Second)
}

// pidOf returns the process ID in a file of the job's directory.
func (l *live) pidOf(file string) (int, error) {
	var at struct {
		PID int `json:"pid"`
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(l.logs), file))
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err == nil && at.PID <= 1 {
		err = fmt.Errorf("%s names process %d", file, at.PID)
	}
	return at.PID, err
}

// killAll kills every process of the job, the launcher first, and returns when they have ended.
func (l *live) killAll(ctx context.Context, launcher int) error {
	status, err := local.Status(ctx, l.job.Name)
	if err != nil {
		return err
	}
	pids := []int{launcher}
	if master, err := l.pidOf("master.json"); err == nil {
		pids = append(pids, master)
	}
	for _, p := range status.Pods {
		if p.State == "Running" && p.Pid > 0 {
			pids = append(pids, int(p.Pid))
		}
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	_, err = local.Wait(ctx, l.job.Name, nil)
	return err
}

// ignoreKilled returns the error of a process, or nil if it was killed.
func ignoreKilled(err error) error {
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Sys().(syscall.WaitStatus).Signaled() {
		return nil
	}
	return err
}

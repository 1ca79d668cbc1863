package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

func checkpointBenchmarks() []benchmark {
	return []benchmark{
		{name: "checkpoint/server", long: true, run: func(ctx context.Context, b *bench) error {
			return trainingRatio(ctx, b, "server", job.ParameterServer, 1)
		}},
		{name: "checkpoint/ring", long: true, run: func(ctx context.Context, b *bench) error {
			return trainingRatio(ctx, b, "ring's worker", job.AllReduce, 2)
		}},
		{name: "checkpoint/script", run: scriptWait},
		{name: "checkpoint/disk", run: diskRatio},
	}
}

// pace is the time between two checkpoints, and calm the last part of it, in which the previous
// checkpoint has no effect any more.
const (
	pace = 30 * time.Second
	calm = 15 * time.Second
)

// publishedStall is the time in seconds for which DLRover's training waits for a checkpoint, by its
// own figures.
const publishedStall = 0.2

// trainingRatio measures a job of a model of 1 GB, values and slots, that makes a checkpoint every
// 30 s: how long the training waits for a checkpoint, by how much it slows down, and by how much
// the process that copies grows.
func trainingRatio(ctx context.Context, b *bench, who string, strategy job.Strategy, workers int) error {
	checkpoints := b.n(3)
	without, _, err := b.largeJob(ctx, strategy, workers, 0)
	if err != nil {
		return fmt.Errorf("without checkpoints: %w", err)
	}
	with, t, err := b.largeJob(ctx, strategy, workers, checkpoints)
	if err != nil {
		return err
	}
	wait := Result{Name: fmt.Sprintf("checkpoint/1 GB, wait for the copy of a %s", who), Unit: "s",
		Peer: "DLRover's published figure"}
	b.bar(wait, publishedStall, t.waited...)
	wait.Name += ", the first one of the job"
	b.bar(wait, publishedStall, t.waited[0])
	b.paired(Result{Name: fmt.Sprintf("checkpoint/1 GB every %v, %s", pace, who), Unit: "records/s",
		Peer: "the same job between them", Target: ">= 0.98"}, t.whole, t.calm)
	b.bar(Result{Name: fmt.Sprintf("checkpoint/1 GB, extra memory of a %s", who), Unit: "MB",
		Peer: "values and slots", Target: "<= 1.1"}, largeBytes/1e6, with-without)
	return nil
}

// scriptWait measures how long a PyTorch script with 1 GB of state waits for a checkpoint of the
// Python package.
func scriptWait(ctx context.Context, b *bench) error {
	for _, path := range []string{debian, pypi} {
		p, err := findPython(ctx, path, "torch")
		if err != nil {
			return err
		}
		dir := filepath.Join(b.dir, "script-"+p.version)
		script := exec.CommandContext(ctx, p.path, "test/bench/peers/saving.py", dir, strconv.Itoa(b.n(5)))
		script.Env = append(os.Environ(), "PYTHONPATH=trainer/run/python", "PYTHONDONTWRITEBYTECODE=1")
		script.Stderr = os.Stderr
		out, err := script.Output()
		os.RemoveAll(dir)
		if err != nil {
			return fmt.Errorf("checkpoints of a script with PyTorch %s: %w", p.version, err)
		}
		var waited []float64
		for line := range strings.Lines(string(out)) {
			seconds, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
			if err != nil {
				return fmt.Errorf("the time of a checkpoint of a script: %w", err)
			}
			waited = append(waited, seconds)
		}
		b.bar(Result{Name: "checkpoint/1 GB, wait for the copy of a script with PyTorch " + p.version, Unit: "s",
			Peer: "DLRover's published figure"}, publishedStall, waited...)
	}
	return nil
}

// checkpointLog has the log lines of a job about its checkpoints, in order.
type checkpointLog struct {
	// seconds for which the training waited for each checkpoint
	waited []float64
	// records per second from one checkpoint to the next, and in the calm part of that time
	whole, calm []float64
}

var copiedLine = regexp.MustCompile(
	`(?m)^\[([0-9-]{10} [0-9:]{8},\d{3})\] .* Copied for a checkpoint number=\d+ version=\d+ waited=(\S+)`)

// largeJob trains the model of 1 GB until the given number of checkpoints is made, and for a while
// after each. It returns the peak memory of the processes that copy the model.
func (b *bench) largeJob(ctx context.Context, strategy job.Strategy,
	workers, checkpoints int) (mb float64, t checkpointLog, err error) {
	l, err := b.startLive(ctx, gigabyte, strategy, workers, func(j *job.Job) {
		if checkpoints > 0 {
			j.CheckpointDir, j.CheckpointInterval.Duration, j.KeepCheckpointMax = filepath.Join(b.dir,
				"ckpt-large"), pace, 1
		}
	})
	if err != nil {
		return 0, t, err
	}
	defer os.RemoveAll(filepath.Join(b.dir, "ckpt-large"))
	defer l.stop(ctx)
	if checkpoints == 0 {
		if err := l.await(ctx, "15 s of steps", func() bool {
			return len(l.steps()) > 0 && time.Since(l.steps()[0].at) > calm
		}); err != nil {
			return 0, t, err
		}
		mb, err = l.memory(ctx)
		return mb, t, err
	}
	var found []copied
	err = l.await(ctx, fmt.Sprintf("%d checkpoints", checkpoints), func() bool {
		found = l.copied()
		return len(found) > checkpoints // the last checkpoint has only begun
	})
	if err != nil {
		return 0, t, err
	}
	mb, err = l.memory(ctx)
	steps := l.steps()
	for i, c := range found[:checkpoints] {
		t.waited = append(t.waited, c.waited)
		next := found[i+1].at.Add(-time.Second) // before the next one begins
		t.whole = append(t.whole, rate(steps, c.at.Add(-time.Second), next))
		t.calm = append(t.calm, rate(steps, next.Add(-calm), next))
	}
	return mb, t, err
}

// rate returns the records per second between two moments. The records of an interval between two
// steps belong to the later step.
func rate(steps []step, from, to time.Time) float64 {
	done := func(t time.Time) float64 {
		sum := 0.0
		for i, s := range steps {
			if !s.at.After(t) {
				sum += float64(s.records)
			} else {
				if i > 0 {
					before := steps[i-1].at
					sum += float64(s.records) * t.Sub(before).Seconds() / s.at.Sub(before).Seconds()
				}
				break
			}
		}
		return sum
	}
	return (done(to) - done(from)) / to.Sub(from).Seconds()
}

// diskRatio writes and restores 1 GB as a shard of a checkpoint, and compares with a plain file of
// the same size that is written in large pieces and synced, and read. Reads come from the disk, not
// from the cache.
func diskRatio(_ context.Context, b *bench) error {
	dir := filepath.Join(b.dir, "disk")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := checkpoint.Dir{Files: checkpoint.Local(dir)}
	model := largePart()
	plain := filepath.Join(dir, "plain")
	c := checkpoint.Commit{
		Format: checkpoint.Format, Number: 1, ModelGeneration: 1, Optimizer: "Adam", Slots: 2,
		Layout: checkpoint.VariablesOf(param.Layout{{Name: "w", Shape: []int{len(model.Values)}, Trainable: true}}),
	}
	file := checkpoint.ShardFile(0, 1)
	var copied checkpoint.Copy
	copied.Take(model)
	var busy []float64
	written, err := turns(b.n(5),
		func() (float64, error) {
			os.Remove(d.Path(checkpoint.Name{Number: 1}, file))
			before := processorTime()
			copied.Take(model)
			gbs, err := throughput(func() error {
				s, err := checkpoint.WriteShard(d, checkpoint.Name{Number: 1}, file, copied.Part)
				c.Shards = []checkpoint.Shard{s}
				return err
			})
			busy = append(busy, processorTime()-before)
			return gbs, err
		},
		func() (float64, error) {
			os.Remove(plain)
			return throughput(func() error { return plainWrite(plain, model) })
		})
	if err != nil {
		return err
	}
	b.paired(Result{Name: "checkpoint/write of 1 GB", Peer: "plain write and fsync", Unit: "GB/s",
		Target: ">= 0.8"}, written[0], written[1])
	b.bar(Result{Name: fmt.Sprintf("checkpoint/copy and write of 1 GB, processors' time, one every %v",
		pace), Unit: "s", Peer: "2% of all"},
		0.02*pace.Seconds()*float64(runtime.NumCPU()), busy...)
	return b.restored(d, c, model, plain)
}

// restored compares a restore into new memory with a plain read, which has one buffer for all, and
// with the least that new memory takes: the bar is of that, as to map memory takes as long as to
// read.
func (b *bench) restored(d checkpoint.Dir, c checkpoint.Commit, model checkpoint.Part, plain string) error {
	n := len(model.Values)
	fromDisk := func(path string, read func() error) (float64, error) {
		if err := onDiskOnly(path); err != nil {
			return 0, err
		}
		return throughput(read)
	}
	found, err := turns(b.n(9),
		func() (gbs float64, err error) {
			return gbs, inNewMemory(func(memory []byte) error {
				all := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(memory))), 3*n)
				into := checkpoint.Part{Values: all[:n], Slots: [][]float32{all[n : 2*n], all[2*n:]}}
				gbs, err = fromDisk(d.Path(c.Name(), c.Shards[0].File), func() error { return d.Restore(&c, into) })
				if err == nil && (all[n-1] != model.Values[n-1] || all[5*n/2] != model.Slots[1][n/2]) {
					err = errors.New("what was restored is something else")
				}
				return err
			})
		},
		func() (float64, error) { return fromDisk(plain, func() error { return plainRead(plain) }) },
		func() (gbs float64, err error) {
			return gbs, inNewMemory(func(memory []byte) error {
				gbs, err = fromDisk(plain, func() error { return leastRead(plain, memory) })
				return err
			})
		})
	if err != nil {
		return err
	}
	r := Result{Name: "checkpoint/restore of 1 GB, verified, into new memory", Unit: "GB/s"}
	r.Peer = "plain read"
	b.paired(r, found[0], found[1])
	r.Peer, r.Target = "plain read into memory that another thread maps", ">= 0.9"
	b.paired(r, found[0], found[2])
	return nil
}

// inNewMemory calls do with 1 GB of memory that the process has never used.
func inNewMemory(do func([]byte) error) error {
	memory, err := unix.Mmap(-1, 0, largeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	return errors.Join(do(memory), unix.Munmap(memory))
}

// leastRead reads a file into new memory, which another thread maps: no restore does less.
func leastRead(path string, memory []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	mapped := make(chan []byte, 4)
	go func() {
		defer close(mapped)
		for part := range slices.Chunk(memory, 1<<20) {
			// by a kernel before Linux 5.14 the read does it
			unix.Madvise(part, unix.MADV_POPULATE_WRITE)
			mapped <- part
		}
	}()
	for part := range mapped {
		if _, err := io.ReadFull(f, part); err != nil {
			return err
		}
	}
	return nil
}

// largePart returns a model of 1 GB, values and slots.
func largePart() checkpoint.Part {
	array := func() []float32 {
		values := make([]float32, largeBytes/3/4)
		for i := range values {
			values[i] = float32(i)
		}
		return values
	}
	return checkpoint.Part{Values: array(), Slots: [][]float32{array(), array()}}
}

// processorTime returns the CPU time of this process in seconds, including that of the kernel on
// its behalf.
func processorTime() float64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err) // it fails only for invalid arguments
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// throughput returns the rate of a function that moves 1 GB.
func throughput(move func() error) (float64, error) {
	start := time.Now()
	err := move()
	return largeBytes / time.Since(start).Seconds() / 1e9, err
}

// pieces is the size of one read or write of the plain file.
const pieces = 8 << 20

func plainWrite(path string, p checkpoint.Part) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, array := range append([][]float32{p.Values}, p.Slots...) {
		for part := range slices.Chunk(array, pieces/4) {
			if _, err := f.Write(param.Bytes(part)); err != nil {
				return err
			}
		}
	}
	return f.Sync()
}

func plainRead(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for b := make([]byte, pieces); ; {
		if _, err := f.Read(b); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// onDiskOnly drops a file from the kernel's cache.
func onDiskOnly(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// copied is a copy for a checkpoint, as a process logs it.
type copied struct {
	at     time.Time
	waited float64
}

// copied returns the copies that the logs report so far.
func (l *live) copied() []copied {
	var all []copied
	for _, path := range l.paths("*.log") {
		text, _ := os.ReadFile(path)
		for _, m := range copiedLine.FindAllSubmatch(text, -1) {
			at, _ := time.ParseInLocation(stamp, string(m[1]), time.Local)
			if waited, err := time.ParseDuration(string(m[2])); err == nil {
				all = append(all, copied{at, waited.Seconds()})
			}
		}
	}
	slices.SortFunc(all, func(a, b copied) int { return a.at.Compare(b.at) })
	return all
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func jobBenchmarks() []benchmark {
	return []benchmark{
		{name: "job/4 workers", run: fourWorkers},
		{name: "job/kill worker", run: killWorker},
		{name: "size/programs", run: sizes},
	}
}

// mnist converts the shipped digits to RecordIO, once.
func (b *bench) mnist(ctx context.Context) (string, error) {
	dir := filepath.Join(b.dir, "mnist")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	out, err := exec.CommandContext(ctx, b.binary, "dataset", "mnist", dir, "--source",
		"examples/mnist/data").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("elasticdl dataset: %w: %s", err, out)
	}
	return dir, nil
}

// start starts the main job on the shipped digits, with the given numbers of workers and servers,
// and with changes.
func (b *bench) start(ctx context.Context, epochs, workers, servers int,
	change func(*job.Job)) (*job.Job, *local.Handle, error) {
	dir, err := b.mnist(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Setenv("ELASTICDL_HOME", b.dir); err != nil {
		return nil, nil, err
	}
	j := job.Default()
	j.Name, j.ModelDef = "bench", "mnist.mnist_functional_api.custom_model"
	j.TrainingData = filepath.Join(dir, "train")
	j.NumWorkers, j.NumPS, j.NumEpochs, j.NumMinibatchesPerTask = workers, servers, epochs, 16
	if change != nil {
		change(j)
	}
	h, err := local.Start(ctx, j, local.StartOptions{Binary: b.binary})
	return j, h, err
}

// fourWorkers compares the main job, with all of its processes, with one process that only trains,
// on both cores, without a server, a master or reports; and with the job of one worker that has
// both cores.
func fourWorkers(ctx context.Context, b *bench) error {
	dir, err := b.mnist(ctx)
	if err != nil {
		return err
	}
	found, err := turns(b.n(3),
		func() (float64, error) { return b.jobRate(ctx, 3, 4, 2, nil) },
		func() (rate float64, err error) {
			c, err := startChild(ctx, "process", filepath.Join(dir, "train"), "3")
			if err != nil {
				return 0, err
			}
			c.end()
			_, err = fmt.Sscan(c.line, &rate)
			return rate, err
		},
		func() (float64, error) { return b.jobRate(ctx, 3, 1, 1, nil) })
	if err != nil {
		return err
	}
	for i, peer := range []string{"one process without servers or master, both cores", "one worker and one server"} {
		b.paired(Result{Name: "job/4 workers and 2 servers", Peer: peer, Unit: "records/s",
			Target: ">= 0.85"}, found[0], found[1+i])
	}
	return nil
}

// jobRate returns the records per second of the main job between a fifth and nine tenths of its
// records: all workers are at work then.
func (b *bench) jobRate(ctx context.Context, epochs, workers, servers int, change func(*job.Job)) (float64, error) {
	j, h, err := b.start(ctx, epochs, workers, servers, change)
	if err != nil {
		return 0, err
	}
	defer local.Stop(context.WithoutCancel(ctx), j.Name)
	var from, to point
	for to.records == 0 {
		status, err := nextStatus(ctx, j.Name)
		if err != nil {
			return 0, err
		}
		now := point{time.Now(), status.RecordsDone}
		switch share := float64(status.RecordsDone) / float64(max(status.RecordsTotal, 1)); {
		case from.records == 0 && share >= 0.2:
			from = now
		case share >= 0.9:
			to = now
		}
	}
	status, err := h.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if status.State != string(job.Succeeded) {
		return 0, fmt.Errorf("job %s: %s", status.State, status.Reason)
	}
	return float64(to.records-from.records) / to.at.Sub(from.at).Seconds(), nil
}

type point struct {
	at      time.Time
	records int64
}

// nextStatus returns the status of a job, after a short pause.
func nextStatus(ctx context.Context, name string) (*wire.JobStatus, error) {
	select {
	case <-time.After(200 * time.Millisecond):
		// often enough; each request takes a core for a moment
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	status, err := local.Status(ctx, name)
	if err == nil && job.State(status.State).Ended() && status.State != string(job.Succeeded) {
		err = fmt.Errorf("job %s: %s", status.State, status.Reason)
	}
	return status, err
}

// oneProcess trains on two threads of one process, and prints its rate over the same part of its
// records.
func oneProcess(dir string, epochs string) error {
	model, err := zoo.Lookup("mnist_functional_api")
	if err != nil {
		return err
	}
	engine, err := zoo.NewEngine(model, 2, 1)
	if err != nil {
		return err
	}
	defer engine.Close()
	update, err := optim.New(model.Optimizer())
	if err != nil {
		return err
	}
	n := engine.Layout().Trainable()
	var slots [][]float32
	for range model.Optimizer().Slots() {
		slots = append(slots, make([]float32, n))
	}
	batches, err := readBatches(dir, model)
	if err != nil {
		return err
	}
	var rounds int
	if _, err := fmt.Sscan(epochs, &rounds); err != nil {
		return err
	}
	total := rounds * len(batches)
	var start time.Time
	first, last := total/5, total*9/10
	for i := range last {
		if i == first {
			start = time.Now()
		}
		if _, err := engine.Step(batches[i%len(batches)]()); err != nil {
			return err
		}
		values, grads := engine.Values(), engine.Grads()
		engine.Parallel(n, func(lo, hi int) { update.ApplyRange(lo, hi, values, grads, slots, int64(i+1), 0) })
		engine.Layout().Average(0, values, grads)
	}
	fmt.Println(float64((last-first)*batch) / time.Since(start).Seconds())
	return nil
}

// readBatches returns functions that each read one minibatch of the data, in order, into one shared
// batch.
func readBatches(dir string, model *zoo.Model) ([]func() *zoo.Batch, error) {
	reader, err := data.Open(dir, nil, nil)
	if err != nil {
		return nil, err
	}
	shards, err := reader.Shards()
	if err != nil {
		return nil, err
	}
	var into zoo.Batch
	var all []func() *zoo.Batch
	for _, s := range shards {
		for at := s.Start; at+batch <= s.Start+s.Count; at += batch {
			all = append(all, func() *zoo.Batch {
				var records [][]byte
				for i := range int64(batch) {
					record, err := reader.ReadAt(s.Name, at+i)
					if err != nil {
						panic(err)
					}
					records = append(records, record)
				}
				if err := model.Feed(zoo.Training, records, &into); err != nil {
					panic(err)
				}
				return &into
			})
		}
	}
	return all, nil
}

// killWorker kills workers of a running job and waits for the first loss line of each one's
// replacement; it also measures the memory of the workers.
func killWorker(ctx context.Context, b *bench) error {
	kills := b.n(8)
	j, _, err := b.start(ctx, 100, 4, 2, nil)
	if err != nil {
		return err
	}
	defer local.Stop(context.WithoutCancel(ctx), j.Name)
	var delays []float64
	memory := 0.0
	for n := range kills {
		if err := b.awaitLoss(ctx, n+j.NumWorkers-1); err != nil {
			return err
		}
		victim, mb, err := running(ctx, j.Name)
		if err != nil {
			return err
		}
		memory = max(memory, mb)
		start := time.Now()
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			return err
		}
		if err := b.awaitLoss(ctx, n+j.NumWorkers); err != nil {
			return err
		}
		delays = append(delays, time.Since(start).Seconds())
	}
	b.bar(Result{Name: "job/kill -9 to the replacement's first report, worst", Unit: "s", Worst: true}, 1.5, delays...)
	b.bar(Result{Name: "job/peak memory of a worker", Unit: "MB"}, 150, memory)
	return nil
}

// running returns a live worker of the job, and the peak memory of all workers so far.
func running(ctx context.Context, name string) (pid int, mb float64, err error) {
	status, err := local.Status(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	for _, p := range status.Pods {
		if p.Role != wire.Role_WORKER || p.State != "Running" {
			continue
		}
		if pid == 0 {
			// the oldest, because a worker that ends in its first second is replaced only one
			// second after its start
			pid = int(p.Pid)
		}
		if used, err := peakMemory(int(p.Pid)); err == nil {
			mb = max(mb, used)
		}
	}
	if pid == 0 {
		return 0, 0, fmt.Errorf("job %s has no running worker", name)
	}
	return pid, mb, nil
}

// awaitLoss waits for the first loss line of a worker.
func (b *bench) awaitLoss(ctx context.Context, worker int) error {
	path := filepath.Join(b.dir, "jobs", "bench", "logs", fmt.Sprintf("worker-%d.log", worker))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("Loss = ")) {
			return nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("worker-%d has not reported a loss: %w", worker, context.Cause(ctx))
		}
	}
}

// sizes measures the program, and what each pod of a job that runs a program in an image of its own
// copies of it.
func sizes(ctx context.Context, b *bench) error {
	dir := filepath.Join(b.dir, "installed")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, b.binary, "install", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("elasticdl install: %w: %s", err, out)
	}
	for _, of := range []struct {
		name, path string
		bar        float64
	}{{"size/binary", b.binary, 55}, {"size/in a pod of run", filepath.Join(dir, "elasticdl"), 30}} {
		info, err := os.Stat(of.path)
		if err != nil {
			return err
		}
		b.bar(Result{Name: of.name, Unit: "MB"}, of.bar, float64(info.Size())/1e6)
	}
	return nil
}

package trainer_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of TestSimulation")
	seeds     = flag.Uint64("seeds", 20, "how many seeds TestSimulation runs")
)

// TestSimulation runs whole jobs: the real master, parameter servers and workers in one bubble of
// virtual time, connected by a network that, like the pods, goes wrong by the seed.
//
//	go test ./trainer -run TestSimulation -seeds 1000
//	go test ./trainer -run TestSimulation -seed 17 -seeds 1 -v     to see what seed 17 did
func TestSimulation(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			simulate(t, seed, newSimulation(seed, t.TempDir()))
		})
	}
}

// simulation is one job with its faults.
type simulation struct {
	job        *job.Job
	training   *dataset
	validation *dataset
	// of the model
	shape shape
	// what a minibatch takes to compute,
	step time.Duration
	// and to evaluate;
	measure time.Duration
	// what a model takes to be written
	export time.Duration
	faults []fault
	// mean, between faults
	pause time.Duration
	// one creation in that many is refused, 0: none
	refuse int
	// one creation in that many takes long, 0: none
	delay int
	// nothing goes wrong
	calm bool
	// nothing but that workers are asked to leave
	gentle bool
	// who follows a lost worker of a ring listens under its address
	homes bool
	// of workers that are deleted
	grace time.Duration
	// nil: parameter servers, or a program
	ring *ringWatch
	// nil: the job trains a model in Go
	program *programWatch
	// of checkpoints
	disk *disk
	// nil: the job is in no queue
	queue *queue
	// when the job is stopped, to be resumed; 0: never
	stopped time.Duration

	// of faults
	random  *rand.Rand
	crashed int
	network *network
	pods    *pods
	// who scales the job
	user  *observer
	logs  slog.Handler
	began time.Time

	mu sync.Mutex
	// until then calls to the master go wrong
	garbled time.Time
	// until then there is no room for pods
	full time.Time
	hit  map[string]bool
	trap *trap
	// hears who passes the next world's state on
	newest   func(worker string)
	happened []string
	watch
	shelf
	masters
}

// limit is the virtual time within which every job must end.
const limit = time.Hour

// simulate runs one seed. It has one processor: with more, what happens at the same time happens in
// another order each time that a seed is replayed.
func simulate(t *testing.T, seed uint64, s *simulation) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var logs bytes.Buffer
	s.logs = logline.New(&logs, slog.LevelDebug)
	t.Cleanup(func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("%v\n%s\n%s\nreplay: go test ./trainer -run '%s$' -seed %d -seeds 1 -v", s,
				strings.Join(s.happened, "\n"), &logs, t.Name()[:strings.IndexByte(t.Name(), '/')], seed)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		status, err := s.run(t)
		s.check(t, status, err)
	})
}

// newSimulation draws a job and its faults.
func newSimulation(seed uint64, output string) *simulation {
	r := rand.New(rand.NewPCG(seed, 0))
	j := newJob(r, seed, output)
	j.NumPS, j.NumWorkers = 1+r.IntN(3), 1+r.IntN(6)
	j.EvaluationSteps = r.IntN(3) * 10
	switch r.IntN(5) {
	case 0:
		j.UseAsync = true
	case 1:
		j.GetModelSteps = 2 + r.IntN(3)
	case 2:
		j.GradsToWait = 2 + r.IntN(3)
	case 3:
		j.GradsToWait, j.SyncVersionTolerance = 1+r.IntN(3), new(r.IntN(3))
	}
	s := newSimulationOf(r, j)
	s.shape = shape{parts: j.NumPS, columns: columns, records: s.training.total * int64(j.NumEpochs)}
	s.draw(r, withServers)
	s.drawCheckpoints(seed)
	s.drawMasters(seed, withServers)
	s.drawQueue(seed)
	return s
}

// hasServers reports whether the model is on parameter servers.
func (s *simulation) hasServers() bool { return s.ring == nil && s.program == nil }

// newJob draws what jobs of both strategies have.
func newJob(r *rand.Rand, seed uint64, output string) *job.Job {
	j := job.Default()
	j.Name, j.ModelDef = "sim", "sim.regression.custom_model"
	j.TrainingData, j.ValidationData, j.Output = "train", "test", output
	j.NumEpochs, j.MinibatchSize, j.NumMinibatchesPerTask = 1+r.IntN(3), 2+r.IntN(5), 1+r.IntN(6)
	j.Shuffle, j.Seed = r.IntN(2) == 0, seed
	j.TaskTimeout.Duration = 5 * time.Second
	j.RelaunchOnWorkerFailure = 5
	return j
}

func newSimulationOf(r *rand.Rand, j *job.Job) *simulation {
	var counts []int
	for range 1 + r.IntN(4) {
		counts = append(counts, 20+r.IntN(60))
	}
	s := &simulation{
		job: j, training: newDataset("train", counts), validation: newDataset("test", []int{30}),
		step:   time.Duration(20+r.IntN(130)) * time.Millisecond,
		pause:  time.Duration(200+r.IntN(2000)) * time.Millisecond,
		random: rand.New(rand.NewPCG(j.Seed, 1)), network: newNetwork(j.Seed), hit: make(map[string]bool),
		watch: watch{tries: make(map[pod.ID]int)},
	}
	s.network.latency = []time.Duration{0, time.Millisecond, 10 * time.Millisecond}[r.IntN(3)]
	return s
}

// draw draws what goes wrong.
func (s *simulation) draw(r *rand.Rand, of where) {
	if r.IntN(2) == 0 {
		s.grace = 10 * time.Second
	}
	if r.IntN(8) == 0 {
		s.measure = time.Duration(500+r.IntN(2500)) * time.Millisecond
	}
	if r.IntN(8) == 0 {
		s.export = time.Duration(1+r.IntN(20)) * time.Second
	}
	switch r.IntN(8) {
	case 0:
		s.calm = true
		// who writes nothing for longer is replaced
		s.export = min(s.export, s.job.TaskTimeout.Duration-time.Second)
		if r.IntN(2) == 0 {
			s.faults = []fault{grow}
		}
		return
	case 1:
		s.gentle = true
		s.export = min(s.export, s.job.TaskTimeout.Duration-time.Second)
		s.faults = []fault{ask, askAll}
		return
	}
	for _, f := range slices.Concat(faults, ambushes, []fault{ask, askAll}) {
		if f.in(of) && r.IntN(2) == 0 {
			s.faults = append(s.faults, f)
		}
	}
	if r.IntN(3) == 0 {
		s.refuse = 3
	}
	if r.IntN(3) == 0 {
		s.delay = 2 + r.IntN(3)
	}
}

func (s *simulation) String() string {
	var names []string
	for _, f := range s.faults {
		names = append(names, f.name)
	}
	return fmt.Sprintf("job %+v\nrecords %d, step %v, measure %v, export %v, faults %v every %v",
		*s.job, s.training.total, s.step, s.measure, s.export, names, s.pause)
}

// run runs the job to its end: at once, or stopped in the middle, and resumed with as many servers
// and workers as it says then.
func (s *simulation) run(t *testing.T) (*wire.JobStatus, error) {
	most := limit
	if s.program != nil {
		most = programLimit
	}
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	s.began = time.Now()
	var injecting sync.WaitGroup
	injection, stop := context.WithCancel(ctx)
	user := &host{name: "user"}
	client, closing, err := s.master(user, self(pod.ID{Role: identity.User}, 0))
	if err != nil {
		stop()
		return nil, err
	}
	defer closing()
	client.garble = func() garbling { return well }
	s.user = client
	s.pods = newPods(s.network)
	s.pods.start, s.pods.grace, s.pods.queue = s.start, s.grace, s.queue
	if s.queue != nil {
		s.pods.widen(s.queue.after, time.Second)
	}
	s.pods.run = func(ctx context.Context, it *process) error {
		switch {
		case s.program != nil:
			return s.runAgent(ctx, it)
		case it.ID.Role == pod.PS:
			return s.runPS(ctx, it.host, it.Pod)
		}
		return s.runWorker(ctx, it)
	}
	injecting.Go(func() { s.inject(injection) })
	var status *wire.JobStatus
	if s.stopped > 0 {
		first, end := context.WithTimeout(ctx, s.stopped)
		status, err = s.runOnce(first, false)
		end()
	}
	if s.stopped == 0 || status.State == string(job.Stopped) {
		if s.stopped > 0 {
			s.resume(t, status)
		}
		status, err = s.runOnce(ctx, s.stopped > 0)
	}
	stop()
	injecting.Wait()
	s.network.kill(user)
	return status, err
}

// resume changes what may change of a job that is resumed, and keeps its journal. Nothing of it
// runs.
func (s *simulation) resume(t *testing.T, last *wire.JobStatus) {
	past, err := master.ReadJournal(s.record)
	if err != nil {
		t.Fatal(err)
	}
	s.past = role.Concluded(past, last)
	r := rand.New(rand.NewPCG(s.job.Seed, 8))
	if s.hasServers() {
		s.job.NumPS = 1 + r.IntN(3)
	}
	if s.job.MinWorkers == 0 && s.job.MaxWorkers == 0 {
		s.job.NumWorkers = 1 + r.IntN(6)
	}
	s.say(fmt.Sprintf("the job was stopped, and is resumed with %d servers and %d workers", s.job.NumPS,
		s.job.NumWorkers))
	s.pods.reopen()
	s.note(func() {
		s.ending, s.modelGeneration, s.cause, s.again = false, 0, false, 0
		s.before, s.leased, s.epochs = s.leased, nil, 0
		if s.ring != nil {
			s.ring.forget()
		}
		if s.program != nil {
			s.program.forget()
		}
	})
}

// runOnce runs masters until the job has ended, or ctx.
func (s *simulation) runOnce(ctx context.Context, resume bool) (*wire.JobStatus, error) {
	s.note(func() { s.record = nil })
	status, err := s.reigns(ctx, resume)
	s.pods.close()
	s.zombie.Wait()
	return status, err
}

// start is the result of a pod's creation: of the first ones of a job less goes wrong.
func (s *simulation) start(p master.Pod) (delay time.Duration, refused error) {
	var full bool
	tries := 0
	s.note(func() {
		full = time.Now().Before(s.full)
		s.tries[p.ID]++
		tries = s.tries[p.ID]
	})
	r := s.source(p.ID.String(), tries, "start")
	delay = time.Duration(r.IntN(300)) * time.Millisecond
	long := 5*time.Second + time.Duration(r.Int64N(int64(35*time.Second)))
	switch {
	case full:
		return 0, master.ErrFull
	case s.refuse > 0 && r.IntN(s.refuse) == 0:
		return 0, errors.New("no quota")
	case s.delay > 0 && r.IntN(s.delay) == 0 && time.Since(s.began) > time.Second:
		return long, nil
	}
	return delay, nil
}

// check asserts what must be so at the end of every job, whatever befell it.
func (s *simulation) check(t *testing.T, status *wire.JobStatus, err error) {
	if s.program != nil {
		s.checkProgram(t, status, err)
		return
	}
	if err != nil {
		t.Fatalf("job failed: %v", err)
	}
	records := s.training.total * int64(s.job.NumEpochs)
	if status.State != "Succeeded" || status.RecordsDone != records || status.RecordsTotal != records {
		t.Errorf("%s with %d of %d records credited, want all of %d", status.State, status.RecordsDone,
			status.RecordsTotal, records)
	}
	for _, wrong := range s.wrong {
		t.Error(wrong)
	}
	s.checkAudit(t, status)
	s.checkOrder(t)
	s.checkApplied(t)
	s.checkShelf(t)
	if s.ring != nil {
		s.checkRing(t, status)
	}
	if s.gentle && s.highestGeneration > 0 {
		t.Errorf("the training started over %d times, and all workers that left had the time to hand "+
			"back what they had", s.highestGeneration)
	}
	n := len(status.Evaluations)
	if n == 0 {
		t.Fatal("there was no evaluation")
	}
	last := status.Evaluations[n-1].Metrics["error"]
	untrained, alone := s.alone(0), s.alone(status.Version)
	if !(untrained-last > (untrained-alone)/2) {
		t.Errorf("the error is %v in the end after %d updates, %v without training, and %v if one "+
			"trains alone", last, status.Version, untrained, alone)
	}
	for _, e := range status.Evaluations {
		if n := e.Metrics["records"]; n != float64(s.validation.total) {
			t.Errorf("evaluation of version %d measured %v records of %d", e.Version, n, s.validation.total)
		}
	}
}

// alone is the error after that many updates, each by one minibatch, of a single worker without
// faults. Jobs gain 0.7 of that at least: less where some train on older values, more where updates
// are by more.
func (s *simulation) alone(updates int64) float64 {
	var weights, squares [features]float32
	miss := func(x [features]float32, y float32) float32 {
		for j, w := range weights {
			y -= w * x[j]
		}
		return -y
	}
	record := func(d *dataset, n int64) (x [features]float32, y float32) {
		for _, shard := range d.shards {
			if n < shard.Count {
				return example(shard.Name, n)
			}
			n -= shard.Count
		}
		panic("no such record")
	}
	size := int64(s.job.MinibatchSize)
	for u := range updates {
		var gradient [features]float32
		for i := range size {
			x, y := record(s.training, (u*size+i)%s.training.total)
			for j, miss := 0, miss(x, y); j < features; j++ {
				gradient[j] += 2 * miss * x[j] / float32(size)
			}
		}
		for j, g := range gradient {
			squares[j] += g * g
			weights[j] -= rate * g / float32(math.Sqrt(float64(squares[j])))
		}
	}
	var sum float64
	for i := range s.validation.total {
		m := miss(record(s.validation, i))
		sum += float64(m * m)
	}
	return sum / float64(s.validation.total)
}

// checkOrder: tasks are leased first in the order that the shards and the seed give.
func (s *simulation) checkOrder(t *testing.T) {
	q, err := task.New(s.training.shards, task.Policy{
		RecordsPerTask: s.job.RecordsPerTask(), Epochs: s.job.NumEpochs, Shuffle: s.job.Shuffle, Seed: s.job.Seed})
	if err != nil {
		t.Fatal(err)
	}
	var want []task.Task
	for !q.TrainingDone() {
		l, ok := q.Lease(0, time.Time{})
		if !ok {
			q.NextEpoch()
			continue
		}
		want = append(want, l.Task)
		if err := q.Done(l.ID, 0, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(s.leased, want) {
		t.Errorf("tasks were leased in the order %v, want %v", s.leased, want)
	}
}

// exported is the values that the job has exported, and their version.
func (s *simulation) exported(t *testing.T) ([]float32, int64) {
	path := filepath.Join(s.job.Output, checkpoint.ModelFile)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	_, values, metadata, err := safetensors.Read(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	version, err := strconv.ParseInt(metadata["version"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return values, version
}

// checkApplied reads off the exported model which records are in it: each one once, on every
// server.
func (s *simulation) checkApplied(t *testing.T) {
	values, _ := s.exported(t)
	for part := range s.shape.parts {
		missing, again := 0, 0
		counts := s.shape.counts(values, part)
		for record := range int(s.shape.records) {
			times := float32(0)
			for _, count := range counts[record*s.shape.columns:][:s.shape.columns] {
				times += (count - start) / rate
			}
			switch {
			case times < 0.99:
				missing++
			case times > 1.01:
				again++
			}
		}
		if missing > 0 || again > 0 {
			t.Errorf("part %d of the exported model lacks %d of %d records, and has %d more than once",
				part, missing, s.shape.records, again)
		}
	}
}

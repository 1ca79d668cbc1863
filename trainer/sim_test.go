package trainer_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/safetensors"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of TestSimulation")
	seeds     = flag.Uint64("seeds", 100, "how many seeds TestSimulation runs")
)

// TestSimulation runs whole jobs: the real master, parameter servers and workers in one bubble of virtual time,
// connected by a network that, like the pods, goes wrong by the seed.
//
//	go test ./trainer -run TestSimulation -seeds 1000
//	go test ./trainer -run TestSimulation -seed 17 -seeds 1 -v     to see what seed 17 did
func TestSimulation(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, seed, newSimulation(seed, t.TempDir()))
		})
	}
}

// simulation is one job and what befalls it.
type simulation struct {
	job        *job.Job
	training   *dataset
	validation *dataset
	step       time.Duration // what a minibatch takes to compute
	faults     []fault
	pause      time.Duration // mean, between faults
	refuse     int           // one creation in so many is refused, 0: none

	ring    *ringWatch    // nil: parameter servers
	ballast int           // of a ring's model
	calm    bool          // nothing goes wrong
	gentle  bool          // nothing but that workers are asked to leave
	homes   bool          // who follows a lost worker listens under its address
	grace   time.Duration // of workers that are deleted

	random  *rand.Rand // of faults
	network *network
	pods    *pods
	user    *observer // who scales the job
	logs    slog.Handler

	mu       sync.Mutex
	leased   []task.Task     // first leases of training tasks, in order
	lost     map[string]bool // workers whose leases were taken back
	ending   bool            // the job is over
	forgot   bool            // a server was lost before, with what it had
	anew     bool            // and no worker that had trained was left to fill the next
	deaf     bool            // servers could not tell the master how far a lost worker came
	trap     *trap
	garbles  *rand.Rand
	garbled  time.Time // until then calls to the master go wrong
	happened []string
}

// limit is the virtual time within which every job must end.
const limit = time.Hour

func simulate(t *testing.T, seed uint64, s *simulation) {
	var logs bytes.Buffer
	s.logs = &watcher{Handler: logline.New(&logs, slog.LevelDebug), simulation: s}
	t.Cleanup(func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("%v\n%s\n%s\nreplay: go test ./trainer -run '%s$' -seed %d -seeds 1 -v", s, strings.Join(s.happened, "\n"), &logs, t.Name()[:strings.IndexByte(t.Name(), '/')], seed)
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
	j := job.Default()
	j.Name, j.ModelDef = "sim", "sim.regression.custom_model"
	j.TrainingData, j.ValidationData, j.Output = "train", "test", output
	j.NumPS, j.NumWorkers = 1+r.IntN(3), 1+r.IntN(6)
	j.NumEpochs, j.MinibatchSize, j.NumMinibatchesPerTask = 1+r.IntN(3), 2+r.IntN(5), 1+r.IntN(6)
	j.EvaluationSteps = r.IntN(3) * 10
	j.Shuffle, j.Seed = r.IntN(2) == 0, seed
	j.TaskTimeout.Duration = 5 * time.Second
	j.RelaunchOnWorkerFailure = 5
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
	var counts []int
	for range 1 + r.IntN(4) {
		counts = append(counts, 20+r.IntN(60))
	}
	s := &simulation{
		job: j, training: newDataset("train", counts), validation: newDataset("test", []int{30}),
		step: time.Duration(20+r.IntN(130)) * time.Millisecond, pause: time.Duration(300+r.IntN(2000)) * time.Millisecond,
		random: rand.New(rand.NewPCG(seed, 1)), network: newNetwork(), lost: make(map[string]bool),
	}
	for _, f := range faults {
		if r.IntN(2) == 0 {
			s.faults = append(s.faults, f)
		}
	}
	if r.IntN(3) == 0 {
		s.refuse = 3
	}
	s.draw(rand.New(rand.NewPCG(seed, 6)))
	return s
}

// draw draws how workers leave: with some seeds that is all that befalls the job.
func (s *simulation) draw(r *rand.Rand) {
	if r.IntN(2) == 0 {
		s.grace = 10 * time.Second
	}
	if s.gentle = r.IntN(8) == 0; s.gentle {
		s.faults, s.refuse = nil, 0
	}
	if s.gentle || !s.calm && r.IntN(2) == 0 {
		s.faults = append(s.faults, ask, askAll)
	}
}

func (s *simulation) String() string {
	var names []string
	for _, f := range s.faults {
		names = append(names, f.name)
	}
	return fmt.Sprintf("job %+v\nrecords %d, step %v, faults %v every %v", *s.job, s.training.total, s.step, names, s.pause)
}

// run runs the job to its end.
func (s *simulation) run(t *testing.T) (*wire.JobStatus, error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	s.pods = newPods(s.network)
	starts := rand.New(rand.NewPCG(s.job.Seed, 2))
	s.pods.start = func(pod.ID) (time.Duration, bool) {
		return time.Duration(starts.IntN(300)) * time.Millisecond, s.refuse > 0 && starts.IntN(s.refuse) == 0
	}
	s.pods.grace = s.grace
	s.pods.run = func(ctx context.Context, it *process) error {
		if it.ID.Role == pod.PS {
			return s.runPS(ctx, it.host, it.Pod)
		}
		return s.runWorker(ctx, it)
	}
	at := &host{name: "master"}
	user := &host{name: "user"}
	client, closing, err := s.master(user, self(pod.ID{Role: identity.User}, 0))
	if err != nil {
		return nil, err
	}
	defer closing()
	s.user = client
	var injecting sync.WaitGroup
	injection, stop := context.WithCancel(ctx)
	injecting.Go(func() { s.inject(injection) })
	status, err := master.Run(ctx, master.Config{
		Job: s.job, Training: s.training.shards, Validation: s.validation.shards,
		Metric: metric,
		Self:   wire.NewSelf(identity.Header{Job: "uid", Secret: "secret", Role: pod.Master, Incarnation: 1, Life: 1}), Users: true,
		Listener: s.network.listen(at, masterAddress), Pods: s.pods, Dial: s.network.dial(at), Log: s.log("master"),
	})
	stop()
	injecting.Wait()
	s.pods.close()
	s.network.kill(user)
	s.network.kill(at)
	return status, err
}

// check asserts what must be so at the end of every job, whatever befell it.
func (s *simulation) check(t *testing.T, status *wire.JobStatus, err error) {
	if err != nil {
		t.Fatalf("job failed: %v", err)
	}
	records := s.training.total * int64(s.job.NumEpochs)
	if status.State != "Succeeded" || status.RecordsDone != records || status.RecordsTotal != records {
		t.Errorf("%s with %d of %d records credited, want all of %d", status.State, status.RecordsDone, status.RecordsTotal, records)
	}
	s.checkOrder(t)
	if s.ring != nil {
		s.checkRing(t, status)
	} else {
		s.checkApplied(t)
	}
	if n := len(status.Evaluations); n == 0 {
		t.Error("there was no evaluation")
	} else if last := status.Evaluations[n-1].Metrics["error"]; !s.anew && !(last < s.untrained()) ||
		!s.forgot && status.Version >= 30 && !(last < s.untrained()/2) {
		t.Errorf("the error is %v in the end, and %v without training", last, s.untrained())
	}
}

// untrained is the error of the model as it is initialized.
func (s *simulation) untrained() float64 {
	var sum, n float64
	for _, shard := range s.validation.shards {
		for i := range shard.Count {
			_, y := example(shard.Name, i)
			sum += float64(y * y)
			n++
		}
	}
	return sum / n
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
	path := filepath.Join(s.job.Output, worker.ModelFile)
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

// checkApplied reads off the exported model which records the servers applied.
func (s *simulation) checkApplied(t *testing.T) {
	values, _ := s.exported(t)
	applied := values[features:]
	missing, twice, again := 0, 0, 0
	for record := range len(applied) / columns {
		workers := 0
		for _, times := range applied[record*columns:][:columns] {
			if times > 0.01 {
				workers++
			}
			if times > 1.01 {
				twice++
			}
		}
		if workers == 0 {
			missing++
		}
		again += max(0, workers-1)
	}
	if s.forgot {
		return
	}
	if s.gentle && again > 0 {
		t.Errorf("%d records were applied again, and all workers that left had the time to hand them back", again)
	}
	if missing > 0 {
		t.Errorf("%d of %d records were not applied", missing, len(applied)/columns)
	}
	if twice > 0 {
		t.Errorf("%d records were applied twice by one worker", twice)
	}
	// What a worker that was lost had in flight, one minibatch at most, is applied again.
	if most := len(s.lost) * s.job.MinibatchSize; again > most && !s.deaf {
		t.Errorf("%d records were applied again after the loss of %d workers, want at most %d", again, len(s.lost), most)
	}
}

// watcher sees the master's leases and losses go by in its log.
type watcher struct {
	slog.Handler
	*simulation
	name string
}

func (w *watcher) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &watcher{w.Handler.WithAttrs(attrs), w.simulation, attrs[0].Value.String()}
}

func (w *watcher) Handle(ctx context.Context, r slog.Record) error {
	w.note(func() {
		w.anew = w.anew || strings.HasPrefix(r.Message, "No worker has the values")
		w.ending = w.ending || strings.HasPrefix(r.Message, "Job ")
		w.deaf = w.deaf || strings.HasPrefix(r.Message, "Server does not say how far")
	})
	if w.name == "master" {
		r.Attrs(func(a slog.Attr) bool {
			switch value := a.Value.Any().(type) {
			case task.Task:
				if r.Message == "Task leased" {
					w.noteLease(value)
				}
			case pod.ID:
				if r.Message == "Pod has ended" && value.Role == pod.PS {
					w.note(func() { w.forgot = w.forgot || !w.ending })
				}
			case int64, int:
				if r.Message == "Lease taken back" && a.Key == "worker" {
					w.note(func() { w.lost[fmt.Sprint(value)] = true })
				}
			}
			return true
		})
	}
	err := w.Handler.Handle(ctx, r)
	if w.ring != nil {
		w.ring.hear(w.name, r)
	}
	w.spring(w.name, r.Message)
	return err
}

func (s *simulation) noteLease(leased task.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(t task.Task) bool {
		return t.Epoch == leased.Epoch && t.Shard == leased.Shard && t.Start == leased.Start
	}
	if leased.Kind == task.Training && !slices.ContainsFunc(s.leased, same) {
		s.leased = append(s.leased, leased)
	}
}

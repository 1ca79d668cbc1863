package master

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Data is the input of a job.
type Data interface {
	// Index finds the records. Those of a prediction count as validation. It may take long, and
	// ends with ctx.
	Index(ctx context.Context) (training, validation []task.Shard, err error)
	// Indexed returns how many bytes Index has read, and how many there are. It may be called while
	// Index runs.
	Indexed() (bytes, of int64)
	// Blocks returns where the records of a task are, in order; nil if that is not known.
	Blocks(t task.Task) []task.Block
}

// mostBlocks limits the blocks in a task's message, which is limited to 4 MB. Without blocks a
// worker finds the records itself.
const mostBlocks = 1 << 16

// blocks returns the places of a task's records, for its worker.
func (m *master) blocks(t task.Task) []*wire.Block {
	if m.Data == nil {
		return nil
	}
	all := m.Data.Blocks(t)
	if len(all) > mostBlocks {
		return nil
	}
	told := make([]*wire.Block, len(all))
	for i, b := range all {
		told[i] = &wire.Block{First: b.First, Records: b.Records, Offset: b.Offset, Size: b.Size, Checksum: b.Checksum}
	}
	return told
}

// prepareAndStart finds the data, if it is not known, and what the model begins with, and starts
// the pods. Meanwhile the master answers probes, users, and pods that exist already. It ends with
// ctx.
func (m *master) prepareAndStart(ctx context.Context) {
	first, observed, err := m.prepare(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.stage.Over() || m.stage.Left() != nil {
		return
	}
	switch {
	case err != nil:
	case m.former != nil && m.former.State.Ended():
		err = m.restoreEnd(observed, now)
	case m.former != nil:
		err = m.restore(first, observed, now)
	default:
		m.perform(m.stage.Plan(now), now)
		m.checkpoints.beginFirst(first, m.clock(now))
		m.enqueue(m.table.Start(now))
	}
	if err != nil {
		m.end(job.Failed, err, now)
		return
	}
	m.remember()
	m.advance(now)
	for _, e := range m.unheard {
		m.observeLocked(e)
	}
	m.unheard = nil
	signal(m.poke)
}

// prepare does what may take long before pods are started. A restored master finds which pods
// exist.
func (m *master) prepare(ctx context.Context) (first loaded, observed []pod.Event, err error) {
	if m.former == nil || !m.former.State.Ended() {
		if err = m.checkpoints.take(ctx); err == nil {
			err = m.index(ctx)
		}
		if err == nil {
			first, err = m.checkpoints.load(ctx)
		}
	}
	if err == nil && m.former != nil {
		observed, err = m.adoptPods(ctx)
	}
	return first, observed, err
}

// index finds the data, if it is not known.
func (m *master) index(ctx context.Context) error {
	if m.Data != nil {
		began := time.Now()
		training, validation, err := m.Data.Index(ctx)
		if err != nil {
			return err
		}
		m.mu.Lock()
		err = m.plan(training, validation)
		m.mu.Unlock()
		if err != nil {
			return err
		}
		m.Log.Info("Data indexed", "training", len(training), "validation", len(validation), "took",
			time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// begins has the job begin with that many workers. No pod was started yet.
func (m *master) begins(workers int) {
	m.workers = workers
	m.table = pod.New(m.podPolicy())
}

// podPolicy returns how many pods of each role there are, and how those that end are replaced.
func (m *master) podPolicy() pod.Policy {
	j := m.Job
	return pod.Policy{Servers: j.NumPS, Workers: m.workers, MinWorkers: j.MinWorkers,
		Relaunches: j.RelaunchOnWorkerFailure, MaxOOMs: m.MaxOOMs}
}

// taskPolicy returns how the records are cut into tasks.
func (m *master) taskPolicy() task.Policy {
	j := m.Job
	policy := task.Policy{
		RecordsPerTask: j.RecordsPerTask(),
		Epochs:         j.NumEpochs,
		MaxAttempts:    j.MaxTaskRetries,
		Timeout:        j.TaskTimeout.Duration,
		Shuffle:        j.Shuffle,
		Seed:           j.Seed,
		MaxRecords:     j.MaxRecords(),
	}
	if m.program != nil {
		return m.program.policy(policy)
	}
	return policy
}

// plan makes the machines that follow from the data.
func (m *master) plan(training, validation []task.Shard) (err error) {
	m.Training = training
	m.Validation = slices.DeleteFunc(slices.Clone(validation), func(s task.Shard) bool { return s.Count == 0 })
	if m.queue, err = task.New(training, m.taskPolicy()); err != nil {
		return fmt.Errorf("plan the job: %w", err)
	}
	if incarnation := m.Self.Header().Incarnation; incarnation > 1 {
		m.queue.NumberAs(incarnation)
	}
	m.evals = evaluation.New(m.evaluationPolicy())
	return nil
}

// early refuses a pod that calls before the job is planned: it is to call again. The caller holds
// the mutex.
func (m *master) early() error {
	if m.stage.Left() != nil {
		return status.Error(codes.Unavailable, "another master replaces this one")
	}
	if m.stage.Planned() || m.stage.Over() {
		return nil
	}
	return status.Error(codes.Unavailable, "not yet: "+m.indexing())
}

// indexing returns how far the master is with the data, as text.
func (m *master) indexing() string {
	if m.Data == nil {
		return "the master has just started"
	}
	bytes, of := m.Data.Indexed()
	return fmt.Sprintf("the master looks for the records of the data: %d of %d MB are read", bytes/1e6, of/1e6)
}

package master

import (
	"context"
	"fmt"
	"time"

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
	if m.handover.record == nil {
		m.mu.Lock()
		m.events.happen(Started{Resumed: m.Resume})
		m.mu.Unlock()
	}
	first, observed, err := m.prepare(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.stage.Over() || m.stage.Left() != nil {
		return
	}
	switch {
	case err != nil:
	case m.handover.record != nil && m.handover.record.State.Ended():
		err = m.restoreEnd(observed, now)
	case m.handover.record != nil:
		err = m.restore(first, observed, now)
	default:
		m.perform(m.stage.Plan(now), now)
		m.checkpoints.beginFirst(first, m.clock.at(now))
		m.enqueue(m.fleet.table.Start(now))
	}
	if err != nil {
		m.end(job.Failed, err, now)
		return
	}
	m.remember()
	m.advance(now)
	for _, e := range m.handover.unheard {
		m.observeLocked(e)
	}
	m.handover.unheard = nil
	m.clock.look()
}

// prepare does what may take long before pods are started. A restored master finds which pods
// exist.
func (m *master) prepare(ctx context.Context) (first loaded, observed []pod.Event, err error) {
	if m.handover.record == nil || !m.handover.record.State.Ended() {
		if err = m.checkpoints.take(ctx); err == nil {
			err = m.index(ctx)
		}
		if err == nil {
			first, err = m.checkpoints.load(ctx)
		}
	}
	if err == nil && m.handover.record != nil {
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

// indexing returns how far the master is with the data, as text.
func (c *Config) indexing() string {
	if c.Data == nil {
		return "the master has just started"
	}
	bytes, of := c.Data.Indexed()
	return fmt.Sprintf("the master looks for the records of the data: %d of %d MB are read", bytes/1e6, of/1e6)
}

package master

import (
	"context"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// shared is what every part of the master has. A part does not have the master: what it asks of the
// master is an interface that stands beside the part.
type shared struct {
	*Config
	stage *lifecycle.Lifecycle
	// the master's mutex
	mu turn
}

func (m *master) share() shared { return shared{&m.Config, m.stage, m.mu} }

// tasks returns the queue of tasks, which is another one when the training is restored.
func (m *master) tasks() *task.Queue { return m.queue }

// measures returns the schedule of evaluations, which is another one in each life of the model.
func (m *master) measures() *evaluation.Schedule { return m.evals }

// pod returns a pod of the table, and false if it is unknown.
func (m *master) pod(id pod.ID) (pod.Pod, bool) { return m.table.Get(id) }

// heardOf returns what a pod has told of itself; nil: nothing.
func (m *master) heardOf(id pod.ID) *contact { return m.pods[id] }

// runs notes that a worker has arrived, so that its pod runs.
func (m *master) runs(worker int, address string) {
	m.enqueue(m.table.Observe(pod.Event{ID: pod.ID{Role: pod.Worker, Index: worker}, Phase: pod.Running,
		Address: address}, time.Now()))
}

// resumedWith notes how many records were done before the training went on from a checkpoint.
func (m *master) resumedWith(records int64) { m.resumed = records }

// wentBack notes that the training went back, and why.
func (m *master) wentBack(why string) {
	m.rewinds++
	m.explain(why)
}

// explain notes why the training last went back.
func (m *master) explain(why string) { m.anewFor = why }

// holders returns what has the model.
func (m *master) holders() holders { return m.strategy }

// predecessor returns the record of the previous master; nil: this is the first one.
func (m *master) predecessor() *record { return m.former }

// lifetime returns a context that ends when Run returns.
func (m *master) lifetime() context.Context { return m.lasting }

// spawn runs f in a goroutine, for which Run waits.
func (m *master) spawn(f func()) { m.background.Go(f) }

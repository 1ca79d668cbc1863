package master

import (
	"context"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// shared has the fields of every part of the master. A part does not have the master: its requests
// to the master are an interface in the file of the part.
type shared struct {
	*Config
	stage *lifecycle.Lifecycle
	// the master's mutex
	mu turn
}

func (m *master) share() shared { return shared{&m.Config, m.stage, m.mu} }

// tasks returns the queue of tasks, which is another one when the training is restored.
func (m *master) tasks() *task.Queue { return m.queue }

// measures returns the schedule of evaluations. Each model generation has another one.
func (m *master) measures() *evaluation.Schedule { return m.evals }

// pod returns a pod of the table, and false if it is unknown.
func (m *master) pod(id pod.ID) (pod.Pod, bool) { return m.table.Get(id) }

// heardOf returns the last report of a pod; nil: none.
func (m *master) heardOf(id pod.ID) *contact { return m.pods[id] }

// runs notes that a worker has arrived, so that its pod runs.
func (m *master) runs(worker int, address string) {
	m.enqueue(m.table.Observe(pod.Event{ID: pod.ID{Role: pod.Worker, Index: worker}, Phase: pod.Running,
		Address: address}, time.Now()))
}

// resumedWith notes how many records were done before the training continued from a checkpoint.
func (m *master) resumedWith(records int64) { m.resumed = records }

// rolledBack notes a rollback of the training, and its reason.
func (m *master) rolledBack(why string) {
	m.rewinds++
	m.explain(why)
}

// explain notes the reason of the last rollback.
func (m *master) explain(why string) { m.rollbackReason = why }

// holders returns what has the model.
func (m *master) holders() holders { return m.strategy }

// predecessor returns the record of the previous master; nil: this is the first one.
func (m *master) predecessor() *record { return m.former }

// lifetime returns a context that ends when Run returns.
func (m *master) lifetime() context.Context { return m.lasting }

// spawn runs f in a goroutine, for which Run waits.
func (m *master) spawn(f func()) { m.background.Go(f) }

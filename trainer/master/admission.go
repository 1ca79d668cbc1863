package master

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/admission"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// newAdmission returns what decides when a job in a queue gives its quota back.
func newAdmission(j *job.Job, former *record) *admission.Admission {
	attempts := 0
	if former != nil {
		attempts = former.Yields
	}
	return admission.New(admission.Policy{Timeout: j.AdmissionTime(), Random: rand.Float64}, attempts)
}

// admits reports whether the job may give quota back: it is in a queue, and is not about to end.
func (m *master) admits() bool {
	n, _, _ := m.stage.Closing()
	return m.admission != nil && m.stage.Planned() && !m.stage.Over() && n == 0
}

// admit gives quota back if the core of a job in a queue lacks some for too long. The caller holds
// the mutex.
func (m *master) admit(now time.Time) {
	if !m.admits() {
		return
	}
	q := m.fleet.table.Quota()
	a := m.admission.Step(admission.Facts{Core: q.Core, Admitted: q.CoreAdmitted, Waiting: q.CoreWaiting,
		Elastic: q.Elastic}, now)
	if at, ok := m.admission.Deadline(); ok && m.clock.firesAfter(at) {
		m.clock.look()
	}
	switch {
	case a == nil:
	case a.Verb == admission.Shed:
		m.Log.Info("Workers are deleted for pods of the core, which wait for quota", "queue", m.Job.Queue,
			"workers", a.Workers)
		m.enqueue(m.fleet.table.Shed(a.Workers, now))
	default:
		m.yields = &Yielded{Pause: a.Pause, Reason: lacksQuota(m.Job, q)}
		m.Log.Warn("The core of the job was not admitted in time", "queue", m.Job.Queue, "reason",
			m.yields.Reason, "timeout", m.Job.AdmissionTime(), "pause", a.Pause.Round(time.Second))
		if actions, ok := m.stage.Close(lifecycle.Yield, m.facts(), now); ok {
			m.closes(actions, now)
		}
	}
}

// lacksQuota returns what a job waits for in its queue.
func lacksQuota(j *job.Job, q pod.Quota) string {
	return fmt.Sprintf("%d of %d core pods have quota of queue %s", q.CoreAdmitted, q.Core, j.Queue)
}

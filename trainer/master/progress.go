package master

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// progress has the speed of the training, its curves, and its rollbacks.
type progress struct {
	speed speed
	curve curve.Curve
	// number of evaluations that are in the curve
	measured int64
	// records that were done before the job was resumed
	resumed int64
	// number of rollbacks
	rewinds int
	// reason of the last rollback
	reason string
}

// newProgress returns the progress of a master. Its curve continues that of the master before, or
// that of the job before it was resumed.
func newProgress(c *Config, former *record) *progress {
	if former != nil {
		return &progress{curve: curve.Restore(former.Curve), measured: former.Evaluated}
	}
	return &progress{curve: curve.Restore(c.Curve)}
}

// draw adds the status to the curve, while the job runs.
func (p *progress) draw(s *wire.JobStatus, now time.Time) {
	if s.EndedUnixMs > 0 {
		return
	}
	sample := curve.Sample{Records: s.RecordsDone, Rate: s.RecordsPerSecond, Workers: working(s),
		Loss: cmp.Or(float64(s.Loss), math.NaN())}
	p.curve.Observe(sample, now)
	if n := len(s.Evaluations); n > 0 && s.Evaluated > p.measured {
		p.measured = s.Evaluated
		p.curve.Measure(s.Evaluations[n-1].Metrics, now)
	}
}

// working returns the number of workers that run.
func working(s *wire.JobStatus) (n int) {
	for _, p := range s.Pods {
		if p.Role == wire.Role_WORKER && pod.Running.Is(p.State) {
			n++
		}
	}
	return n
}

// ReadCurve returns the curve in a record of a master, as [Memory] stores it; an empty one if there
// is none.
func ReadCurve(text []byte) (curve.Snapshot, error) {
	var r struct {
		Curve curve.Snapshot `json:"curve"`
	}
	if len(text) == 0 {
		return r.Curve, nil
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return curve.Snapshot{}, fmt.Errorf("read the curve of the job: %w", err)
	}
	return r.Curve, nil
}

// rolledBack notes a rollback of the training, and its reason.
func (p *progress) rolledBack(why string) {
	p.rewinds++
	p.reason = why
}

// explain replaces the reason of the last rollback, as more is known of it.
func (p *progress) explain(why string) { p.reason = why }

// resumedWith notes how many records were done before the training continued from a checkpoint.
func (p *progress) resumedWith(records int64) { p.resumed = records }

// restart measures the speed from now on only.
func (p *progress) restart() { p.speed = speed{} }

// restore sets what the previous master has left.
func (p *progress) restore(r *record) {
	p.resumed, p.reason, p.rewinds = r.Resumed, r.RollbackReason, r.Rewinds
}

// save writes to a record what restore takes.
func (p *progress) save(r *record) {
	r.Resumed, r.RollbackReason, r.Rewinds = p.resumed, p.reason, p.rewinds
	r.Curve = p.curve.Snapshot()
}

// speed is records per second over a sliding window.
type speed struct{ samples []sample }

type sample struct {
	at   time.Time
	done int64
}

const (
	speedWindow = 10 * time.Second
	speedGrain  = 200 * time.Millisecond
)

// add notes that done records are done now.
func (s *speed) add(now time.Time, done int64) {
	if n := len(s.samples); n > 0 && now.Sub(s.samples[n-1].at) < speedGrain {
		return
	}
	s.samples = append(s.samples, sample{now, done})
	// the window begins at the newest sample that is too old
	old := 0
	for old+1 < len(s.samples) && now.Sub(s.samples[old+1].at) >= speedWindow {
		old++
	}
	s.samples = s.samples[old:]
}

// rate is the records per second since the window began, 0 if nothing was done in it.
func (s *speed) rate(now time.Time, done int64) float64 {
	for _, first := range s.samples {
		if age := now.Sub(first.at); age > 0 && age <= speedWindow+time.Second {
			return float64(done-first.done) / age.Seconds()
		}
	}
	return 0
}

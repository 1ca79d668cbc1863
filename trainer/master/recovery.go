package master

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// recovery measures the time from a loss to the next progress. The zero value is that of a job that
// has lost nothing.
type recovery struct {
	// the first loss that is not recovered from; zero: none
	since time.Time
	// the losses are replaced, and progress counts from best on
	ready bool
	best  progressed
	// after the loss of a master: best is the progress that it has left, which is not known yet
	unknown bool
	// the last that was noted
	last progressed
	// servers that hold the model, and workers that train: their ends are losses
	holders map[pod.ID]bool
}

// progressed has the progress of the training.
type progressed struct {
	version, records int64
	// the training is in a world of workers, which has to be formed again after a loss
	world bool
	// a program that reports no progress has written something in this world
	worked bool
	// it is not known yet, as the master was lost
	unknown bool
}

// further reports whether p is further than q.
func (p progressed) further(q progressed) bool {
	return p.version > q.version || p.records > q.records || p.worked
}

// hear notes a loss, or that its consequences are over. The ends of pods that were ordered are not
// among its events.
func (r *recovery) hear(e Event, now time.Time) {
	switch e := e.(type) {
	case PodJoined:
		// in a ring the world decides
		if e.ID.Role == pod.PS || !r.last.world {
			r.hold(e.ID)
		}
		// with nothing to return to, nothing else is reported
		if e.ID.Role == pod.PS {
			r.ready, r.best = true, r.last
		}
	case PodEnded:
		if r.holders[e.ID] {
			delete(r.holders, e.ID)
			// workers of servers lose nothing for each other
			r.lose(now, e.ID.Role == pod.Worker && !r.last.world)
		}
	case ProgramFailed:
		r.lose(now, false)
	case MasterReplaced:
		if !e.Planned {
			r.lose(now, true)
			r.unknown = true
		}
	case WorldFormed:
		r.holders = nil
		for _, worker := range e.World.Members {
			r.hold(pod.ID{Role: pod.Worker, Index: worker.Worker})
		}
		r.ready, r.best = true, r.last
	case RolledBack, TrainingRestarted, ProgramResumed:
		r.ready, r.best = true, r.last
	case Suspended, QuotaReturned, Ended, TrainingFinished:
		*r = recovery{last: r.last}
	}
}

// hold notes that the end of a pod would be a loss.
func (r *recovery) hold(id pod.ID) {
	if r.holders == nil {
		r.holders = make(map[pod.ID]bool)
	}
	r.holders[id] = true
}

// lose notes a loss; ready: the training can continue without what was lost.
func (r *recovery) lose(now time.Time, ready bool) {
	if r.since.IsZero() {
		r.since = now
	}
	r.ready, r.best = ready, r.last
}

// progress notes the progress of the training, and returns the time since the loss if it is the
// first progress after it.
func (r *recovery) progress(p progressed, now time.Time) (time.Duration, bool) {
	if p.unknown {
		return 0, false
	}
	r.last = p
	if r.unknown {
		r.unknown, r.best = false, p
	}
	if r.since.IsZero() || !r.ready {
		return 0, false
	}
	// after a rollback both are lower
	r.best.version, r.best.records = min(r.best.version, p.version), min(r.best.records, p.records)
	if !p.further(r.best) {
		return 0, false
	}
	took := now.Sub(r.since)
	r.since, r.ready = time.Time{}, false
	return took, true
}

package trainer_test

import (
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/master"
)

// watch holds the observations of a job. The simulation's mutex guards it.
type watch struct {
	// first leases of training tasks, in order, since the training began (again)
	leased []task.Task
	// those of before the job was stopped, unless it has begun with a checkpoint since
	before []task.Task
	// the most tasks that were leased before the training started over
	furthest []task.Task
	// finished since then
	epochs int
	// how often it started over
	highestGeneration int
	// the last that was reported
	modelGeneration int64
	// a server ended since then
	cause bool
	// until then no pod may be heard by the master
	offUntil time.Time
	// when a server has ended last
	endedAt time.Time
	// servers of which no incarnation has joined since one ended
	absent map[pod.ID]bool
	// it returned to a checkpoint, and no epoch has ended since
	back bool
	// when the last master came back
	returned time.Time
	// another master has come back, and no epoch has ended since
	follows bool
	// restarts of servers in place that may have yet to be noticed: the process joins late
	again int
	// how often something went wrong
	struck int
	// the job is over
	ending bool
	// creations
	tries map[pod.ID]int
	wrong []string
}

// serverReturn is more than a server takes to be replaced and to join.
const serverReturn = 10 * time.Second

// complain says what was wrong. The mutex is held.
func (w *watch) complain(format string, args ...any) {
	const most = 20
	if len(w.wrong) < most {
		w.wrong = append(w.wrong, time.Now().UTC().Format("15:04:05.000: ")+fmt.Sprintf(format, args...))
	}
}

// hear takes an event of the master's.
func (s *simulation) hear(e master.Event) {
	if s.program != nil {
		s.note(func() { s.program.hearEvent(e) })
		s.springs(e)
		return
	}
	s.note(func() {
		switch e := e.(type) {
		case master.Leased:
			s.noteLease(e.Lease.Task)
			// With what shows no progress for longer than the limit one may be replaced, and the
			// next one has more time.
			if e.Lease.Kind == task.Export && s.export > 0 || e.Lease.Kind == task.Evaluation && s.measure > 0 {
				s.hit[fmt.Sprint("worker-", e.Lease.Worker)] = true
			}
		case master.EpochFinished:
			s.epochs++
			switch {
			case s.back && e.Epoch == s.epochs-1:
				// the checkpoint had all of its records, and its end not
				s.epochs--
			case s.follows:
				// A master before, which may have continued unheard, has seen the end of the
				// others; or it could not write which have ended. The audit holds that the
				// journal has each once.
				s.epochs = e.Epoch
			}
			s.back, s.follows = false, false
			if e.Epoch != s.epochs || e.Records != s.training.total {
				s.complain("epoch %d finished with %d records, want epoch %d with %d", e.Epoch,
					e.Records, s.epochs, s.training.total)
			}
		case master.TrainingFinished:
			if s.follows {
				s.epochs = s.job.NumEpochs
			}
			if s.epochs != s.job.NumEpochs {
				s.complain("the training finished after %d epochs of %d", s.epochs, s.job.NumEpochs)
			}
		case master.MasterReplaced:
			s.back, s.follows, s.returned = true, true, time.Now()
			// a server may not have joined since it had ended; in a queue that may take long
			s.cause = s.cause || len(s.absent) > 0 || !s.endedAt.IsZero() && time.Since(s.endedAt) < serverReturn
		case master.PodJoined:
			delete(s.absent, e.ID)
		case master.PodEnded:
			if e.ID.Role == pod.PS {
				s.cause, s.endedAt = true, time.Now()
				if s.absent == nil {
					s.absent = make(map[pod.ID]bool)
				}
				s.absent[e.ID] = true
			}
		case master.TrainingRestarted:
			s.noteModelGeneration(e.ModelGeneration, e.Reason)
			if len(s.leased) > len(s.furthest) {
				s.furthest = s.leased
			}
			s.leased, s.epochs = nil, 0
		case master.Resumed:
			// also with a checkpoint of a master that was not heard any more
			s.leased, s.before = append(s.before, s.leased...), nil
		case master.RolledBack:
			// what was leased first since then is not leased for the first time again
			s.noteModelGeneration(e.ModelGeneration, e.Reason)
			// the checkpoint may be of before the training had started over: it could not be read
			if len(s.furthest) > len(s.leased) {
				s.leased = s.furthest
			}
			s.epochs, s.back = int(e.Kept/s.training.total), true
		case master.Ended:
			s.ending = true
		}
		if s.ring != nil {
			s.ring.hear(e)
		}
		s.shelve(e)
	})
	s.springs(e)
}

// noteModelGeneration notes that a model generation begins. The mutex is held.
func (s *simulation) noteModelGeneration(modelGeneration int64, reason string) {
	s.highestGeneration++
	if modelGeneration <= s.modelGeneration {
		s.complain("generation %d begins after %d", modelGeneration, s.modelGeneration)
	}
	s.modelGeneration = modelGeneration
	switch {
	case s.damaged:
	case s.again > 0 && !s.cause:
		s.again--
	case s.ring == nil && !s.cause:
		s.complain("the training returns (%s), and no server had ended", reason)
	}
	s.cause = false
}

func (s *simulation) noteLease(leased task.Task) {
	for _, t := range s.leased {
		if t.Epoch == leased.Epoch && t.Shard == leased.Shard && t.Start == leased.Start {
			return
		}
	}
	leased.Slow = 0 // of a generation before
	if leased.Kind == task.Training {
		s.leased = append(s.leased, leased)
	}
}

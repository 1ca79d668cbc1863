package trainer_test

import (
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/master"
)

// moment is one that an ambush waits for.
type moment string

const (
	generation  moment = "a generation"
	update      moment = "a step"
	leased      moment = "a lease"
	lastLeases  moment = "a lease at an epoch's end"
	evaluates   moment = "a lease of an evaluation"
	exports     moment = "the lease of the export"
	epochEnd    moment = "an epoch's end"
	trainingEnd moment = "the training's end"
)

// trap waits for a moment. It hears of it with the pod whose it is.
type trap struct {
	at   moment
	snap func(pod string)
}

// ambush has something done at the next such moment, or a little later. It is reported when it
// happens.
func (s *simulation) ambush(at moment, draw func() (do func(pod string) string)) string {
	do := draw()
	var delay time.Duration
	if s.random.IntN(2) == 0 {
		delay = s.between(time.Millisecond, 50*time.Millisecond)
	}
	act := func(pod string) {
		s.note(func() { s.struck++ })
		if what := do(pod); what != "" {
			s.say(fmt.Sprintf("%s, %v after %s of %s", what, delay, at, pod))
		}
	}
	s.note(func() {
		s.trap = &trap{at, func(pod string) {
			if delay == 0 {
				act(pod)
			} else {
				time.AfterFunc(delay, func() { act(pod) })
			}
		}}
	})
	return ""
}

// spring springs the trap that waits for this moment.
func (s *simulation) spring(at moment, pod string) {
	var sprung *trap
	s.note(func() {
		if s.trap != nil && s.trap.at == at && !s.ending {
			sprung, s.trap = s.trap, nil
		}
	})
	if sprung != nil {
		sprung.snap(pod)
	}
}

// springs springs the trap that waits for an event of the master's.
func (s *simulation) springs(e master.Event) {
	switch e := e.(type) {
	case master.WorldFormed:
		if len(e.World.Sources) > 0 {
			var newest func(string)
			s.note(func() { newest, s.newest = s.newest, nil })
			if newest != nil {
				newest(e.World.Members[e.World.Sources[0]].String())
			}
		}
		s.spring(generation, "the master")
	case master.Leased:
		at := map[task.Kind]moment{task.Training: leased, task.Evaluation: evaluates,
			task.Export: exports}[e.Lease.Kind]
		s.spring(at, pod.ID{Role: pod.Worker, Index: e.Lease.Worker}.String())
		if s.allLeased(e.Lease.Task) {
			s.spring(lastLeases, "the job")
		}
	case master.EpochFinished:
		s.spring(epochEnd, "the job")
	case master.TrainingFinished:
		s.spring(trainingEnd, "the job")
	}
}

// allLeased reports whether no record of a training task's epoch waits for its first lease.
func (s *simulation) allLeased(t task.Task) bool {
	var leased int64
	s.note(func() {
		for _, before := range s.leased {
			if before.Epoch == t.Epoch {
				leased += before.Records()
			}
		}
	})
	return t.Kind == task.Training && leased == s.training.total
}

// The action of an ambush is drawn when it is laid.

func (s *simulation) killThat() func(string) string {
	return func(pod string) string {
		return said(s.killNamed(pod), "kill %s", pod)
	}
}

// anyone is a pod that is there when it is called: rarely a server, as each one's end costs the
// whole training.
func (s *simulation) anyone() func() (id pod.ID, ok bool) {
	i, role := s.random.IntN(1<<20), pod.Worker
	if s.hasServers() && s.random.IntN(4) == 0 {
		role = pod.PS
	}
	return func() (id pod.ID, ok bool) {
		ids := s.pods.of(role)
		if len(ids) == 0 {
			return id, false
		}
		return ids[i%len(ids)], true
	}
}

func (s *simulation) killAny() func(string) string {
	pick := s.anyone()
	return func(string) string {
		id, ok := pick()
		return said(ok && s.pods.kill(id, killed), "kill %v", id)
	}
}

func (s *simulation) hauntAny() func(string) string {
	pick, d := s.anyone(), s.any(time.Second, time.Minute)
	return func(string) string {
		id, ok := pick()
		s.strike(id.String())
		return said(ok && s.pods.haunt(id, d), "%v is reported deleted, and runs on for %v", id, d)
	}
}

// killNewest kills two: that has others in different rounds at times, and the one that has the
// newest state as it begins to pass it on.
func (s *simulation) killNewest() func(string) string {
	first := s.killAny()
	return func(pod string) string {
		s.note(func() {
			s.newest = func(source string) {
				if s.killNamed(source) {
					s.say(fmt.Sprintf("kill %s, which has the newest state", source))
				}
			}
		})
		return first(pod)
	}
}

// anyPair is two workers that are there when it is called, or one and the master.
func (s *simulation) anyPair() func() (a, b string, ok bool) {
	i, j := s.random.IntN(1<<20), s.random.IntN(1<<20)
	return func() (a, b string, ok bool) {
		ids := s.pods.of(pod.Worker)
		if len(ids) == 0 {
			return "", "", false
		}
		first, second := ids[i%len(ids)].String(), ids[j%len(ids)].String()
		if first == second {
			first = "master"
		}
		return first, second, true
	}
}

func (s *simulation) cutAny() func(string) string {
	pick := s.anyPair()
	return func(string) string {
		a, b, ok := pick()
		s.network.cut(a, b)
		return said(ok, "cut %s from %s", a, b)
	}
}

// partitionServer keeps the master's orders from a server.
func (s *simulation) partitionServer() func(string) string {
	i, d := s.random.IntN(1<<20), s.between(100*time.Millisecond, 4*time.Second)
	return func(string) string {
		ids := s.pods.of(pod.PS)
		if len(ids) == 0 {
			return ""
		}
		server := ids[i%len(ids)].String()
		s.strike(server)
		s.network.block(pair("master", server), d)
		return fmt.Sprintf("partition the master and %s for %v", server, d)
	}
}

func (s *simulation) partitionAny() func(string) string {
	pick := s.anyPair()
	d := s.between(100*time.Millisecond, 4*time.Second)
	return func(string) string {
		a, b, ok := pick()
		return said(ok, "%s", s.partition(a, b, d))
	}
}

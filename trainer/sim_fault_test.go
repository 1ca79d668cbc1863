package trainer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/pod"
)

// fault is something that goes wrong. It says what it did, or "" if there was nothing to do it to.
type fault struct {
	name string
	do   func(s *simulation) string
}

var faults = []fault{
	{"kill", func(s *simulation) string { return s.killWorker(pod.Exit{Code: 137, Signal: 9}) }},
	{"preempt", func(s *simulation) string { return s.killWorker(pod.Exit{Preempted: true, Code: 143}) }},
	{"kill a server", func(s *simulation) string {
		id, ok := s.pick(pod.PS)
		if !ok || s.random.IntN(3) > 0 {
			return ""
		}
		s.pods.kill(id, pod.Exit{Code: 137, Signal: 9})
		return fmt.Sprintf("kill %v", id)
	}},
	{"stop a while", func(s *simulation) string { return s.stop(pod.Worker, 500*time.Millisecond, 4*time.Second) }},
	{"stop for long", func(s *simulation) string { return s.stop(pod.Worker, 10*time.Second, 30*time.Second) }},
	{"stop a server", func(s *simulation) string { return s.stop(pod.PS, 100*time.Millisecond, 3*time.Second) }},
	{"slow", func(s *simulation) string {
		a, b, ok := s.pickPair()
		by, d := s.between(10*time.Millisecond, 300*time.Millisecond), s.between(time.Second, 5*time.Second)
		s.network.delay(a, b, by, d)
		return said(ok, "slow %s and %s by %v for %v", a, b, by, d)
	}},
	{"cut", func(s *simulation) string {
		a, b, ok := s.pickPair()
		s.network.cut(a, b)
		return said(ok, "cut %s from %s", a, b)
	}},
	{"cut a reply", func(s *simulation) string {
		a, b, ok := s.pickPair()
		s.linger(a, b)
		s.network.cut(a, b)
		return said(ok, "cut %s from %s in the middle of a call", a, b)
	}},
	{"kill in a push", func(s *simulation) string {
		w, hasWorker := s.pick(pod.Worker)
		p, hasServer := s.pick(pod.PS)
		s.linger(w.String(), p.String())
		ok := hasWorker && hasServer && s.pods.kill(w, pod.Exit{Code: 137, Signal: 9})
		return said(ok, "kill %v in the middle of a call of %v", w, p)
	}},
	{"partition", func(s *simulation) string {
		a, b, ok := s.pickPair()
		d := s.between(100*time.Millisecond, 4*time.Second)
		s.network.block(pair(a, b), d)
		return said(ok, "partition %s and %s for %v", a, b, d)
	}},
}

// ask has a worker leave, whether the cluster says so or the worker only.
var ask = fault{"ask to leave", func(s *simulation) string {
	id, ok := s.pick(pod.Worker)
	return said(ok && s.ask(id), "ask %v to leave", id)
}}

// askAll is a preemption of all.
var askAll = fault{"ask all to leave", func(s *simulation) string {
	asked := 0
	if s.random.IntN(4) > 0 {
		return ""
	}
	for _, id := range s.pods.of(pod.Worker) {
		if s.random.IntN(8) > 0 && s.ask(id) {
			asked++
		}
	}
	return said(asked > 0, "ask %d workers to leave", asked)
}}

func (s *simulation) ask(id pod.ID) bool {
	grace := 25 * time.Second
	if !s.gentle {
		grace = s.between(50*time.Millisecond, grace)
	}
	if s.ring != nil {
		s.strike(id.String())
	}
	return s.pods.ask(id, pod.Exit{Preempted: true}, grace, s.random.IntN(2) == 0)
}

// linger slows a pair, and returns when there is probably something on the way between them.
func (s *simulation) linger(a, b string) {
	s.network.delay(a, b, s.between(50*time.Millisecond, 400*time.Millisecond), 2*time.Second)
	time.Sleep(s.between(50*time.Millisecond, 1500*time.Millisecond))
}

func said(ok bool, format string, args ...any) string {
	if !ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// calm is when nothing goes wrong any more: some seeds are so bad that no record would ever be done.
const calm = 3 * time.Minute

// inject makes things go wrong until then, or until ctx is done.
func (s *simulation) inject(ctx context.Context) {
	start := time.Now()
	for len(s.faults) > 0 && time.Since(start) < calm {
		timer := time.NewTimer(s.between(s.pause/2, 2*s.pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		f := s.faults[s.random.IntN(len(s.faults))]
		if what := f.do(s); what != "" {
			s.note(func() {
				s.happened = append(s.happened, fmt.Sprintf("%8v %s", time.Since(start).Round(time.Millisecond), what))
			})
		}
	}
}

func (s *simulation) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)))
}

func (s *simulation) pick(r pod.Role) (pod.ID, bool) {
	ids := s.pods.of(r)
	if len(ids) == 0 {
		return pod.ID{}, false
	}
	return ids[s.random.IntN(len(ids))], true
}

// pickPair is two pods that talk to each other.
func (s *simulation) pickPair() (a, b string, ok bool) {
	w, hasWorker := s.pick(pod.Worker)
	p, hasServer := s.pick(pod.PS)
	switch s.random.IntN(3) {
	case 0:
		return "master", w.String(), hasWorker
	case 1:
		return "master", p.String(), hasServer
	}
	return w.String(), p.String(), hasWorker && hasServer
}

func (s *simulation) killWorker(exit pod.Exit) string {
	id, ok := s.pick(pod.Worker)
	if !ok || !s.pods.kill(id, exit) {
		return ""
	}
	return fmt.Sprintf("kill %v (%v)", id, exit)
}

func (s *simulation) stop(r pod.Role, least, most time.Duration) string {
	id, ok := s.pick(r)
	d := s.between(least, most)
	if !ok {
		return ""
	}
	s.network.block(id.String(), d)
	return fmt.Sprintf("stop %v for %v", id, d)
}

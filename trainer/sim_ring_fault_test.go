package trainer_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ringFaults are what goes wrong where workers talk to each other.
var ringFaults = []fault{
	{"kill", func(s *simulation) string { return s.killWorker(pod.Exit{Code: 137, Signal: 9}) }},
	{"preempt", func(s *simulation) string { return s.killWorker(pod.Exit{Preempted: true, Code: 143}) }},
	{"kill all", func(s *simulation) string {
		ids := s.pods.of(pod.Worker)
		if len(ids) == 0 || s.random.IntN(4) > 0 {
			return ""
		}
		for _, id := range ids {
			s.pods.kill(id, pod.Exit{Code: 137, Signal: 9})
		}
		return "kill all workers"
	}},
	{"stop a while", func(s *simulation) string {
		return s.stopMember(100*time.Millisecond, 2*s.job.HeartbeatTimeout.Duration)
	}},
	{"stop for long", func(s *simulation) string { return s.stopMember(10*time.Second, 30*time.Second) }},
	{"slow", func(s *simulation) string {
		a, b, ok := s.pickMembers()
		by, d := s.between(10*time.Millisecond, 300*time.Millisecond), s.between(time.Second, 5*time.Second)
		s.strike(a, b)
		s.network.delay(a, b, by, d)
		return said(ok, "slow %s and %s by %v for %v", a, b, by, d)
	}},
	{"cut", func(s *simulation) string {
		a, b, ok := s.pickMembers()
		s.network.cut(a, b)
		return said(ok, "cut %s from %s", a, b)
	}},
	{"cut a collective", func(s *simulation) string {
		a, b, ok := s.pickMembers()
		s.strike(a, b)
		s.linger(a, b)
		s.network.cut(a, b)
		return said(ok, "cut %s from %s, slow before", a, b)
	}},
	{"kill in a collective", func(s *simulation) string {
		a, b, ok := s.pickMembers()
		s.strike(a, b)
		s.linger(a, b)
		s.killNamed(b)
		return said(ok, "kill %s, slow before to %s", b, a)
	}},
	{"partition", func(s *simulation) string {
		a, b, ok := s.pickMembers()
		d := s.between(100*time.Millisecond, 4*time.Second)
		s.strike(a, b)
		s.network.block(pair(a, b), d)
		return said(ok, "partition %s and %s for %v", a, b, d)
	}},
	{"kill at a formation", func(s *simulation) string { return s.ambush("World ", s.killAny) }},
	{"cut at a formation", func(s *simulation) string { return s.ambush("World ", s.cutAny) }},
	{"partition at a formation", func(s *simulation) string { return s.ambush("World ", s.partitionAny) }},
	{"kill after a step", func(s *simulation) string { return s.ambush("Step applied", s.killThat) }},
	{"kill another after a step", func(s *simulation) string { return s.ambush("Step applied", s.killAny) }},
	{"kill the newest", func(s *simulation) string { return s.ambush("Step applied", s.killNewest) }},
	{"cut after a step", func(s *simulation) string { return s.ambush("Step applied", s.cutAny) }},
	{"kill at a report", func(s *simulation) string { return s.ambush("Epoch finished", s.killAny) }},
	{"kill at the end", func(s *simulation) string { return s.ambush("Training finished", s.killAny) }},
	{"garble", func(s *simulation) string {
		d := s.between(time.Second, 5*time.Second)
		s.note(func() { s.garbled = time.Now().Add(d) })
		return fmt.Sprintf("calls go wrong for %v", d)
	}},
	{"scale", func(s *simulation) string { return s.scale(s.least() + s.random.IntN(s.most()-s.least()+1)) }},
}

// grow is no fault.
var grow = fault{"grow", func(s *simulation) string {
	n := len(s.pods.of(pod.Worker)) + 1
	if n > s.most() {
		return ""
	}
	return s.scale(n)
}}

// least and most are how many workers the job may be given.
func (s *simulation) least() int { return max(1, s.job.MinWorkers) }
func (s *simulation) most() int  { return cmp.Or(s.job.MaxWorkers, 6) }

func (s *simulation) scale(workers int) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	reply, err := s.user.Scale(ctx, &wire.ScaleRequest{Workers: int32(workers)})
	return fmt.Sprintf("scale from %d to %d: %v", reply.GetBefore(), workers, err)
}

// strike notes that pods may be held for dead.
func (s *simulation) strike(names ...string) {
	s.note(func() {
		for _, name := range names {
			s.ring.hit[name] = true
		}
	})
}

func (s *simulation) stopMember(least, most time.Duration) string {
	id, ok := s.pick(pod.Worker)
	d := s.between(least, most)
	if !ok {
		return ""
	}
	s.strike(id.String())
	s.network.block(id.String(), d)
	return fmt.Sprintf("stop %v for %v", id, d)
}

// pickMembers is two pods of a ring that talk to each other. The second one is a worker.
func (s *simulation) pickMembers() (a, b string, ok bool) {
	ids := s.pods.of(pod.Worker)
	if len(ids) == 0 {
		return "", "", false
	}
	i, j := s.random.IntN(len(ids)), s.random.IntN(len(ids))
	if i == j || s.random.IntN(3) == 0 {
		return "master", ids[j].String(), true
	}
	return ids[i].String(), ids[j].String(), true
}

func (s *simulation) killNamed(name string) bool {
	for _, id := range s.pods.of(pod.Worker) {
		if id.String() == name {
			return s.pods.kill(id, pod.Exit{Code: 137, Signal: 9})
		}
	}
	return false
}

// trap waits for a line of the log with this text.
type trap struct {
	message string
	snap    func(pod, message string)
}

// ambush has something done at the next line of the log with this text, or a moment later. It is said when it happens.
func (s *simulation) ambush(message string, draw func() (do func(pod string) string)) string {
	do := draw()
	var delay time.Duration
	if s.random.IntN(2) == 0 {
		delay = s.between(time.Millisecond, 50*time.Millisecond)
	}
	act := func(pod string) {
		if what := do(pod); what != "" {
			s.say(fmt.Sprintf("%s, %v after %q of %s", what, delay, message, pod))
		}
	}
	s.note(func() {
		s.trap = &trap{message, func(pod, _ string) {
			if delay == 0 {
				act(pod)
			} else {
				time.AfterFunc(delay, func() { act(pod) })
			}
		}}
	})
	return ""
}

// say notes what happened in an ambush.
func (s *simulation) say(what string) {
	s.note(func() { s.happened = append(s.happened, fmt.Sprintf("%8s %s", "", what)) })
}

// spring springs the trap that waits for a line of the log with this text.
func (s *simulation) spring(pod, message string) {
	var sprung *trap
	s.note(func() {
		if s.trap != nil && !s.ending && strings.Contains(message, s.trap.message) {
			sprung, s.trap = s.trap, nil
		}
	})
	if sprung != nil {
		sprung.snap(pod, message)
	}
}

// What an ambush does is drawn when it is laid.

func (s *simulation) killThat() func(string) string {
	return func(pod string) string {
		return said(s.killNamed(pod), "kill %s", pod)
	}
}

func (s *simulation) killAny() func(string) string {
	i := s.random.IntN(1 << 20)
	return func(string) string {
		ids := s.pods.of(pod.Worker)
		if len(ids) == 0 {
			return ""
		}
		id := ids[i%len(ids)]
		return said(s.pods.kill(id, pod.Exit{Code: 137, Signal: 9}), "kill %v", id)
	}
}

// killNewest kills two: that has others in different rounds at times, and the one that has the newest state as it begins
// to pass it on.
func (s *simulation) killNewest() func(string) string {
	first := s.killAny()
	return func(pod string) string {
		s.note(func() {
			s.trap = &trap{"state of ", func(_, message string) {
				_, source, _ := strings.Cut(message, "state of ")
				source, _, _ = strings.Cut(source, " ")
				if s.killNamed(source) {
					s.say(fmt.Sprintf("kill %s, which has the newest state", source))
				}
			}}
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

func (s *simulation) partitionAny() func(string) string {
	pick := s.anyPair()
	d := s.between(100*time.Millisecond, 4*time.Second)
	return func(string) string {
		a, b, ok := pick()
		s.strike(a, b)
		s.network.block(pair(a, b), d)
		return said(ok, "partition %s and %s for %v", a, b, d)
	}
}

// garble says what goes wrong with a call.
func (s *simulation) garble() (g garbling) {
	s.note(func() {
		if s.garbles != nil && time.Now().Before(s.garbled) && s.garbles.IntN(4) == 0 {
			g = garbling(s.garbles.IntN(int(mute) + 1))
		}
	})
	return g
}

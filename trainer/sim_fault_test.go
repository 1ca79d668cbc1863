package trainer_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// fault is something that goes wrong. It says what it did, or "" if there was nothing to do it to.
type fault struct {
	name string
	// it goes wrong one time in that many; 0: each time
	rare  int
	where where
	do    func(s *simulation) string
}

// where is the jobs that a fault makes sense in.
type where int

const (
	both where = iota
	withServers
	inRing
	inProgram
)

// in reports whether the fault makes sense in such jobs. A program's workers meet as those of a
// ring.
func (f fault) in(of where) bool {
	return f.where == both || f.where == of || of == inProgram && f.where == inRing
}

var killed = pod.Exit{Code: 137, Signal: 9}

// faults holds the faults of a job: each seed draws some of them.
var faults = []fault{
	{name: "kill", do: func(s *simulation) string { return s.kill(pod.Worker, killed) }},
	{name: "preempt", do: func(s *simulation) string {
		return s.kill(pod.Worker, pod.Exit{Preempted: true, Code: 143})
	}},
	{name: "crash", rare: 4, do: (*simulation).crash},
	{name: "kill a server", rare: 6, where: withServers, do: func(s *simulation) string {
		return s.kill(pod.PS, killed)
	}},
	{name: "restart in place", rare: 2, do: func(s *simulation) string { return s.restart(pod.Worker) }},
	{name: "restart a server in place", rare: 8, where: withServers, do: func(s *simulation) string {
		return s.restart(pod.PS)
	}},
	{name: "lose a node", rare: 8, do: (*simulation).loseNode},
	{name: "kill all", rare: 16, do: func(s *simulation) string {
		ids := s.pods.all()
		for _, id := range ids {
			s.pods.kill(id, killed)
		}
		return said(len(ids) > 0, "kill everything but the master")
	}},
	{name: "haunt", rare: 4, do: func(s *simulation) string { return s.haunt(pod.Worker) }},
	{name: "haunt a server", rare: 12, where: withServers, do: func(s *simulation) string { return s.haunt(pod.PS) }},
	{name: "stop", do: func(s *simulation) string { return s.stop(pod.Worker, 100*time.Millisecond, 4*time.Second) }},
	{name: "stop for any time", rare: 3, do: func(s *simulation) string {
		return s.stop(pod.Worker, 100*time.Millisecond, 2*time.Minute)
	}},
	{name: "stop a server", where: withServers, do: func(s *simulation) string {
		return s.stop(pod.PS, 100*time.Millisecond, 3*time.Second)
	}},
	{name: "stop a server for any time", rare: 8, where: withServers, do: func(s *simulation) string {
		return s.stop(pod.PS, 100*time.Millisecond, 2*time.Minute)
	}},
	{name: "cut the master off", rare: 16, do: func(s *simulation) string {
		d := s.any(100*time.Millisecond, 2*time.Minute)
		for _, id := range s.pods.all() {
			s.strike(id.String())
		}
		s.network.block("master", d)
		s.note(func() { s.offUntil = time.Now().Add(d + s.job.HeartbeatTimeout.Duration) })
		return fmt.Sprintf("cut the master off for %v", d)
	}},
	{name: "slow", do: func(s *simulation) string {
		a, b, ok := s.pickPair()
		by, d := s.between(10*time.Millisecond, 300*time.Millisecond), s.between(time.Second, 5*time.Second)
		s.strike(a, b)
		s.network.delay(a, b, by, d)
		return said(ok, "slow %s and %s by %v for %v", a, b, by, d)
	}},
	{name: "cut", do: func(s *simulation) string {
		a, b, ok := s.pickPair()
		s.network.cut(a, b)
		return said(ok, "cut %s from %s", a, b)
	}},
	{name: "cut a call", do: func(s *simulation) string {
		a, b, ok := s.pickPair()
		s.strike(a, b)
		s.linger(a, b)
		s.network.cut(a, b)
		return said(ok, "cut %s from %s in the middle of a call", a, b)
	}},
	{name: "kill in a call", do: func(s *simulation) string {
		a, b, ok := s.pickPair()
		s.strike(a, b)
		s.linger(a, b)
		return said(ok && s.killNamed(b), "kill %s in the middle of a call with %s", b, a)
	}},
	{name: "partition", do: func(s *simulation) string {
		a, b, ok := s.pickPair()
		most := 4 * time.Second
		if !s.hasServers() {
			// so that many are noticed, and some are over before
			most += 2 * s.job.HeartbeatTimeout.Duration
		}
		return said(ok, "%s", s.partition(a, b, s.between(100*time.Millisecond, most)))
	}},
	{name: "partition for any time", rare: 6, do: func(s *simulation) string {
		a, b, ok := s.pickPair()
		return said(ok, "%s", s.partition(a, b, s.any(100*time.Millisecond, 2*time.Minute)))
	}},
	{name: "garble", do: func(s *simulation) string {
		d := s.between(time.Second, 5*time.Second)
		s.note(func() { s.garbled = time.Now().Add(d) })
		return fmt.Sprintf("calls go wrong for %v", d)
	}},
	{name: "full", rare: 4, do: func(s *simulation) string {
		d := s.any(time.Second, time.Minute)
		s.note(func() { s.full = time.Now().Add(d) })
		return fmt.Sprintf("the cluster is full for %v", d)
	}},
	{name: "scale", rare: 2, do: func(s *simulation) string {
		return s.scale(s.least() + s.random.IntN(s.most()-s.least()+1))
	}},
}

// ambushes are faults that wait for their moment.
var ambushes = []fault{
	{name: "kill as a world forms", where: inRing, do: func(s *simulation) string {
		return s.ambush(generation, s.killAny)
	}},
	{name: "cut as a world forms", where: inRing, do: func(s *simulation) string {
		return s.ambush(generation, s.cutAny)
	}},
	{name: "partition as a world forms", where: inRing, do: func(s *simulation) string {
		return s.ambush(generation, s.partitionAny)
	}},
	{name: "kill after a step", where: inRing, do: func(s *simulation) string { return s.ambush(update, s.killThat) }},
	{name: "kill another after a step", where: inRing, do: func(s *simulation) string {
		return s.ambush(update, s.killAny)
	}},
	{name: "kill the newest", where: inRing, do: func(s *simulation) string { return s.ambush(update, s.killNewest) }},
	{name: "cut after a step", where: inRing, do: func(s *simulation) string { return s.ambush(update, s.cutAny) }},
	{name: "kill at a lease", do: func(s *simulation) string { return s.ambush(leased, s.killThat) }},
	{name: "kill at an evaluation", rare: 2, do: func(s *simulation) string { return s.ambush(evaluates, s.killAny) }},
	{name: "kill at an epoch's end", rare: 2, do: func(s *simulation) string { return s.ambush(epochEnd, s.killAny) }},
	{name: "partition at an epoch's end", where: withServers, do: func(s *simulation) string {
		return s.ambush(lastLeases, s.partitionServer)
	}},
	{name: "kill at the end", do: func(s *simulation) string { return s.ambush(trainingEnd, s.killAny) }},
	{name: "kill at the export", do: func(s *simulation) string { return s.ambush(exports, s.killAny) }},
	{name: "haunt at the end", rare: 2, do: func(s *simulation) string { return s.ambush(trainingEnd, s.hauntAny) }},
}

// ask has a worker leave, whether the cluster reports it or the worker only.
var ask = fault{name: "ask to leave", do: func(s *simulation) string {
	id, ok := s.pick(pod.Worker)
	return said(ok && s.ask(id, s.drawNotice()), "ask %v to leave", id)
}}

// askAll is a preemption of all.
var askAll = fault{name: "ask all to leave", rare: 4, do: func(s *simulation) string {
	asked := 0
	for _, id := range s.pods.of(pod.Worker) {
		if s.random.IntN(8) > 0 && s.ask(id, s.drawNotice()) {
			asked++
		}
	}
	return said(asked > 0, "ask %d workers to leave", asked)
}}

// grow is no fault.
var grow = fault{name: "grow", do: func(s *simulation) string {
	n := len(s.pods.of(pod.Worker)) + 1
	if n > s.most() {
		return ""
	}
	return s.scale(n)
}}

// leaveNotice holds how a pod is asked to leave.
type leaveNotice struct {
	grace time.Duration
	// the master hears of it from the cluster, too
	announced bool
}

// drawNotice draws a notice. Only the goroutine that injects faults draws.
func (s *simulation) drawNotice() leaveNotice {
	grace := 25 * time.Second
	if !s.gentle {
		grace = s.between(50*time.Millisecond, grace)
	}
	return leaveNotice{grace, s.random.IntN(2) == 0}
}

func (s *simulation) ask(id pod.ID, n leaveNotice) bool {
	s.strike(id.String())
	return s.pods.ask(id, pod.Exit{Preempted: true}, n.grace, n.announced)
}

// crashes limits the pods of a job that end by their own fault: more would end a job that is right
// to end then.
const crashes = 2

func (s *simulation) crash() string {
	role := pod.Worker
	if s.random.IntN(4) == 0 {
		role = pod.PS
	}
	if s.crashed >= crashes {
		return ""
	}
	what := s.kill(role, pod.Exit{Code: 1, Reason: "out of luck"})
	if what != "" {
		s.crashed++
	}
	return what
}

// loseNode kills several pods at once: a server and a worker, if there are servers.
func (s *simulation) loseNode() string {
	var on []pod.ID
	for _, role := range []pod.Role{pod.PS, pod.Worker, pod.Worker} {
		if id, ok := s.pick(role); ok && s.pods.kill(id, pod.Exit{NodeLost: true}) {
			on = append(on, id)
		}
	}
	return said(len(on) > 0, "lose a node with %v", on)
}

// restart ends a process and starts another in its pod.
func (s *simulation) restart(role pod.Role) string {
	id, ok := s.pick(role)
	d := s.any(10*time.Millisecond, 20*time.Second)
	s.strike(id.String())
	s.note(func() {
		if s.ring != nil {
			s.ring.lose(id)
		}
	})
	ok = ok && s.pods.restart(id, d)
	s.note(func() {
		if ok && role == pod.PS {
			s.again++
		}
	})
	return said(ok, "restart %v in place after %v", id, d)
}

func (s *simulation) haunt(role pod.Role) string {
	id, ok := s.pick(role)
	d := s.any(time.Second, time.Minute)
	s.strike(id.String())
	return said(ok && s.pods.haunt(id, d), "%v is reported deleted, and runs on for %v", id, d)
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

// calm is the time from which nothing goes wrong any more: some seeds are so bad that no record
// would ever be done.
const calm = 2 * time.Minute

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
		if f.rare > 0 && s.random.IntN(f.rare) > 0 {
			continue
		}
		s.note(func() { s.struck++ })
		if what := f.do(s); what != "" {
			s.say(what)
		}
	}
}

// say notes what happened.
func (s *simulation) say(what string) {
	s.note(func() {
		s.happened = append(s.happened, fmt.Sprintf("%8v %s", time.Since(s.began).Round(time.Millisecond), what))
	})
}

func (s *simulation) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)))
}

// any is a duration of any order of magnitude.
func (s *simulation) any(least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least),
		s.random.Float64())).Round(time.Millisecond)
}

func (s *simulation) pick(r pod.Role) (pod.ID, bool) {
	ids := s.pods.of(r)
	if len(ids) == 0 {
		return pod.ID{}, false
	}
	return ids[s.random.IntN(len(ids))], true
}

// pickPair is two pods that talk to each other. The second one is not the master.
func (s *simulation) pickPair() (a, b string, ok bool) {
	w, hasWorker := s.pick(pod.Worker)
	p, hasServer := s.pick(pod.PS)
	if !s.hasServers() {
		p, hasServer = s.pick(pod.Worker)
	}
	kind := s.random.IntN(3)
	switch {
	case kind == 0 && s.hasServers():
		return "master", p.String(), hasServer
	case kind < 2 || p == w:
		return "master", w.String(), hasWorker
	case s.random.IntN(4) == 0 && s.hasServers():
		return w.String(), p.String(), hasWorker && hasServer
	}
	return p.String(), w.String(), hasWorker && hasServer
}

func (s *simulation) kill(role pod.Role, exit pod.Exit) string {
	id, ok := s.pick(role)
	return said(ok && s.pods.kill(id, exit), "kill %v (%v)", id, exit)
}

func (s *simulation) killNamed(name string) bool {
	for _, id := range s.pods.all() {
		if id.String() == name {
			return s.pods.kill(id, killed)
		}
	}
	return false
}

func (s *simulation) stop(r pod.Role, least, most time.Duration) string {
	id, ok := s.pick(r)
	d := s.any(least, most)
	if !ok {
		return ""
	}
	s.strike(id.String())
	if s.network.block(id.String(), d) && s.ring != nil {
		s.ring.mute(id.String(), d)
	}
	return fmt.Sprintf("stop %v for %v", id, d)
}

// partition keeps two pods from each other for a while, and looks whether that is noticed.
func (s *simulation) partition(a, b string, d time.Duration) string {
	s.strike(a, b)
	switch begun := s.network.block(pair(a, b), d); {
	case !begun || s.ring == nil:
	case a == "master":
		s.ring.mute(b, d)
	default:
		s.ring.part(a, b, d)
	}
	return fmt.Sprintf("partition %s and %s for %v", a, b, d)
}

// strike notes that pods may be held for dead.
func (s *simulation) strike(names ...string) {
	s.note(func() {
		for _, name := range names {
			s.hit[name] = true
		}
	})
}

// least and most limit the number of workers.
func (s *simulation) least() int { return max(1, s.job.MinWorkers) }
func (s *simulation) most() int  { return cmp.Or(s.job.MaxWorkers, 6) }

func (s *simulation) scale(workers int) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	reply, err := s.user.Scale(ctx, &wire.ScaleRequest{Workers: int32(workers)})
	return fmt.Sprintf("scale from %d to %d: %v", reply.GetBefore(), workers, err)
}

package trainer_test

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"syscall"
	"time"
)

func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// Moments of a program.
const (
	arrives moment = "an arrival"
	enters  moment = "a process's entry into a world"
	saving  moment = "a save"
	// a process hears it
	exhausted moment = "the end of the records"
	// of an unmodified script
	lastSteps moment = "the last third of the steps"
)

// disturbances holds the faults of the processes of a program.
var disturbances = []fault{
	{name: "kill a process", do: func(s *simulation) string { return s.signal(syscall.SIGKILL) }},
	{name: "terminate a process", rare: 3, do: func(s *simulation) string { return s.signal(syscall.SIGTERM) }},
	{name: "fail a process", rare: 6, do: func(s *simulation) string {
		p := s.anyProcess()
		return said(p != nil && s.fails(p, 1), "%v ends with 1", p)
	}},
	{name: "crash a process", rare: 6, do: func(s *simulation) string {
		p := s.anyProcess()
		return said(p != nil && s.fails(p, 0), "%v crashes by SIGSEGV", p)
	}},
	{name: "freeze a process", rare: 2, do: func(s *simulation) string {
		p, d := s.anyProcess(), s.any(50*time.Millisecond, 20*time.Second)
		return said(p != nil && p.freeze(d), "%v is stopped by a signal for %v", p, d)
	}},
	{name: "kill a fork server", rare: 3, do: (*simulation).killForkServer},
	{name: "kill a process as it arrives", do: func(s *simulation) string {
		return s.ambush(arrives, s.killThatProcess)
	}},
	{name: "kill a process as it enters a world", do: func(s *simulation) string {
		return s.ambush(enters, s.killThatProcess)
	}},
	{name: "kill a process after a step", do: func(s *simulation) string { return s.ambush(update, s.killAnyProcess) }},
	{name: "kill a process in a save", do: func(s *simulation) string { return s.ambush(saving, s.killAnyProcess) }},
	{name: "kill another than the one that saves", do: func(s *simulation) string {
		return s.ambush(saving, s.killOtherProcess)
	}},
	{name: "kill a process without a master", rare: 3, do: (*simulation).killWithoutMaster},
	{name: "kill a process, and another in the next save", rare: 2, do: func(s *simulation) string {
		first, second := s.killAnyProcess(), s.killOtherProcess()
		what := first("")
		if what != "" {
			s.then(saving, second)
		}
		return what
	}},
	{name: "kill a process of each worker", rare: 3, do: (*simulation).killOneOfEach},
	{name: "kill a process as a world forms", do: func(s *simulation) string {
		return s.ambush(generation, s.killAnyProcess)
	}},
	{name: "kill a process at the end", do: func(s *simulation) string {
		return s.ambush(trainingEnd, s.killAnyProcess)
	}},
	{name: "kill a process that has completed the training", do: func(s *simulation) string {
		return s.ambush(trainingEnd, s.killTrained)
	}},
	{name: "kill a process at the end of the records", rare: 2, do: func(s *simulation) string {
		return s.ambush(exhausted, s.killTwice)
	}},
	{name: "ask to leave at the end", rare: 2, do: func(s *simulation) string {
		return s.ambush(trainingEnd, s.askAnyone)
	}},
	{name: "ask to leave in a save", rare: 2, do: func(s *simulation) string { return s.ambush(saving, s.askAnyone) }},
	{name: "grow at the end", rare: 2, do: func(s *simulation) string { return s.ambush(trainingEnd, s.growing) }},
	{name: "grow before the end", do: func(s *simulation) string { return s.ambush(lastSteps, s.growing) }},
	{name: "grow in a save", do: func(s *simulation) string { return s.ambush(saving, s.growing) }},
}

// anyProcess returns a process that runs, nil if there is none.
func (s *simulation) anyProcess() (p *fakeProcess) {
	s.note(func() {
		if all := s.program.living; len(all) > 0 {
			p = all[s.random.IntN(len(all))]
		}
	})
	return p
}

// signal sends a process a signal that ends it. A script that handles SIGTERM gets none: it would
// end as if by its own fault.
func (s *simulation) signal(signal syscall.Signal) string {
	p := s.anyProcess()
	if signal == syscall.SIGTERM && s.program.plain.saves {
		return ""
	}
	return said(p != nil && p.signal(signal), "%v gets %v", p, signal)
}

// fails ends a process by its own fault. Code 0: by a signal.
func (s *simulation) fails(p *fakeProcess, code int) (ok bool) {
	if s.crashed >= crashes {
		return false
	}
	s.crashed++
	s.note(func() { s.program.failures++ })
	if code == 0 {
		return p.finish(0, syscall.SIGSEGV)
	}
	return p.finish(code, 0)
}

func (s *simulation) killForkServer() string {
	p := s.anyProcess()
	if p == nil {
		return ""
	}
	p.importTorch()
	return fmt.Sprintf("the fork server of %s is killed", p.host.name)
}

// killThatProcess kills a process of the pod whose moment it is.
func (s *simulation) killThatProcess() func(string) string {
	i := s.random.IntN(1 << 20)
	return func(pod string) string {
		return s.killOneOf(i, func(p *fakeProcess) bool { return p.host.name == pod })
	}
}

func (s *simulation) killAnyProcess() func(string) string {
	i := s.random.IntN(1 << 20)
	return func(string) string { return s.killOneOf(i, func(*fakeProcess) bool { return true }) }
}

// killOtherProcess kills a process of another worker than that whose moment it is, if there is one.
func (s *simulation) killOtherProcess() func(string) string {
	i := s.random.IntN(1 << 20)
	return func(pod string) string {
		return s.killOneOf(i, func(p *fakeProcess) bool { return p.host.name != pod })
	}
}

// killTrained kills a process that has completed the training, in what it does after that.
func (s *simulation) killTrained() func(string) string {
	i, after := s.random.IntN(1<<20), s.between(time.Millisecond, 2*time.Second)
	return func(string) string {
		time.AfterFunc(after, func() {
			if what := s.killOneOf(i, func(p *fakeProcess) bool { return p.trained }); what != "" {
				s.say(what + " after the training")
			}
		})
		return fmt.Sprintf("the training ends, and in %v a process", after)
	}
}

// killOneOf kills a process for which is reports true. It is called with the mutex held.
func (s *simulation) killOneOf(i int, is func(*fakeProcess) bool) string {
	var some []*fakeProcess
	s.note(func() {
		for _, p := range s.program.living {
			if is(p) {
				some = append(some, p)
			}
		}
	})
	if len(some) == 0 {
		return ""
	}
	p := some[i%len(some)]
	return said(p.kill(), "%v gets killed", p)
}

// killOneOfEach kills a process of each worker at once: none has all its processes when it meets
// the others again.
func (s *simulation) killOneOfEach() string {
	chosen := make(map[string]*fakeProcess)
	s.note(func() {
		for _, p := range s.program.living {
			if chosen[p.host.name] == nil || s.random.IntN(2) == 0 {
				chosen[p.host.name] = p
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		chosen[name].kill()
	}
	return said(len(chosen) > 1, "a process of each worker gets killed")
}

// killWithoutMaster kills the master, and a process while there is none.
func (s *simulation) killWithoutMaster() string {
	kill, later := s.killAnyProcess(), s.between(time.Millisecond, 5*time.Second)
	if !s.dethrone(true, later+s.between(time.Second, time.Minute)) {
		return ""
	}
	time.AfterFunc(later, func() {
		if what := kill(""); what != "" {
			s.say(what + " without a master")
		}
	})
	return "kill the master"
}

// killTwice kills a process, and another one after the training. The first starts again meanwhile.
func (s *simulation) killTwice() func(string) string {
	first, second := s.killAnyProcess(), s.killAnyProcess()
	return func(pod string) string {
		s.then(trainingEnd, second)
		return first(pod)
	}
}

// loseMasterThen asks a worker to leave. All are recalled, and the master is killed when they have
// completed the training instead.
func (s *simulation) loseMasterThen() func(string) string {
	pick, kill := s.anyone(), s.killMasterFor(stopGrace/3)
	return func(string) string {
		id, ok := pick()
		s.note(func() { s.program.asked = true })
		s.then(trainingEnd, kill)
		return said(ok && s.ask(id, leaveNotice{grace: stopGrace}), "ask %v to leave", id)
	}
}

// then has something done at a later moment.
func (s *simulation) then(at moment, do func(pod string) string) {
	s.note(func() {
		s.trap = &trap{at, func(pod string) {
			if what := do(pod); what != "" {
				s.say(fmt.Sprintf("%s, after %s of %s", what, at, pod))
			}
		}}
	})
}

// drawSteady draws that nothing is lost but masters.
func (w *programWatch) drawSteady() {
	s := w.simulation
	w.steady, w.quits, s.stopped, s.refuse, s.delay, s.grace = true, 0, 0, 0, 0, stopGrace
	w.saveTime = min(w.saveTime, time.Second)
	s.faults = []fault{grow,
		{name: "kill the master", rare: 3, do: func(s *simulation) string {
			most := time.Minute
			if s.isAsked() {
				most = stopGrace / 3
			}
			return s.killMasterFor(most)("")
		}},
		{name: "kill the master at the end", do: func(s *simulation) string {
			return s.ambush(trainingEnd, s.killMaster)
		}},
		{name: "ask to leave at the end of the records", do: func(s *simulation) string {
			return s.ambush(exhausted, s.loseMasterThen)
		}},
	}
}

// stopGrace is the time that workers have to leave in jobs in which nobody is lost.
const stopGrace = 25 * time.Second

// quit reports whether a process is the one that ends with 0 before it uses the package. Without
// others the job would be over.
func (w *programWatch) quit(p *fakeProcess) (quits bool) {
	w.note(func() {
		if w.quits > 0 && p.position.Generation > 0 && p.position.WorldSize > 1 {
			w.quits--
			quits = w.quits == 0
		}
	})
	return quits
}

func (s *simulation) askAnyone() func(string) string {
	pick, how := s.anyone(), s.drawNotice()
	return func(string) string {
		id, ok := pick()
		return said(ok && s.ask(id, how), "ask %v to leave", id)
	}
}

func (s *simulation) growing() func(string) string {
	least := (s.least() + s.most() + 1) / 2
	n := least + s.random.IntN(s.most()-least+1)
	return func(string) string {
		go func() { // the master may be waiting
			s.say(s.scale(n))
		}()
		return fmt.Sprintf("scale to %d", n)
	}
}

// isAsked reports whether a worker of a job in which nobody is lost was asked to leave: no master
// may be away for longer than its grace period.
func (s *simulation) isAsked() (asked bool) {
	s.note(func() { asked = s.program.asked })
	return asked
}

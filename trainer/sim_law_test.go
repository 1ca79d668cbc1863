package trainer_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// laws holds the observations of agents and of the rendezvous that need more than one moment. The
// simulation's mutex guards it.
type laws struct {
	// nothing goes wrong but what happens to processes and to masters, and workers that leave
	quiet bool
	// nothing is lost but masters
	steady bool
	// a worker of such a job was asked to leave, and has its grace period
	asked bool
	// agents that run, in the order of their starts
	machines []*machine
	// the newest world
	world rendezvous.World
	// processes of these generations have ended, or have come back
	left map[int64]bool
	// worlds up to this generation may have lost a member that had not come to them
	lacks int64
	// so may the next one, whatever its generation
	lacksNext bool
	// newest generation in which a process has completed the training
	trainedIn int64
}

// attendance holds the observations of the reports of one agent, and of its absent processes. The
// simulation's mutex guards it.
type attendance struct {
	// generation of its last arrival, and how many generations it has arrived from
	from     int64
	arrivals int
	// failures that it has yet to report, in the order of their time
	failed []failing
	// processes that do not run, by local rank
	absent map[int]*absence
}

// failing is a process that has failed on its own.
type failing struct {
	pid int
	// of its agent until then
	arrivals int
}

// absence is a process that takes no part in the rounds of the others.
type absence struct {
	since  time.Time
	rounds int
}

// Limits for the rounds of others, and for their time, before a process counts as forgotten.
const (
	forgottenRounds = 20
	forgottenAfter  = 10 * time.Second
)

func (a *absence) isForgotten() bool {
	a.rounds++
	return a.rounds > forgottenRounds && time.Since(a.since) > forgottenAfter
}

// hearWorld takes a new world. The mutex is held.
func (w *programWatch) hearWorld(world rendezvous.World) {
	w.world = world
	if w.lacksNext {
		w.lacks, w.lacksNext = world.Generation, false
	}
	if w.steady && w.packaged && w.trainedIn > 0 {
		w.complain("world %d is formed, and the training was completed in world %d, and nobody was lost",
			world.Generation, w.trainedIn)
	}
}

// noteAsked notes that the agent asks a process to end. One that has come to no world yet will not
// come to the newest one, which the others leave at once. The mutex is held.
func (w *programWatch) noteAsked(p *fakeProcess) {
	if w.packaged && p.generation == 0 {
		w.lacks = max(w.lacks, w.world.Generation)
	}
}

// noteEnd notes how a process has ended. The mutex is held.
func (w *programWatch) noteEnd(p *fakeProcess, code int, stopped bool) {
	m := p.machine
	w.left[p.generation], w.left[p.position.Generation] = true, true
	// one that starts has come to no world yet, and belongs to the newest one nevertheless
	if p.waits != nil || w.packaged && p.generation == 0 {
		w.lacks, w.lacksNext = max(w.lacks, w.world.Generation), true
	}
	if code != 0 && !stopped && code != codeDoubt && p.position.Generation > 0 {
		m.failed = append(m.failed, failing{p.pid, m.arrivals})
	}
	if code != 0 {
		m.absent[p.local] = &absence{since: time.Now()}
	}
}

// arrives hears an arrival of the agent at the rendezvous. A repeated one is no other arrival.
func (m *machine) arrives(a *wire.Arrival) {
	if a.Works {
		return
	}
	m.note(func() {
		if a.Generation > m.from {
			m.from = a.Generation
			m.arrivals++
		}
		for _, f := range a.Failures {
			m.failed = slices.DeleteFunc(m.failed, func(of failing) bool { return of.pid == int(f.Pid) })
		}
		m.failed = slices.DeleteFunc(m.failed, func(of failing) bool {
			// the arrival at the time of the end may have been written before
			forgotten := m.arrivals >= of.arrivals+2
			if forgotten {
				m.program.complain("%s arrives from world %d without the failure of its process %d", m.pod.host.name,
					a.Generation, of.pid)
			}
			return forgotten
		})
	})
}

// noteRound notes that the processes of a world have made a round: the others are to take part in
// one soon. The mutex is held.
func (w *programWatch) noteRound(generation int64) {
	for _, m := range w.machines {
		if m.isLeaving() {
			continue
		}
		for local := range m.processes() {
			if a := m.absent[local]; a != nil && (w.quiet || w.hasMember(m, generation)) && a.isForgotten() {
				w.complain("%s starts no process of local rank %d again", m.pod.host.name, local)
				delete(m.absent, local)
			}
		}
	}
	for _, p := range w.living {
		if p.waits == nil || !w.quiet || w.gentle || p.machine.isLeaving() {
			continue
		}
		if w.hasFrozen(p.machine) {
			p.waits = &absence{since: time.Now()}
		} else if p.waits.isForgotten() {
			w.complain("%v waits for a world, and the others continue without it", p)
			p.waits = &absence{since: time.Now()}
		}
	}
}

func (w *programWatch) hasMember(m *machine, generation int64) bool {
	return slices.ContainsFunc(w.living, func(p *fakeProcess) bool {
		return p.machine == m && p.generation == generation && p.waits == nil
	})
}

func (w *programWatch) hasFrozen(m *machine) bool {
	return slices.ContainsFunc(w.living, func(p *fakeProcess) bool { return p.machine == m && p.isFrozen() })
}

// isLeaving reports whether the worker was asked to leave.
func (m *machine) isLeaving() bool {
	select {
	case <-m.pod.leave:
		return true
	default:
		return false
	}
}

// noteBreak notes that a process is to leave its world at once: a member of it has ended, or has
// come back. The mutex is held.
func (w *programWatch) noteBreak(p *fakeProcess) {
	if p.recalled.IsZero() {
		p.recalled = time.Now()
	}
	// agents bring what has happened while there was no master
	if w.lost > 0 {
		return
	}
	// an agent that leaves may have started no process
	leaves := slices.ContainsFunc(w.machines, (*machine).isLeaving)
	if w.quiet && !leaves && !w.left[p.generation] && p.generation > w.lacks {
		w.complain("%v is to leave world %d at once, and nobody has left that", p, p.generation)
	}
}

// leaveTime is the time that processes have to leave a world that has lost a member: a minute, less
// what the order takes to reach them.
const leaveTime = time.Minute - time.Second

// noteKill notes that the agent kills a process at once. The mutex is held.
func (w *programWatch) noteKill(p *fakeProcess) {
	if !w.packaged || w.ending || p.machine.isLeaving() || p.isFrozen() {
		return
	}
	if p.recalled.IsZero() || time.Since(p.recalled) < leaveTime {
		w.complain("%v is killed %v after its recall", p, time.Since(p.recalled))
	}
}

// noteDoubt notes that a process gives up its state because the master reports no lost member: then
// there must have been a master that could report it. The mutex is held.
func (w *programWatch) noteDoubt(p *fakeProcess) {
	// the process may have been stopped since it got its answer
	const slack = 4 * time.Second
	if w.simulation.killed && time.Since(w.lostAt) > slack && !w.hit[p.machine.pod.host.name] {
		w.complain("%v doubts its state, and there is no master since %v", p, time.Since(w.lostAt))
	}
}

// regranted complains of a lease that an agent is granted again after it has reported its end.
func (m *machine) regranted(lease int64) {
	m.note(func() {
		m.complain("%s is granted lease %d again, the end of which it has reported", m.pod.host.name, lease)
	})
}

// begins and ends note which agents run.
func (m *machine) begins() {
	m.note(func() { m.program.machines = append(m.program.machines, m) })
}

func (m *machine) ends() {
	m.note(func() {
		w := m.program
		w.machines = slices.DeleteFunc(w.machines, func(other *machine) bool { return other == m })
		w.lacks, w.lacksNext = max(w.lacks, w.world.Generation), true
	})
}

// processes returns the number of processes of the agent.
func (m *machine) processes() (n int) {
	fmt.Sscan(m.job.Program.Processes, &n)
	return n
}

package supervise

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/narration"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// TestNarration runs the stories of testdata, which narrate the actions of the supervisor.
// Processes are named by their local rank; their pids are 100, 101 and so on for the first start,
// 200 and so on for the second. The number of a connection is the pid of its process.
//
//	policy processes=2 keeps=yes    parameters; the first command of a story that needs others than
//	                                one process that keeps no state
//	begin                           the agent begins
//	ready                           processes can be started at once
//	world 3 [pause=5s] [source=0]   world 3 is assigned, with the processes of this worker alone
//	world 3 first=2 size=4          others have the ranks before and behind
//	hello 0 [keeps=no]              a process uses the package, and keeps its state
//	arrive 0 [round=7] [read=yes]   a process waits for a world, with 7 rounds in its state
//	arrive 0 early=yes              a process waits for a world before it has made its model
//	others 2 [later=1]              how many processes are left in this world, or in a later one
//	done 0                          a process has completed the training
//	met 0, round 0, doubt 0 "why"   other messages of a process, as in PROTOCOL.md
//	account 0 "records"             which records are in the state of every rank
//	saved 0 "path" round=7          a checkpoint was written
//	rest 0 round=7 ["why"]          the last round before the job stops
//	exit 0 [code=1]                 a process ends on its own
//	kill 0 [signal=9]               another kills a process
//	kill 0 oom=yes                  the kernel's OOM killer kills a process
//	obey [code=0]                   processes that were ordered to end do so, by the signal or code
//	freeze 0, thaw 0                a process is stopped by a signal, and continues
//	hung 0 "why"                    the master judges that a process hangs
//	close 0                         the connection of a process ends
//	recall [joins=yes]              the master recalls the members of the world after a round
//	lost                            the world has lost a member
//	ask                             the master asks for the records in the state of every rank
//	leave 30s, stop 30s             the worker is to leave, or the job to stop, within 30 s
//	leases unreported=yes           the master does not know yet of leases that have ended
//	checkpoint 1s                   the newest checkpoint was written so long ago
//	end [grace=30s]                 the job has ended
//	wait 10s                        time passes
//	phase                           a question: what the supervisor does
func TestNarration(t *testing.T) {
	narration.Play(t, "testdata/*.txt", func(t *testing.T) narration.Perform {
		s := &stage{now: start, frozen: make(map[int]bool)}
		s.set(Policy{Processes: 1})
		return s.perform
	})
}

// stage runs a story.
type stage struct {
	*Supervisor
	now time.Time
	// number of starts
	starts int
	// signals that processes were sent, by pid: SIGTERM or SIGKILL
	signals map[int]int
	frozen  map[int]bool
	// number of processes that the OOM killer has killed
	ooms int
	// time of the newest checkpoint
	checkpoint time.Time
	lines      []string
}

func (s *stage) set(p Policy) {
	p.RestartGrace, p.HeartbeatTimeout, p.TaskTimeout = 3*time.Second, 10*time.Second, 2*time.Minute
	if p.RestartOnJoin == "" {
		p.RestartOnJoin = job.RestartNow
	}
	s.Supervisor, s.signals = New(p), make(map[int]int)
}

// tell tells events, performs the actions that a machine would, and notes all others.
func (s *stage) tell(prefix string, events ...Event) {
	for len(events) > 0 || prefix != "" {
		var answers []Event
		for _, a := range s.Handle(s.now, events...) {
			switch a := a.(type) {
			case Look:
				var stopped []int
				for _, pid := range a.Pids {
					if s.frozen[pid] {
						stopped = append(stopped, pid)
					}
				}
				answers = append(answers, Looked{stopped, s.checkpoint})
				continue
			case Start:
				s.starts++
				var pids []int
				for _, local := range a.Locals {
					pids = append(pids, 100*s.starts+local)
				}
				answers = append(answers, Started{pids})
			case Open:
				answers = append(answers, Opened{s.ooms})
			case Kill:
				s.signals[a.Pid] = 15
				if a.Grace <= 0 {
					s.signals[a.Pid] = 9
				}
			}
			s.lines = append(s.lines, prefix+a.String())
		}
		if events, prefix = answers, ""; len(answers) == 0 {
			return
		}
	}
}

// pass lets time pass, and notes when something happens.
func (s *stage) pass(d time.Duration) {
	until, began := s.now.Add(d), s.now
	for {
		at := s.Deadline()
		if at.IsZero() || at.After(until) {
			s.now = until
			return
		}
		s.now = at
		s.tell(fmt.Sprintf("after %v: ", s.now.Sub(began).Round(time.Millisecond)))
	}
}

// pid returns the pid of the process that a command names.
func (s *stage) pid(c *narration.Command) int {
	local := c.Int(0)
	if local >= len(s.procs) || s.procs[local] == nil {
		c.Fail("local rank %d was not started", local)
		return 0
	}
	return s.procs[local].pid
}

func (s *stage) perform(c *narration.Command) []string {
	s.lines = nil
	switch c.Name {
	case "policy":
		s.set(Policy{Processes: c.IntOf("processes", 1), Keeps: c.Is("keeps"), Joins: c.Is("joins"),
			RestartOnJoin: c.Of("restart", "")})
	case "freeze":
		s.frozen[s.pid(c)] = true
	case "thaw":
		delete(s.frozen, s.pid(c))
	case "checkpoint":
		s.checkpoint = s.now.Add(-c.Duration(0))
	case "wait":
		s.pass(c.Duration(0))
	case "phase":
		return []string{s.Phase().String()}
	case "obey":
		s.obey(c.IntOf("code", -1))
	default:
		e := s.event(c)
		if e == nil {
			return c.Unknown()
		}
		s.tell("", e)
	}
	return s.lines
}

// obey ends the processes that were ordered to end.
func (s *stage) obey(code int) {
	var pids []int
	for pid := range s.signals {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	for _, pid := range pids {
		signal := s.signals[pid]
		delete(s.signals, pid)
		e := Exited{Pid: pid, Code: -signal, Signal: signal, Stopped: true}
		if code >= 0 && signal == 15 {
			e = Exited{Pid: pid, Code: code, Stopped: true}
		}
		s.tell("", e)
	}
}

// event returns the event of a command; nil: there is none.
func (s *stage) event(c *narration.Command) Event {
	switch c.Name {
	case "begin":
		return Begin{}
	case "ready":
		return Ready{}
	case "world":
		return s.assign(c)
	case "recall":
		return Recalled{s.world.Generation, c.Is("joins")}
	case "lost":
		return Lost{s.world.Generation}
	case "ask":
		return AccountAsked{}
	case "leave":
		return LeaveAsked{s.now.Add(c.Duration(0))}
	case "stop":
		return StopAsked{s.now.Add(c.Duration(0))}
	case "others":
		return Others{s.world.Generation + int64(c.IntOf("later", 0)), c.Int(0)}
	case "hung":
		return Hung{s.world.Generation, s.pid(c), c.Arg(1)}
	case "leases":
		return Leases{c.Is("unreported")}
	case "end":
		return End{c.DurationOf("grace")}
	case "exit":
		code := c.IntOf("code", 0)
		return Exited{Pid: s.pid(c), Code: code, Forked: c.Is("forked"), Message: fmt.Sprintf("exit code %d", code),
			At: s.now, Second: s.now.Unix(), OOMKills: s.ooms}
	case "kill":
		if c.Is("oom") {
			s.ooms++
		}
		signal := c.IntOf("signal", 9)
		return Exited{Pid: s.pid(c), Code: -signal, Signal: signal, Forked: c.Is("forked"),
			Message: fmt.Sprintf("signal %d", signal), At: s.now, Second: s.now.Unix(), OOMKills: s.ooms}
	}
	return s.said(c)
}

// said returns a message of a process.
func (s *stage) said(c *narration.Command) Event {
	text := func(i int) string {
		if c.Len() > i {
			return c.Arg(i)
		}
		return ""
	}
	round := int64(c.IntOf("round", -1))
	switch c.Name {
	case "hello":
		pid := s.pid(c)
		return Hello{Conn: pid, Pid: pid, Leader: pid, KeepsState: c.Of("keeps", "yes") == "yes"}
	case "arrive":
		return Arrived{s.pid(c), round, c.Is("read"), c.Is("early")}
	case "done":
		return Done{s.pid(c)}
	case "met":
		return Met{s.pid(c), s.world.Generation}
	case "round":
		return FirstRound{s.pid(c)}
	case "doubt":
		return Doubted{s.pid(c), text(1)}
	case "account":
		return Account{s.pid(c), s.world.Generation, []byte(text(1))}
	case "saved":
		return Saved{s.pid(c), round, text(1)}
	case "rest":
		return Rested{s.pid(c), round, text(1)}
	case "close":
		return Closed{s.pid(c)}
	}
	return nil
}

// assign returns the world of a command.
func (s *stage) assign(c *narration.Command) World {
	here := 0
	for _, p := range s.procs {
		if p == nil && !s.leaving() || p != nil && p.member {
			here++
		}
	}
	first := c.IntOf("first", 0)
	w := World{Generation: int64(c.Int(0)), ID: int64(c.Int(0)), First: first, LocalSize: here,
		Size: c.IntOf("size", first+here), Source: c.IntOf("source", -1), Pause: c.DurationOf("pause"),
		Restarts: Restarts{Count: c.IntOf("restarts", 0), Max: 3}, Store: "10.0.0.1:29500"}
	return w
}

// Every phase has a name, for the narration.
func TestPhasesHaveNames(t *testing.T) {
	for p := Idle; p <= Ended; p++ {
		if text := p.String(); text == "" || strings.HasPrefix(text, "Phase(") {
			t.Errorf("phase %d has no name", int(p))
		}
	}
}

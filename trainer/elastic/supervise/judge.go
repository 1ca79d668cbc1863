package supervise

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
)

// Exit codes of processes that use the package, as PROTOCOL.md defines them.
const (
	// CodeAgentLost is the code of a process whose agent has closed the connection.
	CodeAgentLost = 80
	// CodeDoubt is the code of a process that cannot be sure of its state.
	CodeDoubt = 81
	// CodeRestart is the code of a process that ended because its world changed.
	CodeRestart = 83
)

// Failure is the report of a process that has failed on its own.
type Failure struct {
	Pid int
	// it does not count against the retry budget: something else has caused it
	Excused bool
	// the process cannot be sure of its state, and Why says why, if it has reported it
	Doubt bool
	Why   string
	// it was killed, and the OOM killer has killed processes of this worker in this world
	Memory bool
	// it was killed, as the master has judged that it hangs
	Hung bool
	// in words, for the narration
	Cause string
}

func (f Failure) String() string {
	text := fmt.Sprintf("pid %d failed: %s", f.Pid, f.Cause)
	if f.Why != "" {
		text += ": " + f.Why
	}
	if f.Memory {
		text += " (out of memory)"
	}
	if f.Excused {
		text += " (excused)"
	}
	return text
}

// end is the end of a process, with what was known when the agent left the world.
type end struct {
	Exited
	// it used the package
	speaks bool
	// the supervisor has killed it because it was frozen
	frozen bool
	// why the supervisor has killed it, as the master has judged that it hangs; "": it has not
	hung string
	// the world has lost a member
	lost bool
	// the OOM killer has killed processes of this worker in this world
	memory bool
}

// cause is a row of the table of what can end a process.
type cause struct {
	text string
	// the master gets a report
	reported bool
	// the failure does not count
	excused bool
	is      func(end) bool
}

const (
	doubts = "doubts its state"
	killed = "killed"
	hung   = "hung"

	// sigkill is the number of SIGKILL.
	sigkill = 9
)

// causes: the first that applies does. An end that follows from the end of the world is not
// reported: it would excuse the failure that has ended the world. Codes of processes that do not
// use the package are the script's own.
var causes = []cause{
	{"its world has ended", false, true, func(e end) bool { return e.speaks && e.Code == CodeRestart }},
	{"its world has lost a member", false, true,
		func(e end) bool { return e.speaks && e.Code == CodeDoubt && e.lost }},
	{doubts, true, true, func(e end) bool { return e.speaks && e.Code == CodeDoubt }},
	{"lost its agent", true, true, func(e end) bool { return e.speaks && e.Code == CodeAgentLost }},
	{hung, true, false, func(e end) bool { return e.hung != "" && e.Signal == sigkill }},
	{"frozen", true, false, func(e end) bool { return e.frozen }},
	{killed, true, false, func(e end) bool { return e.Signal == sigkill }},
	{"crashed", true, false, func(e end) bool { return e.Signal != 0 }},
	{"failed", true, false, func(end) bool { return true }},
}

func (e end) cause() cause {
	for _, c := range causes {
		if c.is(e) {
			return c
		}
	}
	panic("supervise: no cause applies")
}

// judge returns the report of the end of a process; false: there is none. Recalled reports
// that the world was recalled before: the failure may follow from the end of others, which had
// heard of that sooner.
func judge(e end, recalled bool, why string) (Failure, bool) {
	c := e.cause()
	f := Failure{Pid: e.Pid, Excused: c.text != hung && recalled || c.excused, Doubt: c.text == doubts,
		Memory: c.text == killed && e.memory, Hung: c.text == hung, Cause: c.text}
	switch {
	case f.Doubt:
		f.Why = why
	case f.Hung:
		f.Why = e.hung
	}
	return f, c.reported
}

// rootCause returns the failure with the smallest time, nil if no process has failed. As in
// torchrun, times are in seconds. Within a second the one that was reported or seen first counts. A
// process that the agent had asked to end is the root cause only if there is no other, unless it
// was killed because it hung.
func rootCause(processes []*process) *process {
	failed := slices.DeleteFunc(slices.Clone(processes), func(p *process) bool { return !p.exit.Failed() })
	if len(failed) == 0 {
		return nil
	}
	return slices.MinFunc(failed, func(a, b *process) int {
		if was := a.stoppedFirst(); was != b.stoppedFirst() {
			if was {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.exit.Second, b.exit.Second), a.exit.failedAt().Compare(b.exit.failedAt()),
			cmp.Compare(a.local, b.local))
	})
}

// failedEarly returns the action of a worker whose processes have failed before they joined a
// world. The worker counts as lost, not as failed, if all of them were killed from outside.
func failedEarly(failed []*process, memory bool) GiveUp {
	root := rootCause(failed)
	if root == nil {
		return GiveUp{Why: "the program ended before it joined a world"}
	}
	a := GiveUp{Why: "the program failed before it joined a world: " + root.exit.Message}
	if !slices.ContainsFunc(failed, func(p *process) bool {
		return !verdict.Failure{Signal: p.exit.Signal, Memory: memory}.FromOutside()
	}) {
		a.Signal = root.exit.Signal
	}
	return a
}

// answer is the reaction of a worker to a recall after a round.
type answer int

const (
	stay answer = iota
	leave
	// leave after the next checkpoint
	leaveAtCheckpoint
)

// situation has the facts on which the answer depends.
type situation struct {
	// a process has completed the training
	trained bool
	// workers wait to join, and nothing else is the reason
	joins bool
	// processes run that keep their state, and that keep none
	stateful, stateless bool
	// all processes have ended with 0
	finished bool
	// --restart_on_join
	restart string
}

// answers: the first that applies does.
var answers = []struct {
	why    string
	answer answer
	is     func(situation) bool
}{
	{"after the training processes complete what follows it, in all workers", stay,
		func(s situation) bool { return s.trained }},
	{"a member is lost, or leaves", leave, func(s situation) bool { return !s.joins }},
	{"processes that keep their state lose little", leave,
		func(s situation) bool { return s.stateful && !s.stateless }},
	{"nothing is left to start again", stay, func(s situation) bool { return s.finished }},
	{"--restart_on_join=never", stay, func(s situation) bool { return s.restart == job.RestartNever }},
	{"--restart_on_join=checkpoint", leaveAtCheckpoint,
		func(s situation) bool { return s.restart == job.RestartAtCheckpoint }},
	{"--restart_on_join=now", leave, func(situation) bool { return true }},
}

func (s situation) answer() answer {
	for _, a := range answers {
		if a.is(s) {
			return a.answer
		}
	}
	panic("supervise: no answer applies")
}

// isFrozen decides that a process is frozen, which was stopped by a signal without a break since a
// time: nobody else would notice it.
func (p Policy) isFrozen(since, now time.Time) bool { return now.Sub(since) >= p.HeartbeatTimeout }

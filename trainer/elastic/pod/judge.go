package pod

import (
	"fmt"
	"time"
)

// Exit describes the end of a pod, as far as the shell knows it.
type Exit struct {
	Code int
	// that ended it; 128 + Signal in Code says the same
	Signal int
	// Reported by the cluster.
	OOM, Evicted, Preempted, NodeLost, Deleted bool
	// its node would not have it: it has not run at all
	Rejected bool
	// in words: the last line it wrote, the cluster's message
	Reason string
}

// signal returns the signal that ended the pod, 0 if none.
func (e Exit) signal() int {
	if e.Signal == 0 && e.Code > 128 && e.Code < 128+65 {
		return e.Code - 128
	}
	return e.Signal
}

// String says why in words, as in "exit code 1: no such file".
func (e Exit) String() string {
	text := e.cause().text
	switch text {
	case crashed:
		text = fmt.Sprintf("exit code %d", e.Code)
		if s := e.signal(); s != 0 {
			text = fmt.Sprintf("crashed (signal %d)", s)
		}
	case killed:
		text = fmt.Sprintf("killed (signal %d)", e.signal())
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Cause returns the cause in one or a few words that do not vary, as in "preempted", for counts.
func (e Exit) Cause() string { return e.cause().text }

// Fault reports whether the end of a pod is its own fault.
func (e Exit) Fault() bool { return e.cause().counted }

// Causes of ends that are not in the table of causes.
const (
	causeLeft   = "left"   // as it was asked to
	causeAbsent = "absent" // while the master was not there
)

const (
	oom    = "out of memory"
	killed = "killed"
	// by its own fault; the text has the code
	crashed = "failed"
)

// cause is a row of the table of what can end a pod.
type cause struct {
	text    string
	counted bool // its own fault
	is      func(Exit) bool
}

// causes: the first that applies does. A pod does not send KILL, TERM, INT or HUP to itself; a
// signal that a program earns (SEGV, ABRT, FPE, …) is.
var causes = []cause{
	{"node lost", false, func(e Exit) bool { return e.NodeLost }},
	{"preempted", false, func(e Exit) bool { return e.Preempted }},
	{"evicted", false, func(e Exit) bool { return e.Evicted }},
	{"deleted", false, func(e Exit) bool { return e.Deleted }},
	{"rejected by its node", false, func(e Exit) bool { return e.Rejected }},
	{oom, true, func(e Exit) bool { return e.OOM }},
	{killed, false, func(e Exit) bool {
		switch e.signal() {
		case 1, 2, 9, 15:
			return true
		}
		return false
	}},
	{"left with work to do", true, func(e Exit) bool { return e.Code == 0 && e.Signal == 0 }},
	{crashed, true, func(Exit) bool { return true }},
}

func (e Exit) cause() cause {
	for _, c := range causes {
		if c.is(e) {
			return c
		}
	}
	panic("pod: no cause applies")
}

// Policy holds the settings of a table.
type Policy struct {
	Servers, Workers int
	// the job does not continue with fewer (--min_workers); 0: 1
	MinWorkers int
	// number of workers of the job's core, see --min_workers; 0: the job is in no queue
	Core int
	// counted relaunches of each line (--relaunch_on_worker_failure)
	Relaunches int
	// how often a pod's memory can be doubled (--max_memory); nil: never
	MaxOOMs map[Role]int
	// least time between two incarnations of a line, doubled with each counted failure; 0: a second
	Backoff time.Duration
}

// Limit of the doubling.
const (
	maxBackoff = 5 * time.Minute
	// the node may be as it should be at any time,
	maxRejected = time.Minute
	maxRefused  = 30 * time.Second // or resources be free
)

// steady is the time that a pod has to run until its line's rejections are forgotten.
const steady = time.Minute

// delay returns the time that a line waits after its n-th counted failure or, up to lower limits,
// its n-th rejection or refused creation in a row.
func (p Policy) delay(n int, limit time.Duration) time.Duration {
	d := p.Backoff
	for range n - 1 {
		if d *= 2; d >= limit {
			return limit
		}
	}
	return d
}

// Past is the history of a pod's line.
type Past struct {
	// incarnations that failed by their own fault
	Counted int
	// those of them that ran out of memory and were followed by one with more
	OOMs int
	// Rejected counts the pods of the line that their nodes rejected since one ran for a while.
	Rejected int
}

// Verdict is the decision on a pod that ended while the job had work for it.
type Verdict struct {
	Relaunch bool
	Counted  bool
	Grow     bool // the next one gets more memory
	Rejected bool // the next one waits, longer each time
	Fatal    bool // the job cannot continue without it
	Reason   string
}

// Judge is the one place that decides about relaunches.
//
//	node lost, preempted, evicted, deleted,   relaunch, not counted
//	killed (signal 1, 2, 9, 15)
//	rejected by its node                      relaunch, not counted, after a while
//	out of memory, OOMs < MaxOOMs             relaunch with more memory, counted
//	out of memory else, exit code,            counted; relaunch if Counted < Relaunches
//	other signals, code 0 with work left
//
// A server that cannot be relaunched is fatal; a worker is not: the others continue without it.
func Judge(role Role, e Exit, p Policy, before Past) Verdict {
	c := e.cause()
	v := Verdict{Counted: c.counted, Rejected: e.Rejected && !e.Deleted, Reason: e.String()}
	if c.text == oom {
		v.Grow = before.OOMs < p.MaxOOMs[role]
		if !v.Grow {
			v.Reason += " (--max_memory allows no more)"
		}
	}
	v.Relaunch = !c.counted || v.Grow || before.Counted < p.Relaunches
	v.Fatal = !v.Relaunch && role == PS
	return v
}

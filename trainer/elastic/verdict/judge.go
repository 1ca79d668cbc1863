package verdict

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// mostDoubts limits the worlds without a completed round that end with a doubt before the last
	// of them counts: all are restarts that do not help, as when a firewall keeps the ranks from
	// each other.
	mostDoubts = 5
	// gotOn is the time after which a failure in a world that lacks workers is not for want of
	// these workers.
	gotOn = 5 * time.Minute
	// briefly is the time after its start within which a failing world has made no progress.
	briefly = 30 * time.Second
	// longestPause is the longest pause before processes start again.
	longestPause = time.Minute
	// keptFailure limits a failure's text in a snapshot, in bytes.
	keptFailure = 500
)

// Policy holds the retry budget of a job.
type Policy struct {
	// the retry budget: number of failures that count before the job fails (--max_restarts)
	MaxRestarts int
	// how long processes wait for workers that a failed world lacked (--gather_timeout); 0: not
	Gather time.Duration
}

// Judge holds the used part of a program's limits, and its last world. It is not safe for
// concurrent use: the master calls it under a lock.
type Judge struct {
	policy Policy

	// number of failures that count
	counted int
	// number of worlds that have ended with a doubt since the last completed round, or failure that
	// counts
	doubts int
	// how often in a row the program has ended in the same way
	repeats Repeats
	// number of reported failures, whether or not they count
	failures int
	// the last failure, as text
	last string
	// how often processes were started again
	again int
	// the job has failed because its program ends in the same way again and again
	repeated bool

	// generation before which the last world was judged
	judged int64
	// newest generation in which processes have completed a round
	rounds int64
	// generation from which the reports below are
	from int64
	// failures in that world
	failed []Failure
	// by worker: digest of what its processes wrote there
	output map[int]string
	// time of the newest checkpoint file that a worker has found there, in Unix milliseconds
	written int64

	// number of worlds in a row whose processes failed soon after their start, before a round
	brief int
	// when the processes of the last world start; zero: not known
	starts time.Time
	// number of workers for which that start waits; 0: it does not wait for workers
	lacks int
	// number of members of the last world that brought all their processes; -1: not known
	whole int
}

// New returns the judge of a program that has not started.
func New(p Policy) *Judge { return &Judge{policy: p, output: make(map[int]string), whole: -1} }

// Report is a worker's report of its processes when it comes back from a world.
type Report struct {
	Worker int
	// of that world
	Generation int64
	Failures   []Failure
	// digest of what the processes wrote
	Output string
	// time of the newest checkpoint file that the worker finds, in Unix milliseconds; 0: none
	Checkpoint int64
}

// World is a set of workers whose processes work together.
type World struct {
	// number that rises each time; 0: there is no world
	Generation int64
	// by rank
	Workers []int
	// it begins with the state of processes that have kept it
	Kept bool
}

// End is the end of a world.
type End struct {
	World
	// the world that follows
	Next World
	// a member was asked to leave
	Left bool
	// processes keep their state from one world to the next
	Keeps bool
	// number of workers that a world should have
	Wanted int
}

// Verdict is the decision on the end of a world.
type Verdict struct {
	// the failure that has ended the world, its cause, and what follows, as text; "": there is
	// nothing to report
	Text string
	// it counts against the retry budget
	Counted bool
	// number of workers for want of which it is excused
	Lacked int
	// why the job fails; nil: the processes start again
	Err error
}

// Hear notes what a worker reports of a world. Reports from another world replace those of the
// world before.
func (j *Judge) Hear(r Report) {
	if j.from != r.Generation {
		j.from, j.failed, j.written = r.Generation, nil, 0
		clear(j.output)
	}
	j.output[r.Worker], j.written = r.Output, max(j.written, r.Checkpoint)
	j.failed = append(j.failed, r.Failures...)
}

// Advance notes that processes have completed a round in a generation.
func (j *Judge) Advance(generation int64) { j.rounds = max(j.rounds, generation) }

// Completed reports whether processes have completed a round in a generation or a later one, which
// is known of those that keep their state.
func (j *Judge) Completed(generation int64) bool { return j.rounds >= generation }

// End decides what follows from the end of a world. A world that was judged already has no more
// consequences.
func (j *Judge) End(e End, now time.Time) Verdict {
	if j.judged == e.Next.Generation {
		return Verdict{}
	}
	j.judged = e.Next.Generation
	lacked, failed := j.lacked(e, now), j.failed
	j.failed = nil
	j.resume(e, now)
	if j.lasted(e.World, now) {
		j.brief = 0
	}
	lost := j.lost(e.World)
	if e.Generation > 0 && (len(failed) > 0 || lost || !e.Keeps) {
		j.again++
	}
	if j.Completed(e.Generation) {
		j.doubts, j.repeats = 0, Repeats{}
	}
	if len(failed) == 0 || lost || e.Left { // the program did not end this world
		j.brief, j.repeats = 0, Repeats{}
		return Verdict{}
	}
	f, c := root(failed)
	if c.text == excused {
		return Verdict{}
	}
	v, how := j.count(e, f, c, lacked, now)
	j.pace(e, v.Lacked, now)
	return j.report(v, e, f, how, now)
}

// lost reports whether a member of a world has not come back from it.
func (j *Judge) lost(w World) bool {
	return j.from != w.Generation || slices.ContainsFunc(w.Workers, func(worker int) bool {
		_, reported := j.output[worker]
		return !reported
	})
}

// count counts a failure, and returns a note on it.
func (j *Judge) count(e End, f Failure, c cause, lacked int, now time.Time) (v Verdict, how string) {
	if c.repeats && lacked == 0 {
		j.repeats = j.repeats.add(j.signature(e.World, f), j.ran(now))
	}
	v.Counted = c.own
	switch {
	case c.own && lacked > 0:
		v.Counted, v.Lacked = false, lacked
		how = fmt.Sprintf(", in a world that lacked %d of %d workers", lacked, e.Wanted)
	case c.text == afterFork:
		how = " soon after it was forked, which may be the cause: its worker starts processes by exec from now on"
	case c.text == inDoubt && !j.Completed(e.Generation):
		if j.doubts++; j.doubts > 1 {
			how = fmt.Sprintf(", in %d worlds without a completed round", j.doubts)
		}
		v.Counted = j.doubts >= mostDoubts
	}
	if v.Counted {
		j.counted++
		j.doubts = 0
	}
	return v, how
}

// report writes a verdict as text, and decides whether the job fails.
func (j *Judge) report(v Verdict, e End, f Failure, how string, now time.Time) Verdict {
	counted := "not counted"
	if v.Counted {
		counted = "counted"
	}
	most := mostSame
	if e.Next.Kept {
		most = mostSameKept
	}
	then := fmt.Sprintf("%s; %s (%s)", how, j.restarts(e.Next, now), counted)
	switch {
	case v.Counted && j.counted > j.policy.MaxRestarts:
		then = how + "; the job fails (counted)"
		v.Err = fmt.Errorf("the program failed%s: rank %d (pid %d): %s%s", j.times(), f.Rank, f.PID, f.Reason, how)
	case j.repeats.Count >= most:
		then = fmt.Sprintf(", the same %d times in a row; the job fails (%s)", j.repeats.Count, counted)
		j.repeated = true
		v.Err = &SameEnd{j.repeats.Count, fmt.Sprintf("rank %d (pid %d): %s", f.Rank, f.PID, f.Reason)}
	}
	j.failures++
	j.last = fmt.Sprintf("rank %d of worker-%d (pid %d): %s%s", f.Rank, f.Worker, f.PID,
		strings.ToValidUTF8(f.Reason[:min(len(f.Reason), keptFailure)], ""), then)
	v.Text = j.last
	return v
}

// times returns how often failures counted, as text.
func (j *Judge) times() string {
	if j.policy.MaxRestarts == 0 {
		return ""
	}
	return fmt.Sprintf(" %d times, --max_restarts=%d", j.counted, j.policy.MaxRestarts)
}

// restarts returns what follows from the end of a process, as text: processes that have kept their
// state continue with the next world.
func (j *Judge) restarts(next World, now time.Time) string {
	text := "the program starts again"
	if next.Kept {
		text = "the others continue, it is started again"
	}
	if wait := j.starts.Sub(now); wait > 0 && j.lacks > 0 {
		return fmt.Sprintf("%s when they are there, or in %v", text, wait.Round(time.Second))
	}
	if wait := pauseAfter(j.brief); wait > 0 {
		text += fmt.Sprintf(" in %v, after %d failures in a row within %v of the start", wait, j.brief, briefly)
	}
	return text
}

// signature describes the end of a world by the failure that has ended it.
func (j *Judge) signature(w World, f Failure) Signature {
	var output []string
	for _, worker := range w.Workers {
		output = append(output, j.output[worker])
	}
	sum := sha256.Sum256([]byte(strings.Join(output, "\n")))
	return Signature{Signal: f.Signal, Code: f.Code, Message: f.Message[:min(len(f.Message), keptFailure)],
		Output: hex.EncodeToString(sum[:8]), Checkpoint: j.written}
}

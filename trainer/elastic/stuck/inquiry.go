package stuck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/stacks"
)

// Policy has the parameters of an [Inquiry].
type Policy struct {
	// Kill is the time without a sign of life after which processes are killed (--hang_timeout); 0:
	// none is.
	Kill time.Duration
}

const (
	// enough is the number of looks that must find a rank that computes at one place: if it is
	// found elsewhere, it works.
	enough = 3 * stacks.MostLooks
	// without is the least number of answers if a rank that computes has no stacks.
	without = 3
	// mostAnswers limits the answers, if a rank that computes writes no stacks in time: it may get
	// no processor.
	mostAnswers = 10
	// between is the least time between two of them.
	between = time.Second
	// mostFrames limits the calls in the reason of a failure.
	mostFrames = 8
)

// Inquiry finds out whether a suspicion of a [Watch] is true, and where the job stands.
type Inquiry struct {
	policy Policy
	watch  *Watch
	// the suspicion that holds; nil: none
	suspicion *Suspicion
	// the stacks are asked for, and were not answered yet
	asks bool
	// time of the last answer to this suspicion, and their number
	answered time.Time
	answers  int
	// by computing rank: its stack in the first answer that has one, and the looks that have found
	// it there
	first map[int][]stacks.Frame
	looks map[int]int
	// a debugger was found in the stacks: the suspicion is not stated
	debugged bool
	// nil: nothing is stated
	finding *Finding
	// users' lines of the ranks in the finding
	lines map[int]stacks.Point
	// no process is killed sooner than Policy.Kill after this time; zero: none was killed, or is to
	// be killed
	since  time.Time
	killed bool
}

// Finding describes a job that makes no progress.
type Finding struct {
	// Since is the time of the last sign of life.
	Since time.Time
	// Differ are the ranks that differ from the others, in their order; none if no rank does.
	Differ []int
	// Text says where the ranks stand: "rank 1 differs: sleep at data.py:12; 2 ranks: all_reduce at
	// train.py:41".
	Text string
}

// Action is an order to the caller of an [Inquiry].
type Action interface{ action() }

// Ask orders the caller to take the stacks of all ranks once. [Inquiry.Answer] has them.
type Ask struct{}

// State says that the job makes no progress.
type State struct {
	Finding
	// For is the time since the last sign of life.
	For time.Duration
}

// Clear says that what was stated holds no longer.
type Clear struct {
	// After is the time since the last sign of life before.
	After time.Duration
	// Restarted reports whether the job has other processes, or no world; otherwise its ranks have
	// given a sign of life.
	Restarted bool
}

// Kill orders the caller to kill the processes of ranks, and to count that as a failure of the
// program.
type Kill struct {
	// Ranks are in their order.
	Ranks []int
	// Why has the reason for each of them, for people.
	Why map[int]string
}

func (Ask) action()   {}
func (State) action() {}
func (Clear) action() {}
func (Kill) action()  {}

// NewInquiry returns an inquiry about a job that was not observed.
func NewInquiry(p Policy) *Inquiry { return &Inquiry{policy: p, watch: New()} }

// Finding returns what is stated; nil: nothing is.
func (q *Inquiry) Finding() *Finding { return q.finding }

// Observe takes an observation. Times never decrease.
func (q *Inquiry) Observe(now time.Time, o Observation) []Action {
	restarted := q.watch.changed(o.Ranks)
	s := q.watch.Observe(now, o)
	if s == nil {
		return q.forget(now, restarted)
	}
	if q.suspicion == nil || q.suspicion.Raised != s.Raised {
		did := q.forget(now, false)
		q.suspicion, q.since = s, s.Since
		return append(did, q.ask())
	}
	switch {
	case q.asks || q.debugged || q.killed:
	case q.finding == nil && now.Sub(q.answered) >= between, q.finding != nil && q.overdue(now):
		return []Action{q.ask()}
	}
	return nil
}

// Reset says that the job has no world whose processes work: nothing is expected of them.
func (q *Inquiry) Reset(now time.Time) []Action {
	q.watch = &Watch{ranks: make(map[int]*rank), patience: q.watch.patience}
	return q.forget(now, true)
}

// overdue reports whether processes are to be killed.
func (q *Inquiry) overdue(now time.Time) bool {
	return q.policy.Kill > 0 && now.Sub(q.since) >= q.policy.Kill
}

func (q *Inquiry) ask() Action {
	q.asks = true
	return Ask{}
}

// forget drops the suspicion, and what was stated of it.
func (q *Inquiry) forget(now time.Time, restarted bool) (did []Action) {
	if q.finding != nil {
		did = append(did, Clear{now.Sub(q.finding.Since), restarted})
	}
	*q = Inquiry{policy: q.policy, watch: q.watch}
	return did
}

// Answer takes the stacks that were asked for. Ranks without an answer have a reason. An answer
// without ranks, as of a world that has just ended, says nothing.
func (q *Inquiry) Answer(now time.Time, ranks []stacks.Rank) []Action {
	if !q.asks {
		return nil // of a suspicion that holds no longer
	}
	q.asks, q.answered = false, now
	if len(ranks) == 0 {
		return nil
	}
	q.answers++
	report := stacks.Compare(ranks)
	if len(report.Debugged) > 0 {
		return q.excuse(now)
	}
	if q.finding != nil {
		return q.judge(now, report, slices.ContainsFunc(ranks, func(r stacks.Rank) bool { return r.Moved }))
	}
	if len(q.suspicion.Computing) > 0 {
		works, certain := q.works(ranks)
		if works {
			return q.dismiss(now)
		}
		if !certain {
			return nil
		}
	}
	q.finding = &Finding{Since: q.suspicion.Since, Differ: q.differ(report), Text: text(report, q.suspicion)}
	q.lines = linesOf(report)
	return []Action{State{*q.finding, now.Sub(q.finding.Since)}}
}

// excuse notes that a debugger was found: nothing is expected until the next sign of life.
func (q *Inquiry) excuse(now time.Time) (did []Action) {
	if q.finding != nil {
		did = append(did, Clear{After: now.Sub(q.finding.Since)})
	}
	q.debugged, q.finding = true, nil
	return did
}

// dismiss drops a suspicion that has proved false.
func (q *Inquiry) dismiss(now time.Time) []Action {
	q.watch.dismiss(now)
	return q.forget(now, false)
}

// works reports whether a rank that computes stands elsewhere than in the first answer, and if none
// does, whether each has been looked at often enough. A rank that gets no processor has not.
func (q *Inquiry) works(ranks []stacks.Rank) (works, certain bool) {
	if q.first == nil {
		q.first, q.looks = make(map[int][]stacks.Frame), make(map[int]int)
	}
	certain = true
	for _, r := range ranks {
		if !slices.Contains(q.suspicion.Computing, r.Rank) {
			continue
		}
		main, ok := stacks.Parse(r.Text).Main()
		if !ok {
			never := r.Text == "" && r.Why != "" && !strings.Contains(r.Why, "did not answer")
			certain = certain && (q.answers >= mostAnswers || never && q.answers >= without ||
				q.looks[r.Rank] >= enough)
			continue
		}
		before, seen := q.first[r.Rank]
		if r.Moved || seen && !slices.Equal(before, main.Frames) {
			return true, true
		}
		q.first[r.Rank] = main.Frames
		q.looks[r.Rank] += r.Looks
		certain = certain && q.looks[r.Rank] >= enough
	}
	return false, certain
}

// differ returns the ranks that differ by their stacks, or else by their use of processors.
func (q *Inquiry) differ(r stacks.Report) []int {
	if len(r.Differ) > 0 {
		return r.Differ
	}
	return q.suspicion.Differ
}

// judge decides who is killed, by new stacks. If the ranks have moved since, or move now, none is.
func (q *Inquiry) judge(now time.Time, report stacks.Report, moves bool) []Action {
	lines := linesOf(report)
	for rank, at := range lines {
		before, ok := q.lines[rank]
		moves = moves || ok && (before.File != at.File || before.Line != at.Line)
	}
	if moves {
		q.lines, q.since = lines, now
		q.finding = &Finding{Since: q.finding.Since, Differ: q.differ(report), Text: text(report, q.suspicion)}
		return nil
	}
	q.killed = true
	k := Kill{Ranks: q.differ(report), Why: make(map[int]string)}
	none := ""
	if len(k.Ranks) == 0 {
		none = ", and no rank differs"
		for _, g := range report.Groups {
			k.Ranks = append(k.Ranks, g.Ranks...)
		}
		slices.Sort(k.Ranks)
	}
	for _, g := range report.Groups {
		for _, rank := range g.Ranks {
			if slices.Contains(k.Ranks, rank) {
				k.Why[rank] = fmt.Sprintf("no progress for %s (--hang_timeout)%s: %s", short(q.policy.Kill), none,
					calls(g))
			}
		}
	}
	return []Action{k}
}

// linesOf returns the users' lines at which ranks stand.
func linesOf(r stacks.Report) map[int]stacks.Point {
	lines := make(map[int]stacks.Point)
	for _, g := range r.Groups {
		for _, rank := range g.Ranks {
			if g.Why == "" {
				lines[rank] = g.Point
			}
		}
	}
	return lines
}

// calls returns the place of a group, and the calls that have led there.
func calls(g stacks.Group) string {
	at := g.Place()
	var outer []string
	for i, f := range g.Frames {
		if f.File == g.Point.File && f.Line == g.Point.Line {
			for _, f := range g.Frames[i+1 : min(len(g.Frames), i+1+mostFrames)] {
				outer = append(outer, fmt.Sprintf("%s:%d", f.File, f.Line))
			}
			break
		}
	}
	if len(outer) > 0 {
		at += ", called at " + strings.Join(outer, ", ")
	}
	return at
}

// text says where the ranks stand, those that differ first.
func text(r stacks.Report, s *Suspicion) string {
	if len(r.Differ) == 0 && len(s.Differ) > 0 {
		does := "use processors"
		if slices.Equal(s.Differ, s.Waiting) {
			does = "use no processor"
		}
		if len(s.Differ) == 1 {
			does = strings.Replace(does, "use", "uses", 1)
		}
		return fmt.Sprintf("only %s %s; %v", stacks.Names(s.Differ), does, r)
	}
	return r.Finding()
}

// short returns a duration without parts that are 0, as "2m".
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

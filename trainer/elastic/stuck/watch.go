package stuck

import (
	"slices"
	"time"
)

const (
	// Limit is the time without a sign of life after which a job is suspected.
	Limit = 45 * time.Second
	// Steady is the time for which each rank must have either computed or waited.
	Steady = 30 * time.Second
	// Flow is the least number of bytes a second that counts as a sign of life.
	Flow = 32 << 10
	// Most limits the time that false alarms add up to.
	Most = 4 * time.Hour

	// jitter is the most by which the time of one output differs between two observations.
	jitter = 5 * time.Second
	// span is the least time over which the use of processors is averaged.
	span = 5 * time.Second
	// A rank that uses less than waits processors waits, and one that uses computes or more
	// computes. In between it does what it did.
	waits, computes = 0.05, 0.2
)

// Sample is an observation of one rank.
type Sample struct {
	Rank int
	// Process distinguishes the processes of the rank: a pid.
	Process int
	// Quiet is the time since its last output, of any stream; negative: it has written nothing.
	Quiet time.Duration
	// Cores is the number of processors that it and its descendants have used on average since the
	// sample before; negative: not known yet.
	Cores float64
	// Ready reports whether it or a descendant wants a processor: its state is R.
	Ready bool
	// Moved is the number of bytes that it and its descendants have read, written, sent and
	// received since any time; negative: not known, as when the rank has written lately.
	Moved int64
	// Held reports whether a signal has stopped it, a debugger holds it, or it waits for a user.
	Held bool
}

// Observation is a job at one time.
type Observation struct {
	// Progress counts rounds, steps or records; any constant if the job does not count.
	Progress int64
	// Ranks are all running ranks, in any order.
	Ranks []Sample
}

// Suspicion describes a job that seems to make no progress.
type Suspicion struct {
	// Since is the time of the last sign of life.
	Since time.Time
	// Raised is the time at which the suspicion was raised.
	Raised time.Time
	// Waiting are the ranks that use no processor, Computing those that do, in their order.
	Waiting, Computing []int
	// Differ are those of the two that are fewer; none if all wait, or both are as many.
	Differ []int
}

// Watch observes a job.
type Watch struct {
	ranks    map[int]*rank
	progress int64
	// of the last sign of life; zero: nothing was observed
	alive time.Time
	// since when each rank either computes or waits
	steady time.Time
	// least pause that is suspected
	patience  time.Duration
	suspicion *Suspicion
}

// rank holds the observations of a rank.
type rank struct {
	process int
	// begin of the current span, and the bytes moved until then
	begun time.Time
	moved int64
	// samples of the span, their sum of processors, and how many wanted one
	samples, ready int
	cores          float64
	does           activity
}

// activity classifies a rank by its last span.
type activity int

const (
	unknown activity = iota
	waiting
	computing
)

// New returns a watch that has observed nothing.
func New() *Watch { return &Watch{ranks: make(map[int]*rank), patience: Limit} }

// Observe takes an observation, and returns the suspicion that holds after it; nil: there is none.
// Times never decrease.
func (w *Watch) Observe(now time.Time, o Observation) *Suspicion {
	ranks := slices.SortedFunc(slices.Values(o.Ranks), func(a, b Sample) int { return a.Rank - b.Rank })
	if w.changed(ranks) || slices.ContainsFunc(ranks, func(s Sample) bool { return s.Held || s.Cores < 0 }) {
		w.begin(now, o.Progress, ranks)
		return nil
	}
	alive := w.alive
	if o.Progress != w.progress {
		w.progress, alive = o.Progress, now
	}
	for _, s := range ranks {
		if s.Quiet >= 0 && now.Add(-s.Quiet).After(alive) {
			alive = now.Add(-s.Quiet)
		}
		flows, changes := w.ranks[s.Rank].take(now, s)
		if flows {
			alive = now
		}
		if changes {
			w.steady = now
		}
	}
	if s := w.suspicion; s != nil && (w.steady.After(s.Raised) || alive.Sub(s.Since) > jitter) {
		alive = later(alive, w.steady)
		w.patience = min(Most, max(w.patience, 2*now.Sub(w.suspicion.Since)))
		w.suspicion = nil
	}
	w.alive = alive
	if w.suspicion == nil {
		w.suspicion = w.judge(now, ranks)
	}
	return w.suspicion
}

// dismiss drops the suspicion that holds, as it has proved false.
func (w *Watch) dismiss(now time.Time) {
	w.patience = min(Most, max(w.patience, 2*now.Sub(w.suspicion.Since)))
	w.suspicion, w.alive = nil, now
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// changed reports whether the job has other processes than before.
func (w *Watch) changed(ranks []Sample) bool {
	return len(ranks) != len(w.ranks) || slices.ContainsFunc(ranks, func(s Sample) bool {
		r := w.ranks[s.Rank]
		return r == nil || r.process != s.Process
	})
}

// begin starts to observe, without a suspicion.
func (w *Watch) begin(now time.Time, progress int64, ranks []Sample) {
	w.progress, w.alive, w.steady, w.suspicion = progress, now, now, nil
	clear(w.ranks)
	for _, s := range ranks {
		w.ranks[s.Rank] = &rank{process: s.Process, begun: now, moved: s.Moved}
	}
}

// take adds a sample, and reports at the end of a span whether bytes flow, and whether the rank
// does something else than in the span before.
func (r *rank) take(now time.Time, s Sample) (flows, changes bool) {
	r.samples, r.cores = r.samples+1, r.cores+s.Cores
	if s.Ready {
		r.ready++
	}
	age := now.Sub(r.begun)
	if age < span {
		return false, false
	}
	flows = s.Moved >= 0 && r.moved >= 0 && float64(s.Moved-r.moved) >= Flow*age.Seconds()
	before, does := r.does, r.doing()
	r.samples, r.ready, r.cores, r.begun, r.moved, r.does = 0, 0, 0, now, s.Moved, does
	return flows, before != does && before != unknown
}

// doing returns what the rank has done in the span.
func (r *rank) doing() activity {
	cores, ready := r.cores/float64(r.samples), float64(r.ready)/float64(r.samples)
	switch {
	case cores >= computes || ready > 0.5:
		return computing
	case cores < waits || r.does == unknown:
		return waiting
	}
	return r.does
}

// judge returns a suspicion if there is a reason.
func (w *Watch) judge(now time.Time, ranks []Sample) *Suspicion {
	if now.Sub(w.alive) < w.patience || now.Sub(w.steady) < Steady {
		return nil
	}
	s := &Suspicion{Since: w.alive, Raised: now}
	for _, sample := range ranks {
		switch w.ranks[sample.Rank].does {
		case waiting:
			s.Waiting = append(s.Waiting, sample.Rank)
		case computing:
			s.Computing = append(s.Computing, sample.Rank)
		default:
			return nil
		}
	}
	switch n, m := len(s.Waiting), len(s.Computing); {
	case n == 0:
		return nil
	case n < m:
		s.Differ = s.Waiting
	case m < n:
		s.Differ = s.Computing
	}
	return s
}

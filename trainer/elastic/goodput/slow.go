package goodput

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Limits of a [SlowWatch].
const (
	// SlowAfter is the time for which a worker is slow before it is reported.
	SlowAfter = 3 * time.Second
	// SlowOver is the time after which a reported worker that is not slow counts as one no more.
	SlowOver = 15 * time.Second
)

// Pace returns how slow a worker is as text, as in "takes 2.1 times the median step: 210 ms, the
// others 100 ms".
func (s Slow) Pace() string {
	ms := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) + " ms" }
	return fmt.Sprintf("takes %.1f times the median step: %s, the others %s", s.Step/s.Median, ms(s.Step),
		ms(s.Median))
}

// SlowWatch decides which slow workers are reported: those that [Account.Slow] has named for a
// while. The zero value watches nobody yet.
type SlowWatch struct{ seen map[int]*sighting }

// sighting is a worker that was slow a moment ago.
type sighting struct {
	since, last time.Time
	reported    bool
	slow        Slow // as it was reported
}

// SlowEnd is the end of a report.
type SlowEnd struct {
	Worker int
	// After is the time from when it was slow first to when it was last.
	After time.Duration
}

// Observe takes the workers that are slow now. It returns those that are to be reported, and the
// reports that are over.
func (w *SlowWatch) Observe(slow []Slow, now time.Time) (begun []Slow, over []SlowEnd) {
	for _, s := range slow {
		at := w.seen[s.Worker]
		if at == nil {
			if w.seen == nil {
				w.seen = make(map[int]*sighting)
			}
			at = &sighting{since: now}
			w.seen[s.Worker] = at
		}
		at.last = now
		if !at.reported && now.Sub(at.since) >= SlowAfter {
			at.reported, at.slow = true, s
			begun = append(begun, s)
		}
	}
	for number, at := range w.seen {
		switch idle := now.Sub(at.last); {
		case at.reported && idle >= SlowOver:
			over = append(over, SlowEnd{number, at.last.Sub(at.since)})
			delete(w.seen, number)
		case !at.reported && idle > 0: // a moment only
			delete(w.seen, number)
		}
	}
	slices.SortFunc(over, func(a, b SlowEnd) int { return cmp.Compare(a.Worker, b.Worker) })
	return begun, over
}

// Reported returns the workers that are reported as slow, as they were then.
func (w *SlowWatch) Reported() (all []Slow) {
	for _, at := range w.seen {
		if at.reported {
			all = append(all, at.slow)
		}
	}
	slices.SortFunc(all, func(a, b Slow) int { return cmp.Compare(a.Worker, b.Worker) })
	return all
}

package journal

import (
	"maps"
	"slices"
)

// Bounds are the upper bounds of the buckets of a [Histogram], in seconds.
var Bounds = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Totals are counts over the whole life of a job.
type Totals struct {
	// Kinds counts entries by kind.
	Kinds map[Kind]int64 `json:"kinds,omitempty"`
	// Ends counts pods by the cause of their end, by role and cause as in "worker preempted".
	Ends map[string]int64 `json:"ends,omitempty"`
	// Lost counts those among Ends that nobody had ordered.
	Lost map[string]int64 `json:"lost,omitempty"`
	// Recoveries has the seconds from losses to the next progress.
	Recoveries Histogram `json:"recoveries,omitzero"`
}

// Histogram counts durations by buckets.
type Histogram struct {
	// Counts has the number of durations for each of [Bounds], above the bound before, and of those
	// that are longer. It is nil if nothing was counted.
	Counts []int64 `json:"counts,omitempty"`
	Sum    float64 `json:"sum,omitempty"` // in seconds
}

// Add counts a duration in seconds.
func (h *Histogram) Add(seconds float64) {
	if len(h.Counts) != len(Bounds)+1 {
		h.Counts = make([]int64, len(Bounds)+1)
		h.Sum = 0
	}
	at, _ := slices.BinarySearch(Bounds, seconds)
	h.Counts[at]++
	h.Sum += seconds
}

// Count returns the number of durations.
func (h *Histogram) Count() (n int64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// count adds an entry.
func (t *Totals) count(e Entry) {
	if t.Kinds == nil {
		t.Kinds = make(map[Kind]int64)
	}
	t.Kinds[e.Kind]++
	end := roleOf(e.Pod) + " " + e.Cause
	switch e.Kind {
	case PodLost, PodFailed, PodRejected:
		if t.Lost == nil {
			t.Lost = make(map[string]int64)
		}
		t.Lost[end]++
		fallthrough
	case PodEnded:
		if t.Ends == nil {
			t.Ends = make(map[string]int64)
		}
		t.Ends[end]++
	case Recovered:
		t.Recoveries.Add(e.Seconds)
	}
}

// clone returns a copy that shares nothing with t.
func (t Totals) clone() Totals {
	t.Kinds, t.Ends, t.Lost = maps.Clone(t.Kinds), maps.Clone(t.Ends), maps.Clone(t.Lost)
	t.Recoveries.Counts = slices.Clone(t.Recoveries.Counts)
	return t
}

package curve

import (
	"math"
	"slices"
)

// Snapshot is a curve as a record of the master has it: columns, which are short as JSON.
type Snapshot struct {
	// Start is the time of the first sample, Every the length of a slot, in milliseconds.
	Start int64 `json:"start,omitempty"`
	Every int64 `json:"every,omitempty"`
	// Slots has the number of each point's slot, less that of the point before.
	Slots []int64 `json:"slots,omitempty"`
	// Records, Workers and Rates have a value for each point, as Samples has the number of samples.
	Records []int64   `json:"records,omitempty"`
	Workers []int     `json:"workers,omitempty"`
	Rates   []float32 `json:"rates,omitempty"`
	Samples []int     `json:"samples,omitempty"`
	// Losses has the mean of the losses of each point, and Lossy their number.
	Losses []float32 `json:"losses,omitempty"`
	Lossy  []int     `json:"lossy,omitempty"`
	// Metrics are the results of evaluations.
	Metrics []Series `json:"metrics,omitempty"`
}

// Series has the values of one metric.
type Series struct {
	Name string `json:"name"`
	// Slots has the number of each value's slot, less that of the value before.
	Slots  []int64   `json:"slots"`
	Values []float32 `json:"values"`
}

// Snapshot returns what [Restore] takes.
func (c *Curve) Snapshot() Snapshot {
	s := Snapshot{Start: c.start, Every: c.length}
	var before int64
	for _, p := range c.points {
		s.Slots = append(s.Slots, p.slot-before)
		before = p.slot
		s.Records, s.Workers = append(s.Records, p.records), append(s.Workers, p.workers)
		s.Rates, s.Samples = append(s.Rates, p.rate), append(s.Samples, p.samples)
		s.Losses, s.Lossy = append(s.Losses, p.loss), append(s.Lossy, p.losses)
	}
	for _, m := range c.metrics {
		one, before := Series{Name: m.name}, int64(0)
		for _, v := range m.values {
			one.Slots, one.Values = append(one.Slots, v.slot-before), append(one.Values, v.value)
			before = v.slot
		}
		s.Metrics = append(s.Metrics, one)
	}
	return s
}

// Restore returns the curve of a snapshot. A snapshot of another version, or a damaged one, makes a
// curve that keeps its limits.
func Restore(s Snapshot) Curve {
	if s.Every < first || s.Every > mostLength || s.Start < 0 || s.Start > mostStart {
		return Curve{}
	}
	c := Curve{start: s.Start, length: s.Every}
	n := min(len(s.Slots), len(s.Records), len(s.Workers), len(s.Rates), len(s.Samples), len(s.Losses), len(s.Lossy))
	slot := int64(-1)
	for i, step := range s.Slots[:n] {
		next, ok := advanced(slot, step, i == 0)
		if !ok || next > mostSlot(c.length) {
			break
		}
		slot = next
		c.points = append(c.points, point{slot: slot, records: max(s.Records[i], 0),
			workers: min(max(s.Workers[i], 0), mostWorkers),
			rate:    finite(float64(s.Rates[i])), samples: min(max(s.Samples[i], 1), mostWeight),
			loss: finite(float64(s.Losses[i])), losses: min(max(s.Lossy[i], 0), mostWeight)})
	}
	c.points = slices.Delete(c.points, 0, max(0, len(c.points)-Most))
	for _, one := range s.Metrics {
		m, slot := c.metric(one.Name), int64(-1)
		if m == nil || len(m.values) > 0 {
			continue
		}
		for i, step := range one.Slots[:min(len(one.Slots), len(one.Values))] {
			next, ok := advanced(slot, step, i == 0)
			if !ok || next > mostSlot(c.length) {
				break
			}
			slot = next
			m.add(value{slot, finite(float64(one.Values[i]))})
		}
	}
	return c
}

// advanced returns the slot that follows another one by a number of slots; the first has the number
// itself. ok is false if slots would not rise.
func advanced(slot, step int64, first bool) (next int64, ok bool) {
	switch {
	case first:
		return step, step >= 0
	case step < 1 || step > math.MaxInt64-slot:
		return 0, false
	}
	return slot + step, true
}

// mostSlot returns the highest number of a slot whose time can be counted.
func mostSlot(length int64) int64 { return math.MaxInt64 / 4 / length }

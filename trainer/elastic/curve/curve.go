package curve

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// Limits of a curve.
const (
	// Most is the largest number of points.
	Most = 150
	// MostNames is the largest number of metrics, and MostMeasured that of the values of each.
	MostNames    = 4
	MostMeasured = 36
	// MostBytes is the largest size of a [Snapshot] as JSON.
	MostBytes = 16 << 10
)

const (
	// first is the length of the slots of a new curve, in milliseconds.
	first = 1000
	// mostLength is the largest length of a slot, in milliseconds.
	mostLength = 1 << 40
	// mostName is the largest size of the name of a metric as JSON.
	mostName = 42
	// mostStart is the latest time of a first sample, in milliseconds since 1970.
	mostStart = 1 << 45
	// mostWorkers is the largest number of workers.
	mostWorkers = 99_999
	// mostWeight is the largest weight of a mean: newer values count more from then on.
	mostWeight = 99_999
)

// Sample is the state of a job at one time.
type Sample struct {
	// Records is the number of records that are done.
	Records int64
	// Rate is the speed in records per second.
	Rate float64
	// Loss of the model; NaN: it is not known.
	Loss float64
	// Workers is the number of workers that run.
	Workers int
}

// Point is the state of a job in one slot.
type Point struct {
	Time    time.Time // end of the slot
	Records int64
	Rate    float64 // records per second
	Loss    float64 // NaN: not known
	Workers int     // the least
}

// Value is the result of an evaluation.
type Value struct {
	Time  time.Time
	Value float64
}

// Curve holds how a job has progressed. The zero value is that of a new job.
type Curve struct {
	// time of the first sample, and length of a slot, in milliseconds; 0: there is none
	start, length int64
	points        []point
	metrics       []metric
}

// point is a [Point] that further samples are added to.
type point struct {
	slot    int64 // number of the slot, from 0
	records int64
	workers int
	// means, and the number of values in them
	rate, loss      float32
	samples, losses int
}

// metric is the curve of one metric.
type metric struct {
	name   string
	values []value
}

type value struct {
	slot  int64
	value float32
}

// Observe adds a sample.
func (c *Curve) Observe(s Sample, now time.Time) {
	slot := c.slot(now)
	if n := len(c.points); n > 0 {
		slot = max(slot, c.points[n-1].slot)
	}
	p := point{slot: slot, records: max(s.Records, 0), workers: min(max(s.Workers, 0), mostWorkers),
		rate: finite(s.Rate), samples: 1}
	if !math.IsNaN(s.Loss) && !math.IsInf(s.Loss, 0) {
		p.loss, p.losses = finite(s.Loss), 1
	}
	if n := len(c.points); n > 0 && c.points[n-1].slot == slot {
		c.points[n-1] = merged(c.points[n-1], p)
	} else {
		c.points = append(c.points, p)
	}
	c.shrink()
}

// Measure adds the results of an evaluation. Metrics beyond [MostNames], and those of long names,
// are left out.
func (c *Curve) Measure(metrics map[string]float64, now time.Time) {
	slot := c.slot(now)
	names := make([]string, 0, len(metrics))
	for name := range metrics {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := metrics[name]
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		if m := c.metric(name); m != nil {
			m.add(value{slot, finite(v)})
		}
	}
	c.shrink()
}

// metric returns the curve of a metric, which it makes; nil: it has no place.
func (c *Curve) metric(name string) *metric {
	at := slices.IndexFunc(c.metrics, func(m metric) bool { return m.name == name })
	if at < 0 {
		if text, err := json.Marshal(name); err != nil || len(text) > mostName || len(c.metrics) == MostNames {
			return nil
		}
		at = len(c.metrics)
		c.metrics = append(c.metrics, metric{name: name})
	}
	return &c.metrics[at]
}

// add adds a value. Of two in a slot the newer counts; of too many each second is dropped, apart
// from the newest.
func (m *metric) add(v value) {
	n := len(m.values)
	switch {
	case n > 0 && v.slot <= m.values[n-1].slot:
		m.values[n-1].value = v.value
		return
	case n == MostMeasured:
		kept := m.values[:0]
		for i, old := range m.values {
			if i%2 == 1 {
				kept = append(kept, old)
			}
		}
		m.values = kept
	}
	m.values = append(m.values, v)
}

// slot returns the slot of a time; the first call begins the curve.
func (c *Curve) slot(now time.Time) int64 {
	if c.length == 0 {
		c.start, c.length = min(max(now.UnixMilli(), 0), mostStart), first
	}
	return max(0, now.UnixMilli()-c.start) / c.length
}

// shrink doubles the length of the slots while there are too many points.
func (c *Curve) shrink() {
	for len(c.points) > Most && c.length < mostLength {
		c.length *= 2
		kept := c.points[:0]
		for _, p := range c.points {
			p.slot /= 2
			if n := len(kept); n > 0 && kept[n-1].slot == p.slot {
				kept[n-1] = merged(kept[n-1], p)
			} else {
				kept = append(kept, p)
			}
		}
		c.points = kept
		for i := range c.metrics {
			m := &c.metrics[i]
			all := m.values
			m.values = all[:0]
			for _, v := range all {
				v.slot /= 2
				m.add(v)
			}
		}
	}
	if n := len(c.points); n > Most { // after 30,000 years
		c.points = slices.Delete(c.points, 0, n-Most)
	}
}

// merged returns the point of two, of which b is the newer one. It has the slot of a.
func merged(a, b point) point {
	return point{
		slot: a.slot, records: b.records, workers: min(a.workers, b.workers),
		rate:    mean(a.rate, a.samples, b.rate, b.samples),
		loss:    mean(a.loss, a.losses, b.loss, b.losses),
		samples: min(a.samples+b.samples, mostWeight), losses: min(a.losses+b.losses, mostWeight),
	}
}

// mean returns the mean of two means, of n and m values; 0 of none.
func mean(a float32, n int, b float32, m int) float32 {
	if n+m == 0 {
		return 0
	}
	return finite((float64(a)*float64(n) + float64(b)*float64(m)) / float64(n+m))
}

// finite returns a value that JSON can hold. It is the nearest of float32; 0 for NaN.
func finite(v float64) float32 {
	if math.IsNaN(v) {
		return 0
	}
	return float32(min(max(v, -math.MaxFloat32), math.MaxFloat32))
}

// Points returns the points, oldest first.
func (c *Curve) Points() []Point {
	all := make([]Point, 0, len(c.points))
	for _, p := range c.points {
		one := Point{Time: c.time(p.slot), Records: p.records, Rate: float64(p.rate), Loss: math.NaN(),
			Workers: p.workers}
		if p.losses > 0 {
			one.Loss = float64(p.loss)
		}
		all = append(all, one)
	}
	return all
}

// Every returns the length of a slot; 0: nothing was observed.
func (c *Curve) Every() time.Duration { return time.Duration(c.length) * time.Millisecond }

// Metrics returns the names of the metrics that were measured, in the order of their first values.
func (c *Curve) Metrics() []string {
	var names []string
	for _, m := range c.metrics {
		names = append(names, m.name)
	}
	return names
}

// Values returns the values of a metric, oldest first.
func (c *Curve) Values(name string) []Value {
	var all []Value
	for _, m := range c.metrics {
		if m.name != name {
			continue
		}
		for _, v := range m.values {
			all = append(all, Value{c.time(v.slot), float64(v.value)})
		}
	}
	return all
}

// time returns the end of a slot.
func (c *Curve) time(slot int64) time.Time { return time.UnixMilli(c.start + (slot+1)*c.length) }

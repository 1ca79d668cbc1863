package page

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
)

// chart is a curve over time. Its paths are in a square of 1000 times 100.
type chart struct {
	ID, Title string
	Now       string // the newest value
	// of the whole, for those who do not see it
	About     string
	Top, Base string // values at the edges
	From, To  moment
	Line      string // path
	Area      string // path of the area below
	Marks     []tick
	// Points has the position and the text of each point, as JSON, for the script.
	Points string
}

// tick is a mark at one time, in percent of the width.
type tick struct{ X, Title, Class string }

// sample is a value at a time, in milliseconds since 1970.
type sample struct {
	at    int64
	value float64 // NaN: none
}

// series is a curve to be drawn.
type series struct {
	id, title string
	samples   []sample
	zero      bool // the axis begins at zero
	steps     bool // a value holds until the next
}

// chartsOf returns the curves of a job.
func chartsOf(c *curve.Curve, losses []journal.Entry, now time.Time) (all []chart) {
	loss := series{id: "loss", title: "Loss"}
	speed := series{id: "speed", title: "Records per second", zero: true}
	workers := series{id: "workers", title: "Workers", zero: true, steps: true}
	for _, p := range c.Points() {
		at := p.Time.UnixMilli()
		loss.samples = append(loss.samples, sample{at, p.Loss})
		speed.samples = append(speed.samples, sample{at, p.Rate})
		workers.samples = append(workers.samples, sample{at, float64(p.Workers)})
	}
	if len(speed.samples) == 0 {
		return nil
	}
	from, to := speed.samples[0].at, speed.samples[len(speed.samples)-1].at
	every := c.Every().Milliseconds()
	for _, s := range []series{loss, speed, workers} {
		if s.known() {
			all = append(all, s.draw(from, to, every, losses, now))
		}
	}
	for i, name := range c.Metrics() {
		m := series{id: fmt.Sprint("metric-", i), title: plainWord(name)}
		for _, v := range c.Values(name) {
			m.samples = append(m.samples, sample{v.Time.UnixMilli(), v.Value})
		}
		all = append(all, m.draw(from, to, math.MaxInt64, losses, now))
	}
	return all
}

// known reports whether a value is not zero.
func (s *series) known() bool {
	for _, p := range s.samples {
		if p.value != 0 && !math.IsNaN(p.value) {
			return true
		}
	}
	return false
}

// bounds returns the values at the edges of a chart.
func (s *series) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range s.samples {
		if !math.IsNaN(p.value) {
			low, high = min(low, p.value), max(high, p.value)
		}
	}
	if s.zero {
		low = min(low, 0)
	}
	if low == high {
		high = low + max(math.Abs(low), 1)
	}
	return low, high
}

// draw returns the chart of a curve between two times. Samples that are further apart than a few
// times every are not connected.
func (s *series) draw(from, to, every int64, losses []journal.Entry, now time.Time) chart {
	low, high := s.bounds()
	c := chart{ID: s.id, Title: s.title, Top: figure(high), Base: figure(low), From: momentOf(from, now),
		To: momentOf(to, now), Marks: marksOf(losses, from, to, now)}
	var line, area strings.Builder
	type point struct {
		X int    `json:"x"`
		Y int    `json:"y"`
		T string `json:"t"`
	}
	var points []point
	var last sample
	open, begin := false, 0.0
	end := func() {
		if open {
			fmt.Fprintf(&area, "L%s 100L%s 100Z", number(place(last.at, from, to, 1000)), number(begin))
		}
		open = false
	}
	for _, p := range s.samples {
		if math.IsNaN(p.value) {
			continue
		}
		x, y := place(p.at, from, to, 1000), 96-92*(p.value-low)/(high-low)
		at := number(x) + " " + number(y)
		switch {
		case open && (every > math.MaxInt64/4 || p.at-last.at <= 4*every):
			if s.steps {
				at = "H" + number(x) + "V" + number(y)
			} else {
				at = "L" + at
			}
			line.WriteString(at)
			area.WriteString(at)
		default:
			end()
			open, begin = true, x
			line.WriteString("M" + at)
			area.WriteString("M" + number(x) + " 100L" + at)
		}
		last = p
		points = append(points, point{int(math.Round(x)), int(math.Round(y)),
			momentOf(p.at, now).Text + "  " + figure(p.value)})
	}
	end()
	text, _ := json.Marshal(points) // all fields have JSON
	c.Line, c.Area, c.Points, c.Now = line.String(), area.String(), string(text), figure(last.value)
	c.About = fmt.Sprintf("%s: %s now, between %s and %s since %s", s.title, c.Now, figure(s.least()), c.Top,
		c.From.Text)
	return c
}

// least returns the least value.
func (s *series) least() float64 {
	least := math.Inf(1)
	for _, p := range s.samples {
		if !math.IsNaN(p.value) {
			least = min(least, p.value)
		}
	}
	return least
}

// place returns where a time is on an axis of a length.
func place(at, from, to int64, length float64) float64 {
	if to <= from {
		return length
	}
	return length * min(1, max(0, float64(at-from)/float64(to-from)))
}

// mostMarks is the largest number of marks of a chart.
const mostMarks = 60

// marksOf returns the newest losses as marks. Of several at the same place there is one.
func marksOf(losses []journal.Entry, from, to int64, now time.Time) (all []tick) {
	seen := make(map[string]bool)
	for i := len(losses) - 1; i >= 0 && len(all) < mostMarks; i-- {
		e := losses[i]
		if e.UnixMs < from || e.UnixMs > to {
			continue
		}
		x := number(math.Round(place(e.UnixMs, from, to, 400)) / 4)
		if !seen[x] {
			seen[x] = true
			all = append(all, tick{x, momentOf(e.UnixMs, now).Text + " " + plainWord(e.Words()), classOf(e.Kind)})
		}
	}
	return all
}

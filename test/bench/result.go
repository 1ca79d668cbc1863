package main

import (
	"fmt"
	"math"
	"os"
	"slices"
)

// Sample summarizes the measurements of one side. N is 0 for a bar, which is not measured.
type Sample struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	N      int     `json:"n"`
}

// sampled summarizes measurements, in any order.
func sampled(values []float64) Sample {
	ascending := slices.Sorted(slices.Values(values))
	n := len(ascending)
	return Sample{Median: median(ascending), Least: ascending[0], Most: ascending[n-1], N: n}
}

// median returns the middle of ascending numbers, or the mean of the two middle ones.
func median(ascending []float64) float64 {
	n := len(ascending)
	return (ascending[(n-1)/2] + ascending[n/2]) / 2
}

// String returns the median, the minimum and the maximum.
func (s Sample) String() string {
	switch s.N {
	case 0, 1:
		return short(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s, n=%d)", short(s.Median), short(s.Least), short(s.Most), s.N)
}

// short returns a number with three digits, or all digits before the point.
func short(v float64) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Sprint(v)
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", max(digits, 0), v)
}

// Result is one row of build/bench.json.
type Result struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
	// threads of each process; 0 = irrelevant
	Threads int    `json:"threads,omitempty"`
	Ours    Sample `json:"ours"`
	// name and version, or the meaning of the bar
	Peer   string `json:"peer,omitempty"`
	Theirs Sample `json:"theirs"`
	// ratio of the medians, ours / theirs
	Ratio float64 `json:"ratio"`
	// Worst makes the ratio that of the worst measurement of ours.
	Worst bool `json:"worst,omitempty"`
	// Turns has the ratios of paired turns; N is 0 if the turns were not paired.
	Turns Sample `json:"turns"`
	// required ratio, as "<= 0.7"; "" = none
	Target string `json:"target,omitempty"`
	// why nothing was measured; "" = it was measured
	Skipped string `json:"skipped,omitempty"`
}

// missed reports whether the ratio misses the target.
func (r Result) missed() bool {
	if r.Skipped != "" || r.Target == "" {
		return false
	}
	var op string
	var bound float64
	if _, err := fmt.Sscan(r.Target, &op, &bound); err != nil || op != "<=" && op != ">=" {
		panic(fmt.Sprintf("target %q of %s: want <= or >=, and a number", r.Target, r.Name))
	}
	if op == "<=" {
		return !(r.Ratio <= bound)
	}
	return !(r.Ratio >= bound)
}

// verdict returns whether the target is met, in words.
func (r Result) verdict() string {
	switch {
	case r.Target == "":
		return ""
	case r.missed():
		return "MISSED"
	}
	return "ok"
}

// paired adds a row of paired turns.
func (b *bench) paired(r Result, ours, theirs []float64) {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / theirs[i]
	}
	r.Turns = sampled(ratios)
	b.compared(r, ours, theirs)
}

// compared adds a row that compares measurements of ours and of a peer.
func (b *bench) compared(r Result, ours, theirs []float64) {
	r.Ours, r.Theirs = sampled(ours), sampled(theirs)
	b.add(r)
}

// bar adds a row that compares measurements of ours with a fixed number.
func (b *bench) bar(r Result, bar float64, ours ...float64) {
	r.Ours, r.Theirs = sampled(ours), Sample{Median: bar, Least: bar, Most: bar}
	if r.Peer == "" {
		r.Peer = "bar"
	}
	if r.Target == "" {
		r.Target = "<= 1"
	}
	b.add(r)
}

// within adds two rows: the limits of the median and of the maximum of a time in seconds.
func (b *bench) within(name string, seconds []float64, middle, worst float64) {
	b.bar(Result{Name: name + ", median", Unit: "s"}, middle, seconds...)
	b.bar(Result{Name: name + ", worst", Unit: "s", Worst: true}, worst, seconds...)
}

func (b *bench) add(r Result) {
	ours := r.Ours.Median
	if r.Worst {
		ours = r.Ours.Most
	}
	r.Ratio = ours / r.Theirs.Median
	b.results = append(b.results, r)
	fmt.Fprintf(os.Stderr, "  %s: %v %s; %s %v: %s %s %s\n", r.Name, r.Ours, r.Unit, r.Peer, r.Theirs,
		short(r.Ratio), r.Target, r.verdict())
}

// skip records that a row is left out because its peer is missing, or the machine does not support
// it; it returns any other error.
func (b *bench) skip(name string, err error) error {
	if _, missing := err.(missingPeer); !missing {
		return err
	}
	b.results = append(b.results, Result{Name: name, Skipped: err.Error()})
	fmt.Fprintf(os.Stderr, "  %s: skipped: %v\n", name, err)
	return nil
}

// missingPeer is the reason why a row is left out.
type missingPeer string

func (m missingPeer) Error() string { return string(m) }

// side measures one side once.
type side func() (float64, error)

// turns lets all sides measure n times, in turn. The side that begins changes, so that no side
// always follows the same other one.
func turns(n int, sides ...side) ([][]float64, error) {
	found := make([][]float64, len(sides))
	for turn := range n {
		for i := range sides {
			at := (turn + i) % len(sides)
			x, err := sides[at]()
			if err != nil {
				return nil, err
			}
			found[at] = append(found[at], x)
		}
	}
	return found, nil
}

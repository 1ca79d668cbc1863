package main

import (
	"fmt"
	"math"
	"os"
	"slices"
)

// Sample is what one side was measured to do. N is 0 for a bar, which is no measurement.
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

// median returns the middle of ascending numbers, or the mean of the middle two.
func median(ascending []float64) float64 {
	n := len(ascending)
	return (ascending[(n-1)/2] + ascending[n/2]) / 2
}

// String returns the median, and the least and the most beside it.
func (s Sample) String() string {
	switch s.N {
	case 0, 1:
		return short(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s, n=%d)", short(s.Median), short(s.Least), short(s.Most), s.N)
}

// short writes three digits of a number, and all of those before the point.
func short(v float64) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Sprint(v)
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", max(digits, 0), v)
}

// Result is one row of build/bench.json.
type Result struct {
	Name    string  `json:"name"`
	Unit    string  `json:"unit,omitempty"`
	Threads int     `json:"threads,omitempty"` // of each process; 0: it does not matter
	Ours    Sample  `json:"ours"`
	Peer    string  `json:"peer,omitempty"` // name and version, or what the bar is
	Theirs  Sample  `json:"theirs"`
	Ratio   float64 `json:"ratio"` // ours / theirs, of the medians
	// Worst has the ratio be of the worst of ours.
	Worst bool `json:"worst,omitempty"`
	// Turns are the ratios of turns that were taken side by side; N is 0 where there are none.
	Turns   Sample `json:"turns"`
	Target  string `json:"target,omitempty"`  // what the ratio should be, as "<= 0.7"; "": nothing is expected
	Skipped string `json:"skipped,omitempty"` // why nothing was measured; "": it was
}

// missed reports whether the ratio is not what it should be.
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

// verdict says what became of the target.
func (r Result) verdict() string {
	switch {
	case r.Target == "":
		return ""
	case r.missed():
		return "MISSED"
	}
	return "ok"
}

// paired adds a row of turns that were taken side by side.
func (b *bench) paired(r Result, ours, theirs []float64) {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / theirs[i]
	}
	r.Turns = sampled(ratios)
	b.compared(r, ours, theirs)
}

// compared adds a row of measurements of ours and of a peer.
func (b *bench) compared(r Result, ours, theirs []float64) {
	r.Ours, r.Theirs = sampled(ours), sampled(theirs)
	b.add(r)
}

// bar adds a row of measurements of ours, which should be below a number, or above it.
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

// within adds two rows: what the median of seconds, and the worst of them, should be at most.
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
	fmt.Fprintf(os.Stderr, "  %s: %v %s; %s %v: %s %s %s\n", r.Name, r.Ours, r.Unit, r.Peer, r.Theirs, short(r.Ratio), r.Target, r.verdict())
}

// skip notes that a row is left out because its peer is missing, or the machine does not allow it; any other error is returned.
func (b *bench) skip(name string, err error) error {
	if _, missing := err.(missingPeer); !missing {
		return err
	}
	b.results = append(b.results, Result{Name: name, Skipped: err.Error()})
	fmt.Fprintf(os.Stderr, "  %s: skipped: %v\n", name, err)
	return nil
}

// missingPeer says why a row is left out.
type missingPeer string

func (m missingPeer) Error() string { return string(m) }

// side measures one side once.
type side func() (float64, error)

// turns has all sides measure n times, in turn; who begins changes, so that no side has always the other's warm or hot machine.
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

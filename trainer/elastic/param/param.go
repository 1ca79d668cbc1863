// Package param names the parameters of a model, and assigns them to parameter servers.
//
// A model's parameters are one flat []float32: first the trainable ones, then
// moving averages of what the steps observe (the statistics of BatchNorm). A [Layout]
// names the variables in it. A step computes an array of the same layout: gradients, then
// observations. The process that holds the values updates the averages ([Layout.Average]):
// if each worker did that from values that others have updated meanwhile, they would overshoot.
//
// N parameter servers hold N contiguous [Range]s of the array, cut by bytes and not by name.
// So no server holds more than its share, a large tensor is split like
// any other, and a push or a pull is one slice per server.
//
// Laws:
//
//  1. The ranges of a layout are disjoint, in order, and cover it.
//  2. No range is longer than the mean plus [Align] elements.
//  3. Every cut is a multiple of [Align].
package param

import (
	"fmt"
	"slices"
	"strings"
)

// Align is the number of elements that every cut is a multiple of: one cache line of float32.
const Align = 16

// Variable is one named tensor of a model.
type Variable struct {
	Name  string
	Shape []int
	// false: a moving average
	Trainable bool
	// of a moving average: the fraction of its value that each step keeps; in [0, 1)
	Momentum float64
}

// Len returns the number of elements, 1 for a scalar.
func (v Variable) Len() int {
	n := 1
	for _, d := range v.Shape {
		n *= d
	}
	return n
}

func (v Variable) String() string {
	dims := make([]string, len(v.Shape))
	for i, d := range v.Shape {
		dims[i] = fmt.Sprint(d)
	}
	return fmt.Sprintf("%s [%s]", v.Name, strings.Join(dims, " "))
}

// Layout lists the variables of a model in the order in which they lie in its flat array.
type Layout []Variable

// Len returns the number of elements of the flat array.
func (l Layout) Len() int {
	n := 0
	for _, v := range l {
		n += v.Len()
	}
	return n
}

// Trainable returns the number of elements that have a gradient: the first ones of the flat array.
func (l Layout) Trainable() int {
	n := 0
	for _, v := range l {
		if !v.Trainable {
			break
		}
		n += v.Len()
	}
	return n
}

// Validate returns an error that lists every rule that the layout breaks: names are not empty and
// occur once, dimensions are positive, the trainable variables come first, momenta are in range.
func (l Layout) Validate() error {
	var problems []string
	seen := make(map[string]bool, len(l))
	state := ""
	for i, v := range l {
		switch {
		case v.Name == "":
			problems = append(problems, fmt.Sprintf("variable %d has no name", i))
		case seen[v.Name]:
			problems = append(problems, fmt.Sprintf("%s occurs twice", v.Name))
		}
		seen[v.Name] = true
		if slices.ContainsFunc(v.Shape, func(d int) bool { return d <= 0 }) {
			problems = append(problems, fmt.Sprintf("%v has a dimension that is not positive", v))
		}
		// also if it is no number
		if !(v.Momentum >= 0 && v.Momentum < 1) || v.Trainable && v.Momentum != 0 {
			problems = append(problems,
				fmt.Sprintf("%s has momentum %v; want one in [0, 1), 0 if it is trainable", v.Name, v.Momentum))
		}
		if !v.Trainable && state == "" {
			state = v.Name
		}
		if v.Trainable && state != "" {
			problems = append(problems, fmt.Sprintf("%s is trainable and comes after %s, which is not", v.Name, state))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("layout: %s", strings.Join(problems, "; "))
	}
	return nil
}

// Match returns an error that names every variable in which other differs from l, nil if they are
// equal.
func (l Layout) Match(other Layout) error {
	var problems []string
	mine := make(map[string]Variable, len(l))
	for _, v := range l {
		mine[v.Name] = v
	}
	theirs := make(map[string]bool, len(other))
	for _, v := range other {
		theirs[v.Name] = true
		m, ok := mine[v.Name]
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("unknown parameter %v", v))
		case !slices.Equal(m.Shape, v.Shape):
			problems = append(problems, fmt.Sprintf("parameter %v has shape %v here", v, m.Shape))
		case m.Trainable != v.Trainable:
			problems = append(problems, fmt.Sprintf("parameter %v: trainable is %t here", v, m.Trainable))
		case m.Momentum != v.Momentum:
			problems = append(problems, fmt.Sprintf("parameter %v of momentum %v has %v here", v,
				v.Momentum, m.Momentum))
		}
	}
	for _, v := range l {
		if !theirs[v.Name] {
			problems = append(problems, fmt.Sprintf("parameter %v is missing", v))
		}
	}
	if len(problems) == 0 && !slices.EqualFunc(l, other, func(a, b Variable) bool { return a.Name == b.Name }) {
		problems = append(problems, "the same parameters in another order")
	}
	if len(problems) > 0 {
		return fmt.Errorf("layout: %s", strings.Join(problems, "; "))
	}
	return nil
}

// Average updates the moving averages among the elements [start, start+len(values))
// of the flat array: values = Momentum*values + (1-Momentum)*observed. It does not change
// trainable elements.
func (l Layout) Average(start int, values, observed []float32) {
	at := 0
	for _, v := range l {
		from, to := max(at, start), min(at+v.Len(), start+len(values))
		at += v.Len()
		if v.Trainable || from >= to {
			continue
		}
		keep, take := float32(v.Momentum), float32(1-v.Momentum)
		for i := from - start; i < to-start; i++ {
			values[i] = keep*values[i] + take*observed[i]
		}
	}
}

// At returns the name of the element at offset of the flat array, as "name[index]".
func (l Layout) At(offset int) string {
	at := offset
	for _, v := range l {
		if at < v.Len() {
			return fmt.Sprintf("%s[%d]", v.Name, at)
		}
		at -= v.Len()
	}
	return fmt.Sprintf("element %d", offset)
}

// Range is the elements [Start, End) of the flat array.
type Range struct{ Start, End int }

// Len returns the number of elements.
func (r Range) Len() int { return r.End - r.Start }

// Partition cuts n elements into k ranges, one per server.
// With more servers than cache lines the last ranges are empty.
func Partition(n, k int) []Range {
	if n < 0 || k < 1 {
		panic(fmt.Sprintf("param: partition of %d elements over %d servers", n, k))
	}
	ranges := make([]Range, k)
	lines := (n + Align - 1) / Align
	for i := range ranges {
		ranges[i] = Range{min(n, lines*i/k*Align), min(n, lines*(i+1)/k*Align)}
	}
	return ranges
}

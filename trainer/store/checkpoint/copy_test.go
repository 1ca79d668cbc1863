package checkpoint

import (
	"slices"
	"testing"
)

func part(start, n, slots int, first float32) Part {
	p := like(Part{Start: start, Values: make([]float32, n),
		Slots: slices.Repeat([][]float32{make([]float32, n)}, slots)})
	p.each(func(x []float32) {
		for i := range x {
			first++
			x[i] = first
		}
	})
	return p
}

func equal(a, b Part) bool {
	return a.Start == b.Start && slices.Equal(a.Values, b.Values) &&
		slices.EqualFunc(a.Slots, b.Slots, slices.Equal[[]float32])
}

// A copy equals its source, and reuses the memory if the size fits.
func TestCopy(t *testing.T) {
	var c Copy
	for i, p := range []Part{part(3, 100, 2, 0), part(4, 100, 2, 7), part(0, atOnce+5, 1, 0), part(9, 10, 0, 0), {}} {
		before := c.Values
		same := len(before) == len(p.Values)
		c.Take(p)
		if !equal(c.Part, p) || len(p.Values) > 0 && &c.Values[0] == &p.Values[0] {
			t.Errorf("copy %d is another", i)
		}
		if same && &c.Values[0] != &before[0] {
			t.Errorf("copy %d has other memory", i)
		}
	}
}

// A caller that prepares much memory is notified when it is ready; nothing is prepared twice.
func TestPrepare(t *testing.T) {
	var c Copy
	large := part(0, soon+1, 0, 0)
	ready := make(chan bool, 10)
	if !c.Prepare(large, func() { ready <- true }) {
		<-ready
	}
	memory := &c.Values[0]
	if !c.Prepare(large, func() { ready <- true }) || &c.Values[0] != memory {
		t.Error("what is ready is prepared again")
	}
	if c.Take(large); &c.Values[0] != memory || !equal(c.Part, large) {
		t.Error("it is not used")
	}
	if small := part(0, 50, 1, 0); !c.Prepare(small, nil) {
		t.Error("a little memory is not there at once")
	}
}

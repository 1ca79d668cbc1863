package main

import (
	"testing"
	"time"
)

// TestInStep checks that each step takes as long as the longest of its turn, and has the records of
// all.
func TestInStep(t *testing.T) {
	ring := func(seconds ...int) (steps []step) {
		var at time.Time
		for _, s := range seconds {
			at = at.Add(time.Duration(s) * time.Second)
			steps = append(steps, step{at: at, records: 10})
		}
		return steps
	}
	// the first only says when the second began
	rings := [][]step{ring(7, 1, 3, 1), ring(2, 2, 1, 1, 9)}
	if got := perSecond(inStep(rings)); got != 60.0/6 {
		t.Errorf("%v records/s of rings in step, want %v", got, 60.0/6)
	}
	if got := perSecond(rings[1]); got != 40.0/13 {
		t.Errorf("%v records/s of one ring, want %v", got, 40.0/13)
	}
}

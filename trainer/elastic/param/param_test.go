package param

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPartitionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<20).Draw(t, "elements")
		k := rapid.IntRange(1, 200).Draw(t, "servers")
		end := 0
		for i, r := range Partition(n, k) {
			if r.Start != end || r.Len() < 0 {
				t.Fatalf("range %d is %v, the one before ends at %d", i, r, end)
			}
			if float64(r.Len()) > float64(n)/float64(k)+Align {
				t.Fatalf("range %d has %d of %d elements, %d servers", i, r.Len(), n, k)
			}
			if r.End != n && r.End%Align != 0 {
				t.Fatalf("range %d is cut at %d", i, r.End)
			}
			end = r.End
		}
		if end != n {
			t.Fatalf("the ranges end at %d, not %d", end, n)
		}
	})
}

func layout() Layout {
	return Layout{
		{"conv/kernel", []int{3, 3, 1, 2}, true, 0},
		{"conv/bias", []int{2}, true, 0},
		{"bn/mean", []int{2}, false, 0.75},
	}
}

func TestLayout(t *testing.T) {
	l := layout()
	if l.Len() != 22 || l.Trainable() != 20 {
		t.Fatalf("Len %d, Trainable %d", l.Len(), l.Trainable())
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int]string{0: "conv/kernel[0]", 17: "conv/kernel[17]",
		18: "conv/bias[0]", 21: "bn/mean[1]", 22: "element 22"} {
		if got := l.At(offset); got != want {
			t.Errorf("At(%d) = %q, want %q", offset, got, want)
		}
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	l := Layout{{"a", []int{0}, true, 0}, {"s", nil, false, 1}, {"b", nil, true, 0.5},
		{"a", nil, false, 0}, {"", nil, false, 0}}
	err := l.Validate()
	for _, want := range []string{"a [0] has a dimension", "b is trainable and comes after s",
		"a occurs twice", "s has momentum 1;", "b has momentum 0.5;", "variable 4 has no name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestMatchNamesEveryDifference(t *testing.T) {
	if err := layout().Match(layout()); err != nil {
		t.Fatal(err)
	}
	other := Layout{{"conv/kernel", []int{5, 5, 1, 2}, true, 0}, {"conv/bias", []int{2}, false, 0},
		{"dense/kernel", []int{2}, false, 0}}
	err := layout().Match(other)
	for _, want := range []string{
		"parameter conv/kernel [5 5 1 2] has shape [3 3 1 2] here",
		"parameter conv/bias [2]: trainable is true here",
		"unknown parameter dense/kernel [2]",
		"parameter bn/mean [2] is missing",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	other = layout()
	other[2].Momentum = 0.5
	if err := layout().Match(other); err == nil ||
		!strings.Contains(err.Error(), "parameter bn/mean [2] of momentum 0.5 has 0.75 here") {
		t.Errorf("momentum: %v", err)
	}
	swapped := layout()
	swapped[0], swapped[1] = swapped[1], swapped[0]
	if err := layout().Match(swapped); err == nil || !strings.Contains(err.Error(), "another order") {
		t.Errorf("swapped: %v", err)
	}
}

func TestAverageOfAnyStretch(t *testing.T) {
	l := Layout{{"w", []int{3}, true, 0}, {"mean", []int{2}, false, 0.75}, {"last", []int{1}, false, 0}}
	observed := []float32{9, 9, 9, 8, 4, 7}
	want := []float32{1, 1, 1, 2.75, 1.75, 7}
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.IntRange(0, 6).Draw(t, "start")
		end := rapid.IntRange(start, 6).Draw(t, "end")
		values := []float32{1, 1, 1, 1, 1, 1}
		l.Average(start, values[start:end], observed[start:end])
		for i, v := range values {
			if i >= start && i < end && v != want[i] || (i < start || i >= end) && v != 1 {
				t.Fatalf("[%d, %d): %v", start, end, values)
			}
		}
	})
}

package zoo

import (
	"math"
	"slices"
	"testing"
)

func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		p            *Processor
		outputs      []float32
		header, rows []string
	}{
		{Outputs(), []float32{0.1, -2, 1e-9}, []string{"output_0", "output_1", "output_2"},
			[]string{"0.1", "-2", "1e-09"}},
		{Classes(), []float32{-1000, 0, 0, 1000}, []string{"class", "probability"}, []string{"3", "1"}},
		{Classes(), []float32{5, 5}, []string{"class", "probability"}, []string{"0", "0.5"}},
	} {
		row, err := c.p.Row([]string{"before"}, c.outputs, nil)
		if header := c.p.Header(len(c.outputs)); err != nil || !slices.Equal(header, c.header) ||
			!slices.Equal(row, append([]string{"before"}, c.rows...)) {
			t.Errorf("%v: %v, %v, %v", c.outputs, header, row, err)
		}
	}
	if row, err := Classes().Row(nil, nil, nil); err == nil {
		t.Errorf("a class of no logits: %v", row)
	}
	if row, err := Classes().Row(nil, []float32{float32(math.NaN()), 1}, nil); err != nil || row[1] != "NaN" {
		t.Errorf("of a model that has diverged: %v, %v", row, err)
	}
}

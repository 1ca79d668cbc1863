package zoo

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Outputs returns the processor that writes all outputs of a record, as output_0, output_1 and so
// on, with as many digits as they need.
func Outputs() *Processor {
	return &Processor{
		Header: func(outputs int) []string {
			names := make([]string, outputs)
			for i := range names {
				names[i] = fmt.Sprintf("output_%d", i)
			}
			return names
		},
		Row: func(fields []string, outputs []float32, _ []byte) ([]string, error) {
			for _, v := range outputs {
				fields = append(fields, number(v))
			}
			return fields, nil
		},
	}
}

// Classes returns the processor of a classifier whose outputs are logits: it writes the class of
// the largest one, and its probability.
func Classes() *Processor {
	return &Processor{
		Header: func(int) []string { return []string{"class", "probability"} },
		Row: func(fields []string, logits []float32, _ []byte) ([]string, error) {
			if len(logits) == 0 {
				return nil, errors.New("the model has no outputs")
			}
			best, sum := 0, 0.0
			for i, v := range logits {
				if v > logits[best] {
					best = i
				}
			}
			for _, v := range logits {
				sum += math.Exp(float64(v) - float64(logits[best]))
			}
			return append(fields, strconv.Itoa(best), number(float32(1/sum))), nil
		},
	}
}

func number(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }

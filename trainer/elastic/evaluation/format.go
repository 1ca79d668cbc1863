package evaluation

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Metric is the value of one metric.
type Metric struct {
	Name  string
	Value float64
}

// Metrics computes each metric from its summed state, by value.
func (r *Result) Metrics(value func(name string, state []float64) float64) []Metric {
	out := make([]Metric, len(r.States))
	for i, s := range r.States {
		out[i] = Metric{s.Name, value(s.Name, s.Sum)}
	}
	return out
}

// Format returns the line that the master logs, as ElasticDL's does:
//
//	Evaluation metrics[v=50]: {'accuracy': 0.2193}
func Format(version int64, metrics []Metric) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Evaluation metrics[v=%d]: {", version)
	for i, m := range metrics {
		if i > 0 {
			b.WriteString(", ")
		}
		name := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(m.Name)
		fmt.Fprintf(&b, "'%s': %s", name, number(m.Value))
	}
	b.WriteString("}")
	return b.String()
}

// number returns v as Python prints it, to four decimals, or four digits if it is small.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(v, 'f', -1, 64), "+"))
	case v != 0 && math.Abs(v) < 0.01 || math.Abs(v) >= 1e15:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	s := strings.TrimRight(strconv.FormatFloat(v, 'f', 4, 64), "0")
	if strings.HasSuffix(s, ".") {
		s += "0"
	}
	return s
}

package scale

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"math"
	"os"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files again; with the tag e2e: the figures of the docs")

var curve = []Sample{
	{0, nil},
	{time.Second, map[string]float64{"job 1": 13}},
	{2 * time.Second, map[string]float64{"job 1": 13}},
	{3 * time.Second, map[string]float64{"job 1": 13, "job 2": 11}},
	{5 * time.Second, map[string]float64{"job 2": 13}},
	{6 * time.Second, map[string]float64{}},
}

func TestChart(t *testing.T) {
	p := Panel{
		Title: "two jobs <elastic>", Owners: []string{"job 1", "job 2"}, Capacity: 24, Samples: curve,
		End: 6 * time.Second, Marks: []Mark{{5 * time.Second, "job 1 ends"}},
	}
	got := Chart(100, p, p)
	decoder := xml.NewDecoder(bytes.NewReader(got))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
	const golden = "testdata/chart.svg"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the chart is another than %s: look at it, and run with -update", golden)
	}
}

func TestMean(t *testing.T) {
	for _, c := range []struct {
		from, to time.Duration
		want     float64
	}{
		{0, 6 * time.Second, (2*13 + 2*24 + 13) / 6.0},
		{0, time.Second, 0},
		{3500 * time.Millisecond, 5500 * time.Millisecond, (1.5*24 + 0.5*13) / 2},
		{4 * time.Second, 10 * time.Second, (24 + 13) / 6.0},
	} {
		if got := mean(curve, c.from, c.to); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("mean from %v to %v is %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSampled(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Sample
	}{
		{[]float64{3}, Sample{3, 3, 3, 1}},
		{[]float64{4, 1}, Sample{2.5, 1, 4, 2}},
		{[]float64{9, 1, 2}, Sample{2, 1, 9, 3}},
	} {
		if got := sampled(c.values); got != c.want {
			t.Errorf("sampled(%v) = %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestMissed(t *testing.T) {
	for _, c := range []struct {
		ratio  float64
		target string
		want   bool
	}{{0.7, "<= 0.7", false}, {0.71, "<= 0.7", true}, {0.9, ">= 0.9", false}, {0.89, ">= 0.9", true}, {99, "", false}} {
		if got := (Result{Ratio: c.ratio, Target: c.target}).missed(); got != c.want {
			t.Errorf("%v of %q: missed is %v", c.ratio, c.target, got)
		}
	}
	if (Result{Skipped: "no peer", Target: "<= 1", Ratio: 2}).missed() {
		t.Error("what was skipped has missed its bar")
	}
}

// TestTurns checks that all sides measure equally often, and each begins some turns.
func TestTurns(t *testing.T) {
	var order strings.Builder
	note := func(name string, v float64) side {
		return func() (float64, error) { order.WriteString(name); return v, nil }
	}
	found, err := turns(3, note("a", 1), note("b", 2))
	if err != nil || len(found[0]) != 3 || len(found[1]) != 3 || found[0][2] != 1 || found[1][0] != 2 {
		t.Fatal(found, err)
	}
	if order.String() != "abbaab" {
		t.Errorf("the turns were %s", order.String())
	}
}

// TestPage checks that rows of two runs are written between the marks of a page, and every row into
// a chapter.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, results ...Result) string {
		text, err := json.Marshal(report{Machine: machine{CPU: "the " + name}, Results: results})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte("before\n"+generatedFrom+"\nold\n"+generatedTo+"\nafter\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	b := new(bench)
	b.paired(Result{Name: "step/x", Peer: "P 1.2", Unit: "ms", Target: "<= 0.4"}, []float64{1, 2}, []float64{2, 4})
	first := file("first", b.results[0], Result{Name: "ring/y", Ratio: 7},
		Result{Name: "goodput/z", Skipped: "one core"})
	second := file("second", Result{Name: "ring/y", Ratio: 8, Target: ">= 1"})
	if err := writePage(page, []string{first, second}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "\nafter\n",
		"| [1] x | 1.50 (1.00–2.00, n=2) ms | P 1.2 | 3.00 (2.00–4.00, n=2) ms | **0.500 (0.500–0.500)** | ≤ 0.4 |",
		"| [2] y |", "not measured: one core", "the second"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, not := range []string{"old", "[1] y"} {
		if strings.Contains(string(text), not) {
			t.Errorf("%q in\n%s", not, text)
		}
	}
	if err := os.WriteFile(page, []byte("nothing"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePage(page, []string{first}); err == nil {
		t.Error("a page without the lines was written")
	}
}

// TestChapters checks that the rows of every benchmark have a chapter of the page.
func TestChapters(t *testing.T) {
	for _, m := range benchmarks {
		found := false
		for _, c := range chapters {
			found = found || strings.HasPrefix(m.name, c.prefix)
		}
		if !found {
			t.Errorf("%s is in no chapter", m.name)
		}
	}
}

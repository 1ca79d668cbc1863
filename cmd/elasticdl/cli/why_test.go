package cli

import (
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func accounted() *wire.Accounting {
	return &wire.Accounting{WantedMs: 2_460_000, TrainingMs: 1_532_600,
		Lost: []*wire.LostTime{{Cause: "queue", Ms: 480_000}, {Cause: "start", Ms: 9_940},
			{Cause: "slowest_rank", Ms: 314_460}, {Cause: "rollback", Ms: 123_000}},
		Slow: []*wire.SlowWorker{{Worker: 3, StepMs: 210.04, MedianMs: 100}}}
}

func TestWhy(t *testing.T) {
	golden(t, "why", whyText(priced(accounted(), 0)))
	golden(t, "why-price", whyText(priced(accounted(), 2.5)))
	if got := whyText(&wire.Accounting{}); got != "The job has just started: there is nothing to tell yet.\n" {
		t.Error(got)
	}
	short := whyText(&wire.Accounting{WantedMs: 1000, TrainingMs: 995, Lost: []*wire.LostTime{{Cause: "data", Ms: 5}}})
	if !strings.HasPrefix(short, "99.5 % of 1s of workers trained; little was lost\n") {
		t.Error(short)
	}
	newer := whyText(&wire.Accounting{WantedMs: 2, TrainingMs: 1, Lost: []*wire.LostTime{{Cause: "new\ncause", Ms: 1}}})
	if strings.Contains(newer, "new\ncause") || !strings.Contains(newer, "of a newer version") {
		t.Error(newer)
	}
	for _, c := range goodput.Causes() {
		if w := causeWords[c]; w.name == "" || w.meaning == "" {
			t.Errorf("%v has no words", c)
		}
	}
}

func TestPrice(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "2.50": 2.5, "1e-3": 0.001} {
		if got, err := parsePrice(text); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-1", "NaN", "inf", "2,50", "$3"} {
		_, err := parsePrice(text)
		if err == nil || !strings.HasPrefix(err.Error(), "--price="+text+": expected a number above 0") {
			t.Errorf("%s: %v", text, err)
		}
	}
	a := priced(accounted(), 3)
	if a.Lost[0].Cost != 0.4 || a.Price != 3 || accounted().Lost[0].Cost != 0 {
		t.Errorf("%v", a)
	}
}

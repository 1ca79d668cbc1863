package eks

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// A version without support is refused for a new cluster, and only a warning for one that exists.
// Without a version in the settings nothing has to be edited when support ends.
func TestVersions(t *testing.T) {
	date := func(text string) time.Time {
		d, err := time.Parse(time.DateOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	all := []kubernetes{
		{"1.36", standardSupport, date("2027-08-02"), date("2028-08-02"), true},
		{"1.35", standardSupport, date("2027-03-27"), date("2028-03-27"), false},
		{"1.34", extendedSupport, date("2026-12-02"), date("2027-12-02"), false},
		{"1.31", "UNSUPPORTED", date("2025-11-26"), date("2026-11-26"), false},
	}
	for _, test := range []struct {
		day, version, kind, running string
		want, refused, note         string
	}{
		{"2026-12-10", "1.35", "STANDARD", "", "1.35", "", ""},
		{"2026-12-10", "", "STANDARD", "", "1.36", "", ""},
		{"2026-12-10", "", "STANDARD", "1.35", "1.35", "", ""},
		{"2026-12-10", "1.36", "STANDARD", "1.35", "1.36", "", ""},
		{"2026-12-10", "1.34", "STANDARD", "", "1.34", "its standard support ended on 2026-12-02: expected " +
			"one of 1.35, 1.36, or eks.supportType: EXTENDED", "a cluster that exists works on"},
		{"2026-12-10", "1.34", "EXTENDED", "", "1.34", "", ""},
		{"2026-12-10", "", "STANDARD", "1.34", "1.34", "its standard support ended", "until Amazon upgrades it"},
		{"2026-12-10", "1.31", "EXTENDED", "", "1.31",
			"does not support it any more (its support ended on 2026-11-26)", "works on"},
		{"2026-12-10", "1.20", "EXTENDED", "", "1.20",
			"Amazon does not offer it: expected one of 1.35, 1.36", "works on"},
		{"2026-12-10", "1.40", "STANDARD", "", "1.40", "Amazon does not offer it", "works on"},
		{"2027-03-01", "1.35", "STANDARD", "", "1.35", "", "the standard support of 1.35 ends on 2027-03-27"},
	} {
		e := &settings.EKS{Version: test.version, SupportType: test.kind}
		w := choose(all, e, test.running, date(test.day))
		if w.version != test.want || !about(w.refused, test.refused) || !about(w.note, test.note) {
			t.Errorf("%+v: %+v", test, w)
		}
	}
	if w := choose(all[1:], &settings.EKS{}, "", date("2026-12-10")); !strings.Contains(w.refused, "one of 1.35") {
		t.Errorf("without a default: %+v", w)
	}
}

// about reports whether a text has a part; "" is only the empty text.
func about(text, part string) bool {
	return (text == "") == (part == "") && strings.Contains(text, part)
}

package eks

import (
	"errors"
	"slices"
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

// Without a version in the settings no update asks for one: the cluster may have another than the
// state by now. A cluster that exists works on although its user may not list the versions, and a
// new one is not created.
func TestVersionOfACluster(t *testing.T) {
	const path = "version"
	denied := errors.New("AccessDeniedException")
	if w, err := unchecked(denied, &settings.EKS{}, ""); err != denied {
		t.Errorf("a new cluster: %+v, %v", w, err)
	}
	if w, err := unchecked(denied, &settings.EKS{}, "1.34"); err != nil || w != (wanted{"1.34", "", denied.Error()}) {
		t.Errorf("a cluster that exists: %+v, %v", w, err)
	}
	for _, test := range []struct {
		version string
		ignored bool
	}{{"", true}, {"1.35", false}} {
		s := own()
		s.EKS.Version = test.version
		v, err := record(s, true)
		if err != nil {
			t.Fatal(err)
		}
		c := v.named(clusterType, "cluster")[0]
		if slices.Contains(c.Options.IgnoreChanges, path) != test.ignored || text(c, path) != "1.35" {
			t.Errorf("%q: ignored are %v, the version is %s", test.version, c.Options.IgnoreChanges, text(c, path))
		}
	}
}

// about reports whether a text has a part; "" is only the empty text.
func about(text, part string) bool {
	return (text == "") == (part == "") && strings.Contains(text, part)
}

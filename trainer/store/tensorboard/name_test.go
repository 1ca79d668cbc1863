package tensorboard

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A new file is read after all others, whatever the clock of its machine shows.
func TestNameIsTheLast(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var names []string
	for _, at := range []time.Time{now, now, now.Add(-time.Hour), now.Add(time.Minute), {}, now} {
		name := Name(names, at, "my host/elasticdl-test-master-x2.local")
		if len(names) > 0 && name <= slices.Max(names) {
			t.Errorf("%s comes before %s", name, slices.Max(names))
		}
		if !strings.HasPrefix(name, "events.out.tfevents.17") || strings.ContainsAny(name, " /") {
			t.Errorf("%s", name)
		}
		names = append(names, name)
	}
	others := []string{"events.out.tfevents.1800000000.host.1.0", "checkpoint", "", "events.out.tfevents.x.y.elasticdl",
		"events.out.tfevents.9999999999.host.elasticdl"}
	if got := Own(append(others[:4:4], names...)); !slices.Equal(got, names) {
		t.Errorf("own are %q, want %q", got, names)
	}
	if got := Name(others, now, "h"); got != "events.out.tfevents.1700000000.h.elasticdl" {
		t.Errorf("%s", got)
	}
}

func FuzzName(f *testing.F) {
	f.Add("events.out.tfevents.1700000000.h.elasticdl", int64(1_700_000_000), "host")
	f.Fuzz(func(t *testing.T, name string, now int64, host string) {
		now = max(min(now, latest-1), -latest)
		next := Name([]string{name}, time.Unix(now, 0), host)
		if at, ok := timeOf(next); !ok || at > latest {
			t.Fatalf("%s", next)
		}
		if at, ok := timeOf(name); ok && at < latest && next <= name {
			t.Fatalf("%s comes before %s", next, name)
		}
	})
}

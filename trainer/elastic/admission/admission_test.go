package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLaws drives the machine with any course of admissions, at and between its deadlines.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const timeout = time.Minute
		now := time.Unix(1e9, 0)
		attempts := rapid.IntRange(0, 9).Draw(t, "attempts")
		core := rapid.IntRange(2, 9).Draw(t, "core")
		a := New(Policy{Timeout: timeout, Random: func() float64 {
			return rapid.Float64Range(0, 0.999).Draw(t, "random")
		}}, attempts)
		var since time.Time
		yielded := false
		for range 100 {
			waiting := rapid.IntRange(0, core).Draw(t, "waiting")
			f := Facts{Core: core, Waiting: waiting, Admitted: rapid.IntRange(0, core-waiting).Draw(t, "admitted"),
				Elastic: rapid.IntRange(0, 5).Draw(t, "elastic")}
			if f.Waiting == 0 {
				since = time.Time{}
			} else if since.IsZero() {
				since = now
			}
			switch did := a.Step(f, now); {
			case did == nil:
				if !yielded && f.Waiting > 0 && now.Sub(since) >= 3*timeout {
					t.Fatalf("waits for %v, and does not yield", now.Sub(since))
				}
			case f.Waiting == 0:
				t.Fatalf("nothing waits: %v", did)
			case yielded:
				t.Fatalf("after it has yielded: %v", did)
			case did.Verb == Shed:
				if now.Sub(since) < timeout/2 || did.Workers < 1 || did.Workers > min(f.Waiting, f.Elastic) {
					t.Fatalf("after %v with %+v: %v", now.Sub(since), f, did)
				}
			default:
				yielded = true
				if now.Sub(since) < timeout {
					t.Fatalf("yields after %v", now.Sub(since))
				}
				most := timeout << min(a.Attempts(), mostDoublings)
				if did.Pause < most/2 || did.Pause >= most || a.Attempts() < 1 {
					t.Fatalf("attempt %d: %v", a.Attempts(), did)
				}
			}
			if f.Waiting == 0 && f.Admitted == core && !yielded && a.Attempts() != 0 {
				t.Fatalf("%d attempts count, and the core is complete", a.Attempts())
			}
			if at, ok := a.Deadline(); ok && rapid.Bool().Draw(t, "at the deadline") {
				if !at.After(now) {
					t.Fatalf("the deadline is %v ago, and nothing was done", now.Sub(at))
				}
				now = at
			} else {
				now = now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "ms")) * time.Millisecond)
			}
		}
	})
}

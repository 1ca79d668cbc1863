package custody

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// TestCutModel checks a Cut with simulated holders. They follow its orders, and report late or
// twice, fail and are lost.
func TestCutModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holders := rapid.IntRange(1, 3).Draw(t, "holders")
		p := CutPolicy{
			Holders: holders, Steps: rapid.Int64Range(0, 5).Draw(t, "steps"),
			Interval: time.Duration(rapid.IntRange(0, 20).Draw(t, "interval")) * time.Second,
			Hold:     2 * time.Second, HoldMost: 7 * time.Second, Write: 30 * time.Second, Pause: 5 * time.Second,
		}
		now := time.Unix(1e9, 0)
		c := NewCut(p, 7, now)
		has := make([]ledger.Ledger, holders) // the ledger of each holder
		// the phase of each holder in the present cut
		phase := make([]Phase, holders)
		copies := make([]int64, holders) // the version of each holder's copy
		var number, version, covered, begun int64
		number = 7
		under, copied := false, false
		hold := p.Hold
		var since, rested time.Time
		ended := func() { under, copied = false, false }
		t.Repeat(map[string]func(*rapid.T){
			"train": func(t *rapid.T) {
				version++
				task := ledger.Task{Epoch: 1, Number: rapid.IntRange(0, 5).Draw(t, "task")}
				for i := range has {
					if rapid.IntRange(0, 3).Draw(t, "reaches") > 0 && phase[i] != Held {
						n, _ := has[i].Progress(task)
						has[i].Add(task, n+1, 3)
					}
				}
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			},
			"begin": func(t *rapid.T) {
				due := !under && version > covered && !now.Before(rested) &&
					(p.Steps > 0 && version >= covered+p.Steps || p.Interval > 0 && !now.Before(c.next))
				if got := c.Due(version, now); got != due {
					t.Fatalf("due: %t, want %t", got, due)
				}
				if !due {
					return
				}
				c.Begin(version, now)
				number++
				under, copied, begun, since = true, false, version, now
				clear(phase)
				if o := c.Order(); o.Number != number || o.Target != nil {
					t.Fatalf("the order is %+v, want number %d", o, number)
				}
			},
			"report": func(t *rapid.T) {
				i := rapid.IntRange(0, holders-1).Draw(t, "holder")
				o := c.Order()
				r := Report{Number: number, Version: max(0, version-rapid.Int64Range(0, 1).Draw(t, "behind"))}
				switch {
				case !under || rapid.IntRange(0, 9).Draw(t, "late") == 0:
					r.Number -= rapid.Int64Range(0, 2).Draw(t, "of before")
					r.Phase = Phase(rapid.IntRange(1, 4).Draw(t, "phase"))
					if under && r.Number == number {
						return
					}
				case phase[i] == None:
					r.Phase, r.Ledger = Held, has[i].Clone()
				case phase[i] == Held && o.Target != nil:
					if !o.Target.Covers(&has[i]) {
						t.Fatalf("holder %d has more than all are to have", i)
					}
					has[i].Union(o.Target) // it accepts the records that it lacks
					r.Phase = Copied
				case phase[i] == Copied:
					r.Phase, r.Shard = Written, Shard{File: "x", Bytes: int64(i + 1)}
				default:
					return
				}
				if under && r.Number == number && rapid.IntRange(0, 19).Draw(t, "fails") == 0 {
					r = Report{Number: number, Phase: Failed, Err: "disk full"}
				}
				done, failed := c.Heard(i, r, now)
				if r.Number != number || !under {
					if done != nil || failed != "" {
						t.Fatalf("a word of another cut counts: %v, %q", done, failed)
					}
					return
				}
				if again, _ := c.Heard(i, r, now); again != nil {
					t.Fatal("a word counts twice")
				}
				if r.Phase == Failed {
					if failed != "disk full" {
						t.Fatalf("failed: %q", failed)
					}
					rested = now.Add(p.Pause)
					ended()
					return
				}
				phase[i], copies[i] = r.Phase, r.Version
				least := phase[0]
				for _, p := range phase {
					least = min(least, p)
				}
				if least >= Copied && !copied {
					copied, since = true, now
				}
				if (done != nil) != (least == Written) {
					t.Fatalf("done: %v, the holders are at %v", done, phase)
				}
				if done == nil {
					return
				}
				ended()
				covered, hold = min(begun, slices.Max(copies)), p.Hold
				if done.Number != number || len(done.Shards) != holders {
					t.Fatalf("done: %+v", done)
				}
				for i, s := range done.Shards {
					if s.Bytes != int64(i+1) || !has[i].Covers(&done.Ledger) {
						t.Fatalf("holder %d has written %+v, and has not what is reported", i, s)
					}
				}
			},
			"tick": func(t *rapid.T) {
				late := under && (!copied && !now.Before(since.Add(hold)) || copied && !now.Before(since.Add(p.Write)))
				failed := c.Tick(now)
				if (failed != "") != late {
					t.Fatalf("given up: %q, late: %t", failed, late)
				}
				if late && !copied {
					hold = min(2*hold, p.HoldMost)
				}
				if late {
					rested = now.Add(p.Pause)
					ended()
				}
			},
			"unwritten": func(t *rapid.T) {
				if under || rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					return
				}
				newest := rapid.Int64Range(0, covered+1).Draw(t, "newest")
				covered = min(covered, newest)
				rested = now.Add(p.Pause)
				c.Unwritten(newest, now)
			},
			"back": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					version = max(0, version-rapid.Int64Range(0, 2).Draw(t, "steps"))
					begun, covered = min(begun, version), min(covered, version)
					c.Rollback(version)
				}
			},
			"lost": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					return
				}
				if under {
					rested = now.Add(p.Pause)
				}
				ended()
				version = min(version, covered)
				c.Rewind(version, now)
				covered = version
			},
			"": func(t *rapid.T) {
				ends := number
				if under {
					ends--
				}
				if o := c.Order(); (o.Number > 0) != under || c.Ended() != ends ||
					c.Covers(covered+1) || !c.Covers(covered) {
					t.Fatalf("the order is %+v; under way %t, copied %t", o, under, copied)
				}
			},
		})
	})
}

package custody

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// same reports whether two ledgers have the same records.
func same(a, b ledger.Ledger) bool { return a.Covers(&b) && b.Covers(&a) }

// TestRingModel compares a Ring with a model of its laws: which workers' leases are taken back,
// when, and with which of their records in the model.
func TestRingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRing(1, 0)
		var (
			world           rendezvous.World
			had             ledger.Ledger
			began           int64
			last            int // the last worker that joined
			safe            bool
			shared          bool
			gone            = map[int]string{}
			modelGeneration = int64(1)
			newest          int64
			present         int64
			first           int64
			snapshot        int64
		)
		settled := func(t *rapid.T, got []Settlement) {
			t.Helper()
			want := map[int]string{}
			if safe {
				for worker, fault := range gone {
					if !slices.ContainsFunc(world.Members, func(m rendezvous.Member) bool {
						return m.Worker == worker
					}) {
						want[worker] = fault
						delete(gone, worker)
					}
				}
			}
			back := map[int]string{}
			for _, s := range got {
				back[s.Worker] = s.Fault
				if !same(s.Ledger, had) {
					t.Fatalf("worker %d is credited %v, the world began with %v", s.Worker, s.Ledger, had)
				}
			}
			if !maps.Equal(back, want) {
				t.Fatalf("taken back %v, want %v; safe %v in %v", back, want, safe, world)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"form": func(t *rapid.T) {
				next := rendezvous.World{Generation: world.Generation + 1}
				for _, m := range world.Members {
					if rapid.Bool().Draw(t, "survives") {
						next.Members = append(next.Members, m)
					}
				}
				survivors := len(next.Members)
				for range rapid.IntRange(0, 2).Draw(t, "newcomers") {
					last++
					next.Members = append(next.Members, rendezvous.Member{Worker: last, Session: int64(last)})
				}
				for rank := range survivors {
					switch {
					case rank == survivors-1 && next.Sources == nil, rapid.Bool().Draw(t, "has the newest state"):
						next.Sources = append(next.Sources, rank)
					case rapid.Bool().Draw(t, "has another state"):
						next.Behind = append(next.Behind, rank)
					}
				}
				had = ledger.Ledger{}
				had.Add(ledger.Task{Epoch: 1, Number: 1}, rapid.Int64Range(0, 9).Draw(t, "records"), 10)
				version := rapid.Int64Range(0, 9).Draw(t, "version")
				safe, shared = next.Behind == nil, next.Sources == nil
				world = next
				got := r.Formed(next, had, version)
				if next.Sources == nil {
					first = next.Generation
				}
				newest, present = max(newest, version), version
				settled(t, got)
			},
			"reclaim": func(t *rapid.T) {
				worker := rapid.IntRange(0, last+1).Draw(t, "worker")
				trains, fault := rapid.Bool().Draw(t, "trains"),
					rapid.SampledFrom([]string{"", "crashed"}).Draw(t, "fault")
				got := r.Reclaim(worker, trains, fault)
				waits := trains && (!safe || slices.ContainsFunc(world.Members, func(m rendezvous.Member) bool {
					return m.Worker == worker
				}))
				if waits {
					if fault == "" {
						fault = gone[worker]
					}
					gone[worker] = fault
				}
				if waits != (len(got) == 0) || !waits &&
					(got[0].Worker != worker || got[0].Fault != fault || !same(got[0].Ledger, had)) {
					t.Fatalf("reclaimed %v, safe %v in %v", got, safe, world)
				}
			},
			"heard": func(t *rapid.T) {
				s := State{Generation: rapid.Int64Range(0, world.Generation).Draw(t, "generation"),
					Version:  rapid.Int64Range(0, 20).Draw(t, "version"),
					Snapshot: rapid.Int64Range(0, 20).Draw(t, "snapshot")}
				counts := s.Generation == 0 || s.Generation >= first
				news := counts && s.Snapshot > snapshot
				if counts {
					newest, present, snapshot = max(newest, s.Version), max(present, s.Version),
						max(snapshot, s.Snapshot)
				}
				got, back := r.Heard(s)
				if (got > 0) != news || news && got != s.Snapshot {
					t.Fatalf("%+v is news: %d, want %v", s, got, news)
				}
				if s.Generation == world.Generation && !shared {
					safe, shared = true, true
					settled(t, back)
				} else if len(back) > 0 {
					t.Fatalf("%+v takes back %v", s, back)
				}
			},
			"lost": func(t *rapid.T) {
				begun := rapid.Bool().Draw(t, "begun")
				before := gone
				gone, first = map[int]string{}, 1<<62
				base := rapid.Int64Range(0, 9).Draw(t, "version of the base")
				if begun || newest > began {
					modelGeneration++
					newest, present, began, snapshot, had = base, base, base, 0, ledger.Ledger{}
				}
				if got := r.Lost(begun, base); !maps.Equal(got, before) {
					t.Fatalf("lost before are %v, want %v", got, before)
				}
			},
			"": func(t *rapid.T) {
				if r.ModelGeneration() != modelGeneration || r.Version() != present {
					t.Fatalf("generation %d at version %d, want %d at %d", r.ModelGeneration(),
						r.Version(), modelGeneration, present)
				}
				for worker := range last + 1 {
					if _, ok := gone[worker]; r.Missed(worker) != ok {
						t.Fatalf("worker %d is missed: %v", worker, !ok)
					}
				}
			},
		})
	})
}

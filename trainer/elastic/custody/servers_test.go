package custody

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// A server that joins a restarted master keeps the values of the model generation that the record
// has, or of a later one, until it is lost.
func TestKeeps(t *testing.T) {
	const recorded = 3
	s := NewServers(4)
	s.Recover(recorded, 5, Base{})
	for i, holds := range []int64{recorded - 1, recorded, recorded + 1} {
		if _, err := s.Join(i, 1, 1, "a", holds); err != nil {
			t.Fatal(err)
		}
		if of, ok := s.Keeps(i); of != holds || ok != (holds >= recorded) {
			t.Errorf("server %d of generation %d keeps values of %d: %t", i, holds, of, ok)
		}
	}
	if _, ok := s.Keeps(3); ok {
		t.Error("a server that has not joined keeps values")
	}
	s.Leave(1, 1)
	if _, ok := s.Keeps(1); ok {
		t.Error("a server that is lost keeps values")
	}
}

// TestServersModel compares Servers with a model of its laws that keeps all reports.
func TestServersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(t, "servers")
		s := NewServers(n)
		type process struct {
			incarnation int
			joined      bool
		}
		processes := uint64(0)
		last := make([]uint64, n) // by server: number of its last process
		servers := make([]process, n)
		started := make([]int, n)
		modelGeneration := int64(1)
		// the base with which the next generation begins
		var kept Base
		// by generation: the base with which it began
		base := map[int64]Base{}
		// by server: the order that its present incarnation has acknowledged
		acknowledged := make(map[int]Order)
		index := rapid.IntRange(0, n-1)
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				i := index.Draw(t, "server")
				started[i]++
				processes++
				last[i] = processes
				lost, err := s.Join(i, started[i], last[i], "a", 0)
				if err != nil || lost != servers[i].joined {
					t.Fatalf("incarnation %d of %d joins: lost %v, %v; there was %+v", started[i], i,
						lost, err, servers[i])
				}
				if lost {
					modelGeneration++
				}
				servers[i] = process{started[i], true}
				delete(acknowledged, i)
			},
			"join again": func(t *rapid.T) {
				i := index.Draw(t, "server")
				if started[i] == 0 {
					t.Skip()
				}
				old := rapid.IntRange(1, started[i]).Draw(t, "incarnation")
				lost, err := s.Join(i, old, last[i], "a", 0)
				if known := old == servers[i].incarnation && servers[i].joined; lost ||
					(err == nil) != known || err != nil && !errors.Is(err, ErrReplaced) {
					t.Fatalf("incarnation %d of %d joins again: lost %v, %v; there is %+v", old, i, lost, err,
						servers[i])
				}
			},
			"start again in place": func(t *rapid.T) {
				i := index.Draw(t, "server")
				if !servers[i].joined {
					t.Skip()
				}
				processes++
				last[i] = processes
				lost, err := s.Join(i, servers[i].incarnation, last[i], "a", 0)
				if err != nil || !lost {
					t.Fatalf("another process of incarnation %d of %d joins: lost %v, %v",
						servers[i].incarnation, i, lost, err)
				}
				modelGeneration++
				delete(acknowledged, i)
			},
			"leave": func(t *rapid.T) {
				i := index.Draw(t, "server")
				gone := rapid.IntRange(0, started[i]).Draw(t, "incarnation")
				want := servers[i].joined && gone >= servers[i].incarnation
				if lost := s.Leave(i, gone); lost != want {
					t.Fatalf("incarnation %d of %d leaves: lost %v; there was %+v", gone, i, lost, servers[i])
				}
				if want {
					modelGeneration++
				}
				if gone >= servers[i].incarnation {
					servers[i] = process{gone, false}
					delete(acknowledged, i)
				}
			},
			"want": func(t *rapid.T) {
				s.Want(rapid.IntRange(0, 3).Draw(t, "contributors"),
					rapid.IntRange(0, 3).Draw(t, "settled"), int64(rapid.IntRange(0, 3).Draw(t, "release")),
					CutOrder{Number: rapid.Int64Range(0, 2).Draw(t, "cut")})
			},
			"kept": func(t *rapid.T) {
				kept = Base{Dir: "d", Number: rapid.Int64Range(1, 9).Draw(t, "checkpoint")}
				s.Kept(kept)
			},
			"rebase": func(t *rapid.T) {
				kept = Base{Dir: "d", Number: rapid.Int64Range(0, 9).Draw(t, "checkpoint")}
				s.Rebase(kept)
				modelGeneration++
			},
			"told": func(t *rapid.T) {
				i := index.Draw(t, "server")
				o, incarnation, due := s.Due(i)
				if due != (servers[i].joined && acknowledged[i] != o) {
					t.Fatalf("order %+v is due: %v; acknowledged is %+v of %+v", o, due, acknowledged[i], servers[i])
				}
				if due && incarnation != servers[i].incarnation {
					t.Fatalf("incarnation %d is to get the order, %d is present", incarnation, servers[i].incarnation)
				}
				of := rapid.IntRange(0, started[i]).Draw(t, "incarnation")
				s.Acknowledged(i, of, o, 1)
				if servers[i].joined && of == servers[i].incarnation {
					acknowledged[i] = o
				}
			},
			"heard": func(t *rapid.T) {
				i := index.Draw(t, "server")
				of, in := rapid.IntRange(0, started[i]).Draw(t, "incarnation"),
					int64(rapid.IntRange(1, int(modelGeneration)).Draw(t, "model generation"))
				snapshot := int64(rapid.IntRange(0, 4).Draw(t, "snapshot"))
				want := servers[i].joined && of == servers[i].incarnation && in == modelGeneration
				if got := s.Heard(i, of, in, 7, snapshot); got != want {
					t.Fatalf("incarnation %d of %d in generation %d of %d is heard: %v", of, i, in,
						modelGeneration, got)
				}
				if want && snapshot > 0 && snapshot <= acknowledged[i].Release {
					delete(acknowledged, i)
				}
			},
			"": func(t *rapid.T) {
				if s.ModelGeneration() != modelGeneration {
					t.Fatalf("generation %d, want %d", s.ModelGeneration(), modelGeneration)
				}
				if _, ok := base[modelGeneration]; !ok && modelGeneration > 1 {
					base[modelGeneration] = kept
				}
				for i := range n {
					if o, _, _ := s.Due(i); o.Base != base[modelGeneration] ||
						o.ModelGeneration != modelGeneration || s.Base() != base[modelGeneration] {
						t.Fatalf("order %+v in generation %d, which began with %+v", o, modelGeneration,
							base[modelGeneration])
					}
				}
				for epochs := range 4 {
					applied := true
					for i := range n {
						o, ok := acknowledged[i]
						applied = applied && ok && o.ModelGeneration == modelGeneration && o.Settled >= epochs
					}
					if s.Applied(epochs) != applied {
						t.Fatalf("%d epochs applied: %v; acknowledged is %+v in generation %d", epochs,
							!applied, acknowledged, modelGeneration)
					}
				}
			},
		})
	})
}

package custody

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestServersModel compares Servers with a model of its laws that keeps all reports.
func TestServersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(t, "servers")
		s := NewServers(n)
		type process struct {
			incarnation int
			here        bool
		}
		processes := uint64(0)
		last := make([]uint64, n) // by server: number of its last process
		there := make([]process, n)
		started := make([]int, n)
		life := int64(1)
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
				if err != nil || lost != there[i].here {
					t.Fatalf("launch %d of %d joins: lost %v, %v; there was %+v", started[i], i, lost, err, there[i])
				}
				if lost {
					life++
				}
				there[i] = process{started[i], true}
				delete(acknowledged, i)
			},
			"join again": func(t *rapid.T) {
				i := index.Draw(t, "server")
				if started[i] == 0 {
					t.Skip()
				}
				old := rapid.IntRange(1, started[i]).Draw(t, "launch")
				lost, err := s.Join(i, old, last[i], "a", 0)
				if known := old == there[i].incarnation && there[i].here; lost ||
					(err == nil) != known || err != nil && !errors.Is(err, ErrReplaced) {
					t.Fatalf("launch %d of %d joins again: lost %v, %v; there is %+v", old, i, lost, err, there[i])
				}
			},
			"start again in place": func(t *rapid.T) {
				i := index.Draw(t, "server")
				if !there[i].here {
					t.Skip()
				}
				processes++
				last[i] = processes
				lost, err := s.Join(i, there[i].incarnation, last[i], "a", 0)
				if err != nil || !lost {
					t.Fatalf("another process of launch %d of %d joins: lost %v, %v",
						there[i].incarnation, i, lost, err)
				}
				life++
				delete(acknowledged, i)
			},
			"leave": func(t *rapid.T) {
				i := index.Draw(t, "server")
				gone := rapid.IntRange(0, started[i]).Draw(t, "launch")
				want := there[i].here && gone >= there[i].incarnation
				if lost := s.Leave(i, gone); lost != want {
					t.Fatalf("launch %d of %d leaves: lost %v; there was %+v", gone, i, lost, there[i])
				}
				if want {
					life++
				}
				if gone >= there[i].incarnation {
					there[i] = process{gone, false}
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
				life++
			},
			"told": func(t *rapid.T) {
				i := index.Draw(t, "server")
				o, incarnation, due := s.Due(i)
				if due != (there[i].here && acknowledged[i] != o) {
					t.Fatalf("order %+v is due: %v; acknowledged is %+v of %+v", o, due, acknowledged[i], there[i])
				}
				if due && incarnation != there[i].incarnation {
					t.Fatalf("launch %d is to get the order, %d is present", incarnation, there[i].incarnation)
				}
				of := rapid.IntRange(0, started[i]).Draw(t, "launch")
				s.Told(i, of, o, 1)
				if there[i].here && of == there[i].incarnation {
					acknowledged[i] = o
				}
			},
			"heard": func(t *rapid.T) {
				i := index.Draw(t, "server")
				of, in := rapid.IntRange(0, started[i]).Draw(t, "launch"),
					int64(rapid.IntRange(1, int(life)).Draw(t, "life"))
				snapshot := int64(rapid.IntRange(0, 4).Draw(t, "snapshot"))
				want := there[i].here && of == there[i].incarnation && in == life
				if got := s.Heard(i, of, in, 7, snapshot); got != want {
					t.Fatalf("launch %d of %d in generation %d of %d is heard: %v", of, i, in, life, got)
				}
				if want && snapshot > 0 && snapshot <= acknowledged[i].Release {
					delete(acknowledged, i)
				}
			},
			"": func(t *rapid.T) {
				if s.Life() != life {
					t.Fatalf("generation %d, want %d", s.Life(), life)
				}
				if _, ok := base[life]; !ok && life > 1 {
					base[life] = kept
				}
				for i := range n {
					if o, _, _ := s.Due(i); o.Base != base[life] || o.Life != life || s.Base() != base[life] {
						t.Fatalf("order %+v in generation %d, which began with %+v", o, life, base[life])
					}
				}
				for epochs := range 4 {
					applied := true
					for i := range n {
						o, ok := acknowledged[i]
						applied = applied && ok && o.Life == life && o.Settled >= epochs
					}
					if s.Applied(epochs) != applied {
						t.Fatalf("%d epochs applied: %v; acknowledged is %+v in generation %d", epochs,
							!applied, acknowledged, life)
					}
				}
			},
		})
	})
}

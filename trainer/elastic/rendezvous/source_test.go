package rendezvous

import (
	"slices"
	"testing"
)

// A world begins with the newest state that a process has read if no member has one. If members
// have one, it is in doubt whether its records are counted: when the state that they were counted
// of is lost, or when none are counted although it is trained.
func TestBegin(t *testing.T) {
	for name, c := range map[string]struct {
		sources  []int
		versions []int64
		counted  Counted
		want     []int
		origin   Origin
	}{
		"the program starts":           {nil, []int64{0, 0}, Counted{}, nil, Kept},
		"one has read a checkpoint":    {nil, []int64{0, 7}, Counted{}, []int{1}, Read},
		"the newest checkpoint":        {nil, []int64{3, 7, 5}, Counted{Declared: true, Records: 9}, []int{1}, Read},
		"the same checkpoint":          {nil, []int64{7, 7}, Counted{Lost: true}, []int{0}, Read},
		"a member has a state":         {[]int{1}, []int64{9, 7}, Counted{Declared: true, Records: 4}, []int{1}, Kept},
		"it was lost, another is left": {[]int{1}, []int64{9, 7}, Counted{true, 4, true}, []int{1}, Uncounted},
		"without records":              {[]int{1}, []int64{9, 7}, Counted{Lost: true}, []int{1}, Kept},
		"trained, and none counted":    {[]int{1}, []int64{0, 7}, Counted{Declared: true}, []int{1}, Uncounted},
		"not trained":                  {[]int{1}, []int64{9, 0}, Counted{Declared: true}, []int{1}, Kept},
	} {
		w := World{Generation: 3, Sources: c.sources}
		for worker := range c.versions {
			w.Members = append(w.Members, Member{Worker: worker})
		}
		got, origin := Begin(w, c.versions, c.counted)
		if !slices.Equal(got.Sources, c.want) || origin != c.origin || got.Generation != 3 ||
			!slices.Equal(w.Sources, c.sources) {
			t.Errorf("%s: from %v, origin %v, want %v, %v", name, got.Sources, origin, c.want, c.origin)
		}
	}
}

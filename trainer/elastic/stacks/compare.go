package stacks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Rank describes one rank at one time.
type Rank struct {
	Rank int
	// Text is that of faulthandler; "": there is none.
	Text string
	// Why is the reason if there is no text: "no stacks: the process has ended".
	Why string
	// Call is the system call in which the main thread waits, as "sleep"; "": it runs, or the call
	// is not known.
	Call string
	// Looks and Moved have what further looks have found: see the type Looks.
	Looks int
	Moved bool
}

// Group is the ranks that stand at one place.
type Group struct {
	// Ranks are in their order.
	Ranks []int
	Point Point
	// Why is the reason if they have no stacks.
	Why string
	// Frames are the calls of the first rank, the innermost first, with short paths.
	Frames []Frame
	// Differs reports whether most others stand at another place.
	Differs bool
}

// Report compares the ranks.
type Report struct {
	// Groups are in the order of their sizes, the largest first.
	Groups []Group
	// Differ are the ranks that differ from most, in their order; none if no place has most.
	Differ []int
	// Debugged are the ranks that a debugger holds which runs in their process.
	Debugged []int
}

// Compare groups ranks by the places at which their main threads stand. Each rank occurs once.
func Compare(ranks []Rank) (r Report) {
	ranks = slices.SortedFunc(slices.Values(ranks), func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	type key struct {
		Point
		why string
	}
	groups := make(map[key]int)
	for _, rank := range ranks {
		g := Group{Why: rank.Why, Point: Point{Doing: rank.Call}}
		if main, ok := Parse(rank.Text).Main(); ok {
			if debugged(main.Frames) {
				r.Debugged = append(r.Debugged, rank.Rank)
			}
			for i := range main.Frames {
				main.Frames[i].File = clean(main.Frames[i].File)
			}
			g = Group{Point: telling(main.Frames, rank.Call), Frames: main.Frames}
		} else if g.Why == "" {
			g.Why = "no stacks: the process has written none"
		}
		k := key{g.Point, g.Why}
		i, ok := groups[k]
		if !ok {
			i = len(r.Groups)
			groups[k], r.Groups = i, append(r.Groups, g)
		}
		r.Groups[i].Ranks = append(r.Groups[i].Ranks, rank.Rank)
	}
	slices.SortStableFunc(r.Groups, func(a, b Group) int { return cmp.Compare(len(b.Ranks), len(a.Ranks)) })
	r.differ(len(ranks))
	r.shorten()
	return r
}

// differ marks the groups that differ from most of n ranks.
func (r *Report) differ(n int) {
	usual := r.usual(n)
	if usual == nil {
		return
	}
	for i := range r.Groups {
		if g := &r.Groups[i]; !usual(*g) {
			g.Differs = true
			r.Differ = append(r.Differ, g.Ranks...)
		}
	}
	slices.Sort(r.Differ)
}

// usual returns the condition that most of n ranks satisfy, nil if there is none: they stand at one
// line, do the same, or wait in collective operations, which all others do if one rank does not.
func (r *Report) usual(n int) func(Group) bool {
	conditions := []func(Group) bool{func(g Group) bool { return g.Why == "" && g.Point.collective() }}
	for _, at := range slices.Backward(r.Groups) {
		conditions = append(conditions, func(g Group) bool {
			return g.Why == at.Why && g.Point.Doing == at.Point.Doing
		})
	}
	for _, at := range slices.Backward(r.Groups) {
		conditions = append(conditions, func(g Group) bool { return g.Why == at.Why && g.Point == at.Point })
	}
	for i, is := range slices.Backward(conditions) {
		most := 0
		for _, g := range r.Groups {
			if is(g) {
				most += len(g.Ranks)
			}
		}
		if 2*most > n || i == 0 && n > 1 && most == n-1 {
			return is
		}
	}
	return nil
}

// shorten replaces the paths by short ones.
func (r *Report) shorten() {
	var paths []string
	for _, g := range r.Groups {
		for _, f := range g.Frames {
			paths = append(paths, f.File)
		}
	}
	ends := short(paths)
	for i := range r.Groups {
		g := &r.Groups[i]
		if file, ok := ends[g.Point.File]; ok {
			g.Point.File = file
		}
		for j := range g.Frames {
			g.Frames[j].File = ends[g.Frames[j].File]
		}
	}
}

const (
	// mostGroups limits the groups of a report's text.
	mostGroups = 10
	// mostSpans limits the ranges of ranks that the text names.
	mostSpans = 8
)

// String shows the groups on one line: "7 ranks: all_reduce at train.py:41; rank 3: sleep at
// data.py:12".
func (r Report) String() string {
	var parts []string
	left, ranks := 0, 0
	for i, g := range r.Groups {
		if i >= mostGroups {
			left, ranks = left+1, ranks+len(g.Ranks)
			continue
		}
		parts = append(parts, g.String())
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d ranks at %d other places", ranks, left))
	}
	return strings.Join(parts, "; ")
}

// Finding shows the groups on one line, those that differ first: "rank 3 differs: sleep at
// data.py:12; 7 ranks: all_reduce at train.py:41".
func (r Report) Finding() string {
	if len(r.Differ) == 0 {
		text := r.String()
		if len(r.Groups) > 1 {
			text = "no place has most of the ranks: " + text
		}
		return text
	}
	var differ, others []string
	for _, g := range r.Groups {
		switch {
		case !g.Differs:
			others = append(others, g.String())
		case len(differ) == mostGroups:
			differ = append(differ, "other ranks differ, too")
		case len(differ) < mostGroups && len(g.Ranks) == 1:
			differ = append(differ, g.names()+" differs: "+g.Place())
		case len(differ) < mostGroups:
			differ = append(differ, g.names()+" differ: "+g.Place())
		}
	}
	return strings.Join(append(differ, others[:min(len(others), mostGroups)]...), "; ")
}

// String shows the ranks and their place.
func (g Group) String() string { return g.names() + ": " + g.Place() }

// Place shows where the ranks stand, or why that is not known.
func (g Group) Place() string {
	if g.Why == "" {
		return g.Point.String()
	}
	if g.Point.Doing != "" {
		return g.Why + " (" + g.Point.Doing + ")"
	}
	return g.Why
}

// Names names sorted ranks: "rank 3", "ranks 0-2, 5".
func Names(ranks []int) string {
	spans := spansOf(ranks)
	if len(spans) > mostSpans {
		spans = append(spans[:mostSpans], "and others")
	}
	if len(ranks) == 1 {
		return "rank " + spans[0]
	}
	return "ranks " + strings.Join(spans, ", ")
}

// names shows the ranks: those of a small group, or of one that differs, by their numbers.
func (g Group) names() string {
	spans := spansOf(g.Ranks)
	switch {
	case len(g.Ranks) == 1:
		return "rank " + spans[0]
	case len(spans) <= mostSpans && (g.Differs || len(g.Ranks) <= 2):
		return "ranks " + strings.Join(spans, ", ")
	}
	return strconv.Itoa(len(g.Ranks)) + " ranks"
}

// spansOf shows sorted ranks as ranges, such as 0-2 and 5.
func spansOf(ranks []int) (spans []string) {
	for i := 0; i < len(ranks); {
		last := i
		for last+1 < len(ranks) && ranks[last+1] == ranks[last]+1 {
			last++
		}
		switch first := strconv.Itoa(ranks[i]); last - i {
		case 0:
			spans = append(spans, first)
		case 1:
			spans = append(spans, first, strconv.Itoa(ranks[last]))
		default:
			spans = append(spans, first+"-"+strconv.Itoa(ranks[last]))
		}
		i = last + 1
	}
	return spans
}

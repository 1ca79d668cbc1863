package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Limits of the timeline. More than that is drawn together.
const (
	mostLanes   = 40  // rows
	mostBars    = 600 // bars of all rows
	bandColumns = 160 // of a row that has several lanes
)

// incarnation is one incarnation of a pod.
type incarnation struct {
	pod    string
	role   pod.Role
	number int
	// Unix times in milliseconds; to 0: it lives
	from, to int64
	unknown  bool // since when is not known
	seen     bool // the status has it
	class    string
	end      string // how it has ended, or what it waits for
}

// incarnations has the incarnations of the pods of a job.
type incarnations struct {
	all map[string]*incarnation
}

// of returns an incarnation of a pod.
func (l *incarnations) of(name string, number int) *incarnation {
	key := name + " " + strconv.Itoa(number)
	one := l.all[key]
	if one == nil {
		one = &incarnation{pod: name, role: roleOf(name), number: number, class: "runs", unknown: true}
		l.all[key] = one
	}
	return one
}

// roleOf returns the role of a pod's name.
func roleOf(name string) pod.Role {
	switch role, _, _ := strings.Cut(name, "-"); role {
	case pod.PS.String():
		return pod.PS
	case pod.Worker.String():
		return pod.Worker
	}
	return pod.Master
}

// nameOf returns the name of a pod, as in "worker-1".
func nameOf(p *wire.PodStatus) string {
	return pod.ID{Role: pod.Role(p.Role), Index: int(p.Index)}.String()
}

// endClasses has the kinds of entries that end a pod.
var endClasses = map[journal.Kind]string{journal.PodLost: "lost", journal.PodFailed: "failed",
	journal.PodRejected: "failed", journal.PodEnded: "ended"}

// incarnationsOf returns the incarnations of the pods that the journal and the status know, by
// their beginnings.
func incarnationsOf(s *wire.JobStatus, entries []journal.Entry, begin, now int64) []*incarnation {
	l := incarnations{make(map[string]*incarnation)}
	for _, e := range entries {
		class, ends := endClasses[e.Kind]
		if e.Pod == "" || e.Kind != journal.PodJoined && !ends {
			continue
		}
		one := l.of(e.Pod, e.Incarnation)
		if ends {
			one.to, one.class, one.end = e.UnixMs, class, cmp.Or(e.Text, e.Cause)
		} else {
			one.from, one.unknown = e.UnixMs, false
		}
	}
	for _, p := range s.Pods {
		l.see(p)
	}
	all := make([]*incarnation, 0, len(l.all))
	for _, one := range l.all {
		if one.unknown {
			one.from = begin
		}
		one.from = max(one.from, begin)
		if one.to == 0 && !one.seen {
			// its end is no longer in the journal
			one.to, one.class, one.end = one.from, "ended", "its end is not known any more"
		}
		one.from = min(one.from, cmp.Or(one.to, now))
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *incarnation) int {
		return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.from, b.from), natural(a.pod, b.pod),
			cmp.Compare(a.number, b.number))
	})
	return all
}

// see adds what the status says of a pod.
func (l *incarnations) see(p *wire.PodStatus) {
	one := l.of(nameOf(p), int(p.Incarnation))
	one.seen = true
	if p.StartedUnixMs > 0 && (one.unknown || p.StartedUnixMs < one.from) {
		one.from, one.unknown = p.StartedUnixMs, false
	}
	switch {
	case one.to > 0: // the journal has its end
	case p.EndedUnixMs > 0 || pod.Deleted.Is(p.State) || pod.Failed.Is(p.State) || pod.Succeeded.Is(p.State):
		one.to, one.class, one.end = cmp.Or(p.EndedUnixMs, one.from, 1), "ended", p.Reason
		if pod.Failed.Is(p.State) {
			one.class = "lost"
		}
	case pod.Pending.Is(p.State):
		one.class, one.end = "pending", p.Reason
	case pod.Leaving.Is(p.State):
		one.class, one.end = "leaving", p.Reason
	}
}

// natural compares names of pods by their numbers.
func natural(a, b string) int {
	nameA, numberA, _ := strings.Cut(a, "-")
	nameB, numberB, _ := strings.Cut(b, "-")
	x, _ := strconv.Atoi(numberA)
	y, _ := strconv.Atoi(numberB)
	return cmp.Or(cmp.Compare(nameA, nameB), cmp.Compare(x, y))
}

// lanesOf returns rows of incarnations that do not overlap: a pod that replaces another follows it.
func lanesOf(all []*incarnation, now int64) (lanes [][]*incarnation) {
	var ends []int64
	for _, one := range all {
		at, same := -1, false
		for i, lane := range lanes {
			last := lane[len(lane)-1]
			switch {
			case last.role != one.role || ends[i] > one.from:
			case last.pod == one.pod:
				at, same = i, true
			case one.role == pod.Worker && !same && (at < 0 || ends[i] > ends[at]):
				at = i
			}
		}
		end := cmp.Or(one.to, now+1)
		if at < 0 {
			lanes, ends = append(lanes, []*incarnation{one}), append(ends, end)
			continue
		}
		lanes[at], ends[at] = append(lanes[at], one), end
	}
	return lanes
}

// timeline shows what has happened over time.
type timeline struct {
	From, To moment
	Ranges   []link
	Rows     []row
	About    string
	Hidden   bool // a band is not open
}

// link is a link to the page in another state.
type link struct {
	Text, Href string
	Current    bool
}

// row is a row of the timeline: of one lane, of many, or of the job.
type row struct {
	Label, Href string
	About       string
	Bars        []bar
	Ticks       []tick
	// Area is a path in a square of 1000 times 100: the number of pods that run.
	Area string
	Open bool // it belongs to the band above
}

// bar is a stretch of time, in percent of the width.
type bar struct{ X, Width, Class, Title string }

// axis is the time that is shown.
type axis struct {
	from, to int64
	now      time.Time
}

// bar returns a stretch of time as a bar; false if it is not shown.
func (a axis) bar(from, to int64, class, title string) (bar, bool) {
	if to < a.from || from > a.to {
		return bar{}, false
	}
	x, end := place(from, a.from, a.to, 100), place(to, a.from, a.to, 100)
	return bar{number(min(x, 99.9)), number(max(end-x, 0.1)), class, title}, true
}

// tick returns a time as a tick; false if it is not shown.
func (a axis) tick(at int64, class, title string) (tick, bool) {
	if at < a.from || at > a.to {
		return tick{}, false
	}
	return tick{number(place(at, a.from, a.to, 100)), title, class}, true
}

// row returns the row of one lane.
func (a axis) row(job string, lane []*incarnation) row {
	last := lane[len(lane)-1]
	r := row{Label: plainWord(last.pod), Href: logHref(job, last.pod)}
	var said []string
	for _, one := range lane {
		end := cmp.Or(one.to, a.to)
		title := fmt.Sprintf("%s, from %s", plainWord(one.pod), momentOf(one.from, a.now).Text)
		if one.to > 0 {
			title += " to " + momentOf(one.to, a.now).Text
		}
		if one.end != "" {
			title += ": " + plainWord(one.end)
		}
		b, ok := a.bar(one.from, end, one.class, title)
		if !ok {
			continue
		}
		r.Bars = append(r.Bars, b)
		if t, ok := a.tick(end, one.class, title); ok && one.to > 0 {
			r.Ticks = append(r.Ticks, t)
		}
		said = append(said, title)
	}
	r.About = strings.Join(said[max(0, len(said)-3):], "; ")
	return r
}

// band returns the row of several lanes: how many of their pods run, and ticks of the ends.
func (a axis) band(lanes [][]*incarnation) row {
	var change [bandColumns + 1]int
	ends := make(map[int][]*incarnation)
	lost := 0
	column := func(at int64) int { return int(math.Round(place(at, a.from, a.to, bandColumns))) }
	for _, lane := range lanes {
		for _, one := range lane {
			end := cmp.Or(one.to, a.to)
			if end < a.from || one.from > a.to || one.class == "pending" {
				continue
			}
			change[column(one.from)]++
			if one.to > 0 {
				change[column(end)]--
			}
			if one.class == "lost" || one.class == "failed" {
				ends[column(end)], lost = append(ends[column(end)], one), lost+1
			}
		}
	}
	r := row{About: fmt.Sprintf("%s, %d lost", count(len(lanes), "lane"), lost)}
	var path strings.Builder
	path.WriteString("M0 100")
	alive, before := 0, -1
	for i := range bandColumns + 1 {
		if alive += change[i]; alive != before {
			fmt.Fprintf(&path, "H%sV%s", number(1000*float64(i)/bandColumns),
				number(100-96*float64(alive)/float64(len(lanes))))
		}
		before = alive
	}
	path.WriteString("H1000V100Z")
	r.Area = path.String()
	for i := range bandColumns + 1 {
		if all := ends[i]; len(all) > 0 {
			title := fmt.Sprintf("%s %s: %s", momentOf(all[0].to, a.now).Text, plainWord(all[0].pod),
				plainWord(all[0].end))
			if len(all) > 1 {
				title += fmt.Sprintf(", and %d more", len(all)-1)
			}
			r.Ticks = append(r.Ticks, tick{number(100 * float64(i) / bandColumns), title, all[0].class})
		}
	}
	return r
}

// rows returns the rows of the pods, at most [mostLanes] and those of an open band.
func (a axis) rows(job string, lanes [][]*incarnation, o options) (all []row, hidden bool) {
	bars := 0
	for _, lane := range lanes {
		bars += len(lane)
	}
	if len(lanes) <= mostLanes && bars <= mostBars {
		for _, lane := range lanes {
			all = append(all, a.row(job, lane))
		}
		return all, false
	}
	size := 1
	for _, step := range []int{5, 10, 25, 50, 100, 250, 500, 1000, 10_000} {
		if size*mostLanes < len(lanes) {
			size = step
		}
	}
	for i := 0; i < len(lanes); i += size {
		some := lanes[i:min(i+size, len(lanes))]
		r := a.band(some)
		first, last := some[0], some[len(some)-1]
		r.Label, r.Href = plainWord(first[len(first)-1].pod), o.with("band", strconv.Itoa(i))
		if size > 1 {
			r.Label += " … " + plainWord(last[len(last)-1].pod)
		}
		open := o.Band == i
		if open {
			r.Href = o.with("band", "")
		}
		all = append(all, r)
		if open {
			for _, lane := range some[:min(len(some), 2*mostLanes)] {
				one := a.row(job, lane[max(0, len(lane)-mostLanes):])
				one.Open = true
				all = append(all, one)
			}
		}
	}
	return all, true
}

// jobRow returns the row of the job: recoveries, waits, worlds, checkpoints and rollbacks.
func (a axis) jobRow(entries []journal.Entry) row {
	r := row{Label: "job"}
	for _, e := range entries {
		title := momentOf(e.UnixMs, a.now).Text + " " + plainWord(e.Words())
		class := ""
		switch e.Kind {
		case journal.Recovered, journal.Continued:
			class = map[journal.Kind]string{journal.Recovered: "recovery", journal.Continued: "wait"}[e.Kind]
			if b, ok := a.bar(e.UnixMs-int64(e.Seconds*1000), e.UnixMs, class, title); ok {
				r.Bars = append(r.Bars, b)
			}
			continue
		case journal.WorldFormed:
			class = "world"
		case journal.CheckpointWritten:
			class = "checkpoint"
		case journal.TrainingRolledBack, journal.TrainingStartedOver:
			class = "rollback"
		case journal.MasterLost, journal.TrainingFailed:
			class = "failed"
		}
		if class == "" {
			continue
		}
		if t, ok := a.tick(e.UnixMs, class, title); ok {
			r.Ticks = append(r.Ticks, t)
		}
	}
	r.Bars = r.Bars[max(0, len(r.Bars)-mostMarks):]
	r.Ticks = r.Ticks[max(0, len(r.Ticks)-4*mostMarks):]
	r.About = fmt.Sprintf("%s, %s", count(len(r.Bars), "recovery or wait"), count(len(r.Ticks), "mark"))
	return r
}

// ranges are the ranges of the timeline that can be chosen.
var ranges = []struct {
	name string
	time.Duration
}{{"5m", 5 * time.Minute}, {"1h", time.Hour}, {"24h", 24 * time.Hour}}

// timelineOf returns the timeline of a job.
func timelineOf(s *wire.JobStatus, entries []journal.Entry, o options, now time.Time) timeline {
	to := cmp.Or(s.EndedUnixMs, now.UnixMilli())
	begin := to
	if s.StartedUnixMs > 0 {
		begin = min(begin, s.StartedUnixMs)
	}
	if len(entries) > 0 {
		begin = min(begin, entries[0].UnixMs)
	}
	a := axis{begin, max(to, begin+1000), now}
	var t timeline
	for _, r := range ranges {
		if o.Range == r.name {
			a.from = max(begin, a.to-r.Milliseconds())
		}
		if a.to-begin > r.Milliseconds() {
			t.Ranges = append(t.Ranges, link{r.name, o.with("range", r.name), o.Range == r.name})
		}
	}
	if len(t.Ranges) > 0 {
		t.Ranges = append(t.Ranges, link{"all", o.with("range", ""), o.Range == ""})
	}
	t.From, t.To = momentOf(a.from, now), momentOf(a.to, now)
	starts := incarnationsOf(s, entries, begin, a.to)
	lanes := lanesOf(starts, a.to)
	rows, hidden := a.rows(s.Name, lanes, o)
	t.Rows, t.Hidden = append([]row{a.jobRow(entries)}, rows...), hidden
	t.About = fmt.Sprintf("%s of pods, %s", count(len(lanes), "row"), count(len(starts), "start"))
	return t
}

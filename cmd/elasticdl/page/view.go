package page

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Limits of the lists of a page.
const (
	mostRows    = 50
	mostEntries = 100
	mostWord    = 1000 // bytes of a text
)

// options is the state of a page that its address has.
type options struct {
	Filter   string // of the events
	Warnings bool   // only events that are worth a warning
	Range    string // of the timeline
	// that is open, by its first lane; -1: none
	Band    int
	AllPods bool
	AllRows bool // of the events
	query   url.Values
}

// optionsOf reads the query of an address.
func optionsOf(q url.Values) options {
	band, err := strconv.Atoi(q.Get("band"))
	if err != nil || band < 0 {
		band = -1
	}
	filter, span := q.Get("q"), ""
	for _, r := range ranges {
		if q.Get("range") == r.name {
			span = r.name
		}
	}
	return options{Filter: plainWord(strings.ToValidUTF8(filter[:min(len(filter), 100)], "")),
		Warnings: q.Has("warnings"),
		Range:    span, Band: band, AllPods: q.Get("pods") == "all", AllRows: q.Get("events") == "all", query: q}
}

// with returns the address of the page with another value of a parameter; "": without it.
func (o options) with(name, value string) string {
	q := url.Values{}
	for _, known := range []string{"q", "warnings", "range", "band", "pods", "events"} {
		if o.query.Has(known) && known != name {
			q.Set(known, o.query.Get(known))
		}
	}
	if value != "" {
		q.Set(name, value)
	}
	return "?" + q.Encode()
}

// plainWord returns text of a job on one line, of a limited length, without invisible characters.
func plainWord(text string) string {
	text = logline.Escape(colours.ReplaceAllString(strings.Join(strings.Fields(text), " "), ""))
	if len(text) > mostWord {
		text = strings.ToValidUTF8(text[:mostWord], "") + "…"
	}
	return text
}

// jobHref returns the address of the page of a job.
func jobHref(job string) string { return "/job/" + url.PathEscape(job) }

// logHref returns the address of the log of a pod.
func logHref(job, pod string) string {
	return jobHref(job) + "/log/" + url.PathEscape(pod)
}

// tile is a figure of a job.
type tile struct{ Label, Value, Sub, Class string }

// judgement is a condition of a job.
type judgement struct {
	Type, Reason, Message string
	Yes                   bool
	Class                 string
	Since                 string
}

// jobView is a job as its page shows it.
type jobView struct {
	summary
	Charts     []chart
	Timeline   timeline
	Pods       []podView
	Others     int // pods that are not in Pods
	AllPods    string
	Entries    []entryView
	Older      int // entries that are not in Entries
	AllEntries string
	Kept       int // entries in the journal
	Options    options
	Model      model
}

// summary is the state of a job.
type summary struct {
	Name, State, Class string
	Href               string
	Type               string
	Reason             string
	Note               string // why this is not the state now
	Started            moment
	Elapsed            string
	Waiting            string
	// since when it makes no progress, and where its ranks stand
	Stuck       string
	Problems    []string
	Done, Total int64
	Percent     float64
	Progress    string
	Left        string
	Tiles       []tile
	Conditions  []judgement
	Runs        bool // it has processes of a program
	Ended       bool
}

// stateClass returns the class of a job's state.
func stateClass(state string) string {
	switch job.State(state) {
	case job.Succeeded:
		return "good"
	case job.Failed, job.Stopped:
		return "bad"
	case job.Running:
		return "live"
	}
	return "idle"
}

// viewOf returns a job as its page shows it.
func viewOf(v role.View, note string, o options, now time.Time) *jobView {
	s, entries := v.Status, v.Journal.Entries
	var lost []journal.Entry
	for _, e := range entries {
		if e.Kind.Warning() {
			lost = append(lost, e)
		}
	}
	c := curve.Restore(v.Curve)
	all := &jobView{summary: summaryOf(v, now), Charts: chartsOf(&c, lost, now),
		Timeline: timelineOf(s, entries, o, now), Options: o, Kept: len(entries), Model: modelOf(v, now)}
	all.Note = plainWord(note)
	all.Pods, all.Others = podsOf(s, o.AllPods, now)
	all.AllPods = o.with("pods", "all")
	all.Entries, all.Older = entriesOf(s.Name, entries, o, now)
	all.AllEntries = o.with("events", "all")
	return all
}

// summaryOf returns the state of a job.
func summaryOf(v role.View, now time.Time) summary {
	s := v.Status
	end := now
	if s.EndedUnixMs > 0 {
		end = time.UnixMilli(s.EndedUnixMs)
	}
	all := summary{Name: plainWord(s.Name), Href: jobHref(s.Name), State: plainWord(s.State),
		Class: stateClass(s.State),
		Type:  plainWord(cmp.Or(s.Strategy, s.Type)), Reason: plainWord(s.Reason), Waiting: plainWord(s.Waiting),
		Done: s.RecordsDone, Total: s.RecordsTotal, Runs: s.Type == string(job.Run),
		Ended: job.State(s.State).Ended()}
	if s.Stuck != "" {
		all.Stuck = plainWord("no progress for " + age(s.StuckSinceUnixMs, now) + ": " + s.Stuck)
	}
	if s.StartedUnixMs > 0 {
		all.Started = momentOf(s.StartedUnixMs, now)
		all.Elapsed = short(end.Sub(time.UnixMilli(s.StartedUnixMs)))
	}
	for _, p := range s.Problems {
		all.Problems = append(all.Problems, plainWord(p))
	}
	if s.RecordsTotal > 0 {
		all.Percent = min(100, max(0, 100*float64(s.RecordsDone)/float64(s.RecordsTotal)))
		all.Progress = fmt.Sprintf("%s of %s records", logline.Thousands(s.RecordsDone),
			logline.Thousands(s.RecordsTotal))
		if s.Epochs > 0 {
			all.Progress = fmt.Sprintf("epoch %d of %d, ", s.Epoch, s.Epochs) + all.Progress
		}
		if s.RecordsPerSecond > 0 && !all.Ended && s.RecordsDone < s.RecordsTotal {
			seconds := float64(s.RecordsTotal-s.RecordsDone) / s.RecordsPerSecond
			all.Left = "about " + short(time.Duration(min(seconds, 1e9)*float64(time.Second))) + " left"
		}
	} else if s.Epochs > 0 {
		all.Progress = fmt.Sprintf("epoch %d of %d", s.Epoch, s.Epochs)
		if s.RecordsDone > 0 {
			all.Progress += fmt.Sprintf(", %s records", logline.Thousands(s.RecordsDone))
		}
	}
	all.Tiles = tilesOf(v, now)
	for _, c := range s.Conditions {
		all.Conditions = append(all.Conditions, judgementOf(c, now))
	}
	return all
}

// judgementOf returns a condition of a job.
func judgementOf(c *wire.Condition, now time.Time) judgement {
	j := judgement{Type: plainWord(c.Type), Reason: plainWord(c.Reason), Message: plainWord(c.Message),
		Yes: c.Status == "True", Since: age(c.LastTransitionUnixMs, now)}
	bad := c.Type == journal.Degraded || c.Type == journal.Failed
	switch {
	case j.Yes && bad:
		j.Class = "bad"
	case j.Yes:
		j.Class = "good"
	case c.Type == journal.Running && c.Reason == journal.Waits,
		c.Type == journal.Admitted && c.Reason == journal.WaitingForQuota,
		c.Reason == "CheckpointFailed":
		j.Class = "warn"
	default:
		j.Class = "idle"
	}
	return j
}

// tilesOf returns the figures of a job.
func tilesOf(v role.View, now time.Time) []tile {
	s := v.Status
	works, starts := 0, 0
	for _, p := range s.Pods {
		switch {
		case p.Role != wire.Role_WORKER:
		case pod.Running.Is(p.State):
			works++
		case pod.Pending.Is(p.State):
			starts++
		}
	}
	workers := tile{Label: "Workers", Value: fmt.Sprintf("%d of %d", works, s.Workers)}
	if ended := job.State(s.State).Ended(); works < int(s.Workers) && !ended {
		workers.Class = "warn"
	}
	if starts > 0 {
		workers.Sub = fmt.Sprintf("%d starting", starts)
	}
	all := []tile{workers}
	if s.RecordsTotal > 0 || s.RecordsDone > 0 {
		all = append(all, tile{Label: "Records per second", Value: figure(s.RecordsPerSecond)})
	}
	if s.Loss != 0 {
		all = append(all, tile{Label: "Loss", Value: figure(float64(s.Loss))})
	}
	if s.WorldSize > 0 {
		all = append(all, tile{Label: "World", Value: strconv.Itoa(int(s.WorldSize)),
			Sub: fmt.Sprintf("number %d", s.World)})
	}
	totals := v.Journal.Totals
	lost := totals.Kinds[journal.PodLost] + totals.Kinds[journal.PodFailed] + totals.Kinds[journal.PodRejected]
	losses := tile{Label: "Pods lost", Value: logline.Thousands(lost)}
	if n := totals.Recoveries.Count(); n > 0 {
		losses.Sub = fmt.Sprintf("%s s to recover, on average", figure(totals.Recoveries.Sum/float64(n)))
	}
	all = append(all, losses)
	if s.Rollbacks > 0 {
		all = append(all, tile{Label: "Rollbacks", Value: strconv.Itoa(int(s.Rollbacks)), Class: "warn"})
	}
	if c := s.Checkpoint; c != nil {
		saved := tile{Label: "Checkpoint", Value: "none yet"}
		if c.Number > 0 {
			saved.Value, saved.Sub = age(c.UnixMs, now), fmt.Sprintf("ago, number %d", c.Number)
		}
		if c.Problem != "" {
			saved.Class = "warn"
		}
		all = append(all, saved)
	}
	return all
}

// podView is a pod as a row of the list.
type podView struct {
	Name, State, Class, Reason, Node string
	Href                             string
	Incarnation                      int32
	Age                              string
	Cores                            string
	Output, Quiet                    string
}

// podsOf returns the pods of a job, the living ones first, and the number of those that are left
// out.
func podsOf(s *wire.JobStatus, whole bool, now time.Time) (all []podView, others int) {
	sorted := slices.Clone(s.Pods)
	dull := func(p *wire.PodStatus) int { // those that need a look come first
		switch {
		case p.EndedUnixMs > 0:
			return 2
		case pod.Running.Is(p.State) && p.Reason == "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(sorted, func(a, b *wire.PodStatus) int {
		return cmp.Or(cmp.Compare(dull(a), dull(b)), cmp.Compare(b.EndedUnixMs, a.EndedUnixMs),
			cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index))
	})
	if !whole && len(sorted) > mostRows {
		sorted, others = sorted[:mostRows], len(sorted)-mostRows
	}
	for _, p := range sorted {
		all = append(all, podOf(s.Name, p, now))
	}
	return all, others
}

// podOf returns a pod as a row of the list.
func podOf(job string, p *wire.PodStatus, now time.Time) podView {
	v := podView{Name: nameOf(p), State: plainWord(p.State), Reason: plainWord(p.Reason), Node: plainWord(p.Node),
		Href: logHref(job, nameOf(p)), Incarnation: p.Incarnation}
	end := now
	if p.EndedUnixMs > 0 {
		end = time.UnixMilli(p.EndedUnixMs)
	}
	if p.StartedUnixMs > 0 {
		v.Age = short(end.Sub(time.UnixMilli(p.StartedUnixMs)))
	}
	switch {
	case pod.Running.Is(p.State):
		v.Class = "good"
	case pod.Failed.Is(p.State):
		v.Class = "bad"
	case pod.Pending.Is(p.State), pod.Leaving.Is(p.State):
		v.Class = "warn"
	default:
		v.Class = "idle"
	}
	cores, newest := 0.0, int64(0)
	for _, q := range p.Processes {
		cores += max(0, float64(q.Cores))
		if q.OutputUnixMs >= newest {
			newest, v.Output = q.OutputUnixMs, plainWord(q.Output)
		}
	}
	if len(p.Processes) > 0 {
		v.Cores, v.Quiet = strconv.FormatFloat(math.Round(cores*10)/10, 'f', 1, 64), age(newest, now)
	}
	return v
}

// entryView is an entry of the journal as a row of the list.
type entryView struct {
	N           int64
	At          moment
	Kind, Class string
	Pod, Href   string
	Text        string
}

// classOf returns the class of a kind of entries. Kinds that this program does not know are facts.
func classOf(k journal.Kind) string {
	switch {
	case k == journal.TrainingFailed || k == journal.PodFailed || k == journal.MasterLost:
		return "bad"
	case k == journal.TrainingSucceeded || k == journal.Recovered || k == journal.Continued:
		return "good"
	case k.Warning():
		return "warn"
	}
	return "fact"
}

// entriesOf returns the entries that the options select, newest first, and the number of older ones
// that are left out.
func entriesOf(job string, entries []journal.Entry, o options, now time.Time) (all []entryView, older int) {
	words := strings.Fields(strings.ToLower(o.Filter))
	for _, e := range slices.Backward(entries) {
		if o.Warnings && !e.Kind.Warning() {
			continue
		}
		text := strings.ToLower(string(e.Kind) + " " + e.Words() + " " + e.Cause)
		if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			continue
		}
		if len(all) == mostEntries && !o.AllRows {
			older++
			continue
		}
		v := entryView{N: e.N, At: momentOf(e.UnixMs, now), Kind: plainWord(string(e.Kind)), Class: classOf(e.Kind),
			Pod: plainWord(e.Pod), Text: plainWord(e.Text)}
		if e.Pod != "" {
			v.Href = logHref(job, e.Pod)
		}
		if text := metricsText(e.Metrics); text != "" {
			v.Text = strings.TrimSpace(v.Text + ": " + text)
		}
		all = append(all, v)
	}
	return all, older
}

// metricsText returns the results of an evaluation.
func metricsText(metrics map[string]float64) string {
	var all []string
	for name, v := range metrics {
		all = append(all, plainWord(name)+" "+figure(v))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// model describes the saved model, and the rollbacks.
type model struct {
	Facts []tile
	Rolls []entryView
}

// modelOf returns the checkpoints, rollbacks and evaluations of a job.
func modelOf(v role.View, now time.Time) (m model) {
	s := v.Status
	add := func(label, value string) {
		if value != "" {
			m.Facts = append(m.Facts, tile{Label: label, Value: plainWord(value)})
		}
	}
	if c := s.Checkpoint; c != nil {
		add("Checkpoints", c.Dir)
		if c.Number > 0 {
			add("Newest", fmt.Sprintf("number %d at version %s, with %s records", c.Number,
				logline.Thousands(c.Version),
				logline.Thousands(c.Records)))
		}
		add("Last attempt", c.Problem)
	}
	if s.Saved != nil {
		add("Saved by the program", fmt.Sprintf("%s, %s ago", s.Saved.Path, age(s.Saved.UnixMs, now)))
	}
	add("Not saved", s.Unsaved)
	add("Output", s.Output)
	add("Program", s.Program)
	add("Last failure", s.Failure)
	if n := v.Journal.Totals.Kinds[journal.CheckpointWritten]; n > 0 {
		add("Written", count(int(n), "checkpoint"))
	}
	if n := len(s.Evaluations); n > 0 {
		e := s.Evaluations[n-1]
		add("Evaluation", fmt.Sprintf("version %s: %s", logline.Thousands(e.Version), metricsText(e.Metrics)))
	}
	for _, e := range slices.Backward(v.Journal.Entries) {
		if (e.Kind == journal.TrainingRolledBack || e.Kind == journal.TrainingStartedOver) && len(m.Rolls) < 10 {
			m.Rolls = append(m.Rolls, entryView{N: e.N, At: momentOf(e.UnixMs, now), Kind: plainWord(string(e.Kind)),
				Class: "warn", Text: plainWord(e.Text)})
		}
	}
	return m
}

// listView is the list of jobs.
type listView struct {
	Jobs []summary
}

// listOf returns the list of jobs: those that run first, then the newest.
func listOf(all []*wire.JobStatus, now time.Time) listView {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *wire.JobStatus) int {
		endedA, endedB := min(a.EndedUnixMs, 1), min(b.EndedUnixMs, 1)
		return cmp.Or(cmp.Compare(endedA, endedB), cmp.Compare(b.StartedUnixMs, a.StartedUnixMs))
	})
	var v listView
	for _, s := range sorted {
		v.Jobs = append(v.Jobs, summaryOf(role.View{Status: s}, now))
	}
	return v
}

package page

import (
	"fmt"
	"strconv"
)

// decimals formats a figure.
func decimals(format string, v float64) string { return fmt.Sprintf(format, v) }

// prefixed returns a text after a prefix; "" without the prefix.
func prefixed(prefix, words string) string {
	if words == "" {
		return ""
	}
	return prefix + words
}

// bar100 returns a bar of percents.
func bar100(format string, percent float64, label string) piece {
	return el("progress", with("max", "100", "value", decimals(format, percent), "aria-label", label))
}

// show returns a time, which scripts can read.
func (m moment) show() piece { return el("time", with("datetime", m.At), text(m.Text)) }

// banner returns a message about the job, whose beginning is bold.
func banner(id, bold, words string) piece {
	return el("p", class("banner warn"), when(id != "", with("id", id)), with("role", "status"),
		when(bold != "", el("b", text(bold)), text(" ")), text(words))
}

// head returns the state of a job.
func (v *jobView) head() piece {
	duration := "for"
	if v.Ended {
		duration = "ran"
	}
	return group(el("section", class("card summary"), with("aria-labelledby", "job-title"), line,
		el("div", class("headline"), line,
			el("h1", with("id", "job-title"), text(v.Name)), line,
			el("span", class("state", v.Class), with("id", "state"), text(v.State)), line,
			el("span", class("muted"), text(v.Type), when(v.Elapsed != "", text(" · ", duration, " ", v.Elapsed)),
				when(v.Started.At != "", text(" · since "), v.Started.show())), line,
			when(v.Runs && !v.Ended, el("form", class("stacks"), with("method", "post"), action(v.Href+"/stacks"),
				el("button", with("title", "Takes the Python stacks of all ranks now"), text("Stacks")))), line), line,
		when(v.Note != "", banner("", "", v.Note)), line,
		when(v.Reason != "", el("p", class("banner", v.Class), text(v.Reason))), line,
		when(v.Waiting != "", banner("waiting", "Waits for", v.Waiting)), line,
		when(v.Stuck != "", banner("stuck", "Stuck", v.Stuck)), line,
		each(v.Problems, func(words string) piece { return banner("", "Problem", words) }), line,
		v.progress(), line,
		el("dl", class("tiles"), each(v.Tiles, tile.show)), line,
		when(len(v.Conditions) > 0,
			el("ul", class("conditions"), with("aria-label", "Conditions"), each(v.Conditions, judgement.show))),
		line), line)
}

func (v *jobView) progress() piece {
	if v.Total == 0 {
		return when(v.Progress != "", el("p", text(v.Progress)))
	}
	return el("div", class("progress"), bar100("%.2f", v.Percent, "Progress"), line,
		el("div", class("progress-text"),
			el("span", el("b", text(decimals("%.1f", v.Percent), " %")), text(" ", v.Progress)),
			el("span", text(v.Left))))
}

func (t tile) show() piece {
	return el("div", class("tile", t.Class), el("dt", text(t.Label)),
		el("dd", text(t.Value), when(t.Sub != "", el("small", text(t.Sub)))))
}

func (j judgement) show() piece {
	holds := " no "
	if j.Yes {
		holds = " yes "
	}
	return el("li", class("chip", j.Class), with("title", j.Reason+prefixed(": ", j.Message)),
		el("span", class("dot"), with("aria-hidden", "true")), el("b", text(j.Type)), text(holds),
		el("span", class("muted"), text(j.Reason, prefixed(" · ", j.Since))))
}

// curves returns the charts of a job.
func (v *jobView) curves() piece {
	return group(when(len(v.Charts) > 0,
		el("section", class("charts"), with("aria-label", "Curves"), each(v.Charts, chart.show), line)), line)
}

// inside has a drawing of 1000 times 100 fill its parent.
var inside = with("viewBox", "0 0 1000 100", "preserveAspectRatio", "none", "width", "100%", "height", "100%")

// hidden hides an element from those who do not see the page.
var hidden = with("aria-hidden", "true")

func (c chart) show() piece {
	return group(line, el("figure", class("card chart"), with("id", "chart-"+c.ID), line,
		el("figcaption", el("span", text(c.Title)), el("b", class("chart-now"), text(c.Now)),
			el("span", class("readout muted"), hidden)), line,
		el("div", class("plot"), with("data-points", c.Points), line,
			el("span", class("edge top-edge"), hidden, text(c.Top)),
			el("span", class("edge base-edge"), hidden, text(c.Base)), line,
			el("svg", with("role", "img", "aria-label", c.About, "width", "100%", "height", "96"),
				el("svg", inside, el("path", class("area"), with("d", c.Area)),
					el("path", class("line"), with("d", c.Line, "vector-effect", "non-scaling-stroke"))),
				each(c.Marks, func(m tick) piece { return m.show("mark "+m.Class, "84%", "100%") }),
				el("line", class("cursor"),
					with("x1", "0", "x2", "0", "y1", "0", "y2", "100%", "visibility", "hidden")),
				el("circle", class("cursor"), with("r", "3.5", "visibility", "hidden"))), line), line,
		span("axis muted", c.From, c.To), line))
}

// show returns a mark from one height to another.
func (m tick) show(classes, from, to string) piece {
	return el("line", class(classes), with("x1", m.X+"%", "x2", m.X+"%", "y1", from, "y2", to),
		el("title", text(m.Title)))
}

// span returns the ends of an axis of time.
func span(classes string, from, to moment) piece {
	return el("div", class(classes), hidden, el("span", text(from.Text)), el("span", text(to.Text)))
}

// legend has the colours of the timeline.
var legend = el("ul", class("legend"), with("aria-label", "Colours"), each([][2]string{
	{"runs", "runs"}, {"pending", "starts"}, {"lost", "lost"}, {"failed", "failed"}, {"recovery", "recovery, wait"},
	{"checkpoint", "checkpoint"}, {"world", "world"},
}, func(c [2]string) piece { return el("li", el("i", class(c[0])), text(c[1])) }))

func (t timeline) show() piece {
	return group(el("section", class("card"), with("aria-labelledby", "timeline-title"), line,
		el("div", class("card-head"),
			el("h2", with("id", "timeline-title"), class("card-title"), text("Timeline")), line,
			when(len(t.Ranges) > 0, el("nav", class("choice"), with("aria-label", "Range of the timeline"),
				each(t.Ranges, link.show))), line,
			legend), line,
		el("div", class("lanes"), with("role", "list", "aria-label", t.About), each(t.Rows, row.show), line), line,
		span("axis lane-axis muted", t.From, t.To), line,
		when(t.Hidden, el("p", class("muted hint"), text("Each row has several workers: its height is the number "+
			"that run, its marks are losses. A name opens the row."))), line), line)
}

func (l link) show() piece {
	return el("a", href(l.Href), when(l.Current, with("aria-current", "true")), text(l.Text))
}

func (r row) show() piece {
	classes := "lane"
	if r.Area != "" {
		classes += " band"
	}
	if r.Open {
		classes += " open"
	}
	return group(line, el("div", class(classes), with("role", "listitem"),
		either(r.Href != "", el("a", class("lane-name"), href(r.Href), text(r.Label)),
			el("span", class("lane-name"), text(r.Label))),
		el("svg", with("role", "img", "aria-label", r.Label+": "+r.About, "width", "100%", "height", "18"),
			when(r.Area != "", el("svg", inside, el("path", class("alive"), with("d", r.Area)))),
			each(r.Bars, bar.show),
			each(r.Ticks, func(m tick) piece { return m.show(m.Class, "1", "17") }))))
}

func (b bar) show() piece {
	return el("rect", class(b.Class), with("x", b.X+"%", "width", b.Width+"%", "y", "3", "height", "12", "rx", "2"),
		el("title", text(b.Title)))
}

// events returns the entries of the journal that the options select.
func (v *jobView) events() piece {
	none := "Nothing has happened yet."
	if v.Options.Filter != "" || v.Options.Warnings {
		none = "No event matches."
	}
	return group(el("section", class("card"), with("aria-labelledby", "events-title"), line,
		el("div", class("card-head"), el("h2", with("id", "events-title"), class("card-title"), text("Events "),
			el("span", class("count"), text(strconv.Itoa(v.Kept)))), line, v.Options.form()), line,
		either(len(v.Entries) > 0,
			el("ol", class("events"), each(v.Entries, entryView.show), line),
			el("p", class("empty"), text(none))), line,
		when(v.Older > 0, el("p", class("hint"),
			el("a", href(v.AllEntries), text("Show ", strconv.Itoa(v.Older), " older events")))), line), line)
}

// form returns the filter of the events.
func (o options) form() piece {
	return el("form", class("filter"), with("method", "get", "role", "search"),
		el("label", class("hidden"), with("for", "filter"), text("Filter events")),
		el("input", with("id", "filter", "name", "q", "type", "search", "value", o.Filter,
			"placeholder", "Filter: pod, kind, words", "autocomplete", "off", "spellcheck", "false")),
		el("label", class("check"),
			el("input", with("type", "checkbox", "id", "warnings", "name", "warnings", "value", "1"),
				when(o.Warnings, with("checked", ""))), text(" warnings only")),
		when(o.Range != "", el("input", with("type", "hidden", "name", "range", "value", o.Range))),
		el("button", class("quiet no-script"), text("Filter")))
}

func (e entryView) show() piece {
	return group(line, el("li", with("id", "e-"+strconv.FormatInt(e.N, 10)), class("event", e.Class),
		with("data-row", "", "tabindex", "-1"), e.At.show(), el("span", class("kind", e.Class), text(e.Kind)),
		el("span", class("text"), when(e.Pod != "", el("a", href(e.Href), text(e.Pod)), text(" ")), text(e.Text))))
}

// pods returns the pods of a job.
func (v *jobView) pods() piece {
	const why = "Why, or last output"
	return group(el("section", class("card"), with("aria-labelledby", "pods-title"), line,
		el("h2", with("id", "pods-title"), class("card-title"), text("Pods")), line,
		either(len(v.Pods) > 0,
			table("pods-title", []string{"Pod", "State", "Start", "Age", "CPUs", why, "Node"}, why,
				each(v.Pods, podView.row)),
			el("p", class("empty"), text("No pod is known yet."))), line,
		when(v.Others > 0, el("p", class("hint"),
			el("a", href(v.AllPods), text("Show ", strconv.Itoa(v.Others), " more pods")))), line), line)
}

func (p podView) row() piece {
	incarnation := ""
	if p.Incarnation != 0 {
		incarnation = strconv.Itoa(int(p.Incarnation))
	}
	why := text(p.Reason)
	if p.Reason == "" && p.Output != "" {
		why = group(el("code", text(p.Output)),
			when(p.Quiet != "", text(" "), el("span", class("muted"), text(p.Quiet, " ago"))))
	}
	return group(line, el("tr", with("id", fmt.Sprintf("pod-%s-%d", p.Name, p.Incarnation), "data-row", "",
		"tabindex", "-1"),
		el("td", el("a", href(p.Href), with("title", "Log of "+p.Name), text(p.Name))),
		el("td", el("span", class("state", p.Class), text(p.State))),
		el("td", class("num"), text(incarnation)), el("td", class("num"), text(p.Age)),
		el("td", class("num"), text(p.Cores)), el("td", class("wide text"), why),
		el("td", class("muted"), text(p.Node))))
}

// show returns the checkpoints, rollbacks and evaluations of a job.
func (m model) show() piece {
	fact := func(f tile) piece { return group(el("dt", text(f.Label)), el("dd", text(f.Value))) }
	roll := func(e entryView) piece {
		return el("li", class("event warn"), e.At.show(), el("span", class("kind warn"), text(e.Kind)),
			el("span", class("text"), text(e.Text)))
	}
	return group(when(len(m.Facts)+len(m.Rolls) > 0,
		el("section", class("card"), with("aria-labelledby", "model-title"), line,
			el("h2", with("id", "model-title"), class("card-title"), text("Model")), line,
			el("dl", class("facts"), each(m.Facts, fact)), line,
			when(len(m.Rolls) > 0, el("h3", class("sub-title"), text("Rollbacks")),
				el("ol", class("events"), each(m.Rolls, roll))), line)), line)
}

func (v logView) show() piece {
	lines := func(n int64, words string) piece {
		return el("a", href("?lines="+strconv.FormatInt(n, 10)), when(v.Lines == n, with("aria-current", "true")),
			text(words))
	}
	return group(el("section", class("card log-card"), with("aria-labelledby", "log-title"), line,
		el("div", class("card-head"),
			el("h1", with("id", "log-title"), class("card-title"), text("Log of ", v.Pod)), line,
			el("nav", class("choice"), with("aria-label", "Length"), lines(200, "200 lines"),
				lines(2000, "2,000 lines"))), line,
		when(v.Cut, el("p", class("muted hint"), text("The lines are long: their beginning is left out."))), line,
		either(v.Text != "", el("pre", class("log"), with("id", "log", "tabindex", "0", "role", "region",
			"aria-labelledby", "log-title"), text(v.Text)),
			el("p", class("empty"), text("The pod has written nothing yet."))), line), line)
}

func (v stacksView) show() piece {
	return group(el("section", class("card log-card"), with("aria-labelledby", "stacks-title"), line,
		el("div", class("card-head"),
			el("h1", with("id", "stacks-title"), class("card-title"), text("Stacks of ", v.Job, " at ", v.At)), line,
			el("form", with("method", "post"), action(v.Href+"/stacks"), el("button", text("Take again")))), line,
		el("pre", class("log"), with("tabindex", "0", "role", "region", "aria-labelledby", "stacks-title"),
			text(v.Text)), line), line)
}

package page

import (
	"strconv"

	"golang.org/x/net/html"
)

// document returns a whole page.
func (f *frame) document() piece {
	return group(func(n *html.Node) { n.AppendChild(&html.Node{Type: html.DoctypeNode, Data: "html"}) }, line,
		el("html", with("lang", "en"), line, f.head(), line, f.body(), line), line)
}

func (f *frame) head() piece {
	meta := func(name, content string) piece {
		return group(el("meta", with("name", name, "content", content)), line)
	}
	return el("head", line,
		el("meta", with("charset", "utf-8")), line,
		meta("viewport", "width=device-width, initial-scale=1"),
		meta("color-scheme", "light dark"),
		el("title", text(f.Title, " · ElasticDL")), line,
		el("link", with("rel", "icon"), href("/icon.svg"), with("type", "image/svg+xml")), line,
		el("link", with("rel", "stylesheet"), href("/style.css")), line,
		el("script", with("src", "/script.js", "defer", "")), line)
}

func (f *frame) body() piece {
	return el("body", when(f.Live, with("data-live", "1")), line,
		el("a", class("skip"), with("href", "#main"), text("Skip to the content")), line,
		el("header", class("top"), line,
			el("nav", with("aria-label", "Where you are"), line,
				el("ol", class("crumbs"), line, f.crumbs()), line), line,
			tools, line), line,
		el("main", with("id", "main", "tabindex", "-1"), line, each(f.Parts, part.show)), line,
		help, line)
}

// crumbs returns the way to the page.
func (f *frame) crumbs() piece {
	brand := el("a", class("brand"), href("/"), text("ElasticDL"))
	if f.One {
		brand = el("span", class("brand"), text("ElasticDL"))
	}
	return group(
		el("li", brand), line,
		el("li", class("place"), text(f.Place)), line,
		when(f.Job != "", el("li",
			el("a", href(f.Href), when(f.Pod == "", with("aria-current", "page")), text(f.Job)))), line,
		when(f.Pod != "", el("li", with("aria-current", "page"), text(f.Pod))), line)
}

// tools has the buttons of a page.
var tools = el("div", class("tools"), line,
	el("span", with("id", "live", "class", "liveness", "role", "status", "hidden", "")), line,
	el("button", with("type", "button", "id", "pause", "class", "quiet needs-script", "aria-pressed", "false"),
		text("Pause")), line,
	el("button", with("type", "button", "id", "keys", "class", "quiet needs-script", "aria-haspopup", "dialog",
		"title", "Keys (?)"), text("?")), line)

// help describes the keys.
var help = el("dialog", with("id", "help", "aria-labelledby", "help-title"), line,
	el("h2", with("id", "help-title"), text("Keys")), line,
	el("dl", class("keys"), line,
		key("next and previous row", "j", "k"),
		key("open the row", "Enter"),
		key("filter events", "/"),
		key("warnings only, or all events", "w"),
		key("pause, or continue", "p"),
		key("up: to the job, to the list", "u"),
		key("this help", "?"),
		key("close, clear the filter", "Esc")), line,
	el("form", with("method", "dialog"), el("button", class("quiet"), text("Close"))), line)

// key describes keys that do the same.
func key(effect, first string, others ...string) piece {
	return group(el("dt", el("kbd", text(first)),
		each(others, func(k string) piece { return group(text(" "), el("kbd", text(k))) })),
		el("dd", text(effect)), line)
}

// show returns a part of a page, which the script replaces if its hash has changed.
func (p part) show() piece {
	return group(el("div", class("part"), with("id", "part-"+p.ID, "data-part", "", "data-hash", p.Hash), line,
		func(n *html.Node) { n.AppendChild(&html.Node{Type: html.RawNode, Data: p.HTML}) }), line)
}

// problem returns the reason for which a page cannot be shown.
func problem(words string) piece {
	return group(el("section", class("card problem"), with("role", "alert"), line,
		el("h1", text("This page cannot be shown")), line,
		el("p", text(words)), line), line)
}

// show returns the list of jobs.
func (v listView) show() piece {
	return group(el("section", class("card"), with("aria-labelledby", "jobs-title"), line,
		el("h1", with("id", "jobs-title"), class("card-title"), text("Jobs "),
			el("span", class("count"), text(strconv.Itoa(len(v.Jobs))))), line,
		either(len(v.Jobs) > 0,
			table("jobs-title", []string{"Job", "State", "Progress", "Workers", "Time", "Message"}, "Message",
				each(v.Jobs, summary.row)),
			el("p", class("empty"), text("There is no job here. Start one with "), el("code", text("elasticdl train")),
				text(" or "), el("code", text("elasticdl run")), text("."))), line), line)
}

// table returns a table, one of whose columns is wide.
func table(title string, columns []string, wide string, rows piece) piece {
	return el("div", class("scroll"), with("tabindex", "0", "role", "region", "aria-labelledby", title),
		el("table", class("rows"), line,
			el("thead", el("tr", each(columns, func(name string) piece {
				return el("th", with("scope", "col"), when(name == wide, class("wide")), text(name))
			}))), line,
			el("tbody", rows, line)))
}

// row returns a job as a row of the list.
func (s summary) row() piece {
	progress := el("span", class("muted"), text(s.Progress))
	if s.Total > 0 {
		progress = group(bar100("%.1f", s.Percent, "Progress of "+s.Name),
			el("div", class("muted"), text(decimals("%.0f", s.Percent), " %", prefixed(" · ", s.Left))))
	}
	says := text(s.Reason)
	switch warned := func(words string) piece { return el("span", class("warn-text"), text(words)) }; {
	case s.Waiting != "":
		says = warned("waits: " + s.Waiting)
	case s.Stuck != "":
		says = warned(s.Stuck)
	case len(s.Problems) > 0:
		says = warned(s.Problems[0])
	}
	return group(line, el("tr", with("id", "job-"+s.Name, "data-row", "", "tabindex", "-1"),
		el("td", el("a", href(s.Href), text(s.Name)), el("div", class("muted"), text(s.Type))), line,
		el("td", el("span", class("state", s.Class), text(s.State))), line,
		el("td", class("bar-cell"), progress), line,
		el("td", class("num"), text(s.Tiles[0].Value)), line,
		el("td", class("num"), text(s.Elapsed)), line,
		el("td", class("wide text"), says)))
}

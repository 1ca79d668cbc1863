package scale

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Panel is one diagram: the processors of each owner, stacked, over time.
type Panel struct {
	Title    string
	Owners   []string // owners from the bottom up
	Capacity float64  // number of processors of the cluster
	Samples  []Sample
	End      time.Duration // end of the time axis
	Marks    []Mark
}

// Mark is a point in time with a name.
type Mark struct {
	At   time.Duration
	Text string
}

const (
	chartWidth  = 760
	panelHeight = 250
	marginLeft  = 46
	marginRight = 16
	marginTop   = 46
	marginFoot  = 40
	plotWidth   = chartWidth - marginLeft - marginRight
	plotHeight  = panelHeight - marginTop - marginFoot
)

// colors has the colors of the owners, in order, which colour-blind readers can tell apart.
var colors = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7"}

// Chart returns an SVG of panels below each other over one axis of time. Times are multiplied by
// scale: the axis shows the seconds of the original experiment, not those of the simulation.
func Chart(scale float64, panels ...Panel) []byte {
	var b bytes.Buffer
	height := panelHeight * len(panels)
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		chartWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	var longest float64
	for _, p := range panels {
		longest = max(longest, p.End.Seconds()*scale)
		for _, m := range p.Marks {
			longest = max(longest, m.At.Seconds()*scale)
		}
	}
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", marginLeft, i*panelHeight+marginTop)
		drawing{&b, longest, p.Capacity * 1.08, scale}.panel(p)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// drawing is the frame of reference of a panel.
type drawing struct {
	*bytes.Buffer
	right float64 // seconds at the right end
	top   float64 // processors at the top
	scale float64
}

func (d drawing) x(at time.Duration) float64 { return at.Seconds() * d.scale / d.right * plotWidth }
func (d drawing) y(cpus float64) float64     { return plotHeight - cpus/d.top*plotHeight }

func (d drawing) panel(p Panel) {
	d.text(0, -28, "start", "#000000", p.Title)
	for i, owner := range p.Owners {
		x := float64(i) * 120
		fmt.Fprintf(d, `<rect x="%s" y="-20" width="10" height="10" fill="%s"/>`+"\n", number(x), colors[i%len(colors)])
		d.text(x+14, -11, "start", "#333333", owner)
	}
	d.axes(p.Capacity)
	below := make([]float64, len(p.Samples))
	for i, owner := range p.Owners {
		above := slices.Clone(below)
		for k, s := range p.Samples {
			above[k] += s.CPUs[owner]
		}
		fmt.Fprintf(d, `<path d="%s" fill="%s" fill-opacity="0.85"/>`+"\n", d.area(p, below, above),
			colors[i%len(colors)])
		below = above
	}
	fmt.Fprintf(d, `<path d="M0 %[1]sH%[2]d" stroke="#b00020" stroke-dasharray="5 3"/>`+"\n",
		number(d.y(p.Capacity)), plotWidth)
	d.text(plotWidth, d.y(p.Capacity)-4, "end", "#b00020", fmt.Sprintf("all %s CPUs", number(p.Capacity)))
	for _, m := range p.Marks {
		x := d.x(m.At)
		fmt.Fprintf(d, `<path d="M%sV%d" stroke="#000000" stroke-dasharray="2 2"/>`+"\n", number(x)+" 0", plotHeight)
		anchor, dx := "start", 4.0
		if x > plotWidth*0.85 {
			anchor, dx = "end", -4
		}
		d.text(x+dx, plotHeight-8, anchor, "#000000", m.Text)
	}
}

// axes draws a line for every six processors, fifty of many, and every hundred seconds.
func (d drawing) axes(capacity float64) {
	step := 6.0
	if capacity > 100 {
		step = 50
	}
	for cpus := 0.0; cpus <= capacity; cpus += step {
		fmt.Fprintf(d, `<path d="M0 %sH%d" stroke="#dddddd"/>`+"\n", number(d.y(cpus)), plotWidth)
		d.text(-6, d.y(cpus)+4, "end", "#333333", number(cpus))
	}
	d.text(-6, -2, "end", "#333333", "CPUs")
	for s := 0.0; s <= d.right; s += 100 {
		x := s / d.right * plotWidth
		fmt.Fprintf(d, `<path d="M%s 0V%d" stroke="#eeeeee"/>`+"\n", number(x), plotHeight)
		d.text(x, plotHeight+16, "middle", "#333333", number(s)+" s")
	}
	fmt.Fprintf(d, `<path d="M0 0V%[1]dH%[2]d" fill="none" stroke="#333333"/>`+"\n", plotHeight, plotWidth)
}

// area returns the path around the area between two step curves. It has no point where nothing
// changes.
func (d drawing) area(p Panel, below, above []float64) string {
	var there, back []byte
	last := -1
	for i, s := range p.Samples {
		if s.At > p.End {
			break
		}
		if last >= 0 && below[i] == below[last] && above[i] == above[last] {
			continue
		}
		x, up, down := number(d.x(s.At)), number(d.y(above[i])), number(d.y(below[i]))
		if last < 0 {
			there = fmt.Appendf(nil, "M%s %s", x, up)
			back = fmt.Appendf(nil, "V%sH%sZ", down, x)
		} else {
			there = fmt.Appendf(there, "H%sV%s", x, up)
			back = append(fmt.Appendf(nil, "V%sH%s", down, x), back...)
		}
		last = i
	}
	return string(there) + "H" + number(d.x(p.End)) + string(back)
}

func (d drawing) text(x, y float64, anchor, color, text string) {
	fmt.Fprintf(d, `<text x="%s" y="%s" text-anchor="%s" fill="%s">`, number(x), number(y), anchor, color)
	xml.EscapeText(d, []byte(text)) // writing to a buffer does not fail
	d.WriteString("</text>\n")
}

// number returns a number with at most one decimal, so that the same curve gives the same file.
func number(v float64) string {
	return strconv.FormatFloat(float64(int64(v*10+sign(v)*0.5))/10, 'f', -1, 64)
}

func sign(v float64) float64 {
	if v < 0 {
		return -1
	}
	return 1
}

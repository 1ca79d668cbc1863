package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// lineEvery is how often a job's progress is a line of a log.
const lineEvery = 2 * time.Second

// display shows a job while it runs.
type display interface {
	show(s *wire.JobStatus)
	close(last *wire.JobStatus) // nil: it is not known
}

// newDisplay is live on a terminal, and lines elsewhere.
func newDisplay(out io.Writer) display {
	if !isTerminal(out) {
		return &lines{out: out}
	}
	f := out.(*os.File)
	return &live{out: out, size: func() (width, height int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}}
}

// lines shows a job as the lines of a log: one for each thing that happens, one for progress now and then.
type lines struct {
	out    io.Writer
	before *wire.JobStatus
	last   time.Time // of a progress line
}

func (l *lines) show(s *wire.JobStatus) {
	l.news(s)
	if now := time.Now(); s.RecordsTotal > 0 && now.Sub(l.last) >= lineEvery {
		l.last = now
		io.WriteString(l.out, progressLine(s, now)+"\n")
	}
}

func (l *lines) news(s *wire.JobStatus) {
	for _, line := range news(l.before, s) {
		io.WriteString(l.out, line+"\n")
	}
	l.before = s
}

func (l *lines) close(last *wire.JobStatus) {
	if last != nil {
		l.news(last)
	}
}

// live shows a job in place, with what happens above it. Ctrl-C is main's, as anywhere.
type live struct {
	out    io.Writer
	size   func() (width, height int) // of the terminal
	before *wire.JobStatus
	height int // lines of the screen that is shown
}

func (l *live) show(s *wire.JobStatus) {
	width, height := l.size()
	l.draw(s, screen(s, width, height, time.Now()))
}

// close leaves what has happened, for the summary to come under it.
func (l *live) close(last *wire.JobStatus) {
	if last == nil {
		last = l.before
	}
	l.draw(last, "")
}

// draw writes over the screen that is shown.
func (l *live) draw(s *wire.JobStatus, screen string) {
	var b strings.Builder
	if l.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", l.height) // up, and clear from there
	}
	if s != nil {
		for _, line := range news(l.before, s) {
			b.WriteString(line + "\n")
		}
	}
	b.WriteString(screen)
	io.WriteString(l.out, b.String()) // at once, so that nothing flickers
	l.before, l.height = s, strings.Count(screen, "\n")
}

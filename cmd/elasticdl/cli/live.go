package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// lineEvery is the interval between progress lines in a log.
const lineEvery = 2 * time.Second

// watching prints the status of a job until it has ended.
type watching struct {
	status func(context.Context) (*wire.JobStatus, error)
	wait   func(context.Context) (*wire.JobStatus, error)
	every  time.Duration // minimum between two requests
	// ending reports the stop of the job, and what the stop waits for, until ended is called; nil:
	// it is not reported
	ending func(say func(line string)) (ended func())
}

// show shows a job until wait returns, also after the end of ctx, and returns the result of wait.
func (w watching) show(ctx context.Context, out io.Writer) (*wire.JobStatus, error) {
	type end struct {
		status *wire.JobStatus
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		status, err := w.wait(ctx)
		ended <- end{status, err}
	}()
	var seen *wire.JobStatus
	show := &shared{display: newDisplay(out)}
	if w.ending != nil {
		defer w.ending(show.note)()
	}
	for {
		began := time.Now()
		if s, err := w.status(context.WithoutCancel(ctx)); err == nil && !job.State(s.State).Ended() &&
			s.State != string(job.Stopping) {
			show.show(s)
			seen = s
		}
		select {
		case <-time.After(max(w.every, 10*time.Since(began))):
			// the status of a large job takes longer, and is requested less often
		case e := <-ended:
			if e.err != nil {
				show.close(nil)
				return nil, e.err
			}
			last := asSeen(e.status, seen)
			show.close(last)
			return last, nil
		}
	}
}

// following prints the status changes of a job between its log lines.
type following struct {
	status func(context.Context) (*wire.JobStatus, error)
	news   func(before, after *wire.JobStatus) []string
	every  time.Duration // minimum between two requests
}

// show prints a line for each change of a job until ctx ends. It returns the last status that it
// received, nil if there was none.
func (f following) show(ctx context.Context, out io.Writer) *wire.JobStatus {
	var before *wire.JobStatus
	for {
		began := time.Now()
		if s, err := f.status(ctx); err == nil && s.State != string(job.Stopping) {
			for _, line := range f.news(before, s) {
				io.WriteString(out, line+"\n")
			}
			before = s
		}
		select {
		case <-time.After(max(f.every, 10*time.Since(began))):
			// the status of a large job takes longer, and is requested less often
		case <-ctx.Done():
			return before
		}
	}
}

// asSeen returns the final status of a job. If its details were lost with the master, they are
// taken from the last status that was received before.
func asSeen(last, seen *wire.JobStatus) *wire.JobStatus {
	if seen == nil || last.RecordsTotal > 0 || last.RecordsDone > 0 {
		return last
	}
	seen.State, seen.Reason, seen.EndedUnixMs = last.State, last.Reason, last.EndedUnixMs
	return seen
}

// watchJob shows a job until it has ended. The end of ctx leaves it running.
func watchJob(ctx context.Context, home home, name string, out io.Writer) error {
	// an error is reported at once
	if _, err := home.Status(ctx, name); err != nil {
		return hint(err)
	}
	s, err := watching{
		status: func(ctx context.Context) (*wire.JobStatus, error) { return home.Status(ctx, name) },
		wait: func(ctx context.Context) (*wire.JobStatus, error) {
			return home.Wait(ctx, name, func() {}) // the view shows a suspension
		},
		every: refresh,
	}.show(ctx, out)
	if err != nil {
		return hint(err)
	}
	if _, err := io.WriteString(out, verdict(s)+"\n"); err != nil {
		return err
	}
	return outcome(ctx, s)
}

// shared is a display that several goroutines use.
type shared struct {
	mu sync.Mutex
	display
}

func (d *shared) show(s *wire.JobStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.display.show(s)
}

func (d *shared) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.display.note(line)
}

func (d *shared) close(last *wire.JobStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.display.close(last)
}

// display shows a job while it runs.
type display interface {
	show(s *wire.JobStatus)
	note(line string)           // prints a line of the command
	close(last *wire.JobStatus) // nil: the last status is not known
}

// newDisplay returns a live display for a terminal, and a log for other writers.
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

// lines shows a job as a log: a line for each change, and one for progress every lineEvery.
type lines struct {
	out    io.Writer
	before *wire.JobStatus
	last   time.Time // time of the last progress line
}

func (l *lines) show(s *wire.JobStatus) {
	l.news(s)
	if now := time.Now(); (s.RecordsTotal > 0 || s.RecordsDone > 0) && now.Sub(l.last) >= lineEvery {
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

func (l *lines) note(line string) { io.WriteString(l.out, line+"\n") }

func (l *lines) close(last *wire.JobStatus) {
	if last != nil {
		l.news(last)
	}
}

// live redraws the view of a job in place, and prints its changes above.
type live struct {
	out    io.Writer
	size   func() (width, height int) // size of the terminal
	before *wire.JobStatus
	notes  string // lines to write above the next screen
	height int    // number of lines of the current screen
}

func (l *live) show(s *wire.JobStatus) {
	width, height := l.size()
	l.draw(s, screen(s, width, height, time.Now()))
}

// close removes the screen and leaves the lines above it. The summary follows them.
func (l *live) close(last *wire.JobStatus) {
	if last == nil {
		last = l.before
	}
	l.draw(last, "")
}

// note writes a line above the screen.
func (l *live) note(line string) {
	l.notes += line + "\n"
	if l.before != nil {
		l.show(l.before)
	}
}

// draw prints changes and notes, and then the screen, in place of the current screen.
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
	b.WriteString(l.notes)
	l.notes = ""
	b.WriteString(screen)
	io.WriteString(l.out, b.String()) // one write does not flicker
	l.before, l.height = s, strings.Count(screen, "\n")
}

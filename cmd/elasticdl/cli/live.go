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

// watching prints a job's status until it ends: how it is now, and, when it has ended, how that
// was.
type watching struct {
	status func(context.Context) (*wire.JobStatus, error)
	wait   func(context.Context) (*wire.JobStatus, error)
	every  time.Duration // at least, between two looks
	// ending follows the stop of the job, and says what it waits for, until the function that it
	// returns is called; nil: nobody does.
	ending func(say func(line string)) (ended func())
}

// show shows a job until wait returns, and returns the result of wait. A job is looked at until
// then, also when ctx has ended.
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
			// large jobs are not asked about all the time
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

// following prints status changes of a job between its log lines.
type following struct {
	status func(context.Context) (*wire.JobStatus, error)
	news   func(before, after *wire.JobStatus) []string
	every  time.Duration // at least, between two looks
}

// show writes what happens to a job, a line for each thing, until ctx ends. It returns the last
// status that it saw, nil if it saw none.
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
			// large jobs are not asked about all the time
		case <-ctx.Done():
			return before
		}
	}
}

// asSeen returns how a job has ended, with what was seen of it before if its master's words went
// with it.
func asSeen(last, seen *wire.JobStatus) *wire.JobStatus {
	if seen == nil || last.RecordsTotal > 0 {
		return last
	}
	seen.State, seen.Reason, seen.EndedUnixMs = last.State, last.Reason, last.EndedUnixMs
	return seen
}

// watchJob shows a job, wherever it is, until it has ended. The end of ctx leaves it running.
func watchJob(ctx context.Context, home home, name string, out io.Writer) error {
	// said at once, and not while it is looked at
	if _, err := home.Status(ctx, name); err != nil {
		return hint(err)
	}
	s, err := watching{
		status: func(ctx context.Context) (*wire.JobStatus, error) { return home.Status(ctx, name) },
		wait: func(ctx context.Context) (*wire.JobStatus, error) {
			return home.Wait(ctx, name, func() {}) // that it is suspended is shown
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
	note(line string)           // a line of the command's own
	close(last *wire.JobStatus) // nil: it is not known
}

// newDisplay returns a live display on a terminal, and lines elsewhere.
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

// lines shows a job as the lines of a log: one for each thing that happens, one for progress now
// and then.
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

func (l *lines) note(line string) { io.WriteString(l.out, line+"\n") }

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
	notes  string // lines to write above the next screen
	height int    // lines of the screen that is shown
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

// note writes a line above the screen.
func (l *live) note(line string) {
	l.notes += line + "\n"
	if l.before != nil {
		l.show(l.before)
	}
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
	b.WriteString(l.notes)
	l.notes = ""
	b.WriteString(screen)
	io.WriteString(l.out, b.String()) // at once, so that nothing flickers
	l.before, l.height = s, strings.Count(screen, "\n")
}

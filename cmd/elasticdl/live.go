package main

import (
	"io"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"
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
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return newScreen(f)
	}
	return &lines{out: out}
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

// live shows a job in place, with what happens above it.
type live struct {
	program *tea.Program
	ended   chan struct{}
	before  *wire.JobStatus
}

func newScreen(out *os.File) *live {
	// Without input and signal handler Ctrl-C comes to main, which stops the job.
	l := &live{
		program: tea.NewProgram(model{width: 80}, tea.WithOutput(out), tea.WithInput(nil), tea.WithoutSignalHandler()),
		ended:   make(chan struct{}),
	}
	go func() {
		defer close(l.ended)
		l.program.Run()
	}()
	return l
}

func (l *live) show(s *wire.JobStatus) {
	for _, line := range news(l.before, s) {
		l.program.Println(line)
	}
	l.before = s
	l.program.Send(s)
}

func (l *live) close(last *wire.JobStatus) {
	if last != nil {
		l.show(last)
	}
	l.program.Send(over{})
	<-l.ended
}

// model is bubbletea's: the last status, and how wide the terminal is.
type model struct {
	status *wire.JobStatus
	width  int
	now    time.Time
}

// over says that the job has ended.
type over struct{}

func (m model) Init() tea.Cmd { return nil }

func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width = msg.Width
	case *wire.JobStatus:
		m.status, m.now = msg, time.Now()
	case over:
		m.status = nil // the summary takes its place
		return m, tea.Quit
	}
	return m, nil
}

func (m model) View() string {
	if m.status == nil {
		return ""
	}
	return screen(m.status, m.width, m.now)
}

package console

import (
	"bytes"
	"io"
	"regexp"
	"sync"
	"time"
)

// every is the interval at which a log gets a line that is redrawn.
const every = 10 * time.Second

// Log keeps what one process writes as lines of a log, each by one Write. Of a line that is drawn
// again after carriage returns, it has the state at its end, and one every ten seconds before.
type Log struct {
	// guards out, which the logs of several processes share
	mu     *sync.Mutex
	out    io.Writer
	prefix []byte
	// control sequences stay
	escapes bool

	// a line that has no end yet, from the last carriage return but one
	rest []byte
	// rest may have a carriage return
	returns bool
	// when the line was drawn again for the first time, or when its state was written last; zero:
	// it was not
	drawn time.Time
}

// NewLog returns a log that writes each line to out behind a prefix, while it holds mu. It leaves
// out the control sequences that a program writes for a terminal, if it writes to one.
func NewLog(mu *sync.Mutex, out io.Writer, prefix string, terminal bool) *Log {
	return &Log{mu: mu, out: out, prefix: []byte(prefix), escapes: !terminal}
}

// Write takes what comes next. It never fails: a full disk must not end a training.
func (l *Log) Write(text []byte) (int, error) {
	// A program may write a long line in many pieces: what is kept of it is neither searched nor
	// copied for each of them.
	searched := len(l.rest) // without a line feed
	l.rest = append(l.rest, text...)
	l.returns = l.returns || bytes.IndexByte(text, '\r') >= 0
	var lines []byte
	cut := false
	for {
		i := bytes.IndexByte(l.rest[searched:], '\n')
		if i < 0 {
			break
		}
		end := searched + i
		lines = l.line(lines, l.rest[:end])
		l.rest, l.drawn, searched, cut = l.rest[end+1:], time.Time{}, 0, true
	}
	if i := l.lastReturn(); i >= 0 && i+1 < len(l.rest) {
		now := time.Now()
		switch {
		case l.drawn.IsZero():
			l.drawn = now
		case now.Sub(l.drawn) >= every:
			lines, l.drawn = l.line(lines, l.rest), now
		}
		before := bytes.LastIndexByte(l.rest[:i], '\r')
		l.rest, cut = l.rest[max(0, before):], cut || before > 0
	}
	if len(l.rest) >= longest {
		lines = l.line(lines, l.rest)
		l.rest, cut = nil, true
	}
	l.pass(lines)
	if cut { // what was written is not kept
		l.rest = append([]byte(nil), l.rest...)
		l.returns = bytes.IndexByte(l.rest, '\r') >= 0
	}
	return len(text), nil
}

// lastReturn returns the index of the last carriage return of the line, -1 if it has none.
func (l *Log) lastReturn() int {
	if !l.returns {
		return -1
	}
	return bytes.LastIndexByte(l.rest, '\r')
}

// Close writes a last line that has no end, and gives it one.
func (l *Log) Close() error {
	if len(l.rest) > 0 {
		l.pass(l.line(nil, l.rest))
		l.rest = nil
	}
	return nil
}

func (l *Log) pass(lines []byte) {
	if len(lines) > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.out.Write(lines)
	}
}

// line appends the line of a log that shows the text of one line of a terminal.
func (l *Log) line(lines, text []byte) []byte {
	text = bytes.TrimRight(text, "\r")
	text = text[bytes.LastIndexByte(text, '\r')+1:]
	if !l.escapes {
		text = sequence.ReplaceAll(text, nil)
	}
	return append(append(append(lines, l.prefix...), text...), '\n')
}

// Plain returns a text without the control sequences of terminals, and without control characters
// other than line feeds and tabs.
func Plain(text []byte) []byte { return sequence.ReplaceAll(text, nil) }

// sequence matches the control sequences of terminals, and control characters other than a tab.
var sequence = regexp.MustCompile("\x1b\\[[0-?]*[ " +
	"-/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[PX^_][^\x1b]*\x1b\\\\|\x1b[ " +
	"-/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f]")

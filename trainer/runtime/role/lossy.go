package role

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// Lossy returns a writer to a log whose disk may be full. It never fails, so that nobody ends for
// a log. When lines can be written again, the first says how many are missing, and why. It is
// safe for concurrent use.
func Lossy(log io.Writer) io.Writer { return &lossy{to: log} }

type lossy struct {
	to io.Writer

	mu sync.Mutex
	// lines
	lost int
	// why they are lost
	why error
	// the last line that was written has no end
	torn bool
}

// Write implements [io.Writer].
func (l *lossy) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := p
	if l.lost > 0 {
		note := fmt.Appendf(nil, "elasticdl: %d lines of this log are missing here: %v\n", l.lost, l.why)
		if l.torn {
			note = append([]byte{'\n'}, note...)
		}
		if n, err := l.to.Write(note); err != nil {
			l.lose(note[:n], p, err)
			return len(p), nil
		}
		l.lost, l.torn = 0, false
	}
	if n, err := l.to.Write(text); err != nil {
		l.lose(text[:n], text[n:], err)
	}
	return len(p), nil
}

// lose counts the lines that were not written after those that were.
func (l *lossy) lose(written, rest []byte, err error) {
	if len(written) > 0 {
		l.torn = written[len(written)-1] != '\n'
	}
	l.why = err
	l.lost += max(1, bytes.Count(rest, []byte{'\n'}))
}

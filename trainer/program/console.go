package program

import (
	"bytes"
	"io"
	"sync"
)

// longestLine is how much of a line is kept until its end comes. What is longer is written in pieces.
const longestLine = 1 << 20

// console merges the lines of all processes. Its mutex keeps lines whole, even if both writers are one terminal.
type console struct {
	mu       sync.Mutex
	out, err io.Writer
}

// lines returns a writer of whole lines to one of the console's writers, each behind the prefix.
func (c *console) lines(to io.Writer, prefix string) *lineWriter {
	return &lineWriter{mu: &c.mu, to: to, prefix: prefix}
}

// lineWriter passes on whole lines. A carriage return ends a line too, so that progress bars are seen.
type lineWriter struct {
	mu     *sync.Mutex
	to     io.Writer
	prefix string
	rest   []byte // a line that has no end yet
}

// Write passes on the lines that are complete. It never fails: a console that is closed must not end a training.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	var whole []byte
	for len(w.rest) > 0 {
		n := lineLength(w.rest)
		if n == 0 {
			if len(w.rest) < longestLine {
				break
			}
			n = len(w.rest)
		}
		whole = append(append(whole, w.prefix...), w.rest[:n]...)
		w.rest = w.rest[n:]
	}
	w.pass(whole)
	return len(p), nil
}

// finish passes on a last line that has no end, and gives it one.
func (w *lineWriter) finish() {
	if len(w.rest) > 0 {
		w.pass(append(append([]byte(w.prefix), w.rest...), '\n'))
		w.rest = nil
	}
}

func (w *lineWriter) pass(text []byte) {
	if len(text) > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.to.Write(text)
	}
}

// lineLength returns the length of the first line with its end, 0 if the end is not there yet. A carriage
// return at the very end of text may be the half of "\r\n": it waits for what follows.
func lineLength(text []byte) int {
	i := bytes.IndexAny(text, "\r\n")
	switch {
	case i < 0:
		return 0
	case text[i] == '\n':
		return i + 1
	case i+1 == len(text):
		return 0
	case text[i+1] == '\n':
		return i + 2
	}
	return i + 1
}

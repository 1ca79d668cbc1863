// Package console shows what several processes write on one stream, and keeps it as the lines of a
// log.
//
//	process ──pipe or pseudo-terminal──┬─> Source ─┐
//	                                   └─> Log     ├─> Stream ─> the command's stdout or stderr
//	process ───────────────────────────┬─> Source ─┤
//	                                   └─> Log     │
//	own messages ──────────────────────────────────┘
//
// Laws:
//
//  1. The output of the only source of a stream is passed on byte for byte, and at once: half
//     lines, carriage returns, control sequences.
//  2. Lines of several sources are not mixed. The beginning of a line waits for its end, on a
//     terminal for a moment only.
//  3. A line that is drawn again and again, as a progress bar, is on a terminal in one place, and
//     in a log a line every ten seconds and at its end.
package console

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// longest limits the part of a line that is kept until its end. Longer lines are passed on in
	// pieces.
	longest = 1 << 20
	// pause is the time that the beginning of a line waits for its end where other sources write to
	// the same terminal.
	pause = 50 * time.Millisecond
)

// Stream merges what several sources write, and messages of ElasticDL's own. As an io.Writer it
// takes whole lines of those.
type Stream struct {
	out      io.Writer
	terminal bool

	mu sync.Mutex
	// that are not closed
	sources int
	// whose line has no end yet; nil: the stream is at the beginning of a line
	open *Source
	// the open line has been drawn again, after a carriage return
	redrawn bool
	// of the first write that failed: nothing is written after it
	err error
}

// New returns a stream to out. terminal reports that out is shown by a terminal.
func New(out io.Writer, terminal bool) *Stream { return &Stream{out: out, terminal: terminal} }

// Terminal reports whether a terminal shows the stream.
func (s *Stream) Terminal() bool { return s.terminal }

// Err returns why the stream cannot be written to, nil if it can.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Write writes whole lines between those of the sources. It never fails: see Err.
func (s *Stream) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(lines) > 0 {
		s.interrupt(nil)
		s.write(lines)
	}
	return len(lines), nil
}

// Source returns a writer for what one process writes, whose lines have a prefix. Its owner closes
// it.
func (s *Stream) Source(prefix string) *Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources++
	return &Source{stream: s, prefix: []byte(prefix)}
}

// write writes to the stream until that fails for the first time. The mutex is held.
func (s *Stream) write(text []byte) {
	if s.err == nil {
		_, s.err = s.out.Write(text)
	}
}

// interrupt ends the open line if it is of another source. The mutex is held.
func (s *Stream) interrupt(by *Source) {
	switch {
	case s.open == nil || s.open == by:
		return
	case s.terminal && s.redrawn: // it will be drawn again
		s.write([]byte("\r\x1b[K"))
	default:
		s.write([]byte("\n"))
	}
	s.open, s.redrawn = nil, false
}

// Source is the output of one process to a stream.
type Source struct {
	stream *Stream
	prefix []byte
	// The mutex of the stream guards the fields below.
	// a line without an end, which is not written yet
	rest []byte
	// writes the rest
	timer *time.Timer
	// a carriage return was written last: the prefix is due before what follows
	again  bool
	closed bool
}

// Write takes what comes next. It never fails: a display that is closed must not end a training.
func (it *Source) Write(text []byte) (int, error) {
	s := it.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	it.rest = append(it.rest, text...)
	whole := len(it.rest)
	if s.sources > 1 {
		whole = complete(it.rest)
	}
	it.pass(whole)
	switch {
	case len(it.rest) >= longest:
		it.pass(len(it.rest))
	case len(it.rest) > 0 && s.terminal && it.timer == nil:
		it.timer = time.AfterFunc(pause, it.flush)
	}
	return len(text), nil
}

// complete returns the length of the lines that are complete. A carriage return begins a line
// again; it may be the half of "\r\n" at the very end.
func complete(text []byte) int {
	end := bytes.LastIndexByte(text, '\n') + 1
	if i := bytes.LastIndexByte(text, '\r'); i > end && i+1 < len(text) {
		end = i
	}
	return end
}

// flush writes the beginning of a line.
func (it *Source) flush() {
	it.stream.mu.Lock()
	defer it.stream.mu.Unlock()
	it.pass(len(it.rest))
}

// Close writes what is left, with an end if other sources write to the stream.
func (it *Source) Close() error {
	s := it.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.closed {
		return nil
	}
	it.closed = true
	it.pass(len(it.rest))
	if s.sources--; s.sources > 0 || s.terminal {
		if s.open == it {
			s.write([]byte("\n"))
			s.open, s.redrawn = nil, false
		}
	}
	return nil
}

// pass writes the first n bytes that wait. The mutex is held.
func (it *Source) pass(n int) {
	if it.timer != nil {
		it.timer.Stop()
		it.timer = nil
	}
	if n == 0 {
		return
	}
	text := it.rest[:n]
	s := it.stream
	s.interrupt(it)
	out := text
	if len(it.prefix) > 0 {
		out = it.prefixed(text)
	}
	s.write(out)
	last := text[bytes.LastIndexByte(text, '\n')+1:]
	switch {
	case len(last) == 0:
		s.open, s.redrawn = nil, false
	case len(last) < len(text):
		s.open, s.redrawn = it, bytes.IndexByte(last, '\r') >= 0
	default:
		s.open, s.redrawn = it, s.redrawn || bytes.IndexByte(last, '\r') >= 0
	}
	it.rest = append(it.rest[:0], it.rest[n:]...)
}

// prefixed returns a text with the prefix at the beginning of each line, also of one that is drawn
// again. The mutex is held.
func (it *Source) prefixed(text []byte) []byte {
	begins := it.stream.open != it
	if begins {
		it.again = false
	}
	var out []byte
	for _, c := range text {
		if begins && c != '\r' || it.again && c != '\r' && c != '\n' {
			out = append(out, it.prefix...)
			begins, it.again = false, false
		}
		out = append(out, c)
		switch c {
		case '\n':
			begins, it.again = true, false
		case '\r':
			it.again = true
		}
	}
	return out
}

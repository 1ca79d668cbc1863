package logline

import "time"

// Line is a line of a log.
type Line struct {
	// when it was written; zero: not known, it is as old as the line before
	At   time.Time
	Text string
}

// Merge orders the lines of several logs by time. It does no I/O and reads no clock. It holds at
// most one line of each log. The zero value waits for every log without limit.
//
// Laws:
//
//  1. Lines of one log keep their order, whatever their times. Each is given once.
//  2. Of the lines that are there, the oldest is given first; of two with the same time, that of
//     the log that was added first.
//  3. A line waits for another log at most for the window, counted from the other log's last line.
//     So a log that is silent, or whose clock is wrong, delays no other one for longer.
//  4. Without a window the order depends on the logs alone, not on when their lines are put.
type Merge struct {
	// Window is the time that lines wait for a log that has none; 0: until it has one, or has
	// ended.
	Window time.Duration

	logs []merged
}

// merged is one log.
type merged struct {
	next Line
	// next is there
	hasNext bool
	ended   bool
	// of the last line: no line is older than the one before it
	at time.Time
	// since when there is no next line
	since time.Time
}

// Add adds a log, and returns its number, from 0.
func (m *Merge) Add(now time.Time) int {
	m.logs = append(m.logs, merged{since: now})
	return len(m.logs) - 1
}

// Wants reports whether the next line of a log is to be put.
func (m *Merge) Wants(log int) bool { return !m.logs[log].hasNext && !m.logs[log].ended }

// Put sets the next line of a log that wants one.
func (m *Merge) Put(log int, line Line) {
	l := &m.logs[log]
	if line.At.After(l.at) {
		l.at = line.At
	}
	l.next, l.hasNext = line, true
}

// End notes that a log has no further line.
func (m *Merge) End(log int) { m.logs[log].ended = true }

// Next returns the next line and its log. If ok is false, no line is due yet: one may be after
// wait, or when another was put or a log has ended; a negative wait is without limit.
func (m *Merge) Next(now time.Time) (line Line, log int, ok bool, wait time.Duration) {
	log = -1
	for i := range m.logs {
		if l := &m.logs[i]; l.hasNext && (log < 0 || l.at.Before(m.logs[log].at)) {
			log = i
		}
	}
	if log < 0 {
		return Line{}, -1, false, -1
	}
	wait, waits := -1, false
	for i := range m.logs {
		l := &m.logs[i]
		if l.hasNext || l.ended || l.at.After(m.logs[log].at) {
			continue
		}
		if m.Window == 0 {
			// of two with the same time, the line of the first log is given first
			waits = waits || i < log || l.at.Before(m.logs[log].at)
			continue
		}
		if l.at.Equal(m.logs[log].at) {
			continue // its next line cannot be older
		}
		if left := m.Window - now.Sub(l.since); left > 0 {
			waits = true
			if wait < 0 || left < wait {
				wait = left
			}
		}
	}
	if waits {
		return Line{}, -1, false, wait
	}
	l := &m.logs[log]
	line, l.next, l.hasNext, l.since = l.next, Line{}, false, now
	return line, log, true, 0
}

package stacks

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Frame is a call of a Python function.
type Frame struct {
	// File is the path as Python has it.
	File string
	// Line is the line at which it stands; 0: unknown.
	Line     int
	Function string
}

// Thread is the stack of one thread.
type Thread struct {
	// Name is that of Python 3.14 and later; "": unknown.
	Name string
	// Current reports whether the thread has handled the signal.
	Current bool
	// Frames are the calls, the innermost first.
	Frames []Frame
	// Cut reports whether outer calls are left out.
	Cut bool
}

// Dump is the text of one process.
type Dump struct {
	Threads []Thread
	// More reports whether the process has more threads than were written: then the main thread may
	// be missing.
	More bool
}

var header = regexp.MustCompile(`^(Current thread|Thread) 0x[0-9a-fA-F]+(?: \[(.*)\])? \(most recent call first\):$`)

// Parse reads what faulthandler has written. Lines that it does not know are left out.
func Parse(text string) (d Dump) {
	var thread *Thread
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := header.FindStringSubmatch(line); m != nil {
			d.Threads = append(d.Threads, Thread{Name: printable(m[2]), Current: m[1] == "Current thread"})
			thread = &d.Threads[len(d.Threads)-1]
			continue
		}
		switch frame, ok := parseFrame(line); {
		case line == "...":
			d.More, thread = true, nil
		case thread == nil:
		case ok:
			thread.Frames = append(thread.Frames, frame)
		case line == "  ...":
			thread.Cut = true
		}
	}
	return d
}

// parseFrame reads a line such as
//
//	File "/code/train.py", line 41 in step
//
// with two spaces before it, and ??? for what is unknown.
func parseFrame(line string) (f Frame, ok bool) {
	const begin, middle = `  File `, `, line `
	rest, ok := strings.CutPrefix(line, begin)
	at := strings.LastIndex(rest, middle)
	if !ok || at < 0 {
		return f, false
	}
	file, rest := rest[:at], rest[at+len(middle):]
	number, function, ok := strings.Cut(rest, " in ")
	if !ok || function == "" {
		return f, false
	}
	if file != "???" {
		if len(file) < 3 || file[0] != '"' || file[len(file)-1] != '"' {
			return f, false
		}
		file = file[1 : len(file)-1]
	}
	if number != "???" {
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return f, false
		}
		f.Line = int(n)
	}
	f.File, f.Function = printable(file), printable(function)
	return f, true
}

// printable replaces characters that a terminal would obey.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// Main returns the main thread: the last one. If more threads exist than were written, it returns
// the one that has handled the signal, which is the main thread unless that blocks signals. It
// returns false if there is none with a frame.
func (d Dump) Main() (Thread, bool) {
	if len(d.Threads) == 0 {
		return Thread{}, false
	}
	main := d.Threads[len(d.Threads)-1]
	if d.More {
		for _, t := range d.Threads {
			if t.Current {
				main = t
			}
		}
	}
	main.Frames = program(main.Frames)
	return main, len(main.Frames) > 0
}

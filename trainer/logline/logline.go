// Package logline writes the logs of every role of a job in ElasticDL's format:
//
//	[2020-04-14 02:46:21,836] [INFO] [master.go:192:prepare] message key=value
//
// Tools that read ElasticDL's logs find the message where they expect it; the attributes of slog
// follow it. Lines that are shown to a user among those of a program have no source
// ([WithoutSource]).
package logline

import (
	"context"
	"io"
	"log/slog"
	"path"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Handler is a slog.Handler that writes one line per record, each by one Write.
type Handler struct {
	// guards out; shared with the handlers that WithAttrs and WithGroup derive
	mu    *sync.Mutex
	out   io.Writer
	level slog.Leveler
	// open groups, as "group."
	prefix string
	// attributes of WithAttrs, formatted
	attrs string
}

// New returns a handler that writes records of level and above to out.
func New(out io.Writer, level slog.Leveler) *Handler {
	return &Handler{mu: new(sync.Mutex), out: out, level: level}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := *h
	line := []byte(h.attrs)
	for _, a := range attrs {
		line = appendAttr(line, h.prefix, a)
	}
	derived.attrs = string(line)
	return &derived
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	derived := *h
	derived.prefix += name + "."
	return &derived
}

// stamp is the layout of the time in brackets at the beginning of a line.
const stamp = "2006-01-02 15:04:05,000"

// Time returns when a line of this format was written, read in this machine's time zone. It returns
// false for a line of another format.
func Time(line string) (time.Time, bool) {
	if len(line) < len(stamp)+2 || line[0] != '[' || line[len(stamp)+1] != ']' {
		return time.Time{}, false
	}
	t, err := time.ParseInLocation(stamp, line[1:len(stamp)+1], time.Local)
	return t, err == nil
}

// Handle implements slog.Handler.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	line := make([]byte, 0, 256)
	if !r.Time.IsZero() {
		line = append(line, '[')
		line = r.Time.AppendFormat(line, stamp)
		line = append(line, "] "...)
	}
	line = append(line, '[')
	line = append(line, r.Level.String()...)
	line = append(line, "] "...)
	if r.PC != 0 {
		line = appendSource(line, r.PC)
	}
	line = appendText(line, r.Message)
	line = append(line, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		line = appendAttr(line, h.prefix, a)
		return true
	})
	line = append(line, '\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.out.Write(line)
	return err
}

// appendSource writes "[file:line:function] ".
func appendSource(line []byte, pc uintptr) []byte {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	function := frame.Function[strings.LastIndexByte(frame.Function, '/')+1:]
	if _, name, ok := strings.Cut(function, "."); ok { // without the package
		function = name
	}
	if _, name, ok := strings.Cut(function, ")."); ok { // without the receiver
		function = name
	}
	line = append(line, '[')
	line = append(line, path.Base(frame.File)...)
	line = append(line, ':')
	line = strconv.AppendInt(line, int64(frame.Line), 10)
	line = append(line, ':')
	line = append(line, function...)
	return append(line, "] "...)
}

// sourced matches what stands before the message of a line, perhaps behind the name of its pod.
var sourced = regexp.MustCompile(
	`(?m)^((?:\[[a-z]+(?:-\d+)?\] )?\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \[[A-Z]+(?:[+-]\d+)?\] )\[\w+\.go:\d+:\S+\] `)

// WithoutSource returns whole lines without the source files of those of this format. The others,
// as a program's own, stay unchanged.
func WithoutSource(lines []byte) []byte { return sourced.ReplaceAll(lines, []byte("$1")) }

// Unsourced is a writer of whole lines, of which those of this format are written without their
// source files.
type Unsourced struct{ Out io.Writer }

// Write implements io.Writer.
func (u Unsourced) Write(lines []byte) (int, error) {
	if _, err := u.Out.Write(WithoutSource(lines)); err != nil {
		return 0, err
	}
	return len(lines), nil
}

func appendAttr(line []byte, prefix string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			line = appendAttr(line, prefix, member)
		}
		return line
	}
	if a.Equal(slog.Attr{}) {
		return line
	}
	line = append(line, ' ')
	line = append(line, prefix...)
	line = append(line, a.Key...)
	line = append(line, '=')
	text := value.String()
	if value.Kind() == slog.KindTime {
		text = value.Time().Format(time.RFC3339Nano)
	}
	if text == "" || strings.ContainsAny(text, " =\"\n\r\t") || Escape(text) != text {
		return strconv.AppendQuote(line, text)
	}
	return append(line, text...)
}

// appendText appends a message with control characters escaped, so that it stays on one line and
// has no effect on a terminal.
func appendText(line []byte, text string) []byte {
	text = Escape(text)
	if !strings.ContainsAny(text, "\n\t") {
		return append(line, text...)
	}
	return append(line, strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(text)...)
}

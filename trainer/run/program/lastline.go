package program

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/elasticdl/elasticdl/trainer/console"
	"github.com/elasticdl/elasticdl/trainer/logline"
)

const (
	// lineMost is the largest length of a last line, in characters, without the marks of a cut.
	lineMost = 160
	// lineLooked limits the part of a line that is read, in bytes.
	lineLooked = 4 << 10
)

// Output is the last output of a process.
type Output struct {
	// Line is the last line that is not blank, as a terminal would show it, shortened and escaped.
	// It may have no end yet. It is empty if there is none.
	Line string
	// when the process wrote something; zero: it has written nothing
	At time.Time
}

// written is the end of one stream.
type written struct {
	text []byte
	cut  bool // text is not the whole stream
	at   time.Time
}

// Output returns what the process with that local rank has written last, to either stream. The
// secrets are replaced by asterisks.
func (g *Group) Output(local int, secrets []string) Output {
	for _, it := range g.processes {
		if it.local == local {
			return newest(it.written(), secrets)
		}
	}
	return Output{}
}

// written returns the ends of the streams of a process.
func (it *process) written() (all []written) {
	for _, t := range it.traces {
		t.mu.Lock()
		all = append(all, written{slices.Clone(t.text), t.cut, t.at})
		t.mu.Unlock()
	}
	for _, name := range []string{"stdout.log", "stderr.log"} {
		path := filepath.Join(it.dir, name)
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			all = append(all, written{[]byte(endOf(path)), info.Size() > wordsKept, info.ModTime()})
		}
	}
	return all
}

// newest returns the last output among streams. If the newest stream has blank lines only, the line
// is of another one.
func newest(streams []written, secrets []string) (o Output) {
	slices.SortStableFunc(streams, func(a, b written) int { return b.at.Compare(a.at) })
	for _, s := range streams {
		if len(s.text) == 0 {
			continue
		}
		if o.At.IsZero() {
			o.At = s.at
		}
		if o.Line == "" {
			o.Line = lastLine(s.text, s.cut, secrets)
		}
	}
	return o
}

// lastLine returns the last line of a text that a terminal would not show as blank. A carriage
// return begins a line again, as in progress bars. Of a line that is too long it returns the
// beginning, or the end if the text does not have its beginning.
func lastLine(text []byte, cut bool, secrets []string) string {
	for len(text) > 0 {
		i := bytes.LastIndexAny(text, "\r\n")
		line, whole := text[i+1:], i >= 0 || !cut
		switch {
		case len(line) > lineLooked && whole:
			line = line[:lineLooked]
		case len(line) > lineLooked:
			line = line[len(line)-lineLooked:]
		}
		if shown := shownLine(line, secrets); shown != "" {
			return shortLine(shown, whole)
		}
		text = text[:max(i, 0)]
	}
	return ""
}

// shownLine returns a line as a terminal would show it, without control sequences, with single
// spaces.
func shownLine(line []byte, secrets []string) string {
	text := string(console.Plain(backspaced(line)))
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return logline.Escape(strings.Join(strings.Fields(text), " "))
}

// backspaced returns a line in which each backspace has removed the character before it.
func backspaced(line []byte) []byte {
	if !bytes.Contains(line, []byte{'\b'}) {
		return line
	}
	var out []byte
	for _, c := range line {
		if c != '\b' {
			out = append(out, c)
		} else if len(out) > 0 {
			_, size := utf8.DecodeLastRune(out)
			out = out[:len(out)-size]
		}
	}
	return out
}

// shortLine shortens a line: it keeps the beginning if that is there.
func shortLine(line string, whole bool) string {
	runes := []rune(line)
	switch most := lineMost; {
	case !whole:
		return "…" + string(runes[max(0, len(runes)-most):])
	case len(runes) > most:
		return string(runes[:most]) + "…"
	}
	return line
}

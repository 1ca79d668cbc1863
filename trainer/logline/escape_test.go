package logline_test

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// Sequences that do something to a terminal: its title, its clipboard, what is on it, what it
// answers.
var attacks = []string{
	"\x1b]0;title\x07", "\x1b]52;c;aHVudGVyMg==\x07", "\x1b[2J\x1b[H", "\x1b[1A\x1b[2K",
	"\x1bP$q\x1b\\", "\x1b[6n", "\x1b[?1049h",
	"\u009b2J", "\x9b2J", "\x07", "\x08\x08\x08", "\u202egnp.exe", "\u2066", "\x00", "\x7f", "\u2028",
}

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"loss 0.5, größer, 损失, 🙂":    "loss 0.5, größer, 损失, 🙂",
		"two\nlines\tof it":          "two\nlines\tof it",
		"\x1b]0;title\x07":           `\x1b]0;title\a`,
		"\u009b2J":                   `\u009b2J`,
		"\x9b2J":                     `\x9b2J`,
		"a\rb":                       `a\rb`,
		"\u202egnp":                  `\u202egnp`,
		"\ufffd":                     `\ufffd`,
		`\x1b is not an escape here`: `\x1b is not an escape here`,
	} {
		if got := logline.Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// harmless says whether a terminal shows a text and does nothing else.
func harmless(text string) bool {
	return logline.Escape(text) == text
}

// Foreign text is escaped in all parts of a log line.
func TestLogLinesAreHarmless(t *testing.T) {
	for _, attack := range attacks {
		var out bytes.Buffer
		log := slog.New(logline.New(&out, slog.LevelInfo))
		log.With("with", attack).WithGroup("group").Error("worker said "+attack, "err",
			errors.New(attack), "name", "a"+attack)
		if line := out.String(); !harmless(line) || strings.Count(line, "\n") != 1 {
			t.Errorf("%q: the line is %q", attack, line)
		}
	}
}

func TestTerminal(t *testing.T) {
	for _, attack := range attacks {
		var out strings.Builder
		line := "\x1b[31mred\x1b[0m 50%\r100% " + attack + "\x1b[1;38:5:9mbold\x1b[m\n"
		if n, err := (logline.Terminal{Out: &out}).Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%q: wrote %d, %v", line, n, err)
		}
		want := "\x1b[31mred\x1b[0m 50%\r100% " + logline.Escape(attack) + "\x1b[1;38:5:9mbold\x1b[m\n"
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}

// FuzzEscape: what is escaped is harmless, what is harmless stays, and a terminal gets no control
// sequence but colours.
func FuzzEscape(f *testing.F) {
	for _, attack := range attacks {
		f.Add(attack)
		f.Add("\x1b[31m" + attack + "\x1b[0m\r\n")
	}
	colours := regexp.MustCompile("\x1b\\[[0-9;:]*m")
	f.Fuzz(func(t *testing.T, text string) {
		escaped := logline.Escape(text)
		if !utf8.ValidString(escaped) || strings.ContainsFunc(escaped, func(r rune) bool {
			return unicode.IsControl(r) && r != '\n' && r != '\t'
		}) || logline.Escape(escaped) != escaped {
			t.Errorf("%q: %q", text, escaped)
		}
		var out strings.Builder
		if _, err := (logline.Terminal{Out: &out}).Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		rest := strings.ReplaceAll(colours.ReplaceAllString(out.String(), ""), "\r", "")
		if logline.Escape(rest) != rest {
			t.Errorf("%q: a terminal gets %q", text, out.String())
		}
	})
}

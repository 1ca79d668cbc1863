package logline_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// Sequences that do something to a terminal: its title, its clipboard, what is on it, what it answers.
var attacks = []string{
	"\x1b]0;title\x07", "\x1b]52;c;aHVudGVyMg==\x07", "\x1b[2J\x1b[H", "\x1b[1A\x1b[2K", "\x1bP$q\x1b\\", "\x1b[6n", "\x1b[?1049h",
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

// What others have said is in a log line as text, wherever it stands.
func TestLogLinesAreHarmless(t *testing.T) {
	for _, attack := range attacks {
		var out bytes.Buffer
		log := slog.New(logline.New(&out, slog.LevelInfo))
		log.With("with", attack).WithGroup("group").Error("worker said "+attack, "err", errors.New(attack), "name", "a"+attack)
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

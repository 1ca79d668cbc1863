package logline

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes untrusted text safe to print: it has no effect on a terminal and no invisible
// characters. Characters that are not graphic, other than line feeds and tabs, are written as in a
// Go string: an escape character as \x1b. It is for text from processes of a job, its cluster, its
// files.
func Escape(text string) string { return escape(text, "\n\t") }

// escape is [Escape], with the characters of as left unchanged.
func escape(text, as string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !shows(r) && !strings.ContainsRune(as, r) }) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case shows(r) || strings.ContainsRune(as, r):
			b.WriteString(text[i : i+size])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// shows reports whether a character is printed unchanged. It is false for [utf8.RuneError], which
// also stands for invalid UTF-8.
func shows(r rune) bool { return unicode.IsGraphic(r) && r != utf8.RuneError }

// colour matches control sequences that only change how text looks.
var colour = regexp.MustCompile("\x1b\\[[0-9;:]*m")

// Terminal writes untrusted logs to a terminal. Colours keep their effect, and so do carriage
// returns, which progress bars need; all other control sequences are made visible. Each Write must
// be given whole lines.
type Terminal struct{ Out io.Writer }

// Write writes whole lines.
func (t Terminal) Write(lines []byte) (int, error) {
	var b strings.Builder
	rest := string(lines)
	for rest != "" {
		at := colour.FindStringIndex(rest)
		if at == nil {
			at = []int{len(rest), len(rest)}
		}
		b.WriteString(escape(rest[:at[0]], "\n\t\r"))
		b.WriteString(rest[at[0]:at[1]])
		rest = rest[at[1]:]
	}
	if _, err := io.WriteString(t.Out, b.String()); err != nil {
		return 0, err
	}
	return len(lines), nil
}

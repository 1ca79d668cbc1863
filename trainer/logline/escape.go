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

// Escape returns a text that does nothing to a terminal and hides nothing from its reader: what is neither a letter, mark, number,
// sign nor space, line feeds and tabs excepted, stands as Go writes it in a string, an escape character as \x1b. It is
// for text that others have written: processes of a job, its cluster, its files.
func Escape(text string) string { return escape(text, "\n\t") }

// escape leaves the characters in as they are, too.
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

// shows reports whether a character is seen as it is. What is no UTF-8 is decoded as [utf8.RuneError] and looked at again.
func shows(r rune) bool { return unicode.IsGraphic(r) && r != utf8.RuneError }

// colour is a control sequence that changes how text looks, and nothing else.
var colour = regexp.MustCompile("\x1b\\[[0-9;:]*m")

// A Terminal is a writer to one, of logs that others have written. Colours have their effect, and so have carriage returns, which
// bars of progress need; of all other control sequences the reader sees that they are there. Each Write has whole lines.
type Terminal struct{ Out io.Writer }

// Write writes lines.
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

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Everything here is how views write numbers, times and lines.

// short is a duration as kubectl writes ages: 35s, 2m3s, 5m, 3h20m, 4d.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h >= 48:
		return fmt.Sprintf("%dd", h/24)
	case h > 0 && m > 0:
		return fmt.Sprintf("%dh%dm", h, m)
	case h > 0:
		return fmt.Sprintf("%dh", h)
	case m >= 10 || m > 0 && s == 0:
		return fmt.Sprintf("%dm", m)
	case m > 0:
		return fmt.Sprintf("%dm%ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}

// commas is n with its thousands apart.
func commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// oneLine keeps a reason on its line, and out of a table's columns.
func oneLine(reason string) string {
	return strings.NewReplacer("\n", "; ", "\t", " ").Replace(reason)
}

// count is "1 pod" or "3 pods".
func count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return commas(n) + " " + noun
}

// cut shortens a line to width characters.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}

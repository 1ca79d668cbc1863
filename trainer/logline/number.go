package logline

import "strconv"

// Thousands formats a number with separators, as in 1,234,567. It is for counts in sentences;
// attributes of log lines have none.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

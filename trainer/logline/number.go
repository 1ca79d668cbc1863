package logline

import "strconv"

// Thousands returns a number with its thousands apart, as in 1,234,567. It is for counts in sentences; attributes of log lines are plain.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

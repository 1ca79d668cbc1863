package page

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// colours matches control sequences that only change how text looks.
var colours = regexp.MustCompile("\x1b\\[[0-9;:]*m")

// moment is a time on the page.
type moment struct {
	At string // RFC 3339
	// of the day or, of another day, with the date
	Text string
}

// momentOf returns a time of milliseconds since 1970, with its date unless that is the date of now.
func momentOf(ms int64, now time.Time) moment {
	t := time.UnixMilli(ms).In(now.Location())
	text := t.Format(time.TimeOnly)
	if y, m, d := now.Date(); t.Year() != y || t.Month() != m || t.Day() != d {
		text = t.Format("2 Jan 15:04:05")
	}
	return moment{t.Format(time.RFC3339), text}
}

// short returns a duration in at most two units.
func short(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	switch {
	case d > 0 && d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %02d s", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%d h %02d min", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %d h", s/(24*3600), s/3600%24)
}

// age returns how long ago a time of milliseconds was; "" of none.
func age(ms int64, now time.Time) string {
	if ms <= 0 {
		return ""
	}
	return short(now.Sub(time.UnixMilli(ms)))
}

// figure returns a number in four digits.
func figure(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case size >= 1000:
		return logline.Thousands(int64(math.Round(v)))
	case size >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case size == 0:
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// count returns a number of things.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return logline.Thousands(int64(n)) + " " + one + "s"
}

// number returns a coordinate with two digits.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

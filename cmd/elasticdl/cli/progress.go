package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// bar draws the progress in records, in n cells.
func bar(s *wire.JobStatus, n int) string {
	full := 0
	if s.RecordsTotal > 0 {
		full = int(s.RecordsDone * int64(n) / s.RecordsTotal)
	}
	full = min(max(full, 0), n)
	return strings.Repeat("█", full) + strings.Repeat("░", n-full)
}

// progress returns the progress of a job: percentage, records, speed and remaining time. The number
// of all records is not known if their shards are of unknown length.
func progress(s *wire.JobStatus) []string {
	if s.RecordsTotal == 0 && s.RecordsDone == 0 {
		return []string{"starting"}
	}
	if s.RecordsTotal == 0 {
		parts := []string{count(s.RecordsDone, "record")}
		if s.EndedUnixMs == 0 && s.RecordsPerSecond > 0 {
			parts = append(parts, logline.Thousands(int64(s.RecordsPerSecond))+" records/s")
		}
		return parts
	}
	parts := []string{percent(s), fmt.Sprintf("%s/%s records", logline.Thousands(s.RecordsDone),
		logline.Thousands(s.RecordsTotal))}
	switch {
	case s.EndedUnixMs > 0:
	case s.RecordsDone == s.RecordsTotal:
		parts = append(parts, "finishing") // evaluating, exporting
	case s.RecordsPerSecond > 0:
		parts = append(parts, logline.Thousands(int64(s.RecordsPerSecond))+" records/s")
		if left, ok := remaining(s); ok {
			parts = append(parts, short(left)+" left")
		}
	}
	return parts
}

func percent(s *wire.JobStatus) string {
	switch {
	case s.RecordsTotal <= 0 && s.Program != "": // its progress is not known
		return "-"
	case s.RecordsTotal <= 0:
		return "0%"
	}
	return fmt.Sprintf("%d%%", s.RecordsDone*100/s.RecordsTotal)
}

// remaining returns the time that the remaining records take at the current speed.
func remaining(s *wire.JobStatus) (time.Duration, bool) {
	seconds := float64(s.RecordsTotal-s.RecordsDone) / s.RecordsPerSecond
	if !(seconds > 0 && seconds < 1e8) {
		return 0, false
	}
	return time.Duration(math.Ceil(seconds)) * time.Second, true
}

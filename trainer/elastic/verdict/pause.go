package verdict

import (
	"fmt"
	"time"
)

// ran returns how long the processes of the last world have run, -1 if that is not known.
func (j *Judge) ran(now time.Time) time.Duration {
	if j.starts.IsZero() {
		return -1
	}
	return now.Sub(j.starts)
}

// lacked returns how many workers a world lacked that are being replaced. It is 0 if the world has
// got on without them.
func (j *Judge) lacked(e End, now time.Time) int {
	if j.Completed(e.Generation) || j.ran(now) >= gotOn {
		return 0
	}
	whole := j.whole
	if whole < 0 {
		whole = len(e.Workers)
	}
	return max(0, e.Wanted-whole)
}

// lasted reports whether the processes of a world got on: they completed a round, or they did not
// fail soon.
func (j *Judge) lasted(w World, now time.Time) bool {
	return j.Completed(w.Generation) || now.Sub(j.starts) >= briefly
}

// pace counts a world in which processes have failed if it was a brief one, and sets when those of
// the next one start. If both worlds lack workers that are being replaced, they start when these
// are there, or after Gather: they would fail again.
func (j *Judge) pace(e End, lacked int, now time.Time) {
	pause, lasted := time.Duration(0), j.lasted(e.World, now)
	if !lasted {
		j.brief++
		pause = pauseAfter(j.brief)
	}
	j.lacks = 0
	if missing := e.Wanted - len(e.Next.Workers); lacked > 0 && missing > 0 && !e.Next.Kept && j.policy.Gather > 0 {
		j.lacks, pause, lasted = missing, max(pause, j.policy.Gather), false
	}
	if !lasted {
		j.starts = now.Add(pause)
	}
}

// resume ends a pause in which workers were waited for, as a world with them follows.
func (j *Judge) resume(e End, now time.Time) {
	if j.lacks > 0 && e.Wanted <= len(e.Next.Workers) {
		j.lacks, j.starts = 0, now
	}
}

// pauseAfter returns how long processes wait before they start, after a number of brief worlds in a
// row: not at all after four of them, 1 s after the fifth, and then twice as long each time, up to
// longestPause.
func pauseAfter(brief int) time.Duration {
	if brief < 5 {
		return 0
	}
	return min(time.Second<<min(brief-5, 10), longestPause)
}

// Start notes that a world begins in which a number of workers bring all their processes. It
// returns how long the processes wait before they start.
func (j *Judge) Start(whole int, now time.Time) time.Duration {
	j.whole = whole
	if j.starts.Before(now) {
		j.starts = now
	}
	return j.starts.Sub(now)
}

// Waiting returns what the processes wait for before they start, "" if they do not wait. wanted is
// the number of workers that a world should have.
func (j *Judge) Waiting(wanted int, now time.Time) string {
	switch wait := j.starts.Sub(now); {
	case wait <= 0:
		return ""
	case j.lacks > 0:
		return fmt.Sprintf("waiting for %d of %d workers, for at most %v more: the program "+
			"failed in a world without them", j.lacks, wanted, wait.Round(time.Second))
	}
	return fmt.Sprintf("its processes wait %v before they start: %d times in a row they "+
		"failed within %v", pauseAfter(j.brief), j.brief, briefly)
}

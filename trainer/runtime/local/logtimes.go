package local

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"
)

// timesSuffix ends the name of the file that says when the parts of a log were written. The lines
// of a program say no time. Each line of the file has an offset in the log, and a time in Unix
// milliseconds before which nothing behind the offset was written.
const timesSuffix = ".times"

// timesEvery is the time between two looks of the launcher for logs that have grown.
const timesEvery = 500 * time.Millisecond

// logTimes notes when the logs of a job grow.
type logTimes struct {
	dir    dir
	sizes  map[string]int64
	looked time.Time
}

// newLogTimes returns the notes of a launcher that begins. The earlier content of the logs is of
// former launchers.
func newLogTimes(d dir, now time.Time) *logTimes {
	l := &logTimes{dir: d, sizes: make(map[string]int64), looked: now}
	pods, _ := d.pods() // none: there is no log yet
	for _, p := range pods {
		l.sizes[p] = logSize(d.logFile(p))
	}
	return l
}

// run looks every timesEvery until done is closed, and then once more.
func (l *logTimes) run(done <-chan struct{}) {
	tick := time.NewTicker(timesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.look(time.Now())
		case <-done:
			l.look(time.Now())
			return
		}
	}
}

// look notes which logs have grown since the look before.
func (l *logTimes) look(now time.Time) {
	pods, _ := l.dir.pods() // none: the next look may find them
	for _, p := range pods {
		if size := logSize(l.dir.logFile(p)); size > l.sizes[p] && l.note(p, l.sizes[p]) == nil {
			l.sizes[p] = size
		}
	}
	l.looked = now
}

// note writes that what is behind an offset was written after the last look.
func (l *logTimes) note(pod string, offset int64) error {
	file, err := os.OpenFile(l.dir.path("logs/"+pod+timesSuffix), os.O_WRONLY|os.O_CREATE|os.O_APPEND, private)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintf(file, "%d %d\n", offset, l.looked.UnixMilli())
	return err
}

// written says that what is behind an offset of a log was not written before a time.
type written struct {
	offset int64
	after  time.Time
}

// timesOf returns what is known of the times of a log, by offset. Lines that a full disk has cut
// are left out.
func (d dir) timesOf(pod string) (all []written) {
	file, err := os.Open(d.path("logs/" + pod + timesSuffix))
	if err != nil {
		return nil // of a launcher of an older version
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if w, ok := parseWritten(lines.Text()); ok && (len(all) == 0 || w.offset >= all[len(all)-1].offset) {
			all = append(all, w)
		}
	}
	return all
}

func parseWritten(line string) (w written, ok bool) {
	var ms int64
	var rest string
	n, _ := fmt.Sscanf(line, "%d %d %s", &w.offset, &ms, &rest) // too few are no error that matters
	w.after = time.UnixMilli(ms)
	return w, n == 2 && w.offset >= 0 && ms > 0
}

// timeAt returns the time before which the line at an offset was not written; zero: it is not
// known.
func timeAt(all []written, offset int64) time.Time {
	i, found := slices.BinarySearchFunc(all, offset, func(w written, offset int64) int {
		return cmp.Compare(w.offset, offset)
	})
	for found && i+1 < len(all) && all[i+1].offset == offset {
		i++
	}
	if !found {
		i--
	}
	if i < 0 {
		return time.Time{}
	}
	return all[i].after
}

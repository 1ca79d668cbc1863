package program

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// traceKept limits the kept end of a stream, in bytes.
	traceKept = 16 << 10
	// traceLines limits the compared lines of it.
	traceLines = 40
)

// trace keeps of a stream what tells whether a process has written the same as the one before it:
// the number of its lines, and its end.
type trace struct {
	mu    sync.Mutex
	lines int
	cut   bool // text is not the whole stream
	text  []byte
	at    time.Time // when something came; zero: nothing has
}

// Write takes what comes next. It never fails.
func (t *trace) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Now()
	t.lines += bytes.Count(p, []byte{'\n'})
	t.text = append(t.text, p...)
	if over := len(t.text) - traceKept; over > 0 {
		t.text, t.cut = append(t.text[:0], t.text[over:]...), true
	}
	return len(p), nil
}

// volatile matches what differs between two runs that do the same: dates, times, Unix times,
// addresses in memory, and ports.
var volatile = regexp.MustCompile(
	`\d{4}-\d\d-\d\d|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?|\b1[5-9]\d{8}(?:\.\d+)?\b|0x[0-9a-fA-F]+|:\d{4,5}\b`)

// comparable returns the last lines of a text without what differs between two runs that do the
// same.
func comparable(text string, cut bool, pid int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if cut {
		lines = lines[1:]
	}
	lines = lines[max(0, len(lines)-traceLines):]
	own := regexp.MustCompile(`\b` + strconv.Itoa(pid) + `\b`)
	return own.ReplaceAllString(volatile.ReplaceAllString(strings.Join(lines, "\n"), "*"), "*")
}

// wrote reports whether a process has written anything.
func (it *process) wrote() bool {
	for _, t := range it.traces {
		t.mu.Lock()
		some := len(t.text) > 0
		t.mu.Unlock()
		if some {
			return true
		}
	}
	return slices.ContainsFunc([]string{"stdout.log", "stderr.log"}, func(name string) bool {
		info, err := os.Stat(filepath.Join(it.dir, name))
		return err == nil && info.Size() > 0
	})
}

// output returns a digest of what an ended process has written, "" if that is nothing. Processes
// that wrote the same have the same digest; dates, times, addresses and their own pid do not count.
func (it *process) output() string {
	copied := make(chan struct{})
	go func() {
		it.copies.Wait() // clear ends it
		close(copied)
	}()
	timer := time.NewTimer(wordsLimit)
	defer timer.Stop()
	select {
	case <-copied:
	case <-timer.C:
	}
	var all strings.Builder
	for i, t := range it.traces {
		t.mu.Lock()
		if len(t.text) > 0 {
			fmt.Fprintf(&all, "stream %d of %d lines\n%s\n", i, t.lines, comparable(string(t.text), t.cut, it.pid))
		}
		t.mu.Unlock()
	}
	for _, name := range []string{"stdout.log", "stderr.log"} {
		path := filepath.Join(it.dir, name)
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			fmt.Fprintf(&all, "%s\n%s\n", name, comparable(endOf(path), info.Size() > wordsKept, it.pid))
		}
	}
	if all.Len() == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:8])
}

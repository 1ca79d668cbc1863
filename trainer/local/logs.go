package local

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/role"
)

// pollInterval is the time between two looks of a follower for more.
const pollInterval = 100 * time.Millisecond

// Logs copies logs of a job, until ctx is done.
func Logs(ctx context.Context, name string, o role.LogOptions, w io.Writer) error {
	d, err := existing(name)
	if err != nil {
		return err
	}
	return d.copyLogs(ctx, o, w)
}

// copyLogs copies logs of a job, until ctx is done.
func (d dir) copyLogs(ctx context.Context, o role.LogOptions, w io.Writer) error {
	since := time.Time{}
	if o.Since > 0 {
		since = time.Now().Add(-o.Since)
	}
	tails := make(map[string]*tail)
	defer func() {
		for _, t := range tails {
			t.file.Close()
		}
	}()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for first := true; ; first = false {
		last := !o.Follow || !d.alive() // checked before the logs are read, so that all is read that the job wrote while it lived
		pods, err := d.pods()
		if err != nil {
			return err
		}
		if o.Pod != "" {
			if !slices.Contains(pods, o.Pod) {
				return fmt.Errorf("log of pod %q of job %s %w (there are %s)", o.Pod, d.name(), role.ErrNoLog, strings.Join(pods, ", "))
			}
			pods = []string{o.Pod}
		}
		for _, p := range pods {
			if tails[p] == nil {
				lines := o.Tail
				if !first {
					lines = -1
				}
				file, err := openLog(d.logFile(p), since, lines)
				if err != nil {
					return err
				}
				tails[p] = &tail{file: file}
				if o.Pod == "" {
					tails[p].prefix = "[" + p + "] "
				}
			}
			if err := tails[p].copy(w, last); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// pods lists the pods that have a log: the master, then servers, then workers, by number.
func (d dir) pods() ([]string, error) {
	entries, err := os.ReadDir(d.logs())
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".log"); ok {
			pods = append(pods, name)
		}
	}
	slices.SortFunc(pods, func(a, b string) int {
		roleA, indexA, _ := strings.Cut(a, "-")
		roleB, indexB, _ := strings.Cut(b, "-")
		numberA, _ := strconv.Atoi(indexA)
		numberB, _ := strconv.Atoi(indexB)
		return cmp.Or(cmp.Compare(roleA, roleB), cmp.Compare(numberA, numberB)) // the roles are in alphabetical order
	})
	return pods, nil
}

// tail reads a log that grows.
type tail struct {
	file   *os.File
	prefix string
	rest   []byte // the beginning of a line that is still being written
}

// copy writes the lines that were added since the last call; at the end also an incomplete one.
func (t *tail) copy(w io.Writer, end bool) error {
	chunk := make([]byte, 64<<10)
	for {
		n, err := t.file.Read(chunk)
		t.rest = append(t.rest, chunk[:n]...)
		if err == io.EOF && end && len(t.rest) > 0 {
			t.rest = append(t.rest, '\n')
		}
		complete := t.rest[:bytes.LastIndexByte(t.rest, '\n')+1]
		var out []byte
		for line := range bytes.Lines(complete) {
			out = append(append(out, t.prefix...), line...)
		}
		t.rest = t.rest[len(complete):]
		if _, err := w.Write(out); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// openLog opens a log at its first wanted line: not older than since (zero: any age), and among the last lines (negative: all).
func openLog(path string, since time.Time, lines int64) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var from int64
	if lines >= 0 {
		err = skipTo(file, lines)
		at, e := file.Seek(0, io.SeekCurrent)
		from, err = max(from, at), errors.Join(err, e)
	}
	if !since.IsZero() && err == nil {
		at, e := olderThan(file, since)
		from, err = max(from, at), e
	}
	if err == nil {
		_, err = file.Seek(from, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// olderThan returns how many bytes of a log are older than a time. A line without a time, such as one of a program, is as old as the next
// line that has one.
func olderThan(file *os.File, since time.Time) (int64, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return 0, err
	case info.ModTime().Before(since):
		return info.Size(), nil
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	var at, older int64
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		at += int64(len(line))
		if t, ok := logline.Time(line); ok && t.Before(since) {
			older = at
		}
		switch {
		case err == io.EOF:
			return older, nil
		case err != nil:
			return 0, err
		}
	}
}

// skipTo seeks to the beginning of the last lines of a file.
func skipTo(file *os.File, lines int64) error {
	at, err := file.Seek(0, io.SeekEnd)
	if err != nil || lines == 0 {
		return err
	}
	end := at
	for chunk := make([]byte, 64<<10); at > 0; {
		n := min(at, int64(len(chunk)))
		at -= n
		if _, err := file.ReadAt(chunk[:n], at); err != nil {
			return err
		}
		for i := n - 1; i >= 0; i-- {
			if chunk[i] != '\n' || at+i == end-1 { // which ends the last line
				continue
			}
			if lines--; lines == 0 {
				_, err := file.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// signalled matches the first line of what Go's runtime writes about a signal that ends the process.
var signalled = regexp.MustCompile(`^SIG[A-Z0-9]+: `)

// lastLine returns the last line of a log. If Go's runtime wrote the end of it, because of a panic, a fatal error or a signal, it returns the
// line before the stacks and registers instead ("SIGSEGV: segmentation violation"). It looks at the last 256 kilobytes.
func lastLine(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	end := make([]byte, min(info.Size(), 256<<10))
	n, _ := file.ReadAt(end, info.Size()-int64(len(end)))
	lines := strings.Split(strings.TrimSpace(string(end[:n])), "\n")
	for _, line := range slices.Backward(lines) {
		switch {
		case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "), signalled.MatchString(line):
			return line
		case strings.HasPrefix(line, "[signal "): // of a panic that is the line above
		case strings.HasPrefix(line, "["), strings.HasPrefix(line, "elasticdl "): // no stack
			return lines[len(lines)-1]
		}
	}
	return lines[len(lines)-1]
}

// logSize returns the size of a log in bytes.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

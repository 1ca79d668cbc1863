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
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
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

// followWindow is the time that a follower waits for the lines of other pods before it shows one.
const followWindow = 2 * pollInterval

// copyLogs copies logs of a job, until ctx is done: those of several pods by the time of their
// lines.
func (d dir) copyLogs(ctx context.Context, o role.LogOptions, w io.Writer) error {
	c := &copier{dir: d, options: o, out: w, tails: make(map[string]*tail)}
	if o.Since > 0 {
		c.since = time.Now().Add(-o.Since)
	}
	if o.Follow {
		c.merge.Window = followWindow
	}
	defer c.close()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for first := true; ; first = false {
		// checked before the logs are read, so that all is read that the job wrote while it lived
		last := !o.Follow || !d.alive()
		err := c.find(first)
		if err == nil {
			err = c.copy(last)
		}
		if err != nil || last {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// copier merges the logs of a job.
type copier struct {
	dir     dir
	options role.LogOptions
	since   time.Time // no older line is wanted; zero: all are
	out     io.Writer
	merge   logline.Merge
	tails   map[string]*tail
	order   []*tail // by their numbers in the merge
}

func (c *copier) close() {
	for _, t := range c.order {
		t.file.Close()
	}
}

// find opens the logs that are wanted and not open yet. Of those that are there at first, only the
// last lines may be wanted.
func (c *copier) find(first bool) error {
	pods, err := c.dir.pods()
	if err != nil {
		return err
	}
	if p := c.options.Pod; p != "" {
		if !slices.Contains(pods, p) {
			return fmt.Errorf("log of pod %q of job %s %w (there are %s)", p, c.dir.name(),
				role.ErrNoLog, strings.Join(pods, ", "))
		}
		pods = []string{p}
	}
	for _, p := range pods {
		if c.tails[p] != nil {
			continue
		}
		lines := c.options.Tail
		if !first {
			lines = -1
		}
		file, err := openLog(c.dir.logFile(p), c.since, lines)
		if err != nil {
			return err
		}
		t := &tail{file: file, times: c.dir.timesOf(p)}
		if c.options.Pod == "" {
			t.prefix = "[" + p + "] "
		}
		c.tails[p] = t
		c.order = append(c.order, t)
		c.merge.Add(time.Now())
		if t.offset, err = file.Seek(0, io.SeekCurrent); err != nil {
			return err
		}
	}
	return nil
}

// outputGrain is the number of bytes that are written at once.
const outputGrain = 64 << 10

// copy writes the lines that are due; at the end all of them, also incomplete ones.
func (c *copier) copy(end bool) error {
	var out []byte
	for i := range c.order {
		if err := c.fill(i, end); err != nil {
			return err
		}
	}
	for {
		line, i, ok, _ := c.merge.Next(time.Now())
		if !ok {
			break
		}
		out = append(append(out, c.order[i].prefix...), line.Text...)
		if len(out) >= outputGrain {
			if _, err := c.out.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		if err := c.fill(i, end); err != nil {
			return err
		}
	}
	if len(out) == 0 {
		return nil
	}
	_, err := c.out.Write(out)
	return err
}

// fill puts the next line of a log, if there is one.
func (c *copier) fill(i int, end bool) error {
	if !c.merge.Wants(i) {
		return nil
	}
	line, ok, err := c.order[i].next(end)
	switch {
	case err != nil:
		return err
	case ok:
		c.merge.Put(i, line)
	case end:
		c.merge.End(i)
	}
	return nil
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
		// the roles are in alphabetical order
		return cmp.Or(cmp.Compare(roleA, roleB), cmp.Compare(numberA, numberB))
	})
	return pods, nil
}

// tail reads a log that grows.
type tail struct {
	file   *os.File
	prefix string
	// what was read and not given
	rest []byte
	// of rest in the file
	offset int64
	// what is known of the times of lines
	times []written
	// of the last look that found no more; zero: there was none
	at time.Time
}

// next returns the next line; at the end also an incomplete one.
func (t *tail) next(end bool) (line logline.Line, ok bool, err error) {
	var chunk []byte
	for searched := 0; ; {
		if i := bytes.IndexByte(t.rest[searched:], '\n'); i >= 0 {
			return t.take(searched + i + 1), true, nil
		}
		searched = len(t.rest)
		if len(chunk) == 0 {
			chunk = make([]byte, 64<<10)
		}
		n, err := t.file.Read(chunk)
		t.rest = append(t.rest, chunk[:n]...)
		switch {
		case n > 0:
		case err == io.EOF && end && len(t.rest) > 0:
			t.rest = append(t.rest, '\n')
		case err == io.EOF:
			t.at = time.Now()
			return line, false, nil
		case err != nil:
			return line, false, err
		}
	}
}

// take returns the first n bytes of the rest as a line. A line that says no time was not written
// before what is noted of it.
func (t *tail) take(n int) logline.Line {
	line := logline.Line{Text: string(t.rest[:n])}
	var ok bool
	switch line.At, ok = logline.Time(line.Text); {
	case ok:
	case !t.at.IsZero(): // it was written since then
		line.At = t.at
	default:
		line.At = timeAt(t.times, t.offset)
	}
	t.rest, t.offset = t.rest[n:], t.offset+int64(n)
	return line
}

// openLog opens a log at its first wanted line: not older than since (zero: any age), and among the
// last lines (negative: all).
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

// olderThan returns how many bytes of a log are older than a time. A line without a time, such as
// one of a program, is as old as the next line that has one.
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

// signalled matches the first line of what Go's runtime writes about a signal that ends the
// process.
var signalled = regexp.MustCompile(`^SIG[A-Z0-9]+: `)

// lastLine returns the last line of a log. If Go's runtime wrote the end of it, because of a panic,
// a fatal error or a signal, it returns the line before the stacks and registers instead ("SIGSEGV:
// segmentation violation"). It looks at the last 256 kilobytes.
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

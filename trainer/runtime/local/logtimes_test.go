package local

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// stampedAt returns a line of ElasticDL's own.
func stampedAt(at time.Time, text string) string {
	return at.Format("[2006-01-02 15:04:05,000] ") + text + "\n"
}

// shown returns the logs of a job without the times of their lines, in one line.
func shown(t *testing.T, name string, o role.LogOptions) string {
	t.Helper()
	var out strings.Builder
	if err := Logs(t.Context(), name, o, &out); err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(out.String()) {
		if before, rest, ok := strings.Cut(line, "[20"); ok {
			_, rest, _ = strings.Cut(rest, "] ")
			line = before + rest
		}
		all = append(all, strings.TrimSuffix(line, "\n"))
	}
	return strings.Join(all, "|")
}

// Lines of several pods are shown by time. A line without a time follows the line before, unless it
// was noted when it was written.
func TestLogsAreByTime(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	t.Run("own lines", func(t *testing.T) {
		d, end := aliveJob(t, "a")
		defer end()
		appendLog(t, d, "worker-0", stampedAt(at(1), "a")+"Traceback\n  File\n"+stampedAt(at(9), "b"))
		appendLog(t, d, "worker-1", stampedAt(at(2), "c")+stampedAt(at(3), "d")+"no end")
		appendLog(t, d, "master", stampedAt(at(2), "e")+stampedAt(at(1), "its clock was set")+stampedAt(at(7), "f"))
		const want = "[worker-0] a|[worker-0] Traceback|[worker-0]   File|[master] e|[master] its " +
			"clock was set|[worker-1] c|[worker-1] d|[worker-1] no end|[master] f|[worker-0] b"
		if got := shown(t, "a", role.LogOptions{Tail: -1}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := shown(t, "a", role.LogOptions{Tail: 1}); got != "[worker-1] no end|[master] f|[worker-0] b" {
			t.Errorf("the last lines: %s", got)
		}
		if got := shown(t, "a", role.LogOptions{Tail: -1, Pod: "worker-0"}); got != "a|Traceback|  File|b" {
			t.Errorf("of one pod: %s", got)
		}
	})
	t.Run("lines of a program", func(t *testing.T) {
		d, end := aliveJob(t, "a")
		defer end()
		appendLog(t, d, "worker-0", "of the start before\n")
		times := newLogTimes(d, at(0))
		// each look notes what came since the one before
		for i := range 3 {
			appendLog(t, d, fmt.Sprint("worker-", (i+1)%2), fmt.Sprintf("step %d\nloss %d\n", i, i))
			times.look(at(i + 1))
		}
		times.look(at(9))
		appendLog(t, d, "worker-0", stampedAt(at(4), "ends"))
		times.look(at(10))
		const want = "[worker-0] of the start before|[worker-1] step 0|[worker-1] loss 0|[worker-0] " +
			"step 1|[worker-0] loss 1|[worker-1] step 2|[worker-1] loss 2|[worker-0] ends"
		if got := shown(t, "a", role.LogOptions{Tail: -1}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := shown(t, "a", role.LogOptions{Tail: 2}); got != "[worker-0] loss 1|[worker-1] "+
			"step 2|[worker-1] loss 2|[worker-0] ends" {
			t.Errorf("the last lines: %s", got)
		}
	})
}

// The times of a log are read whatever a full disk has left of them.
func TestTimesOfALog(t *testing.T) {
	d, end := aliveJob(t, "a")
	defer end()
	if all := d.timesOf("worker-0"); all != nil || !timeAt(all, 5).IsZero() {
		t.Errorf("of a log without times: %v", all)
	}
	const text = "10 1000\n20 2000\n30\nx y\n-5 3\n25 1 2\n5 9000\n40 1500\n40 4000\n50 50"
	if err := os.WriteFile(d.path("logs/worker-0"+timesSuffix), []byte(text), private); err != nil {
		t.Fatal(err)
	}
	all := d.timesOf("worker-0")
	for offset, want := range map[int64]int64{0: 0, 9: 0, 10: 1000, 19: 1000, 20: 2000, 39: 2000,
		40: 4000, 49: 4000, 50: 50, 1 << 40: 50} {
		got := timeAt(all, offset)
		if want == 0 && !got.IsZero() || want > 0 && got.UnixMilli() != want {
			t.Errorf("offset %d: %v, want %d", offset, got, want)
		}
	}
	if pods, err := d.pods(); err != nil || len(pods) != 0 {
		t.Errorf("the times are taken for a log: %v, %v", pods, err)
	}
}

// FuzzParseWritten: what is read is no offset before the beginning, and no time before 1970.
func FuzzParseWritten(f *testing.F) {
	f.Add("10 1000")
	f.Add("10 1000 3")
	f.Fuzz(func(t *testing.T, line string) {
		if w, ok := parseWritten(line); ok && (w.offset < 0 || w.after.UnixMilli() <= 0) {
			t.Errorf("%q: %+v", line, w)
		}
	})
}

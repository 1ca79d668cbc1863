package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// aliveJob is a job whose lock the test holds.
func aliveJob(t *testing.T, name string) (d dir, end func()) {
	t.Helper()
	t.Setenv("ELASTICDL_HOME", t.TempDir())
	d, err := openDir(name)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.writeJSON("job.json", named(name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	return d, func() { lock.Close() }
}

func appendLog(t *testing.T, d dir, pod, text string) {
	t.Helper()
	file, err := os.OpenFile(d.logFile(pod), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestLogsOfAllPodsAreInOrder(t *testing.T) {
	d, end := aliveJob(t, "a")
	defer end()
	for _, p := range []string{"worker-10", "ps-0", "worker-9", "master"} {
		appendLog(t, d, p, "one\ntwo")
	}
	var out strings.Builder
	if err := Logs(t.Context(), "a", role.LogOptions{Tail: -1}, &out); err != nil {
		t.Fatal(err)
	}
	want := "[master] one\n[master] two\n[ps-0] one\n[ps-0] two\n[worker-9] one\n[worker-9] " +
		"two\n[worker-10] one\n[worker-10] two\n"
	if out.String() != want {
		t.Errorf("logs are\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	if err := Logs(t.Context(), "a", role.LogOptions{Pod: "ps-0", Tail: -1}, &out); err != nil ||
		out.String() != "one\ntwo\n" {
		t.Errorf("log of ps-0 is %q, %v", out.String(), err)
	}
	if err := Logs(t.Context(), "a", role.LogOptions{Pod: "ps-1", Tail: -1}, &out); !errors.Is(err,
		role.ErrNoLog) || !strings.Contains(err.Error(), "worker-10") {
		t.Errorf("log of ps-1: %v", err)
	}
	if err := Logs(t.Context(), "b", role.LogOptions{Tail: -1}, &out); !errors.Is(err, ErrNotFound) {
		t.Errorf("logs of no job: %v", err)
	}
}

// TestLogsSince: lines that say no time are as old as what comes after them, and of a file nothing
// is younger than the file.
func TestLogsSince(t *testing.T) {
	d, end := aliveJob(t, "a")
	defer end()
	line := func(ago time.Duration, text string) string {
		return time.Now().Add(-ago).Format("[2006-01-02 15:04:05,000] ") + text + "\n"
	}
	appendLog(t, d, "worker-0", line(3*time.Hour, "old")+"printed early\n"+line(2*time.Hour, "older")+
		"printed since\n"+line(time.Minute, "new")+"printed now\n")
	appendLog(t, d, "worker-1", "printed now\n")
	appendLog(t, d, "worker-2", "printed long ago\n")
	before := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(d.logFile("worker-2"), before, before); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		o    role.LogOptions
		want string
	}{
		{role.LogOptions{Since: time.Hour, Tail: -1},
			"[worker-0] printed since|[worker-1] printed now|[worker-0] new|[worker-0] printed now"},
		{role.LogOptions{Since: time.Hour, Tail: 1}, "[worker-0] printed now|[worker-1] printed now"},
		{role.LogOptions{Since: time.Hour, Tail: 9, Pod: "worker-2"}, ""},
	} {
		var out strings.Builder
		if err := Logs(t.Context(), "a", test.o, &out); err != nil {
			t.Fatal(err)
		}
		var got []string
		for l := range strings.Lines(out.String()) {
			if prefix, rest, ok := strings.Cut(l, "[20"); ok { // without its time
				_, rest, _ = strings.Cut(rest, "] ")
				l = prefix + rest
			}
			got = append(got, strings.TrimSuffix(l, "\n"))
		}
		if strings.Join(got, "|") != test.want {
			t.Errorf("%+v: %q, want %s", test.o, got, test.want)
		}
	}
}

func TestLogsFollowUntilTheJobEnds(t *testing.T) {
	d, end := aliveJob(t, "a")
	appendLog(t, d, "master", "begin\nhalf a ")
	read, write := io.Pipe()
	followed := make(chan error, 1)
	go func() {
		followed <- Logs(t.Context(), "a", role.LogOptions{Follow: true, Tail: -1}, write)
		write.Close()
	}()
	lines := bufio.NewScanner(read)
	var got []string
	next := func() {
		if lines.Scan() {
			got = append(got, lines.Text())
		}
	}
	next()
	appendLog(t, d, "master", "line\n")
	next()
	appendLog(t, d, "worker-4", "new\n")
	next()
	appendLog(t, d, "worker-4", "no end of line")
	end()
	next()
	next() // the end
	if err := <-followed; err != nil {
		t.Error(err)
	}
	want := []string{"[master] begin", "[master] half a line", "[worker-4] new", "[worker-4] no end of line"}
	if !slices.Equal(got, want) {
		t.Errorf("followed %q, want %q", got, want)
	}
}

func TestLogsFollowUntilCancelled(t *testing.T) {
	_, end := aliveJob(t, "a")
	defer end()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupt := errors.New("interrupt")
	cancel(interrupt)
	if err := Logs(ctx, "a", role.LogOptions{Follow: true, Tail: -1}, io.Discard); !errors.Is(err, interrupt) {
		t.Errorf("follow: %v", err)
	}
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{
		"panic: a\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:1 +0x1\n": "panic: a",
		"panic: old\n\n\t/x.go:1\n[2026-01-02] again\nelasticdl ps: b\n":    "elasticdl ps: b",
		"[2026-01-02] [INFO] step\nSIGSEGV: segmentation violation\nPC=0x40816e m=0\n\ngoroutine 1 " +
			"[running]:\nmain.main()\n\nrip    0x40\ngs     0x0\n": "SIGSEGV: segmentation violation",
		"SIGSEGV: segmentation violation\ngs     0x0\n[2026-01-02] again\nelasticdl ps: b\n": "elasticdl ps: b",
		"fatal error: unexpected signal\n[signal SIGSEGV: segmentation violation " +
			"code=0x1]\n\ngoroutine 1 [running]:\n": "fatal error: unexpected signal",
		"": "", "one": "one", "one\ntwo\n": "two", strings.Repeat("x", 3000) + "\nend\n\n": "end",
	} {
		path := t.TempDir() + "/log"
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := lastLine(path); got != want {
			t.Errorf("last line of %.10q… is %q, want %q", text, got, want)
		}
	}
}

// The last lines of a file are those that are left if all before are cut off.
func TestSkipTo(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	for _, text := range []string{"", "\n", "a", "a\n", "a\nb", "a\nb\n", "\n\n\n", long + "\n" + long +
		"\nz\n", long} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := slices.Collect(strings.Lines(text))
		for n := range 5 {
			if err := skipTo(file, int64(n)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(file)
			if want := strings.Join(lines[max(0, len(lines)-n):], ""); err != nil || string(got) != want {
				t.Errorf("last %d lines of %.10q… are %.10q…, want %.10q…: %v", n, text, got, want, err)
			}
		}
	}
}

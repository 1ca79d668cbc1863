package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Ranks follow the order of members, and the processes of each, of which there may be none.
func TestShareOf(t *testing.T) {
	member := func(worker, processes, source int32) *wire.Member {
		return &wire.Member{Worker: worker, Crew: &wire.Crew{Processes: processes, Source: source,
			Store: fmt.Sprintf("10.0.0.%d:29%d", worker, worker)}}
	}
	w := &wire.World{Id: 4, Members: []*wire.Member{member(7, 2, 0), member(1, 0, 0), member(3, 3, 1)}}
	for _, c := range []struct {
		index, group, first, source int
		sources                     []int32
	}{
		{7, 0, 0, -1, nil},
		{1, 1, 2, 3, []int32{2, 0}},
		{3, 2, 2, 0, []int32{0, 2}},
	} {
		w.Sources = c.sources
		got, err := shareOf(w, c.index)
		if want := (share{group: c.group, groups: 3, first: c.first, size: 5, source: c.source,
			host: "10.0.0.7", port: 297}); err != nil || got != want {
			t.Errorf("worker %d: %+v, %v; want %+v", c.index, got, err, want)
		}
	}
	if _, err := shareOf(w, 2); err == nil || !strings.Contains(err.Error(), "does not have worker 2 as a member") {
		t.Error(err)
	}
	w.Members[0].Crew.Store = "10.0.0.7:http"
	if _, err := shareOf(w, 3); err == nil || !strings.Contains(err.Error(), "the store of worker 7") {
		t.Error(err)
	}
	w.Members[1].Crew = nil
	if _, err := shareOf(w, 3); err == nil || !strings.Contains(err.Error(), "worker 1 has not said") {
		t.Error(err)
	}
}

// A process is stopped between SIGSTOP and SIGCONT, whatever its name is.
func TestStopped(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x) T (")
	if err := os.Symlink(sleep, name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	if stopped(pid) || stopped(-1) {
		t.Error("a process is stopped that is not")
	}
	for _, c := range []struct {
		signal  syscall.Signal
		how     int
		stopped bool
	}{{syscall.SIGSTOP, syscall.WUNTRACED, true}, {syscall.SIGCONT, syscall.WCONTINUED, false}} {
		if err := syscall.Kill(pid, c.signal); err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Wait4(pid, nil, c.how, nil); err != nil {
			t.Fatal(err)
		}
		if got := stopped(pid); got != c.stopped {
			t.Errorf("after %v: stopped %v", c.signal, got)
		}
	}
}

// The newest of the files counts.
func TestNewestOf(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	write := func(name string, at time.Time) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		at   time.Time
		want time.Time
	}{
		{"none", now, time.Time{}},
		{"a.pt", now.Add(-time.Hour), now.Add(-time.Hour)},
		{"c.pt", now.Add(-time.Minute), now.Add(-time.Minute)},
		{"b.pt", now.Add(-2 * time.Minute), now.Add(-time.Minute)},
		{"e.pt", now.Add(-3 * time.Minute), now.Add(-time.Minute)},
		{"d.pt", now.Add(time.Hour), now.Add(time.Hour)},
	} {
		write(c.name, c.at)
		if newest := newestOf(filepath.Join(dir, "*.pt")); !newest.Equal(c.want) {
			t.Errorf("with %s: %v, want %v", c.name, newest, c.want)
		}
	}
}

// A process failed when it wrote its error file: its end may follow much later.
func TestFirstFailure(t *testing.T) {
	second := time.Unix(1700000000, 0)
	said := func(file, end time.Duration) int64 {
		return failure(program.Exit{Code: 1, At: second.Add(end),
			Failure: &program.Failure{Message: "m", Written: second.Add(file)}}).UnixMs
	}
	first, next, third := said(0, 9*time.Second), said(300*time.Millisecond, 400*time.Millisecond),
		said(time.Second, 5*time.Second)
	if first >= next || next >= third {
		t.Errorf("%d, %d, %d: want them to rise", first, next, third)
	}
	if slow := said(0, 20*time.Second); slow >= third {
		t.Errorf("%d of a process that ended late after it had failed first, want less than %d", slow, third)
	}
}

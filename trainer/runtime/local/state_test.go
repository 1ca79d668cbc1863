package local

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/launch"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// fill has each write of a file of the state fail as on a full disk: what is written aside goes
// to /dev/full.
func fill(d dir) {
	for _, file := range []string{statusFile, masterFile, recordFile, incarnationFile} {
		os.Remove(d.path(file + ".new"))
		if err := os.Symlink("/dev/full", d.path(file+".new")); err != nil {
			panic(err)
		}
	}
}

// free ends what fill began.
func free(d dir) {
	for _, file := range []string{statusFile, masterFile, recordFile, incarnationFile} {
		os.Remove(d.path(file + ".new"))
	}
}

// A master of which the disk is full writes no file, and continues; the next one, and the launcher,
// find all that it has written; the disk has it as soon as there is room.
func TestStateOnAFullDisk(t *testing.T) {
	useHome(t)
	d := home(t, "full")
	if err := errors.Join(os.MkdirAll(string(d), privateDir), d.reserve()); err != nil {
		t.Fatal(err)
	}
	k := newBacklog(d, slog.New(slog.DiscardHandler))
	l := &launcher{dir: d, backlog: k}
	master := func() *state {
		return &state{dir: d, given: make(map[string]bool), give: func(file string, text []byte) (bool, error) {
			return k.put(file, text), nil
		}}
	}
	first := master()
	write := func(s *state, version int) {
		t.Helper()
		for _, file := range []string{recordFile, incarnationFile, masterFile} {
			if err := s.write(file, fmt.Appendf(nil, `{"launch": %d}`, version)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.store(&wire.JobStatus{Version: int64(version)}); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(version int) {
		t.Helper()
		record, err := l.read(recordFile)
		if want := fmt.Sprintf(`{"launch": %d}`, version); err != nil || string(record) != want {
			t.Errorf("the record is %q, %v, want %q", record, err, want)
		}
		if s, err := l.stored(); err != nil || s.Version != int64(version) {
			t.Errorf("the status is %v, %v, want version %d", s, err, version)
		}
		if n := l.launched(); n != version {
			t.Errorf("master %d has listened, want %d", n, version)
		}
	}
	write(first, 1)
	reads(1)
	if p := first.problems(); p != nil {
		t.Errorf("problems with room: %q", p)
	}
	fill(d)
	write(first, 2)
	reads(2)
	want := []string{"no space left on " + os.Getenv("ELASTICDL_HOME") +
		": the state of the job is kept in memory until it can be written there"}
	if p := first.problems(); !slices.Equal(p, want) {
		t.Errorf("problems of a full disk: %q, want %q", p, want)
	}
	finds := func(incarnation int) { // where clients look for the master
		t.Helper()
		var at address
		if err := d.readJSON(masterFile, &at); err != nil || at.Incarnation != incarnation {
			t.Errorf("on the disk the master is %+v, %v, want %d", at, err, incarnation)
		}
	}
	finds(2)
	second := master()
	write(second, 3)
	reads(3)
	finds(3)
	k.retry()
	reads(3)
	free(d)
	write(second, 4)
	reads(4)
	if p := second.problems(); p != nil {
		t.Errorf("problems when there is room again: %q", p)
	}
	k.retry()
	if len(k.kept) > 0 {
		t.Errorf("%d files are kept", len(k.kept))
	}
	if on, err := os.ReadFile(d.path(recordFile)); err != nil || string(on) != `{"launch": 4}` {
		t.Errorf("on the disk the record is %q, %v", on, err)
	}
	// The unwritten state of a dead master is written without another master.
	fill(d)
	write(second, 5)
	free(d)
	k.retry()
	if on, err := os.ReadFile(d.path(recordFile)); err != nil || string(on) != `{"launch": 5}` || len(k.kept) > 0 {
		t.Errorf("on the disk the record is %q, %v, and %d files are kept", on, err, len(k.kept))
	}
}

// A job whose disk is full ends as it would have otherwise, reports it to who waits and to who asks
// later, and its master is not given up.
func TestJobOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(t *testing.T, name string)
		state job.State
	}{
		"fullquick": {nil, job.Succeeded},
		"fulldying": {nil, job.Succeeded}, // after twelve masters that died
		"fullstop": {func(t *testing.T, name string) {
			until(t, name, "job that runs", func(s *wire.JobStatus) bool { return s.State == "Running" })
			if err := Stop(t.Context(), name); err != nil {
				t.Error(err)
			}
		}, job.Stopped},
		"fullkilled": {func(t *testing.T, name string) {
			until(t, name, "job that runs", func(s *wire.JobStatus) bool { return s.State == "Running" })
			own, ok := launchers.Load(home(t, name))
			if !ok {
				t.Fatal("no launcher")
			}
			own.(*launcher).kill()
		}, job.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			useHome(t)
			newLife(t)
			j := job.Default()
			j.Name = name
			h, err := Start(t.Context(), j, StartOptions{restarts: launch.Restarts{Least: 1, Longest: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if c.end != nil {
				c.end(t, name)
			}
			s, err := h.Wait(t.Context())
			if err != nil || s.State != string(c.state) || strings.Contains(s.Reason, "died") {
				t.Errorf("the job is %v, %v, want %v", s, err, c.state)
			}
			if s, err = Status(t.Context(), name); err != nil || s.State != string(c.state) ||
				!slices.Equal(s.Problems, []string{"no space left on " + os.Getenv("ELASTICDL_HOME") +
					" when the job ended"}) {
				t.Errorf("later it is %v, %v, want %v", s, err, c.state)
			}
		})
	}
}

// A job whose end could not be written is not said to have died for another reason.
func TestEndThatCouldNotBeWritten(t *testing.T) {
	useHome(t)
	d := home(t, "lost")
	err := errors.Join(os.MkdirAll(string(d), privateDir), d.writeJSON("job.json", job.Default()),
		d.store(&wire.JobStatus{Name: "lost", State: string(job.Running)}),
		os.Symlink("/dev/full", d.path("probe")))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Status(t.Context(), "lost")
	if err != nil || !strings.Contains(s.Reason, "could not write how the job ended: no space left on "+
		os.Getenv("ELASTICDL_HOME")) {
		t.Errorf("%v, %v", s, err)
	}
}

package local

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// useHome gives the test a state directory of its own.
func useHome(t *testing.T) {
	t.Setenv("ELASTICDL_HOME", t.TempDir())
	t.Setenv(helperEnv, "job") // of the processes that the test starts
}

func named(name string) *job.Job {
	j := job.Default()
	j.Name = name
	return j
}

func startJob(t *testing.T, name string) *Handle {
	t.Helper()
	h, err := Start(t.Context(), named(name), StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestJobFromStartToStop(t *testing.T) {
	useHome(t)
	newLife(t)
	h := startJob(t, "a")
	if _, err := Start(t.Context(), named("a"), StartOptions{}); !errors.Is(err, job.ErrRunning) {
		t.Errorf("a second start: %v, want ErrRunning", err)
	}
	if s, err := Status(t.Context(), "a"); err != nil || s.Reason != "says the master" {
		t.Errorf("status of a living job: %v, %v", s, err)
	}
	if err := Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, status := range []func(context.Context) (*wire.JobStatus, error){
		h.Wait,
		func(ctx context.Context) (*wire.JobStatus, error) { return Wait(ctx, "a", nil) },
		func(ctx context.Context) (*wire.JobStatus, error) { return Status(ctx, "a") },
	} {
		if s, err := status(t.Context()); err != nil || s.State != "Stopped" || s.Reason != "by the user" {
			t.Errorf("final status: %v, %v", s, err)
		}
	}
	if err := Stop(t.Context(), "a"); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}
	startJob(t, "a") // the ended one is replaced
	if err := Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}

func TestScale(t *testing.T) {
	useHome(t)
	newLife(t)
	startJob(t, "a")
	for _, step := range []struct{ to, before int }{{4, 0}, {6, 4}, {6, 6}} {
		if before, err := Scale(t.Context(), "a", step.to); err != nil || before != step.before {
			t.Errorf("to %d: %d before, %v; want %d", step.to, before, err, step.before)
		}
	}
	if _, err := Scale(t.Context(), "a", 9); err == nil ||
		err.Error() != "scale job a: --num_workers=9: more than --max_workers=8" {
		t.Errorf("beyond the bounds: %v", err)
	}
	if _, err := Scale(t.Context(), "nobody", 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("no job: %v", err)
	}
	if err := Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := Scale(t.Context(), "a", 2); err == nil || err.Error() != "scale job a: it has ended: Stopped" {
		t.Errorf("a job that has ended: %v", err)
	}
}

func TestStartSaysWhyAMasterDoesNotListen(t *testing.T) {
	useHome(t)
	_, err := Start(t.Context(), named("broken"), StartOptions{})
	if err == nil || !strings.Contains(err.Error(), "no such file: /data") {
		t.Errorf("start: %v", err)
	}
	if s, err := Status(t.Context(), "broken"); err != nil || s.State != "Failed" {
		t.Errorf("status: %v, %v", s, err)
	}
	if _, err := Start(t.Context(), named("panics"), StartOptions{}); err == nil ||
		err.Error() != "start job panics: master died: exit code 2: panic: no kernels" {
		t.Errorf("start: %v", err)
	}
}

func TestWaitReturnsWhenTheJobEnds(t *testing.T) {
	useHome(t)
	newLife(t)
	s, err := startJob(t, "quick").Wait(t.Context())
	if err != nil || s.State != "Succeeded" {
		t.Errorf("final status: %v, %v", s, err)
	}
}

func TestEndOfTheContextStopsAJob(t *testing.T) {
	useHome(t)
	newLife(t)
	h := startJob(t, "a")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt"))
	s, err := h.Wait(ctx)
	if err != nil || s.State != "Stopped" || s.Reason != "interrupt" {
		t.Errorf("final status: %v, %v", s, err)
	}
}

func TestStopKillsAMasterThatDoesNotAnswer(t *testing.T) {
	useHome(t)
	l := newLife(t)
	h := startJob(t, "hung")
	if err := Stop(t.Context(), "hung"); err != nil {
		t.Fatal(err)
	}
	l.ended(t)
	if s, err := h.Wait(t.Context()); err != nil || s.State != "Stopped" || s.Reason != "stopped: by the user" {
		t.Errorf("final status: %v, %v", s, err)
	}
}

func TestStatusOfADeadLauncher(t *testing.T) {
	useHome(t)
	l := newLife(t)
	for _, name := range []string{"killed", "vanished"} {
		t.Setenv(childEnv, name)
		starter := startHelper(t, "starter")
		awaitMaster(t, name)
		starter.signal(syscall.SIGKILL)
		starter.wait()
	}
	l.ended(t)
	for _, name := range []string{"killed", "vanished"} {
		if _, err := Wait(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := List(t.Context())
	if err != nil || len(jobs) != 2 {
		t.Fatalf("list: %v, %v", jobs, err)
	}
	for _, s := range jobs {
		want := "launcher died"
		if s.Name == "killed" {
			want += "; continue with: elasticdl resume killed"
		}
		if s.State != "Failed" || s.Reason != want {
			t.Errorf("status of %s: %v", s.Name, s)
		}
		if ended := s.EndedUnixMs > 0; ended != (s.Name == "killed") || s.EndedUnixMs > time.Now().UnixMilli() {
			t.Errorf("status of %s: ended at %d", s.Name, s.EndedUnixMs)
		}
		for _, p := range s.Pods {
			if p.State != "Deleted" || p.EndedUnixMs != s.EndedUnixMs {
				t.Errorf("pod of a dead launcher: %v", p)
			}
		}
	}
}

// awaitMaster returns when the master of a job that another process has started listens.
func awaitMaster(t *testing.T, name string) {
	t.Helper()
	d, err := openDir(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Handle{dir: d}).ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNames(t *testing.T) {
	useHome(t)
	for _, name := range []string{"", ".", "..", "a/b", "/a", `a\b`} {
		if _, err := openDir(name); err == nil {
			t.Errorf("job name %q was accepted", name)
		}
	}
	if _, err := Status(t.Context(), "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("status of no job: %v", err)
	}
	if jobs, err := List(t.Context()); err != nil || len(jobs) != 0 {
		t.Errorf("list of no jobs: %v, %v", jobs, err)
	}
	for home, want := range map[string]string{"": filepath.Join("/home/me", ".local/state/elasticdl"),
		"/x": "/x/elasticdl", "rel": "/home/me/.local/state/elasticdl"} {
		t.Setenv("ELASTICDL_HOME", "")
		t.Setenv("HOME", "/home/me")
		t.Setenv("XDG_STATE_HOME", home)
		if got, err := Home(); err != nil || got != want {
			t.Errorf("home with XDG_STATE_HOME=%q: %q, %v; want %q", home, got, err, want)
		}
	}
}

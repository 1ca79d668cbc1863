package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/launch"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// until looks at a job until it is as wanted.
func until(t *testing.T, name, what string, is func(s *wire.JobStatus) bool) *wire.JobStatus {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if s, err := Status(t.Context(), name); err == nil && is(s) {
			return s
		}
	}
	s, err := Status(t.Context(), name)
	t.Fatalf("no %s in a minute: %v, %v", what, s, err)
	return nil
}

// learned awaits that the master of a job has learned that many things, and returns them.
func learned(t *testing.T, name string, n int) []string {
	t.Helper()
	s := until(t, name, fmt.Sprintf("%d events", n), func(s *wire.JobStatus) bool {
		return strings.Count(s.Waiting, "\n") >= n-1
	})
	return strings.Split(s.Waiting, "\n")
}

// location is the content of master.json.
func location(t *testing.T, name string) (at address) {
	t.Helper()
	d, err := openDir(name)
	if err == nil {
		err = d.readJSON("master.json", &at)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A master that is killed comes back under the same address, with the record of the one before, and
// with its pods.
func TestDeadMasterIsStartedAgain(t *testing.T) {
	useHome(t)
	life := newLife(t)
	startJob(t, "steady")
	got := learned(t, "steady", 3)
	if want := []string{`incarnation 1 after ""`, "worker-0.1 Running",
		"worker-1.1 Running"}; !slices.Equal(got, want) {
		t.Fatalf("the first master knows %q, want %q", got, want)
	}
	before := location(t, "steady")
	s, err := Status(t.Context(), "steady")
	if err != nil || len(s.Pods) != 1 || s.Pods[0].Incarnation != 1 || int(s.Pods[0].Pid) != before.PID {
		t.Errorf("status: %v, %v", s, err)
	}
	// It does not notice the end of worker-1, which is asked to the next one then.
	syscall.Kill(before.PID, syscall.SIGSTOP)
	syscall.Kill(podPID(t, "steady", 1), syscall.SIGKILL)
	awaitEnd(t, "steady", 1)
	syscall.Kill(before.PID, syscall.SIGKILL)
	got = learned(t, "steady", 3)
	want := []string{`incarnation 2 after "of incarnation 1"`, "there is worker-0.1 Running",
		"there is worker-1.1 Failed: killed (signal 9)"}
	if !slices.Equal(got, want) {
		t.Errorf("the second master knows %q, want %q", got, want)
	}
	after := location(t, "steady")
	if after.Address != before.Address || after.PID == before.PID || after.Incarnation != 2 {
		t.Errorf("the second master is at %+v, the first was at %+v", after, before)
	}
	if s, err := Status(t.Context(), "steady"); err != nil || len(s.Pods) != 1 ||
		s.Pods[0].Incarnation != 2 || int(s.Pods[0].Pid) != after.PID {
		t.Errorf("status: %v, %v", s, err)
	}
	syscall.Kill(podPID(t, "steady", 0), syscall.SIGKILL)
	if got = learned(t, "steady", 4); !slices.Equal(got, append(want, "worker-0.1 Failed: killed (signal 9)")) {
		t.Errorf("the second master knows %q, want %q and the end of worker-0", got, want)
	}
	if err := Stop(t.Context(), "steady"); err != nil {
		t.Fatal(err)
	}
	life.ended(t)
	log, err := os.ReadFile(home(t, "steady").logFile("master"))
	if err != nil || strings.Count(string(log), "listening") != 2 ||
		!strings.Contains(string(log), "The master died and is started again") {
		t.Errorf("the master's log is %q, %v", log, err)
	}
}

func home(t *testing.T, name string) dir {
	t.Helper()
	d, err := openDir(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// podOf returns what the launcher of a job, which this process is, knows of a worker.
func podOf(t *testing.T, name string, index int) pod.Event {
	t.Helper()
	l, ok := launchers.Load(home(t, name))
	if !ok {
		t.Fatalf("job %s is not of this process", name)
	}
	pods := l.(*launcher).pods
	pods.mu.Lock()
	defer pods.mu.Unlock()
	return pods.known[pod.ID{Role: pod.Worker, Index: index}]
}

func podPID(t *testing.T, name string, index int) int {
	t.Helper()
	return podOf(t, name, index).PID
}

// awaitEnd returns when the launcher knows that a worker has ended.
func awaitEnd(t *testing.T, name string, index int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !podOf(t, name, index).Phase.Ended() {
		<-tick.C
	}
}

// A job that is killed without warning leaves nothing behind.
func TestLauncherIsTheLifeline(t *testing.T) {
	for _, tt := range []struct {
		name          string
		start         string
		kill          func(t *testing.T, starter *process)
		state, reason string
	}{
		{"attached", "steady", func(_ *testing.T, starter *process) {
			syscall.Kill(starter.pid(), syscall.SIGKILL)
		}, "Failed", "launcher died"},
		{"detached", "detached steady", func(t *testing.T, _ *process) {
			var at address
			if err := home(t, "steady").readJSON("launcher.json", &at); err != nil {
				t.Fatal(err)
			}
			syscall.Kill(at.PID, syscall.SIGKILL)
		}, "Failed", "launcher died"},
		{"its starter", "detached steady", func(t *testing.T, starter *process) {
			syscall.Kill(starter.pid(), syscall.SIGKILL)
			starter.wait()
			if _, err := Start(t.Context(), named("steady"), StartOptions{}); !errors.Is(err, job.ErrRunning) {
				t.Errorf("a second start: %v, want ErrRunning", err)
			}
			before := location(t, "steady")
			syscall.Kill(before.PID, syscall.SIGKILL)
			learned(t, "steady", 3)
			if after := location(t, "steady"); after.Incarnation != 2 || after.Address != before.Address {
				t.Errorf("the next master is at %+v, the first was at %+v", after, before)
			}
			if err := Stop(t.Context(), "steady"); err != nil {
				t.Fatal(err)
			}
		}, "Stopped", "by the user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			useHome(t)
			t.Setenv(childEnv, tt.start)
			l := newLife(t)
			starter := startHelper(t, "starter")
			awaitMaster(t, "steady")
			learned(t, "steady", 3)
			tt.kill(t, starter)
			l.ended(t)
			if s, err := Wait(t.Context(), "steady", nil); err != nil || s.State != tt.state || s.Reason != tt.reason {
				t.Errorf("final status: %v, %v", s, err)
			}
		})
	}
}

// A master that only dies is not started for ever.
func TestMasterThatCannotStart(t *testing.T) {
	useHome(t)
	newLife(t)
	h, err := Start(t.Context(), named("crashes"),
		StartOptions{restarts: launch.Restarts{Least: time.Millisecond, Longest: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Wait(t.Context())
	if err != nil || s.State != "Failed" ||
		s.Reason != "master died 10 times in a row: exit code 2: panic: no kernels" || s.EndedUnixMs == 0 {
		t.Errorf("final status: %v, %v", s, err)
	}
	if s, err := Status(t.Context(), "crashes"); err != nil || s.State != "Failed" || s.Pods[0].State != "Deleted" {
		t.Errorf("status: %v, %v", s, err)
	}
}

// A job can be stopped while it has no master.
func TestStopWhileTheMasterIsDead(t *testing.T) {
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprintf("detached=%v", detached), func(t *testing.T) {
			useHome(t)
			l := newLife(t)
			o := StartOptions{Detach: detached, restarts: launch.Restarts{Least: time.Hour}}
			if _, err := Start(t.Context(), named("crashes"), o); err != nil {
				t.Fatal(err)
			}
			s := until(t, "crashes", "death of two masters", func(s *wire.JobStatus) bool {
				log, _ := os.ReadFile(home(t, "crashes").logFile("master"))
				return len(s.Pods) == 2 && s.Pods[1].State == "Pending" &&
					strings.Contains(string(log), "incarnation=3")
			})
			if p := s.Pods[1]; p.Pid != 0 || p.Reason != "it died, and is started again" || s.State != "Running" {
				t.Errorf("status: %v", s)
			}
			if err := Stop(t.Context(), "crashes"); err != nil {
				t.Fatal(err)
			}
			l.ended(t)
			reason := map[bool]string{false: "stopped: by the user", true: "stopped: terminated"}[detached]
			if s, err := Status(t.Context(), "crashes"); err != nil || s.State != "Stopped" ||
				!strings.HasPrefix(s.Reason, reason) {
				t.Errorf("final status: %v, %v", s, err)
			}
		})
	}
}

// An end that one master did not see is reported to the next, once; a master that is dead does
// nothing any more.
func TestPodsOutlastTheirMaster(t *testing.T) {
	l := newLife(t)
	c := newCrew(t, "deaf")
	c.processes.config.Grace = time.Minute
	id := func(i int) pod.ID { return pod.ID{Role: pod.Worker, Index: i} }
	var pids []int
	for i := range 4 {
		pids = append(pids, create(t, c, pod.Worker, i))
	}
	l.begun(t)
	for lines, i := bufio.NewReader(l.end), 0; i < len(pids); i++ { // each is deaf from now on
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	syscall.Kill(pids[0], syscall.SIGKILL)
	if e := <-c.Events(); e.ID != id(0) || e.Phase != pod.Failed {
		t.Fatalf("event %+v", e)
	}
	if err := c.Delete(t.Context(), id(1)); err != nil {
		t.Fatal(err)
	}
	former, late := c.session, master.Pod{ID: id(9), Incarnation: 1}
	c.nextMaster(t)
	if err := (calls{former}).Create(late, nil); !errors.Is(err, errEnded) {
		t.Errorf("create for a dead master: %v", err)
	}
	if err := (calls{former}).Delete(id(3), nil); !errors.Is(err, errEnded) {
		t.Errorf("delete for a dead master: %v", err)
	}
	c.processes.mu.Lock()
	changed := c.processes.changed
	c.processes.mu.Unlock()
	syscall.Kill(pids[2], syscall.SIGKILL)
	<-changed
	all, err := c.Adopt(t.Context())
	var told []string
	for _, e := range all {
		told = append(told, describe(e))
		if e.PID != pids[e.ID.Index] {
			t.Errorf("%v has pid %d, want %d", e.ID, e.PID, pids[e.ID.Index])
		}
		if e.Started.IsZero() {
			t.Errorf("nobody knows since when %v runs", e.ID)
		}
	}
	want := []string{"worker-0.7 Failed: killed (signal 9)", "worker-1.7 Leaving: deleted",
		"worker-2.7 Failed: killed (signal 9)", "worker-3.7 Running"}
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("adopted %q, %v; want %q", told, err, want)
	}
	syscall.Kill(pids[3], syscall.SIGKILL)
	if e := <-c.Events(); describe(e) != "worker-3.7 Failed: killed (signal 9)" {
		t.Errorf("first event of the next master: %v", describe(e))
	}
	syscall.Kill(pids[1], syscall.SIGKILL)
	if e := <-c.Events(); describe(e) != "worker-1.7 Deleted: deleted" {
		t.Errorf("second event of the next master: %v", describe(e))
	}
}

// Without a record nobody knows what the pods of a dead master do.
func TestPodsThatNoMasterKnowsAreForgotten(t *testing.T) {
	l := newLife(t)
	c := newCrew(t, "deaf")
	create(t, c, pod.Worker, 0)
	l.begun(t)
	c.nextMaster(t)
	c.forget()
	l.ended(t)
	if all, err := c.Adopt(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("adopted %v, %v", all, err)
	}
	create(t, c, pod.Worker, 0)
}

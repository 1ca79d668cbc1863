package local

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
)

// crew is the processes of a job, and the master's end of a session with them.
type crew struct {
	*processes
	*pods
	*session
}

func newCrew(t *testing.T, helper string) *crew {
	t.Helper()
	grace := time.Minute // SIGTERM is enough, however long it takes
	if helper == "deaf" {
		grace = 50 * time.Millisecond
	}
	none, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	c := &crew{processes: newProcesses(podConfig{
		Binary: os.Args[0], Lock: none, Master: "127.0.0.1:1", Job: "uid-1",
		Authority: prove.Authority("uid-1"), Logs: t.TempDir(), Scratch: t.TempDir(), Grace: grace,
		Env: map[string]string{helperEnv: helper},
	})}
	c.nextMaster(t)
	t.Cleanup(func() {
		c.processes.close()
		c.pods.close()
		none.Close()
	})
	return c
}

// nextMaster opens a session, and ends the one before.
func (c *crew) nextMaster(t *testing.T) {
	t.Helper()
	if c.session != nil {
		c.pods.close()
		c.session.end()
	}
	ours, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := connection(theirs)
	if err != nil {
		t.Fatal(err)
	}
	c.session, c.pods = c.serve(ours), newPods(conn)
}

func create(t *testing.T, r *crew, role pod.Role, index int) (pid int) {
	t.Helper()
	id := pod.ID{Role: role, Index: index}
	if err := r.Create(t.Context(), master.Pod{ID: id, Incarnation: 7}); err != nil {
		t.Fatal(err)
	}
	e := <-r.Events()
	if e.ID != id || e.Incarnation != 7 || e.Phase != pod.Running || e.PID == 0 {
		t.Fatalf("first event is %+v", e)
	}
	return e.PID
}

// A worker that is killed removes nothing; its starter does.
func TestKilledWorkerLeavesNoFiles(t *testing.T) {
	r := newCrew(t, "hang")
	scratch := r.config.scratch(pod.ID{Role: pod.Worker, Index: 2})
	pid := create(t, r, pod.Worker, 2)
	if err := os.MkdirAll(filepath.Join(scratch, "python"), 0o700); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	if e := <-r.Events(); e.Phase != pod.Failed {
		t.Fatalf("it is reported %+v", e)
	}
	if _, err := os.Stat(scratch); !os.IsNotExist(err) {
		t.Errorf("its files are left: %v", err)
	}
}

func TestHowPodsEndIsTold(t *testing.T) {
	for _, tt := range []struct {
		helper string
		index  int
		end    func(r *crew, id pod.ID, pid int)
		phase  pod.Phase
		exit   pod.Exit
	}{
		{"exit", 0, nil, pod.Succeeded, pod.Exit{}},
		{"exit", 3, nil, pod.Failed, pod.Exit{Code: 3, Reason: "the last word"}},
		{"hang", 0, func(_ *crew, _ pod.ID, pid int) { syscall.Kill(pid, syscall.SIGKILL) },
			pod.Failed, pod.Exit{Code: 137, Signal: 9}},
		{"hang", 1, func(r *crew, id pod.ID, _ int) { r.Delete(t.Context(), id) },
			pod.Deleted, pod.Exit{Code: 143, Signal: 15, Deleted: true}},
		{"hang", 2, func(r *crew, id pod.ID, pid int) { syscall.Kill(pid, syscall.SIGSTOP); r.Delete(t.Context(), id) },
			pod.Deleted, pod.Exit{Code: 143, Signal: 15, Deleted: true}},
		{"deaf", 0, func(r *crew, id pod.ID, _ int) { r.Delete(t.Context(), id) },
			pod.Deleted, pod.Exit{Code: 137, Signal: 9, Deleted: true}},
		{"deaf", 1, func(r *crew, id pod.ID, pid int) { syscall.Kill(pid, syscall.SIGSTOP); r.Delete(t.Context(), id) },
			pod.Deleted, pod.Exit{Code: 137, Signal: 9, Deleted: true}},
	} {
		t.Run(tt.helper+"/"+tt.phase.String(), func(t *testing.T) {
			l := newLife(t)
			r := newCrew(t, tt.helper)
			pid := create(t, r, pod.Worker, tt.index)
			id := pod.ID{Role: pod.Worker, Index: tt.index}
			if tt.end != nil {
				l.begun(t)
				tt.end(r, id, pid)
			}
			e := <-r.Events()
			if e.ID != id || e.Incarnation != 7 || e.Phase != tt.phase || e.Exit != tt.exit {
				t.Errorf("event %+v, want %v %+v", e, tt.phase, tt.exit)
			}
			if err := r.Delete(t.Context(), id); err != nil {
				t.Errorf("deleting an ended pod: %v", err)
			}
		})
	}
}

func TestWhatAPodLeavesBehindIsKilled(t *testing.T) {
	for _, parent := range []string{"family", "leaver"} {
		t.Run(parent, func(t *testing.T) {
			l := newLife(t)
			r := newCrew(t, parent)
			pid := create(t, r, pod.PS, 0)
			if parent == "family" {
				l.begun(t)
				syscall.Kill(pid, syscall.SIGKILL)
			} else if e := <-r.Events(); e.Phase != pod.Succeeded {
				// its child had begun, and may have ended
				t.Fatalf("event %+v", e)
			}
			l.ended(t)
		})
	}
}

func TestCloseKillsEverybody(t *testing.T) {
	l := newLife(t)
	r := newCrew(t, "deaf")
	for i := range 3 {
		create(t, r, pod.Worker, i)
	}
	l.begun(t)
	if err := r.Create(t.Context(), master.Pod{ID: pod.ID{Role: pod.Worker, Index: 1}}); err == nil ||
		!strings.Contains(err.Error(), "worker-1") {
		t.Errorf("creating a pod that runs: %v", err)
	}
	r.processes.close()
	l.ended(t)
	if err := r.Create(t.Context(), master.Pod{ID: pod.ID{Role: pod.Worker, Index: 4}}); err == nil {
		t.Error("a pod was created after Close")
	}
}

func TestLogsAreAppendedTo(t *testing.T) {
	newLife(t)
	r := newCrew(t, "exit")
	for range 2 {
		create(t, r, pod.PS, 1)
		<-r.Events()
	}
	text, err := os.ReadFile(filepath.Join(r.processes.config.Logs, "ps-1.log"))
	if want := "the last word\nthe last word\n"; err != nil || string(text) != want {
		t.Errorf("log is %q (%v), want %q", text, err, want)
	}
	if err := r.Create(t.Context(), master.Pod{ID: pod.ID{Role: pod.PS, Index: 0},
		Address: "127.0.0.1:7"}); err != nil {
		t.Fatal(err)
	}
}

// Each process learns which start of which pod of which job it is, and has what proves that: by a
// pipe that nobody else has, and neither in its environment nor in its arguments.
func TestPodsAreToldWhoTheyAre(t *testing.T) {
	for role, want := range map[pod.Role]string{
		pod.PS: "ps --master_address=127.0.0.1:1 --index=4 --launch=7 --log_level=INFO --grace=1m0s",
		pod.Worker: "worker --master_address=127.0.0.1:1 --index=4 --launch=7 --log_level=INFO " +
			"--grace=1m0s --threads=1 --workers=1",
	} {
		r, id := newCrew(t, "who"), pod.ID{Role: role, Index: 4}
		if role == pod.Worker {
			want += " --scratch_dir=" + r.config.scratch(id)
		}
		want += " as " + identity.Name{Job: "uid-1", ID: id, Incarnation: 7}.String()
		create(t, r, role, 4)
		if e := <-r.Events(); e.Exit.Reason != want {
			t.Errorf("%v was reported %q, expected %q", role, e.Exit.Reason, want)
		}
	}
}

package agent

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// A script can be a child of its command, as behind a shell script. The command counts as the
// process: its end ends the script, too.
func TestScriptBehindAWrapper(t *testing.T) {
	h, a := open(t, 1, append([]string{"/bin/sh", "-c", `"$0" "$@"; exit $?`}, self("recall=arrive")...)...)
	h.give(a)
	pid := h.hear("world 1", 0)[0]
	h.recall(1, false)
	a = h.arrival()
	if h.told(a, 1, 1); a.Round != 1 {
		t.Errorf("it brings round %d, want 1", a.Round)
	}
	h.give(a)
	if again := h.hear("world 2", 0)[0]; again != pid {
		t.Errorf("process %d, want %d, which keeps its state", again, pid)
	}
	leader, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	if leader == pid {
		t.Fatal("the shell did not start another process")
	}
	if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if a = h.arrival(); len(a.Failures) != 1 || a.Failures[0].Signal != int32(syscall.SIGKILL) ||
		int(a.Failures[0].Pid) != leader {
		t.Errorf("its failures are %v, want that of the command, killed", a.Failures)
	}
}

// A process that no world will have is told to end, and the log says why: it does not wait without
// a word.
func TestRefusesASecondScript(t *testing.T) {
	h, a := open(t, 1, append([]string{"/bin/sh", "-c", `"$0" "$@" & "$0" "$@"; wait`}, self()...)...)
	h.give(a)
	const why = "another process of local rank 0, with the pid "
	for !strings.Contains(next(h, "the end of one", h.lines), "hears end: "+why) {
	}
	for {
		if line := next(h, "the reason", h.logs); strings.Contains(line, "level=WARN") && strings.Contains(line, why) {
			return
		}
	}
}

// Which process has a connection follows from the session that it was made in.
func TestSpeaker(t *testing.T) {
	first, done := &script{pid: 101, leader: 100}, &script{pid: 110, leader: 110, ended: true}
	a := &agent{procs: []*process{
		nil, {local: 1, pid: 100, script: first}, {local: 2, pid: 110, script: done, done: true},
		{local: 3, pid: 120, exit: &program.Exit{}}, {local: 4, pid: 130},
		{local: 5, pid: 140, script: &script{pid: 141, leader: 140, ended: true}},
	}}
	for _, c := range []struct {
		pid, leader int
		local       int // -1: it is refused
		why         string
	}{
		{130, 130, 4, ""}, {131, 130, 4, ""}, {101, 100, 1, ""}, {142, 140, 5, ""},
		{100, 100, -1, "another process of local rank 1, with the pid 101,"},
		{111, 110, -1, "another process of local rank 2, with the pid 110,"},
		{120, 120, -1, "the command of local rank 3 has ended"}, {130, 131, -1, "without setsid"},
		{0, 0, -1, "without setsid"},
	} {
		p, why := a.speaker(&script{pid: c.pid, leader: c.leader})
		local := -1
		if p != nil {
			local = p.local
		}
		if local != c.local || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("process %d in session %d: local rank %d, %q, want %d, %q", c.pid, c.leader, local,
				why, c.local, c.why)
		}
	}
}

// The agent learns who speaks from the system.
func TestPeer(t *testing.T) {
	hello := make(chan message, 2)
	_, conn := dialScripts(t, func(m message) { hello <- m })
	fmt.Fprintln(conn, `{"op":"hello","pid":1,"local_rank":9}`)
	session, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	if m := <-hello; m.from.pid != os.Getpid() || m.from.leader != session {
		t.Errorf("process %d in session %d speaks, want %d in %d", m.from.pid, m.from.leader, os.Getpid(), session)
	}
}

// The leases of a script go to the one that its command starts after it.
func TestSecondScriptOfAWrapper(t *testing.T) {
	d := newDesk(t, 1)
	s1, s2 := &script{pid: 101, leader: 100}, &script{pid: 102, leader: 100}
	a := &agent{Config: Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, records: d.records,
		mail: newMailbox(), beats: beats{urgent: make(chan struct{}, 1)}}
	a.procs = []*process{{local: 0, pid: 100, script: s1}}
	if l, _ := d.lease(t.Context(), s1); l.(map[string]any)["lease"] == nil {
		t.Fatal(l)
	}
	// its connection has ended, the wrapper goes on
	a.mail.put(event{said: &message{from: s1}})
	a.absorb(func(event) {})
	a.mail.put(event{said: &message{s2, word{Op: "hello", Survives: true}}})
	a.absorb(func(event) {})
	if a.procs[0].script != s2 {
		t.Fatal("refused")
	}
	if l, _ := d.lease(t.Context(), s2); l.(map[string]any)["lease"] == nil {
		t.Errorf("the second script gets %v: the lease of the first is nobody's and is never given back", l)
	}
}

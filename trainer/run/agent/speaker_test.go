package agent

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A script can be a child of its command, such as a shell script. The command counts as the
// process: its end ends the script, too.
func TestScriptBehindAWrapper(t *testing.T) {
	h, a := open(t, 1, append([]string{"/bin/sh", "-c", `"$0" "$@"; exit $?`}, self("recall=arrive")...)...)
	h.give(a)
	pid := h.hear("world 1", 0)[0]
	h.recall(1, false)
	a = h.arrival()
	if h.checkFailures(a, 1, 1); a.Round != 1 {
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

// A process that cannot join a world is asked to end, and the log has the reason.
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

// The kernel reports to the agent which process is the peer.
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

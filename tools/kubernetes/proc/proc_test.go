package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain runs the tests, and also the processes that they start: "wait" waits, "fork" starts such
// a process and ends.
func TestMain(m *testing.M) {
	switch os.Getenv("PROC_TEST") {
	case "fork":
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PROC_TEST=wait")
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	case "wait":
		fmt.Println("here")
		// without cgo, a bare select would count as a deadlock
		<-time.After(time.Hour)
	default:
		os.Exit(m.Run())
	}
}

func TestLife(t *testing.T) {
	p := start(t, "wait", "X=1")
	if s := p.State(); s != Running {
		t.Fatalf("it is %v, want running", s)
	}
	if p.RSS() == 0 {
		t.Error("it has no memory")
	}
	for _, c := range []struct {
		signal syscall.Signal
		effect State
	}{{syscall.SIGSTOP, Paused}, {syscall.SIGCONT, Running}, {syscall.SIGKILL, Ended}} {
		if !p.Signal(c.signal) {
			t.Fatalf("%v was not sent", c.signal)
		}
		until(t, c.effect.String(), func() bool { return p.State() == c.effect })
	}
	if p.Signal(syscall.SIGTERM) {
		t.Error("a signal was sent to a process that has ended")
	}
	if p.RSS() != 0 {
		t.Error("a process that has ended has memory")
	}
}

// A process whose number was reused is not taken for the old one.
func TestReusedNumber(t *testing.T) {
	p := start(t, "wait", "X=1")
	before := p
	before.Start--
	if s := before.State(); s != Ended {
		t.Errorf("the process with that number before is %v", s)
	}
	if before.Signal(syscall.SIGKILL) || p.State() != Running {
		t.Error("a signal for the process before reached the one now")
	}
}

// The processes that a process leaves behind are found by the mark, and no others.
func TestMarked(t *testing.T) {
	// other runs of this test on the machine have other marks
	mark := fmt.Sprintf("MARK=%d-%s", os.Getpid(), t.Name())
	other := mark + "2"
	bystander := start(t, "wait", other)
	parent := start(t, "fork", mark)
	until(t, "the parent's end", func() bool { return parent.State() == Ended })
	list := func() []int { return Marked(mark) }
	until(t, "the child", func() bool { return len(list()) == 1 })
	if pids := list(); slices.Contains(pids, bystander.PID) || slices.Contains(pids, parent.PID) {
		t.Errorf("marked are %v", pids)
	}
	if err := Kill(list, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if pids := list(); len(pids) > 0 {
		t.Errorf("%v are left", pids)
	}
	if bystander.State() != Running {
		t.Error("another process was killed")
	}
}

func TestKillGivesUp(t *testing.T) {
	const nobody = 1<<22 + 1 // greater than any process number
	if err := Kill(func() []int {
		return []int{nobody}
	}, 0); err == nil || !strings.Contains(err.Error(), fmt.Sprint(nobody)) {
		t.Errorf("error is %v, want one that names process %d", err, nobody)
	}
}

func TestRunWithoutProgram(t *testing.T) {
	_, err := Run(Command{Name: "x", Args: []string{"/nowhere/x"}, Log: filepath.Join(t.TempDir(), "log")})
	if err == nil || !strings.HasPrefix(err.Error(), "start x: ") {
		t.Errorf("error is %v", err)
	}
}

func TestParseStat(t *testing.T) {
	rest := strings.Repeat(" 0", 18) + " 4242 7 8"
	for _, name := range []string{"sh", "a b", "a) R 1 2", "(", ""} {
		state, start, err := parseStat([]byte("12 (" + name + ") S" + rest))
		if state != 'S' || start != 4242 || err != nil {
			t.Errorf("name %q: %c %d %v, want S 4242", name, state, start, err)
		}
	}
	for _, line := range []string{"", "12 (sh) S 1", "12 (sh) S" + strings.Repeat(" 0", 18) + " x"} {
		if _, _, err := parseStat([]byte(line)); err == nil {
			t.Errorf("%q was read", line)
		}
	}
}

// start runs this test binary until the test ends.
func start(t *testing.T, what, mark string) Process {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	p, err := Run(Command{Name: what, Args: []string{os.Args[0]}, Env: []string{"PROC_TEST=" + what, mark}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Signal(syscall.SIGKILL) })
	if what == "wait" {
		until(t, "its output", func() bool {
			b, err := os.ReadFile(log)
			return err == nil && string(b) == "here\n"
		})
	}
	return p
}

// until waits until a condition that depends on another process is true.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after 30 s", what)
		}
		<-time.After(time.Millisecond)
	}
}

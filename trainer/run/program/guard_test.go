package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// The watchdog of a dead agent finds processes unknown to it, by their environment. At the end of
// an agent that has closed its program it leaves them alone: they are daemons of the program.
func TestWatchdogFinds(t *testing.T) {
	for _, dies := range []bool{true, false} {
		mark := ErrorFileVariable + "=" + t.TempDir() + string(filepath.Separator)
		g, err := startWatchdog(mark, "")
		if err != nil {
			t.Fatal(err)
		}
		start := func(mark string) int {
			cmd := exec.Command("sleep", "1000")
			cmd.Env = append(os.Environ(), mark+"0/error.json")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			return cmd.Process.Pid
		}
		own, other := start(mark), start(ErrorFileVariable+"="+t.TempDir()+string(filepath.Separator))
		if dies {
			g.in.Close()
			g.cmd.Wait()
			await(t, "the end of a process that the watchdog does not know", func() bool { return !alive(own) })
		} else if g.close(); !alive(own) {
			t.Error("a daemon of a program that was closed is ended")
		}
		if !alive(other) {
			t.Error("a process of another program is ended")
		}
	}
}

// The watchdog of a dead agent removes a temporary log directory, unless it has an error file. That
// of an agent that has closed its program leaves it to the agent.
func TestWatchdogRemovesLogs(t *testing.T) {
	for _, test := range []struct{ dies, failed, stays bool }{{true, false, false}, {true, true, true},
		{false, false, true}} {
		logs := t.TempDir()
		attempt := filepath.Join(logs, "attempt_0", "0")
		if err := os.MkdirAll(attempt, 0o755); err != nil {
			t.Fatal(err)
		}
		if test.failed {
			if err := os.WriteFile(filepath.Join(attempt, "error.json"), []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		g, err := startWatchdog(ErrorFileVariable+"="+logs+string(filepath.Separator), logs)
		if err != nil {
			t.Fatal(err)
		}
		if test.dies {
			g.in.Close()
			g.cmd.Wait()
		} else {
			g.close()
		}
		if _, err := os.Stat(logs); (err == nil) != test.stays {
			t.Errorf("dies %v, failed %v: the log directory stays: %v, want %v", test.dies, test.failed,
				err == nil, test.stays)
		}
	}
}

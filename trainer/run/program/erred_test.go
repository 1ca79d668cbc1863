package program

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A process that has failed may take long to end: it counts as failed, and not as stopped, if the
// agent has asked it to end only after it had written its error file.
func TestFailedBeforeItWasStopped(t *testing.T) {
	for name, test := range map[string]struct {
		erred, stopped time.Duration // after the start
		want           Exit
	}{
		"before":       {time.Second, 2 * time.Second, Exit{Code: 1}},
		"after":        {2 * time.Second, time.Second, Exit{Code: -15, Signal: 15, Stopped: true}},
		"never failed": {0, time.Second, Exit{Code: -15, Signal: 15, Stopped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			begun, dir := time.Now(), t.TempDir()
			it := &process{dir: dir, pid: killedChild(t), stopped: begun.Add(test.stopped)}
			if test.erred > 0 {
				path := filepath.Join(dir, "error.json")
				if err := os.WriteFile(path, []byte(`{"message": "it broke"}`), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, begun, begun.Add(test.erred)); err != nil {
					t.Fatal(err)
				}
			}
			e := it.reap(time.Now())
			if e.Code != test.want.Code || e.Signal != test.want.Signal || e.Stopped != test.want.Stopped {
				t.Errorf("code %d, signal %d, stopped %t", e.Code, e.Signal, e.Stopped)
			}
			if test.erred > 0 && e.Failure.Message != "it broke" {
				t.Errorf("failure %+v", e.Failure)
			}
		})
	}
}

// killedChild returns the pid of a child that SIGTERM has ended, and nobody has waited for.
func killedChild(t *testing.T) int {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"},
		&syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitEnd(pid)
	return pid
}

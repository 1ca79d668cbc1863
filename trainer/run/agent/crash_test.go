package agent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// crasher is a script that crashes in each world.
const crasher = `
import os, signal
print("local %s pid %d hears it" % (os.environ["LOCAL_RANK"], os.getpid()), flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
`

// scriptWithTorch returns the path of a script whose processes are forked: its Python finds a
// module that is named torch.
func scriptWithTorch(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.py": text, "stub/torch/__init__.py": "__version__ = '2.6.0'"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PYTHONPATH", filepath.Join(dir, "stub"))
	return filepath.Join(dir, "main.py")
}

// The master gets a report that a crashed process was forked, once: the next process is started by
// exec, so that its crash is its own fault.
func TestCrashesAfterFork(t *testing.T) {
	h, a := open(t, 1, scriptWithTorch(t, crasher))
	for i, want := range []bool{true, false} {
		h.give(a)
		h.hear("it", 0)
		a = h.arrival()
		h.checkFailures(a, int64(i+1), 1, &wire.Failure{Signal: int32(syscall.SIGSEGV)})
		if got := a.Failures[0].Forked; got != want {
			t.Errorf("the crash in world %d may be due to a fork: %v, want %v", i+1, got, want)
		}
	}
}

// joiner is a script that crashes at its first start, and at the next one reports that it is ready
// to join a world.
const joiner = `
import json, os, signal, socket, sys
if not os.path.exists(sys.argv[0] + ".ran"):
    open(sys.argv[0] + ".ran", "w").close()
    os.kill(os.getpid(), signal.SIGBUS)
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["ELASTICDL_SOCKET"])
for op in "hello", "arrive":
    agent.sendall(json.dumps({"op": op, "pid": os.getpid(), "local_rank": 0, "survives": True, "formation": 0, "round": -1}).encode() + b"\n")
signal.pause()
`

// A new worker of a program whose processes keep their state restarts a process that has crashed
// after its fork.
func TestCrashesAfterForkBeforeItJoins(t *testing.T) {
	h, a := openWith(t, Config{Grace: time.Second, Keeps: true}, 1, scriptWithTorch(t, joiner))
	h.checkFailures(a, 0, 1)
}

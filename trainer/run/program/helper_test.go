package program

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit is the longest time for which a test waits for an event.
const limit = 30 * time.Second

// output is a console, or a log, that a test reads while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// bench is a program under test, and the directory that it runs in.
type bench struct {
	*Program
	t        *testing.T
	dir      string
	out, err output
	log      output
}

// newBench returns a program of these files and options. At the end of the test it closes the
// program, and checks that no process is left.
func newBench(t *testing.T, o Options, files map[string]string) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mark := "ELASTICDL_TEST=" + b.dir
	o.Env = append(append(os.Environ(), mark), o.Env...)
	if o.Dir == "" {
		o.Dir = b.dir
	}
	if o.LogDir == "" {
		o.LogDir = filepath.Join(b.dir, "logs")
	}
	o.Stdout, o.Stderr = &b.out, &b.err
	o.Log = slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.Program = p
	t.Cleanup(func() {
		p.Close()
		if left := marked(mark); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s\nlog:\n%s", &b.out, &b.err, &b.log)
		}
	})
	return b
}

// marked returns the live processes that have the entry in their environment, except this one.
func marked(entry string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && bytes.Contains(append(text, 0), []byte(entry+"\x00")) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			found = append(found, filepath.Base(filepath.Dir(file))+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// start starts a world of n processes.
func (b *bench) start(n int) *Group {
	b.t.Helper()
	return b.startAt(Position{WorldSize: n, LocalSize: n, GroupWorldSize: 1, MasterAddr: "127.0.0.1",
		MasterPort: 1234, Interface: "lo"})
}

func (b *bench) startAt(p Position) *Group {
	b.t.Helper()
	g, err := b.Start(b.t.Context(), p)
	if err != nil {
		b.t.Fatal(err)
	}
	return g
}

// ends waits for all processes of a group, and returns their exits by local rank.
func (b *bench) ends(g *Group) []Exit {
	b.t.Helper()
	return b.endsWithin(g, limit)
}

func (b *bench) endsWithin(g *Group, limit time.Duration) []Exit {
	b.t.Helper()
	exits := make([]Exit, len(g.Pids()))
	deadline := time.After(limit)
	for n := 0; ; n++ {
		select {
		case e, ok := <-g.Exits():
			if !ok {
				if n != len(exits) {
					b.t.Fatalf("%d exits of %d", n, len(exits))
				}
				return exits
			}
			exits[e.Local] = e
		case <-deadline:
			b.t.Fatal("the group does not end")
		}
	}
}

// await waits until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state, _, _, ok := parseStat(text)
	return ok && state != 'Z' && syscall.Kill(pid, 0) == nil
}

// python returns the directory of the interpreter itself, without wrappers, which are slow.
var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return filepath.Dir(strings.TrimSpace(string(out))), err
})

// needPython returns a PATH with python3, which `make test` installs.
func needPython(t *testing.T) string {
	t.Helper()
	dir, err := python()
	if err != nil {
		t.Fatalf("python3, which make test installs: %v", err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH")
}

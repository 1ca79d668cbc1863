package program

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// zombies returns the children of this process that have ended and were not reaped, of sessions
// other than its own.
func zombies() (all []string) {
	own, _ := syscall.Getpgid(0)
	for _, pid := range childrenOf(os.Getpid()) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if state, _, session, ok := parseStat(text); err == nil && ok && state == 'Z' && session != own {
			all = append(all, string(text))
		}
	}
	return all
}

// Helpers that outlive who has started them are reaped as soon as they have ended, also those in
// sessions of their own. How the processes of the program, and children that are waited for, have
// ended is known all the same.
func TestOrphansAreReaped(t *testing.T) {
	if err := adopt(); err != nil {
		t.Fatal(err)
	}
	for name, helper := range map[string]string{
		"in the background": `(sleep 0.05 &)`,
		"nested":            `sh -c 'sh -c "sleep 0.05 &" & sleep 0.02'`,
		"a daemon":          `(setsid sleep 0.05 &)`,
		"that fail":         `(sh -c 'exit 3' &)`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{Command: []string{"sh", "-c", `i=0; while test $i -lt 20; do ` +
				helper + `; i=$((i+1)); done; touch started; while ! test -e go; do sleep 0.01; done; exit 7`}}, nil)
			g := b.start(2)
			await(t, "the helpers", func() bool {
				_, err := os.Stat(filepath.Join(b.dir, "started"))
				return err == nil
			})
			// They run in parallel with the loop. The group's processes, which are not of them,
			// sleep until they may end.
			await(t, "the end of the helpers", func() bool {
				return !slices.ContainsFunc(marked("ELASTICDL_TEST="+b.dir), func(process string) bool {
					pid, command, _ := strings.Cut(process, " ")
					return command != "sleep 0.01 " && !slices.ContainsFunc(g.Pids(), func(own int) bool {
						return strconv.Itoa(own) == pid
					})
				})
			})
			await(t, "that no ended child is left", func() bool { return len(zombies()) == 0 })
			if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, e := range b.ends(g) {
				if e.Code != 7 {
					t.Errorf("%+v", e)
				}
			}
		})
	}
	b := newBench(t, Options{Command: []string{"true"}}, nil)
	// a child of this process's own, which is a zombie when the orphan is reaped
	cmd := exec.Command("sh", "-c", "exit 5")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitEnd(cmd.Process.Pid)
	children.reap()
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("the end of another child was taken: %v", cmd.ProcessState)
	}
	b.Close()
}

// Each rank is called by its script, its arguments, and its rank where the fork server has started
// it.
func TestNamesOfProcesses(t *testing.T) {
	for _, method := range []StartMethod{Fork, Exec} {
		for name, c := range map[string]struct {
			command []string
			want    string
		}{
			"script":      {[]string{"main.py", "--lr=0.1", "a b"}, "python3|-u|main.py|--lr=0.1|a b"},
			"interpreter": {[]string{"python3", "-B", "main.py"}, "python3|-u|-B|main.py"},
			"module":      {[]string{"python3", "-m", "main", "x"}, "python3|-u|-m|main|x"},
			"long": {[]string{"main.py", strings.Repeat("é", 3000)}, "python3|-u|main.py|" +
				strings.Repeat("é", 3000)},
		} {
			t.Run(fmt.Sprint(name, " by ", method), func(t *testing.T) {
				t.Parallel()
				b := newForkBench(t, Options{Command: c.command, StartMethod: method}, map[string]string{
					"main.py": `import sys; print(open("/proc/self/cmdline").read().rstrip("\0").replace("\0", "|"), len(sys.argv))`,
				})
				g := b.startAt(Position{FirstRank: 3, WorldSize: 5, LocalSize: 2})
				b.ends(g)
				if g.Method() != method {
					t.Fatalf("started by %v", g.Method())
				}
				for rank := 3; rank < 5; rank++ {
					want := c.want
					if method == Fork {
						want += "|[rank " + strconv.Itoa(rank) + "]"
					}
					if !strings.Contains(b.out.String(), want+" ") {
						t.Errorf("no process is called %.200q: %.500q", want, b.out.String())
					}
				}
			})
		}
	}
}

// The fork server is not taken for a rank.
func TestNameOfTheForkServer(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py", "x"}}, map[string]string{"main.py": ""})
	b.Ready(t.Context())
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", b.server.current.cmd.Process.Pid))
	if want := "python3\x00-u\x00main.py\x00x\x00[fork server]"; err != nil ||
		strings.TrimRight(string(text), "\x00") != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
}

// A path that is too long for sockets is not used for the directory of sockets. If no other place
// can be written, the error names the variable.
func TestMakeTemporary(t *testing.T) {
	const room = len("worker-1234567/agent.sock")
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 90))
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	for tmp, want := range map[string]string{
		"/tmp":                                "/tmp",
		"/tmp/":                               "/tmp",
		long:                                  "/tmp",
		filepath.Join(t.TempDir(), "missing"): "",
	} {
		t.Setenv("TMPDIR", tmp)
		dir, err := MakeTemporary("elasticdl-test-", room)
		if err != nil {
			t.Errorf("TMPDIR=%s: %v", tmp, err)
			continue
		}
		defer os.RemoveAll(dir)
		socket := filepath.Join(dir, strings.Repeat("s", room))
		if l, err := net.Listen("unix", socket); err != nil {
			t.Errorf("TMPDIR=%s: %v", tmp, err)
		} else {
			l.Close()
		}
		if want != "" && filepath.Dir(dir) != want {
			t.Errorf("TMPDIR=%s: made %s", tmp, dir)
		}
	}
	if _, err := MakeTemporary("elasticdl-test-", 200); err == nil ||
		!strings.Contains(err.Error(), "too long for sockets") || !strings.Contains(err.Error(), "TMPDIR") {
		t.Error(err)
	}
}

// Logs without --log_dir are made although TMPDIR names no directory that can be written, and at an
// absolute path although it names a relative one.
func TestTemporaryLogsElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("made", 0o700); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 90))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for tmp, within := range map[string]string{
		filepath.Join(t.TempDir(), "missing"): "/tmp", file: "/tmp", "/proc": "/tmp", "absent": "/tmp",
		"made": "made", long: long,
	} {
		t.Setenv("TMPDIR", tmp)
		p, err := New(Options{Command: []string{"true"}, RunID: "job", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Errorf("TMPDIR=%s: %v", tmp, err)
			continue
		}
		within, _ = filepath.Abs(within)
		if dir := p.LogDir(); filepath.Dir(dir) != within {
			t.Errorf("TMPDIR=%s: made %s, want it in %s", tmp, dir, within)
		}
		p.Close()
	}
}

// Files of killed processes in the directory of temporary files are removed: directories with
// sockets only, on which nobody listens. Files of others, and earlier files, stay.
func TestTemporaryFilesOfKilledProcesses(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "e") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	before := time.Now().Add(-time.Hour)
	made := func(name string, at time.Time, files ...string) {
		t.Helper()
		dir := filepath.Join(tmp, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			path := filepath.Join(dir, strings.TrimLeft(file, "+-"))
			switch file[0] {
			case '+', '-':
				l, err := net.Listen("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				if file[0] == '+' {
					t.Cleanup(func() { l.Close() })
				} else {
					l.(*net.UnixListener).SetUnlinkOnClose(false)
					l.Close()
				}
			default:
				if err := os.WriteFile(path, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
	}
	since := time.Now().Add(-time.Minute)
	made("pymp-killed", time.Now(), "-listener-1", "-listener-2")
	made("torch-shm-dir-killed", time.Now(), "-manager.sock")
	made("pymp-lives", time.Now(), "-listener-1", "+listener-2")
	made("pymp-before", before, "-listener-1")
	made("pymp-data", time.Now(), "-listener-1", "data")
	made("ssh-killed", time.Now(), "-agent.1")
	sweepTemporary(tmp, since)
	var left []string
	entries, _ := os.ReadDir(tmp)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := "pymp-before pymp-data pymp-lives ssh-killed"; strings.Join(left, " ") != want {
		t.Errorf("left are %v, want %s", left, want)
	}
}

// Each process of a program that is killed leaves no such directory.
func TestKilledProcessLeavesNoDirectory(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "e")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	byBoth(t, `
import multiprocessing.connection, os, signal
listener = multiprocessing.connection.Listener(family="AF_UNIX")
print(listener.address)
os.kill(os.getpid(), signal.SIGKILL)
`, Options{Env: []string{"TMPDIR=" + tmp}}, func(t *testing.T, b *bench) {
		b.ends(b.start(2))
		if n := strings.Count(b.out.String(), tmp+"/pymp-"); n != 2 {
			t.Errorf("%d directories were made: %q", n, &b.out)
		}
		if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}

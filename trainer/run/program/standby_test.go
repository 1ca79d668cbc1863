package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withMemory returns a directory whose /proc says how many MiB of memory are available.
func withMemory(t *testing.T, mib int) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{"proc/meminfo": fmt.Sprintf("MemTotal: 1 kB\nMemAvailable: %d kB\n", mib<<10)})
	return root
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// packages is a program that imports modules of site-packages: one starts a thread, one reads its
// rank, one opens a device. It prints its pid, which of them another process has imported, what the
// thread and it have as priorities, and waits.
const packages = `
import os, sys, sysconfig, time
names = ("plain", "threaded", "ranked", "opener")
where = sysconfig.get_path("purelib", "posix_user")
os.makedirs(where, exist_ok=True)
text = "import os, threading, time; maker, nice, start = os.getpid(), os.nice(0), open('/proc/self/cmdline').read()\n"
for name, more in {
    "plain": "", "opener": "kept = open(os.environ['DEVICE'], 'w')",
    "ranked": "rank = os.environ.get('RANK')",
    "threaded": "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start(); tid = " +
	"threading.enumerate()[-1].native_id",
}.items():
    own = "%s/%d" % (where, os.getpid())
    with open(own, "w") as f: f.write(text + more)
    os.replace(own, where + "/" + name + ".py")
sys.path.append(where)
import plain, threaded, ranked, opener
nices = {os.getpriority(os.PRIO_PROCESS, int(t)) for t in os.listdir("/proc/self/task")}
with open("/proc/self/oom_score_adj") as f: oom = f.read().strip()
print("made", [n for n in names if "[standby]" in sys.modules[n].start.replace("\0", " ")], "nice", plain.nice,
	nices, "oom", oom,
      "rank", ranked.rank, "session", os.getsid(0) == os.getpid(), "ppid", os.getppid() == int(os.environ["AGENT"]),
      "name", "[rank %s]" % os.environ["RANK"] in open("/proc/self/cmdline").read().replace("\0", " "), flush=True)
time.sleep(1000)
`

func newStandbyBench(t *testing.T, o Options) *bench {
	user := t.TempDir()
	o.Command, o.learnAfter = []string{"main.py"}, 300*time.Millisecond
	o.Env = append(o.Env, "PYTHONUSERBASE="+user, "DEVICE="+filepath.Join(user, "nvidiactl"),
		fmt.Sprintf("AGENT=%d", os.Getpid()))
	o.devices = []string{filepath.Join(user, "nvidia")}
	return newForkBench(t, o, map[string]string{"main.py": packages})
}

// awaitStandbys waits until that many standbys were ready since the beginning.
func (b *bench) awaitStandbys(n int) {
	b.t.Helper()
	await(b.t, fmt.Sprintf("standby %d", n), func() bool {
		return strings.Count(b.log.String(), "A standby process has imported") >= n
	})
}

// standbys returns how many standbys there are.
func (b *bench) standbys() int {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return len(b.server.standbys.servers)
}

// lines waits for that many lines of the program, and returns them.
func (b *bench) lines(n int) []string {
	b.t.Helper()
	await(b.t, fmt.Sprintf("%d lines", n), func() bool { return strings.Count(b.out.String(), "\n") >= n })
	return strings.Split(strings.TrimSuffix(b.out.String(), "\n"), "\n")
}

// next kills a group, and starts one that has other ranks.
func (b *bench) next(g *Group, first int) *Group {
	b.t.Helper()
	n := len(g.Pids())
	g.Stop(syscall.SIGKILL, 0)
	return b.startAt(Position{FirstRank: first, WorldSize: first + n, LocalSize: n, GroupWorldSize: 1,
		MasterAddr: "127.0.0.1", MasterPort: 1234, Interface: "lo"})
}

// raises reports whether this process may raise a priority, so that standbys import at a low one.
func raises(t *testing.T) bool {
	t.Helper()
	now, err := exec.Command("nice").Output()
	if err != nil {
		t.Fatal(err)
	}
	higher, err := exec.Command("nice", "-n", "-1", "nice").Output()
	return err == nil && string(higher) != string(now)
}

// A process that is killed is followed by one that has imported everything but what opens a device
// or reads what each process has its own of: a standby, which has imported at the lowest priority
// and runs at the usual one. Another standby follows, and another one that.
func TestStandby(t *testing.T) {
	b := newStandbyBench(t, Options{root: withMemory(t, 4096)})
	g := b.start(1)
	first := b.lines(1)[0]
	want := regexp.MustCompile(`^made \[\] nice (-?\d+) \{-?\d+\} oom (-?\d+) rank 0 session True ppid True name `).
		FindStringSubmatch(first)
	if want == nil {
		t.Fatal(first)
	}
	low := want[1]
	if raises(t) {
		low = "19"
	}
	for n := 1; n < 4; n++ {
		b.awaitStandbys(n)
		g = b.next(g, n)
		got := b.lines(n + 1)[n]
		if got != fmt.Sprintf("made ['plain', 'threaded'] nice %s {%s} oom %s rank %d session True ppid True "+
			"name True", low,
			want[1], want[2], n) || g.Method() != Exec {
			t.Errorf("start %d by %v: %s", n, g.Method(), got)
		}
	}
	g.Stop(syscall.SIGTERM, limit)
	if e := <-g.Exits(); e.Signal != int(syscall.SIGTERM) || !e.Stopped || e.Forked {
		t.Errorf("%+v", e)
	}
	for _, module := range []string{"opener", "ranked"} {
		if text := "module=" + module + " reason"; strings.Count(b.log.String(), text) == 0 ||
			strings.Count(b.log.String(), text) > 2 {
			t.Errorf("the log has %q %d times", text, strings.Count(b.log.String(), text))
		}
	}
}

// As many processes as the last start had are started from standbys together.
func TestStandbysOfAllProcesses(t *testing.T) {
	b := newStandbyBench(t, Options{root: withMemory(t, 4096)})
	g := b.start(2)
	b.awaitStandbys(2)
	b.lines(2)
	g = b.next(g, 4)
	for _, line := range b.lines(4)[2:] {
		if !strings.HasPrefix(line, "made ['plain', 'threaded']") || g.Method() != Exec {
			t.Errorf("by %v: %s", g.Method(), line)
		}
	}
}

// A standby that was killed is replaced, and a start does not fail with it. After three in a row
// there is none.
func TestStandbyIsKilled(t *testing.T) {
	b := newStandbyBench(t, Options{root: withMemory(t, 4096)})
	g := b.start(1)
	b.lines(1)
	for n := 1; n <= mostDeaths; n++ {
		b.awaitStandbys(n)
		b.server.mu.Lock()
		for _, f := range b.server.standbys.servers {
			syscall.Kill(f.pid, syscall.SIGKILL)
		}
		b.server.mu.Unlock()
	}
	await(t, "the end of standbys", func() bool {
		return strings.Contains(b.log.String(),
			"There is no standby process")
	})
	g = b.next(g, 1)
	if got := b.lines(2)[1]; !strings.HasPrefix(got, "made []") || g.Method() != Fork {
		t.Errorf("by %v: %s", g.Method(), got)
	}
}

// There is no standby without room for it. One ends when memory gets short, and comes back later.
func TestStandbyNeedsMemory(t *testing.T) {
	root := withMemory(t, 100)
	b := newStandbyBench(t, Options{root: root})
	g := b.start(1)
	await(t, "the second fork server", func() bool {
		return strings.Contains(b.log.String(), "has imported what the program imports")
	})
	memory := func(mib int) {
		write(t, root, map[string]string{"new": fmt.Sprintf("MemAvailable: %d kB\n", mib<<10)})
		if err := os.Rename(filepath.Join(root, "new"), filepath.Join(root, "proc/meminfo")); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the look for room", func() bool { return strings.Contains(b.log.String(), "There is no room") })
	if b.standbys() > 0 {
		t.Error("there is a standby, and no room for it")
	}
	memory(4096)
	b.awaitStandbys(1)
	memory(100)
	await(t, "its end", func() bool { return strings.Contains(b.log.String(), "memory is short") })
	g = b.next(g, 1)
	if got := b.lines(2)[1]; !strings.HasPrefix(got, "made []") || g.Method() != Fork {
		t.Errorf("by %v: %s", g.Method(), got)
	}
	memory(4096)
	b.awaitStandbys(2)
}

// A script finds the same world in a standby as by exec, except that the threads run already.
func TestStandbyGolden(t *testing.T) {
	both(t, func(method StartMethod) string {
		user := t.TempDir()
		o := Options{Command: []string{"main.py", "--epochs=2", "a b"}, StartMethod: method, RunID: "golden",
			learnAfter: 300 * time.Millisecond, root: withMemory(t, 4096),
			Env: []string{"USER_SITE=" + filepath.Join(user, "site-packages"), "PYTHONUSERBASE=" + user}}
		b := newForkBench(t, o, map[string]string{"helper.py": helperModule, "main.py": world + `
def wait():
    import sysconfig, time
    where = sysconfig.get_path("purelib", "posix_user")
    os.makedirs(where, exist_ok=True)
    with open(where + "/threaded.py",
	"w") as f: f.write("import os, threading, time; threading.Thread(target=time.sleep, args=(1000,), " +
		"daemon=True).start()")
    sys.path.append(where)
    import threaded
    show("threads", threading.active_count(), len(os.listdir("/proc/self/task")))
    show("end")
    time.sleep(1000)
wait()
`})
		g := b.start(1)
		b.lines(10)
		await(t, "the end", func() bool { return strings.HasSuffix(b.out.String(), "end\n") })
		before := b.out.String()
		if method == Fork {
			b.awaitStandbys(1)
		}
		g.Stop(syscall.SIGKILL, 0)
		g = b.start(1)
		await(t, "the end of the second", func() bool {
			return strings.HasSuffix(strings.TrimPrefix(b.out.String(), before), "end\n")
		})
		if g.Method() != Exec {
			t.Errorf("by %v", g.Method())
		}
		return regexp.MustCompile(`/[^' ]*/stub|/[^' ]*/imports|threads \d \d|`+user).ReplaceAllString(
			strings.ReplaceAll(strings.TrimPrefix(b.out.String(), before), b.dir, "DIR"), "TMP")
	})
}

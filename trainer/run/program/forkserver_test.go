package program

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stub is a module named torch, for tests that do not need PyTorch.
var stub = map[string]string{
	"stub/torch/__init__.py": "import os\nwith open(os.environ['IMPORTS'], 'a') as f: " +
		"f.write('torch %d\\n' % os.getpid())\nthreads = []\nset_num_threads = " +
		"threads.append\nsetting = os.environ.get('STUB_SETTING', 'none')\n",
	"stub/torch/cuda/__init__.py":        "started = False\ndef is_initialized(): return started\n",
	"stub/torch/distributed/__init__.py": "",
	"stub/torch/nn/__init__.py":          "",
	"stub/torch/nn/parallel.py":          "",
}

// newForkBench returns a program whose interpreter has the stub.
func newForkBench(t *testing.T, o Options, files map[string]string) *bench {
	t.Helper()
	path := needPython(t)
	dir := t.TempDir()
	for name, text := range stub {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o.Env = append(o.Env, path, "PYTHONPATH="+filepath.Join(dir, "stub"),
		"IMPORTS="+filepath.Join(dir, "imports"), "PYTHONDONTWRITEBYTECODE=1")
	return newBench(t, o, files)
}

// world is a script that prints its environment and the state of its interpreter, without values
// that always differ, such as pids.
const world = `
import os, sys, threading, inspect, random, signal
import helper
def show(*a): print(*a, flush=True)
def main():
    show("name", __name__, "file", __file__, "doc", __doc__, "package", __package__, "spec", getattr(__spec__, "name", None), type(__loader__).__name__)
    show("globals", sorted(k for k in globals()))
    show("argv", sys.argv, "orig", getattr(sys, "orig_argv", None))
    show("path", sys.path)
    show("cwd", os.getcwd(), "umask", oct(os.umask(0o22)))
    show("helper", helper.__file__, helper.who())
    for k in sorted(os.environ):
        if k not in ("TORCHELASTIC_ERROR_FILE", "_", "SHLVL", "PWD", "OLDPWD"): show("env", k, os.environ[k])
    show("threads", threading.active_count(), len(os.listdir("/proc/self/task")))
    show("main", sys.modules["__main__"].__dict__ is globals(), inspect.getsource(main)[:9])
    show("flags", sys.flags, sys.stdout.encoding, sys.stdout.errors, sys.stdin.read(), sys.stdout.isatty(), sys.stdout.write_through)
    show("signals", [(int(s), str(signal.getsignal(s))[:30]) for s in sorted(signal.valid_signals())])
    show("blocked", signal.pthread_sigmask(signal.SIG_BLOCK, []))
    show("session", os.getsid(0) == os.getpid() == os.getpgid(0))
    show("fds", sorted(int(f) for f in os.listdir("/proc/self/fd"))[:4])
    show("excepthook", sys.excepthook is sys.__excepthook__, "meta", [getattr(m, "__name__", type(m).__name__) for m in sys.meta_path if type(m).__name__ not in ("Listener", "Gate")])
    show("executable", sys.executable, sys._xoptions)
if __name__ == "__main__":
    main()
`

const helperModule = "import os\ndef who(): return __name__ + ' ' + os.environ['RANK']\n"

// A script finds the same environment and interpreter whether it is forked or executed.
func TestGolden(t *testing.T) {
	files := map[string]string{"main.py": world, "helper.py": helperModule, "pkg/__init__.py": "",
		"pkg/mod.py": world, "sub/main.py": world,
		"sub/helper.py": helperModule, "link.py": "-> sub/main.py"}
	for name, command := range map[string][]string{
		"script":   {"main.py", "--epochs=2", "a b"},
		"flags":    {"python3", "-W", "ignore", "-X", "dev", "./main.py"},
		"relative": {"sub/../sub/main.py", "x"},
		"module":   {"python3", "-m", "pkg.mod", "x"},
		"link":     {"link.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := both(t, func(method StartMethod) string {
				b := newForkBench(t, Options{Command: command, StartMethod: method, RunID: "golden"}, files)
				g := b.start(1)
				b.ends(g)
				if g.Method() != method {
					t.Fatalf("started by %v", g.Method())
				}
				return regexp.MustCompile(`/[^' ]*/stub|/[^' ]*/imports`).ReplaceAllString(
					strings.ReplaceAll(b.out.String(), b.dir, "DIR"), "TMP")
			})
			if !strings.Contains(got, "threads 1 1") {
				t.Error(got)
			}
		})
	}
}

// both compares the outputs of a program under both start methods, line by line, and returns that
// of Exec.
func both(t *testing.T, show func(StartMethod) string) string {
	t.Helper()
	forked, executed := strings.Split(show(Fork), "\n"), strings.Split(show(Exec), "\n")
	for i := range min(len(forked), len(executed)) {
		if forked[i] != executed[i] {
			t.Errorf("line %d\nforked:   %s\nexecuted: %s", i, forked[i], executed[i])
		}
	}
	if len(forked) != len(executed) {
		t.Errorf("%d lines forked, %d executed", len(forked), len(executed))
	}
	return strings.Join(executed, "\n")
}

// endings are scripts, by rank. Their output and their exit codes are the same under both start
// methods.
var endings = []string{
	"import sys; sys.exit(5)",
	"raise SystemExit('no more')",
	"import sys; sys.exit()",
	"def f():\n    raise ValueError('bad')\nf()",
	"try:\n    1/0\nexcept Exception as e:\n    raise RuntimeError('x') from e",
	"x = (\n",
	"raise KeyboardInterrupt",
	"import sys\nsys.excepthook = lambda *a: print('mine', a[0].__name__)\n1/0",
	"import atexit, threading\natexit.register(print, 'atexit')\nx, ended = 3, " +
		"threading.Event()\ndef f():\n    ended.wait(); print('thread', " +
		"x)\nthreading.Thread(target=f).start()\nprint('end')\nended.set()",
	"import os; os.abort()",
	"class A:\n    def __del__(self): print('del')\na = A()",
	"# -*- coding: latin-1 -*-\nprint(len('\xe4'))",
	"import absent",
	"raise SystemExit(True)",
	"raise SystemExit(-1)",
	"raise SystemExit(1 << 40)",
	"raise SystemExit(2.5)",
	"class E(SystemExit): pass\nraise E('mine')",
	"try:\n    raise SystemExit(3)\nfinally:\n    print('finally')",
	"import atexit\natexit.register(print, 'atexit')\nraise SystemExit(4)",
	"import atexit, sys\natexit.register(lambda: 1/0)\natexit.register(sys.exit, 9)\nprint('end')",
	"class A:\n    def __del__(self): 1/0\na = A()\ndel a\nkept = A()",
	"import sys\nsys.unraisablehook = lambda u: print('mine', u.exc_type.__name__)\nclass A:\n    " +
		"def __del__(self): 1/0\nA()",
	"import threading\nthreading.Thread(target=lambda: 1/0).start()",
	"import threading, sys\nthreading.Thread(target=sys.exit, args=(7,)).start()",
	"import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\nprint('end')",
	"import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\nprint('end')",
	"import io, sys\nclass File(io.RawIOBase):\n    def writable(self): return True\n    def " +
		"write(self, b): sys.__stdout__.buffer.raw.write(bytes(b)); return len(b)\n" +
		"cycle = [io.BufferedWriter(File())]\ncycle.append(cycle)\ncycle[0].write(b'in a cycle\\n')",
	"import multiprocessing.util as u\nu.Finalize(None, print, ('finalizer',), exitpriority=1)\nprint('end')",
	"import multiprocessing, time\np = " +
		"multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,), " +
		"daemon=True)\np.start()\nprint('end')",
	"import multiprocessing, time\np = " +
		"multiprocessing.get_context('fork').Process(target=time.sleep, args=(.05,))\np.start()\nprint('end')",
	"import os\nos.close(1)",
	"import os, signal\nsignal.signal(signal.SIGINT, " +
		"signal.default_int_handler)\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(10)",
	"import sys\nsys.stdout.write('no newline')\nsys.stdout = None",
}

var address = regexp.MustCompile(` at 0x[0-9a-f]+`)

func TestGoldenEndings(t *testing.T) {
	for _, command := range [][]string{{"main.py"}, {"python3", "-m", "main"}} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			both(t, func(method StartMethod) string {
				files := map[string]string{"main.py": "import os, sys\npath = 'case' + " +
					"os.environ['RANK'] + '.py'\nexec(compile(open(path, 'rb').read(), path, 'exec'))\n"}
				for i, text := range endings {
					files["case"+strconv.Itoa(i)+".py"] = text
				}
				b := newForkBench(t, Options{Command: command, StartMethod: method,
					Redirects: Streams{all: Both}}, files)
				g := b.start(len(endings))
				var all strings.Builder
				for _, e := range b.ends(g) {
					fmt.Fprintf(&all, "rank %d: %d\n", e.Rank, e.Code)
					for _, name := range []string{"stdout.log", "stderr.log"} {
						text, _ := os.ReadFile(filepath.Join(b.attempt(0, e.Local), name))
						all.WriteString(address.ReplaceAllString(strings.ReplaceAll(string(text), b.dir, "DIR"), ""))
					}
				}
				if g.Method() != method {
					t.Errorf("started by %v", g.Method())
				}
				return all.String()
			})
		})
	}
}

// A script with a syntax error fails as under plain Python.
func TestGoldenSyntaxError(t *testing.T) {
	both(t, func(method StartMethod) string {
		b := newForkBench(t, Options{Command: []string{"main.py"}, StartMethod: method},
			map[string]string{"main.py": "x = (\n"})
		e := b.ends(b.start(1))[0]
		return strconv.Itoa(e.Code) + "\n" + strings.ReplaceAll(b.err.String(), b.dir, "DIR")
	})
}

// importers returns the processes that have imported the stub.
func importers(b *bench) []string {
	text, _ := os.ReadFile(parseEnviron(b.options.Env)["IMPORTS"])
	return strings.Fields(strings.ReplaceAll(string(text), "torch ", ""))
}

// A fork server that is killed before it lets the processes run takes no process of the program
// with it: another fork server starts them.
func TestForkServerDiesBeforeGo(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}}, map[string]string{
		"main.py": "import torch, sys\nsys.exit(4)\n"})
	stubs := parseEnviron(b.options.Env)["PYTHONPATH"]
	if err := os.WriteFile(filepath.Join(stubs, "sitecustomize.py"), []byte(`
import os
plain, mark = os.write, os.environ["IMPORTS"] + ".killed"
def write(fd, data):
    if data == b"gg" and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), 9)
    return plain(fd, data)
os.write = write
`), 0o644); err != nil {
		t.Fatal(err)
	}
	g := b.start(2)
	if len(importers(b)) != 2 || g.Method() != Fork {
		t.Errorf("started by %v after %d imports", g.Method(), len(importers(b)))
	}
	for _, e := range b.ends(g) {
		if e.Code != 4 {
			t.Errorf("%+v", e)
		}
	}
}

// Forked processes are children of the agent and share one import of torch. They continue when the
// fork server dies.
func TestForkServerDies(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}}, map[string]string{
		"main.py": "import os, torch, time\nprint('up', os.getppid(), flush=True)\nwhile not " +
			"os.path.exists('go'): time.sleep(.01)\nos._exit(4)\n"})
	g := b.start(2)
	if g.Method() != Fork {
		t.Fatal("not forked")
	}
	await(t, "both", func() bool { return strings.Count(b.out.String(), "up "+strconv.Itoa(os.Getpid())+"\n") == 2 })
	servers := importers(b)
	if len(servers) != 1 {
		t.Fatalf("torch was imported by %v", servers)
	}
	server, _ := strconv.Atoi(servers[0])
	syscall.Kill(server, syscall.SIGKILL)
	await(t, "another fork server", func() bool { return len(importers(b)) == 2 })
	for _, pid := range g.Pids() {
		if !alive(pid) {
			t.Errorf("process %d has ended", pid)
		}
	}
	os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644)
	for _, e := range b.ends(g) {
		if e.Code != 4 {
			t.Errorf("%+v", e)
		}
	}
	if g := b.start(2); g.Method() != Fork || len(importers(b)) != 2 {
		t.Errorf("started by %v after %d imports", g.Method(), len(importers(b)))
	}
}

// When a process is killed its children are killed, too, also if it was forked.
func TestForkedGroupEnds(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}}, map[string]string{
		"main.py": "import os, time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nif " +
			"os.fork() == 0: print('child', flush=True)\ntime.sleep(1000)\n"})
	g := b.start(2)
	await(t, "children", func() bool { return strings.Count(b.out.String(), "child") == 2 })
	g.Stop(syscall.SIGTERM, 20*time.Millisecond)
	for _, e := range b.ends(g) {
		if e.Signal != 9 {
			t.Errorf("%+v", e)
		}
	}
	for _, pid := range g.Pids() {
		if left := members(pid); len(left) > 0 {
			t.Errorf("session %d has %v", pid, left)
		}
	}
}

// If a program cannot be forked it is executed, and the log says why, once.
func TestFallback(t *testing.T) {
	hello := map[string]string{"main.py": "print('ran')"}
	with := func(name, text string) map[string]string {
		return map[string]string{"main.py": "print('ran')", name: text}
	}
	for name, c := range map[string]struct {
		options Options
		n       int // processes; 0: one
		files   map[string]string
		torch   string // what the stub does when it is imported
		env     func(int) []string
		want    string // expected in the log
	}{
		"no torch": {files: hello, torch: "raise ImportError('no such thing')",
			want: `level=INFO msg="processes are started by exec" reason="the program's interpreter has no torch: `},
		"broken torch": {files: hello, torch: "raise OSError('libcuda')",
			want: "the last: the fork server failed: OSError: libcuda"},
		"crashes": {files: hello, torch: "import os; os.abort()", want: "3 fork servers in a row died"},
		"threads": {files: hello,
			torch: "import threading, time; threading.Thread(target=time.sleep, args=(1000,), " +
				"daemon=True).start()", want: "has 2 threads"},
		"device": {options: Options{devices: []string{"/dev/zer"}}, files: hello,
			torch: "kept = open('/dev/zero')", want: "the fork server has /dev/zero open: "},
		"CUDA": {files: hello,
			torch: "import sys, types; sys.modules['torch.cuda'] = " +
				"types.SimpleNamespace(is_initialized=lambda: True)", want: "the fork server has CUDA initialized: "},
		"shadow": {files: with("torch.py", ""), want: "torch.py has the name of a module that torch imports"},
		"environment": {n: 2, files: hello, env: func(i int) []string {
			return []string{"OMP_NUM_THREADS=" + strconv.Itoa(i+1)}
		}, want: "OMP_NUM_THREADS, which is read when"},
		"Python's option": {options: Options{Command: []string{"python3", "-s", "main.py"}},
			files: hello, want: "level=INFO msg=\"processes are started by exec\" reason=\"python3 " +
				"starts the program; what can be forked is"},
		"shell": {options: Options{Command: []string{"/bin/sh", "-c", "X=1 exec python3 " +
			"main.py"}}, files: hello,
			want: "level=INFO msg=\"processes are started by exec\" reason=\"/bin/sh starts the " +
				"program; what can be forked is"},
		"other program": {options: Options{Command: []string{"echo", "ran"}}, files: hello,
			want: "level=DEBUG msg=\"processes are started by exec\" reason=\"echo is not a Python script\""},
		"not a file": {options: Options{Command: []string{"app"}},
			files: map[string]string{"app/__main__.py": "print('ran')"}, want: "app is not a file of Python source"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := max(1, c.n)
			if c.options.Command == nil {
				c.options.Command = []string{"main.py"}
			}
			files := c.files
			if c.torch != "" { // in the path before the stub
				files = map[string]string{"over/torch/__init__.py": c.torch}
				maps.Copy(files, c.files)
			}
			var b *bench
			if c.torch == "" {
				b = newForkBench(t, c.options, files)
			} else {
				// so that what torch brings could be taken for that of a module after it
				dir := filepath.Join(t.TempDir(), "site-packages")
				os.MkdirAll(filepath.Join(dir, "torch"), 0o755)
				os.WriteFile(filepath.Join(dir, "torch", "__init__.py"), []byte(c.torch), 0o644)
				c.options.Env = []string{needPython(t), "PYTHONPATH=" + dir}
				b = newBench(t, c.options, c.files)
			}
			for range 2 {
				g := b.startAt(Position{WorldSize: n, LocalSize: n, Env: c.env})
				if b.ends(g); g.Method() != Exec {
					t.Error("it was forked")
				}
			}
			if got := strings.Count(b.out.String(), "ran\n"); got != 2*n {
				t.Errorf("it ran %d times", got)
			}
			if strings.Count(b.log.String(), c.want) != 1 {
				t.Errorf("the log does not say once %q", c.want)
			}
			if strings.Contains(b.log.String(), "does not import a module") {
				t.Error("the log blames a module")
			}
		})
	}
}

// If this process cannot adopt what a fork server makes, the program is executed, and the log says
// why.
func TestFallbackWithoutAdoption(t *testing.T) {
	var log output
	p := &Program{options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))},
		command: &invocation{python: true, args: []string{"python3", "main.py"}}}
	p.prepareForks(errors.New("operation not permitted"))
	if p.server != nil || !strings.Contains(log.String(),
		`level=INFO msg="processes are started by exec" reason="this process cannot adopt forked processes: operation not permitted"`) {
		t.Errorf("a fork server: %v; the log: %s", p.server != nil, &log)
	}
}

// After a crash soon after a fork, which the fork may have caused, processes are executed. A crash
// of these is their own.
func TestCrashEndsForks(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGABRT} {
		t.Run(unix.SignalName(signal), func(t *testing.T) {
			t.Parallel()
			b := newForkBench(t, Options{Command: []string{"main.py"}},
				map[string]string{"main.py": fmt.Sprintf("import os\nos.kill(os.getpid(), %d)\n", signal)})
			for i, want := range []StartMethod{Fork, Exec} {
				g := b.start(1)
				if e := b.ends(g)[0]; e.Signal != int(signal) || g.Method() != want || e.Forked != (want == Fork) {
					t.Errorf("start %d by %v: %+v", i, g.Method(), e)
				}
			}
			if !strings.Contains(b.log.String(), "rank 0 crashed ("+unix.SignalName(signal)+")") {
				t.Error("the log does not say why")
			}
		})
	}
}

// A fork server is started again if its children need another value of a variable that is read at
// import.
func TestForkServerIsStartedAgainForOtherValues(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}},
		map[string]string{"main.py": "import os, torch; print(os.environ['MKL_CBWR'])"})
	g := b.startAt(Position{WorldSize: 2, LocalSize: 2, Env: func(int) []string { return []string{"MKL_CBWR=AVX2"} }})
	b.ends(g)
	if g.Method() != Fork || b.out.String() != "AVX2\nAVX2\n" ||
		!strings.Contains(b.log.String(), "variable=MKL_CBWR") {
		t.Errorf("%v: %q", g.Method(), b.out.String())
	}
}

// A process gets its number of threads however it is started: a forked one has torch apply a number
// that the fork server was not started with. A number that the user has set stays.
func TestThreads(t *testing.T) {
	t.Setenv(threadsVariable, "") // restored at the end
	os.Unsetenv(threadsVariable)
	for _, c := range []struct {
		server, process int
		user            string
		env, applied    string // of the process; applied by torch
	}{
		{1, 1, "", "1", "[]"}, {0, 0, "", "none", "[]"}, {0, 4, "", "4", "[4]"}, {1, 4, "", "4", "[4]"},
		{4, 1, "", "1", "[1]"}, {2, 0, "", "2", "[]"}, {1, 4, "3", "3", "[]"},
	} {
		for _, method := range []StartMethod{Fork, Exec} {
			t.Run(fmt.Sprintf("%+v by %v", c, method), func(t *testing.T) {
				t.Parallel()
				o := Options{Command: []string{"main.py"}, Threads: c.server, StartMethod: method}
				if c.user != "" {
					o.Env = []string{threadsVariable + "=" + c.user}
				}
				b := newForkBench(t, o, map[string]string{"main.py": "import os, torch; " +
					"print(os.environ.get('OMP_NUM_THREADS', 'none'), torch.threads)"})
				g := b.startAt(Position{WorldSize: 2, LocalSize: 2, Threads: c.process})
				b.ends(g)
				want := c.env + " " + c.applied + "\n"
				if method == Exec {
					want = c.env + " []\n"
				}
				if g.Method() != method || b.out.String() != want+want ||
					strings.Contains(b.log.String(), "restarting the fork server") {
					t.Errorf("by %v: %q, want twice %q", g.Method(), b.out.String(), want)
				}
			})
		}
	}
}

// The second fork server imports the modules that the program imports from site-packages, also from
// those of another environment that a .pth file adds, except modules that start threads; but a
// thread without which its library works does not matter.
func TestForkServerLearns(t *testing.T) {
	user := t.TempDir()
	b := newForkBench(t, Options{Command: []string{"main.py"}, Env: []string{"PYTHONUSERBASE=" + user},
		root: withMemory(t, 1), learnAfter: 300 * time.Millisecond}, map[string]string{
		"mine.py": "import os; maker = os.getpid()",
		"main.py": `
import os, sys, sysconfig, time
names = ("heavy", "heavy.part", "layered", "threaded", "mine", "wave", "arrow")
text = "import os; maker = os.getpid()\n"
where = sysconfig.get_path("purelib", "posix_user")
os.makedirs(where + "/heavy", exist_ok=True)
with open(where + "/heavy/__init__.py", "w") as f: f.write(text)
with open(where + "/heavy/part.py", "w") as f: f.write(text)
with open(where + "/threaded.py", "w") as f: f.write(text + "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()")
with open(where + "/arrow.py", "w") as f: f.write(text + """
import ctypes, threading, time
def work():
    ctypes.CDLL(None).prctl(15, b"jemalloc_bg_thd", 0, 0, 0)
    named.set()
    time.sleep(1000)
named = threading.Event()
threading.Thread(target=work, daemon=True).start()
named.wait()
""")
other = os.environ["PYTHONUSERBASE"] + "/other/site-packages"
os.makedirs(other, exist_ok=True)
with open(other + "/layered.py", "w") as f: f.write(text)
with open(where + "/other.pth", "w") as f: f.write(other + "\n")
sys.path += [where, other]
import heavy.part, layered, arrow, threaded, mine, wave
print([n for n in names if getattr(sys.modules[n], "maker", os.getpid()) != os.getpid()], flush=True)
try: import absent
except ImportError: pass
time.sleep(1000)
`})
	g := b.start(1)
	await(t, "the second fork server", func() bool {
		return strings.Contains(b.log.String(), "has imported what the program imports")
	})
	g.Stop(syscall.SIGKILL, 0)
	first := b.out.String()
	g = b.start(1)
	await(t, "the second start", func() bool {
		return strings.HasSuffix(strings.TrimPrefix(b.out.String(), first), "\n")
	})
	if got := strings.TrimPrefix(b.out.String(), first); first != "[]\n" ||
		got != "['heavy', 'heavy.part', 'layered', 'arrow']\n" || g.Method() != Fork {
		t.Errorf("first %q, then %q by %v", first, got, g.Method())
	}
}

// A module that initializes CUDA or opens a GPU when it is imported is not learned: forked
// processes could not use the GPU. The log says which module it was, once.
func TestForkServerLeavesGPUs(t *testing.T) {
	user := t.TempDir()
	device := filepath.Join(user, "nvidiactl")
	env := []string{"PYTHONUSERBASE=" + user, "DEVICE=" + device}
	b := newForkBench(t, Options{Command: []string{"main.py"}, Env: env,
		learnAfter: 300 * time.Millisecond,
		devices:    []string{"/dev/absent", filepath.Join(user, "nvidia")}}, map[string]string{
		"main.py": `
import os, sys, sysconfig, time
names = ("plain", "opener", "opener.part", "starter", "after")
where = sysconfig.get_path("purelib", "posix_user")
os.makedirs(where + "/opener", exist_ok=True)
for name, text in {
    "plain": "", "opener/__init__": "", "opener/part": "import os; kept = open(os.environ['DEVICE'], 'w')",
    "starter": "import torch.cuda; torch.cuda.started = True", "after": "",
}.items():
    with open(where + "/" + name + ".py", "w") as f: f.write("import os; maker = os.getpid()\n" + text)
sys.path.append(where)
import plain, opener.part, starter, after
print([n for n in names if sys.modules[n].maker != os.getpid()], flush=True)
time.sleep(1000)
`})
	g := b.start(1)
	await(t, "the second fork server", func() bool {
		return strings.Contains(b.log.String(), "has imported what the program imports")
	})
	g.Stop(syscall.SIGKILL, 0)
	g = b.start(1)
	await(t, "the second start", func() bool { return strings.Count(b.out.String(), "\n") == 2 })
	if got := b.out.String(); got != "[]\n['plain', 'after']\n" || g.Method() != Fork {
		t.Errorf("%q by %v", got, g.Method())
	}
	for _, want := range []string{
		"module=opener.part reason=\"a process that has imported opener.part has " + device + " open\"",
		"module=starter reason=\"a process that has imported starter has CUDA initialized\"",
	} {
		if strings.Count(b.log.String(),
			"level=INFO msg=\"the fork server does not import a module: each process that needs it does\" "+want) != 1 {
			t.Errorf("the log does not say once %s", want)
		}
	}
}

// Ready returns when the fork server has imported torch; for a program that is not forked, it
// returns at once.
func TestReady(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}, StartMethod: Fork, RunID: "ready"},
		map[string]string{"main.py": ""})
	b.Program.Ready(t.Context())
	if text, err := os.ReadFile(parseEnviron(b.Program.options.Env)["IMPORTS"]); err != nil ||
		!strings.HasPrefix(string(text), "torch ") {
		t.Errorf("imports %q, %v; want torch's", text, err)
	}
	newForkBench(t, Options{Command: []string{"main.py"}, StartMethod: Exec, RunID: "ready"},
		map[string]string{"main.py": ""}).Ready(t.Context())
}

package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// eachStart runs a test of a script under both start methods.
func eachStart(t *testing.T, script string, test func(*testing.T, *bench, *Group)) {
	for _, method := range []StartMethod{Fork, Exec} {
		t.Run(method.String(), func(t *testing.T) {
			t.Parallel()
			b := newForkBench(t, Options{Command: []string{"main.py"}, StartMethod: method},
				map[string]string{"main.py": script, "helper.py": helperModule})
			g := b.start(1)
			if g.Method() != method {
				t.Fatalf("started by %v", g.Method())
			}
			await(t, "the script", func() bool { return strings.Contains(b.out.String(), "up") })
			test(t, b, g)
		})
	}
}

// stack returns the stack of a process. One on a busy machine may need more than one request.
func (b *bench) stack(g *Group, local int) (s Stack) {
	b.t.Helper()
	await(b.t, "an answer", func() bool { s = g.Stack(b.t.Context(), local); return s.Why != Silent })
	return s
}

// lives reports that the process of a group still runs, after a time in which a signal would have
// ended it.
func (b *bench) lives(g *Group) {
	b.t.Helper()
	pid := g.Pids()[0]
	await(b.t, "the signal to be handled", func() bool {
		s, ok := readStatus(taskOf(pid, pid))
		return !ok || s.pending&maskOf(stackSignal) == 0
	})
	if !alive(pid) {
		b.t.Errorf("process %d has ended", pid)
	}
}

// begin is the beginning of the scripts: up says that the script has come to its end.
const begin = `
import ctypes, os, re, signal, subprocess, sys, threading, time
def up(): print("up", flush=True)
`

// The stack of the main thread is shown, also while it sleeps in C, holds the interpreter's lock in
// C, waits for children, or has other threads. Children are sent no signal.
func TestStack(t *testing.T) {
	for name, c := range map[string]struct {
		// body of the function in which the main thread stands
		body string
		// the call in which it waits, as a regular expression
		call              string
		threads, children int
	}{
		"computes": {body: "while True: pass", threads: 1},
		"sleeps":   {body: "while True: time.sleep(1000)", call: "sleep|select", threads: 1},
		"holds the lock and sleeps": {body: "while True: ctypes.PyDLL(None).sleep(1000)",
			call: "sleep", threads: 1},
		"holds the lock and computes": {body: "re.match('(a+)+$', 'a' * 60 + 'b')", threads: 1},
		"has threads": {body: "for i in range(5):\n" +
			"        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n" +
			"    threading.Event().wait()", call: "lock", threads: 6},
		"waits for a forked child": {body: "if os.fork() == 0: time.sleep(1000)\n    os.wait()",
			call: "wait for a child", threads: 1, children: 1},
		"waits for a command": {body: "subprocess.Popen(['sleep', '1000']).wait()",
			call: "wait for a child", threads: 1, children: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStart(t, begin+"def stand():\n    up()\n    "+c.body+"\nstand()", func(t *testing.T, b *bench, g *Group) {
				if c.call != "" {
					await(t, "the call", func() bool {
						return regexp.MustCompile("^(" + c.call + ")$").MatchString(placeOf(g.Pids()[0]).Call)
					})
				}
				for round := range 2 {
					var s Stack
					await(t, "all threads", func() bool {
						s = b.stack(g, 0)
						return strings.Count(s.Text, "most recent call first") == c.threads
					})
					main := s.Text[max(0, strings.LastIndex(s.Text, "hread 0x")):]
					if s.Why != "" || strings.Contains(s.Text, "\x00") || !strings.Contains(main, "main.py\", line ") ||
						!strings.Contains(main, " in stand\n") || s.Pid != g.Pids()[0] {
						t.Errorf("round %d: %+v", round, s)
					}
				}
				b.lives(g)
				if strings.HasSuffix(name, "computes") {
					before := g.Place(0).Ticks
					await(t, "processor time", func() bool { return g.Place(0).Ticks >= before+2 })
				}
				own, children := g.Pids()[0], 0
				for _, p := range Processes() {
					if p.Session == own && p.Pid != own && alive(p.Pid) {
						children++
					}
				}
				if children != c.children {
					t.Errorf("%d children live", children)
				}
			})
		})
	}
}

// A process whose stack cannot be taken is not signalled, or survives the signal. The reason is
// named, and the place is known in any case.
func TestNoStack(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		why    NoStack
	}{
		"exec":    {"up()\nos.execv('/bin/sleep', ['sleep', '1000'])", Replaced},
		"closed":  {"os.closerange(3, 4096)\nup()\ntime.sleep(1000)", Closed},
		"blocked": {"signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])\nup()\ntime.sleep(1000)", Blocked},
		"ending": {"libc = ctypes.CDLL(None)\nlibc.on_exit(ctypes.cast(libc.pause, ctypes.c_void_p), None)\nup()",
			Finished},
		"its descriptor reused": {"os.closerange(3, 4096)\nfor fd in range(500, 600): " +
			"os.dup2(os.open('saved', os.O_CREAT | os.O_WRONLY), fd)\nup()\ntime.sleep(1000)", Closed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStart(t, begin+c.script, func(t *testing.T, b *bench, g *Group) {
				var s Stack
				await(t, "the reason", func() bool { s = b.stack(g, 0); return s.Why == c.why })
				for range 3 {
					s = b.stack(g, 0)
				}
				if s.Why != c.why || s.Text != "" || s.Place.State == 0 {
					t.Errorf("%+v", s)
				}
				b.lives(g)
				if saved, err := os.ReadFile(filepath.Join(b.dir, "saved")); err == nil && len(saved) > 0 {
					t.Errorf("a file of the program has %q", saved)
				}
			})
		})
	}
}

// A script that has its own handler of the signal gets it once. After that the agent knows.
func TestStackOfAnotherHandler(t *testing.T) {
	eachStart(t, begin+"signal.signal(signal.SIGURG, lambda *_: print('mine', flush=True))\nup()\n"+
		"while True: time.sleep(1000)",
		func(t *testing.T, b *bench, g *Group) {
			for range 3 {
				if s := b.stack(g, 0); s.Why != Deaf || s.Text != "" {
					t.Errorf("%+v", s)
				}
			}
			if n := strings.Count(b.out.String(), "mine"); n != 1 {
				t.Errorf("the script has got %d signals", n)
			}
			b.lives(g)
		})
}

// A stopped process is left alone, and shows its stack when it continues.
func TestStackOfAStoppedProcess(t *testing.T) {
	eachStart(t, begin+"up()\nwhile True: time.sleep(1000)", func(t *testing.T, b *bench, g *Group) {
		pid := g.Pids()[0]
		syscall.Kill(pid, syscall.SIGSTOP)
		await(t, "the stop", func() bool { return placeOf(pid).State == 'T' })
		if s := b.stack(g, 0); s.Why != Halted {
			t.Errorf("%+v", s)
		}
		if s, _ := readStatus(taskOf(pid, pid)); s.pending != 0 {
			t.Errorf("signals %x are pending", s.pending)
		}
		syscall.Kill(pid, syscall.SIGCONT)
		await(t, "the continuation", func() bool { return placeOf(pid).State == 'S' })
		if s := b.stack(g, 0); s.Why != "" {
			t.Errorf("%+v", s)
		}
	})
}

// A process that a debugger holds is sent no signal, which the debugger would stop at.
func TestStackUnderADebugger(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}, StartMethod: Exec},
		map[string]string{"main.py": begin + "up()\nwhile True: time.sleep(1000)"})
	g := b.start(1)
	await(t, "the script", func() bool { return strings.Contains(b.out.String(), "up") })
	pid := g.Pids()[0]
	// another process, as a wait of the tracer's would return at the stop
	dir, err := python()
	if err != nil {
		t.Fatal(err)
	}
	debugger := exec.Command(filepath.Join(dir, "python3"), "-c", tracer, strconv.Itoa(pid))
	more, err := debugger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := debugger.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the debugger", func() bool { return placeOf(pid).State == 't' })
	if s := b.stack(g, 0); s.Why != Traced {
		t.Errorf("%+v", s)
	}
	if s, _ := readStatus(taskOf(pid, pid)); s.pending&maskOf(stackSignal) != 0 {
		t.Error("the signal is pending")
	}
	more.Close()
	if err := debugger.Wait(); err != nil {
		t.Fatal(err)
	}
	await(t, "the detachment", func() bool { return g.Stack(t.Context(), 0).Why == "" })
}

// tracer is a debugger that holds a process until its standard input ends.
const tracer = `
import ctypes, os, sys
libc, pid = ctypes.CDLL(None), int(sys.argv[1])
libc.ptrace(16, pid, 0, 0)
os.waitpid(pid, 0x40000000)
sys.stdin.read()
libc.ptrace(17, pid, 0, 0)
`

// A program that is no Python script has no stacks, and what the kernel shows; a process that has
// ended has neither.
func TestStackOfOtherPrograms(t *testing.T) {
	b := newBench(t, Options{Command: []string{"sleep", "1000"}}, nil)
	g := b.start(1)
	await(t, "sleep", func() bool { return placeOf(g.Pids()[0]).Call == "sleep" })
	s := b.stack(g, 0)
	if s.Why != NotPython || s.Place.Call != "sleep" || s.Place.State != 'S' {
		t.Errorf("%+v", s)
	}
	b.lives(g)
	g.Stop(syscall.SIGKILL, 0)
	if s := b.stack(g, 0); s.Why != Ended || s.Place != (Place{}) {
		t.Errorf("%+v", s)
	}
	if s := g.Stack(t.Context(), 1); s.Why != Ended {
		t.Errorf("%+v", s)
	}
}

// Requests at the same time each get the stack; one that is cancelled ends at once.
func TestStacksAtOnce(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}, StartMethod: Exec},
		map[string]string{"main.py": begin + "up()\nwhile True: time.sleep(1000)"})
	g := b.start(2)
	await(t, "the scripts", func() bool { return strings.Count(b.out.String(), "up") == 2 })
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if s := b.stack(g, i%2); s.Why != "" || s.Local != i%2 || s.Rank != i%2 ||
				strings.Count(s.Text, "recent call first") != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s := g.Stack(ctx, 0); s.Why == "" && s.Text == "" || s.Why != "" && s.Why != Cancelled && s.Why != Silent {
		t.Errorf("%+v", s)
	}
	b.Close()
	if s := b.stack(g, 0); s.Why != Ended {
		t.Errorf("%+v", s)
	}
}

// A forked process that begins again with a fresh interpreter has stacks, too.
func TestStackAfterASecondStart(t *testing.T) {
	b := newForkBench(t, Options{Command: []string{"main.py"}}, map[string]string{"main.py": begin +
		"os.environ['STUB_' + 'SETTING'] = 'set'\nimport torch\nup()\nprint(os.environ.get('PYTHONPATH')," +
		" [k for k in os.environ if k.startswith('ELASTICDL_S')], flush=True)\nwhile True: time.sleep(1000)"})
	g := b.start(1)
	if g.Method() != Fork {
		t.Fatal(g.Method())
	}
	await(t, "the second start", func() bool { return strings.Contains(b.out.String(), "]") })
	if s := b.stack(g, 0); s.Why != "" || !strings.Contains(s.Text, "main.py") {
		t.Errorf("%+v", s)
	}
	if want := "up\n" + parseEnviron(b.options.Env)["PYTHONPATH"] + " []\n"; b.out.String() != want {
		t.Errorf("%q, want %q", &b.out, want)
	}
}

// A process that is started by exec finds no trace of how its stacks were registered: its own
// sitecustomize is loaded, and the variables are the user's.
func TestStartByExecLeavesNoTrace(t *testing.T) {
	const show = `
import os, sys
print("sitecustomize" in sys.modules and sys.modules["sitecustomize"].__file__, os.environ.get("MARK"),
      os.environ.get("PYTHONPATH"), [k for k in os.environ if k.startswith("ELASTICDL_") and k != "ELASTICDL_TEST"],
      [p for p in sys.path + list(sys.path_importer_cache) if "boot" in p], "fcntl" in sys.modules)
os.system("env | grep -c -e ^ELASTICDL_STACKS -e boot")
`
	for name, text := range map[string]string{"none": "", "one": "import os\nos.environ['MARK'] = 'mine'\n",
		"failing": "raise ValueError('mine')\n"} {
		for _, paths := range []string{"unset", "", "stub"} {
			t.Run(name+" "+paths, func(t *testing.T) {
				t.Parallel()
				both := [2]string{}
				for i, hidden := range []bool{false, true} {
					dir, env := t.TempDir(), []string{needPython(t)}
					if paths != "unset" {
						env = append(env, "PYTHONPATH="+paths)
					}
					files := map[string]string{"main.py": show}
					if text != "" {
						files["stub/sitecustomize.py"] = text
					}
					b := newBench(t, Options{Command: []string{"main.py"}, StartMethod: Exec, Env: env}, files)
					if hidden {
						b.bootDir = ""
					}
					b.ends(b.start(1))
					both[i] = strings.NewReplacer(b.dir, "DIR", dir, "TMP").Replace(b.out.String() + b.err.String())
				}
				if both[0] != both[1] || both[0] == "" {
					t.Errorf("registered:\n%swithout:\n%s", both[0], both[1])
				}
			})
		}
	}
}

// The reasons for which no signal is sent, in their order.
func TestStackRefusals(t *testing.T) {
	f, err := newStackFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.file.Close()
	own, catches := os.Getpid(), maskOf(stackSignal)
	for _, c := range []struct {
		fd   int
		deaf bool
		s    status
		want NoStack
	}{
		{0, false, status{state: 'S', caught: catches}, NotStarted},
		{1 << 20, false, status{state: 'S'}, Replaced},
		{int(f.file.Fd()), false, status{state: 'S', caught: catches << 1}, Finished},
		{int(f.file.Fd()), false, status{state: 'S', caught: catches, tracer: 3}, Traced},
		{int(f.file.Fd()), false, status{state: 'T', caught: catches}, Halted},
		{int(f.file.Fd()), true, status{state: 'S', caught: catches}, Deaf},
		{0xffff, false, status{state: 'S', caught: catches}, Closed},
		{int(f.file.Fd()), false, status{state: 'R', caught: ^uint64(0)}, ""},
	} {
		if f.fd, f.deaf = c.fd, c.deaf; f.refusal(own, c.s) != c.want {
			t.Errorf("%+v: %q, want %q", c, f.refusal(own, c.s), c.want)
		}
	}
}

// Of a text that is too long the end is kept, and it begins with a whole line.
func TestStackTextIsLimited(t *testing.T) {
	f, err := newStackFile()
	if err != nil {
		t.Fatal(err)
	}
	for i := range stackMost / 8 {
		fmt.Fprintf(f.file, "line %d\n", i)
	}
	fmt.Fprint(f.file, "end\n")
	text := f.text()
	if len(text) > stackMost || len(text) < stackMost-20 || !strings.HasPrefix(text, "line ") ||
		!strings.HasSuffix(text, "\nend\n") {
		t.Errorf("%d bytes, %.20q … %q", len(text), text, text[len(text)-20:])
	}
	f.file.Close()
	if f.text() != "" || f.note() == nil && f.has(os.Getpid()) {
		t.Error("a closed file has text")
	}
}

func TestParseStatus(t *testing.T) {
	const good = "Name:\tpython3\nState:\tt (tracing stop)\nTracerPid:\t12\nSigQ:\t1/96364\n" +
		"SigPnd:\t0000000000000001\nShdPnd:\t0000000000000002\nSigBlk:\t0000000000000004\n" +
		"SigIgn:\t0000000001001000\nSigCgt:\t0000040100000002\n"
	want := status{state: 't', tracer: 12, pending: 1, blocked: 4, caught: 0x40100000002}
	if s, ok := parseStatus(good); !ok || s != want || s.caught&maskOf(syscall.Signal(43)) == 0 {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, bad := range []string{"", "State:\tS\n", strings.Replace(good, "0000040100000002", "x", 1),
		strings.Replace(good, "SigBlk", "SigBlx", 1), strings.Replace(good, "State", "Stat", 1)} {
		if s, ok := parseStatus(bad); ok {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct{ text, arch, want string }{
		{"running\n", "amd64", ""}, {"-1 0x7ffe 0x7f9e\n", "amd64", ""}, {"", "amd64", ""},
		{"230 0x1 0x2\n", "amd64", map[bool]string{true: "sleep"}[runtime.GOARCH == "amd64"]},
		{"7 0x1\n", "amd64", "poll"}, {"999999 0x1", "amd64", ""},
	} {
		if got := callOf(c.text, c.arch); got != c.want {
			t.Errorf("%q on %s is %q, want %q", c.text, c.arch, got, c.want)
		}
	}
	for want, p := range map[string]Place{"ended": {}, "running (R)": {State: 'R'}, "(I)": {State: 'I'},
		"sleeping (S) in sleep (hrtimer_nanosleep)": {'S', "sleep", "hrtimer_nanosleep", 7}} {
		if p.String() != want {
			t.Errorf("%q, want %q", p, want)
		}
	}
	if p := placeOf(1 << 30); p != (Place{}) {
		t.Errorf("%+v", p)
	}
}

// All versions of Python that this machine has write stacks that end with the main thread.
func TestStackOfEveryPython(t *testing.T) {
	own, err := python()
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(own)), "3.*", "bin", "python3"))
	for _, path := range found {
		version := filepath.Base(filepath.Dir(filepath.Dir(path)))
		minor, _ := strconv.Atoi(strings.Split(version, ".")[1])
		if minor < 8 {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Options{Command: []string{path, "main.py"}, StartMethod: Exec},
				map[string]string{"main.py": begin +
					"threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n" +
					"def last():\n    up()\n    while True: time.sleep(1000)\nlast()"})
			g := b.start(1)
			await(t, "the script", func() bool { return strings.Contains(b.out.String(), "up") })
			s := b.stack(g, 0)
			if !strings.HasSuffix(s.Text, " in <module>\n") || !strings.Contains(s.Text, " in last\n") {
				t.Errorf("%+v", s)
			}
		})
	}
}

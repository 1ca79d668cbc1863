package program

import (
	"context"
	"errors"
	"log/slog"
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

func TestContractOfEnvironment(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "") // restored at the end
	os.Unsetenv("OMP_NUM_THREADS")
	names := strings.Fields(
		`RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR
		MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE NCCL_ASYNC_ERROR_HANDLING
		TORCH_NCCL_ASYNC_ERROR_HANDLING OMP_NUM_THREADS GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME EXTRA`)
	b := newBench(t, Options{
		Command: []string{"sh", "-c", `for n in ` + strings.Join(names, " ") +
			`; do eval "printf '%s=%s ' $n \$$n"; done; echo; echo "file=$TORCHELASTIC_ERROR_FILE"`},
		RunID: "job", MaxRestarts: 3, Env: []string{"NCCL_SOCKET_IFNAME=eth7", "RANK=99",
			ErrorFileVariable + "=/of/the/agent"},
	}, nil)
	g := b.startAt(Position{FirstRank: 4, WorldSize: 8, LocalSize: 2, GroupRank: 2, GroupWorldSize: 4,
		Restarts: 1, MasterAddr: "10.0.0.1", MasterPort: 29500,
		Threads: 3, Interface: "lo", Env: func(local int) []string {
			return []string{"EXTRA=x=" + strconv.Itoa(local)}
		}})
	if g.Method() != Exec {
		t.Errorf("a shell was forked")
	}
	if file, ok := b.options.base()[ErrorFileVariable]; ok {
		t.Errorf("the fork server has the agent's error file, %s", file)
	}
	b.ends(g)
	for local := range 2 {
		rank := strconv.Itoa(4 + local)
		want := "RANK=" + rank + " WORLD_SIZE=8 LOCAL_RANK=" + strconv.Itoa(local) +
			" LOCAL_WORLD_SIZE=2 GROUP_RANK=2 GROUP_WORLD_SIZE=4 ROLE_RANK=" + rank +
			" ROLE_WORLD_SIZE=8 ROLE_NAME=default MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 " +
			"TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_MAX_RESTARTS=3" +
			" TORCHELASTIC_RUN_ID=job TORCHELASTIC_USE_AGENT_STORE=True NCCL_ASYNC_ERROR_HANDLING=1 " +
			"TORCH_NCCL_ASYNC_ERROR_HANDLING=1" +
			" OMP_NUM_THREADS=3 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=eth7 EXTRA=x=" + strconv.Itoa(local) + " \n"
		if !strings.Contains(b.out.String(), want) {
			t.Errorf("local rank %d: want %q", local, want)
		}
		file := filepath.Join(b.LogDir(), "attempt_1", strconv.Itoa(local), "error.json")
		if !strings.Contains(b.out.String(), "file="+file+"\n") {
			t.Errorf("local rank %d: no error file %s", local, file)
		}
	}
	if n := strings.Count(b.log.String(), "OMP_NUM_THREADS is set to 3"); n != 1 {
		t.Errorf("OMP_NUM_THREADS was noted %d times", n)
	}
	if !strings.HasPrefix(filepath.Base(b.LogDir()), "job_") {
		t.Errorf("logs are in %s", b.LogDir())
	}
}

// The variable that enables NCCL's error handling is set under the name that the version of PyTorch
// reads. If the user sets it, under either name, it is left unchanged.
func TestNCCLErrorHandling(t *testing.T) {
	const older, newer = "NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"
	for _, c := range []struct{ version, user, want string }{
		{"1.13.1", "", older}, {"2.1.2+cu121", "", older}, {"2.2.0", "", newer},
		{"2.15.0a0+git1234", "", newer}, {"3.0", "", newer},
		{"", "", older + " " + newer}, {"2.3", newer + "=0", newer}, {"2.3", older + "=0", older},
		{"1.13", newer + "=0", newer},
	} {
		o := Options{}
		want := "1"
		if c.user != "" {
			o.Env, want = []string{c.user}, "0"
		}
		e := o.environ(Position{LocalSize: 1, WorldSize: 1}, 0, "", parseTorchVersion(c.version))
		var got []string
		for _, name := range []string{older, newer} {
			if v, ok := e[name]; ok {
				got = append(got, name)
				if v != want {
					t.Errorf("%+v: %s=%s", c, name, v)
				}
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestExits(t *testing.T) {
	b := newBench(t, Options{Command: []string{"sh", "-c", `case $RANK in
		0) exit 0;;
		1) exit 3;;
		2) kill -9 $$;;
		3) echo '{"message": "it broke", "timestamp": 5}' > "$TORCHELASTIC_ERROR_FILE"; exit 1;; esac`}}, nil)
	exits := b.ends(b.start(4))
	for local, want := range []Exit{{Code: 0}, {Code: 3}, {Code: -9, Signal: 9}, {Code: 1}} {
		if e := exits[local]; e.Code != want.Code || e.Signal != want.Signal || e.Rank != local ||
			e.Pid == 0 || e.At.IsZero() || e.Stopped {
			t.Errorf("rank %d: %+v", local, e)
		}
	}
	if e := exits[3]; e.Second() != 5 || e.Message() != "it broke" {
		t.Errorf("a process with an error file: %+v", e)
	}
	if want := "Signal 9 (SIGKILL) received by PID " + strconv.Itoa(exits[2].Pid); exits[2].Message() != want {
		t.Errorf("%q, want %q", exits[2].Message(), want)
	}
	// The error file of an earlier start is not read.
	if e := b.ends(b.startAt(Position{WorldSize: 8, LocalSize: 4, FirstRank: 4})); e[3].Failure != nil {
		t.Errorf("an older failure is reported: %+v", e[3].Failure)
	}
}

func TestLogs(t *testing.T) {
	streams := func(text string) Streams {
		s, err := ParseStreams("tee", text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	script := []string{"sh", "-c", "echo out$RANK; echo err$RANK >&2"}
	for name, c := range map[string]struct {
		options  Options
		out, err string
		files    string
	}{
		"console": {Options{}, "out0\nout1\n", "err0\nerr1\n", ""},
		"tee": {Options{Tee: streams("3")}, "[default0]:out0\n[default1]:out1\n",
			"[default0]:err0\n[default1]:err1\n", "out0 err0 out1 err1"},
		"redirect": {Options{Redirects: streams("1")}, "", "err0\nerr1\n", "out0 out1"},
		"by rank": {Options{Redirects: streams("0:3"), Tee: streams("1:1")}, "[default1]:out1\n",
			"err1\n", "out0 err0 out1"},
		"filter": {Options{LocalRanksFilter: []int{1}, Tee: streams("1")}, "[default1]:out1\n",
			"err1\n", "out0 out1"},
		"template": {Options{Tee: streams("1"), Role: "trainer",
			Env: []string{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${role_name} ${rank}/$local_rank $$ ${x}>"}},
			"<trainer 0/0 $ ${x}>out0\n<trainer 1/1 $ ${x}>out1\n", "err0\nerr1\n", "out0 out1"},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Command = script
			b := newBench(t, c.options, nil)
			b.ends(b.start(2))
			if got := sorted(b.out.String()); got != c.out {
				t.Errorf("stdout %q, want %q", got, c.out)
			}
			if got := sorted(b.err.String()); got != c.err {
				t.Errorf("stderr %q, want %q", got, c.err)
			}
			var files []string
			for _, name := range []string{"0/stdout.log", "0/stderr.log", "1/stdout.log", "1/stderr.log"} {
				if text, err := os.ReadFile(filepath.Join(b.LogDir(), "attempt_0", name)); err == nil {
					files = append(files, strings.TrimSpace(string(text)))
				}
			}
			if got := strings.Join(files, " "); got != c.files {
				t.Errorf("files %q, want %q", got, c.files)
			}
		})
	}
}

// Without a directory for logs there is a temporary one, which stays if it has output or an error
// file, and it is reported where that is.
func TestTemporaryLogs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct {
		options Options
		script  string
		kept    []string // files
		said    bool
	}{
		"nothing": {Options{}, "exit 1", nil, false},
		"tee":     {Options{Tee: Streams{all: Stdout}}, "exit 1", []string{"stdout.log"}, true},
		"redirect": {Options{Redirects: Streams{byLocal: map[int]Std{0: Both}}}, "true",
			[]string{"stderr.log", "stdout.log"}, true},
		"none by it": {Options{Redirects: Streams{byLocal: map[int]Std{0: None}}}, "true", nil, false},
		"error files": {Options{}, `echo '{"message": "m"}' >$TORCHELASTIC_ERROR_FILE; exit 1`,
			[]string{"error.json"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log output
			c.options.Command, c.options.Log, c.options.RunID = []string{"sh", "-c", c.script},
				slog.New(slog.NewTextHandler(&log, nil)), "job"
			p, err := New(c.options)
			if err != nil {
				t.Fatal(err)
			}
			g, err := p.Start(t.Context(), Position{WorldSize: 1, LocalSize: 1})
			if err != nil {
				t.Fatal(err)
			}
			for range g.Exits() {
			}
			p.Close()
			if !strings.HasPrefix(p.LogDir(), os.Getenv("TMPDIR")+"/elasticdl_job_") {
				t.Errorf("it is in %s", p.LogDir())
			}
			var kept []string
			entries, _ := os.ReadDir(filepath.Join(p.LogDir(), "attempt_0", "0")) // missing: none
			for _, e := range entries {
				kept = append(kept, e.Name())
			}
			if !slices.Equal(kept, c.kept) || strings.Contains(log.String(), "is kept\" dir="+p.LogDir()) != c.said {
				t.Errorf("there are %q, want %q; the log:\n%s", kept, c.kept, &log)
			}
			if _, err := os.Stat(p.LogDir()); (err == nil) != (c.kept != nil) {
				t.Errorf("the directory: %v", err)
			}
		})
	}
}

// sorted returns two lines in the order of their ranks.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) == 3 && lines[0] > lines[1] {
		lines[0], lines[1] = lines[1], lines[0]
	}
	return strings.Join(lines, "")
}

// When a process ends, its children are killed before its exit is reported.
func TestGroupEndsWithItsLeader(t *testing.T) {
	b := newBench(t, Options{Command: []string{"sh", "-c",
		`sh -c "trap '' TERM HUP; while :; do sleep 100; done" & echo "pid $!"; wait`}}, nil)
	g := b.start(1)
	var child int
	await(t, "the child", func() bool {
		_, text, ok := strings.Cut(b.out.String(), "pid ")
		child, _ = strconv.Atoi(strings.TrimSpace(text))
		return ok && child != 0
	})
	syscall.Kill(g.Pids()[0], syscall.SIGKILL)
	b.ends(g)
	if alive(child) {
		t.Errorf("the child %d outlives its leader", child)
	}
}

func TestStop(t *testing.T) {
	script := `trap 'echo term; [ $RANK = 1 ] || exit 7' TERM; echo ready; while :; do sleep 0.05; done`
	b := newBench(t, Options{Command: []string{"sh", "-c", script}}, nil)
	g := b.start(2)
	await(t, "the traps", func() bool { return strings.Count(b.out.String(), "ready") == 2 })
	begin := time.Now()
	g.Stop(syscall.SIGTERM, 300*time.Millisecond)
	if took := time.Since(begin); took < 300*time.Millisecond || took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	exits := b.ends(g)
	if e := exits[0]; e.Code != 7 || !e.Stopped {
		t.Errorf("who left in good order: %+v", e)
	}
	if e := exits[1]; e.Signal != 9 || !e.Stopped {
		t.Errorf("who stayed: %+v", e)
	}
	g.Stop(syscall.SIGTERM, time.Hour) // the processes have ended
}

func TestKillEndsOne(t *testing.T) {
	b := newBench(t, Options{Command: []string{"sleep", "100"}}, nil)
	g := b.start(2)
	g.Kill(1, 0)
	g.Kill(5, 0) // there is no process 5
	if e := <-g.Exits(); e.Local != 1 || e.Signal != 9 || !e.Stopped {
		t.Errorf("%+v", e)
	}
	if !alive(g.Pids()[0]) {
		t.Error("the other was ended too")
	}
	g.Stop(syscall.SIGTERM, limit)
	if e := <-g.Exits(); e.Local != 0 || e.Signal != 15 {
		t.Errorf("%+v", e)
	}
}

// Stop ends a process that is suspended (SIGSTOP).
func TestStopOfStopped(t *testing.T) {
	b := newBench(t, Options{Command: []string{"sleep", "100"}}, nil)
	g := b.start(1)
	g.Signal(syscall.SIGSTOP)
	await(t, "the stop", func() bool {
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(g.Pids()[0]) + "/stat")
		state, _, _, _ := parseStat(text)
		return state == 'T'
	})
	g.Stop(syscall.SIGTERM, 10*time.Millisecond)
	if e := b.ends(g)[0]; e.Signal != 9 {
		t.Errorf("%+v", e)
	}
}

// agentEnv makes a process of this test binary an agent. Its value is the agent's directory and the
// program's command.
const agentEnv = "ELASTICDL_TEST_AGENT"

// TestMain runs the tests, or the agent that TestNothingOutlivesTheAgent kills.
func TestMain(m *testing.M) {
	if text := os.Getenv(agentEnv); text != "" {
		os.Unsetenv(agentEnv)
		words := strings.Split(text, "|")
		p, err := New(Options{Command: words[1:], Dir: words[0], LogDir: words[0]})
		if err != nil {
			panic(err)
		}
		if _, err = p.Start(context.Background(), Position{WorldSize: 1, LocalSize: 1}); err != nil {
			panic(err)
		}
		select {}
	}
	os.Exit(m.Run())
}

func TestNothingOutlivesTheAgent(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		files   map[string]string
	}{
		"exec": {[]string{"sh", "-c", "trap '' TERM; sleep 1000 & echo $$ $! > pids.tmp; mv pids.tmp pids; wait"}, nil},
		"fork": {[]string{"main.py"}, map[string]string{"main.py": `
import os, time
child = os.fork()
if child:
    with open("pids.tmp", "w") as f: f.write("%d %d %s" % (os.getpid(), child, open(os.environ["IMPORTS"]).read().split()[1]))
    os.rename("pids.tmp", "pids")
time.sleep(1000)`}},
	} {
		t.Run(name, func(t *testing.T) {
			// whose environment is used
			b := newForkBench(t, Options{Command: []string{"true"}}, c.files)
			agent := exec.Command(os.Args[0])
			agent.Env = append(b.options.Env, agentEnv+"="+strings.Join(append([]string{b.dir}, c.command...), "|"))
			agent.Stderr = os.Stderr
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			var pids []string
			await(t, "the program", func() bool {
				text, err := os.ReadFile(filepath.Join(b.dir, "pids"))
				pids = strings.Fields(string(text))
				return err == nil
			})
			agent.Process.Kill()
			agent.Wait()
			for _, text := range pids {
				pid, _ := strconv.Atoi(text)
				await(t, "the end of "+text, func() bool { return !alive(pid) })
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	b := newBench(t, Options{Command: []string{"sleep", "100"}}, nil)
	if _, err := b.Start(t.Context(), Position{WorldSize: 2, LocalSize: 2, FirstRank: 1}); err == nil ||
		!strings.Contains(err.Error(), "world of 2") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := b.Start(ctx, Position{WorldSize: 1, LocalSize: 1}); err == nil || err.Error() != "enough" {
		t.Errorf("%v", err)
	}
	g := b.start(1)
	b.Close()
	if e := b.ends(g)[0]; e.Signal != 9 {
		t.Errorf("%+v", e)
	}
	if _, err := b.Start(t.Context(), Position{WorldSize: 1, LocalSize: 1}); err == nil {
		t.Error("a closed program was started")
	}
}

func TestHides(t *testing.T) {
	needPython(t)
	dir := t.TempDir()
	for _, name := range []string{"ours/__init__.py", "pkg/mod.py", "pkg/theirs.py", "namespace/x.py", "link/x"} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		os.WriteFile(filepath.Join(dir, name), nil, 0o644)
	}
	if err := os.Symlink("../pkg/mod.py", filepath.Join(dir, "link", "mod.py")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		Options
		want string // path in the directory
	}{
		{Options{Command: []string{"python3", "-m", "pkg.mod"}}, "ours/__init__.py"},
		{Options{Command: []string{"pkg/mod.py"}}, "pkg/theirs.py"},
		{Options{Command: []string{"python3", "link/mod.py"}}, "pkg/theirs.py"},
		{Options{Command: []string{"sh", "-c", "exit"}}, ""},
		{Options{Command: []string{"python3", "-m", "pkg.mod"}, Env: []string{"PYTHONSAFEPATH=1"}}, ""},
		{Options{Command: []string{"absent.py"}}, ""},
	} {
		c.Dir, c.Env = dir, append(os.Environ(), c.Env...)
		var want []string
		if c.want != "" {
			want = []string{filepath.Join(dir, c.want)}
		}
		if got := c.Hides("ours", "theirs", "namespace"); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", c.Command, got, want)
		}
	}
}

func TestInvocation(t *testing.T) {
	needPython(t)
	dir := t.TempDir()
	for _, name := range []string{"main.py", "plain", "app/__main__.py"} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755)
	}
	for want, o := range map[string]Options{
		"python3 -u main.py --epochs=2": {Command: []string{"main.py", "--epochs=2"}},
		"python3 -u main.py -m x":       {Command: []string{"python3", "main.py", "-m", "x"}},
		"python3 -u main.py":            {Command: []string{"python3", "-u", "main.py"}},
		"python3 -u -O -X dev main.py":  {Command: []string{"python3", "-O", "-X", "dev", "main.py"}},
		"python3 -u -m pkg.mod a":       {Command: []string{"python3", "-m", "pkg.mod", "a"}},
		"python3 -u -m pkg.mod -m":      {Command: []string{"pkg.mod", "-m"}, Module: true},
		"python3 -u app":                {Command: []string{"app"}},
		"./plain a":                     {Command: []string{"./plain", "a"}},
		"python3 -c print(1)":           {Command: []string{"python3", "-c", "print(1)"}},
		"python3 -I main.py":            {Command: []string{"python3", "-I", "main.py"}},
		"/usr/bin/env -u main.py":       {Command: []string{"main.py"}, Python: "/usr/bin/env"},
		"./main.py":                     {Command: []string{"./main.py"}, NoPython: true},
		"/usr/bin/env -u -m pkg.mod": {Command: []string{"pkg.mod"}, Module: true,
			Env: []string{"PYTHON_EXEC=/usr/bin/env"}},
		"sh -c exit": {Command: []string{"sh", "-c", "exit"}},
	} {
		o.Dir = dir
		o.Env = append(os.Environ(), o.Env...)
		it, err := o.normalize()
		if err != nil {
			t.Errorf("%s: %v", want, err)
		} else if got := strings.Join(it.args, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	os.Chmod(filepath.Join(dir, "plain"), 0o644)
	for want, o := range map[string]Options{
		"no program to run":  {},
		"script absent.py":   {Command: []string{"absent.py"}},
		"script missing.py":  {Command: []string{"python3", "missing.py"}},
		"not executable":     {Command: []string{"./plain"}},
		"it is a directory":  {Command: []string{dir}},
		"not found in PATH":  {Command: []string{"no-such-program"}},
		"exclude each other": {Command: []string{"x"}, Module: true, NoPython: true},
		"working directory":  {Command: []string{"true"}, Dir: filepath.Join(dir, "absent")},
	} {
		if o.Dir == "" {
			o.Dir = dir
		}
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

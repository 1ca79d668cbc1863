package cli

import (
	"context"
	"io"
	"iter"
	"log"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/test/pace"
)

// TestMain runs the tests; the same binary is also elasticdl, for the roles that it starts, with
// models for the tests.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"elasticdl": func() { Main(pace.Small, pace.Patient) }})
}

// TestStories runs the scripts testdata/*.txtar.
func TestStories(t *testing.T) { tell(t, "testdata") }

// TestJobStories runs the scripts testdata/jobs/*.txtar: jobs with processes of this machine, which
// are disturbed and must end correctly.
func TestJobStories(t *testing.T) { tell(t, "testdata/jobs") }

// tell runs the scripts of a directory, each with a state directory of its own. $S3 has the address
// of a store with the bucket b.
func tell(t *testing.T, dir string) {
	t.Helper()
	store := s3mem.New()
	if err := store.CreateBucket("b"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(gofakes3.New(store).Server())
	// errors of clients that stop reading early
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	digits, err := filepath.Abs("../../../examples/mnist/data")
	if err != nil {
		t.Fatal(err)
	}
	testscript.RunT(listener{t}, testscript.Params{
		Dir:           dir,
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("ELASTICDL_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("DIGITS", digits)
			// without it, each command waits for a second at its end
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("S3", "region=us-east-1&use_path_style=true&endpoint="+url.QueryEscape(server.URL))
			env.Setenv("AWS_ACCESS_KEY_ID", "key")
			env.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
			env.Defer(func() { // a script that failed may have left a job
				for process := range processesOf(env.Getenv("ELASTICDL_HOME")) {
					syscall.Kill(process, syscall.SIGKILL)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await": await, "killpod": killPod, "killworkers": killWorkers, "noprocesses": noProcesses,
			"hurry": hurry, "commit": writeCommit, "flip": flip, "upload": upload, "download": download,
		},
	})
}

// await runs a command repeatedly until it succeeds and its output matches: await REGEXP COMMAND...
func await(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[0])
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if err := ts.Exec(args[1], args[2:]...); err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("no %s in a minute, but:\n%s", args[0], ts.ReadFile("stdout"))
}

// killPod kills a pod's process (SIGKILL): that of the first running worker if none is named, or
// the launcher: killpod JOB [POD|launcher]
func killPod(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) > 1 && args[1] == "launcher" {
		for pid, command := range processesOf(ts.Getenv("ELASTICDL_HOME")) {
			if args := strings.Split(command, "\x00"); len(args) > 1 && args[1] == "launcher" {
				ts.Check(syscall.Kill(pid, syscall.SIGKILL))
				return
			}
		}
		ts.Fatalf("no launcher runs")
	}
	pod := regexp.MustCompile(`^worker-\d+$`)
	if len(args) > 1 {
		pod = regexp.MustCompile("^" + args[1] + "$")
	}
	ts.Check(ts.Exec("elasticdl", "status", args[0]))
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if fields := strings.Fields(line); len(fields) > 2 && pod.MatchString(fields[0]) && fields[1] == "Running" {
			pid, err := strconv.Atoi(fields[2])
			ts.Check(err)
			ts.Check(syscall.Kill(pid, syscall.SIGKILL))
			return
		}
	}
	ts.Fatalf("no %v runs:\n%s", pod, ts.ReadFile("stdout"))
}

// killWorkers kills all workers of a job at once (SIGKILL): killworkers JOB
func killWorkers(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("elasticdl", "status", args[0]))
	killed := 0
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasPrefix(fields[0], "worker-") &&
			fields[1] == "Running" {
			pid, err := strconv.Atoi(fields[2])
			ts.Check(err)
			ts.Check(syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	if killed == 0 {
		ts.Fatalf("no worker of %s runs", args[0])
	}
}

// hurry lets the model "patient" train without pauses in this script; `! hurry` turns the pauses on
// again.
func hurry(ts *testscript.TestScript, not bool, _ []string) {
	if not {
		ts.Check(os.Remove(filepath.Join(ts.Getenv("ELASTICDL_HOME"), "hurry")))
		return
	}
	ts.Check(pace.Hurry(ts.Getenv("ELASTICDL_HOME")))
}

// noProcesses checks that no process with this script's state directory runs.
func noProcesses(ts *testscript.TestScript, _ bool, _ []string) {
	for pid, command := range processesOf(ts.Getenv("ELASTICDL_HOME")) {
		ts.Fatalf("process %d runs still: %q", pid, command)
	}
}

// processesOf yields the processes that have a state directory in their environment, and their
// commands.
func processesOf(home string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		paths, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range paths {
			environ, err := os.ReadFile(path) // a process that has ended cannot be read
			if err != nil || !strings.Contains(string(environ), "ELASTICDL_HOME="+home) {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			if !yield(pid, string(command)) {
				return
			}
		}
	}
}

// Every command has help, which is not an error.
func TestHelp(t *testing.T) {
	for _, args := range []string{"", "--help", "train --help", "help train", "status -h",
		"logs --help", "scale --help", "dataset --help", "checkpoint", "checkpoint ls --help"} {
		path := filepath.Join(t.TempDir(), "out")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if code := run(context.Background(), strings.Fields(args), nil, out, out); code != 0 {
			t.Errorf("elasticdl %s: exit code %d", args, code)
		}
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "Usage:") {
			t.Errorf("elasticdl %s: %q, %v", args, text, err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Setenv("ELASTICDL_HOME", t.TempDir())
	// not the kubeconfig of the developer
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	ckpt := t.TempDir()
	if err := makeCommit(ckpt, 1, 2, true); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		ctx  context.Context
		args string
		code int
	}{
		{t.Context(), "list", 0},
		{t.Context(), "status nothing", command.ExitMissing},
		{t.Context(), "train --runtime=local", command.ExitUsage},
		{t.Context(), "scale nothing --num_workers=2", command.ExitMissing},
		{t.Context(), "wait nothing", command.ExitMissing},
		{t.Context(), "stop nothing", command.ExitMissing},
		{t.Context(), "logs nothing", command.ExitMissing},
		{t.Context(), "frobnicate", command.ExitUsage},
		{t.Context(), "scale nothing", command.ExitUsage},
		{t.Context(), "scale nothing --num_workers=many", command.ExitUsage},
		{t.Context(), "predict", command.ExitUsage},
		{t.Context(), "checkpoint ls", command.ExitUsage},
		{t.Context(), "checkpoint verify .", command.ExitFailure},
		{t.Context(), "checkpoint verify " + ckpt, 0},
		{interrupted, "checkpoint verify " + ckpt, command.ExitInterrupted},
		{interrupted, "checkpoint export " + ckpt + " " + ckpt, command.ExitInterrupted},
		{t.Context(), "list --frobnicate", command.ExitUsage},
		{t.Context(), "master", command.ExitUsage},
		{t.Context(), "wait nothing --timeout=-1s", command.ExitUsage},
		{interrupted, "status nothing", command.ExitInterrupted},
	} {
		var out strings.Builder
		if code := run(test.ctx, strings.Fields(test.args), nil, &out, &out); code != test.code {
			t.Errorf("elasticdl %s: exit code %d, want %d\n%s", test.args, code, test.code, &out)
		}
		if test.code != 0 && out.Len() == 0 {
			t.Errorf("elasticdl %s: no word of what is wrong", test.args)
		}
	}
}

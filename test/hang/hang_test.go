//go:build torch

package hang

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
)

var (
	length = flag.Duration("length", 3*time.Minute, "time for which each program works")
	torch  = flag.String("python", "/usr/bin/python3", "the Python of the programs, which has PyTorch and NumPy")
)

// found is the time within which a hang must be reported, since the last sign of life.
const found = time.Minute

// atTerminal are the programs that a user talks to.
var atTerminal = []string{"debugger", "prompt"}

// bench runs jobs in a state directory of its own.
type bench struct {
	*testing.T
	elasticdl, home string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if err := exec.Command(*torch, "-c", "import torch, numpy").Run(); err != nil {
		t.Fatalf("%s does not import torch and numpy: %v; give one that does by -python", *torch, err)
	}
	b := &bench{t, filepath.Join(t.TempDir(), "elasticdl"), t.TempDir()}
	build := exec.Command("go", "build", "-o", b.elasticdl, "../../cmd/elasticdl")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b
}

// job is a running job.
type job struct {
	*bench
	*testing.T
	name   string
	cmd    *exec.Cmd
	output *bytes.Buffer
	ended  chan error
}

// start runs a script as a job, and ends it with the test.
func (b *bench) start(t *testing.T, name, script string, args ...string) *job {
	t.Helper()
	words := append([]string{b.elasticdl, "run", "--runtime=local", "--job_name=" + name, "--num_workers=1"}, args...)
	words = append(words, script, fmt.Sprint(length.Seconds()))
	if slices.Contains(atTerminal, name) {
		const terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
		words = append([]string{*torch, "-c", terminal}, words...)
	}
	j := &job{bench: b, T: t, name: name, cmd: exec.Command(words[0], words[1:]...), output: new(bytes.Buffer),
		ended: make(chan error, 1)}
	j.cmd.Env = append(os.Environ(), "ELASTICDL_HOME="+b.home, "TMPDIR="+t.TempDir(),
		"PATH="+filepath.Dir(*torch)+":"+os.Getenv("PATH"))
	j.cmd.Stdout, j.cmd.Stderr = j.output, j.output
	// pty.spawn reads its own input, which must not end
	if r, w, err := os.Pipe(); err == nil {
		j.cmd.Stdin = r
		t.Cleanup(func() { r.Close(); w.Close() })
	}
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.ended <- j.cmd.Wait() }()
	t.Cleanup(func() {
		j.run("stop", name)
		j.run("delete", name)
		syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s", j.output)
		}
	})
	return j
}

// run runs a command about the job, and returns its output.
func (j *job) run(args ...string) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.elasticdl, append(args, "--runtime=local")...)
	cmd.Env = append(os.Environ(), "ELASTICDL_HOME="+j.home)
	text, _ := cmd.Output() // none before the job is there
	return text
}

// entries returns the entries of a kind in the job's journal.
func (j *job) entries(kind journal.Kind) (all []journal.Entry) {
	for lines := bufio.NewScanner(bytes.NewReader(j.run("events", j.name, "-o", "json"))); lines.Scan(); {
		var e journal.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			j.T.Fatalf("%v: %s", err, lines.Bytes())
		}
		if e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}

// ranks returns the number of processes that a script is for: two if it knows ranks.
func ranks(t *testing.T, script string) string {
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	if name := filepath.Base(script); strings.Contains(string(text), "dist.") ||
		strings.Contains(string(text), "RANK") || name == "compute.py" {
		return "--nproc_per_node=2"
	}
	return "--nproc_per_node=1"
}

// scripts returns the scripts of a folder.
func scripts(t *testing.T, folder string, n int) []string {
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.py"))
	if err != nil || len(paths) != n {
		t.Fatalf("%d scripts, want %d: %v", len(paths), n, err)
	}
	return paths
}

// No program that works, or that a user holds, is reported as one that makes no progress.
func TestNoFalseAlarm(t *testing.T) {
	b := newBench(t)
	t.Run("programs", func(t *testing.T) {
		for _, script := range scripts(t, "works", 20) {
			name := strings.TrimSuffix(filepath.Base(script), ".py")
			name = strings.ReplaceAll(name, "_", "-")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				j := b.start(t, name, script, ranks(t, script))
				select {
				case err := <-j.ended:
					if err != nil {
						t.Errorf("it has failed: %v", err)
					}
				case <-time.After(*length + 3*time.Minute):
					t.Error("it has not ended")
				}
				if len(j.entries(journal.JobStarted)) == 0 {
					t.Error("its journal is empty")
				}
				for _, e := range j.entries(journal.Stuck) {
					t.Errorf("a false alarm: %s", e.Text)
				}
			})
		}
	})
}

// Each program that hangs is reported within a minute, with the rank and the line.
func TestHangs(t *testing.T) {
	b := newBench(t)
	t.Run("programs", func(t *testing.T) {
		for _, script := range scripts(t, "hangs", 4) {
			name := strings.TrimSuffix(filepath.Base(script), ".py")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile(script)
				if err != nil {
					t.Fatal(err)
				}
				before, _, _ := strings.Cut(string(text), "# here")
				want := fmt.Sprintf("at %s:%d", filepath.Base(script), strings.Count(before, "\n")+1)
				j := b.start(t, name, script, ranks(t, script))
				for begin := time.Now(); ; time.Sleep(time.Second) {
					if all := j.entries(journal.Stuck); len(all) > 0 {
						e := all[0]
						t.Log(e.Text)
						if !slices.Equal(e.Ranks, []int{1}) || !strings.Contains(e.Text, want+";") ||
							e.Seconds > found.Seconds() {
							t.Errorf("after %v s: %q, ranks %v, want rank 1 %s", e.Seconds, e.Text, e.Ranks, want)
						}
						break
					}
					if time.Since(begin) > 3*found {
						t.Fatal("it was not found")
					}
				}
			})
		}
	})
}

// With --hang_timeout the rank that hangs is killed, counted, and the program starts again.
func TestHangTimeout(t *testing.T) {
	script := filepath.Join(t.TempDir(), "train.py")
	err := os.WriteFile(script, []byte(`
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(1_000_000)
dist.all_reduce(torch.ones(4))
print("trained", flush=True)
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	j := newBench(t).start(t, "train", script, "--nproc_per_node=2", "--hang_timeout=1m", "--max_restarts=1")
	if err := <-j.ended; err != nil {
		t.Fatal(err)
	}
	failures := j.entries(journal.ProgramFailed)
	if len(failures) != 1 || !strings.Contains(failures[0].Text, "rank 1 of worker-0") ||
		!strings.Contains(failures[0].Text, "no progress for 1m (--hang_timeout): sleep at train.py:6") ||
		!strings.Contains(failures[0].Text, "the program starts again (counted)") {
		t.Errorf("%+v", failures)
	}
}

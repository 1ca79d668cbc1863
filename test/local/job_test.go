// Package local_test runs whole jobs on one machine with the real program, as processes: they
// train, parts of them are killed, and they must end correctly. The measurements of the tests are
// printed with -v.
package local_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/pace"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var (
	// the real program, with models for these tests, built for this run
	program string
	// RecordIO of the shipped digits: train and test
	digits string
)

// Numbers of the shipped digits.
const trainingDigits, testDigits = 10_000, 2_000

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "elasticdl-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program, digits = filepath.Join(dir, "elasticdl"), filepath.Join(dir, "digits")
	for _, args := range [][]string{
		{"go", "build", "-o", program, "./program"},
		{program, "dataset", "mnist", digits, "--source", "../../examples/mnist/data"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", strings.Join(args, " "), err, out)
			return 1
		}
	}
	return m.Run()
}

// launched is a job that the program runs in the foreground.
type launched struct {
	t    *testing.T
	name string
	// ELASTICDL_HOME
	home string
	cmd  *exec.Cmd
	// must only be read after the launcher has ended
	out  bytes.Buffer
	wait func() error
}

// train starts a training job with the test's own state directory, which is deleted after the test.
func train(t *testing.T, flags ...string) *launched {
	t.Helper()
	return launch(t, append([]string{
		"train", "--model_zoo=model_zoo",
		"--training_data=" + filepath.Join(digits, "train"), "--validation_data=" + filepath.Join(digits, "test"),
		"--minibatch_size=64", "--num_minibatches_per_task=4", "--num_ps_pods=2", "--num_workers=4",
	}, flags...)...)
}

// launch starts a job by a subcommand of the program and its flags.
func launch(t *testing.T, args ...string) *launched {
	t.Helper()
	j := &launched{t: t, name: "story", home: t.TempDir()}
	t.Setenv("ELASTICDL_HOME", j.home)
	args = slices.Insert(args, 1, "--runtime=local", "--job_name="+j.name)
	j.cmd = exec.Command(program, args...)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	j.wait = sync.OnceValue(j.cmd.Wait)
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		j.cmd.Process.Kill()
		j.wait()
		local.Stop(context.Background(), j.name) // because the test's own context has ended
		if t.Failed() {
			t.Logf("elasticdl %s\n%s\n%s", strings.Join(args, " "), j.out.String(), j.log(""))
		}
	})
	return j
}

// end waits for the launcher and checks its exit code.
func (j *launched) end(code int) *wire.JobStatus {
	j.t.Helper()
	j.wait()
	if got := j.cmd.ProcessState.ExitCode(); got != code {
		j.t.Fatalf("exit code %d, want %d", got, code)
	}
	return j.status()
}

func (j *launched) status() *wire.JobStatus {
	j.t.Helper()
	s, err := local.Status(j.t.Context(), j.name)
	if err != nil {
		j.t.Fatal(err)
	}
	return s
}

// until polls the job until a condition is true, for half a minute.
func (j *launched) until(what string, is func(*wire.JobStatus) bool) *wire.JobStatus {
	j.t.Helper()
	var s *wire.JobStatus
	eventually(j.t, what, 30*time.Second, func() bool {
		var err error
		s, err = local.Status(j.t.Context(), j.name)
		if err == nil && job.State(s.State).Ended() && !is(s) {
			j.t.Fatalf("the job ended before %s: %v", what, s)
		}
		return err == nil && is(s)
	})
	return s
}

func eventually(t *testing.T, what string, limit time.Duration, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); ; <-tick.C {
		// read before polling, because the machine may delay the poll
		late := time.Now().After(deadline)
		if is() {
			return
		}
		if late {
			t.Fatalf("no %s in %v", what, limit)
		}
	}
}

// log returns the log of a pod, or of all pods if pod is "".
func (j *launched) log(pod string) string {
	var b strings.Builder
	if err := local.Logs(j.t.Context(), j.name, role.LogOptions{Pod: pod, Tail: -1}, &b); err != nil {
		return err.Error()
	}
	return b.String()
}

// pod returns a pod of the job, or nil if there is none.
func pod(s *wire.JobStatus, role wire.Role, index int) *wire.PodStatus {
	for _, p := range s.Pods {
		if p.Role == role && int(p.Index) == index {
			return p
		}
	}
	return nil
}

// trained returns a function that reports whether a fraction of the records is done.
func trained(fraction float64) func(*wire.JobStatus) bool {
	return func(s *wire.JobStatus) bool {
		return s.RecordsTotal > 0 && float64(s.RecordsDone) >= fraction*float64(s.RecordsTotal)
	}
}

// hurry lets a job of the model "patient" end as soon as possible, after the last disturbance.
func (j *launched) hurry() {
	j.t.Helper()
	if err := pace.Hurry(j.home); err != nil {
		j.t.Fatal(err)
	}
}

// kill sends a signal to a running pod.
func (j *launched) kill(p *wire.PodStatus, signal syscall.Signal) {
	j.t.Helper()
	if p == nil || p.Pid == 0 {
		j.t.Fatalf("no process to kill: %v", p)
	}
	if err := syscall.Kill(int(p.Pid), signal); err != nil {
		j.t.Fatal(err)
	}
}

// halt suspends a pod, and waits until all of its processes are stopped. When a parent dies, the
// kernel wakes those of its children that were stopped before, and only those.
func (j *launched) halt(p *wire.PodStatus) {
	j.t.Helper()
	j.kill(p, syscall.SIGSTOP)
	eventually(j.t, "stop of pid "+strconv.Itoa(int(p.Pid)), 30*time.Second, func() bool {
		return stopped(j.t, int(p.Pid))
	})
}

// processes returns the processes of the program under test, without zombies.
func processes(t *testing.T) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && exe == program {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// stopped reports whether every thread of a process is stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return false // the process has ended in the meantime
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// nobodyLeft waits until no process of the program is left.
func nobodyLeft(t *testing.T) {
	t.Helper()
	began := time.Now()
	eventually(t, "end of all processes", time.Minute, func() bool { return len(processes(t)) == 0 })
	t.Logf("all processes have ended after %v", time.Since(began).Round(time.Millisecond))
}

// succeeded checks that every record of every epoch was credited once.
func succeeded(t *testing.T, s *wire.JobStatus, epochs int) {
	t.Helper()
	if want := int64(epochs * trainingDigits); s.State != "Succeeded" || s.RecordsDone != want ||
		s.RecordsTotal != want {
		t.Errorf("%s with %d of %d records, want %d", s.State, s.RecordsDone, s.RecordsTotal, want)
	}
}

// allRecords also checks that the model has each minibatch once, except for at most twice many that
// it has two times. With --grads_to_wait=1 a version is a minibatch.
func allRecords(t *testing.T, s *wire.JobStatus, epochs, twice int) {
	t.Helper()
	succeeded(t, s, epochs)
	const task = 4 * 64
	steps := trainingDigits / task * 4
	steps += (trainingDigits%task + 63) / 64
	if least := int64(epochs * steps); s.Version < least || s.Version > least+int64(twice) {
		t.Errorf("%d minibatches were applied, want %d, and at most %d of them twice", s.Version, least, twice)
	}
}

var (
	evaluationLine = regexp.MustCompile(`Evaluation metrics\[v=(\d+)\]: \{'accuracy': ([0-9.]+)[,}]`)
	lossLine       = regexp.MustCompile(`Loss = [0-9.]+, steps = \d+`)
)

// accuracy returns the accuracy of the last evaluation in the master's log.
func (j *launched) accuracy() float64 {
	j.t.Helper()
	lines := evaluationLine.FindAllStringSubmatch(j.log("master"), -1)
	if len(lines) == 0 {
		j.t.Fatal("no evaluation in the master's log")
	}
	accuracy, err := strconv.ParseFloat(lines[len(lines)-1][2], 64)
	if err != nil {
		j.t.Fatal(err)
	}
	return accuracy
}

// copyTree copies the files of a directory, each changed by edit.
func copyTree(t *testing.T, from, to string, edit func(path string, text []byte) []byte) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, edit(rel, text), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

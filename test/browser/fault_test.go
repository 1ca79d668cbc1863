package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// fault happens to a job. Each view shows it by a text that a pattern matches.
type fault struct {
	name string
	// flags of the job, with TEST for a directory of the test
	job []string
	// prepare comes before the job, and inject when it works; nil: nothing
	prepare, inject func(*watched)
	// within is the time from inject until all views show it
	within                              time.Duration
	page, metric, event, status, reason string
	cause                               string // of lost time, which rises
}

// train are flags of a job that trains for long.
func train(more ...string) []string {
	return append([]string{"train", "--model_def=mnist.mnist_mlp.custom_model", "--training_data=DATA",
		"--num_epochs=10000", "--minibatch_size=64", "--num_workers=2"}, more...)
}

var faults = []fault{
	{
		name: "kill", job: train("--num_ps_pods=1", "--distribution_strategy=ParameterServerStrategy"),
		inject: func(w *watched) { w.signal(w.worker(1), syscall.SIGKILL) }, within: limit,
		page:   `PodLost worker-1 .*killed \(signal 9\)`,
		metric: `elasticdl_job_pods_lost_total\{cause="killed",job_name="kill",role="worker"\} 1`,
		event:  `PodLost +worker-1: .*signal 9`, status: `worker-1 .*signal 9`,
		reason: `start .*processes start`, cause: "start",
	},
	{
		name: "stuck", job: []string{"run", "--num_workers=2", "--min_workers=2", "--", "python3", "TEST/stuck.py"},
		within: 3 * limit,
		prepare: func(w *watched) {
			w.write("stuck.py", "import os, time\n\ndef wait():\n    time.sleep(1000000)\n\n"+
				"print('begins', flush=True)\nwait() if os.environ['RANK'] == '1' else os.read(os.pipe()[0], 1)\n")
		},
		page:   `Stuck no progress for .*stuck\.py:4`,
		metric: `elasticdl_job_condition\{condition="Running",job_name="stuck"\} 0`,
		event:  `Stuck +no progress for .*stuck\.py:4`, status: `Stuck: +no progress for .*stuck\.py:4`,
		reason: `stuck .*no rank gives a sign of life`, cause: "stuck",
	},
	{
		name: "slow", job: []string{"train", "--model_def=mnist.mnist_functional_api.custom_model",
			"--training_data=DATA",
			"--num_epochs=10000", "--minibatch_size=64", "--num_workers=3",
			"--distribution_strategy=AllreduceStrategy"},
		inject: func(w *watched) { w.brake(w.worker(1)) }, within: limit,
		page:   `Problem worker-1 takes .* times the median step`,
		metric: `elasticdl_job_slow_workers\{job_name="slow"\} 1`,
		event:  `WorkerSlow +worker-1: takes .* times the median step`,
		status: `Problem: +worker-1 takes .* times the median step`,
		reason: `worker-1 takes .* times the median step`, cause: "slowest_rank",
	},
	{
		name: "full", job: append(train("--num_ps_pods=1", "--distribution_strategy=ParameterServerStrategy",
			"--checkpoint_dir=TEST/disk/checkpoints", "--output=TEST/model"), "--num_epochs=1"),
		prepare: func(w *watched) { w.mount("disk", "64k") }, within: limit,
		page:   `Waits for .*no space left`,
		metric: `elasticdl_job_journal_entries_total\{job_name="full",kind="CheckpointFailed"\} [1-9]`,
		event:  `CheckpointFailed .*no space left`, status: `Waits for: .*no space left`,
		reason: `checkpoint .*a checkpoint interrupts workers`, cause: "checkpoint",
	},
}

// A fault is shown by the page, a metric, an event, the status and the account of lost time, each
// with the right cause.
func TestFaults(t *testing.T) {
	if *program == "" || *data == "" {
		t.Fatal("no program: make test-page")
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			w := &watched{T: t, fault: f, dir: t.TempDir(), port: freePort(t)}
			w.env = append(os.Environ(), "ELASTICDL_HOME="+t.TempDir(), "KUBECONFIG="+filepath.Join(w.dir, "none"))
			if f.prepare != nil {
				f.prepare(w)
			}
			w.start()
			ctx := browse(t)
			cmd := exec.Command(*program, "dashboard", f.name)
			cmd.Env = w.env
			do(ctx, t, chromedp.Navigate(started(t, cmd)), chromedp.WaitVisible("#state"))
			before := w.lost()
			if f.inject != nil {
				w.works()
				before = w.lost()
				f.inject(w)
			}
			w.seen(ctx, before)
		})
	}
}

// watched is a job with a fault.
type watched struct {
	*testing.T
	fault
	dir  string
	env  []string
	port int
}

// freePort returns a port of this machine that nobody uses, and that the kernel gives to nobody.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.N(10_000)
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// run runs a command, and returns its output.
func (w *watched) run(args ...string) (string, error) {
	cmd := exec.Command(*program, args...)
	cmd.Env = w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// start starts the job, which ends with the test.
func (w *watched) start() {
	w.Helper()
	replace := strings.NewReplacer("TEST", w.dir, "DATA", filepath.Join(*data, "train"))
	args := []string{w.job[0], "--runtime=local", "--detach", "--job_name=" + w.fault.name,
		fmt.Sprint("--metrics_port=", w.port)}
	for _, arg := range w.job[1:] {
		args = append(args, replace.Replace(arg))
	}
	out, err := w.run(args...)
	if err != nil {
		w.Fatalf("%v: %v\n%s", args, err, out)
	}
	w.Cleanup(func() {
		if out, err := w.run("stop", w.fault.name); err != nil {
			w.Errorf("stop: %v\n%s", err, out)
		}
	})
}

func (w *watched) write(name, text string) {
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
}

// mount makes a directory a file system of a size.
func (w *watched) mount(name, size string) {
	path := filepath.Join(w.dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		w.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size="+size); err != nil {
		w.Fatalf("mount a small file system, which takes root: %v", err)
	}
	w.Cleanup(func() { syscall.Unmount(path, syscall.MNT_DETACH) })
}

// jobStatus has the fields of a status that the tests read.
type jobStatus struct {
	RecordsDone int64
	Pods        []struct {
		Role  string
		Index int
		Pid   int
	}
	Accounting struct {
		Lost []struct {
			Cause string
			Ms    int64
		}
	}
}

func (w *watched) read() (s jobStatus) {
	out, err := w.run("status", w.fault.name, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		w.Fatalf("status: %v\n%s", err, out)
	}
	return s
}

// works waits until the job has trained for some seconds.
func (w *watched) works() {
	w.Helper()
	for end := time.Now().Add(limit); w.read().RecordsDone < 5000; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatal("the job does not train")
		}
	}
}

// worker returns the process of a worker.
func (w *watched) worker(index int) int {
	for _, p := range w.read().Pods {
		if p.Role == "WORKER" && p.Index == index && p.Pid > 0 {
			return p.Pid
		}
	}
	w.Fatalf("no process of worker-%d", index)
	return 0
}

func (w *watched) signal(pid int, s syscall.Signal) {
	if err := syscall.Kill(pid, s); err != nil {
		w.Fatal(err)
	}
}

// brake lets a process run for a tenth of the time, until the test ends.
func (w *watched) brake(pid int) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer syscall.Kill(pid, syscall.SIGCONT)
		for {
			for _, part := range []struct {
				s syscall.Signal
				d time.Duration
			}{{syscall.SIGSTOP, 45 * time.Millisecond}, {syscall.SIGCONT, 5 * time.Millisecond}} {
				syscall.Kill(pid, part.s) // it may have ended
				select {
				case <-done:
					return
				case <-time.After(part.d):
				}
			}
		}
	}()
	w.Cleanup(func() { close(done); <-ended })
}

// lost returns the time that was lost by the fault's cause, in milliseconds.
func (w *watched) lost() int64 {
	for _, l := range w.read().Accounting.Lost {
		if l.Cause == w.cause {
			return l.Ms
		}
	}
	return 0
}

// metrics returns the metrics of the job's master.
func (w *watched) metrics() string {
	r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", w.port))
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body) // what there is
	return string(text)
}

// seen waits until all views show the fault.
func (w *watched) seen(ctx context.Context, before int64) {
	w.Helper()
	command := func(args ...string) func() string {
		return func() string { out, _ := w.run(args...); return out }
	}
	name := w.fault.name
	views := []struct {
		name, pattern string
		text          func() string
	}{
		{"page", w.page, func() string { return strings.Join(strings.Fields(text(ctx, w.T)), " ") }},
		{"metric", w.metric, w.metrics},
		{"event", w.event, command("events", name)},
		{"status", w.status, command("status", name)},
		{"why", w.reason, command("why", name)},
		{"lost time", `^rises$`, func() string {
			if w.lost() > before {
				return "rises"
			}
			return "stays"
		}},
	}
	began := time.Now()
	var after []string
	for len(views) > 0 {
		views = slices.DeleteFunc(views, func(v struct {
			name, pattern string
			text          func() string
		}) bool {
			is := regexp.MustCompile("(?m)" + v.pattern).MatchString(v.text())
			if is {
				after = append(after, fmt.Sprintf("%s %.1fs", v.name, time.Since(began).Seconds()))
			}
			return is
		})
		if late := time.Since(began); len(views) > 0 && late > w.within {
			for _, v := range views {
				w.Errorf("%s: no %q after %v:\n%s", v.name, v.pattern, late.Round(time.Second), v.text())
			}
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.Logf("%s is seen: %s", name, strings.Join(after, ", "))
}

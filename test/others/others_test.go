//go:build torch

// Package others_test runs training programs that others wrote, first under torchrun, then under
// `elasticdl run` while processes and workers are killed, a worker joins, and the job is suspended
// and resumed. It has no code of theirs: -sources names a directory of checkouts.
package others_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var (
	sources = flag.String("sources", "", "directory with a checkout of each repository, by its name")
	python  = flag.String("python", "python3", "Python with what the programs import")
	binary  = flag.String("elasticdl", "", "the program elasticdl")
	texts   = flag.String("texts", "../../docs/*.md", "files whose text language models are trained on")
	pause   = flag.Duration("pause", 10*time.Second, "undisturbed training before each disturbance")
	kept    = flag.String("data", "", "directory in which the data stays, and is made if it is not there")
	only    = flag.String("launcher", "", "torchrun or elasticdl: only that part")
)

// quietLimit is the time in which a program has to step after a disturbance.
const quietLimit = 10 * time.Minute

// TestOthers checks that each program ends although it is disturbed, with no failure counted and no
// process left. The test prints a row of docs/programs-of-others.md for each.
func TestOthers(t *testing.T) {
	if *sources == "" {
		t.Fatal("-sources names no directory of checkouts: make others SOURCES=directory")
	}
	found, err := exec.LookPath(*python)
	if err != nil {
		t.Fatalf("-python=%s: %v", *python, err)
	}
	*python = found
	for _, path := range []*string{sources, python, binary} {
		if *path, err = filepath.Abs(*path); err != nil {
			t.Fatal(err)
		}
	}
	data := *kept
	if data == "" {
		data = filepath.Join(t.TempDir(), "data")
	}
	if _, err := os.Stat(data); err != nil {
		makeData(t, data)
	}
	var rows []string
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			plain, disturbed := &run{t: t, program: p, data: data}, &run{t: t, program: p, data: data}
			row := []string{"`" + p.path + "`"}
			if *only != "elasticdl" {
				plain.prepare(p.edits)
				plain.torchrun()
				row = append(row, fmt.Sprint(len(plain.steps())), plain.result())
				t.Logf("torchrun: %v, %d steps of all ranks, %s", plain.took.Round(time.Second),
					len(plain.steps()), plain.result())
			}
			if *only != "torchrun" {
				disturbed.prepare(slices.Concat(p.edits, p.elastic))
				row = slices.Concat(row, []string{fmt.Sprint(disturbed.changed)}, disturbed.elasticdl())
			}
			rows = append(rows, "| "+strings.Join(row, " | ")+" |")
			t.Log(rows[len(rows)-1])
		})
	}
	t.Logf("rows:\n%s", strings.Join(rows, "\n"))
}

func makeData(t *testing.T, data string) {
	t.Helper()
	files, err := filepath.Glob(*texts)
	if err != nil || len(files) == 0 {
		t.Fatalf("-texts=%s matches no file: %v", *texts, err)
	}
	cmd := exec.Command(*python, slices.Concat([]string{"testdata/data.py", data}, files)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the data: %v\n%s", err, out)
	}
}

// run is one training by a program.
type run struct {
	t       *testing.T
	program program
	data    string
	// the copy of the program, in which it runs
	dir string
	// lines of the program that were changed
	changed int
	// text that the program has printed
	out  string
	took time.Duration
}

// prepare copies the program to a directory of its own, and changes it.
func (r *run) prepare(edits []edit) {
	r.t.Helper()
	r.dir = r.t.TempDir()
	from := filepath.Join(*sources, r.program.source)
	for _, name := range r.program.files {
		if err := copyAll(filepath.Join(from, name), filepath.Join(r.dir, filepath.Base(name))); err != nil {
			r.t.Fatalf("copy %s of %s: %v", name, r.program.source, err)
		}
	}
	for _, e := range edits {
		path := filepath.Join(r.dir, e.file)
		text, err := os.ReadFile(path)
		if err != nil {
			r.t.Fatal(err)
		}
		pattern := regexp.MustCompile("(?m)" + e.pattern)
		if !pattern.Match(text) {
			r.t.Fatalf("%s of %s has no %q: its version differs from the one of the page", e.file,
				r.program.source, e.pattern)
		}
		edited := pattern.ReplaceAll(text, []byte(e.with))
		if err := os.WriteFile(path+".before", text, 0o644); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, edited, 0o644); err != nil {
			r.t.Fatal(err)
		}
		// diff ends with 1 where files differ
		out, _ := exec.Command("diff", path+".before", path).Output()
		removed, added := bytes.Count(out, []byte("\n<")), bytes.Count(out, []byte("\n>"))
		r.changed += max(removed, added)
		os.Remove(path + ".before")
	}
	for name, text := range r.program.adds {
		path := filepath.Join(r.dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
		if err != nil {
			r.t.Fatal(err)
		}
	}
	for name, target := range r.program.links {
		path := filepath.Join(r.dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(filepath.Join(r.data, target), path))
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func copyAll(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		return errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, text, 0o644))
	})
}

// args returns the arguments of the program, with the directories of this run.
func (r *run) args() []string {
	fill := strings.NewReplacer("{data}", r.data, "{dir}", r.dir)
	args := make([]string, len(r.program.args))
	for i, a := range r.program.args {
		args[i] = fill.Replace(a)
	}
	return args
}

// env returns the environment of the program: torch finds no network, and the probe notes steps.
func (r *run) env(more ...string) []string {
	probe, err := filepath.Abs("testdata/probe")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.dir, "steps"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	return slices.Concat(os.Environ(), []string{
		"PYTHONPATH=" + probe, "OTHERS_STEPS=" + filepath.Join(r.dir, "steps"),
		"HF_HUB_OFFLINE=1", "HF_HOME=" + filepath.Join(r.dir, "hf"), "OMP_NUM_THREADS=1",
		"CHECKPOINT=" + filepath.Join(r.dir, "checkpoint"), "PYTHONUNBUFFERED=1",
	}, more)
}

// torchrun runs the program undisturbed on two processes.
func (r *run) torchrun() {
	r.t.Helper()
	processes := 2
	if r.program.alone {
		processes = 1
	}
	args := slices.Concat([]string{"-m", "torch.distributed.run", "--standalone", "--nnodes=1",
		fmt.Sprintf("--nproc_per_node=%d", processes)}, r.args())
	cmd := exec.Command(*python, args...)
	cmd.Dir, cmd.Env = r.dir, r.env()
	began := time.Now()
	out, err := cmd.CombinedOutput()
	r.out, r.took = string(out), time.Since(began)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, tail(r.out))
	}
}

// tail returns the last part of a text.
func tail(text string) string { return text[max(0, len(text)-6000):] }

// result returns what the program says of its result.
func (r *run) result() string {
	all := r.program.result.FindAllStringSubmatch(r.out, -1)
	if len(all) == 0 {
		return "–"
	}
	return all[len(all)-1][1]
}

// command runs elasticdl, and returns what it prints.
func (r *run) command(args ...string) string {
	r.t.Helper()
	cmd := exec.Command(*binary, args...)
	cmd.Env = r.env()
	cmd.Dir = r.dir
	if args[0] != "run" {
		// the commands of a job can be given anywhere
		cmd.Dir = os.TempDir()
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("elasticdl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

const jobName = "others"

// elasticdl runs the program on two workers, disturbs it, and returns the cells of its row.
func (r *run) elasticdl() (cells []string) {
	home := r.t.TempDir()
	r.t.Setenv("ELASTICDL_HOME", home)
	began := time.Now()
	flags := []string{"run", "--runtime=local", "--detach", "--job_name=" + jobName, "--num_workers=2",
		"--max_workers=3", "--", *python}
	r.command(slices.Concat(flags, r.args())...)
	r.t.Cleanup(func() {
		local.Stop(context.Background(), jobName)
		if r.t.Failed() {
			r.t.Logf("%s", tail(r.log()))
		}
	})
	cells = append(cells, seconds(r.whole(began, 2, nil).Sub(began)))
	for _, d := range []struct {
		what string
		size int
		do   func(had []step) (lost []int)
	}{
		{"a process killed", 2, r.killProcess},
		{"a worker killed", 2, r.killWorker},
		{"a worker joins", 3, r.join},
		{"suspended and resumed", 3, r.suspendAndResume},
	} {
		r.settle()
		had, at := r.world(), time.Now()
		all := r.whole(at, d.size, d.do(had))
		r.t.Logf("%s: %s s until %d step; the longest pause of a process that was kept: %s s", d.what,
			seconds(all.Sub(at)), d.size, seconds(r.longest(at, all, had)))
		cells = append(cells, seconds(all.Sub(at)))
	}
	r.command("wait", jobName, "--timeout=15m")
	r.took, r.out = time.Since(began), r.log()
	return append(cells, fmt.Sprint(len(r.steps())), r.ended(home), r.result())
}

func (r *run) killProcess(had []step) (lost []int) {
	pid := had[len(had)-1].pid
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	return []int{pid}
}

func (r *run) killWorker(had []step) (lost []int) {
	agent := int(r.workers()[0].Pid)
	for _, s := range had {
		if under(s.pid, agent) {
			lost = append(lost, s.pid)
		}
	}
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	return lost
}

func (r *run) join([]step) []int {
	r.command("scale", jobName, "--num_workers=3")
	return nil
}

func (r *run) suspendAndResume(had []step) (lost []int) {
	r.command("suspend", jobName)
	r.eventually("suspension", 2*time.Minute, func() bool { return r.status().State == "Suspended" })
	r.command("resume", jobName, "--detach")
	for _, s := range had {
		lost = append(lost, s.pid)
	}
	return lost
}

// ended checks how the job has ended, and returns how many records are in the model.
func (r *run) ended(home string) (records string) {
	s := r.status()
	if s.State != string(job.Succeeded) || s.Restarts != 0 {
		r.t.Errorf("%s with %d failures counted: %s", s.State, s.Restarts, s.Reason)
	}
	for began := time.Now(); len(processesOf(home)) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			r.t.Errorf("processes are left: %v", processesOf(home))
			break
		}
	}
	if s.RecordsTotal == 0 {
		return "–"
	}
	if s.RecordsDone != s.RecordsTotal {
		r.t.Errorf("%d of %d records are credited", s.RecordsDone, s.RecordsTotal)
	}
	return fmt.Sprint(s.RecordsDone)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

func (r *run) status() *wire.JobStatus {
	r.t.Helper()
	s, err := local.Status(context.Background(), jobName)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// workers returns the workers that run.
func (r *run) workers() (all []*wire.PodStatus) {
	for _, p := range r.status().Pods {
		if p.Role == wire.Role_WORKER && p.State == "Running" && p.Pid > 0 {
			all = append(all, p)
		}
	}
	return all
}

// log returns the log of all pods of the job.
func (r *run) log() string {
	var b strings.Builder
	if err := local.Logs(context.Background(), jobName, role.LogOptions{Tail: -1}, &b); err != nil {
		return err.Error()
	}
	return b.String()
}

func (r *run) eventually(what string, limit time.Duration, is func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("no %s in %v", what, limit)
		}
		if s := r.status(); job.State(s.State).Ended() {
			if is() {
				return
			}
			r.t.Fatalf("no %s: the job is %s: %s", what, s.State, s.Reason)
		}
	}
}

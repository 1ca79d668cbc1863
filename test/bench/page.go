package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine describes where and when something was measured.
type machine struct {
	Start   time.Time `json:"start"`
	Minutes float64   `json:"minutes"`
	Commit  string    `json:"commit,omitempty"`
	CPU     string    `json:"cpu"`
	Cores   int       `json:"cores"`
	Memory  float64   `json:"memory_gb"`
	Kernel  string    `json:"kernel"`
	Go      string    `json:"go"`
	// load average of the last minute before the measurement
	Load string `json:"load"`
}

// thisMachine returns a description of this machine.
func thisMachine(ctx context.Context) machine {
	m := machine{Start: time.Now(), Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: runtime.GOARCH}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	// informative only; the file may be missing
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	var memory unix.Sysinfo_t
	if unix.Sysinfo(&memory) == nil {
		m.Memory = float64(memory.Totalram) * float64(memory.Unit) / 1e9
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	load, _ := os.ReadFile("/proc/loadavg")
	m.Load, _, _ = strings.Cut(string(load), " ")
	return m
}

// String returns a line for a page.
func (m machine) String() string {
	return fmt.Sprintf("%s, commit %s: %d cores (%s), %.0f GB, Linux %s, %s; load average %s before "+
		"it began; it took %.0f minutes.",
		m.Start.Format("2006-01-02"), m.Commit, m.Cores, m.CPU, m.Memory, m.Kernel, m.Go, m.Load, m.Minutes)
}

func (r Result) threads() string {
	if r.Threads == 0 {
		return ""
	}
	return fmt.Sprint(r.Threads)
}

// ratio returns the ratio, and the minimum and maximum of the turns.
func (r Result) ratio() string {
	if r.Turns.N < 2 {
		return short(r.Ratio)
	}
	return fmt.Sprintf("%s (%s–%s)", short(r.Ratio), short(r.Turns.Least), short(r.Turns.Most))
}

// chapters lists the parts of the page, in order: each has the rows whose names begin with its
// prefix.
var chapters = []struct{ prefix, title, text string }{
	{"step/", "Training steps", "Forward, backward and update of one minibatch of 64, in one " +
		"process; the peer in the faster of its two memory formats. Each turn is the median of some steps. " +
		"PyTorch of Debian computes with OpenBLAS's OpenMP build, so that both share their threads, " +
		"and with as many threads as ours. The MLP is 784-256-10. " +
		"MLP at one thread is as near to the CPU's peak as PyTorch can be at most, so there is no " +
		"bar of a half for it any more. On two threads the multiply-adds alone take 0.46 of the " +
		"time of PyTorch 1.13 at the peak, so that its bar is 0.65."},
	{"peak/", "Peak", "Floating-point operations per second, compared with a loop of multiply-adds that " +
		"touches no memory. Those of a step are counted as by the definition of a convolution; ours needs " +
		"1/4 or 4/9 of the multiplications for most kernels of 3 by 3, so the ratio may exceed 1. " +
		"The MLP is compared with that loop on two threads; its update of the parameters is not counted. " +
		"At last that loop on two threads at once, the most that two threads of this machine can gain."},
	{"ps/", "Parameter server", "A model of 100 MB through one server process on this machine. The " +
		"peer moves the same bytes through one connection. Memory is the process's own; pages of its " +
		"program's file, which processes share and the kernel can drop, are in rows of their own."},
	{"master/", "Master", "64 workers that ask for tasks and report them, over loopback."},
	{"ring/", "All-reduce", "Ours and gloo in processes of their own. *Shared memory*: processes of " +
		"one machine, which copy from one another. *TCP*: each process in a network and a process " +
		"namespace of its own, " +
		"joined by a bridge, as pods of one node are; ours without encryption, as gloo's. Short " +
		"ones by their time, long ones by bus bandwidth: bytes × 2(n−1)/n, which every rank sends at least. " +
		"*Virtual time*: 64 ranks in a model of a network, whose messages need 50 µs and what the " +
		"bandwidth takes; its figures depend on no machine."},
	{"encryption/", "Encryption", "What TLS costs. Peers are always authenticated by certificates, so with `--data_encryption=off` only the data planes differ. " +
		"The peers that have no TLS at all are made of the same code: the master's leases compared with a gRPC server without credentials that answers with the same messages."},
	{"job/", "Whole jobs", "The main job of the README on this machine, records per second between " +
		"a fifth and nine tenths of its way."},
	{"size/", "Size", "The program, and the part of it that each worker of a script copies, if its image " +
		"is the user's."},
	{"recovery/", "Losses in a ring of 4 workers",
		"The MNIST CNN in Go, one thread a worker. A worker is a process that is also a pod; " +
			"torchrun's node is an agent and its process. So `kill -9` of ours is compared with torchrun's process killed, and with its node killed; a worker frozen by SIGSTOP with a frozen process, and with a frozen node. *Tuned* is `--rdzv_conf=last_call_timeout=1 --monitor_interval=0.1`."},
	{"goodput", "Goodput", "As many workers as cores; one is killed every 10 s. A ratio of windows " +
		"of 10 s compared with undisturbed ones before and after."},
	{"scaling/", "Scaling", "Rings of workers of one thread each. Two independent jobs of one worker " +
		"each are the most that two cores can do. A ring also waits for its slowest worker in each " +
		"step: the rows *each step as long as …* show how much that alone takes."},
	{"checkpoint/", "Checkpoints", "A model of 1 GB, values and slots, a checkpoint every 30 s."},
	{"comeback/", "Back from a checkpoint",
		"A job of a model of 100 MB on two servers and two workers; a master of 100,000 tasks."},
	{"run/", "Scripts of PyTorch",
		"`elasticdl run` of four workers of one process each, gloo over loopback, one thread a " +
			"process. *Unmodified* is `test/bench/peers/elastic.py`, which torchrun runs, too; " +
			"*package* is `keeping.py`, which uses " +
			"the Python package. Unmodified jobs run with `--gather_timeout=0`, as the tuned torchrun " +
			"does not wait for the replacement of a lost node either; with its *defaults* " +
			"`elasticdl run` waits for it, at most 10 s. " +
			"*Small* is a CNN on 28×28 images, 0.44 MB; *100 MB* is four linear layers; " +
			"*1 GB* is the same four, in three processes; *1 GB, adapter* is the small one with 1 GB of weights " +
			"that are not trained, so that a step is short: each process makes its own, and a newcomer has to " +
			"take all of them. The " +
			"scripts save and load no checkpoint. torchrun's node that holds the rendezvous is " +
			"never killed: the job would end. *A step, undisturbed* says how much of a figure is the step itself. " +
			"*The others' longest step* is the longest time between two steps of one process from the " +
			"start of a newcomer until all step; with 1 GB the bar is two undisturbed steps: others stand " +
			"still for at most one. With an adapter that bar is out of reach here: meanwhile the newcomer " +
			"receives 1 GB, and each of the others reads its own for a checksum, all of them on two cores. " +
			"torchft's replica groups are one process of `replicas.py` each, its gloo, and a lighthouse " +
			"*tuned* by `--heartbeat_timeout_ms=1000 --join_timeout_ms=1000 --quorum_tick_ms=10`; " +
			"collectives time out after 5 s, as in its own example, and with 1 GB after 20 s. " +
			"It is a nightly, because with release 0.2.0, the newest, " +
			"every replica ends when one is killed. Its others make one step while a newcomer takes " +
			"their state, so *a node joins* is the longer of their pauses before and after that step. " +
			"In these rows ours have `--heartbeat_timeout=1s`, but with *1 GB*. " +
			"*First line* is the first one after the imports, of a script that imports torch, or torch " +
			"and what scripts with Hugging Face's Trainer import; `python3 SCRIPT` is the same interpreter, " +
			"without a launcher. torch imports as much again with the first optimizer, and `elasticdl run` " +
			"before the first line: hence the rows *until there is an optimizer*. *Hugging Face* is `clm.py`, a tiny GPT-2 and an unmodified Trainer, in two " +
			"workers. A process is killed when the job is at least 45 s old: by then its agents have imported " +
			"what the script imports. " +
			"*Steps* are of two workers, undisturbed: `gpt.py` has the shape of nanoGPT on a CPU, " +
			"`parallel.py` splits a perceptron over the ranks; `elasticdl run` has its defaults, " +
			"torchrun's processes get the same `OMP_NUM_THREADS`."},
}

// Bench writes the text between these lines of a page.
const (
	generatedFrom = "<!-- make bench-page: from here -->"
	generatedTo   = "<!-- make bench-page: to here -->"
)

// writePage writes tables of the results in files to a page. A row that several files have is that
// of the last file.
func writePage(path string, files []string) error {
	if len(files) == 0 {
		return errors.New("-page: expected files of results as arguments")
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), generatedFrom)
	_, after, ends := strings.Cut(rest, generatedTo)
	if !found || !ends {
		return fmt.Errorf("%s: expected a line %s, and after it %s", path, generatedFrom, generatedTo)
	}
	reports := make([]report, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &reports[i])
		}
		if err != nil {
			return fmt.Errorf("read results of %s: %w", file, err)
		}
	}
	return os.WriteFile(path, []byte(before+generatedFrom+"\n"+tables(reports)+"\n"+generatedTo+after), 0o644)
}

// tables returns the chapters that have rows.
func tables(reports []report) string {
	var text strings.Builder
	newest := make(map[string]int) // index of the report with the row
	for i, r := range reports {
		for _, row := range r.Results {
			newest[row.Name+row.Peer] = i
		}
	}
	for _, c := range chapters {
		var rows []string
		for i, r := range reports {
			for _, row := range r.Results {
				if newest[row.Name+row.Peer] == i && strings.HasPrefix(row.Name, c.prefix) {
					rows = append(rows, row.markdown(strings.TrimPrefix(row.Name, c.prefix), mark(i, len(reports))))
				}
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n## %s\n\n", c.title)
		if c.text != "" {
			fmt.Fprintf(&text, "%s\n\n", c.text)
		}
		text.WriteString("| what | ours | peer | the peer's | ratio | bar " +
			"|\n|---|---|---|---|---|---|\n" + strings.Join(rows, ""))
	}
	text.WriteString("\n## Where and when\n\n")
	for i, r := range reports {
		fmt.Fprintf(&text, "- %s%s\n", mark(i, len(reports)), r.Machine)
	}
	return text.String()
}

// mark returns a mark of the report of a row, if there are several reports.
func mark(i, of int) string {
	if of == 1 {
		return ""
	}
	return fmt.Sprintf("[%d] ", i+1)
}

// markdown returns a row of a table; a bar that was missed is bold.
func (r Result) markdown(name, mark string) string {
	if name == "" {
		name = r.Name
	}
	if r.Skipped != "" {
		return fmt.Sprintf("| %s%s | not measured: %s | | | | |\n", mark, name, r.Skipped)
	}
	ratio, theirs := r.ratio(), r.Theirs.String()+" "+r.Unit
	if r.missed() {
		ratio = "**" + ratio + "**"
	}
	if r.Threads > 0 {
		name += fmt.Sprintf(", threads: %d", r.Threads)
	}
	return fmt.Sprintf("| %s%s | %v %s | %s | %s | %s | %s |\n", mark, name, r.Ours, r.Unit, r.Peer,
		theirs, ratio, strings.NewReplacer("<=", "≤", ">=", "≥").Replace(r.Target))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// crew is a job of a script's processes, whoever starts them.
type crew interface {
	join(ctx context.Context) error // one more node comes for one that was lost, unless it comes by itself
	keeper() int                    // the node whose loss ends the job; 0: none
	end(ctx context.Context)
	words() string // what it said last
}

// starter starts a crew in a directory; the steps go to another one.
type starter func(ctx context.Context, dir, steps string, s setting, flags []string) (crew, error)

// What is measured of a job, in seconds.
const (
	processKilled = "a process killed until all step again"
	processWhole  = "a process killed until as many step as before"
	nodeKilled    = "a node killed until all others step again"
	joins         = "a node joins: from the others' last step until all step"
	newcomer      = "a node joins: from its start to its first step"
	processStops  = "a process frozen until all others step again"
	nodeStops     = "a node frozen until all others step again"
)

// scriptJob is a crew and its steps.
type scriptJob struct {
	crew
	*worlds
	setting
	found map[string][]float64
}

// event does something to a job that steps, and notes how long what follows takes.
type event func(ctx context.Context, j *scriptJob) error

// measure has a job of a script go through so many of each event, and returns what was found, ascending.
func (b *bench) measure(ctx context.Context, start starter, s setting, flags []string, n int, events ...event) (map[string][]float64, error) {
	s.limit = 2*time.Minute + time.Duration(n*len(events))*2*time.Minute
	dir, err := os.MkdirTemp(b.dir, "script-")
	if err != nil {
		return nil, err
	}
	steps, err := newWorlds(filepath.Join(dir, "steps"))
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("ELASTICDL_HOME", b.dir); err != nil {
		return nil, err
	}
	j := &scriptJob{worlds: steps, setting: s, found: make(map[string][]float64)}
	j.crew, err = start(ctx, dir, steps.dir, s, flags)
	if j.crew != nil {
		defer j.crew.end(ctx)
	}
	if err != nil {
		return nil, err
	}
	for range n {
		for _, e := range events {
			if err := e(ctx, j); err != nil {
				return nil, fmt.Errorf("%s of PyTorch %s: %w; it said: %s", s.script, s.python.version, err, j.words())
			}
		}
	}
	for _, seconds := range j.found {
		slices.Sort(seconds)
	}
	return j.found, nil
}

func (j *scriptJob) note(what string, took time.Duration) {
	j.found[what] = append(j.found[what], took.Seconds())
	fmt.Fprintf(os.Stderr, "  %T: %s: %.2f s\n", j.crew, what, took.Seconds())
}

// pick returns a random process of the whole world, which has stepped for a while, and its node.
func (j *scriptJob) pick(ctx context.Context) (pid, node int, err error) {
	if _, err := j.whole(ctx, j.size); err != nil {
		return 0, 0, err
	}
	// A node that has lived less than a second would be replaced a second after its start.
	if err := pause(ctx, time.Second+rand.N(500*time.Millisecond)); err != nil {
		return 0, 0, err
	}
	w, err := j.whole(ctx, j.size)
	if err != nil {
		return 0, 0, err
	}
	pids := slices.Collect(maps.Keys(w.firsts))
	pid = pids[rand.IntN(len(pids))]
	node, err = nodeOf(pid)
	return pid, node, err
}

// nodeOf returns the agent that started a process; the process itself if bench did.
func nodeOf(pid int) (int, error) {
	_, parent, err := processState(pid)
	if parent == os.Getpid() {
		return pid, err
	}
	return parent, err
}

// loseProcess kills a process.
func loseProcess(ctx context.Context, j *scriptJob) error {
	pid, _, err := j.pick(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	took, err := j.after(ctx, 2*time.Minute, func() error { return syscall.Kill(pid, syscall.SIGKILL) })
	if err != nil {
		return err
	}
	j.note(processKilled, took)
	w, err := j.whole(ctx, j.size)
	if err == nil {
		j.note(processWhole, w.complete().Sub(start))
	}
	return err
}

// loseNode kills an agent and its processes, has another one come, and waits until all step.
func loseNode(ctx context.Context, j *scriptJob) error {
	_, node, err := j.pick(ctx)
	for err == nil && node == j.keeper() {
		_, node, err = j.pick(ctx)
	}
	if err != nil {
		return err
	}
	before, err := j.nodes()
	if err != nil {
		return err
	}
	took, err := j.after(ctx, 2*time.Minute, func() error { return signalAll(tree(node), syscall.SIGKILL) })
	if err != nil {
		return err
	}
	j.note(nodeKilled, took)
	if err := j.join(ctx); err != nil {
		return err
	}
	w, err := j.whole(ctx, j.size)
	if err != nil {
		return err
	}
	var last time.Time
	for _, other := range j.all {
		if other != w && other.last.After(last) && other.last.Before(w.complete()) {
			last = other.last
		}
	}
	j.note(joins, w.complete().Sub(last))
	for pid, first := range w.firsts {
		node, err := nodeOf(pid)
		if err != nil {
			return err
		}
		if !slices.Contains(before, node) {
			started, err := processStart(node)
			if err != nil {
				return err
			}
			j.note(newcomer, first.Sub(started))
		}
	}
	return nil
}

// nodes returns those of the newest world.
func (j *scriptJob) nodes() (all []int, err error) {
	for pid := range j.newest().firsts {
		node, err := nodeOf(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, node)
	}
	return all, nil
}

// frozenLimit is how long a job has to notice that some of it is frozen. torchrun's own limit is that of its process group, half an hour.
const frozenLimit = time.Minute

// freezeProcess stops a process without ending it.
func freezeProcess(ctx context.Context, j *scriptJob) error {
	pid, _, err := j.pick(ctx)
	if err != nil {
		return err
	}
	took, err := j.after(ctx, frozenLimit, func() error { return syscall.Kill(pid, syscall.SIGSTOP) })
	if err == nil {
		j.note(processStops, took)
	}
	return err
}

// freezeNode stops an agent and its processes: nothing more comes from them, and no connection ends, as when a machine is lost; but the kernel
// still answers for them.
func freezeNode(ctx context.Context, j *scriptJob) error {
	_, node, err := j.pick(ctx)
	if err != nil {
		return err
	}
	pids := tree(node)
	took, err := j.after(ctx, frozenLimit, func() error { return signalAll(pids, syscall.SIGSTOP) })
	if err == nil {
		j.note(nodeStops, took)
	}
	return errors.Join(err, signalAll(pids, syscall.SIGKILL)) // one that stays stopped would never end
}

func programBenchmarks() []benchmark {
	var all []benchmark
	for _, p := range []struct{ name, path string }{{"2.x", pypi}, {"1.13", debian}} {
		for _, m := range []struct {
			name      string
			megabytes int
		}{{"small", 0}, {"100 MB", 100}} {
			for _, s := range []struct {
				name, script  string
				middle, worst float64
			}{{"unmodified", "elastic.py", 0.5, 2}, {"package", "keeping.py", 0.4, 1.5}} {
				all = append(all, benchmark{fmt.Sprintf("run/%s, %s, PyTorch %s", s.name, m.name, p.name), func(ctx context.Context, b *bench) error {
					at := setting{script: s.script, megabytes: m.megabytes, size: 4}
					return b.program(ctx, fmt.Sprintf("run/%s, %s, PyTorch %s", s.name, m.name, p.name), p.path, at, s.middle, s.worst)
				}})
			}
		}
		all = append(all, benchmark{"run/frozen, PyTorch " + p.name, func(ctx context.Context, b *bench) error { return b.frozen(ctx, p.name, p.path) }})
	}
	return append(all, benchmark{"run/torchft", besideTorchft})
}

// program measures losses of a job of `elasticdl run`, beside torchrun's with the unmodified script.
func (b *bench) program(ctx context.Context, name, path string, s setting, middle, worst float64) error {
	var err error
	if s.python, err = findPython(ctx, path, "torch"); err != nil {
		return b.skip(name, err)
	}
	ours, err := b.measure(ctx, b.newRunJob, s, nil, b.events, loseProcess, loseNode)
	if err != nil {
		return err
	}
	for _, what := range []string{processKilled, nodeKilled, joins} {
		b.within(fmt.Sprintf("%s: %s", name, what), ours[what], middle, worst)
	}
	theirs, err := b.torchrunLosses(ctx, s)
	if err != nil {
		return err
	}
	for _, a := range []struct{ what, target string }{{processKilled, "<= 0.2"}, {processWhole, "<= 0.5"}, {nodeKilled, "<= 0.05"}, {joins, "<= 0.2"}, {newcomer, "<= 0.5"}} {
		b.besides(fmt.Sprintf("%s: %s", name, a.what), "torchrun "+s.python.version+", tuned", a.target, ours[a.what], theirs[a.what])
	}
	return nil
}

// besides adds the medians of ours and of a peer.
func (b *bench) besides(name, peer, target string, ours, theirs []float64) {
	b.add(Result{Name: fmt.Sprintf("%s, medians of %d and %d", name, len(ours), len(theirs)), Unit: "s", Threads: 1, PeerName: peer, Target: target,
		Ours: median(ours), OursMedian: median(ours), Peer: median(theirs), PeerMedian: median(theirs)})
}

// tuned has torchrun look often, and not wait long for others; its other times stay.
var tuned = []string{"--rdzv_conf=last_call_timeout=1", "--monitor_interval=0.1"}

// torchrunLosses measures a job of torchrun with the unmodified script, once for all benchmarks that ask.
func (b *bench) torchrunLosses(ctx context.Context, s setting) (map[string][]float64, error) {
	s.script = "elastic.py"
	if found := b.torchruns[s]; found != nil {
		return found, nil
	}
	found, err := b.measure(ctx, newTorchrun, s, tuned, b.peerEvents, loseProcess, loseNode)
	if err == nil {
		b.torchruns[s] = found
	}
	return found, err
}

// frozen stops processes and nodes of jobs whose limit on silence is a second; and a process of torchrun, which has a minute to notice.
func (b *bench) frozen(ctx context.Context, pytorch, path string) error {
	const silence = 1.0
	python, err := findPython(ctx, path, "torch")
	if err != nil {
		return b.skip("run/frozen, PyTorch "+pytorch, err)
	}
	at := setting{python: python, size: 4}
	ours := make(map[string][]float64)
	for _, s := range []struct{ name, script string }{{"package", "keeping.py"}, {"unmodified", "elastic.py"}} {
		at.script = s.script
		if ours, err = b.measure(ctx, b.newRunJob, at, []string{"--heartbeat_timeout=1s"}, b.events, freezeProcess, freezeNode); err != nil {
			return err
		}
		for _, what := range []string{processStops, nodeStops} {
			b.within(fmt.Sprintf("run/%s, small, PyTorch %s, --heartbeat_timeout=1s: %s", s.name, pytorch, what), ours[what], silence+0.5, silence+2)
		}
	}
	peer := "torchrun " + python.version + ", tuned"
	theirs, err := b.measure(ctx, newTorchrun, at, tuned, 1, freezeProcess)
	if errors.Is(err, errNever) {
		peer += ", not yet after"
		theirs = map[string][]float64{processStops: {frozenLimit.Seconds()}}
	} else if err != nil {
		return err
	}
	b.besides("run/unmodified, small, PyTorch "+pytorch+", --heartbeat_timeout=1s: "+processStops, peer, "<= 0.05", ours[processStops], theirs[processStops])
	return nil
}

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

// crew is a job of a script's processes, started by ElasticDL or by a peer.
type crew interface {
	// starts a node in place of a lost one, unless the job does that itself
	join(ctx context.Context) error
	// the node whose loss would end the job; 0 = none
	host() int
	end(ctx context.Context)
	words() string // the last lines of the logs
}

// starter starts a crew in a directory; the processes write their steps to another one.
type starter func(ctx context.Context, dir, steps string, s setting, flags []string) (crew, error)

// Names of the measured times of a job, in seconds.
const (
	processKilled = "a process killed until all step again"
	processWhole  = "a process killed until as many step as before"
	nodeKilled    = "a node killed until all others step again"
	joins         = "a node joins: from the others' last step until all step"
	newcomer      = "a node joins: from its start to its first step"
	processStops  = "a process frozen until all others step again"
	nodeStops     = "a node frozen until all others step again"
	longest       = "a node joins: the others' longest step until all step"
	newcomerLine  = "a node joins: from its start to its script's first line"
	undisturbed   = "a step, undisturbed"
)

// scriptJob is a crew and its steps.
type scriptJob struct {
	crew
	*worlds
	setting
	start time.Time
	found map[string][]float64
}

// event does something to a running job, and records how long the consequences take.
type event func(ctx context.Context, j *scriptJob) error

// measure starts a job of a script, lets n of each event happen, and returns the results in
// ascending order.
func (b *bench) measure(ctx context.Context, start starter, s setting, flags []string, n int,
	events ...event) (map[string][]float64, error) {
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
	j := &scriptJob{worlds: steps, setting: s, start: time.Now(), found: make(map[string][]float64)}
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

// pick returns a random process of the complete world, after it has stepped for a while, and its
// node.
func (j *scriptJob) pick(ctx context.Context) (pid, node int, err error) {
	if _, err := j.whole(ctx, j.size); err != nil {
		return 0, 0, err
	}
	// A node that ends in its first second is replaced only one second after its start.
	if err := pause(ctx, time.Second+rand.N(500*time.Millisecond)); err != nil {
		return 0, 0, err
	}
	w, err := j.whole(ctx, j.size)
	if err != nil {
		return 0, 0, err
	}
	if took := w.perStep(); took > 0 {
		j.found[undisturbed] = append(j.found[undisturbed], took.Seconds())
	}
	pids := slices.Collect(maps.Keys(w.firsts))
	pid = pids[rand.IntN(len(pids))]
	node, err = nodeOf(pid)
	return pid, node, err
}

// pickNode returns a random node of the complete world whose loss does not end the job.
func (j *scriptJob) pickNode(ctx context.Context) (node int, err error) {
	_, node, err = j.pick(ctx)
	for err == nil && node == j.host() {
		_, node, err = j.pick(ctx)
	}
	return node, err
}

// nodeOf returns the agent that started a process, or the process itself if bench started it.
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
	took, err := j.after(ctx, j.size-1, 2*time.Minute, func() error { return syscall.Kill(pid, syscall.SIGKILL) })
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

// loseNode kills an agent and its processes, starts another if necessary, and waits until all
// processes step.
func loseNode(ctx context.Context, j *scriptJob) error {
	node, err := j.pickNode(ctx)
	if err != nil {
		return err
	}
	before, err := j.nodes()
	if err != nil {
		return err
	}
	took, err := j.after(ctx, j.size-1, 2*time.Minute, func() error { return signalAll(tree(node), syscall.SIGKILL) })
	if err != nil {
		return err
	}
	again := time.Now()
	j.note(nodeKilled, took)
	if err := j.join(ctx); err != nil {
		return err
	}
	w, err := j.whole(ctx, j.size)
	if err != nil {
		return err
	}
	j.note(joins, j.pause(again, w))
	if took := j.longestStep(again, w); took > 0 {
		j.note(longest, took)
	}
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
			j.note(newcomerLine, j.lines[pid].Sub(started))
		}
	}
	return nil
}

// nodes returns the nodes of the newest world.
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

// frozenLimit is the time in which a job must notice that a part of it is frozen. torchrun's own
// limit is that of its process group, half an hour.
const frozenLimit = time.Minute

// freezeProcess suspends a process (SIGSTOP).
func freezeProcess(ctx context.Context, j *scriptJob) error {
	pid, _, err := j.pick(ctx)
	if err != nil {
		return err
	}
	took, err := j.after(ctx, j.size-1, frozenLimit, func() error { return syscall.Kill(pid, syscall.SIGSTOP) })
	if err == nil {
		j.note(processStops, took)
	}
	return err
}

// freezeNode suspends an agent and its processes: they send nothing more, and no connection ends,
// as when a machine is lost; but the kernel still answers for them.
func freezeNode(ctx context.Context, j *scriptJob) error {
	node, err := j.pickNode(ctx)
	if err != nil {
		return err
	}
	pids := tree(node)
	took, err := j.after(ctx, j.size-1, frozenLimit, func() error { return signalAll(pids, syscall.SIGSTOP) })
	if err == nil {
		j.note(nodeStops, took)
	}
	// a process that stays suspended would never end
	if err := errors.Join(err, signalAll(pids, syscall.SIGKILL)); err != nil {
		return err
	}
	return j.join(ctx)
}

// block is a job of a script, with its event and the number of events.
type block struct {
	start starter
	setting
	flags  []string
	n      int
	events []event
}

// inTurns measures blocks in two rounds, so that disturbances of the machine affect all of them. It
// returns the results of each block.
func (b *bench) inTurns(ctx context.Context, blocks ...block) ([]map[string][]float64, error) {
	found := make([]map[string][]float64, len(blocks))
	for round := range 2 {
		for i, k := range blocks {
			// if the number is odd, the first round has one more
			n := (k.n + 1 - round) / 2
			if n == 0 {
				continue
			}
			some, err := b.measure(ctx, k.start, k.setting, k.flags, n, k.events...)
			if err != nil {
				return nil, err
			}
			if found[i] == nil {
				found[i] = make(map[string][]float64)
			}
			for what, seconds := range some {
				found[i][what] = append(found[i][what], seconds...)
			}
		}
	}
	return found, nil
}

func programBenchmarks() []benchmark {
	var all []benchmark
	for _, p := range []struct {
		name, path string
		long       bool
	}{{"2.x", pypi, false}, {"1.13", debian, true}} {
		for _, m := range states[:3] {
			name := fmt.Sprintf("run/%s, PyTorch %s", m.name, p.name)
			all = append(all, benchmark{name: name, long: p.long || m.megabytes > 0,
				run: func(ctx context.Context, b *bench) error {
					return b.programs(ctx, name, p.path, m)
				}})
		}
		name := "run/frozen, PyTorch " + p.name
		all = append(all, benchmark{name: name, long: true, run: func(ctx context.Context, b *bench) error {
			return b.freezes(ctx, name, p.path)
		}})
	}
	all = append(all, benchmark{name: "run/steps, PyTorch 2.x", long: true, run: torchrunStepRatio},
		benchmark{name: "run/first line", long: true, run: firstLines},
		benchmark{name: "run/Hugging Face", long: true, run: huggingFace})
	for _, m := range states {
		all = append(all, benchmark{name: "run/torchft, " + m.name, long: true,
			run: func(ctx context.Context, b *bench) error { return b.torchftRatio(ctx, m) }})
	}
	return all
}

// state is a kind of state of a job's processes, and their number.
type state struct {
	name      string
	megabytes int
	processes int
	// option of the script: "held" if most of the state is not trained
	more string
}

// states lists them. With an adapter a step is short, and the state takes long to copy. 1 GB that
// is trained takes about as long to copy as a step; it is compared with torchft only.
var states = []state{{"small", 0, 4, ""}, {"100 MB", 100, 4, ""}, {"1 GB, adapter", 1000, 3, "held"},
	{"1 GB", 1000, 3, ""}}

// large reports whether the bar for a join is a step, not a time.
func (m state) large() bool { return m.megabytes >= 1000 }

// tuned has flags with which torchrun polls often, and waits only briefly for other nodes; its
// other times are the defaults.
var tuned = []string{"--rdzv_conf=last_call_timeout=1", "--monitor_interval=0.1"}

// prompt has the flag with which `elasticdl run` does not wait for the replacement of a lost node,
// as torchrun does not when it is tuned.
var prompt = []string{"--gather_timeout=0"}

// programs measures losses in jobs of `elasticdl run`, of an unmodified script and of one with the
// package, and compares them with torchrun's of the unmodified script.
func (b *bench) programs(ctx context.Context, name, path string, m state) error {
	python, err := findPython(ctx, path, "torch")
	if err != nil {
		return b.skip(name, err)
	}
	unmodified, losses := setting{python: python, script: "elastic.py", megabytes: m.megabytes,
		more: m.more, size: m.processes}, []event{loseProcess, loseNode}
	kept := unmodified
	kept.script = "keeping.py"
	blocks := []block{{b.newRunJob, unmodified, prompt, b.events, losses},
		{b.newRunJob, kept, nil, b.events, losses},
		{newTorchrun, unmodified, tuned, b.peerEvents, losses}}
	if !m.large() {
		blocks = append(blocks, block{b.newRunJob, unmodified, nil, b.events, []event{loseNode}})
	}
	found, err := b.inTurns(ctx, blocks...)
	if err != nil {
		return err
	}
	peer := "torchrun " + python.version + ", tuned"
	for i, s := range []struct {
		name          string
		middle, worst float64
	}{{"unmodified", 0.5, 2}, {"package", 0.4, 1.5}} {
		name := fmt.Sprintf("%s, %s", name, s.name)
		for _, what := range []string{processKilled, nodeKilled, joins} {
			// A large state has the bar of oneStep.
			if !m.large() {
				b.within(fmt.Sprintf("%s: %s", name, what), found[i][what], s.middle, s.worst)
			}
		}
		for _, a := range []struct{ event, target string }{{processKilled, "<= 0.2"},
			{processWhole, "<= 0.5"}, {nodeKilled, "<= 0.05"}, {joins, "<= 0.2"}, {newcomer, "<= 0.5"},
			{undisturbed, ""}} {
			if len(found[i][a.event]) == 0 || len(found[2][a.event]) == 0 {
				// a step takes longer than the limit of these measurements
				continue
			}
			b.compared(Result{Name: fmt.Sprintf("%s: %s", name, a.event), Unit: "s", Peer: peer, Target: a.target},
				found[i][a.event], found[2][a.event])
		}
	}
	if m.large() {
		b.oneStep(name+", package", found[1])
		return nil
	}
	b.compared(Result{Name: fmt.Sprintf("%s, unmodified, defaults: %s", name, nodeKilled), Unit: "s",
		Peer: peer, Target: "<= 0.5"}, found[3][nodeKilled], found[2][nodeKilled])
	return nil
}

// oneStep adds a row with the bar that others stand still for at most one step more while a node
// joins.
func (b *bench) oneStep(name string, found map[string][]float64) {
	if len(found[longest]) == 0 || len(found[undisturbed]) == 0 {
		return
	}
	twice := make([]float64, len(found[undisturbed]))
	for i, seconds := range found[undisturbed] {
		twice[i] = 2 * seconds
	}
	b.compared(Result{Name: name + ": " + longest, Unit: "s", Peer: "two steps, undisturbed",
		Target: "<= 1"}, found[longest], twice)
}

// frozen is a way to freeze something, and the time that is measured then.
type frozen struct {
	name, event string
	freeze      event
}

// torchrunFrozen freezes a part of a job of torchrun, once for all benchmarks that need the result.
func (b *bench) torchrunFrozen(ctx context.Context, python python, m state, f frozen) (peer string,
	seconds []float64, err error) {
	peer = "torchrun " + python.version + ", tuned"
	at := fmt.Sprint(python.version, m, f.event)
	if b.torchrunsFrozen[at] == nil {
		found, err := b.measure(ctx, newTorchrun, setting{python: python, script: "elastic.py",
			megabytes: m.megabytes, more: m.more, size: m.processes}, tuned, 1, f.freeze)
		if errors.Is(err, errNever) {
			found = map[string][]float64{f.event: {frozenLimit.Seconds()}}
		} else if err != nil {
			return "", nil, err
		}
		b.torchrunsFrozen[at] = found[f.event]
	}
	if seconds = b.torchrunsFrozen[at]; seconds[0] == frozenLimit.Seconds() {
		peer += ", not yet after"
	}
	return peer, seconds, nil
}

// freezes suspends processes and nodes of jobs whose limit of silence is one second; and of
// torchrun, which has a minute to notice.
func (b *bench) freezes(ctx context.Context, name, path string) error {
	const silence = 1.0
	python, err := findPython(ctx, path, "torch")
	if err != nil {
		return b.skip(name, err)
	}
	unmodified, both := setting{python: python, script: "elastic.py", size: 4}, []event{freezeProcess, freezeNode}
	kept := unmodified
	kept.script = "keeping.py"
	limit := append([]string{"--heartbeat_timeout=1s"}, prompt...)
	found, err := b.inTurns(ctx, block{b.newRunJob, unmodified, limit, b.events, both},
		block{b.newRunJob, kept, limit, b.events, both})
	if err != nil {
		return err
	}
	for _, f := range []frozen{{"a process frozen", processStops, freezeProcess},
		{"a node frozen", nodeStops, freezeNode}} {
		peer, theirs, err := b.torchrunFrozen(ctx, python, states[0], f)
		if err != nil {
			return err
		}
		for i, script := range []string{"unmodified", "package"} {
			row := fmt.Sprintf("%s, --heartbeat_timeout=1s, %s: %s", name, script, f.event)
			b.within(row, found[i][f.event], silence+0.5, silence+2)
			b.compared(Result{Name: row, Unit: "s", Peer: peer, Target: "<= 0.05"}, found[i][f.event], theirs)
		}
	}
	return nil
}

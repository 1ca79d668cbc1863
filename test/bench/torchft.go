package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// torchft is a job of replica groups of one process each, and the lighthouse by which they find
// each other. torchft does not replace lost groups; the bench does.
type torchft struct {
	dir        string
	python     python
	address    string // address of the lighthouse
	args       []string
	env        []string
	lighthouse *exec.Cmd
	processes  []*exec.Cmd
}

// newTorchft starts a job; the flags are the lighthouse's.
func newTorchft(ctx context.Context, dir, steps string, s setting, flags []string) (crew, error) {
	command, err := s.command(dir, steps)
	if err != nil {
		return nil, err
	}
	t := &torchft{dir: dir, python: s.python, env: s.environ(), args: append([]string{"-u"}, command...)}
	if t.address, err = freeAddress(); err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(s.python.path), "torchft_lighthouse")
	t.lighthouse, err = background(filepath.Join(dir, "lighthouse.log"), s.environ(), program,
		append([]string{"--min_replicas=1", "--bind=" + t.address}, flags...)...)
	if err != nil {
		return t, err
	}
	err = await(ctx, "lighthouse of torchft", time.Minute, func() (bool, error) {
		conn, err := net.Dial("tcp", t.address)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	for range s.size {
		if err == nil {
			err = t.join(ctx)
		}
	}
	return t, err
}

// join starts one more replica group.
func (t *torchft) join(context.Context) error {
	env := append(slices.Clone(t.env), "TORCHFT_LIGHTHOUSE=http://"+t.address)
	cmd, err := background(filepath.Join(t.dir, fmt.Sprintf("replica-%d.log", len(t.processes))), env,
		t.python.path, t.args...)
	if err == nil {
		t.processes = append(t.processes, cmd)
	}
	return err
}

// host returns 0: the lighthouse is not a replica.
func (t *torchft) host() int { return 0 }

// end ends every process of the job.
func (t *torchft) end(context.Context) {
	for _, p := range append(t.processes, t.lighthouse) {
		if p != nil {
			p.Process.Signal(syscall.SIGKILL)
			p.Wait()
		}
	}
}

// words returns the last lines of the processes' logs.
func (t *torchft) words() string { return lastWords(t.dir, "*.log") }

// torchftRatio compares losses of processes that keep their state with losses of torchft's replica
// groups, for the same kind of script. A frozen node is also compared with torchrun's.
func (b *bench) torchftRatio(ctx context.Context, m state) error {
	name := fmt.Sprintf("run/%s, package", m.name)
	python, err := findPython(ctx, fault, "torchft-nightly")
	if err != nil {
		return b.skip(name+" compared with torchft", err)
	}
	version := python.version
	if python, err = findPython(ctx, fault, "torch"); err != nil {
		return err
	}
	s := setting{python: python, script: "keeping.py", megabytes: m.megabytes, more: m.more, size: m.processes}
	replicas := s
	replicas.script = "replicas.py"
	quick := []string{"--heartbeat_timeout_ms=1000", "--join_timeout_ms=1000", "--quorum_tick_ms=10"}
	limit, events := []string{"--heartbeat_timeout=1s"}, []event{loseNode, freezeNode}
	if m.large() && m.more == "" {
		// Its step takes longer than the limit.
		limit, events = nil, []event{loseNode}
	}
	found, err := b.inTurns(ctx, block{b.newRunJob, s, limit, b.events, events},
		block{newTorchft, replicas, quick, b.peerEvents, events})
	if err != nil {
		return err
	}
	peer := fmt.Sprintf("torchft-nightly %s of PyTorch %s, tuned", version, python.version)
	for _, a := range []struct{ event, target string }{{nodeKilled, "<= 1"}, {nodeStops, "<= 1"},
		{joins, "<= 1"}, {longest, "<= 1"}, {newcomer, "<= 1"}, {undisturbed, ""}} {
		if len(found[0][a.event]) == 0 || len(found[1][a.event]) == 0 {
			// a step takes longer than the limit of these measurements
			continue
		}
		b.compared(Result{Name: name + ": " + a.event, Unit: "s", Peer: peer, Target: a.target},
			found[0][a.event], found[1][a.event])
	}
	if m.large() {
		b.oneStep(name, found[0])
	}
	if len(found[0][nodeStops]) == 0 {
		return nil
	}
	peer, theirs, err := b.torchrunFrozen(ctx, python, m, frozen{"a node frozen", nodeStops, freezeNode})
	if err != nil {
		return err
	}
	b.compared(Result{Name: name + ": " + nodeStops, Unit: "s", Peer: peer, Target: "<= 0.05"},
		found[0][nodeStops], theirs)
	return nil
}

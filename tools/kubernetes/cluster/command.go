package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/tools/kubernetes/host"
	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// ErrNotUp reports that the cluster, or a part of it, does not run.
var ErrNotUp = errors.New("the cluster is not up")

// Status writes the state of the components. The error is ErrNotUp if not all of them run.
func Status(dir string, out io.Writer) error {
	s, err := load(dir)
	if err != nil {
		return err
	}
	var total int64
	for _, p := range s.Processes {
		total += p.RSS()
		fmt.Fprintf(out, "%-14s %-8s pid %-8d %5d MB  %s\n", p.Name, p.State(), p.PID, p.RSS()>>20, p.Log)
	}
	fmt.Fprintf(out, "%-14s %-8s %-12s %5d MB\n", "all", "", "", total>>20)
	if !s.running() {
		return ErrNotUp
	}
	return nil
}

// Usage writes instructions for the use of the cluster in dir.
func Usage(dir string, out io.Writer) error {
	s, err := load(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nexport KUBECONFIG=%s\nexport PATH=%s:$PATH\n", s.path("admin.kubeconfig"), s.path("bin"))
	if s.Nodes > 0 {
		for _, entry := range noProxy() {
			fmt.Fprintf(out, "export '%s'\n", entry)
		}
	}
	fmt.Fprintln(out, "kubectl get nodes")
	if s.Nodes > 0 {
		fmt.Fprintf(out, "\nImages are pushed to %s (plain HTTP); pods pull them by that name. A "+
			"start: kubectl run -it --rm sh --image=%s -- sh\n", registryAddress, busyboxImage)
	}
	return nil
}

// Kill kills a component, or several: all of the control plane but etcd (Control), or all of a real
// node (node-0: its kubelet, its containerd and its pods, as in a power failure).
func Kill(dir, component string) error {
	return change(dir, component, func(s *state) error {
		if i, ok := s.node(component); ok {
			return s.killNode(i)
		}
		return s.signal(component, syscall.SIGKILL, proc.Ended)
	})
}

// Pause suspends a component (SIGSTOP). Its clients wait.
func Pause(dir, component string) error {
	return change(dir, component, func(s *state) error {
		return s.signal(component, syscall.SIGSTOP, proc.Paused)
	})
}

// Resume continues a paused component.
func Resume(dir, component string) error {
	return change(dir, component, func(s *state) error {
		return s.signal(component, syscall.SIGCONT, proc.Running)
	})
}

// Start starts a killed component again, and returns when it serves.
func Start(ctx context.Context, dir, component string) error {
	return change(dir, component, func(s *state) error {
		since := time.Now()
		for _, name := range s.parts(component) {
			p, _ := s.process(name)
			if p.State() != proc.Ended {
				continue
			}
			if err := s.run(p.Command); err != nil {
				return err
			}
			if err := s.awaitComponent(ctx, name, since); err != nil {
				return err
			}
		}
		return nil
	})
}

// Slots sets the number of slots of each real node. They last until its kubelet is started by other
// means than Start.
func Slots(ctx context.Context, dir string, n int) error {
	if n < 0 {
		return fmt.Errorf("slots are %d, expected 0 or more", n)
	}
	return locked(dir, func(s *state) error {
		a, err := s.connect()
		if err != nil {
			return err
		}
		s.Slots = n
		for i := range s.Nodes {
			if err := s.await(ctx, "the slots of "+nodeName(i), []string{kubeletName(i)},
				func(ctx context.Context) error {
					return a.setSlots(ctx, nodeName(i), n)
				}); err != nil {
				return err
			}
		}
		return s.save()
	})
}

func load(dir string) (*state, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s, err := loadState(dir)
	if err == nil && s == nil {
		err = ErrNotUp
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	}
	return s, nil
}

// locked calls do while no other process can change the cluster.
func locked(dir string, do func(*state) error) error {
	s, err := load(dir)
	if err != nil {
		return err
	}
	held, err := lock(s.Dir)
	if err != nil {
		return err
	}
	defer held.Close()
	if s, err = load(dir); err != nil { // the state after the lock was taken
		return err
	}
	return do(s)
}

// change calls do for a component or a node, under the lock.
func change(dir, component string, do func(*state) error) error {
	return locked(dir, func(s *state) error {
		if names := s.names(); !slices.Contains(names, component) {
			return fmt.Errorf("%q is no component of the cluster, expected one of: %s", component,
				strings.Join(names, ", "))
		}
		return do(s)
	})
}

// names returns the names of components and nodes that commands accept.
func (s *state) names() []string {
	var names []string
	for _, p := range s.Processes {
		names = append(names, p.Name)
	}
	for i := range s.Nodes {
		names = append(names, nodeName(i))
	}
	return append(names, Control)
}

// Control is the name of the API server and all components that need it to make decisions. If only
// the API server were down for longer than nodes may be silent, the controllers would consider all
// nodes lost: so a long outage is one of them all.
const Control = "control"

// parts returns the processes of a name, in the order in which they start.
func (s *state) parts(name string) []string {
	if i, ok := s.node(name); ok {
		return []string{containerdName(i), kubeletName(i)}
	}
	if name == Control {
		return []string{"apiserver", "controllers", "scheduler"}
	}
	return []string{name}
}

// node returns the number of the real node of that name.
func (s *state) node(name string) (int, bool) {
	for i := range s.Nodes {
		if nodeName(i) == name {
			return i, true
		}
	}
	return 0, false
}

// signal sends a signal to all processes of a name, and returns when each of them is in the
// resulting state.
func (s *state) signal(name string, signal syscall.Signal, effect proc.State) error {
	for _, part := range slices.Backward(s.parts(name)) {
		p, _ := s.process(part)
		if !p.Signal(signal) {
			return fmt.Errorf("signal %s: process %d has ended", part, p.PID)
		}
		for deadline := time.Now().Add(10 * time.Second); p.State() != effect; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("signal %s: process %d is %v after 10 s, not %v", part, p.PID, p.State(), effect)
			}
		}
	}
	return nil
}

// killNode kills all processes of the node, and removes what is lost when a machine is switched
// off.
func (s *state) killNode(i int) error {
	groups, err := host.FindCgroups()
	if err != nil {
		return err
	}
	if err := proc.Kill(func() []int {
		return append(proc.Marked(nodeEntry(s.Mark, nodeName(i))), groups.Processes(cgroup(s.Mark, i))...)
	}, 10*time.Second); err != nil {
		return err
	}
	dir := s.path(nodeName(i))
	return errors.Join(host.Unmount(dir), os.RemoveAll(filepath.Join(dir, "containerd", "state")),
		os.RemoveAll(filepath.Join(dir, "containerd", "runc")))
}

// awaitComponent waits until a component that was started again does its work.
func (s *state) awaitComponent(ctx context.Context, name string, since time.Time) error {
	ask := func(context.Context) error { return nil }
	switch name {
	case "etcd":
		ask = s.storeServes
	case "apiserver":
		ask = s.serverReady
	case "registry":
		ask = s.registryServes
	case "dns", "proxy":
		ask = lookup
	case Kueue:
		ask = s.kueueServes
	case Karpenter:
		ask = s.karpenterServes
	}
	for i := range s.Nodes {
		switch name {
		case kubeletName(i):
			a, err := s.connect()
			if err != nil {
				return err
			}
			return s.awaitNode(ctx, a, i, since)
		case containerdName(i):
			ask = func(ctx context.Context) error { return s.runtimeServes(ctx, i) }
		}
	}
	return s.await(ctx, name, []string{name}, ask)
}

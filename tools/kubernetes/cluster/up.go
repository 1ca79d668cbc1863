package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/tools/kubernetes/host"
	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// patience is the time limit for the start of a component, which is generous for a busy machine.
const patience = 2 * time.Minute

// settings lists the kernel settings that kubelets and network plugins change on the machine.
var settings = []string{
	"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.route_localnet",
	"net.bridge.bridge-nf-call-iptables",
	"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
	"kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
	"fs.inotify.max_user_instances",
}

// Up starts the cluster, unless it runs, and reports its progress to out. Before that it removes
// the remains of a start that was interrupted, or of a crash; if it fails, it undoes everything
// except for the logs.
func Up(ctx context.Context, config Config, out io.Writer) error {
	if err := config.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(config.path("logs"), 0o755); err != nil {
		return err
	}
	held, err := lock(config.Dir)
	if err != nil {
		return err
	}
	defer held.Close()
	old, err := loadState(config.Dir)
	if err != nil {
		return err
	}
	if old != nil && old.running() {
		if old.Config != config {
			return fmt.Errorf("a cluster of %s is up in %s, and %s was asked for; end it first: cluster down --dir %s",
				old.describe(), config.Dir, config.describe(), config.Dir)
		}
		fmt.Fprintf(out, "the cluster in %s is up already\n", config.Dir)
		return nil
	}
	p := &progress{out: out, start: time.Now()}
	if err := cleanBefore(config, old, p); err != nil {
		return err
	}
	if config.Nodes > 0 {
		if packages := host.Missing(needs); len(packages) > 0 {
			if err := host.Install(ctx, packages); err != nil {
				return err
			}
			p.done("installed %s", strings.Join(packages, " "))
		}
	}
	s := &state{Config: config, Mark: strings.ToLower(rand.Text())}
	if err := s.up(ctx, p); err != nil {
		r, lost := loadRecord()
		// Undo only its own changes: the machine may have had another cluster.
		return errors.Join(err, lost, clean(s.Dir, s.Mark, r != nil && r.Mark == s.Mark))
	}
	return nil
}

// cleanBefore removes the remains of a cluster in this directory, and those of a cluster with real
// nodes if a new one needs the machine.
func cleanBefore(config Config, old *state, p *progress) error {
	r, err := loadRecord()
	if err != nil {
		return err
	}
	if r != nil && r.Dir != config.Dir && config.Nodes > 0 {
		if err := cleanOther(r, p); err != nil {
			return err
		}
	}
	ours := r != nil && r.Dir == config.Dir
	if old == nil && !ours {
		return nil
	}
	mark := ""
	if old != nil {
		mark = old.Mark
	} else {
		mark = r.Mark
	}
	if err := clean(config.Dir, mark, ours); err != nil {
		return err
	}
	p.done("cleaned up what was left of a cluster here")
	return nil
}

// cleanOther removes the remains of the cluster in another directory.
func cleanOther(r *record, p *progress) error {
	held, err := r.lock()
	if errors.Is(err, fs.ErrNotExist) { // it has been removed in the meantime
		return nil
	}
	if err != nil {
		return err
	}
	defer held.Close()
	now, err := loadRecord()
	// another process that held the lock before has done so
	if err != nil || now == nil || now.Mark != r.Mark {
		return err
	}
	if err := clean(r.Dir, r.Mark, true); err != nil {
		return err
	}
	p.done("cleaned up what was left of the cluster in %s", r.Dir)
	return nil
}

func (c *Config) describe() string {
	return fmt.Sprintf("--nodes=%d --slots=%d --kwok=%d --kwok-cpu=%s --kwok-memory=%s --bin=%s",
		c.Nodes, c.Slots, c.Kwok, c.KwokCPU, c.KwokMemory, c.Bin)
}

// up starts the components in the order of their dependencies.
func (s *state) up(ctx context.Context, p *progress) error {
	if err := s.prepare(); err != nil {
		return err
	}
	if s.Nodes > 0 {
		if err := s.takeMachine(); err != nil {
			return err
		}
	}
	if err := s.upControl(ctx, p); err != nil {
		return err
	}
	a, err := s.connect()
	if err != nil {
		return err
	}
	if s.Nodes > 0 {
		if err := s.upKubelets(ctx, a); err != nil {
			return err
		}
	}
	// The controllers must start after the nodes: if no node is ready when they start, they enter a
	// mode that may never evict pods.
	if err := s.run(s.controllers()); err != nil {
		return err
	}
	if s.Nodes > 0 {
		if err := s.upNodes(ctx, a, p); err != nil {
			return err
		}
	}
	if s.Kwok > 0 {
		if err := s.upFakes(ctx, a, p); err != nil {
			return err
		}
	}
	if err := s.await(ctx, "a service account for pods",
		[]string{"apiserver", "controllers", "scheduler"}, a.serviceAccount); err != nil {
		return err
	}
	s.Up = true
	if err := s.save(); err != nil {
		return err
	}
	p.done("the cluster is up: %d real nodes, %d fake nodes", s.Nodes, s.Kwok)
	return nil
}

// prepare creates the directories and files, and deletes old logs.
func (s *state) prepare() error {
	addresses, err := freeAddresses(3) // in one call, so that all of them differ
	if err != nil {
		return err
	}
	s.Store, s.Peer, s.Server = "http://"+addresses[0], "http://"+addresses[1], "https://"+addresses[2]
	if s.Nodes > 0 {
		s.Server = "https://" + nodeAddress + ":6443"
	}
	logs, err := filepath.Glob(s.path("logs", "*.log"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := os.Remove(log); err != nil {
			return err
		}
	}
	for _, dir := range []string{"pki", "bin", "logs"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(filepath.Join(s.Bin, "kube"), s.path("bin/kubectl")); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"kwok.yaml": string(stages), "proxy.yaml": s.proxyConfig(), "Corefile": s.dnsConfig(),
	} {
		if err := os.WriteFile(s.path(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := s.writePKI(time.Now()); err != nil {
		return err
	}
	return s.save()
}

// takeMachine records the state of the machine, and then changes it.
func (s *state) takeMachine() error {
	if found, err := host.HasFirewall(); err != nil {
		return err
	} else if found {
		// another cluster was started since the check
		if other, err := loadRecord(); err == nil && other != nil {
			return other.inUse()
		}
		return errors.New("this machine's firewall has rules of another Kubernetes: it is a node of " +
			"some cluster already")
	}
	before, err := host.ReadSettings(settings...)
	if err != nil {
		return err
	}
	if err := (&record{Dir: s.Dir, Mark: s.Mark, Settings: before}).claim(); err != nil {
		return err
	}
	// Each followed container takes one, and the default is 128 for all of a user's processes.
	if err := (host.Settings{"fs.inotify.max_user_instances": "1024"}).Write(); err != nil {
		return err
	}
	if err := host.AddAddress(nodeAddress); err != nil {
		return err
	}
	for i := range s.Nodes {
		if err := s.prepareNode(i); err != nil {
			return err
		}
	}
	return os.WriteFile(s.path("registry"), []byte(registryAddress+"\n"), 0o644)
}

// upControl starts the control plane, and the services that nodes need before their first pod.
func (s *state) upControl(ctx context.Context, p *progress) error {
	commands := []proc.Command{s.etcd()}
	if s.Nodes > 0 {
		commands = append(commands, s.registry())
		for i := range s.Nodes {
			commands = append(commands, s.containerd(i))
		}
	}
	if err := s.runAll(commands...); err != nil {
		return err
	}
	if err := s.await(ctx, "the store", []string{"etcd"}, s.storeServes); err != nil {
		return err
	}
	p.done("etcd serves")
	if err := s.run(s.apiserver()); err != nil {
		return err
	}
	if s.Nodes > 0 {
		if err := s.await(ctx, "the registry", []string{"registry"}, s.registryServes); err != nil {
			return err
		}
		if err := s.pushImages(); err != nil {
			return err
		}
		p.done("the registry at %s has the images pause:1 and busybox:1", registryAddress)
	}
	if err := s.await(ctx, "the API server", []string{"apiserver", "etcd"}, s.serverReady); err != nil {
		return err
	}
	p.done("the API server is ready at %s", s.Server)
	// The scheduler must start now and not earlier: before the rules exist its requests would be
	// refused, and it would wait before it retries.
	return s.run(s.scheduler())
}

func (s *state) runAll(commands ...proc.Command) error {
	for _, command := range commands {
		if err := s.run(command); err != nil {
			return err
		}
	}
	return nil
}

// upKubelets starts the nodes one after the other, and waits until each reports that it is ready.
// Every kubelet of a machine removes and makes the same socket for device plugins, whose path is
// fixed: of two that start together, one may end with "address already in use".
func (s *state) upKubelets(ctx context.Context, a *api) error {
	for i := range s.Nodes {
		if err := s.await(ctx, "containerd of "+nodeName(i), []string{containerdName(i)},
			func(ctx context.Context) error {
				return s.runtimeServes(ctx, i)
			}); err != nil {
			return err
		}
		if err := s.run(s.kubelet(i)); err != nil {
			return err
		}
		if err := s.await(ctx, nodeName(i), []string{kubeletName(i), containerdName(i), "apiserver"},
			func(ctx context.Context) error {
				return a.nodeSays(ctx, nodeName(i))
			}); err != nil {
			return err
		}
	}
	return nil
}

// upNodes starts kube-proxy and DNS, and waits until pods could run and find each other.
func (s *state) upNodes(ctx context.Context, a *api, p *progress) error {
	if err := s.runAll(s.proxy(), s.dns()); err != nil {
		return err
	}
	// The API server is ready before it has read the range of Service addresses.
	if err := s.await(ctx, "the service of DNS", []string{"apiserver", "etcd"}, a.createDNSService); err != nil {
		return err
	}
	for i := range s.Nodes {
		if err := s.awaitNode(ctx, a, i, time.Time{}); err != nil {
			return err
		}
	}
	p.done("%d real nodes are ready", s.Nodes)
	if err := s.await(ctx, "names of services", []string{"dns", "proxy", "apiserver"}, lookup); err != nil {
		return err
	}
	p.done("services are reached by name")
	return nil
}

// awaitNode waits until node i accepts pods, and has renewed its lease after since.
func (s *state) awaitNode(ctx context.Context, a *api, i int, since time.Time) error {
	components := []string{kubeletName(i), containerdName(i), "apiserver", "controllers"}
	return s.await(ctx, nodeName(i), components, func(ctx context.Context) error {
		if err := a.nodeReady(ctx, nodeName(i), since); err != nil || s.Slots == 0 {
			return err
		}
		return a.setSlots(ctx, nodeName(i), s.Slots)
	})
}

func (s *state) upFakes(ctx context.Context, a *api, p *progress) error {
	if err := s.run(s.kwok()); err != nil {
		return err
	}
	if err := s.createFakeNodes(ctx, a.client); err != nil {
		return err
	}
	if err := s.await(ctx, "the fake nodes", []string{"kwok", "apiserver", "controllers"},
		func(ctx context.Context) error {
			return a.fakesReady(ctx, s.Kwok)
		}); err != nil {
		return err
	}
	p.done("%d fake nodes are ready", s.Kwok)
	return nil
}

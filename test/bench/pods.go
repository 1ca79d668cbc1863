package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// pods has network namespaces of this machine, joined by a bridge as a node joins its pods. The
// bridge is in another namespace, so that the machine's own network does not change.
type pods struct {
	bridge string
	names  []string
}

// newPods creates n namespaces. The error is a missingPeer if this process has no permission, or
// the machine does not support it.
func newPods(ctx context.Context, n int) (*pods, error) {
	if os.Geteuid() != 0 {
		return nil, missingPeer("network namespaces are made by root only")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, missingPeer("no command ip: apt-get install iproute2")
	}
	p := &pods{bridge: fmt.Sprintf("elasticdl-bench-%d", os.Getpid())}
	for i := range n {
		p.names = append(p.names, fmt.Sprintf("%s-%d", p.bridge, i))
	}
	commands := []string{
		"netns add " + p.bridge,
		"-n " + p.bridge + " link add br0 type bridge",
		"-n " + p.bridge + " link set br0 up",
	}
	for i, name := range p.names {
		commands = append(commands,
			"netns add "+name,
			fmt.Sprintf("-n %s link add eth0 type veth peer name pod%d netns %s", name, i, p.bridge),
			fmt.Sprintf("-n %s link set pod%d master br0 up", p.bridge, i),
			fmt.Sprintf("-n %s address add %s/24 dev eth0", name, p.host(i)),
			"-n "+name+" link set eth0 up",
			"-n "+name+" link set lo up",
		)
	}
	for _, c := range commands {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			p.end(ctx)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, missingPeer(fmt.Sprintf("this machine has no network namespaces for us: ip "+
				"%s: %v: %s", c, err, strings.TrimSpace(string(out))))
		}
	}
	return p, nil
}

// end removes those namespaces that were created.
func (p *pods) end(ctx context.Context) {
	for _, name := range append([]string{p.bridge}, p.names...) {
		// it may not have been created
		exec.CommandContext(context.WithoutCancel(ctx), "ip", "netns", "delete", name).Run()
	}
}

// host returns the address of a pod.
func (p *pods) host(i int) string { return fmt.Sprintf("10.231.77.%d", i+1) }

// enter returns the prefix of a command that runs in a pod.
func (p *pods) enter(i int) []string { return []string{"ip", "netns", "exec", p.names[i]} }

// spaces returns the files of the namespaces; none if there are no pods.
func (p *pods) spaces() []string {
	if p == nil {
		return nil
	}
	var all []string
	for _, name := range p.names {
		all = append(all, "/run/netns/"+name)
	}
	return all
}

// Package cluster runs a Kubernetes cluster on this machine, for tests and for manual use.
//
// # What there is
//
// A cluster has one etcd, one API server, one controller manager, one scheduler, and two kinds of
// nodes. A real node is a kubelet with a containerd, a control group and a bridge of its own: its
// pods are real containers. Real nodes share the address 10.255.0.1 of the loopback device, which
// is also the API server's, one kube-proxy, one CoreDNS and one image registry. A fake node is an
// object that kwok simulates: its pods are Running once bound, and deleted without delay. A cluster
// of fake nodes needs no root rights and no packages, listens on 127.0.0.1 only, and does not
// disturb other clusters. Kueue and Karpenter can be added to a cluster that runs, and removed
// again; Karpenter listens on two ports of all addresses.
//
// # Laws
//
// All files of a cluster are in its directory, and its other changes of the machine have known
// names. So whatever has ended `up` or the machine's processes, `down` finds the rest and ends it,
// and nothing else: each process has the cluster's random mark in its environment, or is in a
// control group of the cluster. A machine has at most one cluster with real nodes; the file at
// recordPath names it.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Config describes a cluster.
type Config struct {
	// directory of the cluster
	Dir string `json:"-"`
	// directory with kube, coredns, kwok, pause and this program
	Bin string `json:"bin"`
	// real nodes
	Nodes int `json:"nodes"`
	// number of the resource elastic.dev/slot on each real node
	Slots int `json:"slots"`
	// fake nodes
	Kwok int `json:"kwok"`
	// of each fake node
	KwokCPU string `json:"kwokCPU"`
	// of each fake node
	KwokMemory string `json:"kwokMemory"`
}

// SlotResource is the name of a resource without a meaning, of which tests have few.
const SlotResource = "elastic.dev/slot"

const (
	// address of all real nodes, the API server and DNS; kubelets refuse 127/8
	nodeAddress     = "10.255.0.1"
	serviceCIDR     = "10.96.0.0/16"
	apiService      = "10.96.0.1"
	dnsService      = "10.96.0.10"
	podCIDR         = "10.244.0.0/16"
	registryAddress = "127.0.0.1:5000"
	maxNodes        = 8
	// sockets in the directory have paths of at most 107 bytes
	maxDirLength = 60
)

// check reports all problems of the flags at once, and makes paths absolute.
func (c *Config) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		wrong("--dir: %w", err)
	}
	if c.Bin, err = filepath.Abs(c.Bin); err != nil {
		wrong("--bin: %w", err)
	}
	if len(c.Dir) > maxDirLength {
		wrong("--dir is %q, expected a path of at most %d bytes: sockets are made in it", c.Dir, maxDirLength)
	}
	if strings.ContainsAny(c.Dir, " \t\n\"\\") {
		wrong("--dir is %q, expected a path without spaces, quotes and backslashes", c.Dir)
	}
	if c.Nodes < 0 || c.Nodes > maxNodes {
		wrong("--nodes is %d, expected 0 to %d", c.Nodes, maxNodes)
	}
	if c.Kwok < 0 || c.Kwok > 5000 {
		wrong("--kwok is %d, expected 0 to 5000", c.Kwok)
	}
	if c.Nodes == 0 && c.Kwok == 0 {
		wrong("--nodes and --kwok are 0, expected at least one node")
	}
	if c.Slots < 0 {
		wrong("--slots is %d, expected 0 or more", c.Slots)
	}
	if _, err := resource.ParseQuantity(c.KwokCPU); err != nil && c.Kwok > 0 {
		wrong("--kwok-cpu is %q, expected a quantity such as 8 or 500m", c.KwokCPU)
	}
	if _, err := resource.ParseQuantity(c.KwokMemory); err != nil && c.Kwok > 0 {
		wrong("--kwok-memory is %q, expected a quantity such as 16Gi", c.KwokMemory)
	}
	if c.Nodes > 0 && os.Geteuid() != 0 {
		wrong("--nodes is %d and this is not root: real nodes need root; without it, expected "+
			"--nodes=0 --kwok=N", c.Nodes)
	}
	for _, name := range c.binaries() {
		if _, err := os.Stat(filepath.Join(c.Bin, name)); err != nil {
			wrong("--bin is %q, which has no %s; `make cluster-up` builds it", c.Bin, name)
		}
	}
	return errors.Join(errs...)
}

func (c *Config) binaries() []string {
	names := []string{"kube"}
	if c.Nodes > 0 {
		names = append(names, "cluster", "coredns", "pause")
	}
	if c.Kwok > 0 {
		names = append(names, "kwok")
	}
	return names
}

func (c *Config) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// bridge returns the name of the bridge that joins the pods of a node.
func bridge(i int) string { return fmt.Sprintf("elasticdl%d", i) }

// cgroup returns the control group of all pods of a node, in the cluster with that mark.
func cgroup(mark string, i int) string { return fmt.Sprintf("elasticdl-%.8s-%s", mark, nodeName(i)) }

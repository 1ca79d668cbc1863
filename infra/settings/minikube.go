package settings

import (
	"regexp"
	"slices"
	"strings"
)

var (
	isProfile    = regexp.MustCompile(`^[a-z0-9][-a-z0-9]{0,48}[a-z0-9]$`)
	isKubernetes = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)
)

var (
	drivers = []string{"docker", "podman", "kvm2", "qemu", "vfkit", "krunkit", "hyperv", "parallels",
		"virtualbox", "vmware"}
	cnis = []string{"auto", "bridge", "calico", "cilium", "flannel", "kindnet"}
)

func (m *Minikube) check(s *Settings, in Input, p *Problems) {
	const at = "minikube."
	p.Check(isProfile.MatchString(m.Profile), at+"profile",
		"%s: expected 2 to 50 lower-case letters, digits and '-', beginning and ending with a "+
			"letter or digit", m.Profile)
	p.Check(m.Profile != "minikube" || m.Adopt, at+"profile",
		"minikube: that is minikube's default profile, and the stack would delete it: give "+
			"another, or adopt: true")
	if m.Driver != "" {
		p.Check(slices.Contains(drivers, m.Driver), at+"driver", "%s: expected %s", m.Driver, list(drivers))
	}
	p.within(at+"cpus", m.CPUs, 2, 1024)
	p.within(at+"memoryMb", m.MemoryMB, 1800, 4<<20)
	p.within(at+"diskGb", m.DiskGB, 10, maxDisk)
	p.Check(isKubernetes.MatchString(m.KubernetesVersion), at+"kubernetesVersion",
		"%s: expected a version, as v1.35.0", orMissing(m.KubernetesVersion))
	if m.CNI != "" {
		p.Check(slices.Contains(cnis, m.CNI), at+"cni", "%s: expected %s", m.CNI, list(cnis))
	}
	if m.GPUs != "" {
		p.oneOf(at+"gpus", m.GPUs, "all", "nvidia", "amd")
		p.Check(m.Driver == "docker", at+"gpus", "%s: those of this machine are seen with driver: docker only", m.GPUs)
	}
	p.Check(!strings.Contains(m.Data, ":"), at+"data", "%s: expected a path without ':'", m.Data)
	if m.Data != "" && !m.Adopt {
		if directory, err := in.Stat(m.Data); err != nil || !directory {
			s.note("minikube.data: no directory %s: make it before `pulumi up`, as elasticdl "+
				"dataset mnist %[1]s/mnist does", m.Data)
		}
	}
}

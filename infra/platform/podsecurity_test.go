package platform

import (
	"testing"

	core "k8s.io/api/core/v1"
)

// strict returns a pod that every level accepts.
func strict() *core.Pod {
	return &core.Pod{Spec: core.PodSpec{
		SecurityContext: &core.PodSecurityContext{RunAsNonRoot: new(true),
			SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault}},
		Volumes: []core.Volume{
			{Name: "v", VolumeSource: core.VolumeSource{
				PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
		Containers: []core.Container{{Name: "c", SecurityContext: &core.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &core.Capabilities{Drop: []core.Capability{"ALL"}},
		}}},
	}}
}

// Each rule of the Pod Security Standards refuses the right pods, also by the rules of older
// clusters.
func TestAgainst(t *testing.T) {
	type (
		pod = core.PodSpec
		box = core.Container
	)
	unconfined := &core.SeccompProfile{Type: core.SeccompProfileTypeUnconfined}
	host := core.ProbeHandler{HTTPGet: &core.HTTPGetAction{Host: "169.254.169.254"}}
	for _, test := range []struct {
		name   string
		level  string // the strictest level that accepts the pod
		change func(*pod, *box)
	}{
		{"nothing", restricted, func(*pod, *box) {}},
		{"host network", privileged, func(p *pod, _ *box) { p.HostNetwork = true }},
		{"host processes", privileged, func(p *pod, _ *box) { p.HostPID = true }},
		{"host IPC", privileged, func(p *pod, _ *box) { p.HostIPC = true }},
		{"host path", privileged, func(p *pod, _ *box) {
			p.Volumes[0].VolumeSource = core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: "/data"}}
		}},
		{"NFS", baseline, func(p *pod, _ *box) {
			p.Volumes[0].VolumeSource = core.VolumeSource{NFS: &core.NFSVolumeSource{Server: "s"}}
		}},
		{"memory", restricted, func(p *pod, _ *box) {
			p.Volumes[0].VolumeSource = core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{Medium: "Memory"}}
		}},
		{"sysctl", privileged, func(p *pod, _ *box) {
			p.SecurityContext.Sysctls = []core.Sysctl{{Name: "kernel.msgmax"}}
		}},
		{"sysctl that is safe since 1.32", privileged, func(p *pod, _ *box) {
			p.SecurityContext.Sysctls = []core.Sysctl{{Name: "net.ipv4.tcp_rmem"}}
		}},
		{"safe sysctl", restricted, func(p *pod, _ *box) {
			p.SecurityContext.Sysctls = []core.Sysctl{{Name: "net.ipv4.tcp_syncookies"}}
		}},
		{"pod unconfined", privileged, func(p *pod, _ *box) { p.SecurityContext.SeccompProfile = unconfined }},
		{"container unconfined", privileged, func(_ *pod, c *box) { c.SecurityContext.SeccompProfile = unconfined }},
		{"no seccomp", baseline, func(p *pod, _ *box) { p.SecurityContext.SeccompProfile = nil }},
		{"no AppArmor", privileged, func(p *pod, _ *box) {
			p.SecurityContext.AppArmorProfile = &core.AppArmorProfile{Type: core.AppArmorProfileTypeUnconfined}
		}},
		{"own AppArmor", restricted, func(_ *pod, c *box) {
			c.SecurityContext.AppArmorProfile = &core.AppArmorProfile{Type: core.AppArmorProfileTypeLocalhost}
		}},
		{"SELinux type", privileged, func(_ *pod, c *box) {
			c.SecurityContext.SELinuxOptions = &core.SELinuxOptions{Type: "spc_t"}
		}},
		{"SELinux user", privileged, func(p *pod, _ *box) {
			p.SecurityContext.SELinuxOptions = &core.SELinuxOptions{User: "u"}
		}},
		{"SELinux level", restricted, func(_ *pod, c *box) {
			c.SecurityContext.SELinuxOptions = &core.SELinuxOptions{Type: "container_t", Level: "s0"}
		}},
		{"host process", privileged, func(p *pod, _ *box) {
			p.SecurityContext.WindowsOptions = &core.WindowsSecurityContextOptions{HostProcess: new(true)}
		}},
		{"host port", privileged, func(_ *pod, c *box) {
			c.Ports = []core.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}},
		{"port", restricted, func(_ *pod, c *box) { c.Ports = []core.ContainerPort{{ContainerPort: 80}} }},
		{"probe", privileged, func(_ *pod, c *box) { c.StartupProbe = &core.Probe{ProbeHandler: host} }},
		{"hook", privileged, func(_ *pod, c *box) {
			c.Lifecycle = &core.Lifecycle{PreStop: &core.LifecycleHandler{HTTPGet: host.HTTPGet}}
		}},
		{"privileged", privileged, func(_ *pod, c *box) { c.SecurityContext.Privileged = new(true) }},
		{"proc mount", privileged, func(_ *pod, c *box) { c.SecurityContext.ProcMount = new(core.UnmaskedProcMount) }},
		{"capability", privileged, func(_ *pod, c *box) {
			c.SecurityContext.Capabilities.Add = []core.Capability{"SYS_PTRACE"}
		}},
		{"usual capability", baseline, func(_ *pod, c *box) {
			c.SecurityContext.Capabilities.Add = []core.Capability{"CHOWN"}
		}},
		{"low ports", restricted, func(_ *pod, c *box) {
			c.SecurityContext.Capabilities.Add = []core.Capability{"NET_BIND_SERVICE"}
		}},
		{"capabilities", baseline, func(_ *pod, c *box) { c.SecurityContext.Capabilities = nil }},
		{"some dropped", baseline, func(_ *pod, c *box) {
			c.SecurityContext.Capabilities.Drop = []core.Capability{"CHOWN"}
		}},
		{"escalation", baseline, func(_ *pod, c *box) { c.SecurityContext.AllowPrivilegeEscalation = nil }},
		{"nothing said", baseline, func(p *pod, c *box) { p.SecurityContext, c.SecurityContext = nil, nil }},
		{"root", baseline, func(p *pod, _ *box) { p.SecurityContext.RunAsNonRoot = nil }},
		{"root container", baseline, func(_ *pod, c *box) { c.SecurityContext.RunAsNonRoot = new(false) }},
		{"root pod", baseline, func(p *pod, c *box) {
			p.SecurityContext.RunAsNonRoot, c.SecurityContext.RunAsNonRoot = new(false), new(true)
		}},
		{"user 0", baseline, func(_ *pod, c *box) { c.SecurityContext.RunAsUser = new(int64(0)) }},
		{"pod of user 0", baseline, func(p *pod, _ *box) { p.SecurityContext.RunAsUser = new(int64(0)) }},
		{"first container", privileged, func(p *pod, _ *box) {
			p.InitContainers = []core.Container{
				{Name: "i", SecurityContext: &core.SecurityContext{Privileged: new(true)}}}
		}},
	} {
		p := strict()
		test.change(&p.Spec, &p.Spec.Containers[0])
		got := restricted
		for _, level := range []string{restricted, baseline, privileged} {
			if got = level; len(against(level, p)) == 0 {
				break
			}
		}
		if got != test.level {
			t.Errorf("%s: the strictest that takes it is %s, want %s; %s has against it %q", test.name,
				got, test.level, restricted, against(restricted, p))
		}
	}
	p := strict()
	p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
	if bad := against(baseline, p); len(bad) != 1 {
		t.Errorf("the annotation of old: %q", bad)
	}
}

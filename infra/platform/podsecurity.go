package platform

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
)

// Levels of Pod Security, the least strict first.
const (
	privileged = "privileged"
	baseline   = "baseline"
	restricted = "restricted"
)

// podSecurityVersion is the version of Kubernetes that defines the levels: without it a cluster
// that is upgraded may refuse pods that it accepted before. Older clusters use their own version
// instead.
const podSecurityVersion = "v1.36"

// against returns the violations of a level by a pod, in words. It is as strict as the strictest
// version of Kubernetes since 1.30: it accepts no exemption for user namespaces and Windows, which
// some versions make.
func against(level string, t *core.PodTemplateSpec) []string {
	if level == privileged {
		return nil
	}
	var bad complaints
	baselinePod(&bad, t)
	for _, c := range containers(&t.Spec) {
		baselineContainer(&bad, c)
	}
	if level == restricted {
		restrictedPod(&bad, &t.Spec)
		for _, c := range containers(&t.Spec) {
			restrictedContainer(&bad, &t.Spec, c)
		}
	}
	return bad
}

type complaints []string

func (c *complaints) when(bad bool, format string, args ...any) {
	if bad {
		*c = append(*c, fmt.Sprintf(format, args...))
	}
}

func containers(p *core.PodSpec) []*core.Container {
	var all []*core.Container
	for i := range p.InitContainers {
		all = append(all, &p.InitContainers[i])
	}
	for i := range p.Containers {
		all = append(all, &p.Containers[i])
	}
	return all
}

// safeSysctls lists the sysctls that affect only the pod.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
}

func baselinePod(bad *complaints, t *core.PodTemplateSpec) {
	p := &t.Spec
	bad.when(p.HostNetwork, "hostNetwork")
	bad.when(p.HostPID, "hostPID")
	bad.when(p.HostIPC, "hostIPC")
	for _, v := range p.Volumes {
		bad.when(v.HostPath != nil, "volume %s is a hostPath", v.Name)
	}
	for key, value := range t.Annotations {
		old, ok := strings.CutPrefix(key, core.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		bad.when(ok && value != "" && value != core.DeprecatedAppArmorBetaProfileRuntimeDefault &&
			!strings.HasPrefix(value, core.DeprecatedAppArmorBetaProfileNamePrefix),
			"AppArmor profile %s of container %s", value, old)
	}
	if s := p.SecurityContext; s != nil {
		profiles(bad, "pod", s.SeccompProfile, s.AppArmorProfile, s.SELinuxOptions, s.WindowsOptions)
		for _, c := range s.Sysctls {
			bad.when(!slices.Contains(safeSysctls, c.Name), "sysctl %s", c.Name)
		}
	}
}

// profiles checks the fields that both pods and containers have.
func profiles(bad *complaints, who string, seccomp *core.SeccompProfile, armor *core.AppArmorProfile,
	linux *core.SELinuxOptions, windows *core.WindowsSecurityContextOptions) {
	bad.when(seccomp != nil && !confines(seccomp), "%s has seccomp profile %q", who, seccompType(seccomp))
	bad.when(armor != nil && armor.Type != core.AppArmorProfileTypeRuntimeDefault &&
		armor.Type != core.AppArmorProfileTypeLocalhost, "%s has no AppArmor profile", who)
	if linux != nil {
		bad.when(!slices.Contains([]string{"", "container_t", "container_init_t", "container_kvm_t"},
			linux.Type), "%s has SELinux type %s", who, linux.Type)
		bad.when(linux.User != "" || linux.Role != "", "%s has an SELinux user or role", who)
	}
	bad.when(windows != nil && windows.HostProcess != nil && *windows.HostProcess, "%s is a hostProcess", who)
}

func confines(s *core.SeccompProfile) bool {
	return s.Type == core.SeccompProfileTypeRuntimeDefault || s.Type == core.SeccompProfileTypeLocalhost
}

func seccompType(s *core.SeccompProfile) core.SeccompProfileType {
	if s == nil {
		return ""
	}
	return s.Type
}

// dockerCapabilities lists the capabilities that a container has by default.
var dockerCapabilities = []core.Capability{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

func baselineContainer(bad *complaints, c *core.Container) {
	who := "container " + c.Name
	for _, p := range c.Ports {
		bad.when(p.HostPort != 0, "%s has host port %d", who, p.HostPort)
	}
	for _, p := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		bad.when(p != nil && elsewhere(p.HTTPGet, p.TCPSocket), "%s has a probe of another host", who)
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*core.LifecycleHandler{l.PostStart, l.PreStop} {
			bad.when(h != nil && elsewhere(h.HTTPGet, h.TCPSocket), "%s has a hook to another host", who)
		}
	}
	s := c.SecurityContext
	if s == nil {
		return
	}
	profiles(bad, who, s.SeccompProfile, s.AppArmorProfile, s.SELinuxOptions, s.WindowsOptions)
	bad.when(s.Privileged != nil && *s.Privileged, "%s is privileged", who)
	bad.when(s.ProcMount != nil && *s.ProcMount != core.DefaultProcMount, "%s has procMount", who)
	if s.Capabilities != nil {
		for _, capability := range s.Capabilities.Add {
			bad.when(!slices.Contains(dockerCapabilities, capability), "%s has capability %s", who, capability)
		}
	}
}

func elsewhere(get *core.HTTPGetAction, socket *core.TCPSocketAction) bool {
	return get != nil && get.Host != "" || socket != nil && socket.Host != ""
}

func restrictedPod(bad *complaints, p *core.PodSpec) {
	for _, v := range p.Volumes {
		ok := v.ConfigMap != nil || v.CSI != nil || v.DownwardAPI != nil || v.EmptyDir != nil || v.Ephemeral != nil ||
			// baseline reports hostPath already
			v.PersistentVolumeClaim != nil || v.Projected != nil || v.Secret != nil || v.HostPath != nil
		bad.when(!ok, "volume %s is of the node or of a server", v.Name)
	}
	if s := p.SecurityContext; s != nil {
		bad.when(s.RunAsUser != nil && *s.RunAsUser == 0, "pod has runAsUser 0")
		bad.when(s.RunAsNonRoot != nil && !*s.RunAsNonRoot, "pod has runAsNonRoot false")
	}
}

func restrictedContainer(bad *complaints, p *core.PodSpec, c *core.Container) {
	who, s, of := "container "+c.Name, c.SecurityContext, p.SecurityContext
	if s == nil {
		s = &core.SecurityContext{}
	}
	if of == nil {
		of = &core.PodSecurityContext{}
	}
	bad.when(s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation,
		"%s has not allowPrivilegeEscalation false", who)
	bad.when(s.RunAsNonRoot == nil && of.RunAsNonRoot == nil || s.RunAsNonRoot != nil &&
		!*s.RunAsNonRoot, "%s has not runAsNonRoot true", who)
	bad.when(s.RunAsUser != nil && *s.RunAsUser == 0, "%s has runAsUser 0", who)
	bad.when(s.SeccompProfile == nil && of.SeccompProfile == nil, "%s has no seccomp profile", who)
	var has core.Capabilities
	if s.Capabilities != nil {
		has = *s.Capabilities
	}
	bad.when(!slices.Contains(has.Drop, "ALL"), "%s does not drop all capabilities", who)
	bad.when(slices.ContainsFunc(has.Add, func(c core.Capability) bool {
		return c != "NET_BIND_SERVICE"
	}), "%s adds capabilities", who)
}

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/tools/kubernetes/host"
	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// cniBin is the directory of Debian's network plugins.
const cniBin = "/usr/lib/cni"

// needs lists the packages that real nodes need.
var needs = []host.Need{
	{Path: "containerd", Package: "containerd"},
	{Path: "runc", Package: "runc"},
	{Path: cniBin + "/bridge", Package: "containernetworking-plugins"},
	{Path: "iptables-restore", Package: "iptables"},
	{Path: "ip", Package: "iproute2"},
	{Path: "conntrack", Package: "conntrack"},
	{Path: busyboxPath, Package: "busybox-static"},
}

// prepareNode creates the directory and the control group of a node.
func (s *state) prepareNode(i int) error {
	dir := s.path(nodeName(i))
	for name, content := range map[string]string{
		"containerd.toml":   containerdConfig(dir),
		"cni/pods.conflist": networkConfig(dir, i),
		"kubelet.yaml":      s.kubeletConfig(i),
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	groups, err := host.FindCgroups()
	if err != nil {
		return err
	}
	return groups.Create(cgroup(s.Mark, i))
}

// containerdConfig returns containerd's configuration, with all state in dir. Without
// restrict_oom_score_adj no pod starts where root may not lower that value.
func containerdConfig(dir string) string {
	return fmt.Sprintf(`version = 2
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[2]s"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "%[3]s"
  conf_dir = "%[1]s/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "%[1]s/containerd/runc"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."%[4]s"]
  endpoint = ["http://%[4]s"]
`, dir, pauseImage, cniBin, registryAddress)
}

// networkConfig returns the configuration that gives each pod of node i an address of 10.244.i.0/24
// on the node's bridge. The machine routes between the bridges.
func networkConfig(dir string, i int) string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "%[1]s", "plugins": [{
  "type": "bridge", "bridge": "%[1]s", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "%[2]s/addresses",
    "ranges": [[{"subnet": "10.244.%[3]d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, bridge(i), dir, i)
}

// kubeletConfig returns the kubelet's configuration, which differs from the defaults: it has its
// own control group; it renews its lease every 2 s, so that 12 s of silence mean a lost node; it
// adds no chains to the firewall, and no names of this machine's network to pods; eviction and
// garbage collection start only when the machine is almost full, because the machine also serves
// others.
func (s *state) kubeletConfig(i int) string {
	dir := s.path(nodeName(i))
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%[1]s
containerRuntimeEndpoint: unix://%[2]s/containerd.sock
address: %[3]s
port: %[4]d
readOnlyPort: 0
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %[5]s/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
tlsCertFile: %[5]s/pki/kubelet.crt
tlsPrivateKeyFile: %[5]s/pki/kubelet.key
failSwapOn: false
makeIPTablesUtilChains: false
clusterDNS: [%[6]s]
clusterDomain: cluster.local
resolvConf: ""
nodeLeaseDurationSeconds: 8
nodeStatusUpdateFrequency: 5s
registryPullQPS: 0
serializeImagePulls: false
maxParallelImagePulls: 4
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
podLogsDir: %[2]s/pod-logs
volumePluginDir: %[2]s/plugins
`, cgroup(s.Mark, i), dir, nodeAddress, 10250+10*i, s.Dir, dnsService)
}

func containerdName(i int) string { return fmt.Sprintf("containerd-%d", i) }
func kubeletName(i int) string    { return fmt.Sprintf("kubelet-%d", i) }

// nodeEntry returns the entry in the environment that marks the processes of one node, in addition
// to the cluster's mark.
func nodeEntry(mark, node string) string { return "ELASTICDL_CLUSTER_NODE=" + mark + "/" + node }

func (s *state) containerd(i int) proc.Command {
	c := s.command(containerdName(i), "kube")
	c.Args = []string{"containerd", "-c", s.path(nodeName(i), "containerd.toml")}
	c.Env = append(c.Env, nodeEntry(s.Mark, nodeName(i)))
	return c
}

func (s *state) kubelet(i int) proc.Command {
	dir := s.path(nodeName(i))
	c := s.command(kubeletName(i), "kube", "kubelet",
		"--config="+filepath.Join(dir, "kubelet.yaml"),
		"--kubeconfig="+s.path("pki", nodeName(i)+".kubeconfig"),
		"--hostname-override="+nodeName(i),
		"--node-ip="+nodeAddress,
		"--root-dir="+filepath.Join(dir, "kubelet"),
		"--cert-dir="+filepath.Join(dir, "pki"),
	)
	c.Env = append(c.Env, nodeEntry(s.Mark, nodeName(i)))
	return c
}

func (s *state) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %s}
mode: iptables
clusterCIDR: %s
hostnameOverride: %s
bindAddress: %s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 100ms, localhostNodePorts: false}
`, s.path("pki/proxy.kubeconfig"), podCIDR, nodeName(0), nodeAddress)
}

func (s *state) dnsConfig() string {
	return fmt.Sprintf(`.:53 {
    bind %s
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s
        pods insecure
        ttl 2
    }
}
`, nodeAddress, s.path("admin.kubeconfig"))
}

func (s *state) proxy() proc.Command {
	return s.command("proxy", "kube", "kube-proxy", "--config="+s.path("proxy.yaml"))
}

func (s *state) dns() proc.Command {
	return s.command("dns", "coredns", "-conf", s.path("Corefile"))
}

func (s *state) registry() proc.Command {
	return s.command("registry", "cluster", "registry", "--listen", registryAddress, "--dir", s.path("images"))
}

// Kubelet returns the name of the kubelet of a real node, as commands accept it.
func Kubelet(node string) string {
	return "kubelet" + strings.TrimPrefix(node, "node")
}

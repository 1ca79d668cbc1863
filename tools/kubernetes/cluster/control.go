package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/tools/kubernetes/pki"
	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// writePKI writes all certificates, and the kubeconfigs of the API server's clients.
func (s *state) writePKI(now time.Time) error {
	authority, err := pki.NewAuthority(now)
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": authority.Cert, "ca.key": authority.Key}
	if files["tokens.key"], files["tokens.pub"], err = pki.NewKey(); err != nil {
		return err
	}
	masters := []string{"system:masters"}
	servers := []string{"localhost", "127.0.0.1", nodeAddress, apiService, "kubernetes",
		"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	for file, of := range map[string]struct {
		name          string
		groups, hosts []string
	}{
		"apiserver":         {"kube-apiserver", nil, servers},
		"apiserver-kubelet": {"kube-apiserver-kubelet-client", masters, nil},
		"kubelet":           {"kubelet", nil, []string{"localhost", "127.0.0.1", nodeAddress}},
		"kueue-webhook":     {"kueue-webhook", nil, []string{"127.0.0.1"}},
	} {
		pair, err := authority.Issue(of.name, of.groups, of.hosts)
		if err != nil {
			return err
		}
		files[file+".crt"], files[file+".key"] = pair.Cert, pair.Key
	}
	users := map[string][2]string{
		// The controllers act as the admin: with identities of their own they take 5 s longer to
		// start.
		"admin":     {"admin", "system:masters"},
		"scheduler": {"system:kube-scheduler", ""},
		"proxy":     {"system:kube-proxy", ""},
		// Kueue has the rights of the ServiceAccount that its module ships.
		"kueue": {"system:serviceaccount:kueue-system:kueue-controller-manager",
			"system:serviceaccounts system:authenticated"},
	}
	for i := range s.Nodes {
		users[nodeName(i)] = [2]string{"system:node:" + nodeName(i), "system:nodes"}
	}
	for file, user := range users {
		pair, err := authority.Issue(user[0], strings.Fields(user[1]), nil)
		if err != nil {
			return err
		}
		files[file+".kubeconfig"] = pki.Kubeconfig(s.Server, authority.Cert, pair)
	}
	for name, content := range files {
		if err := os.WriteFile(s.path("pki", name), content, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(s.path("admin.kubeconfig"), files["admin.kubeconfig"], 0o600)
}

// command returns the command of a component of the cluster.
func (s *state) command(name, program string, args ...string) proc.Command {
	return proc.Command{
		Name: name,
		Args: append([]string{filepath.Join(s.Bin, program)}, args...),
		Env:  append(noProxy(), markEntry(s.Mark), "HOME="+s.Dir, "KUBECONFIG="),
		Log:  s.path("logs", name+".log"),
	}
}

func markEntry(mark string) string { return "ELASTICDL_CLUSTER_PROCESS=" + mark }

// noProxy returns entries for the environment of the cluster's clients: a proxy cannot reach
// addresses that only this machine has.
func noProxy() []string {
	hosts := strings.Join([]string{nodeAddress, serviceCIDR, podCIDR}, ",")
	if before := cmp.Or(os.Getenv("NO_PROXY"), os.Getenv("no_proxy")); before != "" {
		hosts = before + "," + hosts
	}
	return []string{"NO_PROXY=" + hosts, "no_proxy=" + hosts}
}

func (s *state) etcd() proc.Command {
	return s.command("etcd", "kube", "etcd", "--data-dir="+s.path("etcd"),
		"--listen-client-url="+s.Store, "--listen-peer-url="+s.Peer)
}

func (s *state) apiserver() proc.Command {
	address, port, _ := net.SplitHostPort(strings.TrimPrefix(s.Server, "https://"))
	args := []string{
		"kube-apiserver",
		"--etcd-servers=" + s.Store,
		"--bind-address=" + address,
		"--secure-port=" + port,
		"--service-cluster-ip-range=" + serviceCIDR,
		"--client-ca-file=" + s.path("pki/ca.crt"),
		"--tls-cert-file=" + s.path("pki/apiserver.crt"),
		"--tls-private-key-file=" + s.path("pki/apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("pki/tokens.pub"),
		"--service-account-signing-key-file=" + s.path("pki/tokens.key"),
		"--kubelet-client-certificate=" + s.path("pki/apiserver-kubelet.crt"),
		"--kubelet-client-key=" + s.path("pki/apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + s.path("pki/ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction,PodNodeSelector",
		"--allow-privileged=true",
	}
	if s.Nodes > 0 {
		args = append(args, "--advertise-address="+address)
	} else {
		// otherwise the API server refuses an address in 127/8
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if s.Kwok > 0 {
		args = append(args, "--max-requests-inflight=4000", "--max-mutating-requests-inflight=2000")
	}
	return s.command("apiserver", "kube", args...)
}

// graceSeconds returns the time for which a node may be silent. leaseSeconds returns how long its
// lease is valid: four times the interval at which it is renewed.
func (s *state) graceSeconds() int {
	if s.Nodes > 0 {
		return 12
	}
	return 60
}

func (s *state) controllers() proc.Command {
	args := []string{
		"kube-controller-manager",
		"--kubeconfig=" + s.path("admin.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--cert-dir=" + s.path("pki"),
		"--service-account-private-key-file=" + s.path("pki/tokens.key"),
		"--root-ca-file=" + s.path("pki/ca.crt"),
		"--cluster-cidr=" + podCIDR,
		"--node-monitor-period=1s",
		fmt.Sprintf("--node-monitor-grace-period=%ds", s.graceSeconds()),
		"--node-eviction-rate=1",
		"--flex-volume-plugin-dir=" + s.path("plugins"), // it creates this directory at its start
	}
	if s.Kwok > 0 {
		args = append(args, "--kube-api-qps=500", "--kube-api-burst=1000", "--concurrent-gc-syncs=50")
	}
	return s.command("controllers", "kube", args...)
}

func (s *state) scheduler() proc.Command {
	args := []string{
		"kube-scheduler",
		"--kubeconfig=" + s.path("pki/scheduler.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--cert-dir=" + s.path("pki"),
	}
	if s.Kwok > 0 {
		args = append(args, "--kube-api-qps=5000", "--kube-api-burst=5000")
	}
	return s.command("scheduler", "kube", args...)
}

// leastPort is the lowest port that a component gets.
const leastPort = 10_000

// freeAddresses returns n addresses of 127.0.0.1 with free ports. These are below the ports that
// the kernel gives to connections, and to those who listen on any: so it gives nobody the port of a
// component that has ended, before that is started again.
func freeAddresses(n int) ([]string, error) {
	most := firstEphemeral()
	var addresses []string
	for tries := 0; len(addresses) < n; tries++ {
		port := 0
		if most >= leastPort+1000 { // else there are none below
			port = leastPort + rand.IntN(most-leastPort)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil && tries < 1000 {
			continue
		}
		if err != nil {
			return nil, err
		}
		// close all at the end, so that the ports differ
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// firstEphemeral returns the first port of those that the kernel gives.
func firstEphemeral() int {
	const usual = 32768
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usual
	}
	first, err := strconv.Atoi(strings.Fields(string(text) + " -")[0])
	if err != nil {
		return usual
	}
	return first
}

package settings

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// check reports the problems that the types of the fields cannot express.
func (s *Settings) check(in Input, p *Problems) {
	p.oneOf("cloud", s.Cloud, clouds...)
	switch s.Cloud {
	case CloudGKE:
		s.GKE.check(s, p)
	case CloudEKS:
		s.EKS.check(s, in, p)
	case CloudMinikube:
		s.Minikube.check(s, in, p)
	case CloudExisting:
		s.Existing.check(s, p)
	}
	s.Platform.check(s, p)
	for i, rule := range s.Policy.Allow {
		p.Check(isRule.MatchString(rule), fmt.Sprintf("policy.allow[%d]", i),
			"%s: expected a rule, as unpinned-image, or one of a resource, as privileged-pod:debug", rule)
	}
	if s.Image != nil {
		s.Image.check(s, in, p)
	}
	if s.Data != nil {
		s.Data.check(s, in, p)
	}
	if s.Job != nil {
		s.checkJob(in, p)
	}
	s.checkLabels(p)
	d, err := time.ParseDuration(s.Wait)
	p.Check(err == nil && d >= 0 && d <= maxWait, "wait",
		"%s: expected a time of 0 to 2h, as 90s or 10m", orMissing(s.Wait))
	if s.Budget != nil {
		s.Budget.check(s, p)
	}
}

func (s *Settings) note(format string, args ...any) {
	s.Notes = append(s.Notes, s.Project+":"+fmt.Sprintf(format, args...))
}

var isRule = regexp.MustCompile(`^[a-z][-a-z0-9]*(:.+)?$`)

// clusterNamespaces lists the namespaces that every cluster has, which a stack must not create or
// delete.
var clusterNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// maxPriority is the greatest priority of users in Kubernetes: higher ones are reserved for the
// system.
const maxPriority = 1_000_000_000

func (o *Platform) check(s *Settings, p *Problems) {
	const at = "platform."
	p.Check(valid(validation.IsDNS1123Label(o.Namespace)), at+"namespace",
		"%s: expected at most 63 lower-case letters, digits and '-', beginning and ending with a "+
			"letter or digit", orMissing(o.Namespace))
	p.Check(!slices.Contains(clusterNamespaces, o.Namespace) || o.ShareNamespace &&
		o.Namespace == "default", at+"namespace",
		"%s: every cluster has that, and the stack makes and deletes its own: give another name", o.Namespace)
	for _, name := range slices.Sorted(maps.Keys(o.PriorityClasses)) {
		path, value := Join(at+"priorityClasses", name), o.PriorityClasses[name]
		p.Check(valid(validation.IsDNS1123Subdomain(name)), path,
			"expected a name of lower-case letters, digits, '-' and '.'")
		p.Check(!strings.HasPrefix(name, "system-"), path, "names that begin with system- are the cluster's own")
		p.Check(value <= maxPriority, path, "%d: expected at most %d: higher ones are the system's", value, maxPriority)
	}
	o.checkShared(p)
	if o.PodSecurity != "" {
		p.oneOf(at+"podSecurity", o.PodSecurity, "privileged", "baseline", "restricted")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Quota)) {
		path, value := Join(at+"quota", name), o.Quota[name]
		p.Check(isQuota(name), path, "unknown quota%s", nearest(name, quotas))
		p.Check(isQuantity.MatchString(value), path, "%s: expected a quantity, as 16, 500m or 64Gi", value)
	}
	if o.Queue != nil {
		o.Queue.check(p)
	}
	p.Check(o.StorageClass == "" || valid(validation.IsDNS1123Subdomain(o.StorageClass)),
		at+"storageClass", "%s: expected a name of lower-case letters, digits, '-' and '.'", o.StorageClass)
	if m := s.Minikube; m != nil {
		enforced := m.Adopt || m.CNI == "calico" || m.CNI == "cilium"
		p.Check(!o.NetworkPolicy || enforced, at+"networkPolicy",
			"true: minikube's own network ignores NetworkPolicies: give minikube.cni: calico, or drop this")
	}
}

// checkShared refuses limits on a namespace that is shared, and shared priority classes without a
// value to compare.
func (o *Platform) checkShared(p *Problems) {
	const at = "platform."
	for i, name := range o.SharePriorityClasses {
		_, given := o.PriorityClasses[name]
		p.Check(given || name == "high" || name == "low", fmt.Sprintf(at+"sharePriorityClasses[%d]", i),
			"%s: expected high, low or a name of platform.priorityClasses, which says its value", name)
	}
	if !o.ShareNamespace {
		return
	}
	const why = "goes with a namespace of the stack's own, and platform.shareNamespace is true: it " +
		"would bind the pods of others: drop one of the two"
	p.Check(o.PodSecurity == "", at+"podSecurity", why)
	p.Check(len(o.Quota) == 0, at+"quota", why)
	p.Check(!o.NetworkPolicy, at+"networkPolicy", why)
}

func valid(problems []string) bool { return len(problems) == 0 }

var quotas = []string{
	"cpu", "memory", "pods", "services", "configmaps", "secrets", "persistentvolumeclaims",
	"replicationcontrollers", "resourcequotas",
	"ephemeral-storage", "services.nodeports", "services.loadbalancers",
	"requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage", "limits.cpu",
	"limits.memory", "limits.ephemeral-storage",
}

// isQuantity matches quantities of Kubernetes, except for exponents, which are rarely used and can
// take minutes to parse.
var isQuantity = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,3})?(m|k|[MGTPE]|[KMGTPE]i)?$`)

// isQuota reports whether Kubernetes can count a resource in a quota. Devices are counted as
// "requests.nvidia.com/gpu" only.
func isQuota(name string) bool {
	device, ok := strings.CutPrefix(name, "requests.")
	kind, counted := strings.CutPrefix(name, "count/")
	return slices.Contains(quotas, name) ||
		ok && strings.Contains(device, "/") && valid(validation.IsQualifiedName(device)) ||
		counted && valid(validation.IsDNS1123Subdomain(kind))
}

// Path returns the path of a file that is given relative to Pulumi.yaml.
func (s *Settings) Path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.Root, name)
}

func (o *Image) check(s *Settings, in Input, p *Problems) {
	const at = "image."
	switch source := s.Path(o.Source); {
	case o.Source == "":
		p.Check(false, at+"source",
			"missing: the directory of a Go program, as `elasticdl zoo init` makes it, or a binary")
	default:
		_, err := in.Stat(source)
		p.Check(err == nil, at+"source",
			"%s: expected the directory of a Go program, as `elasticdl zoo init` makes it, or a "+
				"binary: there is no %s", o.Source, source)
	}
	p.Check(o.Name != "", at+"name",
		"missing: there is no job whose name the image could have: give the one that it had, or "+
			"another, or remove the section image")
	p.Check(o.Name == "" || s.Job != nil && o.Name == s.Job.Name || isRepository.MatchString(o.Name),
		at+"name", "%s: expected lower-case letters, digits, '-', '_', '.' and '/'", o.Name)
	for i, platform := range o.Platforms {
		p.oneOf(fmt.Sprintf(at+"platforms[%d]", i), platform, "linux/amd64", "linux/arm64")
	}
	p.Check(len(o.Platforms) > 0, at+"platforms", "expected one or more, as linux/amd64")
	p.Check(o.Command != "", at+"command", "missing: the elasticdl binary, or leave this out for the one on PATH")
	if o.Pin {
		s.note(at+"pin: changes of %s are not built: the job keeps the image that the stack has", o.Source)
	}
	if s.Job != nil {
		path := "job.image"
		if s.Job.Runs() {
			path = "job.agentImage"
		}
		there := *BuiltImage(s.Job)
		p.Check(there == "", path,
			"%s: the stack builds the image, as the section image says: drop one of the two", there)
		p.Check(s.Cloud != CloudMinikube || s.Job.ImagePullPolicy != "Always", "job.imagePullPolicy",
			"Always: the image is loaded into minikube, and nowhere to be pulled from: expected IfNotPresent or Never")
	}
}

var isRepository = regexp.MustCompile(`^[a-z0-9]+([._/-]+[a-z0-9]+)*$`)

var (
	googleLabelKey   = regexp.MustCompile(`^[a-z][-a-z0-9_]{0,62}$`)
	googleLabelValue = regexp.MustCompile(`^[-a-z0-9_]{0,63}$`)
	amazonTag        = regexp.MustCompile(`^[\p{L}\p{N}\p{Zs}_.:/=+@-]*$`)
)

// maxLabels is the greatest number of labels. It leaves room for the stack's own: clouds accept 64
// labels or 50 tags.
const maxLabels = 40

func (s *Settings) checkLabels(p *Problems) {
	p.Check(len(s.Labels) <= maxLabels, "labels", "%d labels: expected at most %d", len(s.Labels), maxLabels)
	p.Check(len(s.Labels) == 0 || s.Cloud != CloudMinikube && s.Cloud != CloudExisting, "labels",
		"they are for what a cloud bills, and this stack makes nothing of that: remove them")
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		path, value := Join("labels", key), s.Labels[key]
		switch s.Cloud {
		case CloudGKE:
			p.Check(googleLabelKey.MatchString(key) && !strings.HasPrefix(key, "goog"), path,
				"expected a key of at most 63 lower-case letters, digits, '-' and '_', beginning "+
					"with a letter and not with goog")
			p.Check(googleLabelValue.MatchString(value), path,
				"%s: expected at most 63 lower-case letters, digits, '-' and '_'", value)
		case CloudEKS:
			p.Check(key != "" && len(key) <= 128 && amazonTag.MatchString(key) &&
				!strings.HasPrefix(strings.ToLower(key), "aws:"), path,
				"expected a key of at most 128 letters, digits, spaces and _.:/=+-@, not beginning with aws:")
			p.Check(len(value) <= 256 && amazonTag.MatchString(value), path,
				"%s: expected at most 256 letters, digits, spaces and _.:/=+-@", value)
		}
	}
}

// reserved has the domains and keys of labels, or of taints, that clusters and stacks set on nodes
// themselves.
type reserved struct {
	kind    string
	domains []string
	// on nodes with GPUs
	gpu string
	// on others
	keys []string
}

var (
	reservedLabels = reserved{kind: "labels", domains: []string{"kubernetes.io", "k8s.io", "cloud.google.com",
		"eks.amazonaws.com", "karpenter.sh", "karpenter.k8s.aws", "elasticdl.org"}, gpu: "nvidia.com/gpu.present"}
	reservedTaints = reserved{kind: "taints", domains: []string{"node.kubernetes.io", "karpenter.sh", "elasticdl.org"},
		gpu: gpu, keys: []string{"kubernetes.io/arch", "cloud.google.com/compute-class"}}
)

// check refuses a key that the cluster or the stack sets itself.
func (r reserved) check(at, key string, p *Problems) {
	domain, _, _ := strings.Cut(key, "/")
	p.Check(!slices.ContainsFunc(r.domains, func(d string) bool {
		return domain == d && domain != key || strings.HasSuffix(domain, "."+d)
	}), at, "%s of %s are the cluster's own", r.kind, domain)
	p.Check(!slices.Contains(r.keys, key), at, "%s: the cluster sets it on nodes: remove it", key)
	p.Check(key != r.gpu, at, "%s: the stack sets it on nodes with GPUs: remove it", key)
}

// checkNodeLabels checks Kubernetes labels on nodes.
func checkNodeLabels(path string, labels map[string]string, p *Problems) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at, value := Join(path, key), labels[key]
		p.Check(valid(validation.IsQualifiedName(key)), at, "expected the key of a label, as pool or example.com/pool")
		reservedLabels.check(at, key, p)
		p.Check(valid(validation.IsValidLabelValue(value)), at,
			"%s: expected at most 63 letters, digits, '-', '_' and '.'", value)
	}
}

// cidr checks a network and returns it; the zero Prefix means that it is not valid.
func (p *Problems) cidr(path, text string) netip.Prefix {
	n, err := netip.ParsePrefix(text)
	switch {
	case text == "":
		p.Check(false, path, "missing: a CIDR, as 10.0.0.0/20")
	case err != nil || !n.Addr().Is4():
		p.Check(false, path, "%s: expected a CIDR, as 10.0.0.0/20", text)
	case n != n.Masked():
		p.Check(false, path, "%s: expected the first address of the network, as %s", text, n.Masked())
	default:
		return n
	}
	return netip.Prefix{}
}

// private checks a network in a cloud: its prefix must have between least and most bits, and its
// addresses must be private.
func (p *Problems) private(path, text string, least, most int) netip.Prefix {
	n := p.cidr(path, text)
	if !n.IsValid() {
		return n
	}
	private := slices.ContainsFunc([]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
		"100.64.0.0/10"}, func(whole string) bool {
		w := netip.MustParsePrefix(whole)
		return w.Contains(n.Addr()) && n.Bits() >= w.Bits()
	})
	p.Check(private, path, "%s: expected a part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10", text)
	want := fmt.Sprintf("a /%d to a /%d", least, most)
	if least == most {
		want = fmt.Sprintf("a /%d", least)
	}
	p.Check(n.Bits() >= least && n.Bits() <= most, path, "%s: expected %s", text, want)
	return n
}

// namedNetwork is a network with its path.
type namedNetwork struct {
	path string
	netip.Prefix
}

// disjoint reports every network that overlaps one before it.
func (p *Problems) disjoint(all ...namedNetwork) {
	for i, a := range all {
		for _, b := range all[:i] {
			p.Check(!a.IsValid() || !b.IsValid() || !a.Overlaps(b.Prefix), a.path, "%s: overlaps %s: %s", a, b.path, b)
		}
	}
}

func (s namedNetwork) String() string { return s.Prefix.String() }

// Widest is the length of the shortest prefix that may reach a Kubernetes API, so that two halves
// such as 0.0.0.0/1 cannot stand for everyone.
const Widest = 8

// checkAuthorized checks which networks may reach the Kubernetes API. The path of their section is
// at; some clouds accept public addresses only.
func checkAuthorized(at string, all []Network, most int, p *Problems, public bool) {
	path := at + ".authorizedNetworks"
	p.Check(len(all) > 0, path, "missing: who may reach the Kubernetes API? From here: pulumi "+
		"config set --path '%s[0].cidr' \"$(curl -s https://checkip.amazonaws.com)/32\"", path)
	p.Check(len(all) <= most, path, "%d networks: expected at most %d", len(all), most)
	for i, n := range all {
		path := fmt.Sprintf("%s[%d].cidr", path, i)
		if cidr := p.cidr(path, n.CIDR); cidr.IsValid() {
			p.Check(cidr.Bits() >= Widest, path,
				"%s: that is everyone: list the networks of those who deploy and look, a /32 for one address", n.CIDR)
			p.Check(!public || !cidr.Addr().IsPrivate(), path,
				"%s: expected public addresses: those within the VPC always have access", n.CIDR)
		}
	}
}

package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// isRegistry matches a registry with an optional path: "ghcr.io/me", "localhost:5000".
var isRegistry = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

func (x *Existing) check(s *Settings, p *Problems) {
	const at = "existing."
	if x.Volume != nil {
		x.Volume.check(s, p)
	}
	p.Check(x.Registry == "" || isRegistry.MatchString(x.Registry), at+"registry",
		"%s: expected a registry and a path in it, without the name of the image, as ghcr.io/me", x.Registry)
	p.Check(x.Registry != "" || s.Image == nil, at+"registry",
		"missing: the stack builds an image, and pushes it there: give a registry from which the "+
			"nodes pull, as ghcr.io/me, or job.image and no section image")
	if l := x.Login; l != nil {
		p.Check(x.Registry != "", at+"login", "goes with existing.registry: drop it, or give that")
		p.Check(l.User != "", at+"login.user", "missing: the user of the registry")
		p.Check(l.Command != "", at+"login.command",
			"missing: a command that prints the password, as aws ecr get-login-password")
	}
	x.GPUNodes.check(at+"gpuNodes", p)
	x.SpotNodes.check(at+"spotNodes", p)
	s.checkSpot(at+"spotNodes", x.SpotNodes != nil, p)
}

func (v *Claim) check(s *Settings, p *Problems) {
	const at = "existing.volume."
	p.Check(valid(validation.IsDNS1123Subdomain(v.Name)), at+"name",
		"%s: expected a name of lower-case letters, digits, '-' and '.'", orMissing(v.Name))
	if v.CapacityGB == 0 {
		p.Check(s.Platform.ShareNamespace, at+"capacityGb",
			"missing: the stack makes the namespace %s, and so the claim in it: give its size in GiB; "+
				"for a claim that is there: platform.shareNamespace: true", s.Platform.Namespace)
		const made = "%s: is for a claim that the stack makes: give existing.volume.capacityGb, or drop this"
		p.Check(v.StorageClass == "", at+"storageClass", made, v.StorageClass)
		p.Check(v.AccessMode == "", at+"accessMode", made, v.AccessMode)
		return
	}
	p.within(at+"capacityGb", v.CapacityGB, 1, maxDisk)
	p.Check(v.StorageClass == "" || valid(validation.IsDNS1123Subdomain(v.StorageClass)),
		at+"storageClass", "%s: expected a name of `kubectl get storageclass`", v.StorageClass)
	p.oneOf(at+"accessMode", v.AccessMode, "ReadWriteMany", "ReadWriteOnce")
}

func (n *Nodes) check(at string, p *Problems) {
	if n == nil {
		return
	}
	p.Check(len(n.Selector)+len(n.Tolerations) > 0, at, "expected a selector, tolerations or both")
	checkSelector(at+".selector", n.Selector, p)
	checkTolerations(at+".tolerations", n.Tolerations, p)
}

// checkSelector checks labels that nodes have, of the cluster or of its administrator.
func checkSelector(at string, labels map[string]string, p *Problems) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		path, value := Join(at, key), labels[key]
		p.Check(valid(validation.IsQualifiedName(key)), path,
			"expected the key of a label, as pool or example.com/pool")
		p.Check(valid(validation.IsValidLabelValue(value)), path,
			"%s: expected at most 63 letters, digits, '-', '_' and '.'", value)
	}
}

func checkTolerations(at string, all []job.Toleration, p *Problems) {
	for i, t := range all {
		if err := t.Check(); err != nil {
			p.Check(false, fmt.Sprintf("%s[%d]", at, i), "%v", err)
		}
	}
}

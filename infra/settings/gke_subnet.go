package settings

import (
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
	"strings"
)

var (
	isSubnetwork = regexp.MustCompile(`^projects/([^/]+)/regions/([^/]+)/subnetworks/([^/]+)$`)
	isArtifacts  = regexp.MustCompile(`^projects/([^/]+)/locations/([^/]+)/repositories/([^/]+)$`)
	isGoogleName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// Place returns the project, the region and the name of the subnet of a cluster.
func (n *GKESubnet) Place(g *GKE) (project, region, name string) {
	if full := isSubnetwork.FindStringSubmatch(n.Name); full != nil {
		return full[1], full[2], full[3]
	}
	region, _ = Region(g.Location)
	return g.Project, region, n.Name
}

// RegistryPlace returns the project, the location and the name of a repository of images that
// exists already.
func (g *GKE) RegistryPlace() (project, location, name string) {
	if full := isArtifacts.FindStringSubmatch(g.Registry); full != nil {
		return full[1], full[2], full[3]
	}
	location, _ = Region(g.Location)
	return g.Project, location, g.Registry
}

// checkSubnet checks the ranges of a cluster in a subnet that exists already, which has the others.
func (g *GKE) checkSubnet(p *Problems) {
	const at = "gke.subnet."
	project, in, name := g.Subnet.Place(g)
	region, _ := Region(g.Location)
	p.Check(isGoogleName.MatchString(name) && (project == g.Project || isGoogleProject.MatchString(project)), at+"name",
		"%s: expected the name of a subnet in %s, or projects/HOST/regions/%[2]s/subnetworks/NAME",
		orMissing(g.Subnet.Name), region)
	p.Check(in == region, at+"name", "%s: expected a subnet in %s, where the cluster is", g.Subnet.Name, region)
	p.Check(isGoogleName.MatchString(g.Subnet.Pods), at+"pods", "%s: expected the name of a secondary range",
		orMissing(g.Subnet.Pods))
	p.Check(isGoogleName.MatchString(g.Subnet.Services), at+"services", "%s: expected the name of a secondary range",
		orMissing(g.Subnet.Services))
	p.Check(g.Subnet.Pods == "" || g.Subnet.Pods != g.Subnet.Services, at+"services", "%s: the range of the pods: "+
		"expected another", g.Subnet.Services)
	for name, given := range map[string]string{"nodes": g.Ranges.Nodes, "pods": g.Ranges.Pods,
		"services": g.Ranges.Services} {
		p.Check(given == "", "gke.ranges."+name, "%s: gke.subnet names a subnet that exists already, which has its "+
			"own ranges: remove this", given)
	}
	f := g.Filestore
	p.Check(f == nil || f.Name != "" || project == g.Project, "gke.filestore", "the stack makes none in a Shared VPC, "+
		"where Filestore needs private services access: expected gke.filestore.name, or a bucket")
	master := namedNetwork{"gke.ranges.master", p.private("gke.ranges.master", g.Ranges.Master, 28, 28)}
	p.disjoint(append([]namedNetwork{master}, g.filesRange(p)...)...)
}

// filesRange returns the range of the file server, if it is given.
func (g *GKE) filesRange(p *Problems) []namedNetwork {
	const at = "gke.filestore.range"
	f := g.Filestore
	if f == nil || f.Range == "" || f.Name != "" {
		return nil
	}
	length := 29
	if !strings.HasPrefix(f.Tier, "BASIC") {
		length = 24
	}
	return []namedNetwork{{at, p.private(at, f.Range, length, length)}}
}

// PodRoom returns why the range of the pods is too small for the nodes of all pools; "" = it is
// not. Each node takes a /24.
func (g *GKE) PodRoom(pods netip.Prefix) string {
	most := g.nodes(max0) + 1 // the initial node of a cluster
	if room := 1 << max(0, 24-pods.Bits()); room < most {
		return fmt.Sprintf("%s: room for the pods of %d nodes, a /24 each, and there may be %d: expected a /%d "+
			"or wider", pods, room, most, 24-bits.Len(uint(most-1)))
	}
	return ""
}

// NodeRoom returns why the range of the nodes is too small for all pools; "" = it is not. Google
// reserves four addresses.
func (g *GKE) NodeRoom(nodes netip.Prefix) string {
	most := g.nodes(max0) + 1
	if room := 1<<(32-nodes.Bits()) - 4; room < most {
		return fmt.Sprintf("%s: room for %d nodes, and there may be %d: expected a wider network", nodes, room, most)
	}
	return ""
}

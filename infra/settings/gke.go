package settings

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	isGoogleProject = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$`)
	isGoogleRegion  = regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+$`)
	isGoogleAccount = regexp.MustCompile(`^[a-z][-a-z0-9]{4,28}[a-z0-9]$`)
	isMachineType   = regexp.MustCompile(`^[a-z][a-z0-9]+(-[a-z0-9]+)+$`)
	isGoogleRole    = regexp.MustCompile(`^(roles|projects/[^/]+/roles|organizations/[0-9]+/roles)/[A-Za-z0-9_.]+$`)
	isShare         = regexp.MustCompile(`^[a-z][a-z0-9_]{0,15}$`)
)

func (g *GKE) check(s *Settings, p *Problems) {
	const at = "gke."
	p.Check(g.Project != "", keyProject, "missing: pulumi config set %s PROJECT", keyProject)
	p.Check(g.Project == "" || isGoogleProject.MatchString(g.Project), keyProject,
		"%s: expected the ID of a project: 6 to 30 lower-case letters, digits and '-'", g.Project)
	g.checkPlace(p)
	p.oneOf(at+"releaseChannel", g.ReleaseChannel, "RAPID", "REGULAR", "STABLE")
	checkAuthorized("gke", g.AuthorizedNetworks, 100, p, false)
	g.checkPools(s, p)
	g.checkKey(s, p)
	if g.Subnet != nil {
		g.checkSubnet(p)
	} else {
		g.checkRanges(p)
	}
	if g.Bucket != nil {
		g.Bucket.check(s, p)
	}
	if g.Filestore != nil {
		g.Filestore.check(g, p)
	}
	project, _, name := g.RegistryPlace()
	region, _ := Region(g.Location)
	p.Check(g.Registry == "" || isGoogleName.MatchString(name) &&
		(project == g.Project || isGoogleProject.MatchString(project)), at+"registry", "%s: expected the name of a "+
		"repository in %s, or projects/PROJECT/locations/%[2]s/repositories/NAME", g.Registry, region)
	p.Check(g.NodeAccount == "" || isGoogleAccount.MatchString(strings.TrimSuffix(g.NodeAccount, g.accounts())) &&
		strings.HasSuffix(g.NodeAccount, g.accounts()), at+"nodeAccount", "%s: expected the address of a service "+
		"account of the project, NAME%s", g.NodeAccount, g.accounts())
	if g.Maintenance != nil {
		g.Maintenance.check(s, p)
	}
	for i, role := range g.JobRoles {
		path := fmt.Sprintf(at+"jobRoles[%d]", i)
		p.Check(isGoogleRole.MatchString(role), path, "%s: expected a role, as roles/storage.objectViewer", role)
		p.Check(!slices.Contains([]string{"roles/owner", "roles/editor", "roles/viewer"}, role), path,
			"%s: which everything in the project has: name what the job needs", role)
	}
}

// accounts returns how the addresses of service accounts of the project end.
func (g *GKE) accounts() string {
	name := g.Project
	if domain, of, ok := strings.Cut(g.Project, ":"); ok {
		name = of + "." + domain
	}
	return "@" + name + ".iam.gserviceaccount.com"
}

// regionZones is the number of zones with nodes of a regional cluster, unless zones are set.
const regionZones = 3

// Zones returns the number of zones in which every pool has nodes.
func (g *GKE) Zones() int {
	if r, zone := Region(g.Location); zone || !isGoogleRegion.MatchString(r) {
		return 1
	}
	return cmp.Or(len(g.NodeZones), regionZones)
}

// checkPlace checks the location of the cluster.
func (g *GKE) checkPlace(p *Problems) {
	r, zone := Region(g.Location)
	p.Check(g.Location != "", "gke.location", "missing: a zone, as us-central1-c, or a region")
	p.Check(g.Location == "" || isGoogleRegion.MatchString(r), "gke.location",
		"%s: expected a zone, as us-central1-c, or a region", g.Location)
	p.Check(!zone || len(g.NodeZones) == 0, "gke.nodeZones",
		"gke.location is one zone: drop these, or give its region, %s", r)
	for i, z := range g.NodeZones {
		in, ok := Region(z)
		path := fmt.Sprintf("gke.nodeZones[%d]", i)
		p.Check(ok && in == r, path, "%s: expected a zone of %s", z, r)
		p.Check(!slices.Contains(g.NodeZones[:i], z), path, "%s occurs twice", z)
	}
}

// NodeNotes returns lines for the user about the nodes of the settings, before there are any.
func (g *GKE) NodeNotes() (notes []string) {
	if g.NodeAccount != "" && g.Registry != "" {
		project, location, name := g.RegistryPlace()
		notes = append(notes, fmt.Sprintf("gke.nodeAccount: it has to be able to read gke.registry, which is not "+
			"looked up: gcloud artifacts repositories add-iam-policy-binding %s --project=%s --location=%s "+
			"--member=serviceAccount:%s --role=roles/artifactregistry.reader", name, project, location, g.NodeAccount))
	}
	if _, zone := Region(g.Location); zone {
		return notes
	}
	return append(notes, fmt.Sprintf("gke.location: %s is a region: nodes are spread over its zones, %d to %d of "+
		"them in all; a disk or card is in the zone of its node", g.Location, g.nodes(min0), g.nodes(max0)))
}

func min0(p PoolOfGKE) int { return p.MinNodes }
func max0(p PoolOfGKE) int { return p.Most() }

// nodes returns the sum of a count of all pools.
func (g *GKE) nodes(count func(PoolOfGKE) int) (n int) {
	for _, pool := range g.AllPools() {
		n += count(pool)
	}
	return n
}

func (g *GKE) checkRanges(p *Problems) {
	const at = "gke.ranges."
	nodes := p.private(at+"nodes", g.Ranges.Nodes, 8, 29)
	pods := p.private(at+"pods", g.Ranges.Pods, 9, 24)
	services := p.private(at+"services", g.Ranges.Services, 13, 27)
	master := p.private(at+"master", g.Ranges.Master, 28, 28)
	all := []namedNetwork{{at + "nodes", nodes}, {at + "pods", pods}, {at + "services", services},
		{at + "master", master}}
	p.disjoint(append(all, g.filesRange(p)...)...)
	if pods.IsValid() {
		why := g.PodRoom(pods)
		p.Check(why == "", at+"pods", "%s", why)
	}
	if nodes.IsValid() {
		why := g.NodeRoom(nodes)
		p.Check(why == "", at+"nodes", "%s", why)
	}
}

// Limits of disks: images are unpacked there, and those with CUDA take tens of gigabytes.
const (
	minDisk    = 30
	minGPUDisk = 100
	maxDisk    = 65536
	maxNodes   = 1000 // nodes of a pool
)

func (o *GKEPool) check(s *Settings, at string, listed bool, p *Problems) {
	g := s.GKE
	p.Check(o.MachineType != "", at+".machineType", "missing: a type, as n1-standard-8")
	p.Check(o.MachineType == "" || isMachineType.MatchString(o.MachineType), at+".machineType",
		"%s: expected a type, as n1-standard-8", o.MachineType)
	builds := s.Image == nil || slices.Contains(s.Image.Platforms, "linux/arm64")
	if o.Arm() && s.Image == nil {
		s.note("%s: Arm machines: job.image must be for linux/arm64, too", at)
	}
	p.Check(!o.Arm() || builds && listed, at+".machineType",
		"%s: an Arm machine: these are in gke.pools, with image.platforms: [linux/amd64, linux/arm64]", o.MachineType)
	o.checkPlace(g, at, p)
	p.within(at+".minNodes", o.MinNodes, 0, maxNodes)
	p.within(at+".maxNodes", o.MaxNodes, 1, maxNodes)
	p.Check(o.MinNodes <= o.MaxNodes, at+".maxNodes", "%d: fewer than minNodes, %d", o.MaxNodes, o.MinNodes)
	zones := g.ZonesOf(o)
	p.Check(o.MinNodes <= 0 || o.MaxNodes >= zones, at+".maxNodes",
		"%d: fewer than the %d zones of gke.location, %s, and a pool with minNodes begins with a "+
			"node in each: expected %d or more, or fewer gke.nodeZones", o.MaxNodes, zones, g.Location, zones)
	p.within(at+".diskGb", o.DiskGB, minDisk, maxDisk)
	checkNodeLabels(at+".labels", o.Labels, p)
}

func family(machineType string) string {
	f, _, _ := strings.Cut(machineType, "-")
	return f
}

// checkGPUs checks that only the GPU pool has GPUs: its taint keeps other pods off.
func (o *GKEPool) checkGPUs(at string, wanted bool, p *Problems) {
	if !wanted {
		const why = "GPUs are in gke.gpuPool or a pool with accelerator, which keep off pods that ask for none"
		p.Check(o.Accelerator == "", at+".accelerator", "%s: %s", o.Accelerator, why)
		p.Check(o.GPUs == 0, at+".gpus", "%d: %s", o.GPUs, why)
		p.Check(o.GPUDriver == "", at+".gpuDriver", "%s: %s", o.GPUDriver, why)
		p.Check(accelerators[family(o.MachineType)] == nil || family(o.MachineType) == "n1",
			at+".machineType", "%s: %s", o.MachineType, why)
		return
	}
	p.Check(o.GPUs >= 1, at+".gpus", "%d: expected 1 or more, per node", o.GPUs)
	o.checkAccelerator(at, p)
	p.oneOf(at+".gpuDriver", o.GPUDriver, "DEFAULT", "LATEST")
	p.Check(o.DiskGB >= minGPUDisk, at+".diskGb",
		"%d: expected %d or more: images with CUDA fill smaller disks", o.DiskGB, minGPUDisk)
}

// accelerators has the types of GPU of each machine family, and the numbers of them that a node may
// have.
var accelerators = map[string]map[string][]int{
	"n1": {"nvidia-tesla-t4": {1, 2, 4}, "nvidia-tesla-v100": {1, 2, 4, 8},
		"nvidia-tesla-p100": {1, 2, 4}, "nvidia-tesla-p4": {1, 2, 4}},
	"g2": {"nvidia-l4": {1, 2, 4, 8}},
	"a2": {"nvidia-tesla-a100": {1, 2, 4, 8, 16}, "nvidia-a100-80gb": {1, 2, 4, 8}},
	"a3": {"nvidia-h100-80gb": {1, 2, 4, 8}, "nvidia-h100-mega-80gb": {8}, "nvidia-h200-141gb": {8}},
	"a4": {"nvidia-b200": {8}},
	"g4": {"nvidia-rtx-pro-6000": {1, 2, 4, 8}},
}

// isAccelerator matches types of GPU, also those that are newer than the table.
var isAccelerator = regexp.MustCompile(`^nvidia-[a-z0-9]+(-[a-z0-9]+)*$`)

// noteNewGPUs adds a note if the pool has a type of GPU that is newer than the table.
func (o *GKEPool) noteNewGPUs(s *Settings, at string) {
	known := func(types map[string][]int) bool { return types[o.Accelerator] != nil }
	if !slices.ContainsFunc(slices.Collect(maps.Values(accelerators)), known) {
		s.note("%s.accelerator: %s is not known here: whether it goes with %s is not checked", at,
			o.Accelerator, o.MachineType)
	}
}

// checkAccelerator checks that the GPUs fit the machine type, which determines their number in all
// families but n1.
func (o *GKEPool) checkAccelerator(at string, p *Problems) {
	var known []string
	for _, f := range []string{"n1", "g2", "g4", "a2", "a3", "a4"} {
		for _, name := range slices.Sorted(maps.Keys(accelerators[f])) {
			known = append(known, name)
			if name == o.Accelerator && family(o.MachineType) != f {
				p.Check(false, at+".machineType", "%s: %s goes with machines of family %s",
					orMissing(o.MachineType), name, f)
			}
		}
	}
	p.Check(isAccelerator.MatchString(o.Accelerator), at+".accelerator", "%s: expected %s, or another of NVIDIA's",
		orMissing(o.Accelerator), strings.Join(known, ", "))
	counts := accelerators[family(o.MachineType)][o.Accelerator]
	p.Check(counts == nil || slices.Contains(counts, o.GPUs), at+".gpus", "%d: %s takes %s per node",
		o.GPUs, o.Accelerator, numbers(counts))
	if n := gpusOf(o.MachineType); n > 0 && counts != nil {
		p.Check(o.GPUs == n, at+".gpus", "%d: %s has %d", o.GPUs, o.MachineType, n)
	}
}

var numbered = regexp.MustCompile(`-([0-9]+)g$`)

// gpusOf returns the number of GPUs that a machine type includes; 0 = as many as are attached.
func gpusOf(machineType string) int {
	if at := numbered.FindStringSubmatch(machineType); at != nil {
		n, err := strconv.Atoi(at[1])
		if err == nil {
			return n
		}
	}
	return included[machineType]
}

// included has the numbers of GPUs of machine types whose names do not end in it.
var included = map[string]int{
	"g4-standard-48": 1, "g4-standard-96": 2, "g4-standard-192": 4, "g4-standard-384": 8,
	"g2-standard-4": 1, "g2-standard-8": 1, "g2-standard-12": 1, "g2-standard-16": 1, "g2-standard-32": 1,
	"g2-standard-24": 2, "g2-standard-48": 4, "g2-standard-96": 8,
}

func numbers(all []int) string {
	var texts []string
	for _, n := range all {
		texts = append(texts, strconv.Itoa(n))
	}
	return list(texts)
}

// tiers has the least and the greatest size of a share in GiB, and its steps, by tier of Filestore.
var tiers = map[string]struct{ least, most, step int }{
	"BASIC_HDD": {1024, 65433, 1},
	"BASIC_SSD": {2560, 65433, 1},
	"ZONAL":     {1024, 102400, 256},
	"REGIONAL":  {1024, 102400, 256},
}

func (f *Filestore) check(g *GKE, p *Problems) {
	const at = "gke.filestore."
	if f.Name != "" {
		f.checkName(g, p)
		return
	}
	p.oneOf(at+"tier", f.Tier, "BASIC_HDD", "BASIC_SSD", "ZONAL", "REGIONAL")
	if t, ok := tiers[f.Tier]; ok {
		p.Check(f.CapacityGB >= t.least && f.CapacityGB <= t.most, at+"capacityGb",
			"%d: expected %d to %d with tier %s", f.CapacityGB, t.least, t.most, f.Tier)
		p.Check(f.CapacityGB%t.step == 0, at+"capacityGb", "%d: expected a multiple of %d with tier %s",
			f.CapacityGB, t.step, f.Tier)
	}
	p.Check(isShare.MatchString(f.Share), at+"share",
		"%s: expected at most 16 lower-case letters, digits and '_', beginning with a letter", orMissing(f.Share))
	of, zone := Region(f.Location)
	in, _ := Region(g.Location)
	switch {
	case f.regional():
		p.Check(!zone, at+"location", "%s: a zone, and tier %s is of a region: expected %s", f.Location, f.Tier, in)
	case f.Location == "":
		p.Check(!isGoogleRegion.MatchString(in), at+"location",
			"missing: gke.location is a region, and tier %s is in one zone of it, as %s-b", f.Tier, in)
	default:
		p.Check(zone, at+"location", "%s: a region, and tier %s is in one zone of it, as %s-b", f.Location, f.Tier, in)
	}
	p.Check(f.Location == "" || of == in, at+"location",
		"%s: expected a place in %s, where the cluster is", f.Location, in)
}

// checkName checks a file server that exists already: what else it has is looked up.
func (f *Filestore) checkName(g *GKE, p *Problems) {
	const at = "gke.filestore."
	in, _ := Region(g.Location)
	of, _ := Region(f.Location)
	p.Check(isGoogleName.MatchString(f.Name), at+"name", "%s: expected the name of an instance", f.Name)
	p.Check(g.Subnet != nil, at+"name", "%s: it is reached from its own network: expected a subnet of that in "+
		"gke.subnet", f.Name)
	p.Check(f.Location != "", at+"location", "missing: the zone of %s, or its region", f.Name)
	p.Check(f.Location == "" || of == in, at+"location", "%s: expected a place in %s, where the cluster is",
		f.Location, in)
	const why = "gke.filestore.name names an instance that exists already, and is not changed: remove this"
	for name, given := range map[string]string{"tier": f.Tier, "share": f.Share, "range": f.Range} {
		p.Check(given == "", at+name, "%s: %s", given, why)
	}
	p.Check(f.CapacityGB == 0, at+"capacityGb", "%d: %s", f.CapacityGB, why)
}

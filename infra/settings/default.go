package settings

import (
	"cmp"
	"maps"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// defaults returns the settings of a stack whose file is empty; arch is that of this machine.
// Optional sections have their defaults, for files that have the section. Pulumi.yaml repeats some
// defaults: a test compares.
func defaults(cloud, arch string) *Settings {
	s := &Settings{
		Cloud: cloud, ProtectStorage: true, Job: job.Default(), Wait: "5m",
		Platform: Platform{Namespace: "elasticdl", PriorityClasses: map[string]int32{"high": 1_000_000, "low": 1000},
			Queue: &Queue{Name: "training", Version: KueueVersion}},
		Image:  &Image{Platforms: []string{"linux/amd64"}, Command: "elasticdl"},
		Data:   &Data{Command: "elasticdl"},
		Budget: &Budget{Thresholds: []int{50, 90, 100}},
	}
	s.Job.Program, s.Job.Namespace = job.DefaultOf(job.Run).Program, ""
	switch cloud {
	case CloudGKE:
		s.GKE = &GKE{
			ReleaseChannel: "REGULAR", PrivateNodes: true,
			Ranges: GKERanges{Nodes: "10.0.0.0/20", Pods: "10.4.0.0/14", Services: "10.0.32.0/20",
				Master: "172.16.0.32/28"},
			Subnet:     &GKESubnet{Pods: "pods", Services: "services"},
			SystemPool: GKEPool{MachineType: "e2-standard-4", MinNodes: 1, MaxNodes: 2, DiskGB: 100},
			WorkerPool: &GKEPool{DiskGB: 100},
			GPUPool:    &GKEPool{DiskGB: 100, GPUDriver: "DEFAULT"},
			Bucket:     &GKEBucket{Bucket: Bucket{Access: accessWrite}},
			Filestore:  &Filestore{Tier: "BASIC_HDD", CapacityGB: 1024, Share: "data"},
		}
	case CloudEKS:
		s.EKS = &EKS{
			SupportType: "STANDARD", PublicAccess: true,
			VPC: VPC{CIDR: "10.0.0.0/16"},
			SystemGroup: EKSGroup{InstanceTypes: []string{"m6i.large"}, MinNodes: 2, DesiredNodes: 2,
				MaxNodes: 2, DiskGB: 100},
			WorkerGroup: &EKSGroup{DiskGB: 100},
			GPUGroup:    &EKSGroup{DiskGB: 100},
			Bucket:      &Bucket{Access: accessWrite},
			EFS:         &EFS{ThroughputMode: "elastic"},
			CodeBucket:  true, LogRetentionDays: 30,
		}
	case CloudMinikube:
		s.Minikube = &Minikube{CPUs: 2, MemoryMB: 6144, DiskGB: 50, KubernetesVersion: "v1.35.0"}
		s.Image.Platforms = []string{"linux/" + arch}
		// an image that was loaded into minikube cannot be pulled from anywhere
		s.Job.ImagePullPolicy = "IfNotPresent"
	case CloudExisting:
		s.Existing = &Existing{Volume: &Claim{Name: ClaimExisting, AccessMode: "ReadWriteMany"}}
	}
	return s
}

// settle sets the values that follow from others. Given reports whether the file has a path.
func (s *Settings) settle(in Input, given func(path string) bool) {
	s.Root, s.Now = in.Root, in.Now
	// so that bills can be split by stack, and every resource has a label
	if s.GKE != nil || s.EKS != nil {
		labels := map[string]string{LabelStack: s.Name(maxLabel)}
		maps.Copy(labels, s.Labels)
		s.Labels = labels
	}
	s.GKE.settle(in, given)
	s.EKS.settle(in, given)
	if m := s.Minikube; m != nil {
		m.Profile = cmp.Or(m.Profile, s.Name(40))
		if m.Data != "" {
			m.Data = s.Path(m.Data)
		}
	}
	if x := s.Existing; x != nil {
		if v := x.Volume; v != nil && v.CapacityGB == 0 && !given("existing.volume.accessMode") {
			v.AccessMode = ""
		}
	}
	s.settleData(given)
	s.settleQueue(given)
	s.settleJob(given)
}

func (g *GKE) settle(in Input, given func(path string) bool) {
	if g == nil {
		return
	}
	g.Project = in.Config[keyProject]
	g.settlePools()
	// one node in each zone, and one more for upgrades
	if !given("gke.systemPool.maxNodes") {
		g.SystemPool.MaxNodes = max(g.SystemPool.MaxNodes, g.Zones())
	}
	if b := g.Bucket; b != nil && b.Location == "" && b.Name == "" {
		b.Location, _ = Region(g.Location)
	}
	g.settleParts(given)
	if f := g.Filestore; f != nil && f.Location == "" {
		switch r, zone := Region(g.Location); {
		case f.regional():
			f.Location = r
		case zone:
			f.Location = g.Location
		case len(g.NodeZones) > 0:
			f.Location = g.NodeZones[0]
		}
	}
}

func (e *EKS) settle(in Input, given func(path string) bool) {
	if e == nil {
		return
	}
	e.Region, e.Profile = in.Config[keyRegion], in.Config[keyProfile]
	e.settlePools(given)
	if e.VPC.ID != "" && !given("eks.vpc.cidr") {
		e.VPC.CIDR = ""
	}
	if f := e.EFS; f != nil && f.ID != "" && !given("eks.efs.throughputMode") {
		f.ThroughputMode = ""
	}
}

func (s *Settings) settleData(given func(path string) bool) {
	d := s.Data
	if d == nil {
		return
	}
	if _, claim := s.storage(); claim == "" && d.Path == "" && s.Store(NoAccount) != nil {
		d.Path = inBucket + d.Dataset
	}
	d.Path = cmp.Or(d.Path, d.Dataset)
	if s.Image != nil && !given("data.command") {
		d.Command = s.Image.Command
	}
}

func (s *Settings) settleJob(given func(path string) bool) {
	j := s.Job
	if j == nil {
		return
	}
	j.Namespace = cmp.Or(j.Namespace, s.Platform.Namespace)
	if j.Queue != "" {
		j.QueuePriorities = cmp.Or(j.QueuePriorities, s.Platform.priorities())
	}
	flag := func(flag string) bool {
		f := job.Find(flag)
		return f != nil && f.Field() != "" && given("job."+f.Field())
	}
	if j.Runs() && !flag("num_workers") {
		j.NumWorkers = job.DefaultOf(job.Run).NumWorkers
	}
	j.Settle(flag)
	s.settleBucket()
	dir := ""
	if j.Trains() {
		dir = s.settleBucketDirs(flag)
	}
	j.SettleCheckpoints(dir, flag)
	if !j.Runs() {
		j.Program = job.Program{}
	}
	if s.Image != nil {
		s.Image.Name = cmp.Or(s.Image.Name, j.Name)
	}
}

// priorities returns the value of job.queuePriorities that fits the classes which the stack makes:
// it makes or shares the PriorityClasses high and low in any case.
func (o *Platform) priorities() string {
	if o.QueuePriorities {
		return job.PrioritiesWorkload
	}
	return job.PrioritiesPod
}

// Region returns the region of a location of Google, and whether the location is a zone.
func Region(location string) (name string, zone bool) {
	i := strings.LastIndexByte(location, '-')
	if i < 0 || len(location)-i != 2 {
		return location, false
	}
	return location[:i], true
}

// settleParts takes away the defaults of what a subnet or a file server that exists already has.
func (g *GKE) settleParts(given func(path string) bool) {
	clear := func(section string, fields map[string]*string) {
		for name, field := range fields {
			if !given(section + name) {
				*field = ""
			}
		}
	}
	if r := &g.Ranges; g.Subnet != nil {
		clear("gke.ranges.", map[string]*string{"nodes": &r.Nodes, "pods": &r.Pods, "services": &r.Services})
	}
	if f := g.Filestore; f != nil && f.Name != "" {
		clear("gke.filestore.", map[string]*string{"tier": &f.Tier, "share": &f.Share})
		if !given("gke.filestore.capacityGb") {
			f.CapacityGB = 0
		}
	}
}

// regional reports whether the server is in several zones.
func (f *Filestore) regional() bool { return f.Tier == "REGIONAL" }

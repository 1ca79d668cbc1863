package settings

// GKE is a cluster of Google.
type GKE struct {
	Project            string       `json:"-"`                        // gcp:project
	Location           string       `json:"location"`                 // a zone, "us-central1-c", or a region: control plane and nodes in three zones
	NodeZones          []string     `json:"nodeZones,omitempty"`      // zones of the nodes in a region; nil = Google chooses
	ReleaseChannel     string       `json:"releaseChannel,omitempty"` // RAPID, REGULAR, STABLE
	PrivateNodes       bool         `json:"privateNodes"`             // nodes have no public address, and reach the internet by Cloud NAT
	AuthorizedNetworks []Network    `json:"authorizedNetworks"`       // networks that may reach the Kubernetes API
	DeletionProtection bool         `json:"deletionProtection"`       // refuse to delete the cluster, also by `pulumi destroy`
	Ranges             GKERanges    `json:"ranges"`
	SystemPool         GKEPool      `json:"systemPool"`
	WorkerPool         *GKEPool     `json:"workerPool,omitempty"`
	GPUPool            *GKEPool     `json:"gpuPool,omitempty"`
	Filestore          *Filestore   `json:"filestore,omitempty"`
	Maintenance        *Maintenance `json:"maintenance,omitempty"`
	JobRoles           []string     `json:"jobRoles,omitempty"` // roles of the job's identity in the project: "roles/storage.objectViewer"
}

// GKERanges has the CIDRs of a cluster, which must not overlap.
type GKERanges struct {
	Nodes    string `json:"nodes"`    // "10.0.0.0/20"
	Pods     string `json:"pods"`     // "10.4.0.0/14"
	Services string `json:"services"` // "10.0.32.0/20"
	Master   string `json:"master"`   // a /28
}

// GKEPool is a pool of nodes of one kind. Counts are totals of all zones.
type GKEPool struct {
	MachineType string            `json:"machineType"`
	MinNodes    int               `json:"minNodes"`
	MaxNodes    int               `json:"maxNodes"`
	Spot        bool              `json:"spot,omitempty"`        // cheaper nodes that may be taken back at any time, for elastic jobs; not for the system pool
	DiskGB      int               `json:"diskGb,omitempty"`      // GiB; default 100
	Accelerator string            `json:"accelerator,omitempty"` // type of GPU, "nvidia-tesla-t4"; for the GPU pool only
	GPUs        int               `json:"gpus,omitempty"`        // GPUs per node
	GPUDriver   string            `json:"gpuDriver,omitempty"`   // version of the driver that GKE installs: DEFAULT or LATEST
	Labels      map[string]string `json:"labels,omitempty"`      // Kubernetes labels
}

// Filestore is an NFS server of Google.
type Filestore struct {
	Tier       string `json:"tier"`               // BASIC_HDD, BASIC_SSD, ZONAL, REGIONAL
	CapacityGB int    `json:"capacityGb"`         // GiB: 1024 or more, BASIC_SSD 2560; ZONAL and REGIONAL in steps of 256
	Share      string `json:"share"`              // name of the share
	Location   string `json:"location,omitempty"` // "" = the cluster's zone or region, whichever the tier requires
	Range      string `json:"range,omitempty"`    // a /29, or a /24 for ZONAL and REGIONAL; "" = Google chooses
}

// Maintenance limits when Google may upgrade the cluster. Either DailyStart or Window is set.
type Maintenance struct {
	DailyStart string                 `json:"dailyStart,omitempty"` // UTC, "03:00": every day for four hours
	Window     *MaintenanceWindow     `json:"window,omitempty"`     // a window with another recurrence than daily
	Exclusions []MaintenanceExclusion `json:"exclusions,omitempty"` // periods without upgrades, also within the window
}

// MaintenanceWindow is a recurring window. Times are in the format of RFC 3339, in UTC: "2026-12-05T02:00:00Z".
type MaintenanceWindow struct {
	Start      string `json:"start"`      // of the first window
	End        string `json:"end"`        // of the first window
	Recurrence string `json:"recurrence"` // recurrence by RFC 5545: "FREQ=WEEKLY;BYDAY=SA,SU"
}

// MaintenanceExclusion is a period in which Google does not upgrade. Times are in the format of RFC 3339, in UTC.
type MaintenanceExclusion struct {
	Name  string `json:"name"`
	Start string `json:"start"`
	End   string `json:"end"`
	Scope string `json:"scope,omitempty"` // NO_UPGRADES, NO_MINOR_UPGRADES; default NO_MINOR_OR_NODE_UPGRADES: nodes stay as they are
}

// Network is a range of addresses that may reach the Kubernetes API.
type Network struct {
	CIDR string `json:"cidr"`
	Name string `json:"name,omitempty"`
}

// EKS is a cluster of Amazon.
type EKS struct {
	Region             string    `json:"-"`                     // aws:region
	Profile            string    `json:"-"`                     // aws:profile; "" = the AWS CLI chooses
	Unsupported        string    `json:"-"`                     // why a new cluster cannot have Version on the current day; "" = it can
	Version            string    `json:"version"`               // version of Kubernetes: "1.35"
	SupportType        string    `json:"supportType,omitempty"` // STANDARD, or EXTENDED: one more year of support at six times the price
	VPC                VPC       `json:"vpc"`
	PublicAccess       bool      `json:"publicAccess"`       // the Kubernetes API has a public address
	AuthorizedNetworks []Network `json:"authorizedNetworks"` // networks that may reach the public address
	Admins             []string  `json:"admins,omitempty"`   // ARNs of roles and users that administer the cluster, including all who run `pulumi up`; nil = the creator
	SystemGroup        EKSGroup  `json:"systemGroup"`
	WorkerGroup        *EKSGroup `json:"workerGroup,omitempty"`
	GPUGroup           *EKSGroup `json:"gpuGroup,omitempty"`
	EFS                *EFS      `json:"efs,omitempty"`
	CodeBucket         bool      `json:"codeBucket"`           // an S3 bucket that the job may read
	LogRetentionDays   int       `json:"logRetentionDays"`     // how long the control plane's logs are kept
	LabelNodes         bool      `json:"labelNodes,omitempty"` // apply changed labels to nodes too, which replaces all of them
}

// VPC is a network that the stack creates, or an existing one: then only ID and the subnets are given.
type VPC struct {
	CIDR           string   `json:"cidr,omitempty"`           // a /16 to a /20
	Zones          []string `json:"zones,omitempty"`          // two or more, whose order must not change: "us-west-2a"
	NATPerZone     bool     `json:"natPerZone,omitempty"`     // a NAT for each zone, instead of one for all
	ID             string   `json:"id,omitempty"`             // "vpc-…"
	PrivateSubnets []string `json:"privateSubnets,omitempty"` // IDs of subnets, one per zone
	PublicSubnets  []string `json:"publicSubnets,omitempty"`
}

// NamedGroup is a group with its name: "system", "worker" or "gpu".
type NamedGroup struct {
	Name string
	*EKSGroup
}

// Groups returns the groups of the stack, the system group first.
func (e *EKS) Groups() []NamedGroup {
	all := []NamedGroup{{"system", &e.SystemGroup}}
	if e.WorkerGroup != nil {
		all = append(all, NamedGroup{"worker", e.WorkerGroup})
	}
	if e.GPUGroup != nil {
		all = append(all, NamedGroup{"gpu", e.GPUGroup})
	}
	return all
}

// EKSGroup is a group of nodes of one kind.
type EKSGroup struct {
	InstanceTypes []string          `json:"instanceTypes"` // several are useful for spot
	MinNodes      int               `json:"minNodes"`
	MaxNodes      int               `json:"maxNodes"`
	DesiredNodes  int               `json:"desiredNodes"` // number of nodes at creation; later `aws eks update-nodegroup-config` changes it
	Spot          bool              `json:"spot,omitempty"`
	DiskGB        int               `json:"diskGb,omitempty"` // GiB; default 100
	GPUs          int               `json:"gpus,omitempty"`   // GPUs per node; for the GPU group only
	Labels        map[string]string `json:"labels,omitempty"` // Kubernetes labels
}

// EFS is an NFS file system of Amazon.
type EFS struct {
	ThroughputMode string `json:"throughputMode,omitempty"` // elastic or bursting
	UID            *int   `json:"uid,omitempty"`            // owner of all files, whichever user writes them; nil = root, without an access point
}

// Minikube is a cluster in a virtual machine or container on this machine.
type Minikube struct {
	Profile           string `json:"profile,omitempty"` // "" = elasticdl-<stack>
	Driver            string `json:"driver,omitempty"`  // docker, kvm2, qemu, vfkit, …; "" = minikube chooses
	CPUs              int    `json:"cpus"`
	MemoryMB          int    `json:"memoryMb"`          // MiB
	DiskGB            int    `json:"diskGb"`            // GiB
	KubernetesVersion string `json:"kubernetesVersion"` // "v1.35.0"
	CNI               string `json:"cni,omitempty"`     // "calico" and "cilium" enforce NetworkPolicies
	GPUs              string `json:"gpus,omitempty"`    // "all" = all GPUs of this machine, with the docker driver
	Data              string `json:"data,omitempty"`    // directory of this machine that is mounted as /data; relative to Pulumi.yaml; "" = none
	Adopt             bool   `json:"adopt,omitempty"`   // use an existing profile, and keep it when the stack is destroyed
}

package settings

// GKE is a cluster of Google.
type GKE struct {
	Project            string       `json:"-"`                        // gcp:project
	Location           string       `json:"location"`                 // a zone, "us-central1-c", or a region: control plane and nodes in three zones
	NodeZones          []string     `json:"nodeZones,omitempty"`      // of a region; nil = as Google chooses
	ReleaseChannel     string       `json:"releaseChannel,omitempty"` // RAPID, REGULAR, STABLE
	PrivateNodes       bool         `json:"privateNodes"`             // nodes have no address of their own and go out by Cloud NAT
	AuthorizedNetworks []Network    `json:"authorizedNetworks"`       // who may reach the Kubernetes API
	DeletionProtection bool         `json:"deletionProtection"`       // the cluster refuses `pulumi destroy`
	Ranges             GKERanges    `json:"ranges"`
	SystemPool         GKEPool      `json:"systemPool"`
	WorkerPool         *GKEPool     `json:"workerPool,omitempty"`
	GPUPool            *GKEPool     `json:"gpuPool,omitempty"`
	Filestore          *Filestore   `json:"filestore,omitempty"`
	Maintenance        *Maintenance `json:"maintenance,omitempty"`
	JobRoles           []string     `json:"jobRoles,omitempty"` // of the job's identity in the project: "roles/storage.objectViewer"
}

// GKERanges are CIDRs; none overlaps another.
type GKERanges struct {
	Nodes    string `json:"nodes"`    // "10.0.0.0/20"
	Pods     string `json:"pods"`     // "10.4.0.0/14"
	Services string `json:"services"` // "10.0.32.0/20"
	Master   string `json:"master"`   // a /28
}

// GKEPool is nodes of one kind. Counts are of the whole pool, all zones together.
type GKEPool struct {
	MachineType string            `json:"machineType"`
	MinNodes    int               `json:"minNodes"`
	MaxNodes    int               `json:"maxNodes"`
	Spot        bool              `json:"spot,omitempty"`        // cheaper, and taken back at any time: for elastic jobs; not of the system pool
	DiskGB      int               `json:"diskGb,omitempty"`      // GiB; default 100
	Accelerator string            `json:"accelerator,omitempty"` // "nvidia-tesla-t4"; of the GPU pool only
	GPUs        int               `json:"gpus,omitempty"`        // per node
	GPUDriver   string            `json:"gpuDriver,omitempty"`   // DEFAULT or LATEST, which GKE installs
	Labels      map[string]string `json:"labels,omitempty"`      // of Kubernetes
}

// Filestore is an NFS server of Google.
type Filestore struct {
	Tier       string `json:"tier"`               // BASIC_HDD, BASIC_SSD, ZONAL, REGIONAL
	CapacityGB int    `json:"capacityGb"`         // GiB: 1024 or more, BASIC_SSD 2560; ZONAL and REGIONAL in steps of 256
	Share      string `json:"share"`              // name of the share
	Location   string `json:"location,omitempty"` // "" = zone or region of the cluster, as the tier wants
	Range      string `json:"range,omitempty"`    // a /29, of ZONAL and REGIONAL a /24; "" = as Google chooses
}

// Maintenance limits when Google may upgrade the cluster. It has DailyStart or Window.
type Maintenance struct {
	DailyStart string                 `json:"dailyStart,omitempty"` // UTC, "03:00": every day for four hours
	Window     *MaintenanceWindow     `json:"window,omitempty"`     // a window that is not every day
	Exclusions []MaintenanceExclusion `json:"exclusions,omitempty"` // times without upgrades, whatever the window
}

// MaintenanceWindow recurs. Times are of RFC 3339 in UTC: "2026-12-05T02:00:00Z".
type MaintenanceWindow struct {
	Start      string `json:"start"`      // of the first one
	End        string `json:"end"`        // of the first one
	Recurrence string `json:"recurrence"` // of RFC 5545: "FREQ=WEEKLY;BYDAY=SA,SU"
}

// MaintenanceExclusion is a time in which Google does not upgrade. Times are of RFC 3339 in UTC.
type MaintenanceExclusion struct {
	Name  string `json:"name"`
	Start string `json:"start"`
	End   string `json:"end"`
	Scope string `json:"scope,omitempty"` // NO_UPGRADES, NO_MINOR_UPGRADES; default NO_MINOR_OR_NODE_UPGRADES: nodes stay as they are
}

// Network is who may reach something.
type Network struct {
	CIDR string `json:"cidr"`
	Name string `json:"name,omitempty"`
}

// EKS is a cluster of Amazon.
type EKS struct {
	Region             string    `json:"-"`                     // aws:region
	Profile            string    `json:"-"`                     // aws:profile; "" = as the AWS CLI chooses
	Unsupported        string    `json:"-"`                     // why a new cluster cannot have Version on the day of the settings; "" = it can
	Version            string    `json:"version"`               // of Kubernetes: "1.35"
	SupportType        string    `json:"supportType,omitempty"` // STANDARD, or EXTENDED: a year longer, which costs six times as much
	VPC                VPC       `json:"vpc"`
	PublicAccess       bool      `json:"publicAccess"`       // the Kubernetes API has a public address
	AuthorizedNetworks []Network `json:"authorizedNetworks"` // who may reach it there
	Admins             []string  `json:"admins,omitempty"`   // ARNs of roles and users that administer the cluster, among them all who run `pulumi up`; nil = who makes it
	SystemGroup        EKSGroup  `json:"systemGroup"`
	WorkerGroup        *EKSGroup `json:"workerGroup,omitempty"`
	GPUGroup           *EKSGroup `json:"gpuGroup,omitempty"`
	EFS                *EFS      `json:"efs,omitempty"`
	CodeBucket         bool      `json:"codeBucket"`           // an S3 bucket that the job may read
	LogRetentionDays   int       `json:"logRetentionDays"`     // of the control plane's logs
	LabelNodes         bool      `json:"labelNodes,omitempty"` // a change of labels is brought onto nodes, by replacing all of them
}

// VPC is made by the stack, or is there already: then ID and the subnets are given and nothing else.
type VPC struct {
	CIDR           string   `json:"cidr,omitempty"`           // a /16 to a /20
	Zones          []string `json:"zones,omitempty"`          // two or more, in an order that stays: "us-west-2a"
	NATPerZone     bool     `json:"natPerZone,omitempty"`     // instead of one for all
	ID             string   `json:"id,omitempty"`             // "vpc-…"
	PrivateSubnets []string `json:"privateSubnets,omitempty"` // ids, one per zone
	PublicSubnets  []string `json:"publicSubnets,omitempty"`
}

// NamedGroup is a group with its name: "system", "worker" or "gpu".
type NamedGroup struct {
	Name string
	*EKSGroup
}

// Groups returns the groups that the stack has, the system's first.
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

// EKSGroup is nodes of one kind.
type EKSGroup struct {
	InstanceTypes []string          `json:"instanceTypes"` // several for spot
	MinNodes      int               `json:"minNodes"`
	MaxNodes      int               `json:"maxNodes"`
	DesiredNodes  int               `json:"desiredNodes"` // at first; later `aws eks update-nodegroup-config` changes it
	Spot          bool              `json:"spot,omitempty"`
	DiskGB        int               `json:"diskGb,omitempty"` // GiB; default 100
	GPUs          int               `json:"gpus,omitempty"`   // per node; of the GPU group only
	Labels        map[string]string `json:"labels,omitempty"` // of Kubernetes
}

// EFS is an NFS file system of Amazon.
type EFS struct {
	ThroughputMode string `json:"throughputMode,omitempty"` // elastic or bursting
	UID            *int   `json:"uid,omitempty"`            // files are owned by that user, whoever writes them; nil = root, and no access point
}

// Minikube is a cluster in a virtual machine or container on this machine.
type Minikube struct {
	Profile           string `json:"profile,omitempty"` // "" = elasticdl-<stack>
	Driver            string `json:"driver,omitempty"`  // docker, kvm2, qemu, vfkit, …; "" = as minikube chooses
	CPUs              int    `json:"cpus"`
	MemoryMB          int    `json:"memoryMb"`          // MiB
	DiskGB            int    `json:"diskGb"`            // GiB
	KubernetesVersion string `json:"kubernetesVersion"` // "v1.35.0"
	CNI               string `json:"cni,omitempty"`     // "calico" obeys NetworkPolicies
	GPUs              string `json:"gpus,omitempty"`    // "all": those of this machine, with the docker driver
	Data              string `json:"data,omitempty"`    // a directory here that is /data there; relative to Pulumi.yaml; "" = none
	Adopt             bool   `json:"adopt,omitempty"`   // the profile is there already, and stays when the stack goes
}

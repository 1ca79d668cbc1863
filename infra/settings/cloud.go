package settings

import "github.com/elasticdl/elasticdl/trainer/elastic/job"

// GKE is a cluster of Google.
type GKE struct {
	// gcp:project
	Project string `json:"-"`
	// a zone, "us-central1-c", or a region: control plane and nodes in three zones
	Location string `json:"location"`
	// zones of the nodes in a region; nil = Google chooses
	NodeZones []string `json:"nodeZones,omitempty"`
	// RAPID, REGULAR, STABLE
	ReleaseChannel string `json:"releaseChannel,omitempty"`
	// nodes have no public address, and reach the internet by Cloud NAT
	PrivateNodes bool `json:"privateNodes"`
	// networks that may reach the Kubernetes API
	AuthorizedNetworks []Network `json:"authorizedNetworks"`
	// refuse to delete the cluster, also by `pulumi destroy`
	DeletionProtection bool `json:"deletionProtection"`
	// a subnet that exists already; nil = the stack makes a network
	Subnet     *GKESubnet `json:"subnet,omitempty"`
	Ranges     GKERanges  `json:"ranges"`
	SystemPool GKEPool    `json:"systemPool"`
	WorkerPool *GKEPool   `json:"workerPool,omitempty"`
	GPUPool    *GKEPool   `json:"gpuPool,omitempty"`
	// more pools, which workers choose by job.worker.pool
	Pools []GKENamedPool `json:"pools,omitempty"`
	// for data, checkpoints and models; nil = none
	Bucket      *GKEBucket   `json:"bucket,omitempty"`
	Filestore   *Filestore   `json:"filestore,omitempty"`
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	// a repository of images that exists already, in the region of the cluster, or
	// projects/PROJECT/locations/LOCATION/repositories/NAME; "" = the stack makes one
	Registry string `json:"registry,omitempty"`
	// address of a service account of the nodes that exists already, of the project:
	// "nodes@PROJECT.iam.gserviceaccount.com"; "" = the stack makes one
	NodeAccount string `json:"nodeAccount,omitempty"`
	// key of Cloud KMS that encrypts all that the stack makes:
	// projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY; "" = Google's own keys
	KMSKey string `json:"kmsKey,omitempty"`
	// roles of the job's identity in the project: "roles/storage.objectViewer"
	JobRoles []string `json:"jobRoles,omitempty"`
}

// GKESubnet is a subnet that exists already, also one of a Shared VPC.
type GKESubnet struct {
	// in the stack's project and region, or projects/HOST/regions/REGION/subnetworks/NAME
	Name string `json:"name"`
	// names of its secondary ranges
	Pods     string `json:"pods,omitempty"`
	Services string `json:"services,omitempty"`
}

// GKERanges has the CIDRs of a cluster, which must not overlap. With a subnet that exists already
// only Master is given.
type GKERanges struct {
	Nodes    string `json:"nodes"`    // "10.0.0.0/20"
	Pods     string `json:"pods"`     // "10.4.0.0/14"
	Services string `json:"services"` // "10.0.32.0/20"
	Master   string `json:"master"`   // a /28
}

// GKEPool is a pool of nodes of one kind. Counts are totals of all zones.
type GKEPool struct {
	MachineType string `json:"machineType"`
	MinNodes    int    `json:"minNodes"`
	MaxNodes    int    `json:"maxNodes"`
	// cheaper nodes that may be taken back at any time, for elastic jobs; not for the system pool
	Spot bool `json:"spot,omitempty"`
	// GiB; default 100
	DiskGB int `json:"diskGb,omitempty"`
	// type of GPU, "nvidia-tesla-t4"; for the GPU pool only
	Accelerator string `json:"accelerator,omitempty"`
	// GPUs per node
	GPUs int `json:"gpus,omitempty"`
	// version of the driver that GKE installs: DEFAULT or LATEST
	GPUDriver string `json:"gpuDriver,omitempty"`
	// zones of the nodes, in the cluster's region; nil = those of the cluster
	Zones []string `json:"zones,omitempty"`
	// name of a reservation of Compute Engine, in this project
	Reservation string `json:"reservation,omitempty"`
	// Kubernetes labels
	Labels map[string]string `json:"labels,omitempty"`
}

// GKENamedPool is a pool of nodes of a name.
type GKENamedPool struct {
	Name string `json:"name"`
	GKEPool
	// on-demand nodes where Google has no spot nodes
	OnDemand bool `json:"onDemand,omitempty"`
	// taints besides the one that keeps the pods of others off
	Taints []Taint `json:"taints,omitempty"`
}

// Filestore is an NFS server of Google.
type Filestore struct {
	// of an instance that exists already, of which only Location is given, too; "" = the stack
	// makes one
	Name string `json:"name,omitempty"`
	// BASIC_HDD, BASIC_SSD, ZONAL, REGIONAL
	Tier string `json:"tier"`
	// GiB: 1024 or more, BASIC_SSD 2560; ZONAL and REGIONAL in steps of 256
	CapacityGB int `json:"capacityGb"`
	// name of the share
	Share string `json:"share"`
	// "" = the cluster's zone or region, whichever the tier requires
	Location string `json:"location,omitempty"`
	// a /29, or a /24 for ZONAL and REGIONAL; "" = Google chooses
	Range string `json:"range,omitempty"`
}

// Maintenance limits when Google may upgrade the cluster. Either DailyStart or Window is set.
type Maintenance struct {
	// UTC, "03:00": every day for four hours
	DailyStart string `json:"dailyStart,omitempty"`
	// a window with another recurrence than daily
	Window *MaintenanceWindow `json:"window,omitempty"`
	// periods without upgrades, also within the window
	Exclusions []MaintenanceExclusion `json:"exclusions,omitempty"`
}

// MaintenanceWindow is a recurring window. Times are in the format of RFC 3339, in UTC:
// "2026-12-05T02:00:00Z".
type MaintenanceWindow struct {
	// of the first window
	Start string `json:"start"`
	// of the first window
	End string `json:"end"`
	// recurrence by RFC 5545: "FREQ=WEEKLY;BYDAY=SA,SU"
	Recurrence string `json:"recurrence"`
}

// MaintenanceExclusion is a period in which Google does not upgrade. Times are in the format of RFC
// 3339, in UTC.
type MaintenanceExclusion struct {
	Name  string `json:"name"`
	Start string `json:"start"`
	End   string `json:"end"`
	// NO_UPGRADES, NO_MINOR_UPGRADES; default NO_MINOR_OR_NODE_UPGRADES: nodes stay unchanged
	Scope string `json:"scope,omitempty"`
}

// Network is a range of addresses that may reach the Kubernetes API.
type Network struct {
	CIDR string `json:"cidr"`
	Name string `json:"name,omitempty"`
}

// EKS is a cluster of Amazon.
type EKS struct {
	// aws:region
	Region string `json:"-"`
	// aws:profile; "" = the AWS CLI chooses
	Profile string `json:"-"`
	// version of Kubernetes: "1.35"; "" = that of the cluster, or Amazon's default for a new one
	Version string `json:"version,omitempty"`
	// STANDARD, or EXTENDED: one more year of support at six times the price
	SupportType string `json:"supportType,omitempty"`
	VPC         VPC    `json:"vpc"`
	// the Kubernetes API has a public address
	PublicAccess bool `json:"publicAccess"`
	// networks that may reach the public address
	AuthorizedNetworks []Network `json:"authorizedNetworks"`
	// ARNs of roles and users that administer the cluster, including all who run `pulumi up`; nil =
	// the creator
	Admins []string `json:"admins,omitempty"`
	// how the cluster gets its nodes: [NodesGroups], [NodesAuto] or [NodesKarpenter]; "" =
	// NodesGroups
	Nodes string `json:"nodes,omitempty"`
	// ARN of a role of the nodes that exists already: "arn:aws:iam::123456789012:role/nodes"; "" =
	// the stack makes one
	NodeRole    string    `json:"nodeRole,omitempty"`
	SystemGroup EKSGroup  `json:"systemGroup"`
	WorkerGroup *EKSGroup `json:"workerGroup,omitempty"`
	GPUGroup    *EKSGroup `json:"gpuGroup,omitempty"`
	// more pools, which workers choose by job.worker.pool
	Pools []EKSPool `json:"pools,omitempty"`
	// for data, checkpoints and models; nil = none
	Bucket *Bucket `json:"bucket,omitempty"`
	EFS    *EFS    `json:"efs,omitempty"`
	// name, without that of the image, of a repository of images that exists already; "" = the
	// stack makes one
	Registry string `json:"registry,omitempty"`
	// ARN of a key of KMS that encrypts all that the stack makes:
	// "arn:aws:kms:us-west-2:123456789012:key/ID"; "" = Amazon's own keys
	KMSKey string `json:"kmsKey,omitempty"`
	// an S3 bucket that the job may read
	CodeBucket bool `json:"codeBucket"`
	// ARNs of IAM policies of the job's role: "arn:aws:iam::123456789012:policy/data"
	JobPolicies []string `json:"jobPolicies,omitempty"`
	// how long the control plane's logs are kept
	LogRetentionDays int `json:"logRetentionDays"`
	// apply changed labels to nodes too, which replaces all of them
	LabelNodes bool `json:"labelNodes,omitempty"`
}

// VPC is a network that the stack creates, or an existing one: then only ID and the subnets are
// given.
type VPC struct {
	// a /16 to a /20
	CIDR string `json:"cidr,omitempty"`
	// two or more, whose order must not change: "us-west-2a"
	Zones []string `json:"zones,omitempty"`
	// a NAT for each zone, instead of one for all
	NATPerZone bool `json:"natPerZone,omitempty"`
	// "vpc-…"
	ID string `json:"id,omitempty"`
	// IDs of subnets, one per zone
	PrivateSubnets []string `json:"privateSubnets,omitempty"`
	PublicSubnets  []string `json:"publicSubnets,omitempty"`
}

// EKSGroup is a group of nodes of one kind.
type EKSGroup struct {
	// several are useful for spot
	InstanceTypes []string `json:"instanceTypes"`
	MinNodes      int      `json:"minNodes"`
	MaxNodes      int      `json:"maxNodes"`
	// number of nodes at creation; later `aws eks update-nodegroup-config` changes it
	DesiredNodes int  `json:"desiredNodes"`
	Spot         bool `json:"spot,omitempty"`
	// on-demand nodes where Amazon has no spot nodes; with Karpenter only
	OnDemand bool `json:"onDemand,omitempty"`
	// of eks.vpc; nil = all
	Zones []string `json:"zones,omitempty"`
	// ID of a capacity reservation: "cr-…"
	Reservation string `json:"reservation,omitempty"`
	// the reservation is a capacity block
	CapacityBlock bool `json:"capacityBlock,omitempty"`
	// GiB; default 100
	DiskGB int `json:"diskGb,omitempty"`
	// GPUs per node; for the GPU group and pools only
	GPUs int `json:"gpus,omitempty"`
	// Kubernetes labels
	Labels map[string]string `json:"labels,omitempty"`
	// time after which a node without pods ends: "5m"; with Karpenter only
	IdleAfter string `json:"idleAfter,omitempty"`
}

// EKSPool is a pool of nodes of a name.
type EKSPool struct {
	Name string `json:"name"`
	EKSGroup
	// taints besides those that keep the pods of others off
	Taints []Taint `json:"taints,omitempty"`
}

// Taint keeps pods off a node that do not tolerate it.
type Taint struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	// NoSchedule, PreferNoSchedule or NoExecute; default NoSchedule
	Effect string `json:"effect,omitempty"`
}

// EFS is an NFS file system of Amazon.
type EFS struct {
	// of a file system that exists already: "fs-…"; "" = the stack makes one
	ID string `json:"id,omitempty"`
	// elastic or bursting
	ThroughputMode string `json:"throughputMode,omitempty"`
	// owner of all files, whichever user writes them; nil = root, without an access point
	UID *int `json:"uid,omitempty"`
}

// Existing is a cluster that was there before the stack, and stays.
type Existing struct {
	// context of the kubeconfig that kubectl reads; "" = the current one
	Context string `json:"context,omitempty"`
	// nil = the stack has no volume
	Volume *Claim `json:"volume,omitempty"`
	// where the stack's image is pushed to, without its name: "ghcr.io/me"; "" = nowhere
	Registry string `json:"registry,omitempty"`
	// nil = the credentials of Docker's configuration
	Login *Login `json:"login,omitempty"`
	// nodes of pods that request GPUs; nil = any
	GPUNodes *Nodes `json:"gpuNodes,omitempty"`
	// nodes of workers without GPUs that may be taken back at any time; nil = any
	SpotNodes *Nodes `json:"spotNodes,omitempty"`
}

// Claim is a PersistentVolumeClaim in the stack's namespace.
type Claim struct {
	// its name
	Name string `json:"name"`
	// GiB of the claim that the stack makes; 0 = it exists already, and is not the stack's
	CapacityGB int `json:"capacityGb,omitempty"`
	// "" = the cluster's default
	StorageClass string `json:"storageClass,omitempty"`
	// ReadWriteMany, or ReadWriteOnce: all pods of the job on one node
	AccessMode string `json:"accessMode,omitempty"`
}

// Login is a command that prints the password of a registry.
type Login struct {
	User string `json:"user"`
	// a line for the shell: "aws ecr get-login-password"
	Command string `json:"command"`
}

// Nodes are selected by their labels, and tolerated by their taints.
type Nodes struct {
	Selector    map[string]string `json:"selector,omitempty"`
	Tolerations []job.Toleration  `json:"tolerations,omitempty"`
}

// Minikube is a cluster in a virtual machine or container on this machine.
type Minikube struct {
	// "" = elasticdl-<stack>
	Profile string `json:"profile,omitempty"`
	// docker, kvm2, qemu, vfkit, …; "" = minikube chooses
	Driver string `json:"driver,omitempty"`
	CPUs   int    `json:"cpus"`
	// MiB
	MemoryMB int `json:"memoryMb"`
	// GiB
	DiskGB int `json:"diskGb"`
	// "v1.35.0"
	KubernetesVersion string `json:"kubernetesVersion"`
	// "calico" and "cilium" enforce NetworkPolicies
	CNI string `json:"cni,omitempty"`
	// "all" = all GPUs of this machine, with the docker driver
	GPUs string `json:"gpus,omitempty"`
	// directory of this machine that is mounted as /data; relative to Pulumi.yaml; "" = none
	Data string `json:"data,omitempty"`
	// use an existing profile, and keep it when the stack is destroyed
	Adopt bool `json:"adopt,omitempty"`
}

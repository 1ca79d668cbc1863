package infra

import (
	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Cluster has what the packages of the clouds return to the rest of the stack: how to reach the
// cluster, and which resources must exist first.
type Cluster struct {
	// what it was made by; the platform has its own section
	Settings *settings.Settings
	// the component of its resources; nil = it has none
	Component pulumi.Resource
	Name      pulumi.StringOutput
	// identity of the cluster for the Kubernetes provider; if it changes, all objects within are
	// replaced
	ID pulumi.StringInput
	// it names a command that gets credentials, and contains no key; zero Output = that of the
	// machine, which kubectl reads: see Local
	Kubeconfig pulumi.StringOutput
	// context of the kubeconfig; "" = its current one
	Context string
	// the cluster existed before the stack, and this machine's kubeconfig has its context
	Adopted bool
	// objects within are deleted with this resource, and need not be deleted one by one; nil = they
	// must be
	Resource pulumi.Resource
	// resources that must exist before any object within: nodes, access, addons
	Ready []pulumi.Resource

	// storage for data that all pods share; nil = none
	Volume *Volume
	// for data, checkpoints and models of the job; nil = none
	Bucket *Bucket
	// registry of the stack's images: "us-central1-docker.pkg.dev/p/elasticdl"; zero Output = none
	Registry pulumi.StringOutput
	// how to log in to the registry; nil = no login is needed
	Login *settings.Login
	// Identify makes the identity of a job in the cloud; nil = the cluster has none. The name is
	// that of its resources, after the name of the cluster.
	Identify func(name string, of Account) (*Identity, error)
	GPU      GPU
	// WorkersOn returns the nodes of workers: of the pool that is named, or else of those that are
	// for workers, with GPUs or without. It returns nil if they may be on any, or if there is no
	// pool of that name. A nil function always does.
	WorkersOn func(pool string, gpus bool) *Nodes
	// charts that are installed first, and objects that make the nodes, both in the order of their
	// creation
	Charts []Chart
	Nodes  []Object
	// what all pods of a job tolerate, so that they may use nodes that are for jobs only
	Tolerations []job.Toleration
	// the cluster's network enforces NetworkPolicies
	NetPolicies bool
	// environment of commands of this machine that use the cloud: AWS_PROFILE
	Environment map[string]string
	// it has its platform
	Used bool
	// what people who use the cluster ask for besides, by name: "vpc"
	Outputs pulumi.Map
}

// Account is the ServiceAccount of a job.
type Account struct{ Job, Namespace, Name string }

// Identity is the identity of a job in a cloud.
type Identity struct {
	// of the job's ServiceAccount
	Annotations map[string]pulumi.StringOutput
	// resources that must exist before the job
	Ready []pulumi.Resource
}

// Local reports whether the cluster is reached by the files that kubectl reads on each machine.
func (c *Cluster) Local() bool { return c.Kubeconfig.OutputState == nil }

// GPU has what pods that request GPUs must select on this cluster.
type GPU struct {
	// nil = the stack has no GPUs
	NodeSelector map[string]string
	// besides the taint of GPU nodes, which the pods tolerate in any case
	Tolerations []job.Toleration
	// the cluster needs NVIDIA's device plugin from the stack
	DevicePlugin bool
}

// Nodes has what pods must select and tolerate to run on nodes that are for them. A taint that
// masters and parameter servers do not tolerate keeps these off nodes for workers, such as spot
// nodes, which the cloud may take back at any time.
type Nodes struct {
	NodeSelector map[string]string
	Tolerations  []job.Toleration
}

// Volume describes the storage of the stack's claim: a static PersistentVolume, unless OnDemand or
// Shared says otherwise.
type Volume struct {
	// name of the claim, which jobs rely on: "fileserver-claim"
	Claim string
	// identity of the storage; storage with another ID has none of the data
	ID pulumi.StringInput
	// GiB
	CapacityGB int
	// the cluster makes the volume for the claim; nil = the stack does
	OnDemand *OnDemand
	// the claim exists already, and is not of the stack
	Shared bool
	// source of a static volume; its strings may contain placeholders, see Holes
	Source core.PersistentVolumeSource
	// values of the placeholders: see [Register]
	Holes map[string]pulumi.StringInput
}

// Bucket is a bucket of the stack.
type Bucket struct {
	settings.Store
	// Assumed is the name that the settings have for the bucket, which do not know the account.
	Assumed string
	// ID is unknown until the bucket exists.
	ID pulumi.StringInput
	// Ready lists the bucket and its own settings.
	Ready []pulumi.Resource
}

// OnDemand has what a claim asks of the cluster.
type OnDemand struct {
	// "" = the cluster's default class
	StorageClass string
	AccessMode   core.PersistentVolumeAccessMode
	// `pulumi destroy` refuses to delete the claim, and the data with it
	Protect bool
}

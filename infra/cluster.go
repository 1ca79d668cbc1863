package infra

import (
	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Cluster has what the packages of the clouds return to the rest of the stack: how to reach the cluster, and which resources
// must exist first.
type Cluster struct {
	Name       pulumi.StringOutput
	ID         pulumi.StringInput  // identity of the cluster for the Kubernetes provider; if it changes, all objects within are replaced
	Kubeconfig pulumi.StringOutput // it names a command that gets credentials, and contains no key
	Context    string              // context of the kubeconfig; "" = its current one
	Adopted    bool                // the cluster existed before the stack, and this machine's kubeconfig has its context
	Guard      *Guard              // guards all objects that the stack creates in it; nil = objects are neither marked nor looked up
	Resource   pulumi.Resource     // objects within are deleted with this resource, and need not be deleted one by one; nil = they must be
	Ready      []pulumi.Resource   // resources that must exist before any object within: nodes, access, addons

	Volume      *Volume                        // storage for data that all pods share; nil = none
	Registry    pulumi.StringOutput            // registry of the stack's images: "us-central1-docker.pkg.dev/p/elasticdl"; zero Output = none
	Login       *Login                         // how to log in to the registry; nil = no login is needed
	Identity    map[string]pulumi.StringOutput // annotations that map the job's ServiceAccount to an identity of the cloud
	GPU         GPU
	Spot        *Spot // how workers get onto spot nodes; nil = workers without GPUs run on on-demand nodes
	NetPolicies bool  // the cluster's network enforces NetworkPolicies
}

// GPU has what pods that request GPUs must select on this cluster.
type GPU struct {
	NodeSelector map[string]string // nil = the stack has no GPUs
	DevicePlugin bool              // the cluster needs NVIDIA's device plugin from the stack
}

// Spot has what workers without GPUs must select and tolerate to run on spot nodes, which the cloud may take back at any time.
// These nodes have a taint that masters and parameter servers do not tolerate, so that they run elsewhere.
type Spot struct {
	NodeSelector map[string]string
	Tolerations  []job.Toleration
}

// Volume describes where a static PersistentVolume stores its data.
type Volume struct {
	Claim      string                        // name of the claim, which jobs rely on: "fileserver-claim"
	ID         pulumi.StringInput            // identity of the storage; storage with another ID has none of the data
	CapacityGB int                           // GiB
	Source     core.PersistentVolumeSource   // source of the volume; its strings may contain placeholders, see Holes
	Holes      map[string]pulumi.StringInput // values of the placeholders: see [Register]
}

// Login describes how to get the password of a registry: by a command that prints it.
type Login struct {
	User    string
	Command string // a command line for the shell
}

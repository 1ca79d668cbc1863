package infra

import (
	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// Cluster is what each cloud gives to the rest of the stack: a way in, and what depends on what.
type Cluster struct {
	Name       pulumi.StringOutput
	ID         pulumi.StringInput  // of the Kubernetes provider: if it changes, then everything within is another's
	Kubeconfig pulumi.StringOutput // with a command that gets credentials, no key
	Context    string              // of the kubeconfig; "" = its current one
	Adopted    bool                // it was there before the stack, and this machine's kubeconfig has that context
	Guard      *Guard              // of all that the stack puts into it; nil = no object is marked or looked at
	Resource   pulumi.Resource     // what is within goes when it goes, and need not be deleted one by one
	Ready      []pulumi.Resource   // what must be there before anything within: nodes, access, addons

	Volume      *Volume                        // for data that all pods share; nil = none
	Registry    pulumi.StringOutput            // where images of the stack are: "us-central1-docker.pkg.dev/p/elasticdl"; zero Output = none
	Login       *Login                         // to the registry; nil = none needed
	Identity    map[string]pulumi.StringOutput // annotations that make the job's ServiceAccount an identity of the cloud
	GPU         GPU
	Spot        *Spot // nil = workers without GPUs are on nodes that stay
	NetPolicies bool  // the cluster's network obeys NetworkPolicies
}

// GPU is what pods that want GPUs must say on this cluster.
type GPU struct {
	NodeSelector map[string]string // nil = the stack has no GPUs
	DevicePlugin bool              // NVIDIA's is not there by itself
}

// Spot is what workers that want no GPUs must say to be on the nodes that are meant for them and may be taken back at any
// time. These have a taint, so that masters and parameter servers, which say nothing, are elsewhere.
type Spot struct {
	NodeSelector map[string]string
	Tolerations  []job.Toleration
}

// Volume is where a static PersistentVolume has its data.
type Volume struct {
	Claim      string                        // the name of the claim, a contract: "fileserver-claim"
	ID         pulumi.StringInput            // another one has none of the data
	CapacityGB int                           // GiB
	Source     core.PersistentVolumeSource   // its strings may have holes
	Holes      map[string]pulumi.StringInput // what goes into them: see [Register]
}

// Login is how the password of a registry is got: a command that prints it.
type Login struct {
	User    string
	Command string // as a shell takes it
}

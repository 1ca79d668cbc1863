package infra

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// Clouds that a stack may be on: values of elasticdl:cloud.
const (
	CloudGKE      = "gke"
	CloudEKS      = "eks"
	CloudMinikube = "minikube"
)

// Settings is the configuration of a stack: elasticdl:<field> in stacks/Pulumi.<stack>.yaml.
type Settings struct {
	Project string `json:"-"` // of Pulumi
	Stack   string `json:"-"`
	Cloud   string `json:"cloud"` // gke, eks or minikube; it says which section below there is

	GKE      *GKE      `json:"gke,omitempty"`
	EKS      *EKS      `json:"eks,omitempty"`
	Minikube *Minikube `json:"minikube,omitempty"`
	Platform Platform  `json:"platform"`
	Policy   Policy    `json:"policy,omitzero"`
	Image    *Image    `json:"image,omitempty"` // nil: job.image is there already
	Job      *job.Job  `json:"job,omitempty"`   // nil: a cluster and no job

	// ProtectStorage keeps file systems, buckets and registries from `pulumi destroy`.
	ProtectStorage bool              `json:"protectStorage"`
	Labels         map[string]string `json:"labels,omitempty"` // on everything that costs: labels of Google, tags of Amazon
}

// Platform is what every cluster gets.
type Platform struct {
	Namespace       string            `json:"namespace"`                 // of the job; made by the stack
	PriorityClasses map[string]int32  `json:"priorityClasses,omitempty"` // by name; higher values preempt lower
	PodSecurity     string            `json:"podSecurity,omitempty"`     // privileged, baseline or restricted; "" = as the job allows
	Quota           map[string]string `json:"quota,omitempty"`           // of the namespace: requests.cpu, limits.memory, requests.nvidia.com/gpu, pods, …
	NetworkPolicy   bool              `json:"networkPolicy,omitempty"`   // pods of the namespace talk to each other, the API and the world; nobody from elsewhere to them
	StorageClass    string            `json:"storageClass,omitempty"`    // a class of dynamic volumes on the shared storage, under that name; "" = none
}

// Policy is what package policy lets pass although it is against its rules.
type Policy struct {
	Allow []string `json:"allow,omitempty"` // names of rules: "pinned-image", or "pinned-image:trainer" for the resource of that name only
}

// Image is built from Go source and pushed to the stack's registry, or loaded into minikube.
type Image struct {
	Source    string   `json:"source"`              // directory of a module as `elasticdl zoo init` makes it; relative to Pulumi.yaml
	Name      string   `json:"name,omitempty"`      // "" = that of the job
	Base      string   `json:"base,omitempty"`      // --base_image; "" = from scratch
	Platforms []string `json:"platforms,omitempty"` // "linux/amd64"; nil = that
	Command   string   `json:"command,omitempty"`   // the elasticdl binary; "" = "elasticdl" on PATH
}

// Load reads the stack's configuration and reports every problem at once.
func Load(ctx *pulumi.Context) (*Settings, error) { panic("not yet") }

package settings

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// Clouds that a stack may be on: values of elasticdl:cloud.
const (
	CloudGKE      = "gke"
	CloudEKS      = "eks"
	CloudMinikube = "minikube"
)

var clouds = []string{CloudGKE, CloudEKS, CloudMinikube}

// Settings is the configuration of a stack: elasticdl:<field> in stacks/Pulumi.<stack>.yaml.
type Settings struct {
	Project string `json:"-"` // of Pulumi
	Stack   string `json:"-"`
	Root    string `json:"-"`     // directory of Pulumi.yaml, which paths below are relative to
	Cloud   string `json:"cloud"` // gke, eks or minikube; it says which section below there is

	GKE      *GKE      `json:"gke,omitempty"`
	EKS      *EKS      `json:"eks,omitempty"`
	Minikube *Minikube `json:"minikube,omitempty"`
	Platform Platform  `json:"platform"`
	Policy   Policy    `json:"policy,omitzero"`
	Image    *Image    `json:"image,omitempty"` // nil: job.image is there already
	Data     *Data     `json:"data,omitempty"`  // nil: the volume has it already, or gets it otherwise
	Job      *job.Job  `json:"job,omitempty"`   // nil: a cluster and no job

	// ProtectStorage keeps file systems, buckets and registries from `pulumi destroy`.
	ProtectStorage bool              `json:"protectStorage"`
	Labels         map[string]string `json:"labels,omitempty"` // on everything that costs: labels of Google, tags of Amazon; LabelStack beside them

	Now   time.Time `json:"-"` // of this run; a stack reads no clock by itself
	Notes []string  `json:"-"` // what is allowed, and should be known: warnings of `pulumi up`
}

// LabelStack is the label by which what costs is found: its value is the [Settings.Name] of the stack.
const LabelStack = "elasticdl-stack"

// Platform is what every cluster gets.
type Platform struct {
	Namespace       string           `json:"namespace"`                 // of the job; made by the stack, unless it is shared
	ShareNamespace  bool             `json:"shareNamespace,omitempty"`  // it is there, and another's: it is neither made, changed nor deleted
	PriorityClasses map[string]int32 `json:"priorityClasses,omitempty"` // by name; higher values preempt lower
	// SharePriorityClasses are those that are there, with the values above, and another's.
	SharePriorityClasses []string          `json:"sharePriorityClasses,omitempty"`
	PodSecurity          string            `json:"podSecurity,omitempty"`   // privileged, baseline or restricted; "" = baseline if the job's pods pass it
	Quota                map[string]string `json:"quota,omitempty"`         // of the namespace: requests.cpu, limits.memory, requests.nvidia.com/gpu, pods, …
	NetworkPolicy        bool              `json:"networkPolicy,omitempty"` // pods of the namespace talk to each other, to names, the API and HTTPS; connections to them need a policy of a job
	StorageClass         string            `json:"storageClass,omitempty"`  // a class of volumes on demand, directories of eks.efs, under that name; "" = none

	// DevicePluginImage is NVIDIA's device plugin, for a mirror of it; "" = the version and digest that package platform names.
	DevicePluginImage string `json:"devicePluginImage,omitempty"`
}

// Policy is what package policy lets pass although it is against its rules.
type Policy struct {
	Allow []string `json:"allow,omitempty"` // names of rules: "unpinned-image", or "unpinned-image:trainer" for the resource of that name only
}

// Image is built from Go source and pushed to the stack's registry, or loaded into minikube.
type Image struct {
	Source    string   `json:"source"`              // directory of a program as `elasticdl zoo init` makes it, or a binary; relative to Pulumi.yaml
	Name      string   `json:"name,omitempty"`      // "" = that of the job
	Base      string   `json:"base,omitempty"`      // --base_image; "" = from scratch
	Platforms []string `json:"platforms,omitempty"` // default "linux/amd64"; on minikube that of this machine
	Command   string   `json:"command,omitempty"`   // the elasticdl binary; default "elasticdl", on PATH
	Pin       bool     `json:"pin,omitempty"`       // the job keeps the image that the stack has, whatever becomes of the source
}

// Data is a public data set that the stack brings onto its volume, once, before the job.
type Data struct {
	Dataset string `json:"dataset"`           // a name that `elasticdl dataset` knows: mnist
	Path    string `json:"path,omitempty"`    // directory on the stack's claim; "" = the data set's name
	Source  string `json:"source,omitempty"`  // directory, relative to Pulumi.yaml, or URL of its files; "" = the public mirrors
	Command string `json:"command,omitempty"` // the elasticdl binary; default that of the image, else "elasticdl", on PATH
}

// Keys that the clouds' own providers read, and a stack too.
const (
	keyProject = "gcp:project"
	keyRegion  = "aws:region"
	keyProfile = "aws:profile"
)

// Keys returns the keys of a configuration that [Parse] looks at, for a project of that name.
func Keys(project string) []string {
	keys := append([]string{keyProject, keyRegion, keyProfile}, providerOnly...)
	for f := range fields(reflect.TypeFor[Settings]()) {
		keys = append(keys, project+":"+f.name)
	}
	return keys
}

// Input is everything that settings are made of.
type Input struct {
	// Project is the name of the Pulumi project, with which its keys begin: "elasticdl".
	Project string
	// Stack is the name of the stack.
	Stack string
	// Root is the directory of Pulumi.yaml, which paths in settings are relative to.
	Root string
	// Now is what dates in the settings are compared with.
	Now time.Time
	// Arch is the architecture of this machine, as runtime.GOARCH names it.
	Arch string
	// Config is the configuration as the engine has it, by key: sections are JSON.
	Config map[string]string
	// Secret names the keys of Config whose values hold secrets. They are in plain text there.
	Secret []string
	// Stat reports whether a path is a directory, and returns an error if there is nothing.
	Stat func(path string) (directory bool, err error)
}

// Check looks at settings for what this package does not know, and adds what is wrong to the problems. The settings may have
// problems already.
type Check func(*Settings, *Problems)

// Verify returns what one check finds, as [Parse] does of all.
func (s *Settings) Verify(check Check) error {
	p := &Problems{Project: s.Project}
	check(s, p)
	return p.Err()
}

// Parse makes settings of a configuration. Its error has everything that is wrong with it, a line for each problem, in the
// order of a stack's file: also what the other checks find.
func Parse(in Input, others ...Check) (*Settings, error) {
	p := &Problems{Project: in.Project}
	for _, key := range in.Secret { // the master reads the job from a ConfigMap, and the state has the rest
		if name, ok := strings.CutPrefix(key, in.Project+":"); ok {
			p.Check(false, name, "contains a secret, which would be stored in plain text in the cluster and in the Pulumi state: put it into a Secret of Kubernetes, and name that: pulumi config set --path job.envSecrets.NAME SECRET/KEY")
		}
	}
	tree := map[string]any{}
	for key, text := range in.Config {
		if name, ok := strings.CutPrefix(key, in.Project+":"); ok && name == "cloud" {
			tree[name] = text
		} else if ok {
			tree[name] = read(text)
		}
	}
	cloud, _ := tree["cloud"].(string)
	for _, section := range clouds {
		if v := tree[section]; section != cloud && slices.Contains(clouds, cloud) {
			empty, ok := v.(map[string]any)
			p.Check(v == nil || ok && len(empty) == 0, section, "goes with cloud: %s, and this stack has %s: remove it", section, cloud)
			delete(tree, section)
		}
	}
	for _, section := range []string{"image", "data", "job"} { // Pulumi.yaml has {} for none
		if v, _ := tree[section].(map[string]any); v != nil && len(v) == 0 {
			delete(tree, section)
		}
	}
	if slices.Contains(clouds, cloud) && tree[cloud] == nil {
		tree[cloud] = map[string]any{}
	}
	s := defaults(cloud, in.Arch)
	decode(tree, reflect.ValueOf(s).Elem(), "", p)
	s.Project, s.Stack = in.Project, in.Stack
	for _, section := range slices.Sorted(maps.Keys(tree)) {
		if section == "job" { // what looks like a secret there is refused, as by the command line
			continue
		}
		for _, found := range job.PlainSecrets(map[string]any{section: tree[section]}) {
			s.note("%s: it is stored in plain text in the stack's file and in the Pulumi state", found)
		}
	}
	s.settle(in, func(path string) bool { return given(tree, path) })
	s.checkGiven(func(path string) bool { return given(tree, path) }, p)
	s.check(in, p)
	for _, check := range others {
		check(s, p)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// given reports whether a tree has a path.
func given(tree any, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		section, _ := tree.(map[string]any)
		tree = section[name]
	}
	return tree != nil
}

// Name returns "elasticdl-<stack>-<part>" as clouds take it: lower-case letters, digits and '-', at most limit of them. What
// does not fit ends in a hash of what it was, so that two stacks have two names.
func (s *Settings) Name(limit int, parts ...string) string {
	was := strings.Join(append([]string{"elasticdl", s.Stack}, parts...), "-")
	name := strings.TrimRight(notInNames.ReplaceAllString(strings.ToLower(was), "-"), "-")
	if name == was && len(name) <= limit {
		return name
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(was)))[:6]
	return strings.TrimRight(name[:min(len(name), limit-len(hash)-1)], "-") + "-" + hash
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

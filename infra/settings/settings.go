package settings

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/secret"
)

// Clouds that a stack may be on: values of elasticdl:cloud.
const (
	CloudGKE      = "gke"
	CloudEKS      = "eks"
	CloudMinikube = "minikube"
	// a cluster of a kubeconfig, on whatever cloud
	CloudExisting = "existing"
)

var clouds = []string{CloudGKE, CloudEKS, CloudMinikube, CloudExisting}

// Settings is the configuration of a stack: elasticdl:<field> in stacks/Pulumi.<stack>.yaml.
type Settings struct {
	// name of the Pulumi project
	Project string `json:"-"`
	Stack   string `json:"-"`
	// Base begins all names in the cloud; "" = elasticdl-<stack>
	Base string `json:"-"`
	// directory of Pulumi.yaml; paths below are relative to it
	Root string `json:"-"`
	// gke, eks, minikube or existing; the section of that name is set below
	Cloud string `json:"cloud"`

	GKE      *GKE      `json:"gke,omitempty"`
	EKS      *EKS      `json:"eks,omitempty"`
	Minikube *Minikube `json:"minikube,omitempty"`
	Existing *Existing `json:"existing,omitempty"`
	Platform Platform  `json:"platform"`
	Policy   Policy    `json:"policy,omitzero"`
	// nil = job.image exists already
	Image *Image `json:"image,omitempty"`
	// nil = the stack copies no data
	Data *Data `json:"data,omitempty"`
	// nil = a cluster without a job
	Job *job.Job `json:"job,omitempty"`
	// WorkerPool is the pool of the job's workers: job.worker.pool; "" = by what they request.
	WorkerPool string `json:"-"`

	// how long `pulumi up` waits for a job that it has submitted to train: "90s", "10m"; "0" = not
	// at all
	Wait string `json:"wait,omitempty"`
	// ProtectStorage keeps file systems, buckets and registries from `pulumi destroy`.
	ProtectStorage bool `json:"protectStorage"`
	// labels of everything that is billed: labels of Google, tags of Amazon; the stack adds
	// LabelStack
	Labels map[string]string `json:"labels,omitempty"`
	// nil = the stack makes no budget
	Budget *Budget `json:"budget,omitempty"`

	// time of this run; the stack reads no clock otherwise
	Now time.Time `json:"-"`
	// warnings of `pulumi up` about settings that are valid
	Notes []string `json:"-"`
}

// LabelStack is the label by which billed resources are found: its value is the [Settings.Name] of
// the stack.
const LabelStack = "elasticdl-stack"

// Platform has the settings of what every cluster gets.
type Platform struct {
	// namespace of the job; the stack creates it, unless it is shared
	Namespace string `json:"namespace"`
	// the namespace belongs to someone else: the stack neither creates, changes nor deletes it
	ShareNamespace bool `json:"shareNamespace,omitempty"`
	// values by name; higher values preempt lower ones
	PriorityClasses map[string]int32 `json:"priorityClasses,omitempty"`
	// SharePriorityClasses lists the classes that exist already with these values, and belong to
	// someone else.
	SharePriorityClasses []string `json:"sharePriorityClasses,omitempty"`
	// the stack makes the WorkloadPriorityClasses elasticdl-core and elasticdl-elastic of jobs in
	// queues; requires Kueue in the cluster; default: true if the stack installs Kueue
	QueuePriorities bool `json:"queuePriorities,omitempty"`
	// nil = the stack makes no queue
	Queue *Queue `json:"queue,omitempty"`
	// privileged, baseline or restricted; "" = baseline if the job's pods pass it
	PodSecurity string `json:"podSecurity,omitempty"`
	// limits of the namespace: requests.cpu, limits.memory, requests.nvidia.com/gpu, pods, …
	Quota map[string]string `json:"quota,omitempty"`
	// pods may connect only to each other, DNS, the API and HTTPS; connections to them need the
	// policy of a job
	NetworkPolicy bool `json:"networkPolicy,omitempty"`
	// name of a storage class that creates volumes on demand in eks.efs; "" = none
	StorageClass string `json:"storageClass,omitempty"`

	// DevicePluginImage is the image of NVIDIA's device plugin, such as one of a mirror; "" = the
	// version and digest that package platform names.
	DevicePluginImage string `json:"devicePluginImage,omitempty"`
}

// Policy lists exceptions from the rules of package policy.
type Policy struct {
	// names of rules: "unpinned-image", or "unpinned-image:trainer" only for the resource of that
	// name
	Allow []string `json:"allow,omitempty"`
}

// Image describes an image that the stack builds from Go source, and pushes to its registry or
// loads into minikube.
type Image struct {
	// directory of a program as `elasticdl zoo init` makes it, or a binary; relative to Pulumi.yaml
	Source string `json:"source"`
	// "" = the name of the job
	Name string `json:"name,omitempty"`
	// --base_image; "" = from scratch
	Base string `json:"base,omitempty"`
	// default "linux/amd64"; on minikube the platform of this machine
	Platforms []string `json:"platforms,omitempty"`
	// the elasticdl binary; default "elasticdl", on PATH
	Command string `json:"command,omitempty"`
	// the job keeps its current image, also if the source changes
	Pin bool `json:"pin,omitempty"`
}

// Data is a public data set that the stack copies to its volume or its bucket, once, before the
// job.
type Data struct {
	// a name that `elasticdl dataset` knows: mnist
	Dataset string `json:"dataset"`
	// directory on the stack's claim, or in its bucket: "bucket://mnist"; "" = the data set's name,
	// on the claim if there is one
	Path string `json:"path,omitempty"`
	// directory, relative to Pulumi.yaml, or URL of its files; "" = the public mirrors
	Source string `json:"source,omitempty"`
	// the elasticdl binary; default the one of image.command, else "elasticdl", on PATH
	Command string `json:"command,omitempty"`
}

// maxWait is the longest time for which `pulumi up` may wait for a job.
const maxWait = 2 * time.Hour

// Patience returns how long `pulumi up` waits for a job that it has submitted to train, of valid
// settings.
func (s *Settings) Patience() time.Duration {
	d, err := time.ParseDuration(s.Wait)
	if err != nil {
		return 0
	}
	return d
}

// ImageName returns the name of the stack's image in its registry.
func (s *Settings) ImageName() string {
	image := "model"
	if s.Job != nil {
		image = s.Job.Name
	}
	if s.Image != nil {
		image = cmp.Or(s.Image.Name, image)
	}
	return image
}

// Keys that the clouds' providers read, and the stack too.
const (
	keyProject = "gcp:project"
	keyRegion  = "aws:region"
	keyProfile = "aws:profile"
)

// Keys returns the configuration keys that [Parse] reads, for a project of that name.
func Keys(project string) []string {
	keys := append([]string{keyProject, keyRegion, keyProfile}, providerOnly...)
	for f := range fields(reflect.TypeFor[Settings]()) {
		keys = append(keys, project+":"+f.name)
	}
	return keys
}

// Input has everything that settings are derived from.
type Input struct {
	// Project is the name of the Pulumi project, which is the prefix of its keys: "elasticdl".
	Project string
	// Stack is the name of the stack.
	Stack string
	// Base is that of the settings of a cluster in a Go program: see [Settings]; "" in stacks.
	Base string
	// Root is the directory of Pulumi.yaml. Paths in settings are relative to it.
	Root string
	// Now is the time with which dates in the settings are compared.
	Now time.Time
	// Arch is the architecture of this machine, as runtime.GOARCH names it.
	Arch string
	// Config is the configuration as the engine passes it, by key: sections are JSON.
	Config map[string]string
	// Secret lists the keys of Config whose values contain secrets. Their values are in plain text
	// in Config.
	Secret []string
	// Stat reports whether a path is a directory, and returns an error if it does not exist; nil =
	// all that is named exists.
	Stat func(path string) (directory bool, err error)

	// the pool of the job's workers is not known yet
	poolUnknown bool
}

// Check reports problems of settings that this package cannot know. The settings may have problems
// already.
type Check func(*Settings, *Problems)

// Verify returns the problems that one check finds, in the form in which Parse returns all.
func (s *Settings) Verify(check Check) error {
	p := &Problems{Project: s.Project}
	check(s, p)
	return p.Err()
}

// Parse returns the settings of a configuration. Its error has all problems, including those of the
// other checks, one a line, in the order of a stack's file.
func Parse(in Input, others ...Check) (*Settings, error) {
	s, err := Read(in, others...)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Read does the same as Parse, and also returns settings that have problems, which are good to look
// at and not to create anything by.
func Read(in Input, others ...Check) (*Settings, error) {
	p := &Problems{Project: in.Project}
	if in.Stat == nil {
		in.Stat = func(string) (bool, error) { return true, nil }
	}
	// the master reads the job from a ConfigMap, and the state has the rest: both are plain text
	for _, key := range in.Secret {
		if name, ok := strings.CutPrefix(key, in.Project+":"); ok {
			p.Check(false, name, "contains a secret, which would be stored in plain text in the "+
				"cluster and in the Pulumi state: put it into a Secret of Kubernetes, and name "+
				"that: pulumi config set --path job.envSecrets.NAME SECRET/KEY")
		}
	}
	tree := map[string]any{}
	for key, text := range in.Config {
		// keys of a provider, also if the project is called as that is
		if slices.Contains([]string{keyProject, keyRegion, keyProfile}, key) {
			continue
		}
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
			p.Check(v == nil || ok && len(empty) == 0, section,
				"requires cloud: %s, but cloud is %s; remove the section", section, cloud)
			delete(tree, section)
		}
	}
	// Pulumi.yaml has {} for an absent section
	for _, section := range []string{"image", "data", "job", "budget"} {
		if v, _ := tree[section].(map[string]any); v != nil && len(v) == 0 {
			delete(tree, section)
		}
	}
	if slices.Contains(clouds, cloud) && tree[cloud] == nil {
		tree[cloud] = map[string]any{}
	}
	// it has optional sections, whose defaults are for files that have these sections
	if tree["platform"] == nil {
		tree["platform"] = map[string]any{}
	}
	s := defaults(cloud, in.Arch)
	s.Base = in.Base
	s.takePool(tree, p)
	decode(tree, reflect.ValueOf(s).Elem(), "", p)
	s.Project, s.Stack = in.Project, in.Stack
	for _, section := range slices.Sorted(maps.Keys(tree)) {
		// what looks like a secret in a job is refused, as by the command line
		if section == "job" {
			continue
		}
		for _, found := range secret.Find(map[string]any{section: tree[section]}) {
			s.note("%s: it is stored in plain text in the stack's file and in the Pulumi state", found)
		}
	}
	s.settle(in, func(path string) bool { return given(tree, path) })
	s.checkGiven(func(path string) bool { return given(tree, path) }, p)
	s.check(in, p)
	for _, check := range others {
		check(s, p)
	}
	return s, p.Err()
}

// given reports whether a tree has a path.
func given(tree any, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		section, _ := tree.(map[string]any)
		tree = section[name]
	}
	return tree != nil
}

// Name returns "elasticdl-<stack>-<part>", or what Base has instead of the stack's name, in the
// form that clouds accept: lower-case letters, digits and '-', at most limit of them. A name that
// had to be changed ends in a hash of the original, so that two stacks have different names.
func (s *Settings) Name(limit int, parts ...string) string {
	was := strings.Join(append([]string{cmp.Or(s.Base, "elasticdl-"+s.Stack)}, parts...), "-")
	name := strings.TrimRight(notInNames.ReplaceAllString(strings.ToLower(was), "-"), "-")
	if name == was && len(name) <= limit {
		return name
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(was)))[:6]
	return strings.TrimRight(name[:min(len(name), limit-len(hash)-1)], "-") + "-" + hash
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

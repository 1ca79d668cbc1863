package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// LabelPool is the label of the nodes of each pool of a list: its value is the pool's name. Nodes
// that are for workers have a taint of the same key and value.
const LabelPool = "elasticdl.org/pool"

// Names of the pools that have settings of their own.
const (
	// for what the cluster itself runs
	SystemPool = "system"
	// of gke.workerPool and of eks.workerGroup
	WorkerPool  = "workers"
	WorkerGroup = "worker"
	GPUPool     = "gpu"
	// CorePool is the pool of Karpenter for masters and parameter servers. The list eks.pools may
	// have it.
	CorePool = "core"
)

// reservedPools lists the names of each cloud that no pool of a list may have. The last two of
// Amazon's are of a pool and a class of EKS Auto Mode.
var reservedPools = map[string][]string{
	CloudGKE: {SystemPool, WorkerPool, WorkerGroup, GPUPool},
	CloudEKS: {SystemPool, WorkerGroup, GPUPool, "general-purpose", "default"},
}

// takePool moves job.worker.pool, which only a stack has, out of the tree of a file.
func (s *Settings) takePool(tree map[string]any, p *Problems) {
	of, _ := tree["job"].(map[string]any)
	worker, _ := of["worker"].(map[string]any)
	name, there := worker["pool"]
	if !there {
		return
	}
	text, ok := name.(string)
	p.Check(ok && text != "", "job.worker.pool", "%s: expected the name of a pool", show(name))
	s.WorkerPool = text
	// a copy: the caller's tree is left unchanged
	worker, of = maps.Clone(worker), maps.Clone(of)
	delete(worker, "pool")
	of["worker"], tree["job"] = worker, of
}

// pool has what a job must know of the nodes of a pool.
type pool struct {
	name, path string
	gpus       int
	// it is for workers: masters and parameter servers are elsewhere
	workers bool
	arm     bool
	// workers may choose it by name
	named bool
	// the largest type of its nodes, and its number of CPUs; 0 = that of a type is not known
	machine string
	cpus    int
	// the greatest number of its nodes
	nodes int
}

// pools returns the pools that workers may choose by name.
func (s *Settings) pools() []pool {
	return slices.DeleteFunc(s.allPools(), func(of pool) bool { return !of.named })
}

// allPools returns all pools and groups of the stack.
func (s *Settings) allPools() (all []pool) {
	if s.GKE != nil {
		for _, o := range s.GKE.AllPools() {
			of := pool{name: o.Name, path: o.Path, gpus: o.GPUs, workers: o.Listed || o.Spot, arm: o.Arm(),
				nodes: o.Most()}
			// nodes of the other two have no label by which they could be chosen, as GKE has it
			of.named = o.Listed || o.Name == GPUPool || o.Spot
			of.machine, of.cpus = largest([]string{o.MachineType}, GoogleCPUs)
			all = append(all, of)
		}
	}
	if s.EKS == nil {
		return all
	}
	for _, g := range slices.Concat(s.EKS.Groups(), s.EKS.NodePools()) {
		of := pool{name: g.Name, path: g.Path, gpus: g.GPUs, workers: g.ForWorkers(s.EKS.Follow()), arm: g.Arm(),
			named: true, nodes: g.MaxNodes}
		of.machine, of.cpus = largest(g.InstanceTypes, AmazonCPUs)
		all = append(all, of)
	}
	return all
}

// WorkersOn returns the pool of the job's workers: see [Settings.PoolFor].
func (s *Settings) WorkersOn() string { return s.PoolFor(s.WorkerPool, s.AsksForGPUs()) }

// PoolFor returns the pool of the workers of a job: the one that it names, or else the first that
// is for workers, with GPUs if they request any (cards), and never one of Arm machines; "" = no
// pool is theirs alone.
func (s *Settings) PoolFor(named string, cards bool) string {
	if named != "" || !cards && s.workersAnywhere() || cards && s.cardsAnywhere() {
		return named
	}
	for _, of := range s.pools() {
		if of.workers && of.gpus > 0 == cards && !of.arm {
			return of.name
		}
	}
	return ""
}

// workersAnywhere reports whether the stack has a pool of the older settings for workers that takes
// other pods, too.
func (s *Settings) workersAnywhere() bool {
	return s.GKE != nil && s.GKE.WorkerPool != nil && !s.GKE.WorkerPool.Spot ||
		s.EKS != nil && !s.EKS.Follow() && s.EKS.WorkerGroup != nil && !s.EKS.WorkerGroup.Spot
}

// cardsAnywhere reports whether the stack has a pool of GPUs of the older settings, whose nodes
// pods select by their GPUs.
func (s *Settings) cardsAnywhere() bool {
	return s.GKE != nil && s.GKE.GPUPool != nil || s.EKS != nil && !s.EKS.Follow() && s.EKS.GPUGroup != nil
}

// hasGPUs reports whether any pool of the stack has GPUs.
func (s *Settings) hasGPUs() bool {
	return slices.ContainsFunc(s.pools(), func(of pool) bool { return of.gpus > 0 })
}

// AsksForGPUs reports whether the job's workers request GPUs.
func (s *Settings) AsksForGPUs() bool {
	return s.Job != nil && (s.Job.Worker.Request[gpu] != "" || s.Job.Worker.Limit[gpu] != "")
}

// checkWorkerPool reports a pool that does not exist, or that does not fit the workers.
func (s *Settings) checkWorkerPool(p *Problems) {
	if s.WorkerPool == "" {
		return
	}
	const path = "job.worker.pool"
	var names []string
	for _, of := range s.pools() {
		names = append(names, of.name)
	}
	i := slices.Index(names, s.WorkerPool)
	p.Check(len(names) > 0 || s.Cloud == "", path, "%s: a stack on %s has no pools: remove it", s.WorkerPool, s.Cloud)
	p.Check(i >= 0 || len(names) == 0, path, "%s: expected a pool of the stack: %s", s.WorkerPool, list(names))
	if i >= 0 {
		asks, has := s.AsksForGPUs(), s.pools()[i].gpus
		p.Check(asks == (has > 0), path,
			"%s: its nodes have %d GPUs, and the workers request %s: change one of the two",
			s.WorkerPool, has, map[bool]string{true: "GPUs", false: "none"}[asks])
	}
}

var isPool = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$`)

// checkPoolName checks the name of a pool, which becomes part of other names.
func checkPoolName(path, name string, before []string, p *Problems) {
	p.Check(isPool.MatchString(name), path+".name",
		"%s: expected 1 to 20 lower-case letters, digits and '-', beginning with a letter", orMissing(name))
	p.Check(!slices.Contains(before, name), path+".name", "%s: another pool has this name", name)
}

func checkTaints(path string, all []Taint, p *Problems) {
	for i, t := range all {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.Check(valid(validation.IsQualifiedName(t.Key)), at+".key",
			"%s: expected the key of a taint, as team or example.com/team", orMissing(t.Key))
		reservedTaints.check(at+".key", t.Key, p)
		p.Check(valid(validation.IsValidLabelValue(t.Value)), at+".value",
			"%s: expected at most 63 letters, digits, '-', '_' and '.'", t.Value)
		p.oneOf(at+".effect", t.Effect, "NoSchedule", "PreferNoSchedule", "NoExecute")
		p.Check(!slices.ContainsFunc(all[:i], func(o Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }),
			at+".key", "%s: a taint before it has the same key and effect", t.Key)
	}
}

// CloudEffect returns the effect as the clouds' APIs of pools name it: "NO_SCHEDULE".
func (t Taint) CloudEffect() string {
	return map[string]string{"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE",
		"NoExecute": "NO_EXECUTE"}[t.Effect]
}

// settleTaints sets the default effect.
func settleTaints(all []Taint) {
	for i := range all {
		if all[i].Effect == "" {
			all[i].Effect = "NoSchedule"
		}
	}
}

// Tolerations returns what a pod must tolerate to run on nodes with these taints.
func Tolerations(all []Taint) (tolerated []job.Toleration) {
	for _, t := range all {
		tolerated = append(tolerated, job.Toleration{Key: t.Key, Operator: "Equal", Value: t.Value, Effect: t.Effect})
	}
	return tolerated
}

// Limits of the time after which a node without pods ends.
const (
	leastIdle = 30 * time.Second
	mostIdle  = 24 * time.Hour
)

func checkIdle(path, text string, p *Problems) {
	d, err := time.ParseDuration(text)
	p.Check(text == "" || err == nil && d >= leastIdle && d <= mostIdle && d%time.Second == 0, path,
		"%s: expected 30s to 24h, as 5m", text)
}

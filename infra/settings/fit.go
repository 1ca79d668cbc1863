package settings

import (
	"math"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/demand"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// shareOfSystem is about the share of a node's CPUs that its system and the cluster's own pods
// take.
const shareOfSystem = 0.08

// cpusForPods returns the CPUs of a node that the kubelet leaves to pods, as Google and Amazon
// configure it. Source: the pages "Plan GKE Standard node sizes" of Google and the bootstrap script
// of Amazon's images.
func cpusForPods(cpus int) float64 {
	kept := 60.0 // thousandths
	for i := 1; i < cpus; i++ {
		switch {
		case i == 1:
			kept += 10
		case i < 4:
			kept += 5
		default:
			kept += 2.5
		}
	}
	return (float64(cpus)*1000 - kept) / 1000
}

// Room estimates how many pods fit on a node, by the CPUs and GPUs that each of them requests. It
// returns 0 if the node is too small for one, and infinity if nothing limits them. A number of the
// node that is 0 is not known, and limits nothing.
func Room(cpus, gpus float64, nodeCPUs, nodeGPUs int) float64 {
	room := math.Inf(1)
	if cpus > 0 && nodeCPUs > 0 {
		if cpus > cpusForPods(nodeCPUs)+1e-9 {
			return 0
		}
		room = max(1, math.Floor(float64(nodeCPUs)*(1-shareOfSystem)/cpus))
	}
	if gpus > 0 && nodeGPUs > 0 {
		room = min(room, math.Floor(float64(nodeGPUs)/gpus))
	}
	return room
}

// largest returns the number of CPUs of the largest of machine types, and its name. The number is 0
// if that of any is not known.
func largest(types []string, cpus func(string) int) (name string, most int) {
	for _, t := range types {
		n := cpus(t)
		if n == 0 {
			return t, 0
		}
		if n > most {
			name, most = t, n
		}
	}
	return name, most
}

// Pods has what the pods of a role of a job request, and the pools whose nodes they may be on.
type Pods struct {
	demand.Role
	CPUs, GPUs float64
	asks       core.ResourceList
	on         []pool
	// they select nodes on their own, which may be others than the stack's
	elsewhere bool
}

// Pods returns the pods of the stack's job by role. A job that is not valid, or suspended, has
// none.
func (s *Settings) Pods() []Pods {
	if s.Job == nil || s.Job.Suspend {
		return nil
	}
	return s.podsOf(s.Job)
}

// podsOf returns the pods of a job by role, without the launcher, which requests no processor.
func (s *Settings) podsOf(j *job.Job) (all []Pods) {
	roles, err := demand.Roles(j)
	if err != nil {
		return nil // its problems are reported
	}
	for _, r := range roles {
		if r.Name == manifest.RoleLauncher {
			continue
		}
		spec := &r.Pod.Spec
		asks := demand.Requests(spec)
		cards := asks[gpu]
		of := Pods{Role: r, asks: asks, CPUs: asks.Cpu().AsApproximateFloat64(), GPUs: cards.AsApproximateFloat64()}
		of.elsewhere = len(spec.NodeSelector) > 0 || spec.Affinity != nil && spec.Affinity.NodeAffinity != nil
		of.on = s.poolsFor(r.Name, of.GPUs > 0, spec.Tolerations)
		all = append(all, of)
	}
	return all
}

// Places returns the names of the pools whose nodes the pods are most likely on: of those that they
// may be on, the ones without what they do not ask for, if there are any.
func (of Pods) Places() (names []string) {
	plain := slices.DeleteFunc(slices.Clone(of.on), func(on pool) bool {
		return on.gpus > 0 != (of.GPUs > 0) || on.workers && of.Name != pod.Worker.String()
	})
	if len(plain) == 0 {
		plain = of.on
	}
	for _, on := range plain {
		names = append(names, on.name)
	}
	return names
}

// poolsFor returns the pools whose nodes the pods of a role may be on: with GPUs, or without, and
// also such ones whose taints the pods tolerate.
func (s *Settings) poolsFor(role string, cards bool, all []core.Toleration) (on []pool) {
	own := ""
	if role == pod.Worker.String() {
		own = s.WorkersOn()
	}
	// a toleration without a key is one of all taints
	ofGPUs := slices.ContainsFunc(all, func(t core.Toleration) bool { return t.Key == gpu || t.Key == "" })
	ofOthers := slices.ContainsFunc(all, func(t core.Toleration) bool {
		return t.Key != gpu && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
	for _, of := range s.allPools() {
		may := of.gpus > 0 == cards && (cards || ofOthers || !of.workers) || of.gpus > 0 && ofGPUs
		if own != "" && of.name == own || own == "" && may {
			on = append(on, of)
		}
	}
	return on
}

// checkFit refuses pods for which every node that they may be on is too small, and notes a job that
// needs more nodes than there may be before it trains.
func (s *Settings) checkFit(j *job.Job, p *Problems) {
	// of pools with mistakes it would report what follows from these
	if slices.ContainsFunc(s.allPools(), func(of pool) bool { return p.in(of.path) }) {
		return
	}
	all := slices.DeleteFunc(s.podsOf(j), func(of Pods) bool { return of.elsewhere })
	for _, of := range all {
		s.checkCPUs(of, p)
		s.checkCards(of, p)
	}
	for len(all) > 0 {
		on := all[0].on
		same := func(of Pods) bool { return slices.Equal(of.on, on) }
		if len(on) > 0 {
			s.noteNodes(on, slices.DeleteFunc(slices.Clone(all), func(of Pods) bool { return !same(of) }))
		}
		all = slices.DeleteFunc(all, same)
	}
}

// checkCPUs refuses pods with more CPUs than the nodes of any pool that they may be on have.
func (s *Settings) checkCPUs(of Pods, p *Problems) {
	var most pool
	for _, on := range of.on {
		if on.cpus == 0 || Room(of.CPUs, 0, on.cpus, 0) > 0 {
			return
		}
		if on.cpus > most.cpus {
			most = on
		}
	}
	p.Check(len(of.on) == 0, s.asking(of, core.ResourceCPU),
		"%s: no node has room for it: %s of %s, the largest on which it may be, has %d CPUs, of which pods may "+
			"request %s: request less, give a larger machine, choose another pool by job.worker.pool, or, if they are for "+
			"nodes that the stack does not make, job.nodeSelector", of.asks.Cpu(), most.machine, most.path, most.cpus,
		resource.NewMilliQuantity(int64(1000*cpusForPods(most.cpus)+1e-6), resource.DecimalSI))
}

// checkCards refuses pods with more GPUs than the nodes of any pool that they may be on have.
func (s *Settings) checkCards(of Pods, p *Problems) {
	var most pool
	for _, on := range of.on {
		if on.gpus > most.gpus {
			most = on
		}
	}
	cards := of.asks[gpu]
	// that there are none is reported elsewhere
	p.Check(most.gpus == 0 || of.GPUs <= float64(most.gpus), s.asking(of, gpu), "%s: a node of %s has %d",
		cards.String(), most.path, most.gpus)
}

// asking returns the path by which the pods of a role request a resource.
func (s *Settings) asking(of Pods, name core.ResourceName) string {
	if name == gpu && of.Name == pod.Worker.String() && s.Job.GPUs > 0 {
		return "job.gpus"
	}
	for _, r := range s.roles() {
		for i, all := range []job.Resources{r.pod.Request, r.pod.Limit} {
			is, err := resource.ParseQuantity(all[string(name)])
			if r.name == of.Name && err == nil && is.Cmp(of.asks[name]) == 0 {
				return Join("job."+r.name+"."+[...]string{"request", "limit"}[i], string(name))
			}
		}
	}
	return "job.clusterSpecJSON"
}

// noteNodes notes if pods that may be on the same pools need more nodes than these may have before
// the job trains.
func (s *Settings) noteNodes(on []pool, all []Pods) {
	var paths, pods []string
	nodes, share, workers := 0, 0.0, false
	for _, of := range on {
		nodes += of.nodes
		if path := of.path + ".maxNodes"; !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	for _, of := range all {
		room := 0.0
		for _, at := range of.on {
			if at.nodes > 0 {
				room += float64(at.nodes) * Room(of.CPUs, of.GPUs, at.cpus, at.gpus)
			}
		}
		if room > 0 { // others are refused
			share += float64(demand.AtLeast(of.Role)) / room
		}
		pods = append(pods, demand.Words(of.Name, demand.AtLeast(of.Role)))
		workers = workers || of.Name == pod.Worker.String()
	}
	cure := ""
	if workers {
		cure = ", or fewer job.minWorkers"
	}
	// a hundredth for rounding
	if share > 1.01 {
		s.note("%s: %d nodes in all, and the job needs about %.0f before it trains, for %s: expected more%s",
			strings.Join(paths, " and "), nodes, math.Ceil(share*float64(nodes)), strings.Join(pods, ", "), cure)
	}
}

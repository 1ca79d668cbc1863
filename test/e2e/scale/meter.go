package scale

import (
	"context"
	"maps"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/elasticdl/elasticdl/trainer/runtime/demand"
)

// Sample is the number of processors of each owner's running pods at one time.
type Sample struct {
	At   time.Duration // since the meter began
	CPUs map[string]float64
}

// total returns the sum of all owners.
func (s Sample) total() float64 {
	var sum float64
	for _, name := range slices.Sorted(maps.Keys(s.CPUs)) {
		sum += s.CPUs[name]
	}
	return sum
}

// Meter samples the requests of running pods.
type Meter struct {
	Pods     listers.PodNamespaceLister
	Selector labels.Selector
	// returns the owner of a pod; "" = not counted
	Owner func(*core.Pod) string
	Every time.Duration

	samples []Sample
}

// Run takes samples until ctx is done.
func (m *Meter) Run(ctx context.Context) {
	ticker := time.NewTicker(m.Every)
	defer ticker.Stop()
	for begin := time.Now(); ; {
		m.samples = append(m.samples, Sample{time.Since(begin), m.sample()})
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Meter) sample() map[string]float64 {
	cpus := make(map[string]float64)
	pods, err := m.Pods.List(m.Selector)
	if err != nil {
		panic(err) // a map in memory does not fail
	}
	for _, p := range pods {
		if owner := m.Owner(p); owner != "" && p.Status.Phase == core.PodRunning {
			cpus[owner] += request(p)
		}
	}
	return cpus
}

// request returns the number of processors that a pod requests.
func request(p *core.Pod) float64 {
	all := demand.Requests(&p.Spec)
	return float64(all.Cpu().MilliValue()) / 1000
}

// mean returns the mean number of processors in use between two times; each sample holds until the
// next.
func mean(samples []Sample, from, to time.Duration) float64 {
	var area float64
	for i, s := range samples {
		begin, end := max(s.At, from), to
		if i+1 < len(samples) {
			end = min(samples[i+1].At, to)
		}
		if end > begin {
			area += s.total() * (end - begin).Seconds()
		}
	}
	return area / (to - from).Seconds()
}

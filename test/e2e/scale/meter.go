package scale

import (
	"context"
	"maps"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
)

// Sample is how many processors the running pods of each owner have at a time.
type Sample struct {
	At   time.Duration // since the meter began
	CPUs map[string]float64
}

// total is of all owners.
func (s Sample) total() float64 {
	var sum float64
	for _, name := range slices.Sorted(maps.Keys(s.CPUs)) {
		sum += s.CPUs[name]
	}
	return sum
}

// Meter samples what running pods request.
type Meter struct {
	Pods     listers.PodNamespaceLister
	Selector labels.Selector
	Owner    func(*core.Pod) string // "" is nobody's
	Every    time.Duration

	samples []Sample
}

// Run samples until ctx is done.
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
		panic(err) // it is a map in memory
	}
	for _, p := range pods {
		if owner := m.Owner(p); owner != "" && p.Status.Phase == core.PodRunning {
			cpus[owner] += request(p)
		}
	}
	return cpus
}

// request is the processors that a pod asks for.
func request(p *core.Pod) float64 {
	var milli int64
	for _, c := range p.Spec.Containers {
		milli += c.Resources.Requests.Cpu().MilliValue()
	}
	return float64(milli) / 1000
}

// mean is of the processors taken from one time to another, each sample holding until the next.
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

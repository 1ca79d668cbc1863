package ps

import "slices"

// rule decides what becomes of the gradients that are pushed to one server. It
// sees no values: the caller adds up the gradients that are taken, and applies
// their sum when the rule says so. The laws are the package's.
type rule struct {
	wait     int   // gradients in an update, at least 1
	bound    int64 // the age up to which a gradient is taken; negative: any
	modulate bool  // older gradients weigh less

	version      int64
	contributors int        // workers that may push; 0: not told
	gathered     []gathered // what the sum consists of, in order
	pushed       map[int][]progress
}

type gathered struct {
	worker int
	weight float64
}

// progress is how far a lease is pushed.
type progress struct{ lease, done int64 }

// leasesKept is how many leases of a worker are remembered. It works on one, and
// has told the master, or is about to, that the one before is done.
const leasesKept = 4

// push is what the rule sees of a gradient.
type push struct {
	worker      int
	version     int64 // of the values that it was computed with
	lease, done int64
}

type verdict int

const (
	taken    verdict = iota
	repeated         // had its effect before
	stale
)

func newRule(c ServerConfig) *rule {
	r := &rule{
		wait:     max(1, c.GradsToWait),
		bound:    -1,
		modulate: c.LRStalenessModulation,
		pushed:   make(map[int][]progress),
	}
	switch {
	case c.Async:
		r.wait = 1
	case c.SyncVersionTolerance != nil:
		r.bound = int64(*c.SyncVersionTolerance)
	case r.wait > 1:
		r.bound = 0
	}
	return r
}

// judge says what take would do with p. It changes nothing.
func (r *rule) judge(p push) verdict {
	switch {
	case r.known(p):
		return repeated
	case r.bound >= 0 && r.version-p.version > r.bound:
		return stale
	}
	return taken
}

// take gathers p, if it is to be taken. The caller adds its gradient to the sum, and
// then applies the sum if due says so.
func (r *rule) take(p push) verdict {
	v := r.judge(p)
	if v != taken {
		return v
	}
	weight := 1.0
	if age := r.version - p.version; r.modulate && age > 1 {
		weight = 1 / float64(age)
	}
	r.gathered = append(r.gathered, gathered{p.worker, weight})
	r.record(p)
	return taken
}

// due tells whether the sum makes an update: it holds as many gradients as an
// update waits for, or as there can be.
func (r *rule) due() bool {
	return len(r.gathered) > 0 && len(r.gathered) >= r.need()
}

// weights of the gradients in the sum, in order.
func (r *rule) weights() []float64 {
	w := make([]float64, len(r.gathered))
	for i, g := range r.gathered {
		w[i] = g.weight
	}
	return w
}

// need is the number of gradients that the next update waits for.
func (r *rule) need() int {
	if r.contributors == 0 {
		return r.wait
	}
	return min(r.wait, r.contributors)
}

// applied is called when the sum was applied.
func (r *rule) applied() {
	r.version++
	r.gathered = r.gathered[:0]
}

// start is called with the first values, which the worker knows as those of version.
func (r *rule) start(version int64) { r.version = max(r.version, version) }

// waits tells whether a gradient of worker is gathered and not yet applied.
func (r *rule) waits(worker int) bool {
	return slices.ContainsFunc(r.gathered, func(g gathered) bool { return g.worker == worker })
}

func (r *rule) known(p push) bool {
	if p.lease == 0 {
		return false
	}
	return slices.ContainsFunc(r.pushed[p.worker], func(q progress) bool {
		return q.lease == p.lease && q.done >= p.done
	})
}

func (r *rule) record(p push) {
	if p.lease == 0 {
		return
	}
	leases := r.pushed[p.worker]
	leases = slices.DeleteFunc(leases, func(q progress) bool { return q.lease == p.lease })
	leases = append(leases, progress{p.lease, p.done})
	r.pushed[p.worker] = leases[max(0, len(leases)-leasesKept):]
}

package ps

import (
	"math"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// rule decides what becomes of the gradients that are pushed to one server. It
// sees no values: the caller adds up the gradients that are taken, and applies
// their sum when the rule reports it. The laws are the package's.
type rule struct {
	// gradients in an update, at least 1
	wait int
	// the age up to which a gradient is taken; negative: any
	bound int64
	// older gradients weigh less
	modulate bool

	version int64
	// workers that may push; 0: not reported
	contributors int
	// what the sum consists of, in order
	gathered []gathered
	// what is in the values or the sum; see judge
	had ledger.Ledger
}

type gathered struct {
	worker int
	weight float64
}

// push describes a gradient to the rule.
type push struct {
	worker int
	// of the values that it was computed with
	version int64
	// what it is of; of epoch 0: nothing that has a marker
	task ledger.Task
	// records of the task's order,
	from, to int64
	// of that many
	of int64
}

type verdict int

const (
	taken    verdict = iota
	repeated         // all of it is had
	// it does not begin where the server is: with what is had already, or beyond it
	cut
	stale
)

func newRule(c ServerConfig) *rule {
	r := &rule{
		wait:     max(1, c.GradsToWait),
		bound:    -1,
		modulate: c.LRStalenessModulation,
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

// judge returns what take would do with p. It changes nothing.
//
// A task's records are taken in one order, so what is had of it is a stretch from its first record.
// A gradient is taken that begins at the end of that stretch. A worker that trains on a task after
// another one, or at the same time as one believed lost, may find more had than it knows of: then
// the rule returns the marker, and the worker continues from there.
func (r *rule) judge(p push) verdict {
	if p.task.Epoch > 0 {
		switch had, whole := r.had.Had(p.task); {
		case whole || p.to <= had:
			return repeated
		case p.from != had:
			return cut
		}
	}
	if r.bound >= 0 && r.version-p.version > r.bound {
		return stale
	}
	return taken
}

// accept gathers p, if it is to be taken. The caller adds its gradient to the sum, and
// then applies the sum if due reports it.
func (r *rule) accept(p push) verdict {
	v := r.judge(p)
	if v != taken {
		return v
	}
	weight := 1.0
	if age := r.version - p.version; r.modulate && age > 1 {
		weight = 1 / float64(age)
	}
	r.gathered = append(r.gathered, gathered{p.worker, weight})
	if p.task.Epoch > 0 {
		r.had.Add(p.task, p.to, p.of)
	}
	return taken
}

// due reports whether the sum makes an update: it holds as many gradients as an
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

// need returns the number of gradients that the next update waits for.
func (r *rule) need() int {
	if r.contributors == 0 {
		return r.wait
	}
	return min(r.wait, r.contributors)
}

// applied notes that the sum was applied.
func (r *rule) applied() {
	r.version++
	r.gathered = r.gathered[:0]
}

// waits reports whether a gradient of worker is gathered and not yet applied.
func (r *rule) waits(worker int) bool {
	return slices.ContainsFunc(r.gathered, func(g gathered) bool { return g.worker == worker })
}

// settle notes that every record of the epochs up to this one is had; no marker of them is needed
// any more.
func (r *rule) settle(epoch int) { r.had.Settle(epoch) }

// done returns how many records of a task's order are had; of one that is had whole, however many,
// more than any has.
func (r *rule) done(t ledger.Task) int64 {
	n, whole := r.had.Had(t)
	if whole {
		return math.MaxInt64
	}
	return n
}

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
	// largest staleness of an accepted gradient, in versions; negative: no limit
	bound int64
	// older gradients weigh less
	modulate bool

	version int64
	// workers that may push; 0: not reported
	contributors int
	// gradients in the sum, in the order of their arrival
	gathered []gathered
	// records that are in the values or in the sum; see judge
	ledger ledger.Ledger
}

type gathered struct {
	worker int
	weight float64
}

// push describes a gradient to the rule.
type push struct {
	worker int
	// version of the values that it was computed with
	version int64
	// task of its records; epoch 0: the ledger does not count them
	task ledger.Task
	// its records, by their position in the order of the task
	from, to int64
	// number of records of the task
	of int64
}

type verdict int

const (
	accepted verdict = iota
	repeated         // all its records are in the ledger
	// it does not begin with the first record of the task that is missing in the ledger
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

// judge returns the verdict of accept on p. It changes nothing.
//
// The records of a task are accepted in one order, so the ledger has the first ones of the task. A
// gradient is accepted if it begins with the next record. A worker that trains on a task after
// another one, or at the same time as one believed lost, may not know of all records in the ledger:
// the reply has their number, and the worker continues from there.
func (r *rule) judge(p push) verdict {
	if p.task.Epoch > 0 {
		switch done, whole := r.ledger.Progress(p.task); {
		case whole || p.to <= done:
			return repeated
		case p.from != done:
			return cut
		}
	}
	if r.bound >= 0 && r.version-p.version > r.bound {
		return stale
	}
	return accepted
}

// accept gathers p if judge accepts it. The caller then adds its gradient to the sum, and applies
// the sum if due reports true.
func (r *rule) accept(p push) verdict {
	v := r.judge(p)
	if v != accepted {
		return v
	}
	weight := 1.0
	if age := r.version - p.version; r.modulate && age > 1 {
		weight = 1 / float64(age)
	}
	r.gathered = append(r.gathered, gathered{p.worker, weight})
	if p.task.Epoch > 0 {
		r.ledger.Add(p.task, p.to, p.of)
	}
	return accepted
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

// settle notes that every record of the epochs up to this one is in the ledger. The ledger does not
// count them by task any more.
func (r *rule) settle(epoch int) { r.ledger.Settle(epoch) }

// done returns how many records of a task are in the ledger, in the task's order;
// [math.MaxInt64] if all are.
func (r *rule) done(t ledger.Task) int64 {
	n, whole := r.ledger.Progress(t)
	if whole {
		return math.MaxInt64
	}
	return n
}

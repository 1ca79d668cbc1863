package nn

import (
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// Tape records what a pass over a batch computes, and runs it: forward when a
// value is asked for, backward from a loss. It keeps the memory of a pass for
// the next one, operation by operation, so that passes which do the same allocate nothing.
// It is for one goroutine; its threads are its own.
type Tape struct {
	params *Params
	team   *team
	// one for each thread
	scratch []kernel.Scratch
	// points of images in tiles, for each thread
	tiles [][]float32
	noise uint64
	step  uint64

	// see OnGrads; nil: no call
	onGrads  func(lo, hi int)
	training bool
	batch    int
	inputs   []Tensor
	// those of this pass are ops[:n]
	ops []op
	n   int
	// ops[:ran] have run forward
	ran      int
	teamwork teamwork
	// number of examples that go through the team's operations together
	few int
}

// teamwork is the work of the team, part by part: operations forward in order, then operations
// backward in reverse order, or folds in reverse order, or a function of ranges of [0, n).
type teamwork struct {
	forward, backward, fold opRange
	n                       int
	ranges                  func(lo, hi int)
}

// opRange is the operations [from, to), or in reverse order those from from-1 down to to.
type opRange struct{ from, to int }

// Tensor is a value on a tape, valid until the tape's next pass.
type Tensor struct {
	tape *Tape
	dims []int // the first is the batch; none: a scalar
	size int   // elements of one example
	data []float32
	grad []float32 // planned by Backward; nil: not wanted
	live bool      // depends on a parameter

	// A ReLU that is part of a layer needs grad to be 0 where data is not above 0. The operation
	// that reads data to compute grad may set these zeros itself.
	rectified, masked bool

	// Data that can be computed again is not kept if nothing needs it: it was not requested, and
	// the only operation that reads it does without (see absorber), or needs it only forward, so
	// that grad can take its memory.
	again   recomputer // computes data again; nil: nothing does
	readers int
	asked   bool
	lost    bool // data was not kept

	dataMemory, gradMemory []float32
}

// op is one operation: it computes the examples of a span, from inputs that are
// computed there, and the gradients of its inputs there, from that of its output.
type op interface {
	base() *node
	forward(s examples)
	backward(s examples)
}

// An op may also have any of the following methods. A bulkOp takes spans of several parts. gather
// runs once after all forwards and before any operation that is recorded later; gatherGrad runs
// once after all backwards and before those of earlier operations. fold runs after all backwards of
// the stage, once for each part and without a span: it completes that part of the parameters'
// gradients.
type (
	bulkOp       interface{ bulk() }
	gatherer     interface{ gather() }
	gradGatherer interface{ gatherGrad() }
	folder       interface{ fold(part int) }
	preparer     interface{ prepare() } // before any backward
	// backward adds to the gradient of in[0] itself if in[0].onto
	adder interface{ adds() }
	// the gradient of out becomes that of in[1] as well
	sharer interface{ shares() bool }
	// before any forward: may do the work of the operation before, and lose its output
	absorber   interface{ absorb(before op) }
	recomputer interface{ recompute() } // makes the data of out from what is kept
)

// examples is the range [lo, hi) of the batch: some examples of one part, or several parts if the
// operation is a bulkOp. An operation gets the examples of a part in order.
type examples struct{ worker, part, lo, hi int }

// node holds what all operations have in common.
type node struct {
	in   []edge
	out  Tensor
	vars []*Param
	// vars[i] has been written by an operation that folds before
	add []bool
	// backward may write the gradient of in[0] over that of out
	inPlace bool
	// out is in[0] in another shape
	view bool
	// backward does not read in[0], unless it masks
	blind bool
	// out does not lead to the loss
	dead bool
}

// edge is an input and where its gradient goes.
type edge struct {
	from *Tensor
	// nil: not wanted
	grad []float32
	// grad is memory, to be added to from.grad
	add bool
	// grad is from.grad and holds something already
	onto   bool
	memory []float32
}

func (n *node) base() *node { return n }

// failure wraps an error of the model or the batch, with which an operation panics and which Pass
// returns.
type failure struct{ error }

func (t *Tape) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// NewTape returns a tape over p and starts its threads; fewer than one means one. Noise, as of
// [Tape.Dropout], depends on the seed and on how many training passes came before.
func NewTape(p *Params, threads int, seed uint64) *Tape {
	t := &Tape{params: p}
	t.SetNoise(seed)
	t.team = newTeam(threads, t.work)
	t.scratch = make([]kernel.Scratch, t.team.size())
	t.tiles = make([][]float32, t.team.size())
	return t
}

// Close ends the threads.
func (t *Tape) Close() { t.team.close() }

// SetNoise seeds the noise: that of the next training pass depends only on seed and the pass. It
// costs nothing, so it may be called before every pass.
func (t *Tape) SetNoise(seed uint64) {
	t.noise, t.step = seed*0x9e3779b97f4a7c15, 0 // adjacent seeds become distant
}

// OnGrads makes every Backward tell f which ranges [lo, hi) of the parameters' Grads are final,
// after each stage. It calls f on its own goroutine; the ranges do not overlap, cover all of
// Grads when Backward returns, and do not depend on the number of threads. Nil: no call.
func (t *Tape) OnGrads(f func(lo, hi int)) { t.onGrads = f }

// Parallel calls f, on the tape's threads, with ranges [lo, hi) that cover [0, n) and do not
// overlap. They do not depend on the number of threads. It must not be called during a pass.
func (t *Tape) Parallel(n int, f func(lo, hi int)) { t.runTeam(teamwork{n: n, ranges: f}) }

// Training reports whether this pass trains.
func (t *Tape) Training() bool { return t.training }

// Batch returns the number of examples of this pass.
func (t *Tape) Batch() int { return t.batch }

// Input returns the i-th input of this pass.
func (t *Tape) Input(i int) *Tensor { return &t.inputs[i] }

// Pass calls f to record one pass over inputs, of one or more examples, and computes what is
// recorded. It returns an error if an input, a layer or a label does not fit.
func (t *Tape) Pass(training bool, inputs []Array, f func(t *Tape)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = failed.error
		}
	}()
	t.training, t.n, t.ran = training, 0, 0
	if training {
		t.step++
	}
	t.feed(inputs)
	f(t)
	t.flush()
	return nil
}

func (t *Tape) feed(inputs []Array) {
	if len(inputs) == 0 {
		t.fail("batch has no input")
	}
	if len(t.inputs) != len(inputs) {
		t.inputs = make([]Tensor, len(inputs))
	}
	for i, a := range inputs {
		if len(a.Shape) == 0 || a.Shape[0] < 1 || a.Shape[0] != inputs[0].Shape[0] {
			t.fail("input %d has shape %v: want a number of examples first, that of input 0", i, a.Shape)
		}
		x := &t.inputs[i]
		x.tape, x.grad, x.again, x.lost = t, nil, nil, false
		x.setShape(a.Shape[0], a.Shape[1:]...)
		if x.data = a.Data; len(x.data) != a.Shape[0]*x.size {
			t.fail("input %d of shape %v has %d elements", i, a.Shape, len(a.Data))
		}
	}
	t.batch = inputs[0].Shape[0]
}

func (x *Tensor) setShape(batch int, example ...int) {
	x.dims = append(append(x.dims[:0], batch), example...)
	x.size = 1
	for _, d := range example {
		x.size *= d
	}
}

// Shape returns the tensor's dimensions, the batch first.
func (x *Tensor) Shape() []int { return x.dims }

// Data computes and returns the tensor's elements, row-major. The caller must not change them.
func (x *Tensor) Data() []float32 {
	x.tape.flush()
	x.asked = true
	x.restore()
	return x.data
}

// restore recomputes the tensor's data if it was not kept.
func (x *Tensor) restore() {
	if x.lost {
		x.again.recompute()
		x.lost = false
	}
}

// of returns the elements of data that belong to the span of examples, of size elements each.
func (s examples) of(data []float32, size int) []float32 { return data[s.lo*size : s.hi*size] }

// next returns the operation at the tape's position, with the memory of the
// one that was there in the last pass if that is of the same type.
func next[T any, P interface {
	*T
	op
}](t *Tape) P {
	if t.n < len(t.ops) {
		if o, ok := t.ops[t.n].(P); ok {
			return o
		}
		t.ops = t.ops[:t.n] // this pass differs from the last one
	}
	o := P(new(T))
	t.ops = append(t.ops, o)
	return o
}

// record puts o, from next, on the tape: x in, an output whose examples have the given shape.
func (t *Tape) record(o op, vars []*Param, x *Tensor, example ...int) *Tensor {
	n := o.base()
	if n.in == nil {
		n.in = make([]edge, 1)
	}
	n.in[0].from = x
	out := &n.out
	out.tape, out.grad, out.rectified, out.masked = t, nil, false, false
	out.readers, out.again, out.asked, out.lost = 0, nil, false, false
	x.readers++
	x.restore()
	out.setShape(t.batch, example...)
	out.live = x.live || len(vars) > 0
	n.vars = vars
	if n.view {
		out.data = x.data
	} else {
		out.dataMemory = resize(out.dataMemory, t.batch*out.size)
		out.data = out.dataMemory
	}
	t.n++
	return out
}

// resize returns n elements, of memory's if it has them.
func resize[E any](memory []E, n int) []E {
	if cap(memory) < n {
		return make([]E, n)
	}
	return memory[:n]
}

// flush runs the recorded operations that have not run.
func (t *Tape) flush() {
	t.absorb()
	for t.ran < t.n {
		to, last := t.stage()
		t.runTeam(teamwork{forward: opRange{t.ran, to}})
		t.gather(to, last)
	}
}

// absorb lets operations that have not run take over work of those before them.
func (t *Tape) absorb() {
	for i := t.ran; i < t.n; i++ {
		if a, ok := t.ops[i].(absorber); ok {
			var before op
			if i > t.ran {
				before = t.ops[i-1]
			}
			a.absorb(before)
		}
	}
}

// stage returns how far operations can run forward now: up to one that gathers.
func (t *Tape) stage() (to int, last gatherer) {
	for to = t.ran; to < t.n && last == nil; to++ {
		last, _ = t.ops[to].(gatherer)
	}
	return to, last
}

func (t *Tape) gather(to int, last gatherer) {
	t.ran = to
	if last != nil {
		last.gather()
	}
}

// Backward computes the gradients of loss, a scalar, into the Grads of the
// tape's parameters: what loss does not depend on gets 0.
func (t *Tape) Backward(loss *Tensor) {
	if !t.training || len(loss.dims) != 0 {
		t.fail("backward from shape %v: want a scalar of a training pass", loss.dims)
	}
	t.absorb()
	t.plan(loss)
	to, last := t.stage()
	for ; to < t.n; to, last = t.stage() {
		t.runTeam(teamwork{forward: opRange{t.ran, to}})
		t.gather(to, last)
	}
	// The last stage forward and the first one backward are one piece of teamwork: an example's
	// values are still in the cache. The gradients of the loss do not wait for its value.
	j := teamwork{forward: opRange{t.ran, to}}
	for from, told := t.n, t.n+1; from > 0; told = from {
		to, last := t.backwardStage(from)
		j.backward = opRange{from, to}
		t.runTeam(j)
		t.runTeam(teamwork{fold: opRange{from, to}})
		if last != nil {
			last.gatherGrad()
		}
		t.announceGrads(to, told)
		from, j = to, teamwork{}
	}
	t.gather(t.n, last)
}

// backwardStage returns how far operations can run backward from there: to one that gathers, or
// until enough gradients are final to announce them.
func (t *Tape) backwardStage(from int) (to int, last gradGatherer) {
	const enough = 1 << 18 // elements
	found := 0
	for to = from; to > 0 && last == nil && found < enough; {
		to--
		n := t.ops[to].base()
		if n.dead {
			continue
		}
		last, _ = t.ops[to].(gradGatherer)
		for _, p := range n.vars {
			found += p.Len()
		}
	}
	return to, last
}

// announceGrads announces the gradients whose writer is one of the operations [from, to), from the
// end of Grads, adjacent ones in one call.
func (t *Tape) announceGrads(from, to int) {
	if t.onGrads == nil {
		return
	}
	at := len(t.params.Grads)
	end := at
	for _, p := range slices.Backward(t.params.vars) {
		if p.writer < from || p.writer >= to {
			if at < end {
				t.onGrads(at, end)
			}
			end = at - p.Len()
		}
		at -= p.Len()
	}
	if at < end {
		t.onGrads(at, end)
	}
}

// plan decides where every gradient goes: into the memory of its tensor, over the gradient of the
// operation's output, or, if a later operation has written it before, into separate memory, to be
// added.
func (t *Tape) plan(loss *Tensor) {
	for _, p := range t.params.vars {
		p.writer = t.n
	}
	loss.gradMemory = append(loss.gradMemory[:0], 1)
	loss.grad = loss.gradMemory
	for i, o := range slices.Backward(t.ops[:t.n]) {
		n := o.base()
		n.dead = n.out.grad == nil
		if n.dead {
			continue
		}
		_, adds := o.(adder)
		sharer, shares := o.(sharer)
		shares = shares && sharer.shares()
		n.add = n.add[:0]
		for _, p := range n.vars {
			n.add = append(n.add, p.writer < t.n)
			p.writer = i
		}
		for i := range n.in {
			e := &n.in[i]
			x := e.from
			e.grad, e.add, e.onto = nil, x.grad != nil, false
			size := t.batch * x.size
			switch {
			case !x.live:
			case e.add && adds && i == 0:
				e.grad, e.add, e.onto = x.grad, false, true
				x.masked = false
			case e.add:
				e.memory = resize(e.memory, size)
				e.grad = e.memory
				x.masked = false
			case n.inPlace && i == 0 || shares && i == 1:
				e.grad = n.out.grad
				x.grad = e.grad
			case n.blind && x.again != nil && x.readers == 1 && !x.asked:
				e.grad = x.data
				x.grad, x.lost = e.grad, true
			default:
				x.gradMemory = resize(x.gradMemory, size)
				e.grad = x.gradMemory
				x.grad = e.grad
			}
		}
		if p, ok := o.(preparer); ok {
			p.prepare()
		}
	}
	for _, p := range t.params.vars {
		if p.writer == t.n {
			clear(p.Grad)
		}
	}
}

func (t *Tape) runTeam(j teamwork) {
	t.teamwork = j
	if j.fold.from > j.fold.to || j.ranges != nil {
		t.team.runPieces(parts)
		return
	}
	size := 0 // bytes of one example
	for i := range j.len() {
		o, _ := t.operation(i)
		size += 4 * o.base().out.size
	}
	// Use all parts, unless they are so small that larger products are faster.
	const small, few = 512 << 10, 512 << 10
	t.few = max(1, few/max(size, 1))
	if size*t.batch <= small {
		t.team.runPieces(t.team.size())
	} else {
		t.team.runPieces(parts)
	}
}

// len returns how many operations run forward or backward.
func (j *teamwork) len() int { return j.forward.to - j.forward.from + j.backward.from - j.backward.to }

// operation returns the i-th operation that the team runs, and its direction.
func (t *Tape) operation(i int) (o op, backward bool) {
	j := &t.teamwork
	if n := j.forward.to - j.forward.from; i >= n {
		return t.ops[j.backward.from-1-(i-n)], true
	}
	return t.ops[j.forward.from+i], false
}

// work runs one piece of the teamwork; the team calls it.
func (t *Tape) work(worker, piece int) {
	from, to := piece*parts/t.team.pieces, (piece+1)*parts/t.team.pieces
	for i, next := 0, 0; i < t.teamwork.len(); i = next {
		if next = t.together(i); next == i {
			next++
			t.apply(i, next, examples{worker, from, t.first(from), t.first(to)})
			continue
		}
		// A few examples at a time, so that their values stay in the cache from operation to
		// operation.
		for part := from; part < to; part++ {
			for lo, end := t.first(part), t.first(part+1); lo < end; lo += t.few {
				t.apply(i, next, examples{worker, part, lo, min(lo+t.few, end)})
			}
		}
	}
	for i := t.teamwork.fold.from - 1; i >= t.teamwork.fold.to; i-- {
		if o, ok := t.ops[i].(folder); ok && !t.ops[i].base().dead {
			o.fold(piece)
		}
	}
	if j := &t.teamwork; j.ranges != nil {
		if lo, hi := start(piece, j.n), start(piece+1, j.n); lo < hi {
			j.ranges(lo, hi)
		}
	}
}

// start returns the first of n elements of a part: one at the start of a cache line.
func start(part, n int) int {
	const line = 16
	if part == parts {
		return n
	}
	return part * n / parts / line * line
}

// first returns the first example of a part.
func (t *Tape) first(part int) int { return part * t.batch / parts }

// together returns the end of the run of operations from i on that are not bulkOps.
func (t *Tape) together(i int) int {
	for ; i < t.teamwork.len(); i++ {
		o, _ := t.operation(i)
		if _, ok := o.(bulkOp); ok {
			break
		}
	}
	return i
}

// apply runs the team's operations [from, to) on the span, if it has examples.
func (t *Tape) apply(from, to int, s examples) {
	for i := from; i < to && s.lo < s.hi; i++ {
		switch o, backward := t.operation(i); {
		case !backward:
			o.forward(s)
		case !o.base().dead:
			o.backward(s)
			o.base().addUp(s)
		}
	}
}

// mask zeroes the span's gradient of a rectified output where the ReLU did.
func (n *node) mask(s examples) {
	if n.out.rectified && !n.out.masked {
		kernel.ReluGrad(s.of(n.out.grad, n.out.size), s.of(n.out.data, n.out.size))
	}
}

// masks claims the masking of the gradient of in[0], if it needs any, for this operation, and
// reports whether it did.
func (n *node) masks() bool {
	e := &n.in[0]
	e.from.masked = e.from.rectified && !e.add
	return e.from.masked
}

func (n *node) addUp(s examples) {
	for i := range n.in {
		if e := &n.in[i]; e.add && e.grad != nil {
			kernel.Add(s.of(e.from.grad, e.from.size), s.of(e.grad, e.from.size))
		}
	}
}

package ps

import (
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// store is a server's memory. One goroutine at a time, the holder of the
// server's turn, calls its methods, read and look apart.
type store struct {
	optimizer *optim.Optimizer
	layout    param.Layout
	// of the layout: what is here
	span param.Range
	// elements below it have a gradient
	trainable int
	updates   int64

	// of what read reads, apart from the values' elements
	mu sync.RWMutex
	// of the elements of each chunk: those of chunk i are guarded by parts[i%len(parts)]
	parts [64]sync.RWMutex
	// how often
	begun    int
	values   []float32
	snapshot []float32
	// the version of snapshot, 0 if none
	held int64
	// snapshots up to this version are of no use: none is taken
	released int64

	slots [][]float32
	// the push that is being received
	received []float32
	// of the gradients gathered
	sum []float32
}

// empty makes the store hold nothing: its read part is dropped.
func (s *store) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	dropped := len(s.values)
	s.values, s.slots = nil, nil
	s.snapshot, s.held, s.released, s.received, s.sum = nil, 0, 0, nil, nil
	collect(dropped)
}

// fill makes an empty store hold a span of a layout, after that many updates. It keeps the values,
// which are the span's.
func (s *store) fill(layout param.Layout, span param.Range, values []float32, updates int64) {
	trainable := min(max(layout.Trainable()-span.Start, 0), span.Len())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout, s.span, s.trainable, s.updates = layout, span, trainable, updates
	s.values, s.slots = values, s.optimizer.NewSlots(trainable)
	s.begun++
	limitGarbage(2*len(values) + len(s.slots)*trainable)
}

// content returns the store's own memory, not a copy.
func (s *store) content() checkpoint.Part {
	return checkpoint.Part{Start: s.span.Start, Values: s.values, Slots: s.slots}
}

// large is the number of dropped values that is worth a collection: left to itself, the runtime
// lets a server grow to twice of what it holds before it collects.
const large = 1 << 20

// collect gives back the memory of that many values.
func collect(dropped int) {
	if dropped >= large {
		debug.FreeOSMemory()
	}
}

// garbage is the number of bytes that the runtime may leave before it collects. A server that
// receives a gigabyte a second over TLS makes as much in two seconds.
const garbage = 2 << 20

// limitGarbage has the runtime collect in time in a process that holds that many values: left to
// itself, it would let the garbage grow to their size. Values have no pointers, so a collection
// takes as long as without them. A lower GOGC of the user, or GOGC=off, stays.
func limitGarbage(values int) {
	if values < large {
		return
	}
	percent := max(1, 100*garbage/(4*values))
	if before := debug.SetGCPercent(percent); before < percent {
		debug.SetGCPercent(before)
	}
}

// room is the memory into which a push is received.
func (s *store) room() []float32 {
	if s.received == nil {
		s.received = make([]float32, len(s.values))
	}
	return s.received
}

// add adds what was received to the sum, as the last of those that weigh weights.
func (s *store) add(weights []float64) {
	last := len(weights) - 1
	if last == 0 {
		s.sum, s.received = s.received, s.sum
		return
	}
	if w := float32(weights[0]); last == 1 && w != 1 {
		kernel.Scale(w, s.sum[:s.trainable])
	}
	kernel.Axpy(float32(weights[last]), s.received[:s.trainable], s.sum[:s.trainable])
	kernel.Add(s.sum[s.trainable:], s.received[s.trainable:])
}

// apply updates the values by the sum of gradients with the weights, at the
// learning rate, on all processors.
func (s *store) apply(weights []float64, rate float64) {
	s.updates++
	if len(weights) == 1 {
		rate *= weights[0]
	}
	mean := 1 / float32(len(weights))
	chunks := (len(s.values) + chunk - 1) / chunk
	stretch := chunk * max(1, (chunks+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var moving sync.WaitGroup
	for a := stretch; a < len(s.values); a += stretch {
		moving.Go(func() { s.move(a, min(a+stretch, len(s.values)), mean, rate) })
	}
	s.move(0, min(stretch, len(s.values)), mean, rate)
	moving.Wait()
	// no second buffer unless gradients are summed
	if s.received == nil {
		s.sum, s.received = nil, s.sum
	}
}

// move applies the sum, times mean, to the elements from start to end. Its start begins a chunk.
func (s *store) move(start, end int, mean float32, rate float64) {
	for a := start; a < end; a += chunk {
		b := min(a+chunk, end)
		if mean != 1 {
			kernel.Scale(mean, s.sum[a:b])
		}
		part := s.part(a)
		part.Lock()
		if t := min(b, s.trainable); a < t {
			s.optimizer.ApplyRange(a, t, s.values, s.sum, s.slots, s.updates, rate)
		}
		if t := max(a, s.trainable); t < b {
			s.layout.Average(s.span.Start+t, s.values[t:b], s.sum[t:b])
		}
		part.Unlock()
	}
}

// part returns the lock of the values of the chunk that element a is in.
func (s *store) part(a int) *sync.RWMutex { return &s.parts[a/chunk%len(s.parts)] }

// keep takes the snapshot of version, if none is held and it is not released already.
func (s *store) keep(version int64) bool {
	s.mu.RLock()
	useless := s.held != 0 || version <= s.released
	s.mu.RUnlock()
	if useless {
		return false
	}
	if s.snapshot == nil {
		s.snapshot = make([]float32, len(s.values))
	}
	copy(s.snapshot, s.values)
	s.mu.Lock()
	defer s.mu.Unlock()
	if version <= s.released { // meanwhile
		return false
	}
	s.held = version
	return true
}

// release drops the snapshot if it is of version or an older one, and has none of those taken from
// now on, until the next call says otherwise.
func (s *store) release(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = version
	if s.held <= version {
		s.held = 0
	}
}

// times counts the beginnings of the store.
func (s *store) times() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.begun
}

// read copies the elements from a on, which are in one chunk. The rest is as in look.
func (s *store) read(dst []float32, a int, snapshot int64, begun int) bool {
	return s.look(a, a+len(dst), snapshot, begun, func(x []float32) { copy(dst, x) })
}

// look has do look at the elements from a to b, which are in one chunk, of the snapshot of that
// version or, if that is 0, of the values. It may run at the same time as everything else; false:
// the snapshot was dropped, or the store has begun again since it began that many times.
func (s *store) look(a, b int, snapshot int64, begun int, do func([]float32)) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if begun != s.begun || s.values == nil {
		return false
	}
	if snapshot != 0 {
		if snapshot != s.held {
			return false
		}
		do(s.snapshot[a:b])
		return true
	}
	part := s.part(a)
	part.RLock()
	defer part.RUnlock()
	do(s.values[a:b])
	return true
}

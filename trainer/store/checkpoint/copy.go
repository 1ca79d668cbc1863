package checkpoint

import (
	"runtime"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// Copy is a copy of a part of a model, which is written while the model changes. Its memory is used
// again for the next copy.
//
// Memory that is used for the first time is slow: the kernel clears each page of it, which takes
// five to fifty times as long as copying into it. As the training waits for a copy, its memory is
// made ready before ([Copy.Prepare]).
//
// The zero value is ready to use. One goroutine at a time calls its methods; Part may be read by
// others while nothing is copied.
type Copy struct {
	Part
	// closed when the memory is; nil: there is none
	ready chan struct{}
}

// soon is the number of elements whose memory is ready before anybody has to wait for it.
const soon = 1 << 20

// Prepare begins to make the memory for a copy of src ready, and reports whether it is. If not, it
// calls done when it is, if that is not nil. It does nothing more if it is called again for a part
// of the same size.
func (c *Copy) Prepare(src Part, done func()) bool {
	if c.ready == nil || !c.fits(src) {
		c.Wait()
		c.Part = like(src)
		c.ready = make(chan struct{})
		fill := func(ready chan struct{}) {
			c.Part.each(func(x []float32) { inParallel(len(x), func(a, b int) { touch(param.Bytes(x[a:b])) }) })
			close(ready)
		}
		if c.elements() <= soon {
			fill(c.ready)
		} else {
			go func(ready chan struct{}) {
				fill(ready)
				if done != nil {
					done()
				}
			}(c.ready)
		}
	}
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// Wait waits until the memory is ready that is being made.
func (c *Copy) Wait() {
	if c.ready != nil {
		<-c.ready
	}
}

// Take makes it a copy of src.
func (c *Copy) Take(src Part) {
	c.Prepare(src, nil)
	c.Wait()
	c.Start = src.Start
	copyFloats(c.Values, src.Values)
	for i, slot := range src.Slots {
		copyFloats(c.Slots[i], slot)
	}
}

func copyFloats(dst, src []float32) {
	inParallel(len(src), func(a, b int) { copy(dst[a:b], src[a:b]) })
}

// atOnce is the number of elements that one CPU copies at a time.
const atOnce = 1 << 20

// inParallel has all processors do something with n elements, each with a stretch [a, b) of them.
func inParallel(n int, do func(a, b int)) {
	var doing sync.WaitGroup
	each := max(atOnce, (n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for a := 0; a < n; a += each {
		b := min(a+each, n)
		if b == n {
			do(a, b)
			break
		}
		doing.Go(func() { do(a, b) })
	}
	doing.Wait()
}

// like returns a part with room for the same as p.
func like(p Part) Part {
	e := Part{Start: p.Start, Values: make([]float32, len(p.Values)), Slots: make([][]float32, len(p.Slots))}
	for i, slot := range p.Slots {
		e.Slots[i] = make([]float32, len(slot))
	}
	return e
}

// fits reports whether there is room for a copy of p.
func (p Part) fits(of Part) bool {
	if len(p.Values) != len(of.Values) || len(p.Slots) != len(of.Slots) {
		return false
	}
	for i, slot := range of.Slots {
		if len(p.Slots[i]) != len(slot) {
			return false
		}
	}
	return true
}

// each calls do with each array.
func (p Part) each(do func([]float32)) {
	do(p.Values)
	for _, slot := range p.Slots {
		do(slot)
	}
}

func (p Part) elements() (n int) {
	p.each(func(x []float32) { n += len(x) })
	return n
}

package kernel

import (
	"fmt"
	"iter"
	"os"
	"strings"
)

// set is one implementation of all functions. They get slices whose lengths are checked.
type set struct {
	name           string
	gemm           func(g GemmArgs)
	axpy           func(a float32, x, y []float32)
	add            func(dst, x []float32)
	sum            func(dst, x, z []float32, floor float32)
	scale          func(a float32, x []float32)
	reluGrad       func(dy, y []float32)
	addRows        func(dst, x []float32)
	columnStats    func(s1, s2 []float64, x, z []float32)
	scaleShift     func(dst, x, a, b []float32, floor float32)
	batchNormGrad  func(dx, dy, x, k1, k2, k3 []float32, keep uint32)
	maxPool        func(dst []float32, index []uint8, top, bottom []float32, channels int)
	maxPoolGrad    func(dtop, dbottom, dy []float32, index []uint8, channels int)
	dropout        func(dst, x []float32, counter, seed, threshold uint32, scale float32)
	transpose      func(dst []float32, dstRow int, src []float32, srcRow, rows, cols int)
	winograd       func(t Transform, dst, src Squares, lines, tiles, channels int)
	bytesToFloat   func(dst []float32, src []byte, scale, shift float32)
	firstNonFinite func(x []float32) int
	sgd            func(p, g []float32, lr float32)
	momentum       func(p, g, v []float32, lr, mu float32)
	nesterov       func(p, g, v []float32, lr, mu float32)
	adam           func(p, g, m, v []float32, lr, c1, c2, eps float32)
	amsgrad        func(p, g, m, v, vhat []float32, lr, c1, c2, eps float32)
	adagrad        func(p, g, acc []float32, lr, eps float32)
	fmaPeak        func(iterations int) int
}

var (
	sets   = append(vectorSets(), &generic) // what runs here, best first
	active = mustChoose(os.Getenv("ELASTICDL_KERNELS"))
)

func mustChoose(name string) *set {
	s, err := choose(name)
	if err != nil {
		panic("ELASTICDL_KERNELS: " + err.Error())
	}
	return s
}

func choose(name string) (*set, error) {
	if name == "" {
		return sets[0], nil
	}
	for _, s := range sets {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%q is not available on this processor; expected one of %s", name,
		strings.Join(Names(), ", "))
}

// Name returns the name of the set in use.
func Name() string { return active.name }

// Names returns the sets that run on this processor, best first.
func Names() []string {
	names := make([]string, len(sets))
	for i, s := range sets {
		names[i] = s.name
	}
	return names
}

// Use chooses the set for the whole process, for tests. It must not run at the same time as any
// other function of the package.
func Use(name string) error {
	s, err := choose(name)
	if err != nil {
		return err
	}
	active = s
	return nil
}

// chunks splits n elements: assembly cannot be interrupted, and the garbage collector waits for
// it.
func chunks(n int) iter.Seq2[int, int] {
	const most = 1 << 16
	return func(yield func(from, to int) bool) {
		for i := 0; i < n; i += most {
			if !yield(i, min(i+most, n)) {
				return
			}
		}
	}
}

// check panics unless got >= want.
func check(function, slice string, got, want int) {
	if got < want {
		panic(fmt.Sprintf("kernel.%s: %s has %d elements, needs %d", function, slice, got, want))
	}
}

// checkRows panics unless n is a number of rows of columns elements.
func checkRows(function string, n, columns int) {
	if columns == 0 && n > 0 || columns > 0 && n%columns != 0 {
		panic(fmt.Sprintf("kernel.%s: %d elements are not a multiple of %d columns", function, n, columns))
	}
}

package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// arena allocates guarded slices that are not aligned, and keeps them for comparison.
type arena struct {
	t      *rapid.T
	seed   uint64
	shift  int
	slices [][]float32
	checks []func() error
}

func (a *arena) take(n int) []float32 {
	a.seed++
	a.shift = (a.shift + 3) % 16
	x, check := guarded(n, a.shift)
	copy(x, randoms(a.seed, n))
	a.slices = append(a.slices, x)
	a.checks = append(a.checks, check)
	return x
}

// positive does the same as take, without negative elements.
func (a *arena) positive(n int) []float32 {
	x := a.take(n)
	for i, v := range x {
		x[i] = v * v
	}
	return x
}

// sparse does the same as take, with zeros, negative zeros, a NaN and infinities.
func (a *arena) sparse(n int) []float32 {
	x := a.take(n)
	for i := range x {
		switch i % 23 {
		case 1, 2, 3, 8:
			x[i] = 0
		case 5:
			x[i] = float32(math.Copysign(0, -1))
		case 13:
			x[i] = float32(math.NaN())
		case 17:
			x[i] = float32(math.Inf(-1))
		case 19:
			x[i] = float32(math.Inf(1))
		}
	}
	return x
}

// operations are calls of all functions with arguments from an arena of that many rows and columns.
var operations = map[string]func(a *arena, rows, columns int) any{
	"Axpy":     func(a *arena, r, c int) any { Axpy(0.37, a.take(r*c), a.take(r*c)); return nil },
	"Add":      func(a *arena, r, c int) any { Add(a.take(r*c), a.take(r*c)); return nil },
	"Sum":      func(a *arena, r, c int) any { Sum(a.take(r*c), a.sparse(r*c), a.take(r*c), false); return nil },
	"SumReLU":  func(a *arena, r, c int) any { Sum(a.take(r*c), a.sparse(r*c), a.take(r*c), true); return nil },
	"Scale":    func(a *arena, r, c int) any { Scale(-1.7, a.take(r*c)); return nil },
	"ReluGrad": func(a *arena, r, c int) any { ReluGrad(a.sparse(r*c), a.sparse(r*c)); return nil },
	"AddRows":  func(a *arena, r, c int) any { AddRows(a.take(c), a.take(r*c)); return nil },
	"ColumnStats": func(a *arena, r, c int) any {
		s := make([]float64, 2*c+3)
		ColumnStats(s[:c:c], s[c+1:][:c:c], a.take(r*c), a.take(r*c))
		return s
	},
	"ScaleShift": func(a *arena, r, c int) any {
		ScaleShift(a.take(r*c), a.sparse(r*c), a.take(c), a.take(c), false)
		return nil
	},
	"ScaleShiftReLU": func(a *arena, r, c int) any {
		ScaleShift(a.take(r*c), a.sparse(r*c), a.take(c), a.take(c), true)
		return nil
	},
	"BatchNormGrad": func(a *arena, r, c int) any {
		BatchNormGrad(a.take(r*c), a.take(r*c), a.sparse(r*c), a.take(c), a.take(c), a.take(c), false)
		return nil
	},
	"BatchNormGradReLU": func(a *arena, r, c int) any {
		dx := a.take(r * c)
		BatchNormGrad(dx, dx, a.sparse(r*c), a.take(c), a.take(c), a.take(c), true)
		return nil
	},
	"MaxPool2x2": func(a *arena, r, c int) any {
		index := make([]uint8, r*c+9)
		MaxPool2x2(a.take(r*c), index[:r*c:r*c], a.sparse(2*r*c), a.sparse(2*r*c), c)
		return index
	},
	"MaxPool2x2Grad": func(a *arena, r, c int) any {
		index := make([]uint8, r*c)
		for i := range index {
			index[i] = uint8(i * 7 % 4)
		}
		MaxPool2x2Grad(a.take(2*r*c), a.take(2*r*c), a.sparse(r*c), index, c)
		return nil
	},
	"Dropout": func(a *arena, r, c int) any {
		Dropout(a.take(r*c), a.sparse(r*c), 77, 1<<32-50, 1<<30, 1/0.75)
		return nil
	},
	"Transpose": func(a *arena, r, c int) any {
		Transpose(a.take(c*(r+3)), r+3, a.take(r*(c+2)), c+2, r, c)
		return nil
	},
	"ImageToTile":       func(a *arena, r, c int) any { return a.winograd(ImageToTile, r, c) },
	"TileToImage":       func(a *arena, r, c int) any { return a.winograd(TileToImage, r, c) },
	"GradToTile":        func(a *arena, r, c int) any { return a.winograd(GradToTile, r, c) },
	"KernelToTile":      func(a *arena, r, c int) any { return a.winograd(KernelToTile, r, c) },
	"TileToKernel":      func(a *arena, r, c int) any { return a.winograd(TileToKernel, r, c) },
	"ImageToLargeTile":  func(a *arena, r, c int) any { return a.winograd(ImageToLargeTile, r, c) },
	"LargeTileToImage":  func(a *arena, r, c int) any { return a.winograd(LargeTileToImage, r, c) },
	"KernelToLargeTile": func(a *arena, r, c int) any { return a.winograd(KernelToLargeTile, r, c) },
	"GradToLargeTile":   func(a *arena, r, c int) any { return a.winograd(GradToLargeTile, r, c) },
	"LargeTileToKernel": func(a *arena, r, c int) any { return a.winograd(LargeTileToKernel, r, c) },
	"BytesToFloat": func(a *arena, r, c int) any {
		src := make([]byte, r*c)
		for i := range src {
			src[i] = byte(i * 37)
		}
		BytesToFloat(a.take(r*c), src, 1./255, -0.5)
		return nil
	},
	"FirstNonFinite": func(a *arena, r, c int) any {
		x := a.take(r * c)
		if len(x) > 0 {
			x[a.seed*31%uint64(len(x))] = float32(math.Inf(1))
		}
		return FirstNonFinite(x)
	},
	"SGD": func(a *arena, r, c int) any { SGD(a.take(r*c), a.take(r*c), 0.1); return nil },
	"Momentum": func(a *arena, r, c int) any {
		Momentum(a.take(r*c), a.take(r*c), a.take(r*c), 0.1, 0.9, false)
		return nil
	},
	"Nesterov": func(a *arena, r, c int) any {
		Momentum(a.take(r*c), a.take(r*c), a.take(r*c), 0.1, 0.9, true)
		return nil
	},
	"Adam": func(a *arena, r, c int) any {
		Adam(a.take(r*c), a.take(r*c), a.take(r*c), a.positive(r*c), 0.001, 0.9, 0.999, 1e-7)
		return nil
	},
	"AMSGrad": func(a *arena, r, c int) any {
		AMSGrad(a.take(r*c), a.take(r*c), a.take(r*c), a.positive(r*c), a.positive(r*c), 0.001, 0.9, 0.999, 1e-7)
		return nil
	},
	"Adagrad": func(a *arena, r, c int) any {
		Adagrad(a.take(r*c), a.take(r*c), a.positive(r*c), 0.01, 1e-7)
		return nil
	},
}

// TestSetsAgree checks that every set has the same bits as the portable one, and writes only to its
// slices.
func TestSetsAgree(t *testing.T) {
	defer Use(Name())
	for name, run := range operations {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rows := rapid.IntRange(0, 19).Draw(t, "rows")
				columns := rapid.IntRange(0, 150).Draw(t, "columns")
				seed := rapid.Uint64Range(0, 1<<40).Draw(t, "seed")
				var want *arena
				var wantResult string
				for _, set := range slices.Backward(Names()) { // the generic set first
					if err := Use(set); err != nil {
						t.Fatal(err)
					}
					a := &arena{t: t, seed: seed, shift: int(seed % 16)}
					result := fmt.Sprint(run(a, rows, columns))
					for i, check := range a.checks {
						if err := check(); err != nil {
							t.Fatalf("%s: slice %d: %v", set, i, err)
						}
					}
					if want == nil {
						want, wantResult = a, result
						continue
					}
					if result != wantResult {
						t.Fatalf("%s: result %s, want %s", set, result, wantResult)
					}
					for i, x := range a.slices {
						for j, v := range x {
							if w := want.slices[i][j]; math.Float32bits(v) != math.Float32bits(w) &&
								(v == v || w == w) {
								t.Fatalf("%s: slice %d[%d] = %v, want %v", set, i, j, v, w)
							}
						}
					}
				}
			})
		})
	}
}

// TestLong checks slices that are longer than the stretches into which they are split.
func TestLong(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		const n = 3<<16 + 11
		x, y := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], y[i] = float32(i%7), 1
		}
		Axpy(2, x, y)
		Add(y, x)
		Scale(0.5, y)
		SGD(y, x, 1)
		for i, v := range y {
			if want := (3*float32(i%7)+1)/2 - float32(i%7); v != want {
				t.Fatalf("element %d: %v, want %v", i, v, want)
			}
		}
		for _, at := range []int{n - 1, 1<<16 + 3, 5} {
			x[at] = float32(math.NaN())
			if got := FirstNonFinite(x); got != at {
				t.Fatalf("non-finite at %d, want %d", got, at)
			}
		}
	})
}

// TestOptimizers compares many steps with the textbook's formulas in float64.
func TestOptimizers(t *testing.T) {
	const n, lr, mu, b1, b2, eps = 37, 0.01, 0.9, 0.9, 0.999, 1e-7
	type state struct{ p, g, m, v, h float64 }
	textbook := map[string]func(s *state, rate float64){
		"SGD":      func(s *state, _ float64) { s.p -= lr * s.g },
		"Momentum": func(s *state, _ float64) { s.m = mu*s.m + s.g; s.p -= lr * s.m },
		"Nesterov": func(s *state, _ float64) { s.m = mu*s.m + s.g; s.p -= lr * (s.g + mu*s.m) },
		"Adam": func(s *state, rate float64) {
			s.m, s.v = b1*s.m+(1-b1)*s.g, b2*s.v+(1-b2)*s.g*s.g
			s.p -= rate * s.m / (math.Sqrt(s.v) + eps)
		},
		"AMSGrad": func(s *state, rate float64) {
			s.m, s.v = b1*s.m+(1-b1)*s.g, b2*s.v+(1-b2)*s.g*s.g
			s.h = max(s.h, s.v)
			s.p -= rate * s.m / (math.Sqrt(s.h) + eps)
		},
		"Adagrad": func(s *state, _ float64) { s.v += s.g * s.g; s.p -= lr * s.g / (math.Sqrt(s.v) + eps) },
	}
	forEachSet(t, func(t *testing.T) {
		for name, update := range textbook {
			want := make([]state, n)
			p, m, v, h := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
			for step := 1; step <= 50; step++ {
				g := randoms(uint64(step), n)
				rate := lr * math.Sqrt(1-math.Pow(b2, float64(step))) / (1 - math.Pow(b1, float64(step)))
				switch name {
				case "SGD":
					SGD(p, g, lr)
				case "Momentum", "Nesterov":
					Momentum(p, g, m, lr, mu, name == "Nesterov")
				case "Adam":
					Adam(p, g, m, v, rate, b1, b2, eps)
				case "AMSGrad":
					AMSGrad(p, g, m, v, h, rate, b1, b2, eps)
				case "Adagrad":
					Adagrad(p, g, v, lr, eps)
				}
				for i := range want {
					want[i].g = float64(g[i])
					update(&want[i], rate)
					if diff := math.Abs(want[i].p - float64(p[i])); diff > 2e-6*max(math.Abs(want[i].p), 0.1) {
						t.Fatalf("%s, step %d: %v, want %v", name, step, p[i], want[i].p)
					}
				}
			}
		}
	})
}

// TestStatistics checks the variance of numbers whose mean is a thousand times their deviation.
func TestStatistics(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		const rows, columns = 40000, 11
		r := rand.New(rand.NewPCG(1, 2))
		x := make([]float32, rows*columns)
		for i := range x {
			x[i] = 1000 + float32(r.NormFloat64())
		}
		s1, s2 := make([]float64, columns), make([]float64, columns)
		ColumnStats(s1, s2, x, x)
		for c := range columns {
			mean, want := 0.0, 0.0
			for i := c; i < len(x); i += columns {
				mean += float64(x[i]) / rows
			}
			for i := c; i < len(x); i += columns {
				want += (float64(x[i]) - mean) * (float64(x[i]) - mean) / rows
			}
			got := s2[c]/rows - s1[c]/rows*s1[c]/rows
			if math.Abs(got-want) > 1e-6*want {
				t.Fatalf("column %d: variance %v, want %v", c, got, want)
			}
		}
	})
}

func TestMaxPool(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		// Two output pixels of one channel. Of equal elements the first counts.
		dst, index := make([]float32, 2), make([]uint8, 2)
		MaxPool2x2(dst, index, []float32{1, 5, 7, 7}, []float32{9, 2, 7, 7}, 1)
		if !slices.Equal(dst, []float32{9, 7}) || !slices.Equal(index, []uint8{2, 0}) {
			t.Fatal(dst, index)
		}
		nan := float32(math.NaN())
		// each element of the window; eight channels, as AVX2 needs
		for at := range 4 {
			window := make([]float32, 4*8)
			for i := range window {
				window[i] = float32(i % 5)
			}
			for c := range 8 {
				window[at*8+c] = nan
			}
			dst, index := make([]float32, 8), make([]uint8, 8)
			MaxPool2x2(dst, index, window[:16], window[16:], 8)
			for c := range dst {
				if dst[c] == dst[c] || int(index[c]) != at {
					t.Errorf("NaN at %d of the window: the maximum is %v, of element %d", at, dst[c], index[c])
				}
			}
		}
		top, bottom := make([]float32, 4), make([]float32, 4)
		MaxPool2x2Grad(top, bottom, []float32{3, 4}, index, 1)
		if !slices.Equal(top, []float32{0, 0, 4, 0}) || !slices.Equal(bottom, []float32{3, 0, 0, 0}) {
			t.Fatal(top, bottom)
		}
	})
}

func TestDropout(t *testing.T) {
	forEachSet(t, func(t *testing.T) {
		const n = 1 << 18
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i] = 1
		}
		Dropout(y, x, 3, 0, 1<<30, 4./3)
		zeros, both := 0, 0
		Dropout(z, x, 4, 0, 1<<30, 1)
		for i := range y {
			if y[i] == 0 {
				zeros++
				if z[i] == 0 {
					both++
				}
			}
		}
		// At most five standard deviations of the binomials: a quarter is dropped, and the quarter
		// of another seed is independent.
		if math.Abs(float64(zeros)-n/4) > 5*math.Sqrt(n*3./16) ||
			math.Abs(float64(both)-n/16) > 5*math.Sqrt(n*15./256) {
			t.Fatalf("%d of %d are dropped, %d with both seeds", zeros, n, both)
		}
		part := make([]float32, 1000)
		Dropout(part, x[:1000], 3, 5000, 1<<30, 4./3)
		if !slices.Equal(part, y[5000:6000]) {
			t.Fatal("a stretch differs from the same elements of the whole")
		}
	})
}

func TestShortSlicePanics(t *testing.T) {
	x, y := make([]float32, 3), make([]float32, 2)
	for name, f := range map[string]func(){
		"Add":         func() { Add(y, x) },
		"AddRows":     func() { AddRows(y, x) },
		"AddRows 0":   func() { AddRows(nil, x) },
		"ColumnStats": func() { ColumnStats(make([]float64, 3), make([]float64, 2), x, x) },
		"Adam":        func() { Adam(x, x, x, y, 1, 1, 1, 1) },
		"MaxPool2x2":  func() { MaxPool2x2(y, make([]uint8, 2), x, x, 1) },
		"Transpose":   func() { Transpose(y, 3, x, 1, 3, 1) },
		"Gemm A": func() {
			Gemm(&GemmArgs{M: 2, N: 1, K: 2, A: x, ARow: 2, AStep: 1, B: y, BRow: 1, C: y, CRow: 1})
		},
		"Gemm B":      func() { Gemm(&GemmArgs{M: 1, N: 1, K: 3, A: x, AStep: 1, B: y, BRow: 1, C: y, CRow: 1}) },
		"Gemm C":      func() { Gemm(&GemmArgs{M: 3, N: 1, K: 1, A: x, ARow: 1, B: y, C: y, CRow: 1}) },
		"Gemm bias":   func() { Gemm(&GemmArgs{M: 1, N: 3, K: 1, A: x, B: x, C: x, Init: Bias, Bias: y}) },
		"Gemm stride": func() { Gemm(&GemmArgs{M: 1, N: 1, K: 1, A: x, ARow: -1, B: x, C: x}) },
		"Gemm rows":   func() { Gemm(&GemmArgs{M: 2, N: 2, K: 1, A: x, B: x, C: x, CRow: 1}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

package nn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// small returns a network with every kind of operation.
func small(b *Builder) Module {
	return Sequential{
		b.Conv2D(2, Conv2D{Filters: 8, Kernel: [2]int{3, 3}, Padding: Same, ReLU: true}),
		b.BatchNorm(8, BatchNorm{}),
		MaxPool{},
		b.Conv2D(8, Conv2D{Filters: 5, Kernel: [2]int{2, 2}}),
		ReLU{},
		Dropout{Rate: .4},
		Flatten{},
		b.Dense(5*3*2, Dense{Units: 20, ReLU: true}),
		b.Dense(20, Dense{Units: 4}),
	}
}

func smallModel(batch, threads int) model {
	labels := make([]int32, batch)
	for i := range labels {
		labels[i] = int32(i % 4)
	}
	return model{build: small, input: array(1, 1, .3, batch, 9, 7, 2), labels: labels, threads: threads}
}

// tiledModel returns a network with convolutions that are computed in tiles.
func tiledModel(batch, threads int) model {
	m := smallModel(batch, threads)
	m.build = func(b *Builder) Module {
		again := b.Conv2D(16, Conv2D{Filters: 16, Kernel: [2]int{3, 3}, Padding: Same, ReLU: true})
		return Sequential{
			b.Conv2D(2, Conv2D{Filters: 64, Kernel: [2]int{1, 1}}),
			b.Conv2D(64, Conv2D{Filters: 16, Kernel: [2]int{3, 3}}), b.BatchNorm(16, BatchNorm{ReLU: true}),
			again, again, residual(b, 16, 16), MaxPool{}, Flatten{}, b.Dense(16*4*4, Dense{Units: 4}),
		}
	}
	m.input = array(1, 1, .3, batch, 10, 10, 2)
	return m
}

func (r result) equal(other result) error {
	if r.loss != other.loss || !slices.Equal(r.output, other.output) {
		return fmt.Errorf("loss %v and output differ from loss %v", r.loss, other.loss)
	}
	for i, g := range r.grads {
		if !slices.Equal(g, other.grads[i]) {
			return fmt.Errorf("gradient %d differs", i)
		}
	}
	return nil
}

// TestThreads checks that results are bit-identical for any number of threads.
func TestThreads(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		for name, model := range map[string]func(batch, threads int) model{"small": smallModel, "tiled": tiledModel} {
			for _, batch := range []int{1, 3, 17} {
				want := model(batch, 1).run(t)
				for _, threads := range []int{2, 3, 8, 20} {
					if err := model(batch, threads).run(t).equal(want); err != nil {
						t.Errorf("%s: %d threads, batch %d: %v", name, threads, batch, err)
					}
				}
			}
		}
	})
}

// TestFusedReLU checks that the ReLU of a layer gives the same gradients as that of the tape,
// whichever operation masks them.
func TestFusedReLU(t *testing.T) {
	type consumer func(t *Tape, n *BatchNorm, x *Tensor) *Tensor
	pool := MaxPool{}
	for name, use := range map[string]consumer{
		"norm": func(t *Tape, n *BatchNorm, x *Tensor) *Tensor { return n.Forward(t, x) },
		"pool": func(t *Tape, _ *BatchNorm, x *Tensor) *Tensor { return pool.Forward(t, x) },
		"norm, ReLU and pool": func(t *Tape, n *BatchNorm, x *Tensor) *Tensor {
			n.ReLU = true
			return pool.Forward(t, n.Forward(t, x))
		},
		"AddReLU":      func(t *Tape, _ *BatchNorm, x *Tensor) *Tensor { return t.AddReLU(x, x) },
		"add":          func(t *Tape, _ *BatchNorm, x *Tensor) *Tensor { return t.Add(x, x) },
		"norm and add": func(t *Tape, n *BatchNorm, x *Tensor) *Tensor { return t.Add(n.Forward(t, x), x) },
		"add and norm": func(t *Tape, n *BatchNorm, x *Tensor) *Tensor { return t.Add(t.Add(x, x), n.Forward(t, x)) },
		"pool and norm": func(t *Tape, n *BatchNorm, x *Tensor) *Tensor {
			return t.Add(pool.Forward(t, x), pool.Forward(t, n.Forward(t, x)))
		},
	} {
		var results []result
		for _, fused := range []bool{true, false} {
			m := smallModel(7, 2)
			m.labels = nil
			m.build = func(b *Builder) Module {
				conv := b.Conv2D(2, Conv2D{Filters: 4, Kernel: [2]int{2, 2}, ReLU: fused})
				norm := b.BatchNorm(4, BatchNorm{})
				return forward(func(t *Tape, x *Tensor) *Tensor {
					x = conv.Forward(t, x)
					if !fused {
						x = t.ReLU(x)
					}
					return use(t, norm, x)
				})
			}
			results = append(results, m.run(t))
		}
		for i, g := range results[0].grads {
			for j, v := range g {
				if want := results[1].grads[i][j]; math.Abs(float64(v-want)) > 1e-5 {
					t.Fatalf("%s: gradient %d[%d] is %v, unfused %v", name, i, j, v, want)
				}
			}
		}
	}
}

// forward makes a function a module.
type forward func(t *Tape, x *Tensor) *Tensor

func (f forward) Forward(t *Tape, x *Tensor) *Tensor { return f(t, x) }

// TestMemoryIsReused checks that a tape that was used for other batches computes the same as a new
// one, and allocates no memory.
func TestMemoryIsReused(t *testing.T) {
	t.Run("small", func(t *testing.T) { checkMemory(t, smallModel) })
	t.Run("tiled", func(t *testing.T) { checkMemory(t, tiledModel) })
}

func checkMemory(t *testing.T, model func(batch, threads int) model) {
	tape, module := model(1, 2).tape(t)
	for _, batch := range []int{1, 24, 5, 24, 23, 2} {
		m := model(batch, 2)
		tape.SetNoise(0)
		if err := m.pass(t, tape, module).equal(m.run(t)); err != nil {
			t.Errorf("batch %d: %v", batch, err)
		}
	}
	m := model(24, 2)
	inputs := []Array{m.input}
	train := func(t *Tape) { t.Backward(t.SoftmaxCrossEntropy(module.Forward(t, t.Input(0)), m.labels)) }
	allocs := testing.AllocsPerRun(20, func() {
		if err := tape.Pass(true, inputs, train); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("a pass allocates %v times", allocs)
	}
}

// TestValuesAfterBackward checks that values are the same after the backward pass, and that reading
// them changes no gradient.
func TestValuesAfterBackward(t *testing.T) {
	var before, after, grads []float32
	for _, ask := range []bool{true, false} {
		b := NewBuilder(1)
		norm, dense := b.BatchNorm(3, BatchNorm{}), b.Dense(4*3, Dense{Units: 2})
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		tape := NewTape(p, 2, 0)
		defer tape.Close()
		err = tape.Pass(true, []Array{array(1, 1, 0, 5, 4, 4, 3)}, func(t *Tape) {
			x := norm.Forward(t, t.Input(0))
			if ask {
				before = slices.Clone(x.Data())
			}
			y := dense.Forward(t, Flatten{}.Forward(t, MaxPool{}.Forward(t, x)))
			t.Backward(t.SoftmaxCrossEntropy(y, []int32{0, 1, 1, 0, 1}))
			after = x.Data()
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(before, after) {
			t.Errorf("values %v after backward, %v before", after, before)
		}
		if grads == nil {
			grads = slices.Clone(p.Grads)
		} else if !slices.Equal(p.Grads, grads) {
			t.Errorf("gradients %v of values not looked at, %v of others", p.Grads, grads)
		}
	}
}

// TestBatchSizes checks that the gradient of a batch is the mean of its examples' gradients,
// without operations across the batch.
func TestBatchSizes(t *testing.T) {
	build := func(b *Builder) Module {
		return Sequential{
			b.Conv2D(2, Conv2D{Filters: 8, Kernel: [2]int{3, 3}, ReLU: true}),
			MaxPool{},
			Flatten{},
			b.Dense(8*3*2, Dense{Units: 4}),
		}
	}
	example := func(batch, i int) model {
		m := smallModel(batch, 2)
		m.build = build
		if i >= 0 {
			m.input = Array{[]int{1, 9, 7, 2}, m.input.Data[i*126 : (i+1)*126]}
			m.labels = m.labels[i : i+1]
		}
		return m
	}
	tape, module := example(1, -1).tape(t)
	var sums [][]float64
	for n := 1; n <= 70; n++ {
		for i, g := range example(70, n-1).pass(t, tape, module).grads[1:] {
			if n == 1 {
				sums = append(sums, make([]float64, len(g)))
			}
			for j, v := range g {
				sums[i][j] += float64(v)
			}
		}
		for i, g := range example(n, -1).pass(t, tape, module).grads[1:] {
			for j, v := range g {
				if want := sums[i][j] / float64(n); math.Abs(float64(v)-want) > 1e-6 {
					t.Fatalf("batch %d: gradient %d[%d] = %v, its examples have %v", n, i, j, v, want)
				}
			}
		}
	}
}

// TestDropout checks the rate and the scale, that the backward pass drops the same elements, and
// that the next pass drops others.
func TestDropout(t *testing.T) {
	m := model{build: one(Dropout{Rate: .25}), input: Array{[]int{4, 10000}, values(1, 40000, .1, 1)}}
	tape, module := m.tape(t)
	first := m.pass(t, tape, module)
	zeros := 0
	weights := values(99, 40000, 1, 0)
	for i, v := range first.output {
		x, dx := m.input.Data[i], first.grads[0][i]
		switch {
		case v == 0 && dx == 0:
			zeros++
		case math.Abs(float64(v-x/.75)) > 1e-6 || math.Abs(float64(dx-weights[i]/.75)) > 1e-6:
			t.Fatalf("element %d: %v became %v, gradient %v", i, x, v, dx)
		}
	}
	if math.Abs(float64(zeros)-10000) > 400 { // more than 4 standard deviations
		t.Errorf("%d of 40000 elements dropped", zeros)
	}
	if second := m.pass(t, tape, module); slices.Equal(first.output, second.output) {
		t.Error("two passes drop the same elements")
	}
	tape.SetNoise(0)
	if again := m.pass(t, tape, module); !slices.Equal(first.output, again.output) {
		t.Error("the same noise drops other elements")
	}
	tape.SetNoise(1)
	if other := m.pass(t, tape, module); slices.Equal(first.output, other.output) {
		t.Error("other noise drops the same elements")
	}
}

// TestInference checks that inference uses the moving statistics and no dropout, and computes no
// gradient.
func TestInference(t *testing.T) {
	m := smallModel(6, 2)
	m.build = func(b *Builder) Module {
		return Sequential{Dropout{Rate: .5}, b.BatchNorm(2, BatchNorm{})}
	}
	tape, module := m.tape(t)
	mean, variance := tape.params.vars[2], tape.params.vars[3]
	copy(mean.Value, []float32{.5, -1})
	copy(variance.Value, []float32{4, .25})
	err := tape.Pass(false, []Array{m.input}, func(tape *Tape) {
		y := module.Forward(tape, tape.Input(0))
		for i, v := range y.Data() {
			c := i % 2
			want := float64(m.input.Data[i]-mean.Value[c]) / math.Sqrt(float64(variance.Value[c])+1e-3)
			if math.Abs(float64(v)-want) > 1e-5 {
				t.Fatalf("element %d is %v, want %v", i, v, want)
			}
		}
		tape.Backward(tape.SoftmaxCrossEntropy(tape.Reshape(y, 126), m.labels))
	})
	if err == nil || !strings.Contains(err.Error(), "training pass") {
		t.Errorf("backward outside of training: %v", err)
	}
}

// TestMovingStatisticsOfPyTorch compares moving statistics with those of BatchNorm1d and
// BatchNorm2d with momentum 0.01, in float64.
func TestMovingStatisticsOfPyTorch(t *testing.T) {
	flat := Array{[]int{5, 2}, []float32{-4, -1, 3, 6, -1, 2, 6, -2, 2, 5}}
	image := Array{Shape: []int{2, 2, 2, 2}} // examples, rows, columns, channels
	for example := range 2 {
		for row := range 2 {
			for column := range 2 {
				for channel := range 2 {
					image.Data = append(image.Data, float32((example*5+channel*3+row*2+column)%7-2))
				}
			}
		}
	}
	for _, c := range []struct {
		input          Array
		mean, variance []float64
	}{
		{flat, []float64{0.012, 0.02}, []float64{1.137, 1.115}},
		{image, []float64{0.0025, 0.015}, []float64{1.0407142857142857, 1.0157142857142858}},
	} {
		b := NewBuilder(1)
		norm := b.BatchNorm(2, BatchNorm{})
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		tape := NewTape(p, 2, 0)
		defer tape.Close()
		err = tape.Pass(true, []Array{c.input}, func(t *Tape) {
			y := norm.Forward(t, t.Input(0))
			t.Backward(t.SoftmaxCrossEntropy(t.Reshape(y, len(y.Data())/c.input.Shape[0]),
				make([]int32, c.input.Shape[0])))
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Layout.Average(0, p.Values, p.Grads)
		for channel := range 2 {
			mean, variance := float64(norm.vars[2].Value[channel]), float64(norm.vars[3].Value[channel])
			if math.Abs(mean-c.mean[channel]) > 1e-6 || math.Abs(variance-c.variance[channel]) > 1e-6 {
				t.Errorf("input %v, channel %d: mean %v and variance %v, PyTorch has %v and %v",
					c.input.Shape, channel, mean, variance, c.mean[channel], c.variance[channel])
			}
		}
	}
}

// TestMaxPoolOfNaN pools windows of which one element is NaN.
func TestMaxPoolOfNaN(t *testing.T) {
	for name, pool := range map[string]MaxPool{"2x2": {}, "3x3": {Window: [2]int{3, 3}, Stride: [2]int{3, 3}}} {
		for at := range 4 {
			b := NewBuilder(1)
			dense := b.Dense(1, Dense{Units: 2})
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			tape := NewTape(p, 1, 0)
			defer tape.Close()
			image := Array{[]int{1, 3, 3, 1}, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}}
			image.Data[[]int{0, 1, 3, 4}[at]] = float32(math.NaN())
			err = tape.Pass(true, []Array{image}, func(tape *Tape) {
				y := pool.Forward(tape, tape.Input(0))
				if v := y.Data()[0]; v == v {
					t.Errorf("window %s, NaN at %d: the maximum is %v", name, at, v)
				}
				tape.Backward(tape.SoftmaxCrossEntropy(dense.Forward(tape, tape.Reshape(y, 1)), []int32{0}))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestMovingStatistics checks that the moving averages are updated as in Keras.
func TestMovingStatistics(t *testing.T) {
	m := models["batch norm, two dimensions"]
	tape, module := m.tape(t)
	m.pass(t, tape, module)
	tape.params.Layout.Average(0, tape.params.Values, tape.params.Grads)
	for c := range 4 {
		var mean, square float64
		for r := range 9 {
			v := float64(m.input.Data[r*4+c])
			mean += v / 9
			square += v * v / 9
		}
		for i, want := range []float64{.99*0 + .01*mean, .99*1 + .01*(square-mean*mean)*9/8} {
			p := tape.params.vars[2+i]
			if got := float64(p.Value[c]); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s[%d] becomes %v, want %v", p.Name, c, got, want)
			}
		}
	}
}

// TestControlFlow checks that a model may read values and differ in every pass, and that the
// gradient of a parameter that a pass does not use is zero.
func TestControlFlow(t *testing.T) {
	b := NewBuilder(1)
	positive, negative := b.Dense(1, Dense{Name: "positive", Units: 2}), b.Dense(1, Dense{Name: "negative", Units: 2})
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	tape := NewTape(p, 1, 0)
	defer tape.Close()
	for _, v := range []float32{1, -1, 1} {
		err := tape.Pass(true, []Array{{[]int{1, 1}, []float32{v}}}, func(t *Tape) {
			x := t.ReLU(t.Input(0))
			if x.Data()[0] > 0 {
				x = positive.Forward(t, x)
			} else {
				x = t.ReLU(negative.Forward(t, t.Input(0)))
			}
			t.Backward(t.SoftmaxCrossEntropy(x, []int32{1}))
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, layer := range []*Dense{positive, negative} {
			zero := !slices.ContainsFunc(layer.vars[1].Grad, func(g float32) bool { return g != 0 })
			if used := (v > 0) == (layer == positive); used == zero {
				t.Errorf("input %v: gradient of %s is %v", v, layer.Name, layer.vars[1].Grad)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	labels := func(l ...int32) func(*Tape, Module) {
		return func(t *Tape, m Module) { t.Backward(t.SoftmaxCrossEntropy(m.Forward(t, t.Input(0)), l)) }
	}
	call := func(t *Tape, m Module) { m.Forward(t, t.Input(0)) }
	dense := func(b *Builder) Module { return b.Dense(3, Dense{Units: 2}) }
	image := array(1, 1, 0, 2, 4, 4, 3)
	for _, c := range []struct {
		build func(*Builder) Module
		input Array
		f     func(*Tape, Module)
		want  string
	}{
		{dense, array(1, 1, 0, 2, 3), labels(0, 2), "example 1 has label 2: want 0 to 1"},
		{dense, array(1, 1, 0, 2, 3), labels(-1, 0), "example 0 has label -1"},
		{dense, array(1, 1, 0, 2, 3), labels(1), "1 labels for 2 examples"},
		{dense, image, labels(1, 1), "want [batch classes]"},
		{dense, array(1, 1, 0, 2, 4), call, "dense: input [2 4]: want 3 in the last dimension"},
		{dense, Array{[]int{2, 3}, make([]float32, 5)}, call, "input 0 of shape [2 3] has 5 elements"},
		{dense, Array{[]int{0, 3}, nil}, call, "input 0 has shape [0 3]"},
		{dense, Array{}, call, "input 0 has shape []"},
		{convolution(2, Conv2D{Filters: 1, Kernel: [2]int{1, 1}}), image, call,
			"conv2d: input [2 4 4 3]: want 2 channels"},
		{convolution(3, Conv2D{Filters: 1, Kernel: [2]int{5, 1}}), image, call,
			"conv2d: input [2 4 4 3] is smaller than the window [5 1]"},
		{convolution(3, Conv2D{Filters: 1, Kernel: [2]int{1, 1}}), array(1, 1, 0, 2, 3), call,
			"conv2d: input [2 3]: want [batch height width channels]"},
		{one(MaxPool{Window: [2]int{-1, 2}}), image, call, "max_pooling2d: window [-1 2]"},
		{func(b *Builder) Module {
			return b.BatchNorm(2, BatchNorm{})
		}, image, call, "batch_normalization: input [2 4 4 3]: want 2 channels"},
		{one(GlobalAveragePool{}), array(1, 1, 0, 2, 3), call, "global_average_pooling2d: input [2 3]"},
		{one(Shortcut{Channels: 2}), image, call, "shortcut: input [2 4 4 3]: has more than 2 channels"},
		{one(Dropout{Rate: 1}), image, call, "dropout: rate 1"},
		{one(ReLU{}), Array{[]int{2}, make([]float32, 2)}, call, "relu: input [2]"},
		{one(Sequential{}), image, func(t *Tape, _ Module) { t.Reshape(t.Input(0), 5) }, "reshape of [2 4 4 3] to [5]"},
		{one(Sequential{}), image, func(t *Tape, _ Module) {
			t.Add(t.Input(0), t.Reshape(t.Input(0), 48))
		}, "add [2 48] to [2 4 4 3]"},
		{one(Sequential{}), image, func(t *Tape, _ Module) { t.Backward(t.Input(0)) }, "backward from shape [2 4 4 3]"},
	} {
		tape, module := model{build: c.build}.tape(t)
		err := tape.Pass(true, []Array{c.input}, func(t *Tape) { c.f(t, module) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// TestAbsorbedNormalization checks that a normalization that is computed within the next operation
// has the same values and gradients as a separate one, whenever its values are read and whichever
// other operation reads them.
func TestAbsorbedNormalization(t *testing.T) {
	const before, between, later, after, never = 0, 1, 2, 3, 4
	for name, use := range map[string]func(t *Tape, c *Conv2D, x, y *Tensor) *Tensor{
		"conv":          func(t *Tape, c *Conv2D, _, y *Tensor) *Tensor { return c.Forward(t, y) },
		"add":           func(t *Tape, _ *Conv2D, x, y *Tensor) *Tensor { return t.AddReLU(y, x) },
		"add to itself": func(t *Tape, _ *Conv2D, _, y *Tensor) *Tensor { return t.Add(y, y) },
	} {
		for _, relu := range []bool{true, false} {
			var values, grads [never + 1][]float32
			var used [2][]float32
			for when := range values {
				m := smallModel(5, 2)
				b := NewBuilder(1)
				first := b.Conv2D(2, Conv2D{Filters: 2, Kernel: [2]int{1, 1}})
				norm, conv := b.BatchNorm(2, BatchNorm{ReLU: relu}),
					b.Conv2D(2, Conv2D{Filters: 2, Kernel: [2]int{3, 3}, Padding: Same})
				p, err := b.Build()
				if err != nil {
					t.Fatal(err)
				}
				tape := NewTape(p, 2, 0)
				defer tape.Close()
				err = tape.Pass(true, []Array{m.input}, func(tape *Tape) {
					x := first.Forward(tape, tape.Input(0))
					y := norm.Forward(tape, x)
					ask := func(now int) {
						if now == when {
							values[when] = slices.Clone(y.Data())
						}
					}
					ask(before)
					z := use(tape, conv, x, y)
					ask(between)
					// a second operation reads y after the first has run
					if when == later {
						z.Data()
						used[0] = slices.Clone(tape.ReLU(y).Data())
					}
					tape.Backward(tape.SoftmaxCrossEntropy(tape.Reshape(z, 126), m.labels))
					ask(after)
				})
				if err != nil {
					t.Fatal(err)
				}
				grads[when] = slices.Clone(p.Grads)
			}
			used[1] = slices.Clone(values[before])
			for i := range used[1] {
				used[1][i] = max(0, used[1][i])
			}
			if !slices.Equal(used[0], used[1]) {
				t.Errorf("%s: a later reader of values %v has %v", name, values[before], used[0])
			}
			for when := range values {
				if values[when] != nil && !slices.Equal(values[when], values[before]) {
					t.Errorf("%s: other values when asked for at %d", name, when)
				}
				if !slices.Equal(grads[when], grads[before]) {
					t.Errorf("%s: other gradients when asked for at %d", name, when)
				}
			}
		}
	}
}

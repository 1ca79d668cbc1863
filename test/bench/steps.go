package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/cpu"

	_ "embed"

	"github.com/elasticdl/elasticdl/trainer/nn"
	"github.com/elasticdl/elasticdl/trainer/nn/kernel"
	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

//go:embed peers/steps.py
var torchSteps string

const batch = 64

// stepModels are what is stepped: PyTorch's names for them, the target beside
// PyTorch, and the floating-point operations of a step.
var stepModels = []struct {
	name, target string
	model        func() (*zoo.Model, error)
}{
	{"mnist_cnn", "<= 0.70", func() (*zoo.Model, error) { return zoo.Lookup("mnist_functional_api") }},
	{"mlp", "<= 0.5", func() (*zoo.Model, error) { return zoo.Lookup("mnist_mlp") }},
	{"small_cnn", "<= 0.9", smallCNN},
	{"resnet20", "<= 0.7", func() (*zoo.Model, error) { return zoo.Lookup("cifar10_resnet20") }},
}

// mnistCNNFlops counts the multiply-adds of the matrix products of a step of the
// MNIST CNN, times two: forward and two backward for the second convolution and the
// dense layer, forward and one backward for the first, whose input needs no gradient.
const mnistCNNFlops = 2 * batch * (2*26*26*32*9 + 3*24*24*64*9*32 + 3*9216*10)

func stepBenchmarks() []benchmark {
	var all []benchmark
	for _, m := range stepModels {
		for _, threads := range []int{1, 2} {
			name := fmt.Sprintf("step/%s/threads=%d", m.name, threads)
			all = append(all, benchmark{name, func(_ context.Context, b *bench) error {
				return b.step(name, m.name, m.target, threads, m.model)
			}})
		}
	}
	return append(all,
		benchmark{"peak/mnist_cnn", peakStep},
		benchmark{"peak/gemm", peakGemm},
	)
}

// smallCNN is the small network of many tutorials; it is here and not in the
// zoo because nobody trains it but the bench.
func smallCNN() (*zoo.Model, error) {
	m, err := zoo.Lookup("mnist_functional_api")
	if err != nil {
		return nil, err
	}
	small := *m
	small.Name = "small_cnn"
	small.New = func(b *nn.Builder) nn.Module {
		pool := nn.MaxPool{Window: [2]int{2, 2}}
		return nn.Sequential{
			b.Conv2D(1, nn.Conv2D{Filters: 8, Kernel: [2]int{5, 5}, ReLU: true}), pool,
			b.Conv2D(8, nn.Conv2D{Filters: 16, Kernel: [2]int{5, 5}, ReLU: true}), pool,
			nn.Flatten{},
			b.Dense(4*4*16, nn.Dense{Units: 10}),
		}
	}
	return &small, nil
}

// stepper returns one forward + backward + SGD update of a model.
func stepper(m *zoo.Model, threads int) (step func() error, end func(), err error) {
	engine, err := zoo.NewEngine(m, threads, 1)
	if err != nil {
		return nil, nil, err
	}
	update, err := optim.New(optim.Config{Name: "SGD", LearningRate: 0.01})
	if err != nil {
		engine.Close()
		return nil, nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	var b zoo.Batch
	image := []int{28, 28, 1}
	if m.Package == "cifar10" {
		image = []int{32, 32, 3}
	}
	pixels := b.Reset(batch, image...)
	for i := range pixels {
		pixels[i] = random.Float32()
	}
	for i := range b.Labels {
		b.Labels[i] = int32(random.IntN(10))
	}
	n := engine.Layout().Trainable()
	steps := int64(0)
	return func() error {
		if _, err := engine.Step(&b); err != nil {
			return err
		}
		steps++
		update.Apply(engine.Values()[:n], engine.Grads()[:n], nil, steps, 0)
		return nil
	}, engine.Close, nil
}

// fastest is the shortest of some calls, in milliseconds, after one that warms up.
func fastest(calls int, f func() error) (float64, error) {
	best := time.Duration(1 << 62)
	for i := range calls + 1 {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		if i > 0 {
			best = min(best, time.Since(start))
		}
	}
	return float64(best) / 1e6, nil
}

func (b *bench) step(name, model, target string, threads int, build func() (*zoo.Model, error)) error {
	m, err := build()
	if err != nil {
		return err
	}
	step, end, err := stepper(m, threads)
	if err != nil {
		return err
	}
	defer end()
	calls := 100
	switch model {
	case "mnist_cnn":
		calls = 10
	case "resnet20":
		calls = 4
	}
	peer, err := startTorch()
	if err != nil {
		return err
	}
	defer peer.stop()
	r, err := Result{Name: name, PeerName: "PyTorch", Unit: "ms", Threads: threads, Target: target}.turns(7,
		func() (float64, error) { return fastest(calls, step) },
		func() (float64, error) { return peer.measure(model, threads, calls) })
	if err != nil {
		return err
	}
	b.add(r)
	return nil
}

// torch is a PyTorch process that measures on request.
type torch struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startTorch() (*torch, error) {
	return startScript(torchSteps, nil, "mlp", 1, 1)
}

// startScript starts a script that answers questions with numbers, and asks the first.
func startScript(script string, args []string, first ...any) (*torch, error) {
	cmd := exec.Command("/usr/bin/python3", append([]string{"-c", script}, args...)...)
	cmd.Env = append(cmd.Environ(), "OPENBLAS_CORETYPE="+coreType())
	var complaint strings.Builder
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start PyTorch (make bench-peers installs it): %w", err)
	}
	p := &torch{cmd, in, bufio.NewReader(out)}
	if _, err := p.ask(first...); err != nil {
		p.stop()
		return nil, fmt.Errorf("start PyTorch (make bench-peers installs it): %w: %s", err, complaint.String())
	}
	return p, nil
}

// coreType is what Debian's OpenBLAS should take this CPU for; by itself it takes new ones for a Prescott.
func coreType() string {
	switch {
	case cpu.X86.HasAVX512F:
		return "SkylakeX"
	case cpu.X86.HasAVX2:
		return "Haswell"
	}
	return ""
}

func (p *torch) measure(model string, threads, steps int) (ms float64, err error) {
	return p.ask(model, threads, steps)
}

// ask writes a line and reads the number that answers it.
func (p *torch) ask(words ...any) (answer float64, err error) {
	if _, err := fmt.Fprintln(p.in, words...); err != nil {
		return 0, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(line, &answer)
	return answer, err
}

func (p *torch) stop() {
	p.in.Close() // it ends at the end of its input
	p.cmd.Wait()
}

// peak runs the FMA loop: the floating-point limit of one core, in GFLOP/s.
func peak() (float64, error) {
	flops := 0
	ms, err := fastest(5, func() error { flops = kernel.FMAPeak(1 << 20); return nil })
	return float64(flops) / ms / 1e6, err
}

func peakStep(_ context.Context, b *bench) error {
	m, err := zoo.Lookup("mnist_functional_api")
	if err != nil {
		return err
	}
	step, end, err := stepper(m, 1)
	if err != nil {
		return err
	}
	defer end()
	r, err := Result{Name: "peak/mnist_cnn", PeerName: "FMA peak", Unit: "GFLOP/s", Threads: 1, Target: ">= 0.55"}.turns(7,
		func() (float64, error) {
			ms, err := fastest(5, step)
			return mnistCNNFlops / ms / 1e6, err
		}, peak)
	if err != nil {
		return err
	}
	b.add(r)
	return nil
}

func peakGemm(_ context.Context, b *bench) error {
	const m, n, k = 256, 1024, 1024
	multiply := gemm(m, n, k)
	r, err := Result{Name: "peak/gemm 256x1024x1024", PeerName: "FMA peak", Unit: "GFLOP/s", Threads: 1, Target: ">= 0.70"}.turns(7,
		func() (float64, error) {
			ms, err := fastest(10, func() error { multiply(); return nil })
			return 2 * m * n * k / ms / 1e6, err
		}, peak)
	if err != nil {
		return err
	}
	b.add(r)
	return nil
}

// gemm returns one C[m n] = A[m k] · B[k n] on one thread.
func gemm(m, n, k int) func() {
	random := rand.New(rand.NewPCG(3, 4))
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = random.Float32()
		}
		return x
	}
	args := kernel.GemmArgs{M: m, N: n, K: k, A: fill(m * k), ARow: k, AStep: 1, B: fill(k * n), BRow: n,
		C: make([]float32, m*n), CRow: n, Scratch: new(kernel.Scratch)}
	return func() { kernel.Gemm(&args) }
}

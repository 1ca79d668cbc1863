package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"

	_ "embed"

	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

//go:embed peers/steps.py
var torchSteps string

const batch = 64

// stepModels has the models whose steps are measured: PyTorch's names for them, the target of the
// ratio to PyTorch, and the number of steps in a turn. The targets of mlp are in [mlpTarget].
var stepModels = []struct {
	name, target string
	calls        int
	model        func() (*zoo.Model, error)
}{
	{"mnist_cnn", "<= 0.70", 10, func() (*zoo.Model, error) { return zoo.Lookup("mnist_functional_api") }},
	{"mlp", "", 100, func() (*zoo.Model, error) { return zoo.Lookup("mnist_mlp") }},
	{"small_cnn", "<= 0.9", 50, smallCNN},
	{"resnet20", "<= 0.6", 3, func() (*zoo.Model, error) { return zoo.Lookup("cifar10_resnet20") }},
}

// mlpTarget returns the target of the ratio of the MLP to a Python's PyTorch. On two threads the
// multiply-adds alone take 0.46 of the time of PyTorch 1.13 at the peak, which peak/mlp measures.
func mlpTarget(python string, threads int) string {
	switch {
	case threads == 1:
		return ""
	case python == debian:
		return "<= 0.65"
	}
	return "<= 0.5"
}

// These count the multiply-adds of the convolutions and products of a step, times two, as by their
// definition: forward and two backward, but one backward for the first layer, whose input needs no
// gradient. Ours has 1/4 or 4/9 of the multiplications in most convolutions of 3 by 3.
const (
	mnistCNNFlops = 2 * batch * (2*26*26*32*9 + 3*24*24*64*9*32 + 3*9216*10)
	mlpFlops      = 2 * batch * (2*784*256 + 3*256*10)
	resNet20Flops = 2 * batch * (2*32*32*16*9*3 + 3*(16*32*32*16*9*16+2*16*16*32*9*16) + 3*64*10)
)

func stepBenchmarks() []benchmark {
	var all []benchmark
	for _, m := range stepModels {
		for _, threads := range []int{1, 2} {
			name := fmt.Sprintf("step/%s/threads=%d", m.name, threads)
			all = append(all, benchmark{name: name, run: func(ctx context.Context, b *bench) error {
				return b.step(ctx, Result{Name: "step/" + m.name, Unit: "ms", Threads: threads,
					Target: m.target}, m.calls, m.model)
			}})
		}
	}
	return append(all,
		benchmark{name: "step/mlp/two threads compared with one", run: twoThreads},
		peakStep("peak/mnist_cnn", "mnist_functional_api", 1, 5, mnistCNNFlops, ">= 0.9"),
		peakStep("peak/resnet20", "cifar10_resnet20", 1, 5, resNet20Flops, ">= 0.9"),
		peakStep("peak/mlp", "mnist_mlp", 2, 100, mlpFlops, ">= 0.75"),
		benchmark{name: "peak/gemm", run: peakGemm},
		benchmark{name: "peak/two threads", run: peakOfTwo},
	)
}

// smallCNN returns the small network of many tutorials. It is not in the zoo because only the bench
// trains it.
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

// stepper returns a function that does one forward pass, backward pass and SGD update of a model.
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
	move := func(lo, hi int) { update.ApplyRange(lo, hi, engine.Values(), engine.Grads(), nil, steps, 0) }
	return func() error {
		if _, err := engine.Step(&b); err != nil {
			return err
		}
		steps++
		engine.Parallel(n, move)
		return nil
	}, engine.Close, nil
}

// typical returns the median time of some calls, in milliseconds, after one warm-up call.
func typical(calls int, f func() error) (float64, error) {
	var all []float64
	for i := range calls + 1 {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		if i > 0 {
			all = append(all, float64(time.Since(start))/1e6)
		}
	}
	slices.Sort(all)
	return median(all), nil
}

// step compares a step of a model with those of all installed versions of PyTorch.
func (b *bench) step(ctx context.Context, row Result, calls int, build func() (*zoo.Model, error)) error {
	m, err := build()
	if err != nil {
		return err
	}
	step, end, err := stepper(m, row.Threads)
	if err != nil {
		return err
	}
	defer end()
	sides := []side{func() (float64, error) { return typical(calls, step) }}
	var names, targets []string
	for _, path := range []string{pypi, debian} {
		python, err := findPython(ctx, path, "torch")
		if err != nil {
			if err := b.skip(fmt.Sprintf("%s/threads=%d", row.Name, row.Threads), err); err != nil {
				return err
			}
			continue
		}
		peer, err := startScript(python, torchSteps, row.Threads, nil, "mlp", 1)
		if err != nil {
			return err
		}
		defer peer.stop()
		names = append(names, "PyTorch "+python.version)
		target := row.Target
		if m.Name == "mnist_mlp" {
			target = mlpTarget(path, row.Threads)
		}
		targets = append(targets, target)
		sides = append(sides, func() (float64, error) { return peer.ask(strings.TrimPrefix(row.Name, "step/"), calls) })
	}
	if len(names) == 0 {
		return nil
	}
	found, err := turns(b.n(7), sides...)
	if err != nil {
		return err
	}
	for i, name := range names {
		row.Peer, row.Target = name, targets[i]
		b.paired(row, found[0], found[1+i])
	}
	return nil
}

// twoThreads compares a small model, with little work to share, on two threads and on one.
func twoThreads(_ context.Context, b *bench) error {
	m, err := zoo.Lookup("mnist_mlp")
	if err != nil {
		return err
	}
	var sides []side
	for _, threads := range []int{2, 1} {
		step, end, err := stepper(m, threads)
		if err != nil {
			return err
		}
		defer end()
		sides = append(sides, func() (float64, error) { return typical(100, step) })
	}
	found, err := turns(b.n(15), sides...)
	if err != nil {
		return err
	}
	b.paired(Result{Name: "step/mlp, two threads", Unit: "ms", Peer: "ours, one thread", Threads: 2,
		Target: "<= 0.7"}, found[0], found[1])
	return nil
}

// torch is a PyTorch process that measures on request.
type torch struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startScript starts a script that answers requests with numbers, on a number of threads, and sends
// the first request.
func startScript(python python, script string, threads int, args []string, first ...any) (*torch, error) {
	cmd := exec.Command(python.path, append([]string{"-c", script}, args...)...)
	cmd.Env = append(cmd.Environ(), threadsOf(threads)...)
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
		return nil, fmt.Errorf("start PyTorch: %w", err)
	}
	p := &torch{cmd, in, bufio.NewReader(out)}
	if _, err := p.ask(first...); err != nil {
		p.stop()
		return nil, fmt.Errorf("start PyTorch: %w: %s", err, complaint.String())
	}
	return p, nil
}

// openMP is the directory of Debian's build of OpenBLAS that shares PyTorch's threads. The other
// build has threads of its own, which would compete with them.
const openMP = "/usr/lib/x86_64-linux-gnu/openblas-openmp"

// threadsOf returns the environment in which PyTorch, and OpenBLAS within it, uses a number of
// threads.
func threadsOf(threads int) []string {
	return []string{
		fmt.Sprintf("OMP_NUM_THREADS=%d", threads), fmt.Sprintf("OPENBLAS_NUM_THREADS=%d", threads),
		fmt.Sprintf("MKL_NUM_THREADS=%d", threads),
		// without that package the directory does not exist
		"OPENBLAS_CORETYPE=" + coreType(), "LD_LIBRARY_PATH=" + openMP,
	}
}

// coreType returns the core type that Debian's OpenBLAS should use for this CPU; on its own it
// treats new CPUs as a Prescott.
func coreType() string {
	switch {
	case cpu.X86.HasAVX512F:
		return "SkylakeX"
	case cpu.X86.HasAVX2:
		return "Haswell"
	}
	return ""
}

// ask writes a line, and returns the number that answers it.
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
	p.in.Close() // the process ends when its input ends
	p.cmd.Wait()
}

// peak returns a function that runs a loop of FMA instructions, and returns the floating-point
// limit of a number of threads, in GFLOP/s.
func peak(threads int) side {
	return func() (float64, error) {
		var flops atomic.Int64
		ms, err := typical(5, func() error {
			flops.Store(0)
			var all sync.WaitGroup
			for range threads {
				all.Go(func() { flops.Add(int64(kernel.FMAPeak(1 << 20))) })
			}
			all.Wait()
			return nil
		})
		return float64(flops.Load()) / ms / 1e6, err
	}
}

// peakStep compares the steps of a model with the limit of as many threads: no step that does all
// multiplications of the definition has a ratio above 1.
func peakStep(name, model string, threads, calls int, flops float64, target string) benchmark {
	return benchmark{name: name, run: func(_ context.Context, b *bench) error {
		m, err := zoo.Lookup(model)
		if err != nil {
			return err
		}
		step, end, err := stepper(m, threads)
		if err != nil {
			return err
		}
		defer end()
		return b.peakRatio(name, threads, calls, flops, target, step)
	}}
}

// peakOfTwo compares the limit of two threads of the machine with that of one: two processors may
// share arithmetic units. It has no target.
func peakOfTwo(_ context.Context, b *bench) error {
	found, err := turns(b.n(7), peak(2), peak(1))
	if err == nil {
		b.paired(Result{Name: "peak/two threads at once", Peer: "FMA peak of one thread",
			Unit: "GFLOP/s", Threads: 2}, found[0], found[1])
	}
	return err
}

func peakGemm(_ context.Context, b *bench) error {
	const m, n, k = 256, 1024, 1024
	multiply := gemm(m, n, k)
	return b.peakRatio("peak/gemm 256x1024x1024", 1, 5, 2*m*n*k, ">= 0.70", func() error { multiply(); return nil })
}

// peakRatio compares the rate of a function with a known number of floating-point operations with
// the peak of its threads. A turn is the median of that number of calls.
func (b *bench) peakRatio(name string, threads, calls int, flops float64, target string, f func() error) error {
	found, err := turns(b.n(7), func() (float64, error) {
		ms, err := typical(calls, f)
		return flops / ms / 1e6, err
	}, peak(threads))
	if err == nil {
		b.paired(Result{Name: name, Peer: "FMA peak", Unit: "GFLOP/s", Threads: threads, Target: target},
			found[0], found[1])
	}
	return err
}

// gemm returns a function that computes C[m n] = A[m k] · B[k n] on one thread.
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

package nn

import (
	"fmt"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// benchmarks are models of which one step is timed: forward, backward and update, batch 64. The
// numbers of floating-point operations count only the products, a multiply-add as two.
var benchmarks = []struct {
	name  string
	input []int
	build func(b *Builder) Module
	flops float64
}{
	{"mnist", []int{28, 28, 1}, func(b *Builder) Module {
		m := mnist(b).(Sequential)
		return append(m[:4:4], Dropout{Rate: .25}, m[4], m[5])
	}, 64 * 2 * (2*26*26*9*32 + 3*24*24*288*64 + 3*9216*10)},
	{"mlp", []int{784}, func(b *Builder) Module {
		return Sequential{b.Dense(784, Dense{Units: 256, ReLU: true}), b.Dense(256, Dense{Units: 10})}
	}, 64 * 2 * (2*784*256 + 3*256*10)},
	{"small", []int{28, 28, 1}, func(b *Builder) Module {
		return Sequential{
			b.Conv2D(1, Conv2D{Filters: 8, Kernel: [2]int{5, 5}, ReLU: true}), MaxPool{},
			b.Conv2D(8, Conv2D{Filters: 16, Kernel: [2]int{5, 5}, ReLU: true}), MaxPool{},
			Flatten{}, b.Dense(256, Dense{Units: 10}),
		}
	}, 64 * 2 * (2*24*24*25*8 + 3*8*8*200*16 + 3*256*10)},
	{"resnet", []int{32, 32, 3}, func(b *Builder) Module { return resnet(b, 10, 16, 16, 16, 32, 32, 32, 64, 64, 64) },
		64 * 2 * (2*442368 + 3*(18*2359296-2*1179648) + 3*640)},
}

func BenchmarkStep(b *testing.B) {
	for _, m := range benchmarks {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", m.name, threads), func(b *testing.B) {
				labels := make([]int32, 64)
				tape, module := model{build: m.build, threads: threads}.tape(b)
				inputs := []Array{array(1, .5, .5, append([]int{64}, m.input...)...)}
				train := func(t *Tape) { t.Backward(t.SoftmaxCrossEntropy(module.Forward(t, t.Input(0)), labels)) }
				for b.Loop() {
					if err := tape.Pass(true, inputs, train); err != nil {
						b.Fatal(err)
					}
					kernel.SGD(tape.params.Values, tape.params.Grads, 1e-4)
				}
				b.ReportMetric(m.flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkPeak measures the peak of floating-point operations of one core.
func BenchmarkPeak(b *testing.B) {
	flops := 0
	for b.Loop() {
		flops += kernel.FMAPeak(10000)
	}
	b.ReportMetric(float64(flops)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

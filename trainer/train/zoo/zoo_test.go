package zoo

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/data/example"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

func TestLookup(t *testing.T) {
	for _, def := range []string{
		"mnist.mnist_functional_api.custom_model", "mnist_functional_api.custom_model",
		"mnist.mnist_functional_api", "mnist_functional_api",
	} {
		if m, err := Lookup(def); err != nil || m != mnistFunctional {
			t.Errorf("Lookup(%q) = %v, %v", def, m, err)
		}
	}
	for _, def := range Names() {
		m, err := Lookup(def)
		if err != nil || m.Def() != def {
			t.Errorf("Lookup(%q) = %v, %v", def, m, err)
		}
	}
	for _, def := range []string{"", "mnist", "mnist.mnist_functional_api.forward",
		"cifar10.mnist_functional_api.custom_model"} {
		if _, err := Lookup(def); err == nil || !strings.Contains(err.Error(), "mnist.mnist_subclass.CustomModel") {
			t.Errorf("Lookup(%q): %v, want the names of all models", def, err)
		}
	}
}

// record is a digit of which the pixels tell the label: one row of the image is bright.
func record(label int64, floats bool) []byte { return picture(28, 28, label, floats) }

// picture is an image of that many rows, of row elements each.
func picture(rows, row int, label int64, floats bool) []byte {
	image := make([]byte, rows*row)
	for i := range image {
		image[i] = byte(i*7) % 64
	}
	for i := range row {
		image[(2*int(label)+4)*row+i] = 255
	}
	pixels := example.Value{Name: "image", Bytes: [][]byte{image}}
	if floats {
		pixels = example.Value{Name: "image", Floats: make([]float32, len(image))}
		for i, v := range image {
			pixels.Floats[i] = float32(v)
		}
	}
	return example.Append(nil, pixels, example.Value{Name: "label", Ints: []int64{label}})
}

func feed(t *testing.T, m *Model, mode Mode, n int) *Batch {
	t.Helper()
	records := make([][]byte, n)
	rows, row := 28, 28
	if m.Package == "cifar10" {
		rows, row = 32, 32*3
	}
	for i := range records {
		records[i] = picture(rows, row, int64(i*7%10), i%2 == 1)
	}
	b := &Batch{}
	if err := m.Feed(mode, records, b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFeed(t *testing.T) {
	b := feed(t, mnistFunctional, Training, 3)
	if want := []int{3, 28, 28, 1}; b.Size != 3 || !slices.Equal(b.Inputs[0].Shape, want) {
		t.Fatalf("size %d, shape %v", b.Size, b.Inputs[0].Shape)
	}
	if want := []int32{0, 7, 4}; !slices.Equal(b.Labels, want) {
		t.Errorf("labels %v, want %v", b.Labels, want)
	}
	x := b.Inputs[0].Data
	for i, label := range b.Labels {
		if v := x[i*784+(2*int(label)+4)*28]; math.Abs(float64(v)-1) > 1e-6 {
			t.Errorf("record %d: white is %v", i, v)
		}
		if v, want := x[i*784+3], 21./255; math.Abs(float64(v)-want) > 1e-6 {
			t.Errorf("record %d: pixel 3 is %v, want %v", i, v, want)
		}
	}
	if p := feed(t, mnistFunctional, Prediction, 2); len(p.Labels) != 0 {
		t.Errorf("labels %v for predictions", p.Labels)
	}
	records := [][]byte{record(3, false), record(5, true)}
	allocs := testing.AllocsPerRun(10, func() {
		if err := mnistFunctional.Feed(Training, records, b); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 4 {
		t.Errorf("a batch allocates %v times", allocs)
	}
}

func TestFeedOfColours(t *testing.T) {
	b := feed(t, cifar10ResNet20, Training, 2)
	if want := []int{2, 32, 32, 3}; !slices.Equal(b.Inputs[0].Shape, want) {
		t.Fatalf("shape %v", b.Inputs[0].Shape)
	}
	x := b.Inputs[0].Data
	for i, label := range b.Labels {
		image := x[i*32*32*3:][:32*32*3]
		if white, dark := image[(2*int(label)+4)*32*3], image[3]; white != (255.-121)/64 || dark != (21.-121)/64 {
			t.Errorf("record %d: white is %v, a pixel of 21 %v", i, white, dark)
		}
	}
}

// TestResNetSchedule: after as many records as in the paper, however many workers see them.
func TestResNetSchedule(t *testing.T) {
	for _, c := range []struct {
		version int64
		workers int
		want    float64
	}{{0, 1, .05}, {63_999, 1, .05}, {64_000, 1, .005}, {96_000, 1, .0005}, {15_999, 4, .05},
		{16_000, 4, .005}, {24_000, 4, .0005}, {10, 0, .05}} {
		if got := cifar10ResNet20.LearningRate(c.version, c.workers); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("rate of version %d with %d workers is %v, want %v", c.version, c.workers, got, c.want)
		}
	}
}

func TestFeedErrors(t *testing.T) {
	image := example.Value{Name: "image", Bytes: [][]byte{make([]byte, 784)}}
	label := example.Value{Name: "label", Ints: []int64{1}}
	for _, c := range []struct {
		bad  []byte
		want string
	}{
		{[]byte{1, 2, 3}, "; the model wants tf.train.Example records"},
		{example.Append(nil, label), `feature "image"`},
		{example.Append(nil, image), `feature "label"`},
		{example.Append(nil, image, example.Value{Name: "label", Ints: []int64{10}}),
			`feature "label": is 10, want 0 to 9`},
		{example.Append(nil, image, example.Value{Name: "label", Ints: []int64{-1}}),
			`feature "label": is -1, want 0 to 9`},
		{example.Append(nil, label, example.Value{Name: "image", Bytes: [][]byte{make([]byte, 783)}}),
			`feature "image": has 783 bytes, want 784`},
		{example.Append(nil, label, example.Value{Name: "image", Floats: make([]float32, 785)}),
			`feature "image": has 785 values, want 784`},
	} {
		err := mnistFunctional.Feed(Training, [][]byte{record(1, false), c.bad}, &Batch{})
		if err == nil || !strings.HasPrefix(err.Error(), "record 1: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want record 1: %s", err, c.want)
		}
	}
}

// TestModels trains every model until it knows a batch by heart.
func TestModels(t *testing.T) {
	for _, m := range models {
		t.Run(m.Name, func(t *testing.T) {
			e, err := NewEngine(m, 2, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			config := m.Optimizer()
			o, err := optim.New(config)
			if err != nil {
				t.Fatal(err)
			}
			n := 33
			if m == cifar10ResNet20 {
				// has as many operations as others with 500
				n = 11
			}
			b := feed(t, m, Training, n)
			trainable := e.Layout().Trainable()
			slots := make([][]float32, config.Slots())
			for i := range slots {
				slots[i] = make([]float32, trainable)
			}
			var first, last float32
			const steps = 40
			for step := range steps {
				if last, err = e.Step(b); err != nil {
					t.Fatal(err)
				}
				if step == 0 {
					first = last
				}
				o.Apply(e.Values()[:trainable], e.Grads()[:trainable], slots, int64(step)+1, 0)
				e.Layout().Average(0, e.Values(), e.Grads())
			}
			if !(last < first/5) {
				t.Errorf("loss went from %v to %v in %d steps", first, last, steps)
			}
			metrics := m.Metrics()
			whole, halves := states(metrics), states(metrics)
			if err := e.Evaluate(b, whole); err != nil {
				t.Fatal(err)
			}
			for _, half := range split(b, 10) {
				if err := e.Evaluate(half, halves); err != nil {
					t.Fatal(err)
				}
			}
			for i, metric := range metrics {
				if a, b := metric.Result(whole[i]), metric.Result(halves[i]); math.Abs(a-b) > 1e-6 {
					t.Errorf("%s is %v at once and %v in two batches", metric.Name, a, b)
				}
			}
			outputs, err := e.Predict(b)
			if err != nil || !slices.Equal(outputs.Shape, []int{n, 10}) {
				t.Fatal(outputs.Shape, err)
			}
		})
	}
}

func states(metrics []Metric) [][]float64 {
	s := make([][]float64, len(metrics))
	for i, m := range metrics {
		s[i] = make([]float64, m.Size)
	}
	return s
}

// split cuts a batch in two after n examples.
func split(b *Batch, n int) []*Batch {
	cut := func(lo, hi int) *Batch {
		x := b.Inputs[0]
		size := len(x.Data) / b.Size
		shape := slices.Clone(x.Shape)
		shape[0] = hi - lo
		return &Batch{Size: hi - lo,
			Inputs: []nn.Array{{Shape: shape, Data: x.Data[lo*size : hi*size]}}, Labels: b.Labels[lo:hi]}
	}
	return []*Batch{cut(0, n), cut(n, b.Size)}
}

// TestSameNetwork: the two ways to write the network declare the same parameters and compute the
// same.
func TestSameNetwork(t *testing.T) {
	var losses []float32
	var values [][]float32
	for _, m := range []*Model{mnistFunctional, mnistSubclass} {
		e, err := NewEngine(m, 1, 7)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		loss, err := e.Step(feed(t, m, Training, 5))
		if err != nil {
			t.Fatal(err)
		}
		losses, values = append(losses, loss), append(values, e.Values())
	}
	if !slices.Equal(values[0], values[1]) || losses[0] != losses[1] {
		t.Errorf("losses %v", losses)
	}
}

func TestEngineErrors(t *testing.T) {
	e, err := NewEngine(mnistMLP, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	b := feed(t, mnistMLP, Training, 2)
	for _, c := range []struct {
		change func(b *Batch)
		want   string
	}{
		{func(b *Batch) { b.Labels[1] = 10 }, "example 1 has label 10"},
		{func(b *Batch) { b.Labels = b.Labels[:1] }, "1 labels for 2 examples"},
		{func(b *Batch) { b.Inputs[0].Shape = []int{2, 783}; b.Inputs[0].Data = b.Inputs[0].Data[:2*783] }, "want 784"},
		{func(b *Batch) { b.Size = 3 }, "Size differs"},
		{func(b *Batch) { b.Inputs = nil }, "Size differs"},
		{func(b *Batch) { b.Reset(0, 28, 28, 1) }, "input 0 has shape [0 28 28 1]"},
	} {
		bad := split(b, 2)[0]
		bad.Labels = slices.Clone(bad.Labels)
		c.change(bad)
		if _, err := e.Step(bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
	if err := e.Evaluate(b, nil); err == nil {
		t.Error("no states are enough")
	}
	if err := e.Evaluate(b, [][]float64{{0}, {0}}); err == nil {
		t.Error("short states are enough")
	}
	if _, err := e.Step(b); err != nil {
		t.Errorf("after the errors: %v", err)
	}
}

package trainer_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/elasticdl/elasticdl/trainer/nn"
	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// The simulated model is a linear regression that also counts what is applied: there is a
// parameter for each record of each epoch and each worker, and a step moves those of its minibatch by one.
// What the servers hold at the end therefore says, of every record, how often
// it was applied, and from how many workers.
//
// A ring's update is the mean over the records of all workers. There the optimizer is Adagrad without an initial
// accumulator, whose first step is the rate whatever the gradient's size; and one column is enough, as every record counts once.
const (
	features = 4
	columns  = 24 // workers, modulo
	rate     = 0.1
	keeps    = 0.9 // a moving average, of itself
)

// example is record i of a shard: features and what they amount to.
func example(shard string, i int64) (x [features]float32, y float32) {
	h := fnv.New64a()
	h.Write([]byte(shard))
	r := rand.New(rand.NewPCG(h.Sum64(), uint64(i)))
	for j := range x {
		x[j] = 2*r.Float32() - 1
		y += x[j] * float32(j+1) / 2
	}
	return x, y
}

// dataset is the shards of a simulated job.
type dataset struct {
	shards []task.Shard
	first  map[string]int64 // number of a shard's first record among all
	total  int64
}

func newDataset(prefix string, counts []int) *dataset {
	d := &dataset{first: make(map[string]int64)}
	for i, n := range counts {
		s := task.Shard{Name: fmt.Sprintf("%s-%d", prefix, i), Count: int64(n)}
		d.shards = append(d.shards, s)
		d.first[s.Name] = d.total
		d.total += s.Count
	}
	return d
}

func (d *dataset) Shards() ([]task.Shard, error) { return d.shards, nil }
func (d *dataset) Close() error                  { return nil }

// ReadAt is the number of the record among all, and its example.
func (d *dataset) ReadAt(shard string, i int64) ([]byte, error) {
	first, ok := d.first[shard]
	if !ok {
		return nil, fmt.Errorf("read %s: no such shard", shard)
	}
	x, y := example(shard, i)
	record := binary.LittleEndian.AppendUint64(nil, uint64(first+i))
	return binary.Append(record, binary.LittleEndian, append(x[:], y))
}

// training is a worker's reader of the training data. Its records say which epoch they are
// read for: a worker reads what it was leased last.
type training struct {
	*dataset
	leases *observer
}

func (r training) ReadAt(shard string, i int64) ([]byte, error) {
	record, err := r.dataset.ReadAt(shard, i)
	if err == nil {
		n := binary.LittleEndian.Uint64(record) + uint64(r.total)*uint64(r.leases.epoch.Load()-1)
		binary.LittleEndian.PutUint64(record, n)
	}
	return record, err
}

// model is what workers feed and servers optimize.
var model = &zoo.Model{
	Optimizer: func() optim.Config { return optim.Config{Name: optim.SGD, LearningRate: rate} },
	Feed: func(_ zoo.Mode, records [][]byte, b *zoo.Batch) error {
		in := b.Reset(len(records), features+1)
		for i, r := range records {
			b.Labels[i] = int32(binary.LittleEndian.Uint64(r))
			if _, err := binary.Decode(r[8:], binary.LittleEndian, in[i*(features+1):][:features+1]); err != nil {
				return err
			}
		}
		return nil
	},
	Metrics: func() []zoo.Metric {
		update := func([]float64, nn.Array, *zoo.Batch) error { return nil }
		return []zoo.Metric{{Name: "error", Size: 2, Update: update}, {Name: "records", Size: 1, Update: update}, {Name: "print", Size: 3, Update: update}}
	},
}

// ringModel is what a ring trains.
var ringModel = func() *zoo.Model {
	m := *model
	m.Optimizer = func() optim.Config {
		return optim.Config{Name: optim.Adagrad, LearningRate: rate, InitialAccumulator: 1e-30}
	}
	return &m
}()

// metric is the value of one of the model's metrics. That of print is the fingerprint of the values that all records were
// measured with, NaN if it was not the same ones.
func metric(name string, state []float64) float64 {
	switch name {
	case "error":
		return state[0] / state[1]
	case "print":
		if state[1]*state[1] != state[2]*state[0] {
			return math.NaN()
		}
		return state[1] / state[0]
	}
	return state[0]
}

// fingerprint tells values apart, bit by bit.
func fingerprint(values []float32) uint32 {
	b, _ := binary.Append(nil, binary.LittleEndian, values)
	return crc32.Checksum(b, castagnoli) >> 8 // so few bits that sums of squares are exact
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// engine computes it.
type engine struct {
	column, columns int
	records         int64 // over all epochs
	step            time.Duration
	values, grads   []float32

	// In a ring.
	ring     bool
	ballast  int       // parameters that do nothing but weigh
	use      []float32 // nil: values
	noise    uint64
	announce func(lo, hi int)
	stand    func()             // returns when the pod is not stopped
	began    func(b *zoo.Batch) // hears of every step
}

func newEngine(worker int, records int64, step time.Duration) *engine {
	e := &engine{column: worker % columns, columns: columns, records: records, step: step}
	n := e.Layout().Len()
	e.values, e.grads = make([]float32, n), make([]float32, n)
	return e
}

// newRingEngine is of a worker in a ring.
func newRingEngine(records int64, step time.Duration, ballast int) *engine {
	e := &engine{columns: 1, records: records, step: step, ring: true, ballast: ballast}
	n := e.Layout().Len()
	e.values, e.grads = make([]float32, n), make([]float32, n)
	return e
}

func (e *engine) Layout() param.Layout {
	l := param.Layout{
		{Name: "weights", Shape: []int{features}, Trainable: true},
		{Name: "applied", Shape: []int{int(e.records), e.columns}, Trainable: true},
	}
	if e.ballast > 0 {
		l = append(l, param.Variable{Name: "ballast", Shape: []int{e.ballast}, Trainable: true})
	}
	if e.ring {
		l = append(l, param.Variable{Name: "mean", Shape: []int{features + 1}, Momentum: keeps})
	}
	return l
}

func (e *engine) Values() []float32          { return e.values }
func (e *engine) Grads() []float32           { return e.grads }
func (e *engine) SetNoise(seed uint64)       { e.noise = seed }
func (e *engine) OnGrads(f func(lo, hi int)) { e.announce = f }
func (e *engine) Use(values []float32)       { e.use = values }

// in is the values to compute with.
func (e *engine) in() []float32 {
	if e.use != nil {
		return e.use
	}
	return e.values
}

// miss is by how much the values are wrong about example i of the batch.
func (e *engine) miss(b *zoo.Batch, i int) (x []float32, miss float32) {
	x = b.Inputs[0].Data[i*(features+1):][:features+1]
	for j, w := range e.in()[:features] {
		miss += w * x[j]
	}
	return x, miss - x[features]
}

func (e *engine) Step(b *zoo.Batch) (float32, error) {
	if e.ring {
		e.began(b)
	} else {
		time.Sleep(e.step)
	}
	clear(e.grads)
	var loss float32
	n := float32(b.Size)
	for i, label := range b.Labels {
		x, miss := e.miss(b, i)
		loss += miss * miss / n
		for j := range features {
			e.grads[j] += 2 * miss * x[j] / n
		}
		if e.ring {
			e.observe(x, n, int(label))
		} else {
			e.grads[features+int(label)*columns+e.column] = -1 / rate
		}
	}
	if e.ring {
		e.tell()
	}
	return loss, nil
}

// observe adds what an example gives in a ring alone.
func (e *engine) observe(x []float32, n float32, label int) {
	e.grads[features+label] = -1 / n
	ballast := e.grads[features+int(e.records):][:e.ballast]
	noise := float32(e.noise%97) / 97
	for i := range ballast {
		ballast[i] += (noise + float32((i+label)%31)) / n
	}
	mean := e.grads[len(e.grads)-features-1:]
	for j := range features {
		mean[j] += x[j] / n
	}
	mean[features] += 1 / n
}

// share is by what the mean of ones over the records of every update so far differs from one.
func (e *engine) share(updates int64) float64 {
	return 1 - float64(e.values[len(e.values)-1])/(1-math.Pow(keeps, float64(updates)))
}

// tell announces the gradients in some pieces, from the end.
func (e *engine) tell() {
	const pieces = 3
	for i := pieces - 1; i >= 0; i-- {
		time.Sleep(e.step / pieces)
		e.stand()
		e.announce(len(e.grads)*i/pieces, len(e.grads)*(i+1)/pieces)
	}
}

func (e *engine) Evaluate(b *zoo.Batch, states [][]float64) error {
	if e.ring {
		e.stand()
	}
	print := float64(fingerprint(e.in()))
	for i := range b.Size {
		_, miss := e.miss(b, i)
		states[0][0] += float64(miss * miss)
		states[0][1]++
		states[1][0]++
		states[2][0]++
		states[2][1] += print
		states[2][2] += print * print
	}
	return nil
}

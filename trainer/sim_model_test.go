package trainer_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// The simulated model is a linear regression that also counts what is applied: there is a
// parameter for each record of each epoch and each worker, and a step moves those of its minibatch.
//
//	server 0                  server 1                   …
//	weights │ record×column   weights │ record×column
//
// Every server has a part of its own with all of that, so that the exported model says of each
// server which records it has applied, and how often. Counts start at a value that is not zero, so
// that a server which starts again from anything but the initial values lacks records. A ring has
// one part.
//
// The optimizer is Adagrad without an initial accumulator: its first step is the rate whatever the
// gradient's size, so an update that is a mean over several gradients moves a record's parameter as
// far as one over one. A second step is shorter, and not none.
const (
	features = 4
	// workers, modulo; one in a ring, where updates are means over the records of all
	columns = 6
	rate    = 0.1
	start   = 0.5 // of the counts
	keeps   = 0.9 // a moving average, of itself
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
	// number of a shard's first record among all
	first map[string]int64
	total int64
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

func (d *dataset) Learn(string, []task.Block) error { return nil }
func (d *dataset) Looked() int64                    { return 0 }

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

// model is the model of workers and servers.
var model = &zoo.Model{
	Optimizer: func() optim.Config {
		return optim.Config{Name: optim.Adagrad, LearningRate: rate, InitialAccumulator: 1e-30}
	},
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
		return []zoo.Metric{{Name: "error", Size: 2, Update: update},
			{Name: "records", Size: 1, Update: update}, {Name: "print", Size: 3, Update: update}}
	},
}

// metric is the value of one of the model's metrics. That of print is the fingerprint of the values
// that all records were measured with, NaN if it was not the same ones.
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
	// so few bits that sums of squares are exact
	return crc32.Checksum(b, castagnoli) >> 8
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// shape is the layout of the model's parameters.
type shape struct {
	parts, columns int
	// over all epochs
	records int64
	ring    bool
	// of a ring: parameters that do nothing but weigh
	ballast int
}

// part is the length of one, so that each server has one.
func (s shape) part() int {
	n := features + int(s.records)*s.columns
	return (n + param.Align - 1) / param.Align * param.Align
}

// initial returns the values before anything was trained on.
func (s shape) initial() []float32 {
	values := make([]float32, s.Layout().Len())
	for part := range s.parts {
		counts := s.counts(values, part)
		for i := range counts {
			counts[i] = start
		}
	}
	return values
}

// counts is a part's parameters of records among values.
func (s shape) counts(values []float32, part int) []float32 {
	return values[part*s.part()+features:][:int(s.records)*s.columns]
}

func (s shape) Layout() param.Layout {
	var l param.Layout
	for i := range s.parts {
		l = append(l, param.Variable{Name: fmt.Sprintf("part%d", i), Shape: []int{s.part()}, Trainable: true})
	}
	if s.ballast > 0 {
		l = append(l, param.Variable{Name: "ballast", Shape: []int{s.ballast}, Trainable: true})
	}
	if s.ring {
		l = append(l, param.Variable{Name: "mean", Shape: []int{features + 1}, Momentum: keeps})
	}
	return l
}

// engine computes it.
type engine struct {
	shape
	column int
	// what a minibatch takes to compute, and to evaluate
	step, measure time.Duration
	// returns when a model that is being exported is written
	write func()
	// returns when the pod is not stopped
	stand         func()
	values, grads []float32
	// nil: values
	use      []float32
	noise    uint64
	announce func(lo, hi int)
	// of a ring: hears of every step
	began func(b *zoo.Batch)
}

func newEngine(s shape, column int) *engine {
	e := &engine{shape: s, column: column % s.columns, write: func() {}, stand: func() {}}
	e.values = s.initial()
	e.grads = make([]float32, len(e.values))
	return e
}

// Layout takes as long as a slow disk where it is asked for by an export.
func (e *engine) Layout() param.Layout {
	e.write()
	return e.shape.Layout()
}

func (e *engine) Values() []float32          { return e.values }
func (e *engine) Grads() []float32           { return e.grads }
func (e *engine) SetNoise(seed uint64)       { e.noise = seed }
func (e *engine) OnGrads(f func(lo, hi int)) { e.announce = f }
func (e *engine) Use(values []float32)       { e.use = values }

func (e *engine) Parallel(n int, f func(lo, hi int)) { f(0, n) }

// in is the values to compute with.
func (e *engine) in() []float32 {
	if e.use != nil {
		return e.use
	}
	return e.values
}

// miss is by how much a part is wrong about example i of the batch.
func (e *engine) miss(b *zoo.Batch, i, part int) (x []float32, miss float32) {
	x = b.Inputs[0].Data[i*(features+1):][:features+1]
	for j, w := range e.in()[part*e.part():][:features] {
		miss += w * x[j]
	}
	return x, miss - x[features]
}

func (e *engine) Step(b *zoo.Batch) (float32, error) {
	if e.ring {
		e.began(b)
	} else {
		time.Sleep(e.step)
		e.stand()
	}
	clear(e.grads)
	var loss float32
	n := float32(b.Size)
	for i, label := range b.Labels {
		for part := range e.parts {
			x, miss := e.miss(b, i, part)
			loss += miss * miss / n / float32(e.parts)
			weights := e.grads[part*e.part():][:features]
			for j := range weights {
				weights[j] += 2 * miss * x[j] / n
			}
			e.counts(e.grads, part)[int(label)*e.columns+e.column] = -1 / n
		}
		if e.ring {
			e.observe(b.Inputs[0].Data[i*(features+1):], n, int(label))
		}
	}
	if e.ring {
		e.tell()
	}
	return loss, nil
}

// observe adds what an example gives in a ring alone.
func (e *engine) observe(x []float32, n float32, label int) {
	ballast := e.grads[e.part():][:e.ballast]
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

// Evaluate measures the worst part.
func (e *engine) Evaluate(b *zoo.Batch, states [][]float64) error {
	time.Sleep(e.measure)
	e.stand()
	print := float64(fingerprint(e.in()))
	for i := range b.Size {
		worst := 0.0
		for part := range e.parts {
			_, miss := e.miss(b, i, part)
			worst = max(worst, float64(miss*miss))
		}
		states[0][0] += worst
		states[0][1]++
		states[1][0]++
		states[2][0]++
		states[2][1] += print
		states[2][2] += print * print
	}
	return nil
}

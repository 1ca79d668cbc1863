package trainer_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/nn"
	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// The simulated model is a linear regression that also counts what the servers apply: there is a
// parameter for each record of each epoch and each worker, and a step moves those of its minibatch by one.
// What the servers hold at the end therefore says, of every record, how often
// it was applied, and from how many workers.
const (
	features = 4
	columns  = 24 // workers, modulo
	rate     = 0.1
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

// observer is a worker's client of the master that sees which epoch it leases from.
type observer struct {
	wire.MasterClient
	epoch atomic.Int32
}

func (o *observer) GetTask(ctx context.Context, r *wire.GetTaskRequest, options ...grpc.CallOption) (*wire.GetTaskReply, error) {
	reply, err := o.MasterClient.GetTask(ctx, r, options...)
	if err == nil && reply.Task.Kind == wire.TaskKind_TRAINING {
		o.epoch.Store(reply.Task.Epoch)
	}
	return reply, err
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
		return []zoo.Metric{{Name: "error", Size: 2, Update: func([]float64, nn.Array, *zoo.Batch) error { return nil }}}
	},
}

// engine computes it.
type engine struct {
	column        int
	records       int64 // over all epochs
	step          time.Duration
	values, grads []float32
}

func newEngine(worker int, records int64, step time.Duration) *engine {
	e := &engine{column: worker % columns, records: records, step: step}
	n := e.Layout().Len()
	e.values, e.grads = make([]float32, n), make([]float32, n)
	return e
}

func (e *engine) Layout() param.Layout {
	return param.Layout{
		{Name: "weights", Shape: []int{features}, Trainable: true},
		{Name: "applied", Shape: []int{int(e.records), columns}, Trainable: true},
	}
}

func (e *engine) Values() []float32 { return e.values }
func (e *engine) Grads() []float32  { return e.grads }

// miss is by how much the values are wrong about example i of the batch.
func (e *engine) miss(b *zoo.Batch, i int) (x []float32, miss float32) {
	x = b.Inputs[0].Data[i*(features+1):][:features+1]
	for j, w := range e.values[:features] {
		miss += w * x[j]
	}
	return x, miss - x[features]
}

func (e *engine) SetNoise(uint64)          {}
func (e *engine) OnGrads(func(lo, hi int)) {}
func (e *engine) Use([]float32)            {}

func (e *engine) Step(b *zoo.Batch) (float32, error) {
	time.Sleep(e.step)
	clear(e.grads)
	var loss float32
	for i, label := range b.Labels {
		x, miss := e.miss(b, i)
		loss += miss * miss / float32(b.Size)
		for j := range features {
			e.grads[j] += 2 * miss * x[j] / float32(b.Size)
		}
		e.grads[features+int(label)*columns+e.column] = -1 / rate
	}
	return loss, nil
}

func (e *engine) Evaluate(b *zoo.Batch, states [][]float64) error {
	for i := range b.Size {
		_, miss := e.miss(b, i)
		states[0][0] += float64(miss * miss)
		states[0][1]++
	}
	return nil
}

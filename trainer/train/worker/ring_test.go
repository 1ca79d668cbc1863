package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// lesson is an engine with one parameter for each record. The gradient of a parameter is one if the
// batch has its record, divided by the number of the batch's records: a mean.
type lesson struct {
	values, grads []float32
	used          []float32
	tell          func(lo, hi int)
	// records of each step
	steps  [][]int32
	noises []uint64
	// sums of the values at each Evaluate
	seen []float32
	// returns the error of a step; nil: no step fails
	fail func(labels []int32) error
}

const lessons = 64 // records

func newLesson() *lesson {
	return &lesson{values: make([]float32, lessons), grads: make([]float32, lessons)}
}

func (l *lesson) Layout() param.Layout {
	return param.Layout{{Name: "records", Shape: []int{lessons}, Trainable: true}}
}
func (l *lesson) Values() []float32             { return l.values }
func (l *lesson) Grads() []float32              { return l.grads }
func (l *lesson) OnGrads(tell func(lo, hi int)) { l.tell = tell }
func (l *lesson) SetNoise(seed uint64)          { l.noises = append(l.noises, seed) }
func (l *lesson) Use(values []float32)          { l.used = values }

func (l *lesson) Parallel(n int, f func(lo, hi int)) { f(0, n) }

func (l *lesson) Step(b *zoo.Batch) (float32, error) {
	time.Sleep(10 * time.Millisecond)
	l.steps = append(l.steps, slices.Clone(b.Labels))
	if l.fail != nil {
		if err := l.fail(b.Labels); err != nil {
			return 0, err
		}
	}
	clear(l.grads)
	for _, label := range b.Labels {
		l.grads[label] += 1 / float32(b.Size)
	}
	l.tell(lessons/2, lessons)
	l.tell(0, lessons/2)
	return 1, nil
}

func (l *lesson) Evaluate(b *zoo.Batch, states [][]float64) error {
	time.Sleep(15 * time.Millisecond)
	values := l.values
	if l.used != nil {
		values = l.used
	}
	var sum float32
	for _, v := range values {
		sum += v
	}
	l.seen = append(l.seen, sum)
	states[0][0] += float64(b.Size)
	return nil
}

// class is a ring of workers, and the master that forms its worlds.
type class struct {
	job    *job.Job
	mu     sync.Mutex
	pupils []*pupil
	world  int64
	// record that cannot be read
	bad int64
	// number of a world in which no worker reaches another
	dark   int64
	broken []*wire.Arrival
	links  []net.Conn
	// generations in which the pupils report to work
	works   []int64
	working sync.WaitGroup
	log     bytes.Buffer
}

// pupil is one worker, and what the master holds for it.
type pupil struct {
	script
	class   *class
	index   int
	engine  *lesson
	node    *memnet.Listener
	stream  *desk
	arrived *wire.Arrival
	err     error
}

// desk is a pupil's stream.
type desk struct {
	grpc.ClientStream
	pupil *pupil
	ctx   context.Context
	words chan *wire.Assembly
	cut   chan struct{} // closed when the stream breaks
}

func (d *desk) Send(a *wire.Arrival) error {
	d.pupil.class.arrive(d.pupil, d, a)
	return nil
}

func (d *desk) Recv() (*wire.Assembly, error) {
	select {
	case word := <-d.words:
		return word, nil
	case <-d.cut:
		return nil, status.Error(codes.Unavailable, "the master is lost")
	case <-d.ctx.Done():
		return nil, d.ctx.Err()
	}
}

func (p *pupil) Rendezvous(ctx context.Context,
	_ ...grpc.CallOption) (grpc.BidiStreamingClient[wire.Arrival, wire.Assembly], error) {
	return &desk{pupil: p, ctx: ctx, words: make(chan *wire.Assembly, 16), cut: make(chan struct{})}, nil
}

func newClass(workers int) *class {
	j := job.Default()
	j.Strategy, j.NumPS, j.NumWorkers = job.AllReduce, 0, workers
	j.MinibatchSize, j.Shuffle, j.LogLossSteps = 4, false, 0
	c := &class{job: j, bad: -1}
	for i := range workers {
		c.pupils = append(c.pupils, &pupil{class: c, index: i, engine: newLesson(), node: memnet.Listen(1 << 12)})
	}
	return c
}

// arrive forms a world when every pupil that still works is there.
func (c *class) arrive(p *pupil, d *desk, a *wire.Arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.stream = d
	if a.Works {
		c.works = append(c.works, a.Generation)
		return
	}
	p.arrived = a
	if a.Broken {
		c.broken = append(c.broken, proto.Clone(a).(*wire.Arrival))
	}
	newest := int64(-1)
	for _, p := range c.pupils {
		if p.arrived == nil {
			return
		}
		if p.arrived.Generation > 0 {
			newest = max(newest, p.arrived.Round)
		}
	}
	c.world++
	w := &wire.World{Id: c.world, Generation: c.world}
	for rank, p := range c.pupils {
		w.Members = append(w.Members, &wire.Member{Worker: int32(p.index), Address: p.arrived.Address})
		if newest >= 0 && p.arrived.Round == newest {
			w.Sources = append(w.Sources, int32(rank))
		}
	}
	for _, p := range c.pupils {
		p.arrived = nil
		p.stream.words <- &wire.Assembly{Word: &wire.Assembly_World{World: w}}
	}
}

// tell says something to every pupil that is in a world.
func (c *class) tell(word *wire.Assembly) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pupils {
		p.stream.words <- word
	}
}

func (p *pupil) header() identity.Header {
	return identity.Header{Job: "uid-1", Role: pod.Worker, Index: p.index, Incarnation: 1}
}

// start runs the workers until their scripts are done.
func (c *class) start(t *testing.T) {
	m := model()
	m.Optimizer = func() optim.Config { return optim.Config{Name: optim.SGD, LearningRate: 1} }
	var logged sync.Mutex
	for _, p := range c.pupils {
		c.working.Go(func() {
			node := mesh.Listen(mesh.Config{Listener: p.node, Self: p.header,
				Credential: prove.Of(p.header()), Dial: func(ctx context.Context, address string) (net.Conn, error) {
					i, err := strconv.Atoi(address)
					if err != nil {
						return nil, err
					}
					c.mu.Lock()
					dark := c.dark == c.world
					c.mu.Unlock()
					if dark {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					link, err := c.pupils[i].node.DialContext(ctx)
					c.mu.Lock()
					c.links = append(c.links, link)
					c.mu.Unlock()
					return link, err
				}})
			defer node.Close()
			p.err = work(t.Context(), Config{
				Index: p.index, Self: self(pod.Worker), Job: c.job, Model: m, Engine: p.engine,
				Master: p, Peers: node, Address: strconv.Itoa(p.index),
				Initial:  func() ([]float32, error) { return make([]float32, lessons), nil },
				Training: numbers{bad: c.bad}, Validation: numbers{bad: -1},
				Log: slog.New(slog.NewTextHandler(writer{&logged, &c.log},
					&slog.HandlerOptions{Level: slog.LevelDebug})),
			})
		})
	}
}

type writer struct {
	mu *sync.Mutex
	io.Writer
}

func (w writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Writer.Write(b)
}

// finish waits for all workers to end, and checks that they hold the same state.
func (c *class) finish(t *testing.T) {
	t.Helper()
	c.working.Wait()
	for _, p := range c.pupils {
		if p.err != nil {
			t.Errorf("worker %d: %v", p.index, p.err)
		}
		if !slices.Equal(p.engine.values, c.pupils[0].engine.values) {
			t.Errorf("worker %d holds %v, worker 0 %v", p.index, p.engine.values, c.pupils[0].engine.values)
		}
	}
	if t.Failed() {
		t.Log(c.log.String())
	}
}

// updates returns how many records each update had.
func (c *class) updates() []int {
	var sizes []int
	for i, line := range regexp.MustCompile(
		`Step applied.* version=(\d+) records=(\d+)`).FindAllStringSubmatch(c.log.String(), -1) {
		version, _ := strconv.Atoi(line[1])
		records, _ := strconv.Atoi(line[2])
		if version > len(sizes) {
			sizes = append(sizes, records)
		} else if sizes[version-1] != records {
			panic(fmt.Sprintf("line %d: version %d has %d records and %d", i, version, sizes[version-1], records))
		}
	}
	return sizes
}

// GetTask returns Done when all of them are done: the end of the job is the same for all.
func (p *pupil) GetTask(ctx context.Context, r *wire.GetTaskRequest, _ ...grpc.CallOption) (*wire.GetTaskReply, error) {
	for {
		p.mu.Lock()
		left := len(p.tasks)
		p.mu.Unlock()
		if left > 0 {
			return p.script.GetTask(ctx, r)
		}
		if p.class.over() {
			return &wire.GetTaskReply{Task: &wire.Task{Kind: wire.TaskKind_DONE}}, nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// over reports whether every task of every pupil is reported.
func (c *class) over() bool {
	for _, p := range c.pupils {
		p.mu.Lock()
		open := len(p.tasks) > 0 || len(p.reports) < p.granted
		p.mu.Unlock()
		if open {
			return false
		}
	}
	return true
}

// give adds tasks.
func (p *pupil) give(tasks ...*wire.Task) {
	p.tasks = append(p.tasks, tasks...)
	p.granted += len(tasks)
}

// Each record moves its parameter once, by its share of the update that it is in; a rank without
// data stays.
func TestRingWithUnevenData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(3)
		c.pupils[0].give(training(1, 0, 10, 0), training(2, 10, 30, 0))
		c.pupils[2].give(training(3, 30, 35, 0))
		c.start(t)
		c.finish(t)
		sizes := c.updates()
		total := 0
		for _, n := range sizes {
			total += n
		}
		if total != 35 || len(sizes) != 8 { // 4 4 2, 4 4 4 4 4
			t.Errorf("updates of %v records", sizes)
		}
		for i, v := range c.pupils[1].engine.values {
			n := int(1/-v + 0.5)
			if i < 35 && !slices.Contains(sizes, n) || i >= 35 && v != 0 {
				t.Errorf("record %d: %v after updates of %v records", i, v, sizes)
			}
		}
		if n := len(c.pupils[1].engine.steps); n > 0 {
			t.Errorf("the worker without data made %d steps", n)
		}
	})
}

// With a global batch every update but the last has exactly that many records.
func TestGlobalBatch(t *testing.T) {
	for _, batch := range []int{1, 3, 4, 7, 10, 50} {
		t.Run(strconv.Itoa(batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newClass(3)
				c.job.GlobalBatchSize = batch
				c.pupils[0].give(training(1, 0, 10, 0), training(2, 10, 30, 0))
				c.pupils[1].give(training(3, 30, 31, 0))
				c.pupils[2].give(training(4, 31, 60, 0))
				c.start(t)
				// All is in the accumulator when all is reported: the job's end asks for the rest.
				c.pupils[1].granted++
				for !c.pupils[1].flushed(60 / batch * batch) {
					time.Sleep(time.Millisecond)
				}
				c.tell(&wire.Assembly{Word: &wire.Assembly_Flush{Flush: 1}})
				for !c.pupils[0].beatFlush(1) {
					time.Sleep(time.Millisecond)
				}
				c.pupils[1].mu.Lock()
				c.pupils[1].granted--
				c.pupils[1].mu.Unlock()
				c.finish(t)
				want := slices.Repeat([]int{batch}, 60/batch)
				if rest := 60 % batch; rest > 0 {
					want = append(want, rest)
				}
				if got := c.updates(); !slices.Equal(got, want) {
					t.Errorf("updates of %v records, want %v", got, want)
				}
			})
		})
	}
}

// flushed reports whether everything but what is asked for has been reported.
func (p *pupil) flushed(int) bool {
	for _, p := range p.class.pupils {
		p.mu.Lock()
		open := len(p.reports) < p.granted
		p.mu.Unlock()
		if open && p.index != 1 {
			return false
		}
	}
	return true
}

// beatFlush reports whether a heartbeat has confirmed the flush.
func (p *pupil) beatFlush(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.beats, func(r *wire.HeartbeatRequest) bool { return r.Flushed == n })
}

// A minibatch that cannot be computed fails its lease; the others compute nothing again.
func TestFailedStepInRing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(2)
		c.pupils[0].give(training(1, 0, 8, 0), training(2, 8, 16, 0))
		c.pupils[1].give(training(3, 32, 48, 0))
		c.pupils[0].engine.fail = func(labels []int32) error {
			if slices.Contains(labels, 5) {
				return errors.New("record 5 is wrong")
			}
			return nil
		}
		c.start(t)
		c.finish(t)
		reports := c.pupils[0].reports
		if len(reports) != 2 || !strings.Contains(reports[0].Error, "record 5 is wrong") || reports[1].Error != "" {
			t.Errorf("reports %v", reports)
		}
		if n := len(c.pupils[1].engine.steps); n != 4 {
			t.Errorf("the other worker made %d steps for 4 minibatches: %v", n, c.pupils[1].engine.steps)
		}
		for i, v := range c.pupils[1].engine.values {
			if applied := v != 0; applied != (i < 4 || i >= 8 && i < 16 || i >= 32 && i < 48) {
				t.Errorf("record %d: %v", i, v)
			}
		}
	})
}

// A worker waits for a peer that it cannot reach no longer than the master would.
func TestPeerOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(2)
		c.dark = 1
		c.pupils[0].give(training(1, 0, 8, 0))
		began := time.Now()
		c.start(t)
		c.finish(t)
		if took := time.Since(began).Truncate(time.Second); c.world != 2 || took != c.job.HeartbeatTimeout.Duration {
			t.Errorf("%d worlds in %v", c.world, took)
		}
		for i, a := range c.broken {
			if other := 1 - a.Worker; a.Suspect != other {
				t.Errorf("arrival %d is of worker %d and suspects %d", i, a.Worker, a.Suspect)
			}
		}
		if len(c.broken) == 0 {
			t.Error("nobody said that a link was broken")
		}
	})
}

// The report of a failed lease tells which records are in the model: only the rest is done again.
func TestFailureInRingTellsWhatIsDone(t *testing.T) {
	for _, read := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := newClass(2)
			c.pupils[0].give(training(1, 0, 16, 0))
			c.pupils[1].give(training(2, 32, 48, 0))
			if read {
				c.bad = 9
			} else {
				c.pupils[0].engine.fail = func(labels []int32) error {
					if slices.Contains(labels, 9) {
						return errors.New("record 9 is broken")
					}
					return nil
				}
			}
			c.start(t)
			c.finish(t)
			if r := c.pupils[0].reports; len(r) != 1 ||
				!strings.Contains(r[0].Error, "record 9 is broken") || r[0].Done != 8 {
				t.Fatalf("reports %v", r)
			}
			if n := slices.Index(c.pupils[0].engine.values, 0); n != 8 {
				t.Errorf("%d records are in the model, 8 are reported", n)
			}
		})
	}
}

// A recall at convenience ends the world after a round of all ranks, and loses nothing; an
// immediate one loses no minibatch either.
func TestRecall(t *testing.T) {
	for _, now := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := newClass(3)
			for i, p := range c.pupils {
				p.give(training(int64(i+1), int64(20*i), int64(20*i+20), 0))
			}
			c.start(t)
			time.Sleep(25 * time.Millisecond)
			c.tell(&wire.Assembly{Word: &wire.Assembly_Recall{Recall: &wire.Recall{Generation: 1, Now: now}}})
			c.finish(t)
			if c.world != 2 {
				t.Errorf("there were %d worlds, want 2", c.world)
			}
			if slices.ContainsFunc(c.broken, func(a *wire.Arrival) bool { return a.Generation == 1 }) && !now {
				t.Errorf("links of the first world broke: %v", c.broken)
			}
			if got := c.updates(); !slices.Equal(got, []int{12, 12, 12, 12, 12}) {
				t.Errorf("updates of %v records", got)
			}
			for _, p := range c.pupils {
				if n := len(p.engine.steps); n != 5 {
					t.Errorf("worker %d made %d steps for 5 minibatches", p.index, n)
				}
			}
		})
	}
}

// An evaluation measures its version whatever was trained since, and the noise of a minibatch does
// not depend on it.
func TestRingEvaluatesSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(2)
		c.job.EvaluationSteps, c.job.ValidationData = 2, "v"
		c.pupils[0].give(training(1, 0, 16, 0))
		c.pupils[1].give(training(2, 16, 24, 0),
			&wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 3, Shard: "v", Start: 0, End: 8, Version: 2},
			&wire.Task{Kind: wire.TaskKind_EVALUATION, Lease: 4, Shard: "v", Start: 0, End: 4, Version: 0})
		c.start(t)
		c.finish(t)
		if got := c.pupils[1].engine.seen; len(got) != 3 || got[0] != -2 || got[1] != -2 || got[2] >= -2 {
			t.Errorf("evaluations saw sums %v, want -2 twice and then the newest", got)
		}
		if n := c.pupils[0].engine.noises; len(n) != 4 || len(slices.Compact(slices.Sorted(slices.Values(n)))) != 4 {
			t.Errorf("noises %v", n)
		}
	})
}

// The learning rate follows the number of workers if the job asks for that.
func TestScaledLearningRate(t *testing.T) {
	for _, scale := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := newClass(2)
			c.job.ScaleLearningRate = scale
			c.pupils[0].give(training(1, 0, 4, 0))
			c.pupils[1].give(training(2, 4, 8, 0))
			c.start(t)
			c.finish(t)
			want := float32(-1.0 / 8)
			if scale {
				want *= 2
			}
			if got := c.pupils[0].engine.values[0]; got != want {
				t.Errorf("scaled %t: %v, want %v", scale, got, want)
			}
		})
	}
}

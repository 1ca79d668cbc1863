package ps

import (
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func TestPushPull(t *testing.T) {
	for _, servers := range []int{1, 2, 3} {
		// 1 and 5: some servers have nothing
		for _, n := range []int{1, 5, 100, chunk + 17, 2*chunk + 3} {
			t.Run(fmt.Sprint(servers, " servers ", n), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t, servers, ServerConfig{})
					layout := dense(n, 3)
					c := f.client(0, layout)
					values := make([]float32, n+3)
					for i := range values {
						values[i] = float32(i)
					}
					f.init(c, values)
					got, v := f.pull(c, PullOptions{})
					want(t, got, values)

					accepted, after := f.push(c, filled(n+3, 0.5),
						Gradient{Versions: v, Epoch: 1, Task: 1, To: 1, Of: 1000})
					if !accepted || slices.Min(after) != 1 || slices.Max(after) != 1 {
						t.Fatal(accepted, after)
					}
					got, v = f.pull(c, PullOptions{After: true, Whole: true})
					for i := range values[:n] {
						values[i] -= 0.5
					}
					dense(n, 3).Average(0, values, filled(n+3, 0.5))
					want(t, got, values)
					if !slices.Equal(v, after) {
						t.Fatal(v, after)
					}
				})
			})
		}
	}
}

func TestByteOrder(t *testing.T) {
	defer func(was bool) { param.LittleEndian = was }(param.LittleEndian)
	param.LittleEndian = !param.LittleEndian
	x := []float32{1, -2.5}
	if got := param.Encoded(x); !bytes.Equal(got[:4], []byte{0x3f, 0x80, 0, 0}) &&
		!bytes.Equal(got[:4], []byte{0, 0, 0x80, 0x3f}) || bytes.Equal(got, param.Bytes(x)) {
		t.Fatalf("% x", got)
	}
	want(t, x, []float32{1, -2.5})
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{})
		c := f.client(0, dense(40, 0))
		f.init(c, filled(40, 3))
		f.push(c, filled(40, 1), Gradient{Versions: Versions{0, 0}})
		got, _ := f.pull(c, PullOptions{})
		want(t, got, filled(40, 2))
	})
}

func TestNotFinite(t *testing.T) {
	for _, servers := range []int{1, 2} {
		bubble(t, func(t *testing.T) {
			f := newFleet(t, servers, ServerConfig{})
			c := f.client(0, param.Layout{
				{Name: "a", Shape: []int{30}, Trainable: true},
				{Name: "b", Shape: []int{4, 10}, Trainable: true},
				{Name: "mean", Shape: []int{10}},
			})
			f.init(c, filled(80, 1))
			for at, name := range map[int]string{0: "a[0]", 29: "a[29]", 30: "b[0]", 79: "mean[9]"} {
				grads := filled(80, 1)
				grads[at] = float32(math.NaN())
				_, err := c.Push(t.Context(), grads, Gradient{Versions: make(Versions, servers),
					Epoch: 1, Task: 1, To: 1, Of: 1000})
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), name+" is NaN") {
					t.Fatal(err)
				}
			}
			got, v := f.pull(c, PullOptions{})
			want(t, got, filled(80, 1))
			if slices.Max(v) != 0 {
				t.Fatal(v)
			}
			// The same records, computed again.
			f.push(c, filled(80, 1), Gradient{Versions: v, Epoch: 1, Task: 1, To: 1, Of: 1000})
			got, _ = f.pull(c, PullOptions{})
			want(t, got, append(filled(70, 0), filled(10, 1)...)) // the average of ones is one
		})
	}
}

func TestDeclare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{})
		f.client(0, dense(50, 2))
		refused := func(layout param.Layout, text string) {
			t.Helper()
			_, err := Dial(t.Context(), f.clientConfig(1, layout))
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), text) {
				t.Fatalf("got %v, want %q", err, text)
			}
		}
		refused(dense(51, 2), "dense/kernel [51] has shape [50]")
		refused(append(dense(50, 2), param.Variable{Name: "extra", Shape: []int{1}}), "unknown parameter extra [1]")
		refused(dense(50, 0), "norm/mean [2] is missing")
		refused(dense(math.MaxInt, 0), "more than")
		swapped := f.clientConfig(1, dense(50, 2))
		slices.Reverse(swapped.Servers)
		// another server at its address may end soon
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Dial(ctx, swapped); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), " answers for ps-") {
			t.Fatal(err)
		}
		f.client(1, dense(50, 2))
	})
}

func TestStateIsAMovingAverage(t *testing.T) {
	for _, c := range []struct {
		name    string
		servers int
		config  ServerConfig
	}{
		{"async", 1, ServerConfig{Optimizer: optim.Config{Name: optim.Adam}}},
		{"sync", 1, ServerConfig{GradsToWait: 2, Optimizer: optim.Config{Name: optim.Adam}}},
		{"split", 2, ServerConfig{GradsToWait: 2, LRStalenessModulation: true,
			Optimizer: optim.Config{Name: optim.Momentum, Momentum: 0.9}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t, c.servers, c.config)
				w := f.client(0, dense(20, 30))
				f.init(w, filled(50, 8))
				v := make(Versions, c.servers)
				grads := filled(50, 1)
				f.push(w, grads, Gradient{Versions: v, Epoch: 1, Task: 1, To: 1, Of: 1000})
				f.push(w, filled(50, 3), Gradient{Versions: v, Epoch: 1, Task: 1, From: 1, To: 2, Of: 1000})
				state := float32(0.75*8 + 0.25*2) // the mean
				if c.config.GradsToWait < 2 {
					state = 0.75*(0.75*8+0.25*1) + 0.25*3
				}
				got, _ := f.pull(w, PullOptions{})
				want(t, got[20:], filled(30, state))
				if got[0] >= 8 || got[0] == state || !slices.Equal(got[:20], filled(20, got[0])) {
					t.Fatal(got[:20])
				}
			})
		})
	}
}

func TestLearningRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{LearningRate: func(version int64, workers int) float64 {
			return []float64{4, 2, 0, 1}[version] / float64(workers)
		}})
		w := f.client(0, dense(20, 0))
		f.init(w, filled(20, 100))
		for i, left := range []float32{96, 94, 94, 93} {
			f.push(w, filled(20, 1), Gradient{Versions: Versions{int64(i)}})
			got, _ := f.pull(w, PullOptions{})
			want(t, got, filled(20, left))
		}
	})
}

func TestLearningRateHearsTheWorkers(t *testing.T) {
	for want, c := range map[int]ServerConfig{1: {Async: true}, 3: {GradsToWait: 3}} {
		bubble(t, func(t *testing.T) {
			var heard []int
			c.LearningRate = func(_ int64, workers int) float64 { heard = append(heard, workers); return 1 }
			f := newFleet(t, 1, c)
			w := f.client(0, dense(20, 0))
			f.init(w, filled(20, 100))
			for range 3 {
				f.push(w, filled(20, 1), Gradient{Versions: Versions{0}})
			}
			if len(heard) == 0 || slices.ContainsFunc(heard, func(n int) bool { return n != want }) {
				t.Errorf("async %v: heard of %v workers, want %d", c.Async, heard, want)
			}
		})
	}
}

func TestStalenessModulation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{LRStalenessModulation: true})
		w := f.client(0, dense(20, 0))
		f.init(w, filled(20, 100))
		left := float32(100)
		for age := range 5 { // each with the values of version 0
			f.push(w, filled(20, 60), Gradient{Versions: Versions{0}})
			left -= 60 / float32(max(age, 1))
			got, _ := f.pull(w, PullOptions{})
			want(t, got, filled(20, left))
		}
	})
}

func TestSynchronous(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{GradsToWait: 2})
		layout := dense(200, 0)
		a, b := f.client(0, layout), f.client(1, layout)
		f.init(a, filled(200, 10))
		v0 := Versions{0, 0}
		f.push(a, filled(200, 1), Gradient{Versions: v0, Epoch: 1, Task: 1, To: 8, Of: 1000})
		got, v := f.pull(a, PullOptions{})
		want(t, got, filled(200, 10))
		if !slices.Equal(v, v0) {
			t.Fatal(v)
		}
		pulled := make(chan []float32)
		go func() {
			dst := make([]float32, 200)
			must(a.Pull(t.Context(), dst, PullOptions{After: true, Whole: true}))
			pulled <- dst
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-pulled:
			t.Fatal("a synchronous pull did not wait")
		default:
		}
		f.push(b, filled(200, 3), Gradient{Versions: v0, Epoch: 1, Task: 2, To: 8, Of: 1000})
		want(t, <-pulled, filled(200, 8))

		accepted, v := f.push(b, filled(200, 3), Gradient{Versions: v0, Epoch: 1, Task: 2, From: 8, To: 16, Of: 1000})
		if accepted || !slices.Equal(v, Versions{1, 1}) {
			t.Fatal("a gradient of version 0 was accepted at version 1", v)
		}
		accepted, _ = f.push(b, filled(200, 3), Gradient{Versions: v, Epoch: 1, Task: 2, From: 8, To: 16, Of: 1000})
		if !accepted {
			t.Fatal("the same records were refused")
		}
		// The rest.
		for i := range 2 {
			f.tell(i, &wire.ControlRequest{Settled: 1})
		}
		got, v = f.pull(a, PullOptions{})
		want(t, got, filled(200, 5))
		if !slices.Equal(v, Versions{2, 2}) {
			t.Fatal(v)
		}
		// Each epoch is settled once.
		for i := range 2 {
			f.tell(i, &wire.ControlRequest{Settled: 1})
		}
		got, v = f.pull(a, PullOptions{})
		want(t, got, filled(200, 5))
		if !slices.Equal(v, Versions{2, 2}) {
			t.Fatal(v)
		}
	})
}

func TestFewerContributorsRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{GradsToWait: 3})
		a, b := f.client(0, dense(20, 0)), f.client(1, dense(20, 0))
		f.init(a, filled(20, 10))
		f.push(a, filled(20, 1), Gradient{Versions: Versions{0}, Epoch: 1, Task: 1, To: 8, Of: 1000})
		f.push(b, filled(20, 3), Gradient{Versions: Versions{0}, Epoch: 1, Task: 2, To: 8, Of: 1000})
		f.tell(0, &wire.ControlRequest{Contributors: 4})
		if v := f.server(0).Version(); v != 0 {
			t.Fatal(v)
		}
		f.tell(0, &wire.ControlRequest{Contributors: 2})
		got, _ := f.pull(a, PullOptions{After: true})
		want(t, got, filled(20, 8))
		f.tell(0, &wire.ControlRequest{}) // no word of contributors: 2, as before
		f.push(a, filled(20, 1), Gradient{Versions: Versions{1}, Epoch: 1, Task: 1, From: 8, To: 16, Of: 1000})
		if v := f.server(0).Version(); v != 1 {
			t.Fatal(v)
		}
	})
}

// Two workers whose gradients wait at one server each, since a third one, now lost, had pushed to
// the other server each time: see Client.Pull.
func TestNobodyWaitsAcrossServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{GradsToWait: 2})
		layout := dense(32, 0)
		a, b := f.client(0, layout), f.client(1, layout)
		f.init(a, filled(32, 0))
		// what arrived at one server before the worker refused at the other computed again
		one := func(c *Client, server int, done int64) {
			p := c.servers[server]
			must(p.call(t.Context(), &p.push,
				request{op: opPush, epoch: 1, task: int64(c.servers[0].request.Worker), from: done - 1,
					to: done, of: 1000}, filled(16, 1), nil))
		}
		one(a, 0, 1)
		one(b, 1, 1)
		for i := range 2 {
			f.tell(i, &wire.ControlRequest{Contributors: 2})
		}
		var wg sync.WaitGroup
		for _, c := range []*Client{a, b} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.Pull(ctx, make([]float32, 32), PullOptions{After: true}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var taken []int64
		f := newFleet(t, 1, ServerConfig{EvaluationSteps: 2, OnSnapshot: func(v int64) { taken = append(taken, v) }})
		w := f.client(0, dense(20, 0))
		f.init(w, filled(20, 10))
		for i := range 5 {
			f.push(w, filled(20, 1), Gradient{Versions: Versions{int64(i)}})
		}
		got, v := f.pull(w, PullOptions{Snapshot: 2})
		want(t, got, filled(20, 8))
		if f.server(0).Snapshot() != 2 || v[0] != 5 {
			t.Fatal(f.server(0).Snapshot(), v)
		}
		got, _ = f.pull(w, PullOptions{})
		want(t, got, filled(20, 5))
		if _, err := w.Pull(t.Context(), make([]float32, 20), PullOptions{Snapshot: 4}); !errors.Is(err,
			ErrNoSnapshot) {
			t.Fatal(err)
		}
		f.tell(0, &wire.ControlRequest{ReleaseSnapshot: 1}) // an older one
		if f.server(0).Snapshot() != 2 {
			t.Fatal("released another one")
		}
		f.tell(0, &wire.ControlRequest{ReleaseSnapshot: 2})
		if _, err := w.Pull(t.Context(), make([]float32, 20), PullOptions{Snapshot: 2}); !errors.Is(err,
			ErrNoSnapshot) {
			t.Fatal(err)
		}
		f.push(w, filled(20, 1), Gradient{Versions: Versions{5}})
		got, _ = f.pull(w, PullOptions{Snapshot: 6})
		want(t, got, filled(20, 4))
		if !slices.Equal(taken, []int64{2, 6}) {
			t.Fatal(taken)
		}
	})
}

func TestProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{})
		w := f.client(7, dense(20, 0))
		f.init(w, filled(20, 10))
		for task := range int64(3) {
			for done := range int64(3) {
				f.push(w, filled(20, 0), Gradient{Versions: Versions{0}, Epoch: 1, Task: task,
					From: 64 * done, To: 64 * (done + 1), Of: 1000})
			}
		}
		progress := func(modelGeneration int64) ([]int64, error) {
			f.modelGeneration = modelGeneration
			r, err := f.control(0).Progress(t.Context(), &wire.ProgressRequest{Tasks: []*wire.TaskKey{
				{Epoch: 1, Number: 2}, {Epoch: 1, Number: 0}, {Epoch: 1, Number: 3}, {Epoch: 2, Number: 2}}})
			return r.GetDone(), err
		}
		if got, err := progress(1); err != nil || !slices.Equal(got, []int64{192, 192, 0, 0}) {
			t.Fatal(got, err)
		}
		// Of another generation nothing is reported.
		if got, err := progress(2); grpcstatus.Code(err) != codes.Aborted {
			t.Fatal(got, err)
		}
		f.tell(0, &wire.ControlRequest{ModelGeneration: 2})
		if got, err := progress(2); err != nil || !slices.Equal(got, []int64{0, 0, 0, 0}) {
			t.Fatal(got, err)
		}
	})
}

// Split over servers, and block by block, an update gives the bits that the
// optimizer gives on the whole.
func TestUpdatesAreTheOptimizers(t *testing.T) {
	const n, state, rounds = chunk + 100, 60, 4
	for _, o := range []optim.Config{
		{Name: optim.SGD}, {Name: optim.Momentum, Momentum: 0.9, Nesterov: true}, {Name: optim.Adam},
		{Name: optim.Adam, AMSGrad: true}, {Name: optim.Adagrad},
	} {
		for _, servers := range []int{1, 3} {
			bubble(t, func(t *testing.T) {
				f := newFleet(t, servers, ServerConfig{Optimizer: o})
				c := f.client(0, dense(n, state))
				r := rand.New(rand.NewPCG(1, uint64(servers)))
				random := func() []float32 {
					x := make([]float32, n+state)
					for i := range x {
						x[i] = float32(r.NormFloat64())
					}
					return x
				}
				expect := random()
				f.init(c, expect)
				optimizer := must(optim.New(o))
				slots := optimizer.NewSlots(n)
				for step := range int64(rounds) {
					g := random()
					f.push(c, g, Gradient{Versions: make(Versions, servers)})
					optimizer.Apply(expect[:n], g[:n], slots, step+1, 0)
					dense(n, state).Average(0, expect, g)
				}
				got, _ := f.pull(c, PullOptions{})
				for i := range got {
					if got[i] != expect[i] {
						t.Fatalf("%v, %d servers, element %d: %v, want %v", o, servers, i, got[i], expect[i])
					}
				}
			})
		}
	}
}

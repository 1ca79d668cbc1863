package scale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// stage implements master.Pods with simulated pods.
type stage struct {
	events chan pod.Event
	ledger *Ledger
	master *memnet.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	servers map[string]*memnet.Listener
	kills   map[pod.ID]context.CancelCauseFunc
}

func (s *stage) Events() <-chan pod.Event { return s.events }

func (s *stage) Create(_ context.Context, p master.Pod) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills[p.ID] = cancel
	self := speak.Self(identity.Header{Job: "uid", Role: p.ID.Role, Index: p.ID.Index, Incarnation: p.Incarnation})
	conn, err := s.connect(self)
	if err != nil {
		return err
	}
	client := wire.NewMasterClient(conn)
	play := (&Worker{Self: self, Master: client, Ledger: s.ledger, Batch: 2, Minibatch: 100 * time.Millisecond}).Run
	if p.ID.Role == pod.PS {
		lis := named{memnet.Listen(1 << 16), p.ID.String()}
		s.servers[p.ID.String()] = lis.Listener
		play = (&Server{Self: self, Master: client, Ledger: s.ledger, Listener: lis}).Run
	}
	s.wg.Go(func() {
		defer conn.Close()
		s.events <- pod.Event{ID: p.ID, Incarnation: p.Incarnation, Phase: pod.Running}
		err := play(ctx)
		e := pod.Event{ID: p.ID, Incarnation: p.Incarnation, Phase: pod.Succeeded}
		switch {
		case ctx.Err() != nil:
			e.Phase, e.Exit = pod.Deleted, pod.Exit{Deleted: true}
		case err != nil:
			e.Phase, e.Exit = pod.Failed, pod.Exit{Code: 1, Reason: err.Error()}
		}
		s.events <- e
	})
	return nil
}

func (s *stage) connect(self *rpc.Self) (*grpc.ClientConn, error) {
	return rpc.Connect("master", func(ctx context.Context, _ string) (net.Conn, error) {
		return s.master.DialContext(ctx)
	}, self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
}

func (s *stage) Adopt(context.Context) ([]pod.Event, error) { return nil, nil }

func (s *stage) Delete(_ context.Context, id pod.ID) error {
	s.kill(id)
	return nil
}

func (s *stage) kill(id pod.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills[id](ErrKilled)
}

func (s *stage) dial(ctx context.Context, address string) (net.Conn, error) {
	s.mu.Lock()
	lis := s.servers[address]
	s.mu.Unlock()
	return lis.DialContext(ctx)
}

// named is a listener that reports an address of its own.
type named struct {
	*memnet.Listener
	name string
}

func (n named) Addr() net.Addr { return n }
func (named) Network() string  { return "memory" }
func (n named) String() string { return n.name }

const stageRecords, stageEpochs = 300, 2

// perform runs a job with a real master, while kill deletes pods; it checks that each record is
// trained on once.
func perform(t *testing.T, kill func(ctx context.Context, s *stage)) *wire.JobStatus {
	t.Helper()
	j := job.Default()
	j.Name, j.ModelDef, j.TrainingData = "test", "mnist.mnist_mlp.custom_model", "data"
	j.NumWorkers, j.NumPS, j.NumEpochs, j.MinibatchSize, j.NumMinibatchesPerTask = 4, 2, stageEpochs, 2, 5
	s := &stage{
		events: make(chan pod.Event, 256), ledger: NewLedger(), master: memnet.Listen(1 << 16),
		servers: make(map[string]*memnet.Listener), kills: make(map[pod.ID]context.CancelCauseFunc),
	}
	killing, stop := context.WithCancel(t.Context())
	s.wg.Go(func() { kill(killing, s) })
	status, err := master.Run(t.Context(), master.Config{
		Job: j, Training: []task.Shard{{Name: "a", Count: 201}, {Name: "b", Start: 0, Count: 99}},
		Self:     speak.Self(identity.Header{Job: "uid", Role: pod.Master, Incarnation: 1, ModelGeneration: 1}),
		Listener: s.master, Pods: s, Dial: s.dial,
	})
	stop()
	s.wg.Wait()
	if err != nil || status.State != "Succeeded" || status.RecordsDone != stageRecords*stageEpochs {
		t.Fatalf("%v, %d records done: %v", status.State, status.RecordsDone, err)
	}
	if err := s.ledger.Check(stageRecords, stageEpochs); err != nil {
		t.Error(err)
	}
	return status
}

// Workers are killed repeatedly.
func TestPlayersDoAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := perform(t, func(ctx context.Context, s *stage) {
			for victim := 0; sleep(ctx, 1370*time.Millisecond) == nil; victim++ {
				s.kill(pod.ID{Role: pod.Worker, Index: victim})
			}
		})
		if status.Requeued < 3 {
			t.Errorf("%d leases were taken back: nobody was killed at work", status.Requeued)
		}
		if status.ModelGeneration != 1 || status.RollbackReason != "" {
			t.Errorf("generation %d: %q; no server was killed", status.ModelGeneration, status.RollbackReason)
		}
	})
}

// The loss of a server loses the model: it starts over, and later pushes of the former generation
// are refused.
func TestPlayersStartOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := perform(t, func(ctx context.Context, s *stage) {
			for victim := range 2 {
				if sleep(ctx, 3210*time.Millisecond) == nil {
					s.kill(pod.ID{Role: pod.PS, Index: victim})
				}
			}
		})
		if status.ModelGeneration != 3 || status.RollbackReason == "" {
			t.Errorf("generation %d after two servers were killed, again %q", status.ModelGeneration,
				status.RollbackReason)
		}
	})
}

func TestLedger(t *testing.T) {
	l := NewLedger()
	first := &wire.Task{Number: 1, Shard: "s", Start: 10, End: 20, Epoch: 1}
	push := func(modelGeneration int64, task *wire.Task, from, to, want int64, fails error) {
		t.Helper()
		if had, err := l.push(modelGeneration, task, from, to); had != want || !errors.Is(err, fails) {
			t.Errorf("push [%d, %d) in generation %d: had %d, %v; want %d, %v", from, to,
				modelGeneration, had, err, want, fails)
		}
	}
	check := func(records int, complete bool) {
		t.Helper()
		if err := l.Check(records, 1); (err == nil) != complete {
			t.Errorf("of %d records: %v", records, err)
		}
	}
	push(1, first, 0, 6, 6, nil)
	push(1, first, 0, 6, 6, nil)  // repeated
	push(1, first, 8, 10, 6, nil) // with a gap
	push(1, first, 4, 8, 6, nil)  // half of it is in the ledger
	if got := l.progress([]*wire.TaskKey{{Epoch: 1, Number: 2}, {Epoch: 1, Number: 1},
		{Epoch: 2, Number: 1}}); !slices.Equal(got, []int64{0, 6, 0}) {
		t.Errorf("progress %v, want 6 records of task 1 of epoch 1", got)
	}
	check(10, false)
	push(1, first, 6, 10, 10, nil)
	check(10, true)
	push(2, first, 0, 6, 0, errGeneration)
	// a task with other bounds: record 10 is in both
	l.push(1, &wire.Task{Number: 7, Shard: "s", Start: 0, End: 11, Epoch: 1}, 0, 11)
	check(20, false)

	if err := l.settle(1, 1); err != nil {
		t.Error(err)
	}
	push(1, first, 0, 6, 6, nil) // everything is in the ledger
	l.begin(2, 0)
	l.begin(1, 0) // this call is late
	if err := l.settle(1, 5); !errors.Is(err, errGeneration) {
		t.Errorf("an order of the generation before: %v", err)
	}
	push(1, first, 0, 6, 0, errGeneration)
	push(2, first, 0, 6, 6, nil)
	if v := l.version(); v != 1 {
		t.Errorf("version %d in the second generation", v)
	}
}

// A model that restarts in the same generation has what its checkpoint has, and each later record.
func TestLedgerRestarts(t *testing.T) {
	l := NewLedger()
	task := &wire.Task{Number: 3, Shard: "s", Start: 0, End: 10, Epoch: 1}
	push := func(from, to int64) {
		t.Helper()
		if had, err := l.push(1, task, from, to); had != to || err != nil {
			t.Fatalf("push [%d, %d): had %d, %v", from, to, had, err)
		}
	}
	push(0, 4)
	records, version := l.save(1)
	if n, whole := records.Progress(ledger.Task{Epoch: 1, Number: 3}); n != 4 || whole || version != 1 {
		t.Errorf("%d records in version %d, the whole task %t; want 4 in version 1", n, version, whole)
	}
	push(4, 8)
	l.restart(1, 1)
	push(4, 10)
	if err := l.Check(10, 1); err != nil || l.work() != 14 {
		t.Errorf("%v after %d records, want 14", err, l.work())
	}
	l.restart(1, 0)
	push(0, 10)
}

func TestWorkerEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := memnet.Listen(1 << 16)
		self := speak.Self(identity.Header{Job: "uid", Role: pod.Worker, Incarnation: 1})
		conn, err := (&stage{master: lis}).connect(self)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, kill := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- (&Worker{Self: self, Master: wire.NewMasterClient(conn), Ledger: NewLedger()}).Run(ctx)
		}()
		synctest.Wait()
		kill(ErrKilled)
		begin := time.Now()
		if err := <-ended; !errors.Is(err, ErrKilled) || time.Since(begin) > 0 {
			t.Errorf("%v after %v, want %v at once", err, time.Since(begin), ErrKilled)
		}
	})
}

func ExampleExit() {
	fmt.Println(Exit(137))
	// Output: exit code 137
}

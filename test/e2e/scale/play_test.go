package scale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// stage is a master.Pods whose pods are players.
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
	conn, err := grpc.NewClient("passthrough:///master", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.master.DialContext(ctx) }))
	if err != nil {
		return err
	}
	client := wire.NewMasterClient(conn)
	play := (&Worker{Index: p.ID.Index, Master: client, Ledger: s.ledger, Batch: 2, Minibatch: 100 * time.Millisecond}).Run
	if p.ID.Role == pod.PS {
		lis := named{memnet.Listen(1 << 16), p.ID.String()}
		s.servers[p.ID.String()] = lis.Listener
		play = (&Server{Index: p.ID.Index, Master: client, Ledger: s.ledger, Listener: lis}).Run
	}
	s.wg.Go(func() {
		defer conn.Close()
		s.events <- pod.Event{ID: p.ID, Launch: p.Launch, Phase: pod.Running}
		err := play(ctx)
		e := pod.Event{ID: p.ID, Launch: p.Launch, Phase: pod.Succeeded}
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

// named is a listener with an address of its own.
type named struct {
	*memnet.Listener
	name string
}

func (n named) Addr() net.Addr { return n }
func (named) Network() string  { return "memory" }
func (n named) String() string { return n.name }

// Players do a job of a real master, with workers killed again and again: each record is trained on once.
func TestPlayersDoAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, epochs = 300, 2
		j := job.Default()
		j.Name, j.ModelDef, j.TrainingData = "test", "mnist.mnist_mlp.custom_model", "data"
		j.NumWorkers, j.NumPS, j.NumEpochs, j.MinibatchSize, j.NumMinibatchesPerTask = 4, 2, epochs, 2, 5
		s := &stage{
			events: make(chan pod.Event, 256), ledger: NewLedger(), master: memnet.Listen(1 << 16),
			servers: make(map[string]*memnet.Listener), kills: make(map[pod.ID]context.CancelCauseFunc),
		}
		killing, stop := context.WithCancel(t.Context())
		s.wg.Go(func() {
			for victim := 0; sleep(killing, 1370*time.Millisecond) == nil; victim++ {
				s.kill(pod.ID{Role: pod.Worker, Index: victim})
			}
		})
		status, err := master.Run(t.Context(), master.Config{
			Job: j, Training: []task.Shard{{Name: "a", Count: 201}, {Name: "b", Start: 0, Count: 99}},
			Listener: s.master, Pods: s, Dial: s.dial,
		})
		stop()
		s.wg.Wait()
		if err != nil || status.State != "Succeeded" || status.RecordsDone != records*epochs {
			t.Fatalf("%v, %d records done: %v", status.State, status.RecordsDone, err)
		}
		if status.Requeued < 3 {
			t.Errorf("%d leases were taken back: nobody was killed at work", status.Requeued)
		}
		if again, err := s.ledger.Check(records, epochs); again > 0 || err != nil {
			t.Errorf("%d records were trained on again: %v", again, err)
		}
	})
}

func TestLedger(t *testing.T) {
	l := NewLedger()
	first := &wire.Task{Lease: 7, Shard: "s", Start: 10, End: 20, Epoch: 1}
	if !l.push(1, first, 0, 6) {
		t.Fatal("the first push is refused")
	}
	if got := l.progress(1); len(got) != 1 || got[0].Lease != 7 || got[0].Done != 6 {
		t.Errorf("progress %v, want 6 records of lease 7", got)
	}
	if l.push(1, first, 6, 8) {
		t.Error("a worker that is lost pushes")
	}
	l.push(2, &wire.Task{Lease: 9, Shard: "s", Start: 10, End: 20, Epoch: 1}, 6, 10)
	check := func(records, want int, complete bool) {
		t.Helper()
		if again, err := l.Check(records, 1); again != want || (err == nil) != complete {
			t.Errorf("of %d records %d again, %v; want %d", records, again, err, want)
		}
	}
	check(10, 0, true)
	check(11, 0, false)
	l.push(2, &wire.Task{Lease: 10, Shard: "s", Start: 0, End: 10, Epoch: 1}, 0, 9)
	check(20, 0, false)
	l.push(2, &wire.Task{Lease: 10, Shard: "s", Start: 0, End: 10, Epoch: 1}, 8, 10)
	check(20, 1, true)
}

func TestWorkerEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := memnet.Listen(1 << 16)
		conn, err := grpc.NewClient("passthrough:///master", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, kill := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&Worker{Master: wire.NewMasterClient(conn), Ledger: NewLedger()}).Run(ctx) }()
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

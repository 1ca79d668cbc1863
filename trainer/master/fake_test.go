package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// world is a master with fake pods: the test makes their calls.
type world struct {
	*testing.T
	wire.MasterClient
	wire.JobClient
	self    *rpc.Self // identity of the master
	master  *memnet.Listener
	pods    *fakePods
	servers []*fakeServer
	cancel  context.CancelFunc
	end     context.CancelCauseFunc // ends the context of Run

	ended  chan struct{} // closed when Run has returned
	status *wire.JobStatus
	err    error
}

// config returns a job with 2 workers, 1 server and a shard of 8 records, 4 for each task.
func config(t *testing.T) Config {
	j := job.Default()
	j.Name, j.ModelDef, j.TrainingData = "test", "mnist.mnist_mlp.custom_model", "data"
	j.MinibatchSize, j.NumMinibatchesPerTask, j.Shuffle = 2, 2, false
	return Config{
		Job:      j,
		Training: []task.Shard{{Name: "shard-0", Start: 0, Count: 8}},
		Metric:   func(_ string, state []float64) float64 { return state[0] / state[1] },
		Pods:     newFakePods(),
		Self:     speak.Self(identity.Header{Job: "uid", Role: pod.Master, Incarnation: 1, ModelGeneration: 1}),
		Users:    true,
		Log:      slog.New(logline.New(t.Output(), slog.LevelDebug)),
	}
}

// start runs the job of config with a change, nil for none. The job is in the bubble of the test
// and ends with it.
func start(t *testing.T, change func(*Config)) *world {
	t.Helper()
	c := config(t)
	if change != nil {
		change(&c)
	}
	w := &world{T: t, self: c.Self, pods: c.Pods.(*fakePods), ended: make(chan struct{})}
	for i := range c.Job.NumPS {
		w.servers = append(w.servers, newFakeServer(w, i))
	}
	c.Dial = w.dialer()
	lis := memnet.Listen(1 << 16)
	c.Listener = lis
	ctx, end := context.WithCancelCause(t.Context())
	cancel := func() { end(nil) }
	w.cancel, w.end = cancel, end
	go func() {
		defer close(w.ended)
		w.status, w.err = Run(ctx, c)
	}()
	conn := w.dial(lis)
	w.MasterClient, w.JobClient = wire.NewMasterClient(conn), wire.NewJobClient(conn)
	t.Cleanup(func() {
		cancel()
		<-w.ended
	})
	// from then on a pod that is lost is replaced without a delay
	time.Sleep(time.Minute)
	return w
}

// dialer returns a dialer that connects to the servers.
func (w *world) dialer() rpc.Dialer {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		for _, s := range w.servers {
			if s.address == addr {
				return s.lis.DialContext(ctx)
			}
		}
		return nil, fmt.Errorf("nobody listens at %s", addr)
	}
}

// dial connects to the master. Each call comes from the pod that its request names, in its last
// incarnation and in the master's model generation, or from a user.
func (w *world) dial(lis *memnet.Listener) *speak.Conn {
	w.master = lis
	self := w.self // the next master has another identity
	return w.speaker(func(ctx context.Context, request any) identity.Header {
		return w.headerTo(self, speak.ID(ctx, request))
	})
}

// speaker connects to the master with the identities that header returns.
func (w *world) speaker(header speak.Header) *speak.Conn {
	conn := speak.Connect(w.master.DialContext, header)
	w.Cleanup(func() { conn.Close() })
	return conn
}

func (w *world) header(id pod.ID) identity.Header { return w.headerTo(w.self, id) }

// headerTo returns the header of a pod's calls to a master, of which the pod has heard.
func (w *world) headerTo(master *rpc.Self, id pod.ID) identity.Header {
	h := master.Header()
	h.Master = h.Incarnation
	h.Role, h.Index, h.Incarnation = id.Role, id.Index, w.pods.incarnation(id)
	return h
}

// bubble runs a parallel test in a bubble.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// join makes all servers join the master.
func (w *world) join() {
	w.Helper()
	for i, s := range w.servers {
		if _, err := w.Join(w.Context(), &wire.JoinRequest{Role: wire.Role_PS, Index: int32(i),
			Address: s.address}); err != nil {
			w.Fatalf("server %d joins: %v", i, err)
		}
	}
	synctest.Wait()
}

// task gets a task for a worker that holds the given leases.
func (w *world) task(worker int, held ...int64) *wire.Task {
	w.Helper()
	reply, err := w.GetTask(w.Context(), &wire.GetTaskRequest{Worker: int32(worker), Held: held})
	if err != nil {
		w.Fatalf("worker %d gets no task: %v", worker, err)
	}
	return reply.Task
}

func (w *world) done(worker int, t *wire.Task, metrics ...*wire.Metric) {
	w.Helper()
	report := &wire.ReportTaskRequest{Worker: int32(worker), Lease: t.Lease, Metrics: metrics, Version: t.Version}
	if t.Kind == wire.TaskKind_EVALUATION && t.Version == 0 {
		report.Version = w.look().Version
	}
	if _, err := w.ReportTask(w.Context(), report); err != nil {
		w.Fatalf("worker %d reports %v: %v", worker, t, err)
	}
	synctest.Wait()
}

func (w *world) beat(r *wire.HeartbeatRequest) *wire.HeartbeatReply {
	w.Helper()
	reply, err := w.Heartbeat(w.Context(), r)
	if err != nil {
		w.Fatalf("heartbeat %v: %v", r, err)
	}
	synctest.Wait()
	return reply
}

// train takes and reports all training tasks as one worker. It returns the first task of another
// kind.
func (w *world) train(worker int) *wire.Task {
	w.Helper()
	for {
		t := w.task(worker)
		if t.Kind != wire.TaskKind_TRAINING {
			return t
		}
		w.done(worker, t)
	}
}

// leave ends the workers as if they had got the task DONE, and waits until Run returns.
func (w *world) leave() {
	w.Helper()
	for _, id := range w.pods.running() {
		if id.Role == pod.Worker {
			w.pods.end(id, pod.Exit{})
		}
	}
	<-w.ended
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%v: code %v, want %v", err, got, want)
	}
}

// fakePods has pods that start and end at once.
type fakePods struct {
	// of pods that ended before the present master, and that the cluster has kept
	kept   []pod.Event
	events chan pod.Event

	mu sync.Mutex
	// incarnation of each live pod
	live    map[pod.ID]int
	created []Pod
	deleted []pod.ID
	// number of creations that fail
	refuse int
	// deletions are refused with ErrDisowned; set before the start
	disowned bool
	// called before each creation; nil: no call
	before func(context.Context, Pod) error
	// deletions are accepted and have no effect
	stubborn bool
	// the master is not notified that pods run
	silent bool
	away   time.Duration
}

func newFakePods() *fakePods {
	return &fakePods{events: make(chan pod.Event, 256), live: make(map[pod.ID]int)}
}

func (p *fakePods) Events() <-chan pod.Event {
	p.mu.Lock()
	away := p.away
	p.away = 0
	p.mu.Unlock()
	time.Sleep(away)
	return p.events
}

// stop suspends the loop of the master for some time when it next waits.
func (p *fakePods) stop(away time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func (p *fakePods) Create(ctx context.Context, c Pod) error {
	p.mu.Lock()
	before := p.before
	p.mu.Unlock()
	if before != nil {
		if err := before(ctx, c); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse > 0 {
		p.refuse--
		return errors.New("no quota")
	}
	if p.live[c.ID] != 0 {
		panic(fmt.Sprintf("%v is created twice", c.ID))
	}
	p.live[c.ID] = c.Incarnation
	p.created = append(p.created, c)
	if !p.silent {
		p.events <- pod.Event{ID: c.ID, Incarnation: c.Incarnation, Phase: pod.Running, PID: 100 + len(p.created)}
	}
	return nil
}

// Adopt implements Pods for the next master.
func (p *fakePods) Adopt(context.Context) ([]pod.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// those for the earlier master; the loop of this one reads as well
	for stale := true; stale; {
		select {
		case <-p.events:
		default:
			stale = false
		}
	}
	var all []pod.Event
	for id, incarnation := range p.live {
		all = append(all, pod.Event{ID: id, Incarnation: incarnation, Phase: pod.Running})
	}
	return append(all, p.kept...), nil
}

func (p *fakePods) Delete(_ context.Context, id pod.ID) error {
	if p.disowned {
		return fmt.Errorf("%w: Unauthorized", ErrDisowned)
	}
	p.mu.Lock()
	p.deleted = append(p.deleted, id)
	stubborn := p.stubborn
	p.mu.Unlock()
	if !stubborn {
		p.end(id, pod.Exit{Code: 143, Signal: 15, Deleted: true})
	}
	return nil
}

// incarnation returns the last incarnation of a pod that was created, 0 if there was none.
func (p *fakePods) incarnation(id pod.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	incarnation := 0
	for _, c := range p.created {
		if c.ID == id {
			incarnation = c.Incarnation
		}
	}
	return incarnation
}

// ended returns the pods that were deleted.
func (p *fakePods) ended() []pod.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.deleted)
}

// beStubborn makes deletions have no effect.
func (p *fakePods) beStubborn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stubborn = true
}

// end ends a pod that runs, and tells the master.
func (p *fakePods) end(id pod.ID, exit pod.Exit) {
	p.mu.Lock()
	incarnation := p.live[id]
	delete(p.live, id)
	p.mu.Unlock()
	if incarnation == 0 {
		return
	}
	phase := pod.Failed
	switch {
	case exit.Deleted:
		phase = pod.Deleted
	case exit.Code == 0:
		phase = pod.Succeeded
	}
	p.events <- pod.Event{ID: id, Incarnation: incarnation, Phase: phase, Exit: exit}
}

// kill ends a pod as SIGKILL does.
func (w *world) kill(id pod.ID) {
	w.pods.end(id, pod.Exit{Code: 137, Signal: 9})
	synctest.Wait()
}

func (p *fakePods) running() []pod.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []pod.ID
	for _, c := range p.created {
		if p.live[c.ID] == c.Incarnation {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func (p *fakePods) isRunning(id pod.ID) bool { return slices.Contains(p.running(), id) }

func (p *fakePods) last() Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.created[len(p.created)-1]
}

// fakeServer is a parameter server that keeps the orders that it gets.
type fakeServer struct {
	wire.UnimplementedParameterServerServer
	address string
	lis     *memnet.Listener

	mu     sync.Mutex
	orders []*wire.ControlRequest
	// calls wait until it is closed; nil: they do not wait
	away    chan struct{}
	refusal func(*wire.ControlRequest) error
	// answer to a request for progress: records done of its first tasks
	progress []int64
	// answer to a request for the whole ledger
	had     ledger.Ledger
	version int64
}

func newFakeServer(w *world, index int) *fakeServer {
	s := &fakeServer{address: fmt.Sprintf("server-%d:2222", index), lis: memnet.Listen(1 << 16)}
	srv := speak.Server(func() identity.Header { return w.header(ps(index)) })
	wire.RegisterParameterServerServer(srv, s)
	var served sync.WaitGroup
	served.Go(func() { srv.Serve(s.lis) })
	w.Cleanup(func() {
		srv.Stop()
		served.Wait()
	})
	return s
}

func (s *fakeServer) answer(ctx context.Context) error {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away == nil {
		return nil
	}
	select {
	case <-away:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *fakeServer) Control(ctx context.Context, r *wire.ControlRequest) (*wire.ControlReply, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, r)
	if s.refusal != nil {
		if err := s.refusal(r); err != nil {
			return nil, err
		}
	}
	return &wire.ControlReply{Version: s.version}, nil
}

func (s *fakeServer) Progress(ctx context.Context, r *wire.ProgressRequest) (*wire.ProgressReply, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := &wire.ProgressReply{Done: make([]int64, len(r.Tasks))}
	copy(reply.Done, s.progress)
	if r.All {
		reply.Ledger = s.had.Append(nil)
	}
	return reply, nil
}

// leave makes calls to the server wait until the returned function is called.
func (s *fakeServer) leave() (back func()) {
	away := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.away = nil
		close(away)
	}
}

// refuses makes the server return the errors of a function for orders.
func (s *fakeServer) refuses(which func(*wire.ControlRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = which
}

func (s *fakeServer) last() *wire.ControlRequest {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.orders) == 0 {
		return &wire.ControlRequest{}
	}
	return s.orders[len(s.orders)-1]
}

func worker(i int) pod.ID { return pod.ID{Role: pod.Worker, Index: i} }
func ps(i int) pod.ID     { return pod.ID{Role: pod.PS, Index: i} }

// elapsed returns the time since from, in milliseconds.
func elapsed(from time.Time) time.Duration { return time.Since(from).Round(time.Millisecond) }

// addresses returns the addresses and incarnations of the servers in a reply.
func addresses(r *wire.JoinReply) []string {
	var all []string
	for _, s := range r.Servers {
		all = append(all, fmt.Sprint(s.Address, " ", s.Incarnation))
	}
	return all
}

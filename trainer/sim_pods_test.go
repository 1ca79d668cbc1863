package trainer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/run/agent"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/worker"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// pods runs roles as goroutines, for a master at a time: its pods are easily killed.
type pods struct {
	network *network
	// what becomes of a creation
	start func(p master.Pod) (delay time.Duration, refused error)
	run   func(ctx context.Context, it *process) error
	// between the deletion of a worker and its end; 0: none
	grace time.Duration
	wg    sync.WaitGroup

	mu     sync.Mutex
	events chan pod.Event
	// closed when the job is over
	closing chan struct{}
	live    map[pod.ID]*process
	// they run, and the cluster reports them deleted
	ghost []*process
	// nil: pods need no quota
	queue *queue
}

type process struct {
	master.Pod
	host   *host
	cancel context.CancelFunc
	leave  chan struct{} // closed when it is asked to leave
	asked  bool
	runs   bool // it was notified that it does
	// it has no quota yet
	queued   bool
	admitted chan struct{} // closed when it has
	order    int           // of its creation
}

func newPods(n *network) *pods {
	return &pods{network: n, events: make(chan pod.Event, 4096), live: make(map[pod.ID]*process),
		closing: make(chan struct{})}
}

// over is closed when the job is over.
func (p *pods) over() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing
}

// send tells the master what the cluster says.
func (p *pods) send(e pod.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events <- e
}

// reopen makes closed pods those of another master.
func (p *pods) reopen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events, p.closing, p.ghost = make(chan pod.Event, cap(p.events)), make(chan struct{}), nil
}

func (p *pods) Create(_ context.Context, c master.Pod) error {
	delay, refused := p.start(c)
	if refused != nil {
		return refused
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[c.ID] != nil {
		panic(fmt.Sprintf("%v is created twice", c.ID))
	}
	it := p.begin(c, delay, func(it *process) {
		p.mu.Lock()
		it.runs = true
		p.mu.Unlock()
		p.tell(it, pod.Event{Phase: pod.Running, Core: it.Core})
	})
	p.stand(it)
	p.admit()
	return nil
}

// begin starts a pod's process when it has quota, and hears of its end. The mutex is held.
func (p *pods) begin(c master.Pod, delay time.Duration, begins func(*process)) *process {
	ctx, cancel := context.WithCancel(context.Background())
	it := &process{Pod: c, host: &host{name: c.ID.String(), incarnation: c.Incarnation}, cancel: cancel,
		leave: make(chan struct{}), admitted: make(chan struct{})}
	p.live[c.ID] = it
	p.wg.Go(func() {
		select {
		case <-it.admitted:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		begins(it)
		err := p.run(ctx, it)
		lost, isKilled := errors.AsType[agent.KilledError](err)
		switch {
		case err == nil:
			p.end(c.ID, it, pod.Exit{})
		case errors.Is(err, membership.ErrLeft):
			p.end(c.ID, it, pod.Exit{Code: 143})
		case isKilled:
			p.end(c.ID, it, pod.Exit{Code: 128 + lost.Signal, Reason: err.Error()})
		default:
			p.end(c.ID, it, pod.Exit{Code: 1, Reason: err.Error()})
		}
	})
	return it
}

// restart ends a pod's process and starts another in it, as a kubelet does by --restart_policy: the
// cluster says nothing of it. False: there is none that is to stay.
func (p *pods) restart(id pod.ID, delay time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := p.live[id]
	if it == nil || it.asked || it.queued {
		return false
	}
	p.drop(it)
	next := p.begin(it.Pod, delay, func(*process) {})
	next.runs, next.order = true, it.order // so the cluster says still
	close(next.admitted)
	return true
}

// Delete kills, a worker after its grace.
func (p *pods) Delete(_ context.Context, id pod.ID) error {
	if p.grace == 0 || !p.ask(id, pod.Exit{Deleted: true}, p.grace, true) {
		p.end(id, nil, pod.Exit{Code: 137, Signal: 9, Deleted: true})
	}
	return nil
}

// ask has a worker leave within its grace. Told: the master hears of it from the cluster, too.
// False: there is none, or it was asked before.
func (p *pods) ask(id pod.ID, why pod.Exit, grace time.Duration, told bool) bool {
	p.mu.Lock()
	it := p.live[id]
	if it == nil || it.asked || it.queued || id.Role != pod.Worker {
		p.mu.Unlock()
		return false
	}
	it.asked = true
	close(it.leave)
	p.mu.Unlock()
	if told {
		p.tell(it, pod.Event{Phase: pod.Leaving, Exit: why})
	}
	time.AfterFunc(grace, func() {
		why.Code, why.Signal = 137, 9
		p.end(id, it, why)
	})
	return true
}

// isAsked reports whether a pod was asked to leave, or is not there.
func (p *pods) isAsked(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, it := range p.live {
		if id.String() == name {
			return it.asked
		}
	}
	return true
}

// kill ends a pod as kill -9 does. False: there is none.
func (p *pods) kill(id pod.ID, exit pod.Exit) bool { return p.end(id, nil, exit) }

// haunt has the cluster report a pod as deleted, as for an unreachable node, while the pod runs on
// for a while.
func (p *pods) haunt(id pod.ID, d time.Duration) bool {
	p.mu.Lock()
	it := p.live[id]
	if it == nil || it.queued {
		p.mu.Unlock()
		return false
	}
	delete(p.live, id)
	p.ghost = append(p.ghost, it)
	p.admit()
	p.mu.Unlock()
	time.AfterFunc(d, func() { p.drop(it) })
	p.send(pod.Event{ID: id, Incarnation: it.Incarnation, Phase: pod.Failed, Exit: pod.Exit{NodeLost: true}})
	return true
}

func (p *pods) drop(it *process) {
	p.network.kill(it.host)
	it.cancel()
}

// end ends a pod, once; only is the incarnation of it that is meant, nil for whichever there is.
func (p *pods) end(id pod.ID, only *process, exit pod.Exit) bool {
	p.mu.Lock()
	it := p.live[id]
	if it == nil || only != nil && it != only {
		p.mu.Unlock()
		return false
	}
	delete(p.live, id)
	p.admit()
	if it.queued {
		exit = pod.Exit{Deleted: true}
	}
	p.mu.Unlock()
	p.drop(it)
	phase := pod.Failed
	switch {
	case exit.Deleted:
		phase = pod.Deleted
	case exit.Code == 0:
		phase = pod.Succeeded
	}
	p.send(pod.Event{ID: id, Incarnation: it.Incarnation, Phase: phase, Exit: exit})
	return true
}

// tell sends an event of a pod that is alive.
func (p *pods) tell(it *process, e pod.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[it.ID] == it {
		e.ID, e.Incarnation = it.ID, it.Incarnation
		p.events <- e
	}
}

// of returns the living pods of a role that have quota, in order.
func (p *pods) of(r pod.Role) []pod.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []pod.ID
	for id, it := range p.live {
		if id.Role == r && !it.queued {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b pod.ID) int { return cmp.Compare(a.Index, b.Index) })
	return ids
}

// all is the living pods, servers first.
func (p *pods) all() []pod.ID { return append(p.of(pod.PS), p.of(pod.Worker)...) }

// close kills what is left, and waits for it.
func (p *pods) close() {
	p.mu.Lock()
	close(p.closing)
	p.mu.Unlock()
	p.sweep()
	p.mu.Lock()
	ghost := slices.Clone(p.ghost)
	p.mu.Unlock()
	for _, it := range ghost {
		p.drop(it)
	}
	p.wg.Wait()
}

const masterAddress = "master:1"

// runPS is the parameter server itself.
func (s *simulation) runPS(ctx context.Context, h *host, p master.Pod) error {
	address := cmp.Or(p.Address, fmt.Sprintf("%v:1", p.ID))
	return ps.Run(ctx, ps.Config{
		Master: masterAddress, Self: self(p.ID, p.Incarnation), Initial: s.initial,
		Listener: s.network.listen(h, address), Advertise: address, Model: model,
		Dial: s.network.dial(h), Log: s.log(p.ID.String()), Open: s.disk.open(h),
	})
}

// runWorker is the worker itself, with the simulated model and data.
func (s *simulation) runWorker(ctx context.Context, it *process) error {
	h, p := it.host, it.Pod
	who := self(p.ID, p.Incarnation)
	client, closing, err := s.master(h, who)
	if err != nil {
		return err
	}
	defer closing()
	prepare := func(_ context.Context, j *job.Job) (worker.Config, func(), error) {
		e := newEngine(s.shape, p.ID.Index)
		e.step, e.measure = s.step, s.measure
		e.stand = func() { s.network.stand(ctx, h) }
		e.write = func() {
			if client.exporting.Load() {
				sleep(ctx, s.export)
			}
		}
		c := worker.Config{Model: model, Engine: e, Training: training{s.training, client}, Validation: s.validation}
		if j.Strategy == job.AllReduce {
			end := s.member(h, p, &c, e)
			return c, end, nil
		}
		return c, func() {}, nil
	}
	member := membership.Member{Master: client, Self: who, Leave: it.leave}
	joined, err := member.Join(ctx)
	if err == nil {
		err = worker.Run(ctx, worker.Options{Member: member, Joined: joined, Prepare: prepare,
			Dial: s.network.dial(h), Log: s.log(p.ID.String())})
	}
	if s.ring != nil && ctx.Err() == nil {
		s.ring.leave(h.name, err)
	}
	return err
}

// initial makes a part of the model of parameter servers before anything was trained on.
func (s *simulation) initial(part, parts int) (param.Layout, []float32, error) {
	layout := s.shape.Layout()
	span := param.Partition(layout.Len(), parts)[part]
	return layout, s.shape.initial()[span.Start:span.End:span.End], nil
}

// self makes the identity of a pod of the simulated job.
func self(id pod.ID, incarnation int) *rpc.Self {
	return speak.Self(identity.Header{Job: "uid", Role: id.Role, Index: id.Index, Incarnation: incarnation})
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// master is a client of the master's.
func (s *simulation) master(h *host, who *rpc.Self) (*observer, func() error, error) {
	connection, err := rpc.Connect(masterAddress, s.network.dial(h), who, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		return nil, nil, err
	}
	return &observer{
		MasterClient: wire.NewMasterClient(connection), JobClient: wire.NewJobClient(connection),
		garble: s.garbler(h), later: s.repeater(h, who),
	}, connection.Close, nil
}

// log is a pod's: into the simulation's, with its name.
func (s *simulation) log(name string) *slog.Logger { return slog.New(s.logs).With("pod", name) }

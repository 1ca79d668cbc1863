package trainer_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

// pods runs roles as goroutines: a master.Pods whose pods are easily killed.
type pods struct {
	network *network
	events  chan pod.Event
	start   func(id pod.ID) (delay time.Duration, refused bool) // what becomes of a creation
	run     func(ctx context.Context, it *process) error
	grace   time.Duration // between the deletion of a worker and its end; 0: none
	wg      sync.WaitGroup

	mu   sync.Mutex
	live map[pod.ID]*process
}

type process struct {
	master.Pod
	host   *host
	cancel context.CancelFunc
	leave  chan struct{} // closed when it is asked to leave
	asked  bool
}

func newPods(n *network) *pods {
	return &pods{network: n, events: make(chan pod.Event, 4096), live: make(map[pod.ID]*process)}
}

func (p *pods) Events() <-chan pod.Event { return p.events }

func (p *pods) Create(_ context.Context, c master.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay, refused := p.start(c.ID)
	if refused {
		return errors.New("no quota")
	}
	if p.live[c.ID] != nil {
		panic(fmt.Sprintf("%v is created twice", c.ID))
	}
	ctx, cancel := context.WithCancel(context.Background())
	it := &process{Pod: c, host: &host{name: c.ID.String()}, cancel: cancel, leave: make(chan struct{})}
	p.live[c.ID] = it
	p.wg.Go(func() {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		p.tell(it, pod.Event{Phase: pod.Running})
		err := p.run(ctx, it)
		switch {
		case err == nil:
			p.end(c.ID, it, pod.Exit{})
		case errors.Is(err, worker.ErrLeft):
			p.end(c.ID, it, pod.Exit{Code: 143})
		default:
			p.end(c.ID, it, pod.Exit{Code: 1, Reason: err.Error()})
		}
	})
	return nil
}

// Delete kills, a worker after its grace.
func (p *pods) Delete(_ context.Context, id pod.ID) error {
	if p.grace == 0 || !p.ask(id, pod.Exit{Deleted: true}, p.grace, true) {
		p.end(id, nil, pod.Exit{Code: 137, Signal: 9, Deleted: true})
	}
	return nil
}

// ask has a worker leave within its grace. Told: the master hears of it from the cluster, too. False: there is
// none, or it was asked before.
func (p *pods) ask(id pod.ID, why pod.Exit, grace time.Duration, told bool) bool {
	p.mu.Lock()
	it := p.live[id]
	if it == nil || it.asked || id.Role != pod.Worker {
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

// kill ends a pod as kill -9 does. False: there is none.
func (p *pods) kill(id pod.ID, exit pod.Exit) bool { return p.end(id, nil, exit) }

// end ends a pod, once; only is the launch of it that is meant, nil for whichever there is.
func (p *pods) end(id pod.ID, only *process, exit pod.Exit) bool {
	p.mu.Lock()
	it := p.live[id]
	if it == nil || only != nil && it != only {
		p.mu.Unlock()
		return false
	}
	delete(p.live, id)
	p.mu.Unlock()
	p.network.kill(it.host)
	it.cancel()
	phase := pod.Failed
	switch {
	case exit.Deleted:
		phase = pod.Deleted
	case exit.Code == 0:
		phase = pod.Succeeded
	}
	p.events <- pod.Event{ID: id, Launch: it.Launch, Phase: phase, Exit: exit}
	return true
}

// tell sends an event of a pod that is alive.
func (p *pods) tell(it *process, e pod.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[it.ID] == it {
		e.ID, e.Launch = it.ID, it.Launch
		p.events <- e
	}
}

// of is the living pods of a role, in order.
func (p *pods) of(r pod.Role) []pod.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []pod.ID
	for id := range p.live {
		if id.Role == r {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b pod.ID) int { return cmp.Compare(a.Index, b.Index) })
	return ids
}

// close kills what is left, and waits for it.
func (p *pods) close() {
	for _, role := range []pod.Role{pod.PS, pod.Worker} {
		for _, id := range p.of(role) {
			p.kill(id, pod.Exit{Code: 137})
		}
	}
	p.wg.Wait()
}

const masterAddress = "master:1"

// runPS is the parameter server itself.
func (s *simulation) runPS(ctx context.Context, h *host, p master.Pod) error {
	address := cmp.Or(p.Address, fmt.Sprintf("%v:1", p.ID))
	return ps.Run(ctx, ps.Config{
		Master: masterAddress, Index: p.ID.Index,
		Listener: s.network.listen(h, address), Advertise: address, Model: model,
		Dial: s.network.dial(h), Log: s.log(p.ID.String()),
	})
}

// runWorker is the worker itself, with the simulated model and data.
func (s *simulation) runWorker(ctx context.Context, it *process) error {
	h, p := it.host, it.Pod
	client, closing, err := s.master(h)
	if err != nil {
		return err
	}
	defer closing()
	joining, stop := context.WithCancel(ctx)
	defer stop()
	stay := make(chan struct{})
	go func() {
		select {
		case <-it.leave:
			stop()
		case <-stay:
		}
	}()
	j, addresses, err := join(joining, client, p.ID.Index)
	close(stay)
	if joining.Err() != nil && ctx.Err() == nil {
		return worker.ErrLeft
	}
	if err != nil {
		return err
	}
	c := worker.Config{
		Index: p.ID.Index, Job: j, Model: model, Master: client,
		Training: training{s.training, client}, Validation: s.validation, Log: s.log(p.ID.String()),
		Leave: it.leave,
	}
	if j.Strategy == job.AllReduce {
		return s.runMember(ctx, h, p, c)
	}
	e := newEngine(p.ID.Index, s.training.total*int64(j.NumEpochs), s.step)
	c.Engine = e
	c.Servers, err = ps.Dial(ctx, ps.ClientConfig{Worker: p.ID.Index, Addresses: addresses, Layout: e.Layout(), Dial: s.network.dial(h)})
	if err != nil {
		return err
	}
	defer c.Servers.Close()
	return worker.Run(ctx, c)
}

// master is a client of the master's.
func (s *simulation) master(h *host) (*observer, func() error, error) {
	connection, err := grpc.NewClient("passthrough:///"+masterAddress,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.network.dial(h)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		return nil, nil, err
	}
	return &observer{MasterClient: wire.NewMasterClient(connection), garble: s.garble}, connection.Close, nil
}

func join(ctx context.Context, client wire.MasterClient, index int) (*job.Job, []string, error) {
	for {
		reply, err := client.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER, Index: int32(index)})
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err == nil:
			j := new(job.Job)
			if err := json.Unmarshal(reply.Job, j); err != nil || len(reply.PsAddresses) == j.NumPS {
				return j, reply.PsAddresses, err
			}
		case err != nil && status.Code(err) != codes.Unavailable:
			return nil, nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// log is a pod's: into the simulation's, with its name.
func (s *simulation) log(name string) *slog.Logger { return slog.New(s.logs).With("pod", name) }

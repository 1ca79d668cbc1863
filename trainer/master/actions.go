package master

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// ErrHopeless is wrapped by an error of a runtime's Create if the cluster can never accept the
// pod's manifest. It fails a job that has not started yet.
var ErrHopeless = errors.New("impossible")

// ErrDisowned is wrapped by an error of a runtime's Delete if the cluster does not know this master
// any more.
var ErrDisowned = errors.New("the master's own pod no longer exists")

// ErrDenied is wrapped by an error of a runtime's Create if a rule of the cluster forbids the pod,
// until somebody changes the rule. It fails a job that has been denied all pods of a role for long.
var ErrDenied = errors.New("denied")

// ErrFull is wrapped by an error of a runtime's Create if there is no capacity for a pod; the end
// of another pod may free some.
var ErrFull = errors.New("no room")

const (
	// before a deletion that the runtime refused is repeated
	deleteAgain = time.Second
	// concurrent creations: one may take a while, and a job may have a thousand pods
	creating = 64
)

// orders are the actions that the executor has not taken yet.
type orders struct {
	pending []pod.Action
	// has an element when there are actions
	ready chan struct{}
}

func newOrders() orders { return orders{ready: make(chan struct{}, 1)} }

func (o *orders) put(a pod.Action) {
	o.pending = append(o.pending, a)
	signal(o.ready)
}

func (o *orders) take() []pod.Action {
	taken := o.pending
	o.pending = nil
	return taken
}

// enqueue hands actions to the executor. The caller holds the mutex.
func (m *master) enqueue(actions []pod.Action) {
	for _, a := range actions {
		switch a.Verb {
		case pod.Lost:
			m.events.happen(PodEnded{ID: a.ID, Incarnation: a.Incarnation, Reason: a.Reason, Cause: a.Cause,
				Counted: a.Counted, Rejected: a.Rejected, GivenUp: a.GivenUp})
			m.forget(a.ID, a.Incarnation, a.Reason)
		case pod.Delete:
			m.events.happen(PodUnwanted{ID: a.ID, Reason: a.Reason})
		}
		m.orders.put(a)
	}
}

// apply hands actions to the executor, and stops giving work to the workers that they delete. The
// caller holds the mutex.
func (m *master) apply(actions []pod.Action) {
	m.enqueue(actions)
	for _, a := range actions {
		if a.Verb == pod.Delete {
			m.depart(a.ID, false)
		}
	}
}

// runs notes that a worker has arrived, so that its pod runs.
func (m *master) runs(worker int, address string) {
	m.enqueue(m.fleet.table.Observe(pod.Event{ID: pod.ID{Role: pod.Worker, Index: worker}, Phase: pod.Running,
		Address: address}, time.Now()))
}

// forget drops what is known from a pod that has ended.
func (m *master) forget(id pod.ID, incarnation int, reason string) {
	m.contacts.forget(id)
	if id.Role == pod.Worker {
		m.handover.announced(id.Index)
		m.stacks.forget(id.Index)
		if m.stacks.open > 0 {
			m.waiters.wake()
		}
	}
	m.strategy.lost(id, incarnation, reason)
}

// execute performs actions: those of one pod in order, those of different pods concurrently.
func (m *master) execute(ctx context.Context) {
	e := executor{m: m, busy: make(map[pod.ID]*actionQueue), slots: make(chan struct{}, creating)}
	for {
		select {
		case <-m.orders.ready:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		actions := m.orders.take()
		// number of the record that contains these creations
		var number int64
		if slices.ContainsFunc(actions, func(a pod.Action) bool { return a.Verb == pod.Create }) {
			number, _ = m.record()
		}
		m.mu.Unlock()
		for _, a := range actions {
			e.dispatch(ctx, recordedAction{a, number})
		}
	}
}

// executor has one goroutine for each pod that has actions to perform.
type executor struct {
	m     *master
	slots chan struct{} // limits concurrent creations

	mu   sync.Mutex
	busy map[pod.ID]*actionQueue
}

// recordedAction is an action, with the number of the record that must be written before it; 0:
// none.
type recordedAction struct {
	pod.Action
	record int64
}

// actionQueue is the queue of a pod's actions behind the one that is being performed.
type actionQueue struct {
	next []recordedAction
	// cancels the action that is being performed
	cancel context.CancelFunc
}

// dispatch gives an action to its pod's goroutine. A deletion cancels the creation before it.
func (e *executor) dispatch(ctx context.Context, a recordedAction) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.busy[a.ID]; d != nil {
		d.next = append(d.next, a)
		if a.Verb == pod.Delete {
			d.cancel()
		}
		return
	}
	d := &actionQueue{next: []recordedAction{a}, cancel: func() {}}
	e.busy[a.ID] = d
	e.m.background.Go(func() { e.work(ctx, a.ID, d) })
}

// work performs the actions of a pod until none is left.
func (e *executor) work(ctx context.Context, id pod.ID, d *actionQueue) {
	for {
		e.mu.Lock()
		if len(d.next) == 0 {
			delete(e.busy, id)
			e.mu.Unlock()
			return
		}
		a := d.next[0]
		d.next = d.next[1:]
		doing, cancel := context.WithCancel(ctx)
		d.cancel = cancel
		if len(d.next) > 0 && d.next[0].Verb == pod.Delete {
			cancel()
		}
		e.mu.Unlock()
		e.perform(ctx, doing, a)
		cancel()
	}
}

// perform performs one action; those that may take long run in goroutines of their own. The context
// doing ends when the action is not wanted any more.
func (e *executor) perform(ctx, doing context.Context, d recordedAction) {
	a := d.Action
	switch a.Verb {
	case pod.Create:
		// without the record, the next master might give out the number again
		if d.record > 0 && errors.Is(e.m.recorder.wait(doing, d.record), ErrSuperseded) {
			return
		}
		select {
		case e.slots <- struct{}{}:
			defer func() { <-e.slots }()
		case <-doing.Done():
		}
		e.m.create(doing, a)
	case pod.Delete:
		e.m.Log.Info("Deleting a pod", "pod", a.ID, "reason", a.Reason)
		e.m.background.Go(func() { e.m.delete(ctx, a) })
	case pod.Lost:
		e.m.background.Go(func() { e.m.lost(ctx, a) })
	}
}

func (m *master) create(ctx context.Context, a pod.Action) {
	err := context.Cause(ctx)
	if err == nil {
		m.Log.Info("Creating a pod", "pod", a.ID, "incarnation", a.Incarnation)
		err = m.Pods.Create(ctx, Pod{ID: a.ID, Incarnation: a.Incarnation, Slot: a.Original, Core: a.Core,
			Address: a.Address, OOMs: a.OOMs})
	}
	if err == nil {
		m.created(a)
		return
	}
	m.Log.Warn("Pod could not be created", "pod", a.ID, "error", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil { // otherwise the pod is not wanted any more
		m.events.happen(PodRefused{ID: a.ID, Reason: err.Error()})
	}
	now := time.Now()
	why := pod.Refusal{Reason: err.Error(), Full: errors.Is(err, ErrFull),
		Denied: errors.Is(err, ErrDenied), Hopeless: errors.Is(err, ErrHopeless)}
	m.apply(m.fleet.table.Refused(a.ID, a.Incarnation, why, now))
	m.advance(now)
	m.clock.look()
}

// created tells the table that the runtime has created a pod, unless later events of it were
// received already.
func (m *master) created(a pod.Action) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.fleet.table.Get(a.ID); ok && p.Incarnation == a.Incarnation && p.Phase < pod.Pending {
		// in a queue it has no quota until the runtime reports it as admitted
		m.observeLocked(pod.Event{ID: a.ID, Incarnation: a.Incarnation, Phase: pod.Pending,
			Queued: m.admission != nil})
	}
	m.clock.look()
}

// delete asks the runtime to end a pod until it has accepted that, or the pod has ended.
func (m *master) delete(ctx context.Context, a pod.Action) {
	for ctx.Err() == nil && !m.isFollowed(a) {
		err := m.Pods.Delete(ctx, a.ID)
		if err == nil || m.hasEnded(a) {
			return
		}
		m.Log.Warn("Pod could not be deleted", "pod", a.ID, "error", err)
		if errors.Is(err, ErrDisowned) {
			m.release(a.ID)
		}
		pause(ctx, deleteAgain)
	}
}

// release tells a pod that cannot be deleted to leave.
func (m *master) release(id pod.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contacts.of(id).dismiss = true
}

// isFollowed reports whether the incarnation of the pod to which an action refers was followed by
// another.
func (m *master) isFollowed(a pod.Action) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.fleet.table.Get(a.ID)
	return ok && p.Incarnation != a.Incarnation
}

// hasEnded reports whether the incarnation of the pod to which an action refers has ended.
func (m *master) hasEnded(a pod.Action) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.fleet.table.Get(a.ID)
	return ok && (p.Incarnation != a.Incarnation || p.Phase.Ended())
}

// lost handles the end of a pod.
func (m *master) lost(ctx context.Context, a pod.Action) {
	words := "Pod has ended"
	if a.GivenUp {
		words = "Pod has ended, and is not replaced: --relaunch_on_worker_failure allows no more"
	}
	m.Log.Info(words, "pod", a.ID, "reason", a.Reason, "counted", a.Counted)
	if a.ID.Role != pod.Worker {
		return
	}
	fault := ""
	if a.Counted {
		fault = a.Reason
	}
	m.strategy.returnLeases(ctx, a.ID.Index, fault)
}

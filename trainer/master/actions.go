package master

import (
	"context"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/pod"
)

// deleteAgain is how long the master waits before it repeats a deletion that the runtime refused.
const deleteAgain = time.Second

// do hands actions to the executor. The mutex is held.
func (m *master) do(actions []pod.Action) {
	for _, a := range actions {
		if a.Verb == pod.Lost {
			m.forget(a.ID, a.Reason)
		}
		m.actions = append(m.actions, a)
		signal(m.acting)
	}
}

// forget drops what a pod that is gone told of itself.
func (m *master) forget(id pod.ID, reason string) {
	c := m.contact(id)
	c.joined, c.heard, c.dismiss = false, time.Time{}, false
	m.strategy.gone(id, reason)
}

// execute performs actions, in order for each pod, at once for different ones.
func (m *master) execute(ctx context.Context) {
	for {
		select {
		case <-m.acting:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		actions := m.actions
		m.actions = nil
		m.mu.Unlock()
		byPod := make(map[pod.ID][]pod.Action)
		for _, a := range actions {
			byPod[a.ID] = append(byPod[a.ID], a)
		}
		var batch sync.WaitGroup
		for _, actions := range byPod {
			batch.Go(func() {
				for _, a := range actions {
					m.perform(ctx, a)
				}
			})
		}
		batch.Wait()
	}
}

// perform does one action. What may take long is done beside the others.
func (m *master) perform(ctx context.Context, a pod.Action) {
	switch a.Verb {
	case pod.Create:
		m.create(ctx, a)
	case pod.Delete:
		m.Log.Info("Deleting a pod", "pod", a.ID, "reason", a.Reason)
		m.background.Go(func() { m.delete(ctx, a.ID) })
	case pod.Lost:
		m.background.Go(func() { m.lost(ctx, a) })
	}
}

func (m *master) create(ctx context.Context, a pod.Action) {
	m.Log.Info("Creating a pod", "pod", a.ID, "launch", a.Launch)
	err := m.Pods.Create(ctx, Pod{ID: a.ID, Launch: a.Launch, Slot: a.Original, Address: a.Address})
	if err == nil {
		return
	}
	m.Log.Warn("Pod could not be created", "pod", a.ID, "error", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.do(m.table.Refused(a.ID, a.Launch, err.Error(), now))
	m.advance(now)
	signal(m.poke)
}

func (m *master) delete(ctx context.Context, id pod.ID) {
	for ctx.Err() == nil {
		err := m.Pods.Delete(ctx, id)
		if err == nil {
			return
		}
		m.Log.Warn("Pod could not be deleted", "pod", id, "error", err)
		pause(ctx, deleteAgain)
	}
}

// lost does what the end of a pod asks for.
func (m *master) lost(ctx context.Context, a pod.Action) {
	m.Log.Info("Pod has ended", "pod", a.ID, "reason", a.Reason, "charged", a.Charged)
	if a.ID.Role != pod.Worker {
		return
	}
	charge := ""
	if a.Charged {
		charge = a.Reason
	}
	m.strategy.takeBack(ctx, a.ID.Index, charge)
}

// lose takes the leases of a worker back; progress is what of them is in the model. The mutex is held.
func (m *master) lose(worker int, progress map[int64]int64, charge string) {
	for _, l := range m.queue.Lose(worker, progress, charge, m.clock(time.Now())) {
		m.Log.Info("Lease taken back", "lease", l.ID, "worker", l.Worker, "task", l.Task, "done", l.Done)
	}
	m.wake()
}

package master

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// recover continues with a world that has outlived the previous master, as soon as a member reports
// what is in the model for good.
func (r *ring) recover(beat *wire.HeartbeatRequest, reply *wire.HeartbeatReply) {
	w := r.custody.World()
	if !r.stage.Recovering() || w.Generation == 0 || beat.Generation != w.Generation {
		return
	}
	var applied ledger.Ledger
	var err error
	if r.program == nil || r.work.dataset != nil { // otherwise there are no records
		if reply.Ledger = len(beat.Ledger) == 0; reply.Ledger {
			return
		}
		applied, err = ledger.Parse(beat.Ledger)
	}
	if err == nil {
		err = r.handover.restoreQueue(&applied)
	}
	if err != nil { // the ledger is not of this training
		r.host.end(job.Failed, fmt.Errorf("the ledger of worker-%d: %w", beat.Index, err), time.Now())
		return
	}
	r.handover.gathered(fmt.Sprintf("world %d works", w.ID))
	r.settle(r.custody.Recovered(applied))
}

// unwritten begins a model generation because the workers may have met in a world that the previous
// master could not write. No world begins with the states that they bring from there: a worker that
// is not back yet may have a newer one.
func (r *ring) unwritten() {
	var had []ledger.Ledger
	for _, s := range r.participants {
		// what a program has read from a checkpoint of its own is of no world
		if r.program == nil || s.arrival.GetBeginning() > 0 {
			l, _ := ledger.Parse(s.arrival.GetLedger()) // it was checked when it came
			had = append(had, l)
		}
	}
	r.handover.abandon(had)
	r.newGeneration("the previous master has not written which workers had the model")
}

// hasHolders reports whether there is a world whose members have the model.
func (r *ring) hasHolders() bool { return r.works() }

// bereft gives up the checkpoint of a worker that is lost.
func (r *ring) bereft(worker int) {
	if worker == r.writer {
		r.writer = -1
	}
	if worker == r.copier {
		r.checkpoints.giveUp(fmt.Sprintf("worker-%d, which made it, was lost", worker), r.now())
	}
}

// lost recalls the others when a worker has ended.
func (r *ring) lost(id pod.ID, _ int, reason string) {
	delete(r.participants, id.Index)
	r.bereft(id.Index)
	if !r.stage.Over() {
		r.perform(r.meeting.Leave(id.Index, 0, reason, r.now()))
	}
}

// departs makes the others continue without a worker that was asked to leave, as soon as they can.
func (r *ring) departs(worker int) {
	s := r.participants[worker]
	switch {
	case r.stage.Over():
		return
	case s == nil: // it has not come yet
		r.release(worker)
		return
	}
	r.perform(r.meeting.Depart(worker, r.now()))
	if r.meeting.Last(worker, s.session) {
		r.Log.Warn("The only worker that has the model was asked to leave: it stays until another "+
			"has the model, or its grace period ends", "worker", worker)
	}
}

// release lets a worker leave that was asked to, once the checkpoint that it writes is complete. It
// does not wait for the worker's leases.
func (r *ring) release(worker int) {
	if worker == r.copier && r.checkpoints.copied() {
		r.writer = worker
		r.reclaim(worker, "")
		return
	}
	r.Log.Info("Worker released", "worker", worker)
	r.host.dismiss(pod.ID{Role: pod.Worker, Index: worker}, "released")
}

// dismiss takes back the leases of a worker that is not part of the ring any more, even if it runs:
// nothing that it does reaches the model.
func (r *ring) dismiss(id pod.ID, reason string) {
	r.lost(id, 0, reason)
	r.reclaim(id.Index, "")
}

// returnLeases takes back the leases of a worker that has ended.
func (r *ring) returnLeases(_ context.Context, worker int, fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stage.Over() {
		r.reclaim(worker, fault)
		r.host.advance(time.Now())
	}
}

// reclaim takes back a worker's leases, at once or when it is known which of their records are in
// the model.
func (r *ring) reclaim(worker int, fault string) {
	if held := r.work.queue.Held(worker); len(held) > 0 {
		trains := slices.ContainsFunc(held, func(l task.Lease) bool { return l.Kind == task.Training })
		r.settle(r.custody.Reclaim(worker, trains, fault))
	}
}

// blocked reports whether the members of the world are reading the checkpoint that it begins with:
// storage that does not answer is retried for some time, and the others wait. Otherwise the ring
// waits only for its members.
func (r *ring) blocked() bool {
	w := r.custody.World()
	begins := len(w.Members) > 0 && len(w.Sources) == 0 && r.checkpoints.base.Number > 0 && r.rounds < w.Generation
	return begins && !r.called && r.now().Sub(r.turned) < timing.Storage+timing.StoragePause
}

// stragglers returns at most one of the overdue workers while the ring works: its members wait for
// each other, so any of them may be the cause. The others meet without it; if another was the
// cause, that one does not arrive. No worker is a straggler before the limit has passed since the
// last world was formed or aborted.
func (r *ring) stragglers(overdue []int) []int {
	rested := r.now().Sub(r.turned) >= r.Job.TaskTimeout.Duration
	named := false
	return slices.DeleteFunc(overdue, func(worker int) bool {
		s := r.participants[worker]
		switch {
		case s == nil || s.disconnected && s.waits:
			return r.custody.Missed(worker)
		case s.waits || !rested:
			return true
		case r.called || !r.custody.Member(worker):
			return false
		}
		before := named
		named = true
		return before
	})
}

func (r *ring) silence(role pod.Role) time.Duration {
	if role != pod.Worker {
		return 0
	}
	return r.Job.HeartbeatTimeout.Duration
}

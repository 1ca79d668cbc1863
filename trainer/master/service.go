package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// longPoll is the time that a call waits for something to change.
const longPoll = timing.Poll

var kinds = map[task.Kind]wire.TaskKind{
	task.Training:   wire.TaskKind_TRAINING,
	task.Evaluation: wire.TaskKind_EVALUATION,
	task.Export:     wire.TaskKind_EXPORT,
	task.Prediction: wire.TaskKind_PREDICTION,
}

// podID returns the pod that a caller claims to be.
func podID(role wire.Role, index int32) pod.ID {
	return pod.ID{Role: pod.Role(role), Index: int(index)}
}

// Join implements wire.MasterServer. A pod's first call is answered at once, so that a worker can
// build its model while the servers start; its next ones wait for them.
func (m *master) Join(ctx context.Context, r *wire.JoinRequest) (*wire.JoinReply, error) {
	id := podID(r.Role, r.Index)
	reply := &wire.JoinReply{Job: m.spec}
	patient, noted := false, false
	return reply, m.waiters.wait(ctx, m.mu, func() (bool, error) {
		if err := m.fleet.known(ctx); err != nil {
			return false, err
		}
		if !noted {
			noted, patient = true, m.contacts.of(id).joined && id.Role == pod.Worker
			if err := m.joined(id, rpc.Caller(ctx).Incarnation, r); err != nil {
				return false, err
			}
		}
		reply.Keeps = m.program != nil && m.program.keeps
		reply.Servers, reply.ModelGeneration = m.servers.addresses(), m.Self.ModelGeneration()
		reply.Base = wireBase(m.servers.custody.Base())
		return m.servers.custody.Complete() || !patient, nil
	})
}

// joined notes that a pod has joined. A server tells its address.
func (m *master) joined(id pod.ID, incarnation int, r *wire.JoinRequest) error {
	if id.Role == pod.PS {
		// the job has ended: a server without its values must not count as a loss of the model
		if m.stage.Over() {
			return status.Errorf(codes.NotFound, "%v is not needed any more: the job has ended", id)
		}
		if r.Address == "" {
			return status.Errorf(codes.InvalidArgument, "%v joins without an address", id)
		}
		if err := m.servers.join(id.Index, incarnation, r); err != nil {
			return err
		}
	}
	c := m.contacts.of(id)
	if !c.joined {
		m.Log.Info("Pod joined", "pod", id, "address", r.Address, "pid", r.Pid)
		m.events.happen(PodJoined{ID: id, Incarnation: incarnation})
	}
	// no heartbeats come until it works, for which all servers must be there
	c.joined, c.heard = true, time.Time{}
	now := time.Now()
	m.enqueue(m.fleet.table.Observe(pod.Event{ID: id, Phase: pod.Running, Address: r.Address, PID: int(r.Pid)}, now))
	m.advance(now)
	m.clock.look()
	if id.Role == pod.PS && m.servers.custody.Complete() {
		m.waiters.wake()
	}
	return nil
}

// GetTask implements wire.MasterServer.
func (m *master) GetTask(ctx context.Context, r *wire.GetTaskRequest) (*wire.GetTaskReply, error) {
	reply := &wire.GetTaskReply{Task: &wire.Task{Kind: wire.TaskKind_WAIT}}
	return reply, m.waiters.wait(ctx, m.mu, func() (bool, error) {
		if m.stage.Over() {
			reply.Task.Kind = wire.TaskKind_DONE
			return true, nil
		}
		if err := m.fleet.known(ctx); err != nil {
			return false, err
		}
		if m.stage.Recovering() {
			return false, nil
		}
		// another generation may have begun while the call waited
		if err := identity.SameModelGeneration(m.Self.Header(), rpc.Caller(ctx)); err != nil {
			return false, rpc.Refusal(err)
		}
		if m.contacts.of(pod.ID{Role: pod.Worker, Index: int(r.Worker)}).leaves {
			return false, nil
		}
		// the caller does not wait for the reply any more
		if ctx.Err() != nil {
			return false, status.FromContextError(ctx.Err()).Err()
		}
		if m.program != nil {
			if err := m.program.declare(r.Dataset); err != nil {
				return false, err
			}
			if m.program.ended() {
				reply.Task.Kind = wire.TaskKind_END
				return true, nil
			}
		}
		lease, ok := m.lease(int(r.Worker), r.Held)
		if ok {
			reply.Task = m.task(lease)
		}
		return ok || r.Now, nil
	})
}

// lease returns a worker's next lease: first one that it was granted and does not know of.
func (m *master) lease(worker int, holds []int64) (task.Lease, bool) {
	for _, l := range m.work.queue.Held(worker) {
		if !slices.Contains(holds, l.ID) {
			return l, true
		}
	}
	now := time.Now()
	// what they are about to report must not be leased to others
	if m.handover.announcements.withheld(m.clock.at(now)) {
		return task.Lease{}, false
	}
	lease, ok := m.work.queue.Lease(worker, m.clock.at(now))
	if ok {
		m.perform(m.stage.Grant(), now)
		m.Log.Debug("Task leased", "lease", lease.ID, "worker", worker, "task", lease.Task)
		m.events.happen(Leased{lease})
		m.advance(now)
	}
	return lease, ok
}

// task returns a lease in the form of the worker's message.
func (m *master) task(l task.Lease) *wire.Task {
	t := &wire.Task{
		Kind: kinds[l.Kind], Lease: l.ID,
		Number: int64(l.Number), Shard: l.Shard, Start: l.Start, End: l.End, Done: l.Done, Epoch: int32(l.Epoch),
		Blocks: m.blocks(l.Task), Of: int64(l.Of), Stream: l.Unsized,
	}
	if l.Kind == task.Prediction {
		t.Version = l.Version
	}
	if run, ok := m.evaluations.schedule.Running(); ok && l.Kind == task.Evaluation && l.Version == run.Version {
		t.Version = run.Snapshot
	}
	return t
}

// ReportTask implements wire.MasterServer.
func (m *master) ReportTask(ctx context.Context, r *wire.ReportTaskRequest) (*wire.ReportTaskReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.unready(); err != nil {
		return nil, err
	}
	now := time.Now()
	err := m.settle(r, rpc.Caller(ctx).ModelGeneration, m.clock.at(now))
	m.pace(now)
	m.advance(now)
	if errors.Is(err, task.ErrStale) {
		return nil, status.Errorf(codes.FailedPrecondition, "lease %d of worker %d: %v", r.Lease, r.Worker, err)
	}
	return &wire.ReportTaskReply{}, err
}

// settle handles a worker's report of the end of a lease, from a model generation.
func (m *master) settle(r *wire.ReportTaskRequest, modelGeneration int64, now time.Time) error {
	worker := int(r.Worker)
	held := m.work.queue.Held(worker)
	i := slices.IndexFunc(held, func(l task.Lease) bool { return l.ID == r.Lease })
	if i < 0 {
		return task.ErrStale
	}
	t := held[i].Task
	if r.Error == "" && t.Kind == task.Evaluation {
		on := evaluation.Model{ModelGeneration: modelGeneration, Version: r.Version}
		err := m.evaluations.measured(t, on, r.Metrics, now)
		if errors.Is(err, task.ErrStale) {
			return err
		}
		if err != nil {
			r.Error = err.Error()
		}
	}
	if r.Error == "" && t.Kind == task.Prediction && r.Version != t.Version {
		r.Error = fmt.Sprintf("predicted with version %d of the model, expected version %d: has "+
			"--checkpoint_dir_for_init=%s changed?",
			r.Version, t.Version, m.Job.CheckpointDirForInit)
	}
	if t.Kind != task.Training {
		defer m.waiters.wake() // the export waits for the evaluations
	}
	if r.Error == "" && t.Unsized {
		if err := m.work.queue.Touch(r.Lease, worker, r.Done, now); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
	if r.Error == "" {
		return m.work.queue.Done(r.Lease, worker, now)
	}
	what, end := "Task failed", m.work.queue.Fail
	if r.Storage {
		what, end = "Task given back", m.work.queue.Return
	}
	m.Log.Warn(what, "task", t, "worker", worker, "reason", r.Error)
	m.waiters.wake()
	if err := m.work.queue.Touch(r.Lease, worker, r.Done, now); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return end(r.Lease, worker, r.Error, now)
}

// Heartbeat implements wire.MasterServer.
func (m *master) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatReply, error) {
	id := podID(r.Role, r.Index)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.early() != nil { // only that the pod is there can be noted
		return &wire.HeartbeatReply{ModelGeneration: rpc.Caller(ctx).ModelGeneration}, nil
	}
	if m.fleet.known(ctx) != nil {
		return &wire.HeartbeatReply{Unknown: true}, nil
	}
	now := time.Now()
	c := m.contacts.of(id)
	m.contacts.heardFrom(c, m.clock.at(now))
	c.metrics = loopback(r.Metrics)
	c.heartbeats, c.spent = c.heartbeats+1, r.Spent
	modelGeneration := rpc.Caller(ctx).ModelGeneration
	reply := &wire.HeartbeatReply{ModelGeneration: m.Self.ModelGeneration()}
	if m.program != nil {
		m.program.tells(r, reply, now)
		reply.Stacks = m.stacks.asked()
		world, ranks := m.program.ranks()
		reply.World, reply.Ranks = world, int32(ranks)
		c.processes = processesOf(c.processes, r.Processes, now)
		c.reports, c.generation = r.Processes, r.Generation
	}
	if m.stage.Over() {
		// the job has ended: nothing is left to hand back
		reply.Unknown, reply.Over = r.Leave != wire.Leave_STAYS, true
		return reply, nil
	}
	if id.Role == pod.Worker {
		stepped := r.Steps > c.steps
		c.steps, c.rejected, c.loss = r.Steps, r.Rejected, r.Loss
		c.waits = nil
		// otherwise its progress is in a lost model, or the model is not known yet
		counts := modelGeneration == m.Self.ModelGeneration() && !m.stage.Recovering() &&
			(m.ring == nil || m.ring.custody.Counts(r.Generation))
		for _, l := range r.Leases {
			if l.Waits != "" && !slices.Contains(c.waits, l.Waits) {
				c.waits = append(c.waits, l.Waits)
			}
			if !counts {
				break
			}
			err := m.work.queue.Touch(l.Lease, id.Index, l.Done, c.heard)
			if errors.Is(err, task.ErrStale) {
				err = m.adopt(id.Index, l, c.heard)
			}
			if err == nil {
				err = m.work.queue.Work(l.Lease, id.Index, l.Effort, c.heard)
			}
			if err != nil && !errors.Is(err, task.ErrStale) {
				return nil, status.Error(codes.InvalidArgument, err.Error())
			}
		}
		// a call from before this master may lack leases that the one before has granted since
		if counts && rpc.Caller(ctx).Master == m.Self.Header().Incarnation {
			m.handover.announced(id.Index)
		}
		m.pace(now)
		if m.program != nil {
			m.program.hears(c, r, stepped)
		}
	}
	m.strategy.heard(id, modelGeneration, r, reply)
	m.events.progress(m.progressed(r), now)
	if m.program != nil {
		m.program.hang.step(now)
		reply.Hung = m.program.hang.orders(id.Index, r)
	}
	if r.Leave != wire.Leave_STAYS {
		m.askedToLeave(id, r.Leave, now)
		reply.Unknown = c.dismiss || id.Role == pod.PS && m.checkpoints.spared(c)
	}
	m.advance(now)
	return reply, nil
}

// progressed returns how far the training is, with what a pod reports of its program. The caller
// holds the mutex.
func (m *master) progressed(r *wire.HeartbeatRequest) progressed {
	p := progressed{version: m.strategy.version(), records: m.work.queue.Stats().Done, world: m.ring != nil,
		unknown: m.stage.Recovering()}
	if m.program != nil {
		p.worked = m.work.dataset == nil && r.Stage >= wire.Stage_STAGE_STARTED
	}
	return p
}

// askedToLeave handles a pod's report that it was asked to leave, or a worker's that its progress
// is final. The caller holds the mutex.
func (m *master) askedToLeave(id pod.ID, how wire.Leave, now time.Time) {
	c := m.contacts.of(id)
	if !c.leaves {
		m.Log.Info("Pod was asked to leave", "pod", id)
		c.leavesAt = m.stage.Owed(m.strategy.version())
		leaving := pod.Event{ID: id, Phase: pod.Leaving, Exit: pod.Exit{Reason: "asked to leave"}}
		m.enqueue(m.fleet.table.Observe(leaving, now))
		m.clock.look()
	}
	m.depart(id, true)
	if how == wire.Leave_READY && !c.dismiss {
		m.work.lose(id.Index, nil, "")
		m.dismiss(id, "left")
	}
}

// Scale implements wire.MasterServer.
func (m *master) Scale(_ context.Context, r *wire.ScaleRequest) (*wire.ScaleReply, error) {
	before, err := m.scale(int(r.Workers))
	if err != nil {
		return nil, err
	}
	return &wire.ScaleReply{Before: int32(before)}, nil
}

// scale sets the number of workers to n, and returns the number before.
func (m *master) scale(n int) (before int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	least, most := max(1, m.Job.MinWorkers), m.Job.MaxWorkers
	before = m.fleet.wanted()
	switch {
	case m.stage.Over():
		return 0, status.Errorf(codes.FailedPrecondition, "the job has ended: %s", m.stage.State())
	case n < least:
		return 0, status.Errorf(codes.InvalidArgument, "%d workers are fewer than %d (--min_workers)", n, least)
	case most > 0 && n > most:
		return 0, status.Errorf(codes.InvalidArgument, "%d workers are more than %d (--max_workers)", n, most)
	}
	now := time.Now()
	m.Log.Info(fmt.Sprintf("Scaled from %d to %s", before, workers(n)))
	if n != before {
		m.events.happen(Scaled{Before: before, Workers: n})
	}
	if !m.stage.Planned() {
		m.fleet.begins(n)
		return before, nil
	}
	m.apply(m.fleet.table.Scale(n, now))
	m.advance(now)
	m.clock.look()
	return before, nil
}

// Status implements wire.MasterServer.
func (m *master) Status(context.Context, *wire.StatusRequest) (*wire.JobStatus, error) {
	return m.status(time.Now()), nil
}

// Stop implements wire.MasterServer.
func (m *master) Stop(_ context.Context, r *wire.StopRequest) (*wire.StopReply, error) {
	reason := r.Reason
	if reason == "" {
		reason = "by request"
	}
	m.halt(fmt.Errorf("stopped: %s", reason), false)
	return &wire.StopReply{}, nil
}

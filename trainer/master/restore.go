package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// firstNumber returns the number before the first one that this master assigns to sessions and
// orders.
func (m *master) firstNumber() int64 {
	return int64(m.Self.Header().Incarnation-1) * task.NumbersPerMaster
}

// Limits of how far a record may be behind. It is written before each world's generation and each
// model generation, unless writing fails. A new model generation needs the loss of the workers, or
// of a server, of the previous one, and no pod is created while writing fails.
const (
	generationGap      = 1000
	modelGenerationGap = 100
)

// highestGeneration returns the highest model generation that may have begun.
func (m *master) highestGeneration() int64 {
	if m.ring != nil {
		return m.ring.custody.HighestGeneration()
	}
	return m.servers.custody.HighestGeneration()
}

// restore replaces the previous master. Its record says which pods there were, and in which
// generation the model was; the holders of the model say what is in it. Until they have, no worker
// gets a task. The caller holds the mutex, and no pod was heard yet.
func (m *master) restore(l loaded, observed []pod.Event, now time.Time) (err error) {
	r := m.handover.record
	m.Self.SetModelGeneration(r.ModelGeneration)
	m.contacts.rejectedBefore = r.Rejected
	m.progress.restore(r)
	m.evaluations.restore(r)
	// a job that rests continues from a checkpoint, which was compared
	if !r.Rests {
		if err := m.sameData(r.Data); err != nil {
			return err
		}
	}
	highestGeneration := max(r.ModelGeneration, r.HighestGeneration) + modelGenerationGap*m.handover.behind()
	m.checkpoints.restore(l, r, m.clock.at(now))
	if m.program != nil {
		if err := m.program.restore(r.Program); err != nil {
			return err
		}
	}
	if err := m.handover.restoreQueue(m.checkpoints.newestKept().ledger()); err != nil {
		return err
	}
	if err = m.evaluations.restorePlan(r); err != nil {
		return err
	}
	if m.fixed != nil {
		m.fixed.setModel(l.model)
	} else {
		m.servers.custody.Recover(r.ModelGeneration, highestGeneration, m.checkpoints.base.Base)
	}
	if m.ring != nil {
		if err := m.ring.restore(r.Ring, r.ModelGeneration, highestGeneration, m.clock.at(now)); err != nil {
			return err
		}
	}
	if r.Rests { // whatever ended since was to end
		for i := range observed {
			if observed[i].Phase.Ended() {
				observed[i].Phase, observed[i].Exit.Deleted = pod.Deleted, true
			}
		}
	}
	table, actions, err := pod.Restore(m.fleet.policy(), r.Pods, observed, now)
	if err != nil {
		return err
	}
	m.fleet.table = table
	m.perform(m.stage.Plan(now), now)
	var workers []int
	for _, p := range table.List() {
		if p.Phase == pod.Running || p.Phase == pod.Leaving {
			// the pod has yet to find this master
			m.contacts.of(p.ID).heard = m.clock.at(now).Add(timing.Return)
			m.contacts.of(p.ID).former = true
			if p.ID.Role == pod.Worker {
				workers = append(workers, p.ID.Index)
			}
		}
	}
	m.handover.announcements.expect(workers)
	m.Log.Info("Master restored", "incarnation", m.Self.Header().Incarnation, "model_generation",
		r.ModelGeneration, "pods", len(table.List()))
	m.events.happen(MasterReplaced{Incarnation: m.Self.Header().Incarnation, Planned: r.Last})
	m.enqueue(actions)
	if m.ring != nil {
		m.enqueue(m.ring.ended())
	}
	if m.fleet.specified != r.Spec { // it was changed while there was no master
		m.apply(m.fleet.table.Scale(m.fleet.specified, now))
	}
	m.askHolders()
	return nil
}

// askHolders continues to ask who has the model. The caller holds the mutex.
func (m *master) askHolders() {
	switch {
	case !m.stage.Recovering() || m.stage.Over():
	case m.fixed != nil:
		m.handover.gathered("its model is at rest")
	case m.ring == nil:
		m.servers.askServers()
	default:
		_, met := m.ring.meeting.World()
		switch {
		case met && m.program != nil && m.program.done() && !m.ring.works():
			m.program.recollect()
		case met:
		case m.handover.untouched():
			m.handover.gathered("no worker had the model")
		case !m.handover.record.Last && !m.stage.Begun():
			// the workers may have met in a world that could not be written: they bring its state
		default:
			m.ring.newGeneration("the master was lost before the workers met")
		}
	}
}

// unready refuses a call while the content of the model is unknown. The caller holds the mutex.
func (m *master) unready() error {
	if err := m.early(); err != nil || !m.stage.Recovering() || m.stage.Over() {
		return err
	}
	return status.Error(codes.Unavailable, "not yet: the master was restored, and is asking who has the model")
}

// adopt accepts a worker's report that it works on a lease of the previous master.
func (m *master) adopt(worker int, l *wire.LeaseProgress, now time.Time) error {
	if l.Epoch == 0 || m.handover.record == nil {
		return task.ErrStale
	}
	t := ledger.Task{Epoch: int(l.Epoch), Number: int(l.Number)}
	lease, err := m.work.queue.Adopt(l.Lease, worker, t, l.Done, now)
	if err != nil {
		return err
	}
	m.Log.Debug("Lease of the previous master adopted", "lease", lease.ID, "worker", worker, "task", lease.Task)
	m.events.happen(Leased{lease})
	return nil
}

// askServers asks the servers what they have, as soon as each has joined or has been lost with its
// values.
func (s *servers) askServers() {
	if s.asking || s.awaited() {
		return
	}
	var holders []holder
	for i, l := range s.lines {
		if of, ok := s.custody.Keeps(i); ok {
			holders = append(holders, holder{i, l.client, of})
		}
	}
	switch {
	case s.custody.Holds():
	case s.handover.untouched():
		// they have nothing besides what the generation began with, and some not that
		s.custody.Renew()
		s.handover.gathered("nothing was trained on in this model generation")
		return
	case s.stage.Begun() || len(holders) == 0:
		s.recovered(nil)
		return
	}
	s.asking = true
	s.background.Go(func() {
		had, err := ledgers(holders)
		if err != nil {
			s.Log.Debug("A server did not report its records", "error", err)
			pause(s.background.lasting, controlPause)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = false
		if err == nil && s.stage.Recovering() && !s.stage.Over() {
			s.recovered(had)
		}
		s.host.advance(time.Now())
	})
}

// awaited reports whether a living server has yet to join, and may have values.
func (s *servers) awaited() bool {
	for i := range s.lines {
		p, ok := s.fleet.get(pod.ID{Role: pod.PS, Index: i})
		// a pending pod may be running already
		if _, _, here := s.custody.At(i); !here && ok && p.Phase >= pod.Pending && !p.Phase.Ended() {
			return true
		}
	}
	return false
}

// holder is a server that has values, and the model generation that they are of.
type holder struct {
	index           int
	client          wire.ParameterServerClient
	modelGeneration int64
}

// ledgers asks servers for their ledgers.
func ledgers(holders []holder) ([]ledger.Ledger, error) {
	ctx, cancel := context.WithTimeout(context.Background(), progressLimit)
	defer cancel()
	all, errs := make([]ledger.Ledger, len(holders)), make([]error, len(holders))
	var asked sync.WaitGroup
	for i, h := range holders {
		asked.Go(func() {
			reply, err := h.client.Progress(rpc.InModelGeneration(ctx, h.modelGeneration),
				&wire.ProgressRequest{All: true}, grpc.WaitForReady(true))
			if err == nil {
				all[i], err = ledger.Parse(reply.Ledger)
			}
			if err != nil {
				errs[i] = fmt.Errorf("ps-%d: %w", h.index, err)
			}
		})
	}
	asked.Wait()
	return all, errors.Join(errs...)
}

// recovered continues with the records that all servers have. If the values of one are lost, a new
// generation begins, and those that the others have are lost, too. had holds the ledgers of the
// servers with values; nil: they were not asked.
func (s *servers) recovered(had []ledger.Ledger) {
	var applied ledger.Ledger
	switch {
	case had == nil:
	case !s.custody.Holds():
		s.handover.abandon(had)
	case len(had) < len(s.lines):
		// another has joined meanwhile, and is asked with them
		return
	default:
		applied = had[0].Clone()
		for i := range had[1:] {
			applied.Intersect(&had[1+i])
		}
	}
	if s.custody.Recovered(applied.Settled(), s.checkpoints.newest()) && had != nil {
		if err := s.handover.restoreQueue(&applied); err != nil {
			s.host.end(job.Failed, err, time.Now())
			return
		}
		s.handover.gathered("the servers have the model")
	} else {
		s.host.lostMeanwhile(s.custody.ModelGeneration(),
			"a server was lost with its part of the model while the master was away")
	}
	for _, l := range s.lines {
		signal(l.wake)
	}
}

// lostMeanwhile begins a new model generation after a loss while there was no master, and
// continues from its beginning.
func (m *master) lostMeanwhile(modelGeneration int64, reason string) {
	base := m.checkpoints.newestKept()
	saved := base.commit != nil && !base.Fresh
	switch {
	case m.handover.record.Rests && (saved || m.program != nil):
		m.progress.resumedWith(base.records())
		m.Self.SetModelGeneration(modelGeneration)
		if m.program != nil {
			m.program.rested(m.handover.record.Done)
		}
		m.restart(m.checkpoints.rewind(m.clock.at(time.Now())))
		if saved {
			m.events.happen(Resumed{Number: base.Number, Version: base.version(), Records: base.records(),
				Epochs: m.work.book.Finished()})
		}
	case m.handover.record.Rests:
		m.newGeneration(modelGeneration, "the job has rested without a checkpoint")
	default:
		m.newGeneration(modelGeneration, reason)
	}
	m.handover.gathered("from its newest checkpoint, or from its beginning")
	m.remember()
}

// restore restores the rendezvous of the previous master: the members of its world continue in it,
// and will report so.
func (r *ring) restore(saved *savedRing, modelGeneration, highestGeneration int64, now time.Time) (err error) {
	if saved == nil {
		return errors.New("the record of the previous master has no ring")
	}
	s := saved.Meeting
	s.Given = max(s.Given, s.Generation) + generationGap*r.handover.behind()
	if r.meeting, err = rendezvous.Restore(r.policy(), s, now); err != nil {
		return err
	}
	world, _ := r.meeting.World()
	r.custody = custody.RestoreRing(modelGeneration, highestGeneration, world, saved.Custody)
	r.expected, r.turned, r.called = s.Expected, now, s.Notified == rendezvous.Abort
	for _, it := range s.Members {
		if it.Left {
			continue
		}
		process := saved.Processes[it.Worker]
		r.participants[it.Worker] = &participant{worker: it.Worker, process: process, session: it.Session,
			given: s.Generation, disconnected: true}
		r.contacts.of(pod.ID{Role: pod.Worker, Index: it.Worker}).process = process
	}
	return nil
}

// ended returns the end of those members of the restored world that the table does not know. They
// were asked to leave while there was no master: the ring does not wait for them any more.
func (r *ring) ended() (lost []pod.Action) {
	for _, worker := range slices.Sorted(maps.Keys(r.participants)) {
		id := pod.ID{Role: pod.Worker, Index: worker}
		if _, ok := r.fleet.get(id); !ok {
			lost = append(lost, pod.Action{Verb: pod.Lost, ID: id, Incarnation: 1,
				Reason: "it left, and ended while the master was away"})
		}
	}
	return lost
}

// save returns what restore takes.
func (r *ring) save() *savedRing {
	s := &savedRing{Meeting: r.meeting.Snapshot(), Custody: r.custody.Save(), Processes: make(map[int]uint64)}
	for _, it := range s.Meeting.Members {
		if participant := r.participants[it.Worker]; participant != nil && participant.session == it.Session {
			s.Processes[it.Worker] = participant.process
		}
	}
	return s
}

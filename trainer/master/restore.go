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
	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
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

// behind returns how many masters in succession may each have begun worlds and model
// generations that are not in a record.
func (m *master) behind(r *record) int64 {
	if r.Last {
		return 0
	}
	return int64(max(1, m.Self.Header().Incarnation-r.By))
}

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
	r := m.former
	m.Self.SetModelGeneration(r.ModelGeneration)
	m.resumed, m.rejected, m.evaluated = r.Resumed, r.Rejected, r.Evaluated
	m.rollbackReason, m.rewinds = r.Anew, r.Rewinds
	m.history.restore(r.History)
	for _, e := range r.Results {
		m.evaluations = append(m.evaluations, &wire.Evaluation{Version: e.Version, Metrics: e.Metrics})
	}
	// a job that rests continues from a checkpoint, which was compared
	if !r.Rests {
		if err := m.sameData(r.Data); err != nil {
			return err
		}
	}
	highestGeneration := max(r.ModelGeneration, r.HighestGeneration) + modelGenerationGap*m.behind(r)
	m.checkpoints.restore(l, r, m.clock(now))
	if m.program != nil {
		if err := m.program.restore(r.Program); err != nil {
			return err
		}
	}
	if err := m.restoreQueue(m.checkpoints.newestKept().ledger()); err != nil {
		return err
	}
	if m.evals, err = evaluation.Restore(m.evaluationPolicy(), r.Measures); err != nil {
		return err
	}
	if m.fixed != nil {
		m.fixed.setModel(l.model)
	} else {
		m.servers.custody.Recover(r.ModelGeneration, highestGeneration, m.checkpoints.base.Base)
	}
	if m.ring != nil {
		if err := m.ring.restore(r.Ring, r.ModelGeneration, highestGeneration, m.clock(now)); err != nil {
			return err
		}
	}
	table, actions, err := pod.Restore(m.podPolicy(), r.Pods, observed, now)
	if err != nil {
		return err
	}
	m.table = table
	m.perform(m.stage.Plan(now), now)
	m.unannounced = make(map[int]bool)
	for _, p := range table.List() {
		if p.Phase == pod.Running || p.Phase == pod.Leaving {
			// the pod has yet to find this master
			m.contact(p.ID).heard = m.clock(now).Add(timing.Return)
			if p.ID.Role == pod.Worker {
				m.unannounced[p.ID.Index] = true
			}
		}
	}
	m.Log.Info("Master restored", "incarnation", m.Self.Header().Incarnation, "model_generation",
		r.ModelGeneration, "pods", len(table.List()))
	m.happen(MasterBack{Incarnation: m.Self.Header().Incarnation, Planned: r.Last})
	m.enqueue(actions)
	if m.ring != nil {
		m.enqueue(m.ring.ended())
	}
	if m.specified != r.Spec { // it was changed while there was no master
		m.apply(m.table.Scale(m.specified, now))
	}
	m.askHolders()
	return nil
}

// restoreQueue makes the queue of a model that contains the records of a ledger.
func (m *master) restoreQueue(applied *ledger.Ledger) error {
	queue, err := task.Restore(m.Training, m.taskPolicy(), applied, m.former.Tasks, m.Self.Header().Incarnation)
	if err == nil {
		m.queue = queue
	}
	return err
}

// askHolders continues to ask who has the model. The caller holds the mutex.
func (m *master) askHolders() {
	switch {
	case !m.stage.Recovering() || m.stage.Over():
	case m.fixed != nil:
		m.gathered("its model is at rest")
	case m.ring == nil:
		m.servers.askServers()
	default:
		_, met := m.ring.meeting.World()
		switch {
		case met && m.program != nil && m.program.done() && !m.ring.works():
			m.program.recollect()
		case met:
		case m.untouched():
			m.gathered("no worker had the model")
		default:
			m.ring.newGeneration("the master was lost before the workers met")
		}
	}
}

// untouched reports whether nothing was trained on in this model generation, and what the
// generation began with is known.
func (m *master) untouched() bool { return !m.stage.Begun() && m.former.Base == m.checkpoints.newest() }

// gathered notes that it is known what is in the model, and continues the training from there. The
// caller holds the mutex.
func (m *master) gathered(how string) {
	m.stage.Recovered()
	m.announceBy = m.clock(time.Now()).Add(timing.Return)
	m.Log.Info("The training continues: "+how, "records", m.queue.Stats().Done, "epoch", m.queue.Stats().Epoch)
	m.announced()
	m.wake()
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
	if l.Epoch == 0 || m.former == nil {
		return task.ErrStale
	}
	lease, err := m.queue.Adopt(l.Lease, worker, ledger.Task{Epoch: int(l.Epoch), Number: int(l.Number)}, l.Done, now)
	if err != nil {
		return err
	}
	m.Log.Debug("Lease of the previous master adopted", "lease", lease.ID, "worker", worker, "task", lease.Task)
	m.happen(Leased{lease})
	return nil
}

// announced tells the queue when every living worker has reported what it works on. The caller
// holds the mutex.
func (m *master) announced(workers ...int) {
	if m.unannounced == nil || m.stage.Recovering() {
		return
	}
	for _, w := range workers {
		delete(m.unannounced, w)
	}
	if len(m.unannounced) == 0 {
		m.unannounced = nil
		m.queue.Announced()
		m.wake()
	}
}

// askServers asks the servers what they have, as soon as each has joined or has been lost with its
// values.
func (s *servers) askServers() {
	if s.asking {
		return
	}
	switch {
	case s.awaited():
		return
	case s.custody.Holds():
	case s.host.untouched():
		// by the record they have nothing besides what the generation began with, and some not that
		s.custody.Renew()
		s.host.gathered("nothing was trained on in this model generation")
		return
	default:
		s.recovered(nil)
		return
	}
	s.asking = true
	clients := make([]wire.ParameterServerClient, len(s.lines))
	for i, l := range s.lines {
		clients[i] = l.client
	}
	s.host.spawn(func() {
		applied, err := ledgers(s.Self.ModelGeneration(), clients)
		if err != nil {
			s.Log.Debug("A server did not report its records", "error", err)
			pause(s.host.lifetime(), controlPause)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = false
		if err == nil && s.stage.Recovering() && !s.stage.Over() {
			s.recovered(applied)
		}
		s.host.advance(time.Now())
	})
}

// awaited reports whether a living server has yet to join, and may have values.
func (s *servers) awaited() bool {
	for i := range s.lines {
		p, ok := s.host.pod(pod.ID{Role: pod.PS, Index: i})
		// a pending pod may be running already
		if _, _, here := s.custody.At(i); !here && ok && p.Phase >= pod.Pending && !p.Phase.Ended() {
			return true
		}
	}
	return false
}

// ledgers asks every server for its ledger, and returns the records that all have.
func ledgers(modelGeneration int64, clients []wire.ParameterServerClient) (*ledger.Ledger, error) {
	ctx, cancel := context.WithTimeout(rpc.InModelGeneration(context.Background(), modelGeneration), progressLimit)
	defer cancel()
	all, errs := make([]ledger.Ledger, len(clients)), make([]error, len(clients))
	var asked sync.WaitGroup
	for i, client := range clients {
		asked.Go(func() {
			reply, err := client.Progress(ctx, &wire.ProgressRequest{All: true}, grpc.WaitForReady(true))
			if err == nil {
				all[i], err = ledger.Parse(reply.Ledger)
			}
			if err != nil {
				errs[i] = fmt.Errorf("ps-%d: %w", i, err)
			}
		})
	}
	asked.Wait()
	for i := range all[1:] {
		all[0].Intersect(&all[1+i])
	}
	return &all[0], errors.Join(errs...)
}

// recovered continues with the records that all servers have; nil: the values of one are lost, and
// a new generation begins.
func (s *servers) recovered(applied *ledger.Ledger) {
	settled := 0
	if applied != nil {
		settled = applied.Settled()
	}
	if s.custody.Recovered(settled, s.checkpoints.newest()) && applied != nil {
		if err := s.host.restoreQueue(applied); err != nil {
			s.host.end(job.Failed, err, time.Now())
			return
		}
		s.host.gathered("the servers have the model")
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
	if m.former.Rests {
		base := m.checkpoints.newestKept()
		m.resumed = base.records()
		m.Self.SetModelGeneration(modelGeneration)
		m.happen(Resumed{Number: base.Number, Version: base.version(), Records: base.records()})
		m.restart(m.checkpoints.rewind(m.clock(time.Now())))
	} else {
		m.newGeneration(modelGeneration, reason)
	}
	m.gathered("from its newest checkpoint, or from its beginning")
	m.remember()
}

// restore restores the rendezvous of the previous master: the members of its world continue in it,
// and will report so.
func (r *ring) restore(saved *savedRing, modelGeneration, highestGeneration int64, now time.Time) (err error) {
	if saved == nil {
		return errors.New("the record of the previous master has no ring")
	}
	s := saved.Meeting
	s.Given = max(s.Given, s.Generation) + generationGap*r.host.behind(r.host.predecessor())
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
		r.host.contact(pod.ID{Role: pod.Worker, Index: it.Worker}).process = process
	}
	return nil
}

// ended returns the end of those members of the restored world that the table does not know. They
// were asked to leave while there was no master: the ring does not wait for them any more.
func (r *ring) ended() (lost []pod.Action) {
	for _, worker := range slices.Sorted(maps.Keys(r.participants)) {
		id := pod.ID{Role: pod.Worker, Index: worker}
		if _, ok := r.host.pod(id); !ok {
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

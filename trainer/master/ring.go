package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ring is the strategy of AllreduceStrategy: every worker has the model. The rendezvous decides who
// works with whom; the ring performs its decisions, and tracks which records of the leases are in
// the model.
type ring struct {
	shared
	host        ringHost
	checkpoints *checkpoints
	fleet       *fleet
	contacts    *contacts
	work        *work
	evaluations *evaluations
	handover    *handover
	// nil in a job that has a model
	program *program
	custody *custody.Ring
	meeting *rendezvous.Rendezvous
	// by worker
	participants map[int]*participant
	// the newest session number that was given out
	session int64
	todo    []rendezvous.Action
	// todo is being performed
	busy bool

	// number of workers, as last given to the rendezvous
	expected int
	// by clock: when the last world was formed, or aborted
	turned time.Time
	// the last world was aborted
	called bool
	// generation of the newest world that has completed a round
	rounds int64

	// worker that makes the current checkpoint
	copier int
	// worker that is released when the checkpoint that it writes is complete; -1: none
	writer int
	// newest generation that began with a damaged checkpoint: arrivals from it or an older one have
	// no state
	void int64
	// what is wrong with that checkpoint, until the next generation
	damage string

	// why there was no world at the last tick
	waiting string
	// waiting was logged
	logged bool
}

// ringHost has the requests of a ring to the master. The caller of each method holds the mutex.
type ringHost interface {
	advance(now time.Time)
	// pods
	runs(worker int, address string)
	replace(id pod.ID, reason string, now time.Time)
	dismiss(id pod.ID, reason string)
	// the model generation; lostMeanwhile: it was lost while there was no master
	newGeneration(modelGeneration int64, reason string)
	lostMeanwhile(modelGeneration int64, reason string)
	// writes the state for the next master; false: another has begun, and this one ends
	recorded() bool
	end(state job.State, err error, now time.Time)
}

func newRing(m *master) *ring {
	r := &ring{
		shared: m.shared, host: m, checkpoints: m.checkpoints, program: m.program,
		fleet: m.fleet, contacts: m.contacts, work: m.work, evaluations: m.evaluations, handover: m.handover,
		writer:       -1,
		custody:      custody.NewRing(1, 0),
		participants: make(map[int]*participant),
		session:      m.firstNumber(),
	}
	r.meeting = rendezvous.New(r.policy())
	return r
}

// policy returns how large a world may be.
func (r *ring) policy() rendezvous.Policy {
	return rendezvous.Policy{Min: r.Job.MinWorkers, Max: r.Job.MaxWorkers, Gather: r.Job.Program.Gather.Duration}
}

// perform performs actions of the rendezvous in order; performing one may add others.
func (r *ring) perform(actions []rendezvous.Action) {
	if r.stage.Left() != nil {
		return // the next master finds out who is there
	}
	r.todo = append(r.todo, actions...)
	if r.busy {
		return
	}
	r.busy = true
	defer func() { r.busy = false }()
	for len(r.todo) > 0 && r.stage.Left() == nil {
		a := r.todo[0]
		r.todo = r.todo[1:]
		switch a.Verb {
		case rendezvous.Form:
			if r.goesOn(a.World) {
				r.form(a.World, a.Reason)
			}
		case rendezvous.Recall, rendezvous.Abort:
			// otherwise a worker is recalled that is not in that world
			if w, _ := r.meeting.World(); a.Verb == rendezvous.Abort && a.Generation == w.Generation {
				r.turned, r.called = r.now(), true
			}
			r.Log.Debug("World recalled", "generation", a.Generation, "verb", a.Verb, "reason", a.Reason)
			r.broadcast(a.Members, &wire.Assembly{Word: &wire.Assembly_Recall{Recall: &wire.Recall{
				Generation: a.Generation, Now: a.Verb == rendezvous.Abort, Joins: !r.leaving(a.Members),
			}}})
		case rendezvous.Evict:
			r.host.replace(pod.ID{Role: pod.Worker, Index: a.Member.Worker}, a.Reason, time.Now())
		case rendezvous.Release:
			r.release(a.Member.Worker)
		case rendezvous.StateLost:
			if r.goesOn(r.todo[0].World) { // of the Form that follows
				r.newGeneration(a.Reason)
			}
		}
	}
}

// goesOn reports whether a job continues with the next world: its program may have failed in the
// last one.
func (r *ring) goesOn(next rendezvous.World) bool {
	g := r.program
	if g == nil {
		return true
	}
	if !r.stage.Over() {
		if err := g.failed(r.custody.World(), next); err != nil {
			r.host.end(job.Failed, err, time.Now())
		}
	}
	return !r.stage.Over()
}

// form sends a world to its members. The state that it begins with tells which records of the
// leases are in the model.
func (r *ring) form(w rendezvous.World, reason string) {
	r.turned, r.called = r.now(), false
	if r.program != nil {
		w = r.program.source(w)
	}
	if r.stage.Recovering() && len(w.Sources) == 0 && !r.handover.untouched() {
		if r.unwritten(); r.stage.Left() != nil {
			return
		}
	}
	state, applied, version := r.beginning(w)
	r.Log.Info(fmt.Sprintf("World %d formed: %s %v, %s", w.ID, workers(len(w.Members)), w.Members,
		state), "generation", w.Generation, "reason", cmp.Or(reason, "they joined"))
	r.events.happen(WorldFormed{World: w, Version: version})
	if r.stage.Recovering() {
		if err := r.handover.restoreQueue(&applied); err != nil { // the state is not of this training
			r.host.end(job.Failed, err, time.Now())
			return
		}
		r.handover.gathered(state)
	}
	if r.program != nil {
		if err := r.program.begins(applied, version); err != nil {
			r.host.end(job.Failed, err, time.Now())
			return
		}
	}
	r.settle(r.custody.Formed(w, applied, version))
	r.checkpoints.rollback(version)
	// before the world is announced, or the next master would not know it
	if !r.host.recorded() {
		return
	}
	world := &wire.World{Id: w.ID, Generation: w.Generation, Floor: r.work.queue.Floor(),
		ModelGeneration: r.Self.ModelGeneration(), Settled: int32(r.work.queue.SettledEpochs())}
	if len(w.Sources) == 0 {
		world.Base = wireBase(r.checkpoints.base.Base)
	}
	for _, m := range w.Members {
		world.Members = append(world.Members, &wire.Member{Worker: int32(m.Worker), Address: m.Address,
			Crew: r.participants[m.Worker].arrival.GetCrew()})
	}
	if r.program != nil {
		judge := r.program.judge
		world.PauseMs = r.program.formed(world.Members).Milliseconds()
		world.Restarts, world.Beginning = int32(judge.Again()), w.Generation
		world.MaxRestarts = world.Restarts + int32(judge.Left())
		if len(w.Sources) > 0 && r.program.origin != rendezvous.Read {
			world.Beginning = r.participants[w.Members[w.Sources[0]].Worker].arrival.Beginning
		}
	}
	for _, rank := range w.Sources {
		world.Sources = append(world.Sources, int32(rank))
	}
	r.broadcast(w.Members, &wire.Assembly{Word: &wire.Assembly_World{World: world}})
	for _, m := range w.Members {
		s := r.participants[m.Worker]
		s.waits, s.given = false, w.Generation
	}
	r.orderFlush(w.Members)
}

// leaving reports whether one of the members was asked to leave.
func (r *ring) leaving(members []rendezvous.Member) bool {
	return slices.ContainsFunc(members, func(m rendezvous.Member) bool {
		return r.contacts.of(pod.ID{Role: pod.Worker, Index: m.Worker}).leaves
	})
}

// beginning returns what a world begins with: as text, its records, and its version.
func (r *ring) beginning(w rendezvous.World) (state string, applied ledger.Ledger, version int64) {
	base := r.checkpoints.base
	switch {
	case len(w.Sources) > 0:
		source := w.Members[w.Sources[0]]
		a := r.participants[source.Worker].arrival
		applied, _ := ledger.Parse(a.Ledger) // it was checked when it came
		return fmt.Sprintf("state of %v at version %s", source, logline.Thousands(a.Version)), applied, a.Version
	case base.commit != nil:
		return fmt.Sprintf("from checkpoint %d at version %s", base.Number,
			logline.Thousands(base.version())), base.ledger().Clone(), base.version()
	}
	if r.program != nil { // what it begins with it alone knows
		return "the program starts", applied, 0
	}
	return "from the initial values", applied, 0
}

// wireBase returns the base of a generation in the form of a message to holders; nil: the initial
// values.
func wireBase(b custody.Base) *wire.Base {
	if b.Number == 0 {
		return nil
	}
	return &wire.Base{Dir: b.Dir, Number: b.Number, Claim: b.Claim, Checksum: b.Checksum, Fresh: b.Fresh}
}

// participates reports whether a worker is still a member.
func (r *ring) participates(m rendezvous.Member) bool {
	s := r.participants[m.Worker]
	return s != nil && s.session == m.Session
}

// settle takes back the leases of lost workers.
func (r *ring) settle(all []custody.Settlement) {
	for _, s := range all {
		progress := make(map[int64]int64)
		for _, l := range r.work.queue.Held(s.Worker) {
			if l.Kind == task.Training {
				progress[l.ID] = l.In(&s.Ledger)
			}
		}
		r.work.lose(s.Worker, progress, s.Fault)
	}
}

// workers returns a number of workers as text.
func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// newGeneration begins the training again, or again with the newest checkpoint. If nothing was
// credited in this generation, the generation begins again.
func (r *ring) newGeneration(reason string) {
	modelGeneration := r.custody.ModelGeneration()
	began := r.checkpoints.base.records()
	why := "every worker was lost, and the model with them: " + reason
	switch {
	case r.damage != "":
		why = r.damage
	case r.stage.Recovering() && r.custody.World().Generation == 0:
		why = reason
	case r.program != nil && r.program.ended():
		why = "a process was lost, or failed, after the training, before all processes had ended"
	case r.program != nil && r.survives():
		why = "no process has kept its state"
	case r.program != nil:
		why = "every worker was lost"
	}
	begun := r.work.queue.Stats().Done > began || r.damage != "" ||
		r.stage.Recovering() && !r.handover.untouched()
	gone := r.custody.Lost(begun, r.checkpoints.covered())
	r.damage = ""
	switch now := r.custody.ModelGeneration(); {
	case now != modelGeneration && r.stage.Recovering():
		r.host.lostMeanwhile(now, why)
		return
	case now != modelGeneration:
		r.host.newGeneration(now, why)
		return
	}
	// including workers that have ended and whose leases are not taken back yet
	for _, worker := range r.work.queue.Workers() {
		r.work.lose(worker, nil, gone[worker])
	}
}

// survives reports whether a member of the last world is still there.
func (r *ring) survives() bool {
	return slices.ContainsFunc(r.custody.World().Members, func(m rendezvous.Member) bool {
		return r.participants[m.Worker] != nil
	})
}

// broadcast sends a message to the connected members of a world.
func (r *ring) broadcast(members []rendezvous.Member, word *wire.Assembly) {
	for _, m := range members {
		if r.participates(m) {
			r.participants[m.Worker].send(word)
		}
	}
}

func (r *ring) now() time.Time { return r.clock.at(time.Now()) }

func (r *ring) version() int64   { return r.custody.Version() }
func (r *ring) applied(int) bool { return true }

// whole reports that nothing is left in the accumulators of --global_batch_size, and has it applied
// if there is. The flush also reports the version of the trained model.
func (r *ring) whole() bool {
	if r.work.queue.Stats().Done == 0 {
		return true
	}
	if r.custody.Flush() > 0 {
		r.orderFlush(r.custody.World().Members)
	}
	return r.custody.Owed() == 0
}

func (r *ring) orderFlush(members []rendezvous.Member) {
	if flush := r.custody.Owed(); flush > 0 {
		r.broadcast(members, &wire.Assembly{Word: &wire.Assembly_Flush{Flush: flush}})
	}
}

// heard handles a worker's report of its state.
func (r *ring) heard(id pod.ID, _ int64, beat *wire.HeartbeatRequest, reply *wire.HeartbeatReply) {
	generation := beat.Generation
	if r.program != nil && r.work.dataset != nil {
		// a process is in its world before it has the state
		generation = beat.Met
	}
	r.rounds = max(r.rounds, generation)
	snapshot, settled := r.custody.Heard(custody.State{Generation: generation, Version: beat.Version,
		Snapshot: beat.Snapshot, Flushed: beat.Flushed})
	if snapshot > 0 {
		r.evaluations.snapshot(0, snapshot)
	}
	r.settle(settled)
	if r.program != nil {
		if err := r.program.begunWith(beat.Origin); err != nil {
			r.host.end(job.Failed, fmt.Errorf("the ledger of worker-%d: %w", id.Index, err), time.Now())
			return
		}
	}
	r.recover(beat, reply)
	reply.ReleaseSnapshot, reply.Settled = r.evaluations.schedule.Release(), int32(r.work.queue.SettledEpochs())
	if id.Index == r.copier {
		r.checkpoints.heard(0, beat.Cut, r.now())
		reply.Cut = r.checkpoints.ended()
	}
}

// copy makes a member of the world copy what it has; preferably one that was not asked to leave.
func (r *ring) copy(o custody.CutOrder) {
	var copier *participant
	for _, member := range r.custody.World().Members {
		leaves := r.contacts.of(pod.ID{Role: pod.Worker, Index: member.Worker}).leaves
		if r.participates(member) && (copier == nil || !leaves) {
			if copier = r.participants[member.Worker]; !leaves {
				break
			}
		}
	}
	if copier == nil {
		r.checkpoints.giveUp("no worker has the model", r.now())
		return
	}
	r.copier = copier.worker
	copier.send(cutOrder(o))
}

// cutOrder returns the order to make a checkpoint as a worker gets it.
func cutOrder(o custody.CutOrder) *wire.Assembly {
	return &wire.Assembly{Word: &wire.Assembly_Cut{Cut: &wire.Cut{Number: o.Number, Claim: o.Claim}}}
}

func (r *ring) kept(custody.Base) {}

// damaged handles an arrival from a world that cannot begin, as its checkpoint cannot be read. The
// state of its other members is void.
func (r *ring) damaged(a *wire.Arrival) {
	base := r.checkpoints.base
	if a.Damage == "" || base.commit == nil || a.Generation <= r.void || r.stage.Over() {
		return
	}
	r.void = a.Generation
	r.damage = fmt.Sprintf("checkpoint %d, with which the model was to begin, cannot be used: %s",
		base.Number, a.Damage)
	r.checkpoints.damaged(base.Base, errors.New(a.Damage))
}

// seek finds what is before the checkpoint with which a worker could not begin, ahead of handling
// its arrival. The caller does not hold the mutex.
func (r *ring) seek(ctx context.Context, a *wire.Arrival) {
	if a.Damage == "" {
		return
	}
	r.mu.Lock()
	base := r.checkpoints.base.Base
	r.mu.Unlock()
	r.checkpoints.seek(ctx, base)
}

// wanted returns how many members a world has when all workers are there.
func (r *ring) wanted() int {
	if most := r.Job.MaxWorkers; most > 0 {
		return min(r.fleet.wanted(), most)
	}
	return r.fleet.wanted()
}

func (r *ring) update() {
	if writer := r.writer; writer >= 0 && !r.checkpoints.copied() {
		r.writer = -1
		r.release(writer)
	}
	if n := r.fleet.wanted(); n != r.expected {
		r.expected = n
		r.perform(r.meeting.Expect(n, r.now()))
	}
}

func (r *ring) deadline() (time.Time, bool) { return r.meeting.Deadline() }

// tick does what is due. It logs, once, what keeps the ring from working if that lasts.
func (r *ring) tick() {
	r.perform(r.meeting.Tick(r.now()))
	r.forgo()
	switch _, why := r.meeting.Waiting(); {
	case why != r.waiting:
		r.waiting, r.logged = why, false
	case why != "" && !r.logged && !r.works():
		r.logged = true
		r.Log.Info("The ring does not work", "reason", why)
	}
}

// works reports whether the members of a world continue, even if they will be recalled after a
// round.
func (r *ring) works() bool {
	return !r.called && slices.ContainsFunc(r.custody.World().Members, func(m rendezvous.Member) bool {
		s := r.participants[m.Worker]
		return s != nil && s.session == m.Session && !s.waits
	})
}

// remain returns how many members of the last world are left.
func (r *ring) remain() (n int32) {
	for _, m := range r.custody.World().Members {
		if participant := r.participants[m.Worker]; participant != nil && participant.session == m.Session {
			n++
		}
	}
	return n
}

func (r *ring) describe(s *wire.JobStatus) {
	s.World, s.WorldSize = r.custody.World().ID, r.remain()
	if _, why := r.meeting.Waiting(); s.Waiting == "" && !r.stage.Over() && !r.works() {
		s.Waiting = why
		if at, ok := r.meeting.Deadline(); ok && why != "" && r.meeting.Gathers() {
			s.Waiting += fmt.Sprintf(", for at most %v more: then the program starts without "+
				"(--gather_timeout=%v)", max(0, at.Sub(r.now())).Round(time.Second), r.Job.Program.Gather)
		}
	}
}

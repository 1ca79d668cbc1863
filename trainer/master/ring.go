package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/custody"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/ledger"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ring is the strategy of AllreduceStrategy: every worker has the model. The rendezvous decides who works with whom;
// this performs what it decides, and keeps the books of what of the leases is in the model.
type ring struct {
	m       *master
	custody *custody.Ring
	meeting *rendezvous.Rendezvous
	seats   map[int]*seat // by worker
	session int64         // the last that was given
	todo    []rendezvous.Action
	busy    bool // performing todo

	expected int       // workers, as the rendezvous was told
	turned   time.Time // by clock: the last world was formed, or called back at once
	called   bool      // back at once, since then
	rounds   int64     // formation of the newest world that has made a round

	copier int    // worker that makes the checkpoint that is being made
	writer int    // worker that is released when the checkpoint is made that it writes; -1: none
	void   int64  // what comes from this formation or an older one has no state: the checkpoint that it began with is damaged
	damage string // why, until the next life

	waiting string // why there was no world at the last tick
	told    bool   // and that was logged
}

func newRing(m *master) *ring {
	r := &ring{
		m:       m,
		writer:  -1,
		custody: custody.NewRing(1, 0),
		seats:   make(map[int]*seat),
		session: m.firstNumber(),
	}
	r.meeting = rendezvous.New(r.policy())
	return r
}

// policy says how large a world is.
func (r *ring) policy() rendezvous.Policy {
	return rendezvous.Policy{Min: r.m.Job.MinWorkers, Max: r.m.Job.MaxWorkers}
}

// perform performs actions of the rendezvous, in order; performing one may ask for others.
func (r *ring) perform(actions []rendezvous.Action) {
	if r.m.left != nil {
		return // the next master asks who is there
	}
	r.todo = append(r.todo, actions...)
	if r.busy {
		return
	}
	r.busy = true
	defer func() { r.busy = false }()
	for len(r.todo) > 0 && r.m.left == nil {
		a := r.todo[0]
		r.todo = r.todo[1:]
		switch a.Verb {
		case rendezvous.Form:
			r.form(a.World, a.Reason)
		case rendezvous.Recall, rendezvous.Abort:
			if w, _ := r.meeting.World(); a.Verb == rendezvous.Abort && a.Formation == w.Formation { // else one is called that is not in it
				r.turned, r.called = r.now(), true
			}
			r.m.Log.Debug("World recalled", "formation", a.Formation, "verb", a.Verb, "reason", a.Reason)
			r.broadcast(a.Members, &wire.Assembly{Word: &wire.Assembly_Recall{Recall: &wire.Recall{
				Formation: a.Formation, Now: a.Verb == rendezvous.Abort, Joins: !r.leaving(a.Members),
			}}})
		case rendezvous.Evict:
			r.m.replace(pod.ID{Role: pod.Worker, Index: a.Member.Worker}, a.Reason, time.Now())
		case rendezvous.Release:
			r.release(a.Member.Worker)
		case rendezvous.Anew:
			r.anew(a.Reason)
		}
	}
}

// form sends a world to its members. The state that it begins with says what of the leases is in the model.
func (r *ring) form(w rendezvous.World, reason string) {
	if r.m.program != nil {
		if err := r.m.program.judge(r.custody.World(), w); err != nil {
			r.m.end(job.Failed, err, time.Now())
			return
		}
	}
	r.turned, r.called = r.now(), false
	if r.m.program != nil {
		w = r.m.program.source(w)
	}
	state, had, version := r.beginning(w)
	r.m.Log.Info(fmt.Sprintf("World %d formed: %s %v, %s", w.ID, workers(len(w.Members)), w.Members, state), "formation", w.Formation, "reason", cmp.Or(reason, "they joined"))
	r.m.happen(WorldFormed{World: w, Version: version})
	if r.m.gathering {
		if err := r.m.restoreQueue(&had); err != nil { // it is not of this training
			r.m.end(job.Failed, err, time.Now())
			return
		}
		r.m.gathered(state)
	}
	if r.m.program != nil {
		if err := r.m.program.begins(had, version); err != nil {
			r.m.end(job.Failed, err, time.Now())
			return
		}
	}
	r.settle(r.custody.Formed(w, had, version))
	r.m.checkpoints.back(version)
	if err := r.m.remember(); errors.Is(err, ErrSuperseded) { // before anybody is in that world, who is the next master's
		r.m.quit(err)
		return
	}
	world := &wire.World{Id: w.ID, Formation: w.Formation, Floor: r.m.queue.Floor(), Life: r.m.Self.Life(), Settled: int32(r.m.queue.SettledEpochs())}
	if len(w.Sources) == 0 {
		world.Base = wireBase(r.m.checkpoints.base.Base)
	}
	for _, m := range w.Members {
		world.Members = append(world.Members, &wire.Member{Worker: int32(m.Worker), Address: m.Address, Crew: r.seats[m.Worker].arrival.GetCrew()})
	}
	if r.m.program != nil {
		world.Restarts, world.Beginning = int32(r.m.program.restarts), w.Formation
		if len(w.Sources) > 0 && !r.m.program.loaded {
			world.Beginning = r.seats[w.Members[w.Sources[0]].Worker].arrival.Round >> beginnings
		}
	}
	for _, rank := range w.Sources {
		world.Sources = append(world.Sources, int32(rank))
	}
	r.broadcast(w.Members, &wire.Assembly{Word: &wire.Assembly_World{World: world}})
	for _, m := range w.Members {
		s := r.seats[m.Worker]
		s.waits, s.given = false, w.Formation
	}
	r.orderFlush(w.Members)
}

// leaving reports whether one of them was asked to leave.
func (r *ring) leaving(members []rendezvous.Member) bool {
	return slices.ContainsFunc(members, func(m rendezvous.Member) bool { return r.m.contact(pod.ID{Role: pod.Worker, Index: m.Worker}).leaves })
}

// beginning is what a world begins with.
func (r *ring) beginning(w rendezvous.World) (state string, had ledger.Ledger, version int64) {
	base := r.m.checkpoints.base
	switch {
	case len(w.Sources) > 0:
		source := w.Members[w.Sources[0]]
		a := r.seats[source.Worker].arrival
		had, _ := ledger.Parse(a.Ledger) // it was checked when it came
		return fmt.Sprintf("state of %v at version %s", source, logline.Thousands(a.Version)), had, a.Version
	case base.commit != nil:
		return fmt.Sprintf("from checkpoint %d at version %s", base.Number, logline.Thousands(base.version())), base.had().Clone(), base.version()
	}
	if r.m.program != nil { // what it begins with it alone knows
		return "the program starts", had, 0
	}
	return "from the initial values", had, 0
}

// wireBase is what a life begins with, as holders are told; nil: the initial values.
func wireBase(b custody.Base) *wire.Base {
	if b.Number == 0 {
		return nil
	}
	return &wire.Base{Dir: b.Dir, Number: b.Number, Fresh: b.Fresh}
}

// seated says that a member has its seat.
func (r *ring) seated(m rendezvous.Member) bool {
	s := r.seats[m.Worker]
	return s != nil && s.session == m.Session
}

// settle takes back the leases of workers that are gone.
func (r *ring) settle(all []custody.Settlement) {
	for _, s := range all {
		progress := make(map[int64]int64)
		for _, l := range r.m.queue.Held(s.Worker) {
			if l.Kind == task.Training {
				n, whole := s.Had.Had(ledger.Task{Epoch: l.Epoch, Number: l.Number})
				if whole {
					n = l.Records()
				}
				progress[l.ID] = n
			}
		}
		r.m.lose(s.Worker, progress, s.Charge)
	}
}

// workers is so many of them, in words.
func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// anew begins the training anew, or again with the last checkpoint; or goes on as if this life had not begun, if nothing was credited.
func (r *ring) anew(reason string) {
	life := r.custody.Life()
	began := r.m.checkpoints.base.records()
	why := "every worker was lost, and the model with them: " + reason
	if r.damage != "" {
		why = r.damage
	}
	begun := r.m.queue.Stats().Done > began || r.damage != "" || r.m.gathering && !r.m.untouched()
	gone := r.custody.Lost(begun, r.m.checkpoints.covered())
	r.damage = ""
	switch now := r.custody.Life(); {
	case now != life && r.m.gathering:
		r.m.lostMeanwhile(now, why)
		return
	case now != life:
		r.m.anew(now, why)
		return
	}
	for _, worker := range r.m.queue.Workers() { // also those whose pods have ended, and whose leases were to be taken back soon
		r.m.lose(worker, nil, gone[worker])
	}
}

// broadcast sends a word to members of a world, as far as they are there.
func (r *ring) broadcast(members []rendezvous.Member, word *wire.Assembly) {
	for _, m := range members {
		if r.seated(m) {
			r.seats[m.Worker].send(word)
		}
	}
}

func (r *ring) now() time.Time { return r.m.clock(time.Now()) }

func (r *ring) version() int64   { return r.custody.Version() }
func (r *ring) applied(int) bool { return true }

// whole says that nothing is left in the accumulators of --global_batch_size, and has it applied if there is. With
// the answer comes the version of the trained model, which no heartbeat before has told.
func (r *ring) whole() bool {
	if r.m.queue.Stats().Done == 0 {
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

// heard takes a worker's word of its state.
func (r *ring) heard(id pod.ID, _ int64, beat *wire.HeartbeatRequest, reply *wire.HeartbeatReply) {
	r.rounds = max(r.rounds, beat.Formation)
	snapshot, settled := r.custody.Heard(custody.State{Formation: beat.Formation, Version: beat.Version, Snapshot: beat.Snapshot, Flushed: beat.Flushed})
	if snapshot > 0 {
		r.m.snapshot(0, snapshot)
	}
	r.settle(settled)
	r.recover(beat, reply)
	reply.ReleaseSnapshot, reply.Settled = r.m.evals.Release(), int32(r.m.queue.SettledEpochs())
	if id.Index == r.copier {
		r.m.checkpoints.heard(0, beat.Cut, r.now())
		reply.Cut = r.m.checkpoints.ended()
	}
}

// recover goes on with a world that has outlived the master before, as soon as a member says what is in the model for good.
func (r *ring) recover(beat *wire.HeartbeatRequest, reply *wire.HeartbeatReply) {
	w := r.custody.World()
	if !r.m.gathering || w.Formation == 0 || beat.Formation != w.Formation {
		return
	}
	var had ledger.Ledger
	var err error
	if r.m.program == nil || r.m.program.dataset != nil { // else there are no records
		if reply.Ledger = len(beat.Ledger) == 0; reply.Ledger {
			return
		}
		had, err = ledger.Parse(beat.Ledger)
	}
	if err == nil {
		err = r.m.restoreQueue(&had)
	}
	if err != nil { // it is not of this training
		r.m.end(job.Failed, fmt.Errorf("what worker-%d says of the model: %w", beat.Index, err), time.Now())
		return
	}
	r.m.gathered(fmt.Sprintf("world %d works", w.ID))
	r.settle(r.custody.Recovered(had))
}

// there says that there is a world whose members have the model.
func (r *ring) there() bool { return r.works() }

// copy has a member of the world copy what it has: one that was asked to leave, if all were.
func (r *ring) copy(o custody.CutOrder) {
	var copier *seat
	for _, member := range r.custody.World().Members {
		leaves := r.m.contact(pod.ID{Role: pod.Worker, Index: member.Worker}).leaves
		if r.seated(member) && (copier == nil || !leaves) {
			if copier = r.seats[member.Worker]; !leaves {
				break
			}
		}
	}
	if copier == nil {
		r.m.checkpoints.giveUp("no worker has the model", r.now())
		return
	}
	r.copier = copier.worker
	copier.send(&wire.Assembly{Word: &wire.Assembly_Cut{Cut: o.Number}})
}

func (r *ring) kept(custody.Base) {}

// bereft gives up the checkpoint that a worker makes that is gone.
func (r *ring) bereft(worker int) {
	if worker == r.writer {
		r.writer = -1
	}
	if worker == r.copier {
		r.m.checkpoints.giveUp(fmt.Sprintf("worker-%d, which made it, is gone", worker), r.now())
	}
}

// damaged notes that the world that a worker comes from cannot begin, as the checkpoint that it is to begin with cannot be read. What its
// other members have is void.
func (r *ring) damaged(a *wire.Arrival) {
	base := r.m.checkpoints.base
	if a.Damage == "" || base.commit == nil || a.Formation <= r.void || r.m.over {
		return
	}
	r.void = a.Formation
	r.damage = fmt.Sprintf("checkpoint %d, with which the model was to begin, cannot be used: %s", base.Number, a.Damage)
	r.m.checkpoints.damaged(base.Base, errors.New(a.Damage))
}

// seek finds what is before the checkpoint that a worker could not begin with, before its word is taken. The mutex is not held.
func (r *ring) seek(ctx context.Context, a *wire.Arrival) {
	if a.Damage == "" {
		return
	}
	r.m.mu.Lock()
	base := r.m.checkpoints.base.Base
	r.m.mu.Unlock()
	r.m.checkpoints.seek(ctx, base)
}

// gone makes the others meet without a worker that has ended.
func (r *ring) gone(id pod.ID, _ int, reason string) {
	delete(r.seats, id.Index)
	r.bereft(id.Index)
	if !r.m.over {
		r.perform(r.meeting.Leave(id.Index, 0, reason, r.now()))
	}
}

// departs has the others go on without a worker that was asked to go, as soon as they can.
func (r *ring) departs(worker int) {
	s := r.seats[worker]
	switch {
	case r.m.over:
		return
	case s == nil: // it has not come yet
		r.release(worker)
		return
	}
	r.perform(r.meeting.Depart(worker, r.now()))
	if r.meeting.Last(worker, s.session) {
		r.m.Log.Warn("The only worker that has the model was asked to leave: it stays until another has it, or its grace is over", "worker", worker)
	}
}

// release lets a worker go that was asked to: when the checkpoint is made that it writes, if it does. What it has leased is not waited for.
func (r *ring) release(worker int) {
	if worker == r.copier && r.m.checkpoints.copied() {
		r.writer = worker
		r.reclaim(worker, "")
		return
	}
	r.m.Log.Info("Worker released", "worker", worker)
	r.m.dismiss(pod.ID{Role: pod.Worker, Index: worker}, "released")
}

// dismiss takes the leases of a worker back that is not part of the ring any more, whether or not it has ended: nothing
// it does reaches the model.
func (r *ring) dismiss(id pod.ID, reason string) {
	r.gone(id, 0, reason)
	r.reclaim(id.Index, "")
}

// takeBack takes the leases of a worker that has ended.
func (r *ring) takeBack(_ context.Context, worker int, charge string) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if !r.m.over {
		r.reclaim(worker, charge)
		r.m.advance(time.Now())
	}
}

// reclaim takes a worker's leases back, at once or when it is certain what of them is in the model.
func (r *ring) reclaim(worker int, charge string) {
	if held := r.m.queue.Held(worker); len(held) > 0 {
		trains := slices.ContainsFunc(held, func(l task.Lease) bool { return l.Kind == task.Training })
		r.settle(r.custody.Reclaim(worker, trains, charge))
	}
}

// away says that the members of the world read the checkpoint that it begins with: whose storage does not answer tries again for some
// time, and the others wait for it. Else the ring waits for nobody but its members.
func (r *ring) away() bool {
	w := r.custody.World()
	begins := len(w.Members) > 0 && len(w.Sources) == 0 && r.m.checkpoints.base.Number > 0 && r.rounds < w.Formation
	return begins && !r.called && r.now().Sub(r.turned) < timing.Storage+timing.StoragePause
}

// stragglers is one member at most while the ring works: its members wait for one another, so any of them may be the
// cause. Without that one the others meet. If it was another who kept them waiting, that one does not come. Nobody
// is one who has not had the time since the last world, or since all were called back.
func (r *ring) stragglers(overdue []int) []int {
	rested := r.now().Sub(r.turned) >= r.m.Job.TaskTimeout.Duration
	named := false
	return slices.DeleteFunc(overdue, func(worker int) bool {
		s := r.seats[worker]
		switch {
		case s == nil || s.away && s.waits:
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
	return r.m.Job.HeartbeatTimeout.Duration
}

func (r *ring) update() {
	if writer := r.writer; writer >= 0 && !r.m.checkpoints.copied() {
		r.writer = -1
		r.release(writer)
	}
	if n := r.m.table.Workers(); n != r.expected {
		r.expected = n
		r.perform(r.meeting.Expect(n, r.now()))
	}
}

func (r *ring) deadline() (time.Time, bool) { return r.meeting.Deadline() }

// tick does what is due. What keeps the ring from working is logged, once, when it lasts.
func (r *ring) tick() {
	r.perform(r.meeting.Tick(r.now()))
	r.forgo()
	switch _, why := r.meeting.Waiting(); {
	case why != r.waiting:
		r.waiting, r.told = why, false
	case why != "" && !r.told && !r.works():
		r.told = true
		r.m.Log.Info("The ring does not work", "reason", why)
	}
}

// works says that members go on, also if they will come back after a round.
func (r *ring) works() bool {
	return !r.called && slices.ContainsFunc(r.custody.World().Members, func(m rendezvous.Member) bool {
		s := r.seats[m.Worker]
		return s != nil && s.session == m.Session && !s.waits
	})
}

func (r *ring) describe(s *wire.JobStatus) {
	s.World = r.custody.World().ID
	for _, m := range r.custody.World().Members {
		if seat := r.seats[m.Worker]; seat != nil && seat.session == m.Session {
			s.WorldSize++
		}
	}
	if _, why := r.meeting.Waiting(); s.Waiting == "" && !r.m.over && !r.works() {
		s.Waiting = why
	}
}

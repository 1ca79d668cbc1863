package master

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ring is the strategy of AllreduceStrategy: every worker has the model. The rendezvous decides who works with whom;
// this performs what it decides, and keeps the books of what of the leases is in the model.
type ring struct {
	*master
	meeting *rendezvous.Rendezvous
	seats   map[int]*seat // by worker
	session int64         // the last that was given
	todo    []rendezvous.Action
	busy    bool // performing todo

	expected int              // workers, as the rendezvous was told
	world    rendezvous.World // the last; a member may be gone
	newest   int64            // version
	ledger   map[int64]int64  // by lease: the records of it in the state that the last world began with
	lost     map[int]string   // workers that are gone, with their charge: what of their leases is in the state, a world without them says that is safe
	safe     bool             // no death of members of the last world can take back what it began with
	shared   bool             // all of its members are known to have that
	first    int64            // formation with which this model began: heartbeats from before are of one that is lost
	turned   time.Time        // by clock: the last world was formed, or called back at once
	called   bool             // back at once, since then

	snapshot int64 // the newest that a worker has
	flushing bool  // the training is done, and what was accumulated is to be applied
	flush    int64 // the number of that order
	flushed  int64 // of the last that was done

	waiting string // why there was no world at the last tick
	told    bool   // and that was logged
}

func newRing(m *master) *ring {
	j := m.Job
	return &ring{
		master:  m,
		meeting: rendezvous.New(rendezvous.Policy{Min: j.MinWorkers, Max: j.MaxWorkers}),
		seats:   make(map[int]*seat),
		lost:    make(map[int]string),
	}
}

// do performs actions of the rendezvous, in order; performing one may ask for others.
func (r *ring) do(actions []rendezvous.Action) {
	r.todo = append(r.todo, actions...)
	if r.busy {
		return
	}
	r.busy = true
	defer func() { r.busy = false }()
	for len(r.todo) > 0 {
		a := r.todo[0]
		r.todo = r.todo[1:]
		switch a.Verb {
		case rendezvous.Form:
			r.form(a.World, a.Reason)
		case rendezvous.Recall, rendezvous.Abort:
			if a.Verb == rendezvous.Abort {
				r.turned, r.called = r.now(), true
			}
			r.Log.Debug("World recalled", "formation", a.Formation, "verb", a.Verb, "reason", a.Reason)
			r.tell(a.Members, &wire.Assembly{Word: &wire.Assembly_Recall{Recall: &wire.Recall{
				Formation: a.Formation, Now: a.Verb == rendezvous.Abort,
			}}})
		case rendezvous.Evict:
			r.replace(pod.ID{Role: pod.Worker, Index: a.Member.Worker}, a.Reason, time.Now())
		case rendezvous.Release:
			r.release(a.Member.Worker)
		case rendezvous.Anew:
			r.anew(a.Reason)
		}
	}
}

// form sends a world to its members. The state that it begins with says what of the leases is in the model.
func (r *ring) form(w rendezvous.World, reason string) {
	r.safe, r.shared = !r.behind(w), len(w.Sources) == 0
	r.world, r.turned, r.called = w, r.now(), false
	state, version := "from the initial values", int64(0)
	if len(w.Sources) == 0 {
		r.first, r.ledger = w.Formation, nil
	} else {
		source := w.Members[w.Sources[0]]
		a := r.seats[source.Worker].arrival
		r.ledger = progress(a.Ledger)
		r.newest, version = max(r.newest, a.Version), a.Version
		state = fmt.Sprintf("state of %v at version %d", source, a.Version)
	}
	r.Log.Info(fmt.Sprintf("World %d formed: %s %v, %s", w.ID, workers(len(w.Members)), w.Members, state), "formation", w.Formation, "reason", cmp.Or(reason, "they joined"))
	r.happen(WorldFormed{World: w, Version: version})
	r.settleLost()
	world := &wire.World{Id: w.ID, Formation: w.Formation, Floor: r.queue.Floor(), Life: r.Self.Life()}
	for _, m := range w.Members {
		world.Members = append(world.Members, &wire.Member{Worker: int32(m.Worker), Address: m.Address})
	}
	for _, rank := range w.Sources {
		world.Sources = append(world.Sources, int32(rank))
	}
	r.tell(w.Members, &wire.Assembly{Word: &wire.Assembly_World{World: world}})
	for _, m := range w.Members {
		s := r.seats[m.Worker]
		s.waits, s.given = false, w.Formation
	}
	r.orderFlush(w.Members)
}

// behind says whether a world has members with an older state than that which it begins with: should all who have that
// one die before the others have it, the older one is the model.
func (r *ring) behind(w rendezvous.World) bool {
	for rank, m := range w.Members {
		if slices.Contains(r.world.Members, m) && !slices.Contains(w.Sources, rank) {
			return len(w.Sources) > 0
		}
	}
	return false
}

// alone says that the state is lost with one member, as far as is known: the others are newcomers that may have yet to take it.
func (r *ring) alone(s *seat) bool {
	if r.shared || !r.safe {
		return false
	}
	source := false
	for _, rank := range r.world.Sources {
		m := r.world.Members[rank]
		o := r.seats[m.Worker]
		switch {
		case o == nil || o.session != m.Session:
		case o != s:
			return false
		default:
			source = true
		}
	}
	return source
}

// settleLost takes back the leases of those that are lost, if it is certain what of them is in the model.
func (r *ring) settleLost() {
	if !r.safe {
		return
	}
	for _, worker := range slices.Sorted(maps.Keys(r.lost)) {
		if charge := r.lost[worker]; !r.member(worker) {
			delete(r.lost, worker)
			r.lose(worker, r.ledger, charge)
		}
	}
}

// workers is so many of them, in words.
func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

func progress(ledger []*wire.LeaseProgress) map[int64]int64 {
	all := make(map[int64]int64, len(ledger))
	for _, l := range ledger {
		all[l.Lease] = l.Done
	}
	return all
}

// anew begins the training anew, or goes on as if it had not begun, if nothing was credited. What the workers hold is void
// in either case: a minibatch may be in the state that is lost, and not be told yet.
func (r *ring) anew(reason string) {
	r.first = math.MaxInt64 // until the next world is formed
	lost := r.lost
	r.lost = make(map[int]string)
	stats := r.queue.Stats()
	if stats.Done == 0 && r.newest == 0 {
		holders := maps.Clone(lost)
		for id := range r.pods {
			holders[id.Index] = lost[id.Index]
		}
		for _, worker := range slices.Sorted(maps.Keys(holders)) {
			r.lose(worker, nil, lost[worker])
		}
		return
	}
	r.newest, r.snapshot, r.flushing, r.ledger = 0, 0, false, nil
	r.master.anew(r.Self.Life()+1, "every worker was lost, and the model with them: "+reason)
}

// tell sends a word to members of a world, as far as they are there.
func (r *ring) tell(members []rendezvous.Member, word *wire.Assembly) {
	for _, m := range members {
		if s := r.seats[m.Worker]; s != nil && s.session == m.Session {
			s.say(word)
		}
	}
}

func (r *ring) now() time.Time { return r.clock(time.Now()) }

// member says whether a worker is, or was, in the last world.
func (r *ring) member(worker int) bool {
	return slices.ContainsFunc(r.world.Members, func(m rendezvous.Member) bool { return m.Worker == worker })
}

func (r *ring) version() int64   { return r.newest }
func (r *ring) applied(int) bool { return true }

// whole says that nothing is left in the accumulators of --global_batch_size, and has it applied if there is. With
// the answer comes the version of the trained model, which no heartbeat before has told.
func (r *ring) whole() bool {
	if r.queue.Stats().Done == 0 {
		return true
	}
	if !r.flushing {
		r.flushing = true
		r.flush++
		r.orderFlush(r.world.Members)
	}
	return r.flushed >= r.flush
}

func (r *ring) orderFlush(members []rendezvous.Member) {
	if r.flushing && r.flushed < r.flush {
		r.tell(members, &wire.Assembly{Word: &wire.Assembly_Flush{Flush: r.flush}})
	}
}

// heard takes a worker's word of its state. The state is every worker's, so the newest word counts: one
// that was late, or has it yet to copy, takes nothing back.
func (r *ring) heard(_ pod.ID, _ int64, beat *wire.HeartbeatRequest, reply *wire.HeartbeatReply) {
	if f := beat.Formation; f == 0 || f >= r.first {
		r.newest = max(r.newest, beat.Version)
		r.flushed = max(r.flushed, beat.Flushed)
		if beat.Snapshot > r.snapshot {
			r.snapshot = beat.Snapshot
			r.master.snapshot(0, beat.Snapshot)
		}
	}
	if beat.Formation == r.world.Formation && !r.shared { // its members have come through the beginning of a round
		r.safe, r.shared = true, true
		r.settleLost()
	}
	reply.ReleaseSnapshot, reply.Floor = r.evals.Release(), r.queue.Floor()
}

// gone makes the others meet without a worker that has ended.
func (r *ring) gone(id pod.ID, _ int, reason string) {
	delete(r.seats, id.Index)
	if !r.over {
		r.do(r.meeting.Leave(id.Index, 0, reason, r.now()))
	}
}

// departs has the others go on without a worker that was asked to go, as soon as they can.
func (r *ring) departs(worker int) {
	s := r.seats[worker]
	switch {
	case r.over:
		return
	case s == nil: // it has not come yet
		r.release(worker)
		return
	}
	r.do(r.meeting.Depart(worker, r.now()))
	if r.meeting.Last(worker, s.session) {
		r.Log.Warn("The only worker that has the model was asked to leave: it stays until another has it, or its grace is over", "worker", worker)
	}
}

// release lets a worker go that was asked to.
func (r *ring) release(worker int) {
	r.Log.Info("Worker released", "worker", worker)
	r.master.dismiss(pod.ID{Role: pod.Worker, Index: worker}, "released")
}

// dismiss takes the leases of a worker back that is not part of the ring any more, whether or not it has ended: nothing
// it does reaches the model.
func (r *ring) dismiss(id pod.ID, reason string) {
	r.gone(id, 0, reason)
	r.reclaim(id.Index, "")
}

// takeBack takes the leases of a worker that has ended.
func (r *ring) takeBack(_ context.Context, worker int, charge string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.reclaim(worker, charge)
		r.advance(time.Now())
	}
}

// reclaim takes a worker's leases back: when a world without it is safe, if there may be something of it in the model.
func (r *ring) reclaim(worker int, charge string) {
	held := r.queue.Held(worker)
	training := slices.ContainsFunc(held, func(l task.Lease) bool { return l.Kind == task.Training })
	switch {
	case training && (r.member(worker) || !r.safe):
		r.lost[worker] = cmp.Or(charge, r.lost[worker])
	case len(held) > 0:
		r.lose(worker, r.ledger, charge)
	}
}

// stragglers is one member at most while the ring works: its members wait for one another, so any of them may be the
// cause. Without that one the others meet. If it was another who kept them waiting, that one does not come. Nobody
// is one who has not had the time since the last world, or since all were called back.
func (r *ring) stragglers(overdue []int) []int {
	rested := r.now().Sub(r.turned) >= r.Job.TaskTimeout.Duration
	named := false
	return slices.DeleteFunc(overdue, func(worker int) bool {
		s := r.seats[worker]
		switch {
		case s == nil:
			_, lost := r.lost[worker]
			return lost
		case s.waits || !rested:
			return true
		case r.called || !r.member(worker):
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

func (r *ring) update() {
	if n := r.table.Workers(); n != r.expected {
		r.expected = n
		r.do(r.meeting.Expect(n, r.now()))
	}
}

func (r *ring) deadline() (time.Time, bool) { return r.meeting.Deadline() }

// tick does what is due. What keeps the ring from working is logged, once, when it lasts.
func (r *ring) tick() {
	r.do(r.meeting.Tick(r.now()))
	switch _, why := r.meeting.Waiting(); {
	case why != r.waiting:
		r.waiting, r.told = why, false
	case why != "" && !r.told && !r.works():
		r.told = true
		r.Log.Info("The ring does not work", "reason", why)
	}
}

// works says that members go on, also if they will come back after a round.
func (r *ring) works() bool {
	return !r.called && slices.ContainsFunc(r.world.Members, func(m rendezvous.Member) bool {
		s := r.seats[m.Worker]
		return s != nil && s.session == m.Session && !s.waits
	})
}

func (r *ring) describe(s *wire.JobStatus) {
	s.World = r.world.ID
	for _, m := range r.world.Members {
		if seat := r.seats[m.Worker]; seat != nil && seat.session == m.Session {
			s.WorldSize++
		}
	}
	if _, why := r.meeting.Waiting(); s.Waiting == "" && !r.over && !r.works() {
		s.Waiting = why
	}
}

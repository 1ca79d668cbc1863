package custody

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/ledger"
	"github.com/elasticdl/elasticdl/trainer/rendezvous"
)

// Ring is the custody of a model that every worker of a ring holds.
type Ring struct {
	life  int64
	lives int64            // the highest that may have begun
	world rendezvous.World // the last; a member may be gone
	first int64            // formation with which this life began: what is said from before is of one that is lost

	newest   int64 // version that any worker had in this life
	version  int64 // that the model is at: who had the newest may be gone
	snapshot int64 // the newest that a worker has

	began  int64          // version that this life begins with
	ledger ledger.Ledger  // what the last world began with
	lost   map[int]string // workers that are gone, with their charge: what of their leases is in the model, a world without them says that is safe
	safe   bool           // no death of members of the last world can take back what it began with
	shared bool           // all of its members are known to have that

	flushing bool  // the training is done, and what was accumulated is to be applied
	flush    int64 // the number of that order
	flushed  int64 // of the last that was done
}

// Settlement is what becomes of the leases of a worker that is gone: what of them is in the model, and why it is charged.
type Settlement struct {
	Worker int
	Had    ledger.Ledger // of all tasks; not to be changed
	Charge string
}

// NewRing makes the custody of a ring that has not met, in a life that begins with a model at a version.
func NewRing(life, version int64) *Ring {
	return &Ring{life: life, lives: life, newest: version, version: version, began: version, lost: make(map[int]string)}
}

// Life returns the life of the model.
func (r *Ring) Life() int64 { return r.life }

// Lives returns the highest life that may have begun.
func (r *Ring) Lives() int64 { return r.lives }

// Counts reports whether what a member says is of this life, as the formation tells of which it says it; 0: it was in none, and has nothing.
func (r *Ring) Counts(formation int64) bool { return formation == 0 || formation >= r.first }

// World returns the last world.
func (r *Ring) World() rendezvous.World { return r.world }

// Version returns the version that the model is at: what the last world began with, or what was told since. What members tell all of
// them have, and what a world is to begin with one may have alone, and be gone.
func (r *Ring) Version() int64 { return r.version }

// Formed takes a world that begins with a state which has the records of a ledger in it, a member's or what the life begins with. It
// returns the leases that can be taken back now.
func (r *Ring) Formed(w rendezvous.World, had ledger.Ledger, version int64) []Settlement {
	r.safe, r.shared = !r.behind(w), len(w.Sources) == 0
	r.world, r.ledger = w, had
	if len(w.Sources) == 0 {
		r.first = w.Formation
	}
	r.newest, r.version = max(r.newest, version), version
	return r.settle()
}

// behind reports whether a world has members with an older state than that which it begins with: should all who have that
// one die before the others have it, the older one is the model.
func (r *Ring) behind(w rendezvous.World) bool {
	for rank, m := range w.Members {
		if slices.Contains(r.world.Members, m) && !slices.Contains(w.Sources, rank) {
			return len(w.Sources) > 0
		}
	}
	return false
}

// settle returns the leases of those that are lost, if it is certain what of them is in the model.
func (r *Ring) settle() (all []Settlement) {
	if !r.safe {
		return nil
	}
	for _, worker := range slices.Sorted(maps.Keys(r.lost)) {
		if charge := r.lost[worker]; !r.Member(worker) {
			delete(r.lost, worker)
			all = append(all, Settlement{worker, r.ledger, charge})
		}
	}
	return all
}

// Reclaim takes a worker's leases back: at once, or when a world without it is safe, if there may be something of them in
// the model, as of those to train on.
func (r *Ring) Reclaim(worker int, trains bool, charge string) []Settlement {
	if trains && (r.Member(worker) || !r.safe) {
		r.lost[worker] = cmp.Or(charge, r.lost[worker])
		return nil
	}
	return []Settlement{{worker, r.ledger, charge}}
}

// Missed reports whether a worker is gone, and its leases wait for a world without it.
func (r *Ring) Missed(worker int) bool {
	_, ok := r.lost[worker]
	return ok
}

// Member reports whether a worker is, or was, in the last world.
func (r *Ring) Member(worker int) bool {
	return slices.ContainsFunc(r.world.Members, func(m rendezvous.Member) bool { return m.Worker == worker })
}

// State is a member's word of the model that it has.
type State struct {
	Formation int64 // of the world that it is of, 0 if none
	Version   int64
	Snapshot  int64 // the version whose snapshot it holds, 0 if none
	Flushed   int64 // the last order to apply what is accumulated that it has done
}

// Heard takes a member's word. The state is every member's, so the newest word counts: one that was late, or has it yet to
// copy, takes nothing back. It returns the snapshot that is news, 0 if none, and the leases that can be taken back now.
func (r *Ring) Heard(s State) (snapshot int64, settled []Settlement) {
	if r.Counts(s.Formation) {
		r.newest, r.version = max(r.newest, s.Version), max(r.version, s.Version)
		r.flushed = max(r.flushed, s.Flushed)
		if s.Snapshot > r.snapshot {
			r.snapshot = s.Snapshot
			snapshot = s.Snapshot
		}
	}
	if s.Formation == r.world.Formation && !r.shared { // its members have come through the beginning of a round
		r.safe, r.shared = true, true
		settled = r.settle()
	}
	return snapshot, settled
}

// Lost notes that every member is gone, and the model with them. What the members hold is void, also if nothing was
// credited: a minibatch may be in the state that is lost, and not be told yet. If something was, as begun says, a new life begins,
// with a model at a version. It returns those that were gone before, with their charges.
func (r *Ring) Lost(begun bool, version int64) (gone map[int]string) {
	r.first = math.MaxInt64 // until the next world is formed
	gone, r.lost = r.lost, make(map[int]string)
	if begun || r.newest > r.began {
		r.newest, r.version, r.began, r.snapshot, r.flushing, r.ledger = version, version, version, 0, false, ledger.Ledger{}
		r.lives++
		r.life = r.lives
	}
	return gone
}

// Flush orders that what is accumulated is applied, once in a life. It returns the order if it is new, 0 if not.
func (r *Ring) Flush() int64 {
	if r.flushing {
		return 0
	}
	r.flushing = true
	r.flush++
	return r.flush
}

// Owed returns the order to apply what is accumulated that was not done yet, 0 if there is none.
func (r *Ring) Owed() int64 {
	if r.flushing && r.flushed < r.flush {
		return r.flush
	}
	return 0
}

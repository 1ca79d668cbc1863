package custody

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// Ring is the custody of a model that every worker of a ring holds. It is not safe for concurrent
// use.
type Ring struct {
	modelGeneration int64
	// the highest model generation that may have begun
	highestGeneration int64
	// the last one formed; members of it may be lost since
	world rendezvous.World
	// generation of the world with which this model generation began: reports from earlier worlds
	// are of a lost model
	first int64

	// newest version that any worker had in this model generation
	newest int64
	// version that the model is at: below newest if the workers that had newest are lost
	version int64
	// version of the newest snapshot that a worker has
	snapshot int64

	// version that this model generation began with
	startVersion int64
	// records in the state that the last world began with
	ledger ledger.Ledger
	// fault of each lost worker whose leases wait until a safe world without it tells which of
	// their records are in the model
	lost map[int]string
	// the state that the last world began with survives the loss of any of its members
	safe bool
	// all members of the last world are known to have that state
	shared bool

	// the training is done, and the accumulated gradients are to be applied
	flushing bool
	// number of the last order to apply them
	flush int64
	// number of the last such order that was carried out
	flushed int64
}

// Settlement tells what is to be done with the leases of a lost worker.
type Settlement struct {
	Worker int
	// the records that are in the model, of all tasks; not to be changed
	Ledger ledger.Ledger
	// the failure that the leases count as; "": none
	Fault string
}

// NewRing returns the custody of a ring whose workers have not met yet, in a model generation that
// begins with a model at that version.
func NewRing(modelGeneration, version int64) *Ring {
	return &Ring{modelGeneration: modelGeneration, highestGeneration: modelGeneration, newest: version,
		version: version, startVersion: version, lost: make(map[int]string)}
}

// ModelGeneration returns the model generation.
func (r *Ring) ModelGeneration() int64 { return r.modelGeneration }

// HighestGeneration returns the highest model generation that may have begun.
func (r *Ring) HighestGeneration() int64 { return r.highestGeneration }

// Counts reports whether a member's report, which names the generation of its world, is of this
// model generation. 0 stands for a worker that was in no world and has no model.
func (r *Ring) Counts(generation int64) bool { return generation == 0 || generation >= r.first }

// World returns the last world.
func (r *Ring) World() rendezvous.World { return r.world }

// Version returns the version that the model is at: the one that the last world began with, or a
// newer one that a member reported since. It falls when a world begins with an older state, because
// the workers that had the newer one are lost.
func (r *Ring) Version() int64 { return r.version }

// Formed takes a new world and the state that it begins with: the records in it, and its version.
// The state is that of a member, or what the model generation begins with. It returns the leases
// that can be taken back now.
func (r *Ring) Formed(w rendezvous.World, applied ledger.Ledger, version int64) []Settlement {
	r.safe, r.shared = len(w.Behind) == 0, len(w.Sources) == 0
	r.world, r.ledger = w, applied
	if len(w.Sources) == 0 {
		r.first = w.Generation
	}
	r.newest, r.version = max(r.newest, version), version
	return r.settle()
}

// settle returns the leases of lost workers, if it is certain which of their records are in the
// model.
func (r *Ring) settle() (all []Settlement) {
	if !r.safe {
		return nil
	}
	for _, worker := range slices.Sorted(maps.Keys(r.lost)) {
		if fault := r.lost[worker]; !r.Member(worker) {
			delete(r.lost, worker)
			all = append(all, Settlement{worker, r.ledger, fault})
		}
	}
	return all
}

// Shared reports whether all members of the last world are known to have the state that it began
// with.
func (r *Ring) Shared() bool { return r.shared }

// Reclaim takes a lost worker's leases back. Where trains is set, records of them may be in the
// model: then the leases wait until a world without the worker is safe.
func (r *Ring) Reclaim(worker int, trains bool, fault string) []Settlement {
	if trains && (r.Member(worker) || !r.safe) {
		r.lost[worker] = cmp.Or(fault, r.lost[worker])
		return nil
	}
	return []Settlement{{worker, r.ledger, fault}}
}

// Missed reports whether a worker is lost, and its leases wait for a safe world without it.
func (r *Ring) Missed(worker int) bool {
	_, ok := r.lost[worker]
	return ok
}

// Member reports whether a worker is, or was, in the last world.
func (r *Ring) Member(worker int) bool {
	return slices.ContainsFunc(r.world.Members, func(m rendezvous.Member) bool { return m.Worker == worker })
}

// State is a member's report of its model.
type State struct {
	// of the newest world of which the member is known to have the state that it began with, 0 if
	// none
	Generation int64
	// of its model
	Version int64
	// version of the snapshot that it holds, 0 if none
	Snapshot int64
	// number of the last order to apply the accumulated gradients that it has carried out
	Flushed int64
}

// Heard takes a member's report. All members have the same state after a round, so the newest
// report counts, and a late or older one changes nothing. It returns the version of a snapshot that
// was not known before, 0 if none, and the leases that can be taken back now.
func (r *Ring) Heard(s State) (snapshot int64, settled []Settlement) {
	if r.Counts(s.Generation) {
		r.newest, r.version = max(r.newest, s.Version), max(r.version, s.Version)
		r.flushed = max(r.flushed, s.Flushed)
		if s.Snapshot > r.snapshot {
			r.snapshot = s.Snapshot
			snapshot = s.Snapshot
		}
	}
	// its members have come through the beginning of a round
	if s.Generation == r.world.Generation && !r.shared {
		r.safe, r.shared = true, true
		settled = r.settle()
	}
	return snapshot, settled
}

// Lost notes that every member is lost, and the model with them. Later reports of those members do
// not count. A new model generation begins, with a model at version, if begun says that records
// were credited in this one, or a member has reported an update. It returns the faults of the
// workers whose leases waited.
func (r *Ring) Lost(begun bool, version int64) (gone map[int]string) {
	r.first = math.MaxInt64 // until the next world is formed
	gone, r.lost = r.lost, make(map[int]string)
	if begun || r.newest > r.startVersion {
		r.newest, r.version, r.startVersion, r.snapshot, r.flushing, r.ledger = version, version, version, 0,
			false, ledger.Ledger{}
		r.highestGeneration++
		r.modelGeneration = r.highestGeneration
	}
	return gone
}

// Flush orders that the accumulated gradients are applied, once in a model generation. It returns
// the number of the order if it is new, 0 if not.
func (r *Ring) Flush() int64 {
	if r.flushing {
		return 0
	}
	r.flushing = true
	r.flush++
	return r.flush
}

// Owed returns the number of the order to apply the accumulated gradients, 0 if there is none or it
// was carried out.
func (r *Ring) Owed() int64 {
	if r.flushing && r.flushed < r.flush {
		return r.flush
	}
	return 0
}

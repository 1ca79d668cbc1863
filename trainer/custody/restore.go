package custody

import (
	"github.com/elasticdl/elasticdl/trainer/ledger"
	"github.com/elasticdl/elasticdl/trainer/rendezvous"
)

// SavedRing is what a [Ring] knows beside its life and its world.
type SavedRing struct {
	First    int64 `json:"first,omitempty"`    // formation with which the life began
	Newest   int64 `json:"newest,omitempty"`   // version
	Snapshot int64 `json:"snapshot,omitempty"` // the newest that a worker has
	Began    int64 `json:"began,omitempty"`    // version that the life begins with
	Flushing bool  `json:"flushing,omitempty"` // what was accumulated is to be applied
	Flush    int64 `json:"flush,omitempty"`    // the number of that order
	Flushed  int64 `json:"flushed,omitempty"`  // of the last that was done
}

// Save returns what [RestoreRing] takes.
func (r *Ring) Save() SavedRing {
	return SavedRing{First: r.first, Newest: r.newest, Snapshot: r.snapshot, Began: r.began, Flushing: r.flushing, Flush: r.flush, Flushed: r.flushed}
}

// RestoreRing makes the custody of a master that has come back, in a life, with the last world of the one before. What of the leases is in the
// state is not known until a member tells ([Ring.Recovered]), or the next world is formed, so nothing is taken back before that. The next life
// is later than lives.
func RestoreRing(life, lives int64, world rendezvous.World, s SavedRing) *Ring {
	r := NewRing(life, s.Began)
	r.lives = max(life, lives)
	r.world, r.first, r.newest, r.snapshot = world, s.First, max(s.Newest, s.Began), s.Snapshot
	r.flushing, r.flush, r.flushed = s.Flushing, s.Flush, s.Flushed
	r.version = r.newest
	r.shared = true // only these say more
	return r
}

// Recovered takes what no death of members of the restored world can take out of the state, as one of them tells. It returns the leases that
// can be taken back now.
func (r *Ring) Recovered(had ledger.Ledger) []Settlement {
	r.ledger, r.safe = had, true
	return r.settle()
}

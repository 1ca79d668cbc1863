package custody

import (
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// SavedRing is the state of a [Ring] without its model generation and its world, as the master
// saves it for its successor.
type SavedRing struct {
	// generation of the world with which the model generation began
	First int64 `json:"first,omitempty"`
	// newest version that a worker had
	Newest int64 `json:"newest,omitempty"`
	// version of the newest snapshot that a worker has
	Snapshot int64 `json:"snapshot,omitempty"`
	// version that the model generation began with
	StartVersion int64 `json:"began,omitempty"`
	// the accumulated gradients are to be applied
	Flushing bool `json:"flushing,omitempty"`
	// number of the last order to apply them
	Flush int64 `json:"flush,omitempty"`
	// number of the last such order that was carried out
	Flushed int64 `json:"flushed,omitempty"`
}

// Save returns the state that [RestoreRing] continues from.
func (r *Ring) Save() SavedRing {
	return SavedRing{First: r.first, Newest: r.newest, Snapshot: r.snapshot, StartVersion: r.startVersion,
		Flushing: r.flushing, Flush: r.flush, Flushed: r.flushed}
}

// RestoreRing returns the custody of a restarted master, in a model generation, with the last world
// of its predecessor. Leases are not taken back before a member has reported which records are in
// the model ([Ring.Recovered]) or the next world is formed. The next model generation is numbered
// above highestGeneration.
func RestoreRing(modelGeneration, highestGeneration int64, world rendezvous.World, s SavedRing) *Ring {
	r := NewRing(modelGeneration, s.StartVersion)
	r.highestGeneration = max(modelGeneration, highestGeneration)
	r.world, r.first, r.newest, r.snapshot = world, s.First, max(s.Newest, s.StartVersion), s.Snapshot
	r.flushing, r.flush, r.flushed = s.Flushing, s.Flush, s.Flushed
	r.version = r.newest
	// so that a member's report does not make the world safe: only Recovered and Formed do
	r.shared = true
	return r
}

// Recovered takes the ledger that a member of the restored world reports: the records that stay in
// the model whichever members are lost. It returns the leases that can be taken back now.
func (r *Ring) Recovered(applied ledger.Ledger) []Settlement {
	r.ledger, r.safe = applied, true
	return r.settle()
}

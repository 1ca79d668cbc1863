package custody

import (
	"errors"
	"fmt"
)

// ErrReplaced is returned to an incarnation of a server that a later one has replaced.
var ErrReplaced = errors.New("replaced by a later incarnation")

// Order is the state that the master wants a server to be in. It describes a state, not a change.
type Order struct {
	// of the model
	ModelGeneration int64
	// workers with a training lease; 0 where gradients are not gathered
	Contributors int
	// epochs that are settled
	Settled int
	// snapshots up to this version are not needed
	Release int64
	// what the model generation begins with
	Base Base
	// the cut under way
	Cut CutOrder
}

// Base is the checkpoint that a model generation begins with. The zero value stands for the
// initial values.
type Base struct {
	// the directory of the checkpoint
	Dir string
	// of the commit in it
	Number int64
	// the claim of the directory under which the commit was made; "": it has none
	Claim string `json:",omitempty"`
	// of the commit's record: it says which commit of that name is meant
	Checksum string `json:",omitempty"`
	// the checkpoint is of another job: the model continues from its values, slots and version,
	// with an empty ledger
	Fresh bool
}

// Servers is the custody of a model that parameter servers hold. It is not safe for concurrent use.
type Servers struct {
	modelGeneration int64
	// the highest model generation that may have begun
	highestGeneration int64
	// what the next model generation begins with
	base Base
	// for all servers
	want Order
	all  []server
	// the master has restarted, and does not know yet whether the servers hold the model
	// generation's values
	asks bool
}

// server holds the master's knowledge of one server.
type server struct {
	// the newest that has joined or was lost, 0 if none
	incarnation int
	// the process of that incarnation that joined last
	process uint64
	// that process has joined, and has not left since
	joined bool
	// where it listens
	address string
	// the model generation whose values it had when it joined, 0: none
	holds int64
	// the order is acknowledged and agrees with its reports
	knows bool
	// the last order that it acknowledged
	acknowledged Order
	// the newest that it reported in this model generation
	version int64
	// version of the snapshot that it holds in this model generation; 0: none
	snapshot int64
}

// NewServers returns the custody of n servers, none of which has joined, in model generation 1,
// which begins with the initial values.
func NewServers(n int) *Servers {
	return &Servers{modelGeneration: 1, highestGeneration: 1, want: Order{ModelGeneration: 1}, all: make([]server, n)}
}

// Start sets the model generation, and the base that it begins with. No server may have joined.
func (s *Servers) Start(modelGeneration int64, base Base) {
	s.modelGeneration, s.highestGeneration, s.base, s.want = modelGeneration, modelGeneration, base,
		Order{ModelGeneration: modelGeneration, Base: base}
}

// Recover sets the state after a restart of the master: the model generation that its predecessor
// was in, and its base. The servers join again and report which model generation's values they
// hold; until [Servers.Recovered] no loss counts and no order is due. No server may have joined.
// The next model generation is numbered above highestGeneration.
func (s *Servers) Recover(modelGeneration, highestGeneration int64, base Base) {
	s.Start(modelGeneration, base)
	s.highestGeneration, s.asks = max(modelGeneration, highestGeneration), true
}

// Recovered ends the recovery, and reports whether the model generation continues: every server has
// joined with its values, in which that many epochs are settled. If not, a new model generation
// begins with base, numbered above any that a server knows of.
func (s *Servers) Recovered(settled int, base Base) bool {
	s.asks, s.base = false, base
	if s.Holds() {
		s.want.Settled = settled
		return true
	}
	for _, it := range s.all {
		s.highestGeneration = max(s.highestGeneration, it.holds)
	}
	s.beginGeneration()
	return false
}

// Keeps reports whether a server has joined with values of this model generation, or of a later one
// that the master's predecessor could not write, and returns that model generation.
func (s *Servers) Keeps(index int) (modelGeneration int64, ok bool) {
	it := s.all[index]
	return it.holds, it.joined && it.holds >= s.modelGeneration
}

// Renew ends the recovery of a model generation in which certainly no record was trained on: a
// server without its values gets the base by its next order.
func (s *Servers) Renew() { s.asks = false }

// Holds reports whether every server has joined with the values of this model generation.
func (s *Servers) Holds() bool {
	for _, it := range s.all {
		if !it.joined || it.holds != s.modelGeneration {
			return false
		}
	}
	return true
}

// ModelGeneration returns the model generation.
func (s *Servers) ModelGeneration() int64 { return s.modelGeneration }

// HighestGeneration returns the highest model generation that may have begun.
func (s *Servers) HighestGeneration() int64 { return s.highestGeneration }

// Join notes that a process of an incarnation of a server listens at address, and holds the values
// of the model generation holds, 0: none. It reports whether values were lost with the process that
// it replaces, which may have had the same incarnation; then a new model generation has begun. It
// returns [ErrReplaced] if a later incarnation has joined, or this one was noted as lost.
func (s *Servers) Join(index, incarnation int, process uint64, address string, holds int64) (lost bool, err error) {
	it := &s.all[index]
	switch {
	case incarnation < it.incarnation, incarnation == it.incarnation && !it.joined:
		return false, fmt.Errorf("incarnation %d of ps-%d: %w", incarnation, index, ErrReplaced)
	case incarnation == it.incarnation && process == it.process:
		it.address = address
		return false, nil
	}
	lost = it.joined && !s.asks
	*it = server{incarnation: incarnation, process: process, joined: true, address: address, holds: holds}
	if lost {
		s.beginGeneration()
	}
	return lost, nil
}

// Leave notes that an incarnation of a server and all earlier ones are lost. It reports whether
// values were lost; then a new model generation has begun.
func (s *Servers) Leave(index, incarnation int) (lost bool) {
	it := &s.all[index]
	if incarnation < it.incarnation {
		return false
	}
	lost = it.joined && !s.asks
	*it = server{incarnation: incarnation, address: it.address}
	if lost {
		s.beginGeneration()
	}
	return lost
}

// Base returns what the model generation begins with.
func (s *Servers) Base() Base { return s.want.Base }

// Kept notes the base of the next model generation, for when values are lost.
func (s *Servers) Kept(base Base) { s.base = base }

// Rebase begins a new model generation with base, because the base of this one cannot be read.
func (s *Servers) Rebase(base Base) {
	s.base = base
	s.beginGeneration()
}

// beginGeneration begins the next model generation, with the base that was noted last.
func (s *Servers) beginGeneration() {
	s.highestGeneration++
	s.modelGeneration = s.highestGeneration
	s.want = Order{ModelGeneration: s.modelGeneration, Contributors: s.want.Contributors, Base: s.base}
	for i := range s.all {
		s.all[i].version, s.all[i].snapshot = 0, 0
	}
}

// Complete reports whether every server has joined, and none has left since.
func (s *Servers) Complete() bool {
	for _, it := range s.all {
		if !it.joined {
			return false
		}
	}
	return true
}

// Current reports whether every server has joined, and has acknowledged an order of this
// model generation.
func (s *Servers) Current() bool { return s.Complete() && s.Applied(0) }

// At returns the address and the incarnation of a server; ok is false if none has joined.
func (s *Servers) At(index int) (address string, incarnation int, ok bool) {
	it := s.all[index]
	return it.address, it.incarnation, it.joined
}

// Want sets the order for all servers, except its model generation and base, which Servers decides
// itself. The number of settled epochs never falls in one model generation.
func (s *Servers) Want(contributors, settled int, release int64, cut CutOrder) {
	s.want.Contributors, s.want.Settled, s.want.Release, s.want.Cut = contributors,
		max(s.want.Settled, settled), release, cut
}

// Due returns the order that a server has not acknowledged, and the server's incarnation; ok is
// false if there is none, or no server.
func (s *Servers) Due(index int) (o Order, incarnation int, ok bool) {
	it := s.all[index]
	return s.want, it.incarnation, it.joined && !s.asks && !(it.knows && it.acknowledged == s.want)
}

// Acknowledged notes that an incarnation of a server has acknowledged an order, and is at a
// version.
func (s *Servers) Acknowledged(index, incarnation int, o Order, version int64) {
	it := &s.all[index]
	if !it.joined || incarnation != it.incarnation {
		return
	}
	it.knows, it.acknowledged = true, o
	if o.ModelGeneration == s.modelGeneration {
		it.version = max(it.version, version)
	}
}

// Heard takes the version and the snapshot that an incarnation reports, and reports whether that
// counts. If the server still holds a snapshot that it was asked to release, the order is due
// again.
func (s *Servers) Heard(index, incarnation int, modelGeneration, version, snapshot int64) bool {
	it := &s.all[index]
	if !it.joined || incarnation != it.incarnation || modelGeneration != s.modelGeneration {
		return false
	}
	it.version, it.snapshot = max(it.version, version), snapshot
	if snapshot > 0 && snapshot <= it.acknowledged.Release {
		it.knows = false
	}
	return true
}

// Snapshot returns the version whose snapshot a server holds in this model generation, 0 if none.
func (s *Servers) Snapshot(index int) int64 { return s.all[index].snapshot }

// Version returns the newest version that any server has in this model generation.
func (s *Servers) Version() int64 {
	var newest int64
	for _, it := range s.all {
		newest = max(newest, it.version)
	}
	return newest
}

// Applied reports whether every server has acknowledged, in this model generation, that at least
// that many epochs are settled.
func (s *Servers) Applied(epochs int) bool {
	for _, it := range s.all {
		if !it.joined || !it.knows || it.acknowledged.ModelGeneration != s.modelGeneration ||
			it.acknowledged.Settled < epochs {
			return false
		}
	}
	return true
}

package custody

import (
	"errors"
	"fmt"
)

// ErrReplaced is returned to an incarnation of a server that another has replaced.
var ErrReplaced = errors.New("replaced by a later launch")

// Order is what a server has to know and do. It says how things are to be, not what is to be changed.
type Order struct {
	Life         int64 // of the model
	Contributors int   // workers with a training lease; 0 where gradients are not gathered
	Settled      int   // epochs that are settled
	Release      int64 // snapshots up to this version are not needed
	Base         Base  // what the life begins with
	Cut          CutOrder
}

// Base is the checkpoint that a life of the model begins with. The zero value stands for the initial values.
type Base struct {
	Dir    string // that has it
	Number int64
	Fresh  bool // of another training: its values, slots and version are taken, and its records are not
}

// Servers is the custody of a model that parameter servers hold.
type Servers struct {
	life  int64
	lives int64 // the highest that may have begun
	base  Base  // what the next life begins with
	want  Order
	all   []server
	asks  bool // a master has come back: the servers have yet to say what they hold
}

// server is what is known of one of them.
type server struct {
	incarnation int    // the newest that has joined, 0 if none
	process     uint64 // of that incarnation: the last that has joined
	here        bool   // it has not left since
	address     string
	holds       int64 // the life whose values it had when it joined, 0: none
	knows       bool  // told is acknowledged
	told        Order // the last that was acknowledged
	version     int64 // in this life
	snapshot    int64 // in this life; 0: none
}

// NewServers makes the custody of n servers, none of which has joined, in life 1, which begins with the initial values.
func NewServers(n int) *Servers {
	return &Servers{life: 1, lives: 1, want: Order{Life: 1}, all: make([]server, n)}
}

// Start makes it a life that begins with base. No server may have joined.
func (s *Servers) Start(life int64, base Base) {
	s.life, s.lives, s.base, s.want = life, life, base, Order{Life: life, Base: base}
}

// Recover makes it the custody of a master that has come back, in the life that the one before was in. Until [Servers.Recovered] nothing is
// lost, and no order is due: the servers join, and say what they hold. No server may have joined. The next life is later than lives.
func (s *Servers) Recover(life, lives int64, base Base) {
	s.Start(life, base)
	s.lives, s.asks = max(life, lives), true
}

// Recovered ends that, and reports whether the life goes on: every server is there and has its values, with which so many epochs are settled.
// If not, a new life begins, with base. It is later than any that a server knows of.
func (s *Servers) Recovered(settled int, base Base) bool {
	s.asks, s.base = false, base
	if s.Holds() {
		s.want.Settled = settled
		return true
	}
	for _, it := range s.all {
		s.lives = max(s.lives, it.holds)
	}
	s.anew()
	return false
}

// Renew ends that too, in a life in which nothing was trained on: whoever does not have its values yet is told what it begins with.
func (s *Servers) Renew() { s.asks = false }

// Holds reports whether every server is there, and has joined with the values of this life.
func (s *Servers) Holds() bool {
	for _, it := range s.all {
		if !it.here || it.holds != s.life {
			return false
		}
	}
	return true
}

// Life returns the life of the model.
func (s *Servers) Life() int64 { return s.life }

// Lives returns the highest life that may have begun.
func (s *Servers) Lives() int64 { return s.lives }

// Join notes that a process of an incarnation of a server listens at address, and has the values of a life, 0: none. It reports whether
// values were lost with the one that it replaces, which may have been of the same incarnation; then a new life has begun. [ErrReplaced]: a
// later incarnation is there.
func (s *Servers) Join(index, incarnation int, process uint64, address string, holds int64) (lost bool, err error) {
	it := &s.all[index]
	switch {
	case incarnation < it.incarnation, incarnation == it.incarnation && !it.here:
		return false, fmt.Errorf("launch %d of ps-%d: %w", incarnation, index, ErrReplaced)
	case incarnation == it.incarnation && process == it.process:
		it.address = address
		return false, nil
	}
	lost = it.here && !s.asks
	*it = server{incarnation: incarnation, process: process, here: true, address: address, holds: holds}
	if lost {
		s.anew()
	}
	return lost, nil
}

// Leave notes that an incarnation of a server is gone, and those before it. It reports whether values were lost with it; then a
// new life has begun.
func (s *Servers) Leave(index, incarnation int) (lost bool) {
	it := &s.all[index]
	if incarnation < it.incarnation {
		return false
	}
	lost = it.here && !s.asks
	*it = server{incarnation: incarnation, address: it.address}
	if lost {
		s.anew()
	}
	return lost
}

// Base returns what the life begins with.
func (s *Servers) Base() Base { return s.want.Base }

// Kept notes what the next life begins with, if values are lost.
func (s *Servers) Kept(base Base) { s.base = base }

// Rebase begins a new life with base: what this one was to begin with cannot be read.
func (s *Servers) Rebase(base Base) {
	s.base = base
	s.anew()
}

func (s *Servers) anew() {
	s.lives++
	s.life = s.lives
	s.want = Order{Life: s.life, Contributors: s.want.Contributors, Base: s.base}
	for i := range s.all {
		s.all[i].version, s.all[i].snapshot = 0, 0
	}
}

// Complete reports whether every server is there.
func (s *Servers) Complete() bool {
	for _, it := range s.all {
		if !it.here {
			return false
		}
	}
	return true
}

// Current reports whether every server is there, and in this life.
func (s *Servers) Current() bool { return s.Complete() && s.Applied(0) }

// At returns where a server listens, and which incarnation of it that is; ok is false if none is there.
func (s *Servers) At(index int) (address string, incarnation int, ok bool) {
	it := s.all[index]
	return it.address, it.incarnation, it.here
}

// Want changes what all servers are to know. The life and its base are the custody's own, and settled epochs never become fewer in one
// life.
func (s *Servers) Want(contributors, settled int, release int64, cut CutOrder) {
	s.want.Contributors, s.want.Settled, s.want.Release, s.want.Cut = contributors, max(s.want.Settled, settled), release, cut
}

// Due returns the order that a server has not acknowledged; ok is false if there is none, or no server.
func (s *Servers) Due(index int) (o Order, incarnation int, ok bool) {
	it := s.all[index]
	return s.want, it.incarnation, it.here && !s.asks && !(it.knows && it.told == s.want)
}

// Told notes that an incarnation has acknowledged an order, and is at a version.
func (s *Servers) Told(index, incarnation int, o Order, version int64) {
	it := &s.all[index]
	if !it.here || incarnation != it.incarnation {
		return
	}
	it.knows, it.told = true, o
	if o.Life == s.life {
		it.version = max(it.version, version)
	}
}

// Heard takes an incarnation's word of its version and snapshot, and reports whether it counts. One that holds what it was told
// to release is told again.
func (s *Servers) Heard(index, incarnation int, life, version, snapshot int64) bool {
	it := &s.all[index]
	if !it.here || incarnation != it.incarnation || life != s.life {
		return false
	}
	it.version, it.snapshot = max(it.version, version), snapshot
	if snapshot > 0 && snapshot <= it.told.Release {
		it.knows = false
	}
	return true
}

// Snapshot returns the version whose snapshot a server holds in this life, 0 if none.
func (s *Servers) Snapshot(index int) int64 { return s.all[index].snapshot }

// Version returns the newest version that any server has in this life.
func (s *Servers) Version() int64 {
	var newest int64
	for _, it := range s.all {
		newest = max(newest, it.version)
	}
	return newest
}

// Applied reports whether every server has acknowledged, in this life, that so many epochs are settled.
func (s *Servers) Applied(epochs int) bool {
	for _, it := range s.all {
		if !it.here || !it.knows || it.told.Life != s.life || it.told.Settled < epochs {
			return false
		}
	}
	return true
}

package worker

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

// state is the state of every member of a ring, bit for bit the same after every round. It holds
// nothing of what is random: noise follows from the seed and the minibatch.
type state struct {
	engine    Engine
	layout    param.Layout
	optimizer *optim.Optimizer
	// records of an update; 0: all that a round has
	batch int64

	position
	// the records that are in this state
	ledger ledger.Ledger
	// the engine's values
	values []float32
	// slots of the trainable values
	slots [][]float32
	// sums of gradients of records that are not in an update yet; nil if batch is 0
	pending []float32
	// the values of an earlier version, for evaluations; nil: none yet
	snapshot []float32
	// values are not the initial ones any more
	touched bool
}

// position tells how far a state is.
type position struct {
	// rounds that changed it since the model began
	at rendezvous.Position
	// number of updates
	version int64
	// number of records in pending
	records int64
	// version of the snapshot; 0: none
	snapshotVersion int64
	// number of the newest flush that was done
	flushed int64
}

func newState(engine Engine, config optim.Config, batch int64) (*state, error) {
	optimizer, err := optim.New(config)
	if err != nil {
		return nil, err
	}
	s := &state{engine: engine, layout: engine.Layout(), optimizer: optimizer, batch: batch,
		values: engine.Values(), position: position{at: rendezvous.NoState}}
	s.slots = optimizer.NewSlots(s.layout.Trainable())
	if batch > 0 {
		s.pending = make([]float32, s.layout.Len())
	}
	return s, nil
}

// restart makes s the state before the first round, with the given initial values.
func (s *state) restart(values []float32) {
	copy(s.values, values)
	for i, slot := range s.optimizer.NewSlots(s.layout.Trainable()) {
		copy(s.slots[i], slot)
	}
	clear(s.pending)
	s.ledger.Reset()
	s.position, s.touched = position{}, false
}

// need returns how many records the next update still needs; 0: any number.
func (s *state) need() int64 {
	if s.batch == 0 {
		return 0
	}
	return s.batch - s.records
}

// apply brings a round into the state. sum is the sum of the gradients of the round's records, and
// is overwritten. It returns the number of records of the update, 0 if the round completed none.
func (s *state) apply(a agreement, sum []float32, rate func(version int64) float64) (updated int64) {
	for rank, takes := range a.takes {
		for i, n := range takes {
			o := a.offers[rank][i]
			s.ledger.Add(o.task, o.from+n, o.of)
		}
	}
	flush := a.flush > s.flushed
	s.flushed = max(s.flushed, a.flush)
	if a.records > 0 || flush {
		s.at.Round++
	}
	records := a.records
	if s.batch > 0 {
		if a.records > 0 {
			kernel.Add(s.pending, sum)
		}
		s.records += a.records
		if s.records < s.batch && !flush {
			return 0
		}
		records, sum = s.records, s.pending
	}
	if records == 0 {
		return 0
	}
	s.update(sum, records, rate(s.version))
	if s.batch > 0 {
		clear(s.pending)
		s.records = 0
	}
	return records
}

// update moves the values by the mean gradient of the given number of records.
func (s *state) update(sum []float32, records int64, rate float64) {
	s.version++
	s.touched = true
	trainable := s.layout.Trainable()
	s.engine.Parallel(trainable, func(lo, hi int) {
		kernel.Scale(1/float32(records), sum[lo:hi])
		s.optimizer.ApplyRange(lo, hi, s.values, sum, s.slots, s.version, rate)
	})
	kernel.Scale(1/float32(records), sum[trainable:])
	s.layout.Average(0, s.values, sum)
}

// takeSnapshot makes the snapshot of the current values.
func (s *state) takeSnapshot() {
	if s.snapshot == nil {
		s.snapshot = make([]float32, len(s.values))
	}
	copy(s.snapshot, s.values)
	s.snapshotVersion = s.version
}

// arrays returns all float arrays of the state, in the order in which they are transferred.
func (s *state) arrays() [][]float32 {
	all := append([][]float32{s.values}, s.slots...)
	if s.pending != nil {
		all = append(all, s.pending)
	}
	if s.snapshotVersion > 0 {
		all = append(all, s.snapshot)
	}
	return all
}

// maxPosition is the largest length of an encoded position, in bytes: enough for a ledger of
// hundreds of millions of tasks.
const maxPosition = 64 << 20

// appendPosition encodes all of the state but its float arrays.
func (s *state) appendPosition(b []byte) []byte {
	for _, v := range []int64{s.at.Beginning, s.at.Round, s.version, s.records, s.snapshotVersion, s.flushed} {
		b = binary.AppendVarint(b, v)
	}
	return s.ledger.Append(b)
}

// parsePosition is the inverse of appendPosition.
func parsePosition(b []byte) (position, ledger.Ledger, error) {
	var p position
	for _, v := range []*int64{&p.at.Beginning, &p.at.Round, &p.version, &p.records, &p.snapshotVersion, &p.flushed} {
		value, size := binary.Varint(b)
		if size <= 0 || value < 0 {
			return p, ledger.Ledger{}, errors.New("parse state: a number is missing or negative")
		}
		*v, b = value, b[size:]
	}
	had, err := ledger.Parse(b)
	if err != nil {
		return p, ledger.Ledger{}, fmt.Errorf("parse state: %w", err)
	}
	return p, had, nil
}

// trained reports whether there is a state of a model that has begun.
func (s *state) trained() bool { return s.at.Compare(rendezvous.Position{}) > 0 }

// receiver returns a state of the same shape, at p, to receive one into. It is s itself if that
// loses nothing.
func (s *state) receiver(p position) *state {
	into := &state{layout: s.layout, optimizer: s.optimizer, batch: s.batch, values: s.values,
		slots: s.slots, pending: s.pending, snapshot: s.snapshot}
	if s.trained() {
		into.values, into.slots, into.snapshot = make([]float32, len(s.values)),
			s.optimizer.NewSlots(s.layout.Trainable()), nil
		if s.pending != nil {
			into.pending = make([]float32, len(s.pending))
		}
	} else {
		s.touched, s.at = true, rendezvous.NoState // until the state is complete
	}
	if into.snapshotVersion = p.snapshotVersion; p.snapshotVersion > 0 && into.snapshot == nil {
		into.snapshot = make([]float32, len(s.values))
	}
	return into
}

// adopt makes s the state that was received.
func (s *state) adopt(from *state, p position, had ledger.Ledger) {
	if &from.values[0] != &s.values[0] {
		copy(s.values, from.values)
	}
	s.slots, s.pending, s.snapshot = from.slots, from.pending, from.snapshot
	s.position, s.ledger, s.touched = p, had, true
}

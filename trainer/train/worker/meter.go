package worker

import (
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
)

// Meter counts what a worker does, for its metrics. Its zero value has counted nothing. All of it
// may be read at any time. The steps, the loss and the stale gradients are in its heartbeats.
type Meter struct {
	// Servers counts the traffic with parameter servers, and Ring that with other workers.
	Servers ps.Traffic
	Ring    mesh.Traffic
	// Held is the time for which the rounds waited for checkpoints, in nanoseconds.
	Held atomic.Int64
	// Written counts bytes of checkpoints.
	Written atomic.Int64
}

// holds counts a time for which the rounds waited for a checkpoint. A nil meter counts nothing.
func (m *Meter) holds(took time.Duration) {
	if m != nil {
		m.Held.Add(int64(took))
	}
}

// wrote counts bytes of a checkpoint. A nil meter counts nothing.
func (m *Meter) wrote(bytes int64) {
	if m != nil {
		m.Written.Add(bytes)
	}
}

package ps

import "sync/atomic"

// Meter counts what a server does, for its metrics. Its zero value has counted nothing. All of it
// may be read at any time.
type Meter struct {
	// Received counts bytes of gradients, and Sent bytes of values.
	Received, Sent atomic.Int64
	// Accepted, Repeated, Cut and Stale count gradients by what became of them: taken; all of its
	// records were in the model; begins at another record than the next; refused as too old.
	Accepted, Repeated, Cut, Stale atomic.Int64
	// Held is the time for which gradients had to wait for checkpoints, in nanoseconds.
	Held atomic.Int64
	// Written counts bytes of checkpoints.
	Written atomic.Int64
}

// judged counts a gradient.
func (m *Meter) judged(v verdict) {
	switch v {
	case accepted:
		m.Accepted.Add(1)
	case repeated:
		m.Repeated.Add(1)
	case cut:
		m.Cut.Add(1)
	case stale:
		m.Stale.Add(1)
	}
}

// Traffic counts the bytes that a worker exchanges with all servers: of gradients that were
// answered, and of values. Its zero value has counted nothing.
type Traffic struct {
	Pushed, Pulled atomic.Int64
}

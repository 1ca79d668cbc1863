package worker

import (
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// use is a use of a worker's time.
type use int

// Uses.
const (
	// it computes gradients
	computing use = iota
	// it waits for records
	forData
	// it waits for parameter servers
	forServers
	// it waits for other workers, in a collective
	forPeers
	// it copies its state for a checkpoint
	forCheckpoint
	// it connects to the other workers of a world, and takes its state
	forWorld
	uses
)

// stopwatch adds up where the time of a worker goes. The strategy begins and ends uses, and
// heartbeats report them. The zero value has measured nothing.
type stopwatch struct {
	mu    sync.Mutex
	spent [uses]time.Duration
	// when each use began that lasts; zero: it does not
	since [uses]time.Time
}

// begin begins a use.
func (w *stopwatch) begin(u use) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since[u] = time.Now()
}

// end ends a use that has begun.
func (w *stopwatch) end(u use) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spent[u] += time.Since(w.since[u])
	w.since[u] = time.Time{}
}

// report returns the time of each use so far; one that lasts counts up to now.
func (w *stopwatch) report() *wire.Spent {
	w.mu.Lock()
	defer w.mu.Unlock()
	ms := func(u use) int64 {
		spent := w.spent[u]
		if since := w.since[u]; !since.IsZero() {
			spent += time.Since(since)
		}
		return spent.Milliseconds()
	}
	return &wire.Spent{ComputeMs: ms(computing), DataMs: ms(forData), ServersMs: ms(forServers),
		PeersMs: ms(forPeers), CheckpointMs: ms(forCheckpoint), FormingMs: ms(forWorld)}
}

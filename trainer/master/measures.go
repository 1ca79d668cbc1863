package master

import (
	"net/netip"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Measures has what metrics show of a job and its status does not, as of the same moment.
type Measures struct {
	// Totals are those of the journal.
	Totals journal.Totals
	// Restored reports whether all that earlier masters have counted is known: until then the
	// status has smaller numbers than before.
	Restored bool
	// Pending is the number of training tasks of the open epoch that wait for a worker, and Leased
	// the number of those that workers hold.
	Pending, Leased int
	// CheckpointBytes is the size of the newest checkpoint, and CheckpointTook the time from its
	// order until it was written, if this master has made it; 0: not known.
	CheckpointBytes int64
	CheckpointTook  time.Duration
	// Addresses are those at which pods of this machine serve their own metrics.
	Addresses map[pod.ID]string
}

// publishes passes a status to [Config].OnStatus and, with the measures, to [Config].OnMeasures.
func (m *master) publishes(s *wire.JobStatus, more Measures) {
	if m.OnStatus != nil {
		m.OnStatus(s)
	}
	if m.OnMeasures != nil {
		m.OnMeasures(s, more)
	}
}

// measured returns the status and the measures of one moment.
func (m *master) measured(now time.Time) (*wire.JobStatus, Measures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.describe(now)
	if m.OnMeasures == nil {
		return s, Measures{}
	}
	stats := m.work.queue.Stats()
	return s, Measures{
		Totals:   m.events.journal.Totals(),
		Restored: m.handover.record == nil || m.stage.Planned() && !m.stage.Recovering() || m.stage.Over(),
		Pending:  stats.Todo, Leased: stats.Leased,
		CheckpointBytes: m.checkpoints.size(), CheckpointTook: m.checkpoints.took,
		Addresses: m.contacts.addresses(),
	}
}

// size returns the size of the newest checkpoint in bytes; 0: there is none.
func (c *checkpoints) size() (bytes int64) {
	if c.last == nil {
		return 0
	}
	for _, s := range c.last.Shards {
		bytes += s.Bytes
	}
	return bytes
}

// addresses returns where pods serve their metrics.
func (c *contacts) addresses() map[pod.ID]string {
	all := make(map[pod.ID]string)
	for id, of := range c.all {
		if of.metrics != "" {
			all[id] = of.metrics
		}
	}
	return all
}

// loopback returns an address that a pod has reported, or "" if another machine could have it:
// Prometheus is sent there.
func loopback(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() || at.Addr().Zone() != "" || at.Port() == 0 {
		return ""
	}
	return at.String()
}

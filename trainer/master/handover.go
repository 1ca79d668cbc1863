package master

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// announcements tracks which workers of a restored master have yet to report which leases of the
// previous master they hold. Until then the records of those leases must not be leased to others.
// The zero value waits for none.
type announcements struct {
	// by clock: until then leases are withheld; zero: the wait has not begun
	by time.Time
	// the workers; nil: all have reported
	missing map[int]bool
}

// expect notes workers that have yet to report.
func (a *announcements) expect(workers []int) {
	a.missing = make(map[int]bool)
	for _, w := range workers {
		a.missing[w] = true
	}
}

// pending reports whether a worker has yet to report.
func (a *announcements) pending() bool { return a.missing != nil }

// heard notes that workers have reported, or are lost. It returns true once: when none is missing
// any more.
func (a *announcements) heard(workers ...int) (all bool) {
	if a.missing == nil {
		return false
	}
	for _, w := range workers {
		delete(a.missing, w)
	}
	if len(a.missing) > 0 {
		return false
	}
	a.missing = nil
	return true
}

// withheld reports whether no new lease is to be granted yet.
func (a *announcements) withheld(now time.Time) bool { return a.missing != nil && now.Before(a.by) }

// handover holds the record of the previous master, and continues from it.
type handover struct {
	shared
	work *work
	// record of the previous master; nil: this is the first
	record      *record
	checkpoints *checkpoints
	// notes that the generation of the model has begun; the caller holds the mutex
	begin func()
	// events that came before that record was restored
	unheard       []pod.Event
	announcements announcements
}

// behind returns how many masters in succession may each have begun worlds and model
// generations that are not in the record.
func (h *handover) behind() int64 {
	if h.record.Last {
		return 0
	}
	return int64(max(1, h.Self.Header().Incarnation-h.record.By))
}

// untouched reports whether it is certain that nothing was trained on in this model generation, and
// what the generation began with is known. Only the last record of a master makes that certain: any
// other may be older than the first lease.
func (h *handover) untouched() bool {
	return h.record.Last && !h.stage.Begun() && h.record.Base == h.checkpoints.newest()
}

// restoreQueue makes the queue of a model that contains the records of a ledger. If the model has
// records that were trained on in this generation, the generation has begun, even if the record of
// the previous master is older than its first lease.
func (h *handover) restoreQueue(applied *ledger.Ledger) error {
	if err := h.work.restore(applied, h.record.Tasks); err != nil {
		return err
	}
	if h.stage.Recovering() && h.work.queue.Stats().Done > h.checkpoints.base.records() {
		h.begin()
	}
	return nil
}

// abandon notes which records the holders of a lost model had, before the next generation begins:
// those of this generation count as lost.
func (h *handover) abandon(had []ledger.Ledger) {
	all := h.checkpoints.base.ledger().Clone()
	for i := range had {
		all.Union(&had[i])
	}
	// an epoch begins only when all of the epoch before is in the model
	if open := all.Epochs(); len(open) > 1 {
		all.Settle(open[len(open)-1] - 1)
	}
	if err := h.restoreQueue(&all); err != nil {
		h.Log.Warn("Counting the records of the lost model failed", "error", err)
	}
}

// gathered notes that it is known what is in the model, and continues the training from there. The
// caller holds the mutex.
func (h *handover) gathered(how string) {
	h.stage.Recovered()
	h.work.found()
	h.announcements.by = h.clock.at(time.Now()).Add(timing.Return)
	stats := h.work.queue.Stats()
	h.Log.Info("The training continues: "+how, "records", stats.Done, "epoch", stats.Epoch)
	h.announced()
	h.waiters.wake()
}

// announced tells the queue when every living worker has reported what it works on. The caller
// holds the mutex.
func (h *handover) announced(workers ...int) {
	if !h.stage.Recovering() && h.announcements.heard(workers...) {
		h.work.queue.Announced()
		h.waiters.wake()
	}
}

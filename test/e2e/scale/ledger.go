package scale

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Ledger is what all servers of a job have of its model: which records, how often. A push is on every server or on none.
type Ledger struct {
	mu     sync.Mutex
	leases map[int32]map[int64]int64 // by worker and lease: the records that were pushed
	lost   map[int32]bool            // workers that the master asked about: they are gone, and nothing comes from them any more
	shards map[shard][]int           // how often each record was pushed, in the order of its task
	pushes int64
}

// shard is one of an epoch.
type shard struct {
	epoch int32
	name  string
}

// NewLedger is of a job that has not begun.
func NewLedger() *Ledger {
	return &Ledger{leases: make(map[int32]map[int64]int64), lost: make(map[int32]bool), shards: make(map[shard][]int)}
}

// push notes that the records [from, to) of a task, in its order, are trained on. False: the worker is taken for lost.
func (l *Ledger) push(worker int32, t *wire.Task, from, to int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost[worker] {
		return false
	}
	key := shard{t.Epoch, t.Shard}
	records := l.shards[key]
	if missing := int(t.End) - len(records); missing > 0 {
		records = append(records, make([]int, missing)...)
		l.shards[key] = records
	}
	for i := t.Start + from; i < t.Start+to; i++ {
		records[i]++
	}
	held := l.leases[worker]
	if held == nil {
		held = make(map[int64]int64)
		l.leases[worker] = held
	}
	clear(held) // a player has one lease at a time
	held[t.Lease] = to
	l.pushes++
	return true
}

// progress is what a worker pushed of its leases. Who is asked about has ended.
func (l *Ledger) progress(worker int32) []*wire.LeaseProgress {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[worker] = true
	var all []*wire.LeaseProgress
	for _, lease := range slices.Sorted(maps.Keys(l.leases[worker])) {
		all = append(all, &wire.LeaseProgress{Lease: lease, Done: l.leases[worker][lease]})
	}
	return all
}

func (l *Ledger) version() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pushes
}

// Check compares with a job that is done: so many records in each of so many epochs, each of them trained on. again is how often
// one was so more than once: the servers could not say in time that they had it, or its minibatch was not told yet.
func (l *Ledger) Check(records, epochs int) (again int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	trained := 0
	for _, counts := range l.shards {
		for _, n := range counts {
			trained += min(n, 1)
			again += max(n-1, 0)
		}
	}
	if trained != records*epochs {
		err = fmt.Errorf("%d of %d records were trained on", trained, records*epochs)
	}
	return again, err
}

package leases

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// RetryAfter is the time for which the master's answer that there is no lease now is reused, as
// processes ask often.
const RetryAfter = 30 * time.Millisecond

// Dataset is the data set of a job, as its program declares it.
type Dataset struct {
	// number of its records
	Size   int64
	Epochs int32
	// the tasks of an epoch are shuffled, by Seed
	Shuffle bool
	Seed    uint64
	// number of records of each task but the last; 0: the master chooses it
	PerTask int64
	// its records are shards of unknown length, each of which is a task: see [ledger.End]
	Stream bool
	// digest of what the processes must agree on besides; 0: none
	Digest uint64
}

// Lease is a lease of some records of an epoch.
type Lease struct {
	// number of the lease, above those granted before
	ID int64
	// number of the epoch, from 1
	Epoch int32
	// number of the task in its epoch, from 0
	Number int64
	// its records are [Start, End)
	Start, End int64
	// number of its first records that are safe; of a shard of unknown length with [ledger.End], if
	// all are
	Done int64
	// the length of its task is unknown
	Stream bool
}

// Grant is the master's answer to a request for a lease.
type Grant struct {
	// nil: there is none now
	Lease *Lease
	// there are no more records
	Over bool
}

// Kind is the kind of an [Answer].
type Kind int

// Kinds of answers.
const (
	// AskMaster: the master must be asked.
	AskMaster Kind = iota
	// Granted: the process has the lease.
	Granted
	// Wait: there is no lease now.
	Wait
	// Over: there are no more records.
	Over
	// Undeclared: the program has not declared its data set.
	Undeclared
)

// Answer is the answer to a process that asks for a lease.
type Answer struct {
	Kind
	// of a Granted answer
	Lease
}

// Progress is the number of a lease's first records that are in the state of a process.
type Progress struct{ Lease, Done int64 }

// Round is the report of a process that has completed a round.
type Round struct {
	// of its world
	Generation int64
	// number of the round: the version of the state that it has made
	Number int64
	Leases []Progress
	// loss of its own records; nil: it had no records in this round
	Loss *float32
}

// Part is the number of a task's first records that are in a state.
type Part struct {
	Task    ledger.Task
	Records int64
}

// Status is the content of a heartbeat.
type Status struct {
	// number of rounds that this worker has completed, in all worlds
	Steps int64
	// number of rounds in the state; 0: none was completed in this world
	Version int64
	// newest generation of a world in which a round was completed; 0: none
	Rounds int64
	Loss   float32
	// leases that are held, by number
	Leases []Lease
	// in this world the master has answered that no records are left: all are in the state of every
	// rank
	Exhausted bool
}

// Holder holds the leases of one worker. Processes are named by the numbers of their connections,
// which are above 0 and never used again. It is not safe for concurrent use.
type Holder struct {
	// nil: it was not declared
	dataset *Dataset
	held    map[int64]*held
	// leases that are done, and of which the master may not know yet
	done map[int64]bool
	// time until which the master is not asked for leases, as it had none to grant
	waits time.Time
	// there are no more records
	over bool
	// Round is the newest round of this world.
	steps, round, generation int64
	loss                     float32
}

// held is a lease of this worker. Its Done counts the records in the state of every rank.
type held struct {
	Lease
	// connection of the process that trains with it; 0: no process does
	owner int
	// number of its records in the state of that process, as it has reported
	reported int64
}

// Whole reports whether a count of the first records is that of all.
func (l Lease) Whole(count int64) bool {
	if l.Stream {
		return ledger.Ended(count)
	}
	return count >= l.End-l.Start
}

// possible returns a reported count, as far as the lease has records.
func (l Lease) possible(count int64) int64 {
	if l.Stream {
		return count
	}
	return min(count, l.End-l.Start)
}

// New returns a holder without leases.
func New() *Holder {
	return &Holder{held: make(map[int64]*held), done: make(map[int64]bool)}
}

// Dataset returns the data set of the program; nil: none was declared.
func (h *Holder) Dataset() *Dataset { return h.dataset }

// Declared notes that the master has accepted the data set of the program, and its grant.
func (h *Holder) Declared(d Dataset, g Grant) {
	h.dataset = &d
	h.hold(g)
}

// Held returns the leases that a request to the master names: those that are held, and those whose
// completion is not delivered yet.
func (h *Holder) Held() []int64 {
	return slices.Concat(slices.Sorted(maps.Keys(h.held)), slices.Sorted(maps.Keys(h.done)))
}

// Ask returns the answer to a process that asks for a lease.
func (h *Holder) Ask(conn int, now time.Time) Answer {
	if h.dataset == nil {
		return Answer{Kind: Undeclared}
	}
	if a, ok := h.give(conn); ok {
		return a
	}
	switch {
	case h.over:
		return Answer{Kind: Over}
	case now.Before(h.waits):
		return Answer{Kind: Wait}
	}
	return Answer{Kind: AskMaster}
}

// Answered returns the answer to a process for which the master was asked, given the master's
// grant. Another process may have been given the lease meanwhile.
func (h *Holder) Answered(conn int, g Grant, now time.Time) Answer {
	h.hold(g)
	if a, ok := h.give(conn); ok {
		return a
	}
	if h.over {
		return Answer{Kind: Over}
	}
	return h.wait(now)
}

// Unreachable returns the answer to a process for which the master was asked without success:
// processes continue with the leases that they have.
func (h *Holder) Unreachable(now time.Time) Answer { return h.wait(now) }

func (h *Holder) wait(now time.Time) Answer {
	h.waits = now.Add(RetryAfter)
	return Answer{Kind: Wait}
}

// hold adds a lease for any process of this worker, or notes that there are no more records.
func (h *Holder) hold(g Grant) {
	h.over = h.over || g.Over
	if l := g.Lease; l != nil && h.held[l.ID] == nil {
		h.held[l.ID] = &held{Lease: *l, reported: l.Done}
	}
}

// give gives a process the oldest lease that no process trains with.
func (h *Holder) give(conn int) (a Answer, ok bool) {
	for _, id := range slices.Sorted(maps.Keys(h.held)) {
		if l := h.held[id]; l.owner == 0 {
			l.owner = conn
			return Answer{Granted, l.Lease}, true
		}
	}
	return Answer{}, false
}

// Met notes that a process has met all other ranks since its last report of progress: that progress
// is in the state of each rank. It returns the leases that are to be reported as done.
func (h *Holder) Met(conn int) (done []Progress) { return h.secure(conn) }

// Round notes that a process has completed a round. It reports whether that is the first one of its
// world on this worker, and returns the leases that are to be reported as done. All ranks had begun
// the round, so the earlier reports of the process are in the state of each.
func (h *Holder) Round(conn int, r Round) (first bool, done []Progress) {
	done = h.secure(conn)
	h.Received(conn, r.Leases)
	// the first process of this worker that completes it
	if r.Number > h.round {
		h.steps++
		h.round = r.Number
	}
	if r.Loss != nil {
		h.loss = *r.Loss
	}
	h.waits = time.Time{}
	first = r.Generation > h.generation
	h.generation = max(h.generation, r.Generation)
	return first, done
}

// Received notes progress of leases in the state of a process, such as one that it has received
// from others. It is not safe yet.
func (h *Holder) Received(conn int, leases []Progress) {
	for _, p := range leases {
		if l := h.held[p.Lease]; l != nil {
			l.owner = conn
			l.reported = max(l.reported, l.possible(p.Done))
		}
	}
}

// secure notes that every rank has the earlier reports of a process. It returns the leases that are
// done, by number.
func (h *Holder) secure(conn int) (done []Progress) {
	for _, id := range slices.Sorted(maps.Keys(h.held)) {
		l := h.held[id]
		if l.owner != conn {
			continue
		}
		if l.Done = l.reported; l.Whole(l.Done) {
			delete(h.held, id)
			h.done[id] = true
			done = append(done, Progress{id, l.Done})
		}
	}
	return done
}

// Delivered notes that the report of a lease was delivered, or refused by the master. It reports
// whether the master knows of all that are done.
func (h *Holder) Delivered(lease int64) (all bool) {
	delete(h.done, lease)
	return len(h.done) == 0
}

// Free notes that a process has ended and that all its messages are handled. Other processes of
// this worker get its leases, without the progress that is not safe.
func (h *Holder) Free(conn int) {
	for _, l := range h.held {
		if l.owner == conn {
			l.owner, l.reported = 0, l.Done
		}
	}
}

// Enter begins a world. Leases with numbers below the floor are void.
func (h *Holder) Enter(floor int64) {
	maps.DeleteFunc(h.held, func(id int64, _ *held) bool { return id < floor })
	h.over, h.waits, h.round = false, time.Time{}, 0 // the state may be an older one
}

// Status returns the progress of the rounds and the leases.
func (h *Holder) Status() Status {
	s := Status{Steps: h.steps, Version: h.round, Rounds: h.generation, Loss: h.loss, Exhausted: h.over}
	for _, id := range slices.Sorted(maps.Keys(h.held)) {
		s.Leases = append(s.Leases, h.held[id].Lease)
	}
	return s
}

// Ledger returns the records that a process reports to be in its state, given the number of epochs
// that are in it completely, the number of their records of shards of unknown length, and the parts
// of others. No other records are added: the state may be older than that of the process's world.
func (h *Holder) Ledger(settled int, counted int64, parts []Part) ledger.Ledger {
	var l ledger.Ledger
	l.SettleCounted(settled, counted)
	for _, p := range parts {
		of, records := int64(math.MaxInt64), p.Records
		if d := h.dataset; d != nil && d.PerTask > 0 && !d.Stream {
			of = min(d.PerTask, d.Size-int64(p.Task.Number)*d.PerTask)
			records = min(records, of)
		}
		l.Add(p.Task, records, of)
	}
	return l
}

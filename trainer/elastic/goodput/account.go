package goodput

import (
	"slices"
	"time"
)

// Spent has the time of a worker since its process began, in milliseconds, as it reports it. Parts
// only rise while the process lives.
type Spent struct {
	// Report is the number of the report, which rises with each.
	Report int64
	// Measured: the worker measures its parts. Otherwise all but Report is 0.
	Measured bool
	// Steps is the number of its steps, and Compute its own computing for them.
	Steps, Compute int64
	// the waits
	Data, Servers, Peers, Checkpoint, Forming int64
}

// Worker is a worker that the job wants.
type Worker struct {
	// Number names the worker. Its successor has another one.
	Number int
	// Cause is the reason for which it does not work; Training: it works, as far as is known.
	Cause Cause
	// Unheard: this master has not heard it yet, and the master before knew it.
	Unheard bool
	// Spent is its last report; without a Report: there was none.
	Spent Spent
}

// View is the state of a job at one time.
type View struct {
	// Asked is the number of workers that are asked for. Of more Workers the last do not count.
	Asked   int
	Workers []Worker
	// Missing is the cause of those that Workers lacks of Asked.
	Missing Cause
	// Progress is that of the model; -1: not known. It is in records with Records, otherwise in
	// updates.
	Progress int64
	Records  bool
	// Recovering: the master was lost, and its successor does not give out records yet.
	Recovering bool
	// Cutting: the parameter servers hold gradients back for a checkpoint.
	Cutting bool
	// Hung is the time of the last sign of life of a program that is stuck, in Unix milliseconds;
	// 0: it is not, or that is not known yet.
	Hung int64
}

// Account is the account of a job. The zero value is that of a job that has not begun.
type Account struct {
	// time of the last observation in Unix milliseconds; 0: time does not count
	at      int64
	asked   int
	missing Cause
	cutting bool
	// the master does not give out records yet
	recovering bool
	slots      map[int]*slot
	// used by no slot at the moment
	spare map[int]*slot

	wanted int64
	lost   [causes]int64
	// of all slots: working time that may turn out to be lost
	open int64

	progress int64
	records  bool
	marks    []mark
	// see View.Hung
	hung int64
	// waits for other workers that are communication, in ms for one step
	least float64
}

// slot is the account of one worker.
type slot struct {
	cause Cause
	// working time since its last report
	open int64
	// of open: time without a master, which is not attributed yet
	unseen int64
	// lost time since its last report, which it may have measured, too
	other int64
	// parts that it has reported, and that exceed its working time so far
	owed parts
	last Spent
	pace pace
	// the master before knew it, and this one has not heard it
	former bool
}

// parts are times by cause, in milliseconds.
type parts [causes]int64

// mostOwed limits what a report may exceed the working time by, in ms: a report and an observation
// are not of the same moment.
const mostOwed = 1000

// unheardFor is the working time of a worker that has ended, after its last report, from which on
// it counts as lost, in ms.
const unheardFor = 1000

// Wanted returns the time for which workers were wanted, in worker-milliseconds.
func (a *Account) Wanted() int64 { return a.wanted }

// Lost returns the lost time of a cause, in worker-milliseconds; 0 for Training.
func (a *Account) Lost(c Cause) int64 { return a.lost[c] }

// Training returns the useful time, in worker-milliseconds.
func (a *Account) Training() int64 {
	left := a.wanted
	for _, ms := range a.lost {
		left -= ms
	}
	return left
}

// Observe notes the state of a job, and attributes the time since the last observation to the state
// before.
func (a *Account) Observe(v View, now time.Time) {
	a.pass(now)
	a.adopt(v)
	a.note(v.Progress, v.Records)
	a.hang(v.Hung)
}

// hang moves the time since the last sign of life to the cause stuck, when that is first known: it
// counted as training until then. The time until the last progress stays training.
func (a *Account) hang(since int64) {
	known := a.hung != 0
	if a.hung = since; since == 0 || known {
		return
	}
	var lost int64
	for _, s := range a.slots {
		if s.cause == Stuck {
			lost += max(0, a.at-since)
		}
	}
	trained := int64(0)
	if n := len(a.marks); n > 0 {
		trained = a.marks[n-1].training
	}
	a.lost[Stuck] += max(0, min(lost, a.certain()-trained))
}

// Stop notes that the job ends or rests. The time until the next observation does not count.
func (a *Account) Stop(now time.Time) {
	a.pass(now)
	for _, s := range a.slots {
		a.leave(s)
	}
	a.at, a.slots, a.spare = 0, nil, nil
}

// Wait notes that all workers of the job wait for one cause until the next observation, as for
// quota that the job has given back.
func (a *Account) Wait(c Cause, now time.Time) {
	at := now.UnixMilli()
	a.Stop(now)
	a.at, a.missing = at, c
}

// pass attributes the time since the last observation.
func (a *Account) pass(now time.Time) {
	at := now.UnixMilli()
	passed := at - a.at
	if a.at == 0 || passed < 0 {
		passed = 0
	}
	if a.at = at; passed == 0 {
		return
	}
	a.wanted += passed * int64(a.asked)
	a.lost[a.missing] += passed * int64(a.asked-len(a.slots))
	for _, s := range a.slots {
		switch {
		case s.former:
			s.open, s.unseen, a.open = s.open+passed, s.unseen+passed, a.open+passed
		case s.cause == Training:
			s.open, a.open = s.open+passed, a.open+passed
		default:
			a.lost[s.cause] += passed
			s.other += passed
		}
	}
}

// adopt takes over the state of the workers, and their reports.
func (a *Account) adopt(v View) {
	workers := v.Workers[:min(len(v.Workers), v.Asked)]
	a.asked, a.missing, a.recovering, a.cutting = v.Asked, v.Missing, v.Recovering, v.Cutting
	if a.missing == Training {
		a.missing = Failed
	}
	next := a.spare
	if next == nil {
		next = make(map[int]*slot, len(workers))
	}
	for _, w := range workers {
		s := a.slots[w.Number]
		if s == nil {
			s = &slot{last: w.Spent}
		}
		delete(a.slots, w.Number)
		next[w.Number] = s
		a.hear(s, w)
	}
	for _, s := range a.slots {
		a.leave(s)
	}
	clear(a.slots)
	a.slots, a.spare = next, a.slots
	a.measure()
}

// hear takes over the state of one worker.
func (a *Account) hear(s *slot, w Worker) {
	if s.former && w.Unheard {
		return
	}
	before := s.cause
	s.cause = w.Cause
	if a.recovering && (w.Cause == Forming || w.Cause == Data) {
		s.cause = MasterAway
	}
	// a new process counts from 0
	if w.Spent.Steps < s.last.Steps || w.Spent.Compute < s.last.Compute || w.Spent.Report < s.last.Report &&
		!s.former {
		s.last, s.pace = Spent{}, pace{}
	}
	was := s.last
	if w.Spent.Report == was.Report && !s.former {
		return
	}
	s.last = w.Spent
	if s.former {
		s.former = false
		a.ended(s, before, w, was)
		return
	}
	if w.Spent.Measured {
		a.report(s, was)
	}
	a.confirm(s)
}

// ended attributes the time without a master of a worker that is heard again.
func (a *Account) ended(s *slot, before Cause, w Worker, was Spent) {
	stepped := w.Spent.Steps > was.Steps
	switch {
	case before != Training:
		s.other += a.take(s, waitsOn(before), s.unseen)
		s.unseen = 0
		if w.Spent.Measured {
			a.report(s, was)
		}
	case w.Spent.Measured:
		a.report(s, was)
		if !stepped {
			a.take(s, MasterAway, s.unseen)
		}
	case w.Cause != Training:
		a.take(s, MasterAway, s.unseen)
	}
	s.unseen = 0
	a.confirm(s)
}

// waitsOn returns the cause of the time without a master of a worker that has not worked before.
func waitsOn(before Cause) Cause {
	switch before {
	case Forming, Data, Checkpoint:
		return MasterAway
	}
	return before
}

// report takes the parts that a worker has measured since its report before from its working time.
func (a *Account) report(s *slot, was Spent) {
	now := s.last
	steps := now.Steps - was.Steps
	s.pace.add(steps, now.Compute-was.Compute, now.Peers-was.Peers, a.at)
	owed := s.owed
	owed[Data] += rise(was.Data, now.Data)
	owed[Checkpoint] += rise(was.Checkpoint, now.Checkpoint)
	owed[Forming] += rise(was.Forming, now.Forming)
	servers := Servers
	if a.cutting {
		servers = Checkpoint
	}
	owed[servers] += rise(was.Servers, now.Servers)
	peers := rise(was.Peers, now.Peers)
	even := min(peers, int64(a.least*float64(max(0, steps))))
	owed[Communication] += even
	owed[SlowestRank] += peers - even
	if a.recovering || s.unseen > 0 {
		for _, c := range []Cause{Data, Communication, SlowestRank} {
			owed[MasterAway] += owed[c]
			owed[c] = 0
		}
	}
	// the master has attributed some of it already
	for c := range owed {
		twice := min(owed[c], s.other)
		owed[c] -= twice
		s.other -= twice
		owed[c] -= a.take(s, Cause(c), owed[c])
	}
	left := int64(mostOwed)
	for c := range owed {
		owed[c] = min(owed[c], left)
		left -= owed[c]
	}
	s.owed = owed
}

func rise(before, now int64) int64 { return max(0, now-before) }

// take moves working time of a slot to a cause, and returns how much there was.
func (a *Account) take(s *slot, c Cause, ms int64) int64 {
	if ms = min(ms, s.open); c == Training || ms <= 0 {
		return 0
	}
	s.open, a.open, a.lost[c] = s.open-ms, a.open-ms, a.lost[c]+ms
	return ms
}

// confirm notes that the working time of a slot was training.
func (a *Account) confirm(s *slot) {
	a.open -= s.open
	s.open, s.other = 0, 0
}

// leave ends a slot. A worker that is lost without having been heard for a while has done nothing.
func (a *Account) leave(s *slot) {
	switch {
	case s.former && s.cause != Training:
		a.take(s, waitsOn(s.cause), s.unseen)
	case s.former:
		a.take(s, MasterAway, s.unseen)
	}
	if s.last.Measured {
		a.take(s, Pending, s.open-unheardFor)
	}
	a.confirm(s)
}

// all returns the numbers of the workers, in order.
func (a *Account) all() (numbers []int) {
	for n := range a.slots {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

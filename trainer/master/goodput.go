package master

import (
	"errors"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// accountPause is the shortest time between two observations of all workers that follow events. It
// is also the longest time for which a change is not observed.
const accountPause = 200 * time.Millisecond

// account keeps the account of the workers' time.
type account struct {
	goodput.Account
	// time of the last observation; zero: there was none
	at time.Time
	// something may have changed since
	due bool
	// of the next observation
	workers []goodput.Worker
	slow    goodput.SlowWatch
}

// deadline returns when the next observation is due, and false if nothing has changed.
func (a *account) deadline() (time.Time, bool) { return a.at.Add(accountPause), a.due }

// accountSoon attributes the time of the workers, or lets the timer do it if the last observation
// was a moment ago. The caller holds the mutex.
func (m *master) accountSoon(now time.Time) {
	since := now.Sub(m.account.at)
	switch {
	case since < 0 || since >= accountPause:
		m.attribute(now)
	case !m.account.due:
		m.account.due = true
		m.clock.look()
	}
}

// attribute attributes the time of the workers since the last observation. The caller holds the
// mutex.
func (m *master) attribute(now time.Time) {
	a := &m.account
	a.at, a.due = now, false
	switch {
	case m.stage.Left() != nil: // the next master does
	case errors.Is(m.stage.Err(), lifecycle.ErrYielded):
		a.Wait(goodput.Queue, now)
	case m.stage.Over():
		a.Stop(now)
	case m.stage.Planned():
		a.Observe(m.view(now), now)
		m.watchPace(now)
	case m.handover.record == nil: // it looks for the data
		a.Observe(goodput.View{Asked: m.fleet.asked(), Missing: goodput.Data, Progress: -1}, now)
	}
}

// watchPace notes which workers are slow. The caller holds the mutex.
func (m *master) watchPace(now time.Time) {
	a := &m.account
	begun, over := a.slow.Observe(a.Slow(), now)
	for _, s := range begun {
		m.events.happen(WorkerSlow{s})
	}
	for _, o := range over {
		m.events.happen(WorkerAtPace{Worker: o.Worker, After: o.After})
	}
}

func workerName(number int) string { return pod.ID{Role: pod.Worker, Index: number}.String() }

// view returns what the account observes.
func (m *master) view(now time.Time) goodput.View {
	progress, records := m.madeProgress()
	v := goodput.View{Asked: m.fleet.asked(), Missing: goodput.Failed, Progress: progress, Records: records,
		Recovering: m.handover.record != nil &&
			(m.stage.Recovering() || m.handover.announcements.withheld(m.clock.at(now))),
		Cutting: m.ring == nil && m.checkpoints.on() && m.checkpoints.order().Number > 0 &&
			!m.checkpoints.copied()}
	job := goodput.Facts{NeedsWorld: m.ring != nil, ServersAway: m.ring == nil && m.fixed == nil &&
		!m.servers.custody.Complete()}
	job.Saves = m.stage.Stage() == lifecycle.Completing && m.work.queue.Finished() && m.evaluations.schedule.Idle()
	if m.program != nil {
		job.Asks, v.Hung = m.program.asks, m.program.hang.stuckSince()
		job.Stuck = v.Hung != 0
	}
	coreWaits := m.admission != nil && m.fleet.table.Quota().CoreWaiting > 0
	works := m.ring != nil && m.ring.works()
	v.Workers = m.account.workers[:0]
	for p := range m.fleet.table.Wanted() {
		f := job
		f.Queued = p.Queued || coreWaits && p.Phase == pod.Wanted
		f.Image, f.Runs = p.Image && p.Phase == pod.Pending, p.Phase == pod.Running || p.Phase == pod.Leaving
		w := goodput.Worker{Number: p.ID.Index}
		if c := m.contacts.get(p.ID); c != nil && f.Runs {
			f.Works = c.heartbeats > 0 || c.former || c.joined && f.ServersAway
			f.Stage = c.stage
			w.Unheard, w.Spent = c.former && c.heartbeats == 0, spentOf(c)
		}
		if works {
			f.InWorld, f.Since = m.ring.has(p.ID.Index), m.ring.now().Sub(m.ring.turned)
		}
		w.Cause = goodput.Judge(f)
		v.Workers = append(v.Workers, w)
	}
	m.account.workers = v.Workers
	return v
}

// madeProgress returns how far the model is, for the account; -1: that is not known.
func (m *master) madeProgress() (progress int64, records bool) {
	done, _ := m.work.counted()
	if m.handover.record != nil && m.stage.Recovering() {
		return -1, false
	}
	g := m.program
	if g == nil {
		return done, true
	}
	switch _, met := m.ring.meeting.World(); {
	case !met || g.lost != nil:
		// the program has yet to report what it continues from
		return -1, false
	case g.work.dataset != nil:
		return done, true
	case m.account.Records():
		// it has yet to declare its data set
		return -1, false
	}
	return m.strategy.version(), false
}

// has reports whether a worker is in the last world, and does not wait for the next one.
func (r *ring) has(worker int) bool {
	s := r.participants[worker]
	return s != nil && !s.waits && s.given == r.custody.World().Generation
}

// spentOf returns where the time of a worker went, as it has reported it.
func spentOf(c *contact) goodput.Spent {
	s := goodput.Spent{Report: c.heartbeats, Steps: c.steps}
	if w := c.spent; w != nil {
		s.Measured = true
		s.Compute, s.Data, s.Servers = max(0, w.ComputeMs), max(0, w.DataMs), max(0, w.ServersMs)
		s.Peers, s.Checkpoint, s.Forming = max(0, w.PeersMs), max(0, w.CheckpointMs), max(0, w.FormingMs)
	}
	return s
}

// accounting returns the account for the status.
func (a *account) accounting() *wire.Accounting {
	s := &wire.Accounting{WantedMs: a.Wanted(), TrainingMs: a.Training()}
	for _, c := range goodput.Causes() {
		if ms := a.Lost(c); ms > 0 {
			s.Lost = append(s.Lost, &wire.LostTime{Cause: c.String(), Ms: ms})
		}
	}
	for _, w := range a.slow.Reported() {
		s.Slow = append(s.Slow, &wire.SlowWorker{Worker: int32(w.Worker), StepMs: w.Step, MedianMs: w.Median})
	}
	return s
}

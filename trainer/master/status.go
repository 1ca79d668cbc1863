package master

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// publish passes the status to [Config].OnStatus each second.
func (m *master) publish(ctx context.Context) {
	if m.OnStatus == nil && m.OnMeasures == nil {
		return
	}
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	var waits patience
	var known []string
	for {
		now := time.Now()
		s, more := m.measured(now)
		// the journal has more about a job that is stuck, and its wait, if any, continues
		if reason := standstill(s); s.Stuck == "" {
			if e := waits.observe(reason, now); e != nil {
				m.Log.Warn(e.Words(), "reason", reason)
				m.note(e)
			}
		}
		for _, problem := range s.Problems {
			if !slices.Contains(known, problem) {
				m.Log.Warn("A problem that the job outlasts so far", "problem", problem)
			}
		}
		known = s.Problems
		m.draw(s, now)
		m.publishes(s, more)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// draw adds the status to the curves.
func (m *master) draw(s *wire.JobStatus, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress.draw(s, now)
}

// standstill returns what a job waits for that does not train; "": it trains, stops or has ended.
func standstill(s *wire.JobStatus) string {
	for _, c := range s.Conditions {
		if c.Type == journal.Running && c.Reason == journal.Waits {
			return s.Waiting
		}
	}
	return ""
}

// patience tracks how long the job has been waiting, and whether that was logged.
type patience struct {
	// start of the wait; zero: the job does not wait
	since time.Time
	said  bool
}

// waitEvent is an event about a wait of the job.
type waitEvent interface {
	Event
	Words() string
}

// observe notes what the job waits for, "" for nothing, and returns an event: once when the wait
// lasts, and once when it is over. Nil: nothing.
func (p *patience) observe(what string, now time.Time) waitEvent {
	switch {
	case what == "" && p.said:
		after := now.Sub(p.since)
		*p = patience{}
		return Continues{After: after}
	case what == "":
		*p = patience{}
	case p.since.IsZero():
		p.since = now
	case !p.said && now.Sub(p.since) >= 10*statusEvery:
		p.said = true
		return Waits{Reason: what}
	}
	return nil
}

// note handles an event that happened outside the mutex.
func (m *master) note(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events.happen(e)
}

// status returns the job as users see it.
func (m *master) status(now time.Time) *wire.JobStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.describe(now)
}

// describe returns the status of the job. The caller holds the mutex.
func (m *master) describe(now time.Time) *wire.JobStatus {
	m.attribute(now)
	stats := m.work.queue.Stats()
	done, total := m.work.counted()
	s := &wire.JobStatus{
		Name:             m.Job.Name,
		Output:           cmp.Or(m.Job.Output, m.Job.PredictionOutputs),
		State:            string(m.stage.State()),
		Strategy:         string(m.Job.Strategy),
		Type:             string(m.Job.Type),
		Epoch:            int32(stats.Epoch),
		Epochs:           int32(stats.Epochs),
		RecordsDone:      done,
		RecordsTotal:     total,
		RecordsPerSecond: m.progress.speed.rate(now, done),
		Version:          m.strategy.version(),
		ModelGeneration:  m.Self.ModelGeneration(),
		RecordsBefore:    m.progress.resumed,
		RollbackReason:   m.progress.reason,
		Rollbacks:        int32(m.progress.rewinds),
		Relaunched:       int64(m.fleet.table.Relaunched()),
		Requeued:         int64(stats.Requeued),
		// elements of which never change
		Evaluations:   append([]*wire.Evaluation(nil), m.evaluations.newest...),
		Evaluated:     m.evaluations.number,
		StartedUnixMs: m.stage.Started().UnixMilli(),
		EndedUnixMs:   unixMilli(m.stage.Ended()),
		Workers:       int32(m.fleet.asked()),
		History:       m.events.describe(),
		Accounting:    m.account.accounting(),
	}
	if m.stage.Err() != nil {
		s.Reason = m.stage.Err().Error()
	}
	s.Rejected = m.contacts.rejected()
	s.Problems = m.problems()
	pods := m.fleet.table.List()
	switch {
	case m.stage.Over():
		s.Waiting = endsWith(pods, m.stage.Ended().Add(m.Job.TimeToEnd()).Sub(now))
	case m.stage.Planned():
		s.Waiting = cmp.Or(m.stopsWhen(now), waitsFor(pods))
	default:
		s.Waiting = m.indexing()
	}
	if why := m.checkpoints.problem; why != "" && m.stage.Stage() == lifecycle.Completing && s.Waiting == "" {
		s.Waiting = "the checkpoint of the trained model, which cannot be written: " + why
	}
	if m.ring != nil {
		m.ring.describe(s)
	}
	m.checkpoints.describe(s)
	if m.program != nil {
		m.program.describe(s)
	}
	for _, p := range pods {
		s.Pods = append(s.Pods, podStatus(p))
		if c := m.contacts.get(p.ID); c != nil && shows(p.Phase) {
			s.Pods[len(s.Pods)-1].Processes = c.processes // elements of which never change
		}
	}
	// of the living workers, or of the last one that lived
	s.Loss = m.contacts.meanLoss(pods)
	f := factsOf(s, m.Job.Queue)
	switch q := m.fleet.table.Quota(); {
	case m.admission == nil:
	case !m.stage.Planned():
		f.Queued = "its pods are not created yet"
	case q.CoreAdmitted < q.Core:
		f.Queued = lacksQuota(m.Job, q)
	}
	// it trains until it stops
	if n, _, _ := m.stage.Closing(); n != 0 {
		f.Waiting = ""
	}
	s.Conditions = wireConditions(m.events.journal.Observe(journal.Judge(f), now))
	return s
}

// problems returns what is wrong around the job, although it continues. The caller holds the mutex.
func (m *master) problems() (all []string) {
	if m.Problems != nil {
		all = m.Problems()
	}
	if !m.stage.Over() {
		all = append(all, m.contacts.problems()...)
		for _, s := range m.account.slow.Reported() {
			all = append(all, workerName(s.Worker)+" "+s.Pace())
		}
	}
	return all
}

// stopsWhen returns what a job that is to stop or rest waits for; "" if it is not.
func (m *master) stopsWhen(now time.Time) string {
	what := "a checkpoint of what is in the model"
	n, _, by := m.stage.Closing()
	switch {
	case n == 0 || n == Leave:
		return ""
	case m.program != nil:
		what = "its processes to end a round and write a checkpoint"
	}
	return fmt.Sprintf("it is to stop, and waits for %s, for %s at most (--grace_period)", what,
		seconds(by.Sub(now)))
}

// endsWith returns which pods of an ended job are left, and how much of their grace period; "" if
// none is.
func endsWith(pods []pod.Pod, left time.Duration) string {
	const most = 3
	var names []string
	for _, p := range pods {
		if !p.Phase.Ended() && p.Phase != pod.Wanted {
			names = append(names, p.ID.String())
		}
	}
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("%d more", n-most))
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s may take %s to end (--grace_period)", strings.Join(names, ", "), seconds(left))
}

// seconds returns a time that is left as text, 0s if none is.
func seconds(left time.Duration) string { return max(left, 0).Round(time.Second).String() }

// waitsFor returns which pods the job cannot continue without, and why they are missing; "" if none
// is.
func waitsFor(pods []pod.Pod) string {
	runs, pending, why := 0, 0, ""
	for _, p := range pods {
		starts := p.Phase.Public() == pod.Pending
		switch {
		case starts && p.ID.Role == pod.PS:
			return fmt.Sprintf("%v does not run%s", p.ID, inParentheses(p.Waiting))
		case starts:
			pending++
			why = cmp.Or(why, p.Waiting)
		case p.ID.Role == pod.Worker && !p.Phase.Ended():
			runs++
		}
	}
	if runs > 0 || pending == 0 {
		return ""
	}
	return fmt.Sprintf("no worker runs: %d to start%s", pending, inParentheses(why))
}

func inParentheses(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func podStatus(p pod.Pod) *wire.PodStatus {
	s := &wire.PodStatus{
		Role:          wire.Role(p.ID.Role),
		Index:         int32(p.ID.Index),
		Incarnation:   int32(p.Incarnation),
		State:         p.Phase.Public().String(),
		Reason:        p.Waiting,
		Pid:           int32(p.PID),
		Address:       p.Address,
		Node:          p.Node,
		StartedUnixMs: unixMilli(p.Started),
		EndedUnixMs:   unixMilli(p.Ended),
	}
	switch p.Phase.Public() {
	case pod.Leaving, pod.Failed, pod.Deleted:
		s.Reason = p.Exit.String()
	}
	if p.GivenUp {
		s.Reason += "; not replaced"
	}
	return s
}

// unixMilli returns a time in milliseconds since 1970; 0 for the zero time.
func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// pace notes for the speed what is done now. After a master that was lost it begins when all is
// known that was done before: nothing of that was done since. The mutex is held.
func (m *master) pace(now time.Time) {
	if m.handover.announcements.pending() {
		return
	}
	done, _ := m.work.counted()
	m.progress.speed.add(now, done)
}

package master

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// noticeGrace is the time that a checkpoint may take after a notice by default: half of the grace
// period of a Kubernetes pod.
const noticeGrace = 15 * time.Second

// newStage returns the stage of a job that begins, or continues after another master.
func newStage(c Config, former *record, now time.Time) (*lifecycle.Lifecycle, error) {
	p := lifecycle.Policy{Grace: cmp.Or(c.Grace, noticeGrace), Farewell: leaveGrace,
		End: c.Job.TimeToEnd() + timing.EndSlack}
	if former == nil {
		return lifecycle.New(p, now), nil
	}
	return lifecycle.Restore(p, former.Snapshot, now)
}

// facts returns what a planned end depends on. The caller holds the mutex.
func (m *master) facts() lifecycle.Facts {
	return lifecycle.Facts{
		Checkpoints: m.checkpoints.on(), Covered: m.checkpoints.covered(), Version: m.strategy.version(),
		Pods: slices.ContainsFunc(m.fleet.table.List(), func(p pod.Pod) bool {
			return p.Phase == pod.Running || p.Phase == pod.Leaving
		}),
		Undone: m.undone(),
	}
}

// notice makes the master go as soon as there is a checkpoint of what is in the model now.
func (m *master) notice(n Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if actions, ok := m.stage.Close(n, m.facts(), now); ok {
		m.closes(actions, now)
	}
}

// ReportNotice implements [wire.MasterServer].
func (m *master) ReportNotice(ctx context.Context, r *wire.ReportNoticeRequest) (*wire.ReportNoticeReply, error) {
	m.mu.Lock()
	err := m.fleet.known(ctx)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	caller := rpc.Caller(ctx)
	if m.TakenAway != nil && !m.TakenAway(caller.ID(), caller.Incarnation, r.Why) {
		return nil, status.Errorf(codes.Unavailable, "the node of %v is not known yet", caller.ID())
	}
	return new(wire.ReportNoticeReply), nil
}

// halt stops the job for a reason, as soon as there is a checkpoint of what is in the model now. If
// the job is about to stop, or to be suspended, and again is set, it ends at once.
func (m *master) halt(why error, again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	actions, later := m.stage.Stop(why, again, m.facts(), now)
	if !later {
		m.perform(actions, now)
		return
	}
	m.closes(actions, now)
}

// closes performs what follows from a request to end. The caller holds the mutex.
func (m *master) closes(actions []lifecycle.Action, now time.Time) {
	m.perform(actions, now)
	n, _, by := m.stage.Closing()
	what := map[Notice]string{Leave: "The master was asked to leave, and the pods continue",
		Suspend: "The job is to be suspended", lifecycle.Stop: "The job is to stop",
		lifecycle.Yield: "The job gives its quota back"}[n]
	m.Log.Info(what, "checkpoint", m.checkpoints.on(), "within", by.Sub(now).Round(time.Second))
	m.advance(now)
	m.clock.look()
}

// goes performs a requested end that is due. The caller holds the mutex.
func (m *master) goes(now time.Time) {
	n, _, _ := m.stage.Closing()
	if n == 0 || m.stage.Over() {
		return
	}
	f := m.facts()
	if m.program != nil {
		f.Processes = m.program.processes()
	}
	m.perform(m.stage.Step(f, now), now)
}

// perform performs the actions of the stage in their order. If another master has begun, it drops
// those behind the record that could not be written. The caller holds the mutex.
func (m *master) perform(actions []lifecycle.Action, now time.Time) {
	for _, a := range actions {
		var err error
		switch a.Verb {
		case lifecycle.Record:
			err = m.remember()
		case lifecycle.Seal:
			if errors.Is(m.stage.Err(), lifecycle.ErrYielded) {
				m.events.happen(QuotaReturned{Reason: m.yields.Reason, Pause: m.yields.Pause})
			} else if m.stage.Over() {
				m.events.happen(Suspended{})
			}
			m.attribute(now)
			err = m.remember()
			m.recorder.seal()
			m.logSealed()
		case lifecycle.Hold:
			m.fleet.table.Hold()
		case lifecycle.Unsaved:
			m.Log.Warn("No checkpoint could be made in time", "version", a.Version, "newest",
				m.checkpoints.covered())
		case lifecycle.Report:
			m.attribute(now)
			m.reportEnd()
		case lifecycle.End:
			ends := m.fleet.table.End(a.Grace, now)
			if a.Recorded {
				err = m.remember()
			}
			if !errors.Is(err, ErrSuperseded) {
				m.enqueue(ends)
			}
		case lifecycle.Wake:
			m.waiters.wake()
			m.clock.look()
		}
		if errors.Is(err, ErrSuperseded) {
			m.quit(err)
			return
		}
	}
}

// logSealed logs why this master has written its last record.
func (m *master) logSealed() {
	if m.stage.Over() {
		yielded := errors.Is(m.stage.Err(), lifecycle.ErrYielded)
		m.Log.Info(map[bool]string{false: "Job Suspended", true: "The job has returned its quota"}[yielded],
			"checkpoint", m.checkpoints.newest().Number, "records",
			m.checkpoints.newestKept().records())
		return
	}
	m.Log.Info("The master leaves", "reason", m.stage.Left())
}

// reportEnd tells how the job has ended.
func (m *master) reportEnd() {
	state, err := m.stage.State(), m.stage.Err()
	if err != nil {
		m.Log.Error("Job "+string(state), "reason", err)
	} else {
		done, _ := m.work.counted()
		m.Log.Info("Job "+string(state), "records", done, "evaluations", m.evaluations.number)
	}
	m.events.happen(Ended{State: state, Err: err})
}

// quit ends Run, and leaves the pods unchanged: another master has begun. The caller holds the
// mutex.
func (m *master) quit(err error) {
	m.recorder.seal()
	if m.stage.Left() == nil {
		m.Log.Info("The master leaves", "reason", err)
	}
	m.perform(m.stage.Supersede(err), time.Now())
}

// write writes the records for the next master, and ends this one if another has begun.
func (m *master) write(ctx context.Context) {
	err := m.recorder.run(ctx, func(err error) {
		m.Log.Warn("Writing the state for the next master failed; retrying", "error", err)
	})
	if err != nil {
		m.superseded(err)
	}
}

// superseded ends this master, as another has begun, to which the pods now belong.
func (m *master) superseded(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quit(err)
}

// hint has the master's state written at intervals, and soon after each entry of the journal.
func (m *master) hint(ctx context.Context) {
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.events.fresh:
			pause(ctx, entryPause)
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		m.record()
		m.mu.Unlock()
	}
}

// conclude has the last entries of the journal written, those of the ends of pods after the job's.
func (m *master) conclude() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events.saved < m.events.journal.Last() {
		m.remember()
	}
}

// specify notes the number of workers in the job's specification.
func (m *master) specify(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fleet.specified = n
}

// adoptPods finds the pods that previous masters have left. It retries until it knows.
func (m *master) adoptPods(ctx context.Context) ([]pod.Event, error) {
	for wait := recordPause; ; wait = min(2*wait, recordMost) {
		observed, err := m.Pods.Adopt(ctx)
		if err == nil {
			return observed, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		m.Log.Warn("Listing the pods failed; retrying", "error", err)
		pause(ctx, wait)
	}
}

// restoreEnd replaces a master that has ended the job: the remaining pods are ended.
func (m *master) restoreEnd(observed []pod.Event, now time.Time) error {
	r := m.handover.record
	table, actions, err := pod.Restore(m.fleet.policy(), r.Pods, observed, now)
	if err != nil {
		return err
	}
	m.fleet.table, m.evaluations.number = table, r.Evaluated
	m.Log.Info("The job has ended, as the previous master has written", "state", r.State)
	m.enqueue(actions)
	m.perform(m.stage.Plan(now), now)
	return nil
}

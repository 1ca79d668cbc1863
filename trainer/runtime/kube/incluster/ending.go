package incluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	batch "k8s.io/api/batch/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Reasons why a master that is asked to leave stops its job.
var (
	errDeleted = errors.New("the job was deleted")
	errLate    = errors.New("it has run for longer than its --deadline")
)

// lastly returns a context for requests after the job's end, which does not end with ctx.
func lastly(ctx context.Context) (context.Context, context.CancelFunc) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(leaveLimit, cancel)
	})
	return last, func() { stop(); cancel() }
}

// asked returns what a master that is asked to leave must do, according to its Job: leave the job
// to the next master, suspend it, or stop it for a reason. If the Job cannot be read, the next
// master decides.
func (m *kubeMaster) asked(ctx context.Context) (notice master.Notice, stop error) {
	notice, stop, err := m.intends(ctx, 0)
	if err != nil {
		m.log.Warn("Whether the job is to continue could not be read: it is left to the next master", "error", err)
		return master.Leave, nil
	}
	return notice, stop
}

// intends returns what the Job wants of its master now: see [intention]. Its deadline counts when
// it has passed for a while.
func (m *kubeMaster) intends(ctx context.Context, slack time.Duration) (notice master.Notice, stop, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	var root *batch.Job
	err = insist(ctx, m.log, "read the Job", func(ctx context.Context) (err error) {
		root, err = m.Client.BatchV1().Jobs(m.Namespace).Get(ctx, manifest.MasterName(m.Job), meta.GetOptions{})
		return err
	})
	if err != nil && !api.IsNotFound(err) {
		return 0, nil, err
	}
	notice, stop = intention(root, m.env[job.EnvUID], time.Now().Add(-slack))
	return notice, stop, nil
}

// overseeEvery is the interval at which a master looks whether its Job is suspended or over.
// Usually its launcher ends it then; it may have been lost just before.
const overseeEvery = 15 * time.Second

// overseeSlack is the time by which the clocks of two nodes may differ.
const overseeSlack = time.Minute

// oversee sends what the master must do once it is asked to leave, at the end of ctx, or once its
// Job wants it to end. It returns with lasting at the latest.
func (m *kubeMaster) oversee(ctx, lasting context.Context, notices chan<- master.Notice, end func(error)) {
	tick := time.NewTicker(overseeEvery)
	defer tick.Stop()
	for {
		var notice master.Notice
		var stop, err error
		select {
		case <-lasting.Done():
			return
		case <-ctx.Done():
			notice, stop = m.asked(lasting)
		case <-tick.C:
			notice, stop, err = m.intends(lasting, overseeSlack)
			if err != nil || stop == nil && notice != master.Suspend {
				continue
			}
		}
		if stop != nil {
			end(stop)
		} else {
			notices <- notice
		}
		return
	}
}

// intention returns what a master has to do by the present state of its Job, which has the UID:
// leave the job to the next master, suspend it, or stop it for a reason. root nil: there is no Job
// of the name.
func intention(root *batch.Job, uid string, now time.Time) (notice master.Notice, stop error) {
	switch {
	case root == nil, root.Name == "", string(root.UID) != uid, root.DeletionTimestamp != nil:
		return 0, errDeleted
	case observe.Failure(root) != nil &&
		observe.Failure(root).Reason == batch.JobReasonDeadlineExceeded || late(root, now):
		return 0, errLate
	case observe.Failure(root) != nil:
		return 0, fmt.Errorf("its Job has failed: %s", observe.Failure(root).Message)
	case observe.JobCondition(root, batch.JobComplete) != nil:
		return 0, errors.New("its Job is complete")
	case observe.Suspended(root):
		return master.Suspend, nil
	}
	return master.Leave, nil
}

// late reports whether a Job has run for as long as it may: its controller deletes the pod before
// it reports it.
func late(root *batch.Job, now time.Time) bool {
	limit, began := root.Spec.ActiveDeadlineSeconds, root.Status.StartTime
	return limit != nil && began != nil && !now.Before(began.Add(time.Duration(*limit)*time.Second))
}

// conclude ends the Job of a job that has ended, but whose master was lost before it could do so.
func (m *kubeMaster) conclude(ctx context.Context, status *wire.JobStatus) error {
	m.log.Info("The job is over already", "state", status.State, "reason", status.Reason)
	m.sweep(ctx)
	if job.State(status.State) == job.Succeeded {
		return nil
	}
	return m.giveUp(ctx, errors.New(cmp.Or(status.Reason, "the job has ended: "+status.State)))
}

// settle does what is to be done when the training ends with err, and returns what the process ends
// with: nil only if it is written that the job has succeeded.
func (m *kubeMaster) settle(ctx context.Context, final *wire.JobStatus, err error) error {
	final = proto.CloneOf(final) // the recorder has it, too
	ended := job.State(final.State).Ended()
	var yielded *master.Yielded
	switch {
	case errors.Is(err, master.ErrSuperseded): // what is there is the other's
		m.log.Warn("This master ends", "reason", err)
		return err
	case err == nil:
		if err := m.write(ctx, final); err != nil {
			return fmt.Errorf("the job has succeeded, which could not be written: %w", err)
		}
		m.sweep(ctx)
		return nil
	case errors.Is(err, master.ErrSuspended):
		return m.rest(ctx, final)
	case errors.As(err, &yielded):
		return m.yield(ctx, final, yielded)
	case errors.Is(err, master.ErrLeft), ctx.Err() != nil && !ended:
		return m.left(ctx, final)
	}
	if !ended { // it could not begin
		final.State, final.Reason, final.EndedUnixMs = string(job.Failed), err.Error(), time.Now().UnixMilli()
		master.Rejudge(final, time.Now())
		m.events.hear(master.EntryOf(master.Ended{State: job.Failed, Err: err}))
	}
	if unwritten := m.write(ctx, final); unwritten != nil && job.State(final.State) == job.Failed {
		return fmt.Errorf("the job has failed, which could not be written: %w; it failed for: %w", unwritten, err)
	}
	m.sweep(ctx)
	if job.State(final.State) == job.Failed {
		return m.giveUp(ctx, err)
	}
	return err
}

// left is the end of a master that was asked to stop. The Job's present spec counts.
func (m *kubeMaster) left(ctx context.Context, final *wire.JobStatus) error {
	last, cancel := lastly(ctx)
	defer cancel()
	notice, stop := m.asked(last)
	switch {
	case stop != nil:
		final.State, final.Reason, final.EndedUnixMs = string(job.Stopped),
			fmt.Sprintf("stopped: %v", stop), time.Now().UnixMilli()
		master.Rejudge(final, time.Now())
		m.events.hear(master.EntryOf(master.Ended{State: job.Stopped, Err: stop}))
		m.write(ctx, final)
		m.sweep(ctx)
		return stop
	case notice == master.Suspend:
		return m.rest(ctx, final)
	}
	m.log.Info("This master leaves; the job continues with the next one")
	return master.ErrLeft
}

// rest ends the pods of a job that is suspended. Its next master continues from the newest
// checkpoint.
func (m *kubeMaster) rest(ctx context.Context, final *wire.JobStatus) error {
	m.sweep(ctx)
	final.State, final.RecordsPerSecond = string(job.Suspended), 0
	m.write(ctx, final)
	m.log.Info("The job is suspended")
	return master.ErrSuspended
}

// yield ends the pods of a job that has given back the quota of its queue. Its launcher starts the
// next master after the pause, unless the Job is suspended or over by then.
func (m *kubeMaster) yield(ctx context.Context, final *wire.JobStatus, y *master.Yielded) error {
	m.sweep(ctx)
	until := time.Now().Add(y.Pause)
	final.State, final.RecordsPerSecond, final.EndedUnixMs, final.Waiting = string(job.Pending), 0, 0, ""
	final.Reason = y.Reason
	m.tell(final)
	last, cancel := lastly(ctx)
	defer cancel()
	if err := m.state.rest(last, final, until); err != nil {
		m.log.Error("When the job tries again could not be written: it does so at once", "error", err)
	}
	m.log.Info("The job has given its quota back", "reason", y.Reason, "until", until.Format(time.TimeOnly))
	return y
}

// write writes a job's last status, which a master that has not begun does not know.
func (m *kubeMaster) write(ctx context.Context, final *wire.JobStatus) error {
	if m.state.incarnation == 0 {
		return nil
	}
	m.tell(final)
	last, cancel := lastly(ctx)
	defer cancel()
	err := m.state.finish(last, final)
	if err != nil {
		m.log.Error("The job's last status could not be written", "error", err)
	}
	return err
}

// tell writes the conditions of a job's last status into its Job.
func (m *kubeMaster) tell(final *wire.JobStatus) {
	final = proto.CloneOf(final)
	master.Rejudge(final, time.Now())
	m.conditions.hear(final)
}

// sweep deletes all remaining pods of the job.
func (m *kubeMaster) sweep(ctx context.Context) {
	ctx, cancel := lastly(ctx)
	defer cancel()
	pods := m.runtime(&job.Job{Name: m.Job, Namespace: m.Namespace})
	defer pods.Close()
	if err := pods.Sweep(ctx); err != nil {
		m.log.Error("Deleting the remaining pods failed", "error", err)
	}
}

// giveUp makes the end of this process, with err, the end of the Job: it is not to be tried again.
// A master whose Role does not allow that is started again, more and more seldom, by its kubelet.
// Each of them does nothing but try again, so that the Job ends when the Role is mended, or with
// elasticdl stop; to exit with 0 would make the Job complete, and what it is is failed.
func (m *kubeMaster) giveUp(ctx context.Context, err error) error {
	ctx, cancel := lastly(ctx)
	defer cancel()
	refused := insist(ctx, m.log, "end the Job", func(ctx context.Context) error {
		return m.patchJob(ctx, `{"backoffLimit":0}`)
	})
	if refused == nil {
		return err
	}
	m.log.Error("The Job could not be ended, and starts a master again and again", "error", refused)
	return fmt.Errorf("%w; Job %s could not be ended: %w: allow patch of jobs in the master's Role "+
		"(elasticdl rbac), or stop the job",
		err, manifest.MasterName(m.Job), refused)
}

// patchJob patches the spec of this master's own Job.
func (m *kubeMaster) patchJob(ctx context.Context, spec string) error {
	return patchJob(ctx, m.Client.BatchV1().Jobs(m.Namespace), manifest.MasterName(m.Job), m.env[job.EnvUID], spec)
}

// patchJob patches the spec of the Job with a UID. A deleted one is no error, nor is another of its
// name, which the API server does not patch because of the UID.
func patchJob(ctx context.Context, jobs clientset.Jobs, name, uid, spec string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":%s}`, uid, spec)
	_, err := jobs.Patch(ctx, name, types.MergePatchType, patch, meta.PatchOptions{})
	if api.IsNotFound(err) || api.IsConflict(err) || api.IsInvalid(err) {
		return nil
	}
	return err
}

package incluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Intervals between two writes of conditions: for a change of a status or a reason, and for one of
// messages only, as of the newest checkpoint. Each write makes the Job controller look at the Job.
const (
	conditionEvery = 3 * time.Second
	messageEvery   = time.Minute
)

// conditionWriter writes the conditions of a job into the status of its Job, with types that begin
// with [manifest.ConditionPrefix]. Those without a prefix are the Job controller's: it keeps the
// others, because it changes the list that it has read. The patch is a strategic merge, which
// replaces conditions by their type. A server-side apply would own the whole list, which is atomic
// there, and would remove those of the controller.
type conditionWriter struct {
	jobs      clientset.Jobs
	name, uid string
	log       *slog.Logger
	// they could not be written, and that was reported
	denied bool

	// something is wanted that was not looked at
	fresh chan struct{}
	// what is wanted is to be written at once, and is the last
	ending  chan struct{}
	routine sync.WaitGroup
	cancel  context.CancelFunc

	mu     sync.Mutex
	wanted []batch.JobCondition
}

func newConditionWriter(jobs clientset.Jobs, job, uid string, log *slog.Logger) *conditionWriter {
	return &conditionWriter{jobs: jobs, name: manifest.MasterName(job), uid: uid, log: log,
		fresh: make(chan struct{}, 1), ending: make(chan struct{})}
}

// hear takes the conditions in a status of the job. It does not block.
func (w *conditionWriter) hear(s *wire.JobStatus) {
	if len(s.Conditions) == 0 {
		return
	}
	wanted := make([]batch.JobCondition, len(s.Conditions))
	for i, c := range s.Conditions {
		wanted[i] = batch.JobCondition{Type: batch.JobConditionType(manifest.ConditionPrefix + c.Type),
			Status: core.ConditionStatus(c.Status), Reason: c.Reason, Message: shorten(c.Message),
			// as the API has it: in seconds
			LastTransitionTime: meta.NewTime(time.UnixMilli(c.LastTransitionUnixMs).UTC().Truncate(time.Second))}
	}
	w.mu.Lock()
	w.wanted = wanted
	w.mu.Unlock()
	select {
	case w.fresh <- struct{}{}:
	default:
	}
}

// start begins to write, until end.
func (w *conditionWriter) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.routine.Go(func() { w.run(ctx) })
}

// end writes what is wanted, for eventLimit, and returns when nothing more is written.
func (w *conditionWriter) end() {
	defer time.AfterFunc(eventLimit, w.cancel).Stop()
	close(w.ending)
	w.routine.Wait()
	w.cancel()
}

// run writes the conditions when they have changed.
func (w *conditionWriter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var written []batch.JobCondition
	var last time.Time
	ending, over := w.ending, false
	for ctx.Err() == nil {
		w.mu.Lock()
		wanted := w.wanted
		w.mu.Unlock()
		pause, changed := pauseFor(written, wanted)
		if changed && (over || time.Since(last) >= pause) {
			w.write(ctx, wanted)
			written, last = wanted, time.Now()
			continue
		}
		if over {
			return
		}
		timer.Stop()
		if changed {
			timer.Reset(time.Until(last.Add(pause)))
		}
		select {
		case <-timer.C:
		case <-w.fresh:
		case <-ending:
			ending, over = nil, true
		case <-ctx.Done():
		}
	}
}

// pauseFor returns how long after a write the next one may come, and whether there is something to
// write.
func pauseFor(written, wanted []batch.JobCondition) (pause time.Duration, changed bool) {
	if slices.Equal(written, wanted) {
		return 0, false
	}
	same := slices.EqualFunc(written, wanted, func(a, b batch.JobCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
	if same {
		return messageEvery, true
	}
	return conditionEvery, true
}

// write patches the Job's status, however long the API server does not answer. That it is refused
// is no error of the job's.
func (w *conditionWriter) write(ctx context.Context, all []batch.JobCondition) {
	err := insist(ctx, w.log, "write the conditions of the Job", func(ctx context.Context) error {
		return patchConditions(ctx, w.jobs, w.name, w.uid, all)
	})
	if err != nil && ctx.Err() == nil && !w.denied {
		w.denied = true
		w.log.Warn("The conditions of the job are not written: kubectl wait does not see them, but "+
			"elasticdl wait does; allow patch of jobs/status in the master's Role (elasticdl rbac)", "error", err)
	}
}

// patchConditions sets conditions of the Job with a UID. A deleted one is no error, nor is another
// of its name, which the API server does not patch because of the UID.
func patchConditions(ctx context.Context, jobs clientset.Jobs, name, uid string, all []batch.JobCondition) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid},
		"status": map[string]any{"conditions": all}})
	if err != nil {
		return err
	}
	_, err = jobs.Patch(ctx, name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
	if api.IsNotFound(err) || api.IsConflict(err) || api.IsInvalid(err) {
		return nil
	}
	return err
}

package incluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// reported has the kinds of entries that are events of the Job: those that somebody may have to act
// on, and the end of the job. The others are frequent in a healthy job.
var reported = map[journal.Kind]bool{
	journal.TrainingStartedOver: true, journal.TrainingRolledBack: true, journal.CheckpointDamaged: true,
	journal.CheckpointFailed: true, journal.QuotaReturned: true, journal.PodFailed: true,
	journal.PodRejected: true, journal.PodReplaced: true, journal.FailedCreate: true,
	journal.ProgramFailed: true, journal.MasterLost: true, journal.JobSuspended: true, journal.JobScaled: true,
	journal.Stuck: true, journal.Unstuck: true, journal.WorkerSlow: true,
	journal.TrainingSucceeded: true, journal.TrainingFailed: true, journal.TrainingStopped: true,
}

// How many events of one reason a job has: a burst, then one in a while that counts the others, as
// client-go limits those of Kubernetes' own components. A cluster keeps them for an hour, in which
// there are some twenty.
const (
	eventBurst = 10
	eventEvery = 5 * time.Minute
)

// eventWords is the number of bytes that a message may have: as many as events.k8s.io allows.
const eventWords = 1024

// eventLimit is the time that a master stays for events that are not written when its job is over
// and its last state is written, which says the same: of the 30 s that a pod has which was deleted,
// the pods and the state may have taken leaveLimit each.
const eventLimit = 5 * time.Second

// eventWriter writes what happens to a job as events of its Job. It only creates them, when they
// are complete: client-go's recorder also needs the permission to patch them, and does not wait
// until they are written at its end.
type eventWriter struct {
	events clientset.Events
	job    string
	// what all have in common
	event core.Event
	log   *slog.Logger
	// one could not be written, and that was reported
	denied bool
	// reasons of those that were not written when there was no more time
	late []string

	// something is waiting that was not looked at
	fresh chan struct{}
	// what is waiting is to be written at once, and is the last
	ending  chan struct{}
	routine sync.WaitGroup
	cancel  context.CancelFunc

	mu sync.Mutex
	// the time, in nanoseconds, by which the last event was named
	last    int64
	reasons map[string]*reason
}

// reason is the events of one reason.
type reason struct {
	rate    *rate.Limiter
	waiting *core.Event // until due; nil: none
	due     time.Time
}

func newEventWriter(events clientset.Events, component, namespace, job, uid, pod, node string,
	log *slog.Logger) *eventWriter {
	return &eventWriter{
		events: events, job: job, log: log, fresh: make(chan struct{}, 1), ending: make(chan struct{}),
		reasons: make(map[string]*reason),
		event: core.Event{
			ObjectMeta: meta.ObjectMeta{Namespace: namespace},
			InvolvedObject: core.ObjectReference{
				APIVersion: batch.SchemeGroupVersion.String(), Kind: "Job", Namespace: namespace,
				Name: manifest.MasterName(job), UID: types.UID(uid),
			},
			Source:              core.EventSource{Component: component, Host: node},
			ReportingController: component, ReportingInstance: pod,
		},
	}
}

// hear queues an event of the job, if it is of interest to users. It does not block, and holds at
// most one event of each reason: one that comes before that could be written is counted in it.
func (w *eventWriter) hear(e journal.Entry) {
	kind, why, message := w.describe(e)
	if why == "" {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.reasons[why]
	if r == nil {
		r = &reason{rate: rate.NewLimiter(rate.Every(eventEvery), eventBurst)}
		w.reasons[why] = r
	}
	if r.waiting == nil {
		r.due = now.Add(r.rate.ReserveN(now, 1).DelayFrom(now))
		r.waiting = w.make(kind, why, message, now)
	} else {
		gather(r.waiting, message, now)
	}
	select {
	case w.fresh <- struct{}{}:
	default:
	}
}

// describe returns the type, the reason and the message of the event of an entry. The reason is ""
// if there is none.
func (w *eventWriter) describe(e journal.Entry) (kind, why, message string) {
	if !reported[e.Kind] {
		return "", "", ""
	}
	kind, message = core.EventTypeNormal, e.Text
	if e.Kind.Warning() {
		kind = core.EventTypeWarning
	}
	if e.Pod != "" {
		message = manifest.SpecName(w.job) + "-" + e.Words()
	}
	return kind, string(e.Kind), message
}

// make returns an event that has happened once. The mutex is held.
func (w *eventWriter) make(kind, why, message string, now time.Time) *core.Event {
	w.last = max(w.last+1, now.UnixNano())
	e := w.event.DeepCopy()
	// as others name theirs; no two are of one name
	e.Name = fmt.Sprintf("%s.%x", e.InvolvedObject.Name, w.last)
	e.Type, e.Reason, e.Message, e.Count = kind, why, shorten(message), 1
	e.FirstTimestamp = meta.NewTime(now)
	e.LastTimestamp = e.FirstTimestamp
	return e
}

// gather counts what has happened again in an event that is not written yet, and says it of the
// last time.
func gather(e *core.Event, message string, now time.Time) {
	// the words that users know from Kubernetes' own
	const combined = "(combined from similar events): "
	if e.Message != shorten(message) {
		message = combined + message
	}
	e.Message, e.LastTimestamp = shorten(message), meta.NewTime(now)
	e.Count++
}

// shorten returns a text on one line, of a length that an event may have.
func shorten(text string) string {
	const rest = "…"
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= eventWords {
		return text
	}
	return strings.ToValidUTF8(text[:eventWords-len(rest)], "") + rest
}

// start begins to write, until end.
func (w *eventWriter) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.routine.Go(func() { w.run(ctx) })
}

// end writes what is waiting, for eventLimit, and returns when nothing more is written.
func (w *eventWriter) end() {
	defer time.AfterFunc(eventLimit, w.cancel).Stop()
	close(w.ending)
	w.routine.Wait()
	w.cancel()
	for e, _ := w.next(time.Now(), true); e != nil; e, _ = w.next(time.Now(), true) {
		w.late = append(w.late, e.Reason)
	}
	if len(w.late) > 0 {
		w.log.Warn("Events of the job were not written in time", "events", strings.Join(w.late, " "))
	}
}

// run writes each event when it is due: all that are waiting when the end begins, and then no more.
func (w *eventWriter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	ending, last := w.ending, false
	for ctx.Err() == nil {
		e, due := w.next(time.Now(), last)
		if e != nil {
			w.write(ctx, e)
			continue
		}
		if last {
			return
		}
		timer.Stop()
		if !due.IsZero() {
			timer.Reset(time.Until(due))
		}
		select {
		case <-timer.C:
		case <-w.fresh:
		case <-ending:
			ending, last = nil, true
		case <-ctx.Done():
		}
	}
}

// next takes the event that is due first, or any if it is the end. Without one, due is the time at
// which there will be; zero: nothing is waiting.
func (w *eventWriter) next(now time.Time, last bool) (e *core.Event, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first *reason
	for _, r := range w.reasons {
		if r.waiting != nil && (first == nil || r.due.Before(first.due)) {
			first = r
		}
	}
	switch {
	case first == nil:
		return nil, time.Time{}
	case first.due.After(now) && !last:
		return nil, first.due
	}
	e, first.waiting = first.waiting, nil
	return e, time.Time{}
}

// write creates an event, however long the API server does not answer. That it is refused is no
// error of the job's.
func (w *eventWriter) write(ctx context.Context, e *core.Event) {
	err := insist(ctx, w.log, "write an event", func(ctx context.Context) error {
		_, err := w.events.Create(ctx, e, meta.CreateOptions{})
		if api.IsAlreadyExists(err) { // the answer was lost
			return nil
		}
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		w.late = append(w.late, e.Reason)
	case !w.denied:
		w.denied = true
		w.log.Warn("Events of the job are not written: kubectl describe and kubectl events do not "+
			"show them", "reason", e.Reason, "error", err)
	}
}

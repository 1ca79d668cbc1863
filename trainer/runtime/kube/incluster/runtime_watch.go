package incluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

const (
	lookEvery = 2 * time.Second
	// a pod that was to be deleted that long ago is on a node that does not answer
	overdue = 10 * time.Second
	// how long images may be missing before any pod has run
	pullPatience = 5 * time.Minute
)

// Of pods that have failed that many are kept, the newest: those that ran, for their logs, and
// those that never did.
const (
	keepFailed   = 10
	keepRejected = 3
)

// watch hears of the job's pods until ctx ends: a list, a stream of changes, and a list again if
// the stream was cut off for too long to be continued.
func (r *Runtime) watch(ctx context.Context) {
	follow(ctx, r.config.Client, &core.Pod{}, mirror{r}, "pods of "+r.config.Job.Name, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
			o.LabelSelector = r.selector()
			// whatever the server happens to remember, which may be older than the last report
			if o.ResourceVersion == "0" {
				o.ResourceVersion, o.ResourceVersionMatch = "", ""
			}
			return r.pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
			o.LabelSelector = r.selector()
			return r.pods.Watch(ctx, o)
		},
	})
}

// named selects one object.
func named(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// follow keeps a store as the cluster is, until ctx ends. An API server that is away is asked again
// every two seconds.
func follow(ctx context.Context, client clientset.Interface, kind runtime.Object,
	store cache.ReflectorStore, name string, from *cache.ListWatch) {
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(from, client), kind, store,
		cache.ReflectorOptions{
			Name: name, Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5,
				Steps: 10, Cap: 2 * time.Second},
		}).RunWithContext(ctx)
}

// mirror is the runtime as the store of what the watch hears.
type mirror struct{ *Runtime }

func (m mirror) Add(o any) error    { m.send(m.seen(o.(*core.Pod), time.Now())); return nil }
func (m mirror) Update(o any) error { m.send(m.seen(o.(*core.Pod), time.Now())); return nil }
func (m mirror) Delete(o any) error { m.send(m.unseen(o.(*core.Pod))); return nil }
func (m mirror) Resync() error      { return nil }

// Replace handles a list of all pods: known pods that are not in it were deleted. A pod that was
// created after the list was taken is not missed.
func (m mirror) Replace(list []any, version string) error {
	there := make(map[types.UID]bool, len(list))
	for _, o := range list {
		there[o.(*core.Pod).UID] = true
	}
	m.mu.Lock()
	var ends []pod.Event
	for uid, k := range m.known {
		if !there[uid] && older(k.made, version) {
			ends = append(ends, m.forget(uid, k, k.deletion)...)
		}
	}
	m.mu.Unlock()
	m.send(ends)
	for _, o := range list {
		m.send(m.seen(o.(*core.Pod), time.Now()))
	}
	return nil
}

// seen notes the current state of a pod, and returns the events to send.
func (r *Runtime) seen(p *core.Pod, now time.Time) []pod.Event {
	if !r.owns(p) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[p.UID]
	if k == nil {
		k = &known{name: p.Name, made: p.ResourceVersion}
		r.known[p.UID] = k
	}
	k.born, k.finalizers = p.CreationTimestamp.Time, p.Finalizers
	k.avoids, k.unplaced = manifest.Avoids(p), observe.Unplaced(p)
	e := observe.Pod(p)
	k.deletion = observe.Vanished(p)
	if r.last[e.ID] == "" {
		r.last[e.ID] = p.UID
	}
	if p.DeletionTimestamp == nil {
		k.due = time.Time{}
	} else if k.due.IsZero() { // by this clock, and not by the server's
		k.due = now.Add(time.Duration(grace(p)) * time.Second)
	}
	missing, never := observe.ImageMissing(p)
	switch {
	case !missing:
		k.lacks = time.Time{}
	case k.lacks.IsZero():
		k.lacks = now
	}
	switch unfit := observe.FitsNoNode(p) && !k.avoids; { // reconcile replaces one that avoids nodes
	case !unfit:
		k.unfit = time.Time{}
	case k.unfit.IsZero():
		k.unfit = now
	}
	r.ran = r.ran || e.Phase == pod.Running || e.Phase == pod.Succeeded
	e.Hopeless = e.Hopeless || never && !r.ran
	news := r.news(k, e)
	r.yield(p.UID, k)
	return news
}

func grace(p *core.Pod) int64 {
	if p.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return *p.DeletionGracePeriodSeconds
}

// unseen notes the deletion of a pod, given its last state, and returns the events to send.
func (r *Runtime) unseen(p *core.Pod) []pod.Event {
	if !r.owns(p) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[p.UID]
	if k == nil {
		k = new(known)
	}
	return r.forget(p.UID, k, observe.Vanished(p))
}

// forget drops a deleted pod. The mutex is held.
func (r *Runtime) forget(uid types.UID, k *known, end pod.Event) []pod.Event {
	end.Exit.NodeLost = end.Exit.NodeLost || k.lost
	delete(r.known, uid)
	if r.last[end.ID] == uid {
		delete(r.last, end.ID)
	}
	return r.news(k, end)
}

// news returns what is news of a pod. Its end is the last. The mutex is held.
func (r *Runtime) news(k *known, e pod.Event) []pod.Event {
	e = k.explain(e)
	if k.reported == e || k.reported.Phase.Ended() {
		return nil
	}
	k.reported = e
	return []pod.Event{e}
}

// send sends events in order, or drops them after Close.
func (r *Runtime) send(events []pod.Event) {
	for _, e := range events {
		select {
		case r.events <- e:
		case <-r.ctx.Done():
			return
		}
	}
}

// overlook handles what follows from the passing of time alone: pods that are overdue, and images
// that stay missing.
func (r *Runtime) overlook(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		r.send(r.starved(now))
		for uid, name := range r.stuck(now) {
			limited, cancel := context.WithTimeout(ctx, requestLimit)
			if err := r.remove(limited, name, uid, new(int64(0))); err != nil {
				r.config.Log.Warn("Pod could not be removed", "pod", name, "error", err)
			}
			cancel()
		}
		r.reconcile(now)
		r.tidy(ctx)
	}
}

// tidy deletes the failed pods that are too many. One that cannot be deleted is tried again at the
// next look.
func (r *Runtime) tidy(ctx context.Context) {
	for _, p := range r.surplus() {
		err := r.rate.Wait(ctx)
		if err == nil {
			err = limited(ctx, func(ctx context.Context) error { return r.remove(ctx, p.name, p.uid, nil) })
		}
		if err != nil {
			r.config.Log.Warn("Failed pod could not be deleted", "pod", p.name, "error", err)
			return
		}
		r.mu.Lock()
		if k := r.known[p.uid]; k != nil {
			k.swept = true
		}
		r.mu.Unlock()
	}
}

// object is a pod object by its name and UID.
type object struct {
	name string
	uid  types.UID
}

// surplus returns the failed pods that are not to be kept, oldest first.
func (r *Runtime) surplus() []object {
	r.mu.Lock()
	defer r.mu.Unlock()
	type failure struct {
		object
		*known
	}
	var ran, rejected []failure
	for uid, k := range r.known {
		f := failure{object{k.name, uid}, k}
		switch {
		case k.swept || k.reported.Phase != pod.Failed:
		case k.reported.Exit.Rejected:
			rejected = append(rejected, f)
		default:
			ran = append(ran, f)
		}
	}
	var all []object
	for _, kind := range []struct {
		failures []failure
		keep     int
	}{{ran, keepFailed}, {rejected, keepRejected}} {
		slices.SortFunc(kind.failures, func(a, b failure) int {
			return cmp.Or(a.born.Compare(b.born), cmp.Compare(a.reported.ID.Index, b.reported.ID.Index))
		})
		for _, f := range kind.failures[:max(0, len(kind.failures)-kind.keep)] {
			all = append(all, f.object)
		}
	}
	return all
}

// stuck returns the pods that should have ended long ago. The process may be running on an
// unreachable node: it learns from the master that it is not needed any more.
func (r *Runtime) stuck(now time.Time) map[types.UID]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := make(map[types.UID]string)
	for uid, k := range r.known {
		if !k.due.IsZero() && now.Sub(k.due) >= overdue && !k.reported.Phase.Ended() {
			if !k.lost {
				k.lost = true
				r.config.Log.Warn("Pod is not deleted in time: its node does not answer, or a finalizer holds it",
					"pod", k.name, "node", k.reported.Node, "finalizers", k.finalizers)
			}
			pods[uid] = k.name
		}
	}
	return pods
}

// pendingLimit returns how long a pod may fit no node; 0: without limit.
func (r *Runtime) pendingLimit() time.Duration {
	if limit := r.config.Job.PendingTimeout; limit != nil {
		return limit.Duration
	}
	return job.DefaultPendingTimeout
}

// starved returns the events of pods of which nothing is to be expected: images have been missing
// for too long, or no node fits. If a pod has run, there are images, and it is a matter of one
// node.
func (r *Runtime) starved(now time.Time) []pod.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []pod.Event
	for _, k := range r.known {
		if !r.ran && !k.lacks.IsZero() && now.Sub(k.lacks) >= pullPatience && k.reported.Phase == pod.Pending {
			e := k.reported
			e.Hopeless = true
			events = append(events, r.news(k, e)...)
		}
		if limit := r.pendingLimit(); limit > 0 && !k.unfit.IsZero() && now.Sub(k.unfit) >= limit &&
			k.reported.Phase == pod.Pending && !k.reported.Hopeless {
			e := k.reported
			e.Hopeless, e.Waiting = true,
				fmt.Sprintf("no node can run it for %v (--pending_timeout): %s", limit, e.Waiting)
			events = append(events, r.news(k, e)...)
		}
	}
	slices.SortFunc(events, func(a, b pod.Event) int { return a.ID.Index - b.ID.Index })
	return events
}

package incluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
)

// This file has what follows from the notice that a node will be taken away: the job's pods there
// are asked to leave at once, before the node asks them.

const (
	// after that time it is tried again to watch nodes, if that was not allowed
	allowedEvery = 10 * time.Minute
	// or if the API server has not answered
	answeredEvery = 5 * time.Second
	// since its pod has reported that a node will be taken away, no pod is created there for that
	// time. Clouds give half a minute to two minutes of notice; the name of the node may come back.
	avoidFor = 5 * time.Minute
)

// notice says why a node will be taken away.
type notice struct {
	reason string
	// the time since which a pod that is created on the node may stay: it tolerates the taint, or
	// the node came back under its name
	until time.Time
}

// heed hears of the nodes until ctx ends, if the master may watch them, for which it needs a
// permission of the whole cluster.
func (r *Runtime) heed(ctx context.Context) {
	for reported := false; ; {
		allowed := false
		err := limited(ctx, func(ctx context.Context) (err error) {
			allowed, err = r.mayWatchNodes(ctx)
			return err
		})
		if allowed {
			break
		}
		wait := answeredEvery
		if err == nil {
			wait = allowedEvery
			if !reported {
				reported = true
				r.config.Log.Info("Notices of nodes that will be taken away are not heeded: the master may " +
					"not list and watch nodes (elasticdl rbac --nodes)")
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
	nodes := r.config.Client.CoreV1().Nodes()
	follow(ctx, r.config.Client, &core.Node{}, herald{r}, "nodes", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
			return nodes.Watch(ctx, o)
		},
	})
}

// mayWatchNodes asks whether the master may list and watch nodes. A master that tried it would
// leave a refused request in the cluster's audit log.
func (r *Runtime) mayWatchNodes(ctx context.Context) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Verb: verb, Resource: "nodes"}}}
		answer, err := r.config.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review,
			meta.CreateOptions{})
		if api.IsForbidden(err) || api.IsUnauthorized(err) {
			return false, nil // it may not even ask
		}
		if err != nil || !answer.Status.Allowed {
			return false, err
		}
	}
	return true, nil
}

// herald is the runtime as the store of what the watch of the nodes hears.
type herald struct{ *Runtime }

func (h herald) Add(o any) error    { h.noticed(o.(*core.Node), time.Now()); return nil }
func (h herald) Update(o any) error { h.noticed(o.(*core.Node), time.Now()); return nil }
func (h herald) Resync() error      { return nil }

func (h herald) Delete(o any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.notices, o.(*core.Node).Name)
	delete(h.reports, o.(*core.Node).Name)
	return nil
}

// Replace handles a list of all nodes.
func (h herald) Replace(list []any, _ string) error {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		there[o.(*core.Node).Name] = true
		h.noticed(o.(*core.Node), time.Now())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	absent := func(name string, _ notice) bool { return !there[name] }
	maps.DeleteFunc(h.notices, absent)
	maps.DeleteFunc(h.reports, absent)
	return nil
}

// noticed notes the current state of a node, and asks the job's pods there to leave if it will be
// taken away.
func (r *Runtime) noticed(n *core.Node, now time.Time) {
	reason := observe.Notice(n, r.config.Job.NoticeTaints)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch _, known := r.notices[n.Name]; {
	case reason == "":
		delete(r.notices, n.Name)
	case !known:
		r.notices[n.Name] = notice{reason, now}
		r.evacuate(reason)
	}
}

// takenAway hears from a pod that its node will be taken away. All pods of the job there are asked
// to leave, and none is created there for avoidFor. It returns false if the node is not known yet.
func (r *Runtime) takenAway(id pod.ID, incarnation int, why string) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := r.last[id]
	k := r.known[uid]
	if k == nil || k.deletion.Incarnation != incarnation || k.reported.Node == "" {
		return false
	}
	name := k.reported.Node
	if !now.Before(r.reports[name].until) {
		why = "node " + name + " will be taken away: " + why
		r.reports[name] = notice{why, now.Add(avoidFor)}
		r.evacuate(why)
	}
	return true
}

// evacuate asks the pods of the nodes that will be taken away to leave. The mutex is held.
func (r *Runtime) evacuate(why string) {
	r.config.Log.Warn("The pods of a node leave", "reason", why)
	for uid, k := range r.known {
		r.yield(uid, k)
	}
}

// avoided returns the nodes for which a pod has reported that they will be taken away: the
// scheduler does not know it.
func (r *Runtime) avoided(now time.Time) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range r.reports {
		if now.Before(n.until) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// yield asks a pod to leave if its node will be taken away, once. The mutex is held.
func (r *Runtime) yield(uid types.UID, k *known) {
	if k.notice != "" || k.reported.Phase >= pod.Leaving {
		return
	}
	for _, of := range []map[string]notice{r.notices, r.reports} {
		if n := of[k.reported.Node]; k.born.Before(n.until) {
			r.leave(uid, k, n.reason)
			return
		}
	}
}

// reconcile replaces pods that wait for a node and avoid one for longer than avoidFor: it may be
// back under its name, and be the only one with room. One that waits for quota keeps its place in
// the queue.
func (r *Runtime) reconcile(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, k := range r.known {
		if k.avoids && k.unplaced && k.notice == "" && k.reported.Phase == pod.Pending && k.reported.Node == "" &&
			now.Sub(k.born) >= avoidFor {
			r.leave(uid, k, "the node that it avoids may be back")
		}
	}
}

// leave asks a pod to leave, for a reason that does not count as its failure. The mutex is held.
func (r *Runtime) leave(uid types.UID, k *known, why string) {
	k.notice = why
	r.routines.Go(func() {
		err := r.insist(r.ctx, "delete pod "+k.name, func(ctx context.Context) error {
			return r.remove(ctx, k.name, uid, nil)
		})
		if err != nil && r.ctx.Err() == nil {
			r.config.Log.Warn("A pod was not asked to leave", "pod", k.name, "reason", why, "error", err)
		}
	})
}

// explain adds to the end of a pod that its node has caused it.
func (k *known) explain(e pod.Event) pod.Event {
	if k.notice != "" && (e.Phase == pod.Leaving || e.Exit.Deleted) {
		e.Exit.Preempted = !e.Exit.Evicted && !e.Exit.NodeLost
		e.Exit.Reason = cmp.Or(e.Exit.Reason, k.notice)
	}
	return e
}

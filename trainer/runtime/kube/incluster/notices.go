package incluster

import (
	"cmp"
	"context"
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
)

// notice says why a node will be taken away, and since when that is known.
type notice struct {
	reason string
	since  time.Time
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
	for name := range h.notices {
		if !there[name] {
			delete(h.notices, name)
		}
	}
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
		return
	case known:
		return
	}
	r.config.Log.Warn("The pods of a node leave", "reason", reason)
	r.notices[n.Name] = notice{reason, now}
	for uid, k := range r.known {
		r.yield(uid, k)
	}
}

// yield asks a pod to leave if its node will be taken away, once. One that was created since then
// tolerates the taint, and stays. The mutex is held.
func (r *Runtime) yield(uid types.UID, k *known) {
	n, ok := r.notices[k.reported.Node]
	if !ok || k.notice != "" || k.reported.Phase >= pod.Leaving || !k.born.Before(n.since) {
		return
	}
	k.notice = n.reason
	r.routines.Go(func() {
		err := r.insist(r.ctx, "delete pod "+k.name, func(ctx context.Context) error {
			return r.remove(ctx, k.name, uid, nil)
		})
		if err != nil && r.ctx.Err() == nil {
			r.config.Log.Warn("A pod was not asked to leave its node", "pod", k.name, "reason", n.reason, "error", err)
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

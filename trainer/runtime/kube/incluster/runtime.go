package incluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// podRate limits a job's creations and deletions per second, and podBurst those at once.
const (
	podRate  = 100
	podBurst = 100
)

// brokenLimit is the time for which the API server may fail to create a pod without a report.
const brokenLimit = 10 * time.Second

// RuntimeConfig describes the job whose pods a Runtime creates.
type RuntimeConfig struct {
	Client clientset.Interface
	// of its namespace
	Job *job.Job
	// the master's Job, which all pods go with
	Owner meta.OwnerReference
	// the master's environment, of which --populate_env_names takes over
	Environ []string
	// Authority is the certificate of the job's authority, in one line, by which pods verify the
	// master.
	Authority string
	// creations and deletions a second; 0: 100
	Rate float32
	Log  *slog.Logger
}

// Runtime is the pods of one job in a cluster: a [master.Pods]. Of those that have failed it keeps
// a few, the newest.
type Runtime struct {
	config  RuntimeConfig
	started sync.Once
	pods    clientset.Pods
	rate    flowcontrol.RateLimiter
	broken  time.Duration
	events  chan pod.Event
	// until Close
	ctx      context.Context
	cancel   context.CancelFunc
	routines sync.WaitGroup

	mu    sync.Mutex
	known map[types.UID]*known
	// of each pod that is there, the last that was made
	last map[pod.ID]types.UID
	// a pod of the job has run
	ran bool
	// of the nodes that will be taken away: what they show themselves, and what pods there have
	// reported, which have asked their cloud
	notices, reports map[string]notice
}

// known is a pod object that exists, or did at its last event.
type known struct {
	name string
	// the resource version at its creation, or when it was first seen
	made string
	// the last event that was reported
	reported pod.Event
	// the event to send if the object is deleted
	deletion pod.Event
	// if it was asked to go: when it should be deleted
	due time.Time
	// it has outlived that by far: its node does not answer, or one of its finalizers holds it
	lost       bool
	finalizers []string
	// since when its image is missing; zero: it is not
	lacks time.Time
	// since when it fits no node; zero: it does, or that is not known
	unfit time.Time
	// when it was created, by the server's clock
	born time.Time
	// it was created while nodes were to be avoided
	avoids bool
	// the scheduler finds no node for it
	unplaced bool
	// it has failed, and was deleted
	swept bool
	// why it was asked to leave its node; "": it was not
	notice string
	// that it has certificates of; zero: none yet
	key fingerprint
}

var _ master.Pods = (*Runtime)(nil)

// NewRuntime returns a runtime, which its owner closes. It watches pods from its first Create or
// Adopt on.
func NewRuntime(config RuntimeConfig) *Runtime {
	config.Rate = cmp.Or(config.Rate, podRate)
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	r := &Runtime{
		config: config,
		pods:   config.Client.CoreV1().Pods(config.Job.Namespace),
		rate:   flowcontrol.NewTokenBucketRateLimiter(config.Rate, podBurst),
		broken: brokenLimit,
		events: make(chan pod.Event, 256),
		known:  make(map[types.UID]*known),
		last:   make(map[pod.ID]types.UID),

		notices: make(map[string]notice),
		reports: make(map[string]notice),
	}
	r.ctx, r.cancel = context.WithCancel(klogTo(context.Background(), config.Log))
	return r
}

// start begins to watch pods.
func (r *Runtime) start() {
	r.started.Do(func() {
		r.routines.Go(func() { r.watch(r.ctx) })
		r.routines.Go(func() { r.overlook(r.ctx) })
		r.routines.Go(func() { r.heed(r.ctx) })
	})
}

// klogTo makes what Kubernetes' packages log go to a job's log.
func klogTo(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()))
}

// Close stops listening. The pods stay: see [Runtime.Sweep].
func (r *Runtime) Close() {
	r.cancel()
	r.routines.Wait()
}

// Events returns the channel of the pods' events. Each pod's end is sent once. Nothing is sent
// after Close.
func (r *Runtime) Events() <-chan pod.Event { return r.events }

// Create creates a pod, and repeats the request as long as the API server does not answer. It
// returns an error if the cluster refuses, for lack of quota ([master.ErrFull]) or by its rules, or
// fails for brokenLimit. The error wraps [master.ErrHopeless] if the cluster will always refuse.
func (r *Runtime) Create(ctx context.Context, p master.Pod) error {
	r.start()
	object, err := manifest.Pod(r.config.Job, manifest.PodSpec{
		ID: p.ID, Incarnation: p.Incarnation, Slot: p.Slot, Core: p.Core, OOMs: p.OOMs, Environ: r.config.Environ,
		Authority: r.config.Authority,
	}, r.config.Owner)
	if err != nil {
		return fmt.Errorf("%w: %w", master.ErrHopeless, err)
	}
	began := time.Now()
	manifest.Avoid(object, r.avoided(began))
	err = r.insist(ctx, "create pod "+object.Name, func(ctx context.Context) error {
		made, err := r.pods.Create(ctx, object, meta.CreateOptions{})
		// as a webhook that fails does
		if api.IsInternalError(err) && time.Since(began) >= r.broken {
			return fmt.Errorf("refused for %v: %v", time.Since(began).Round(time.Second), err)
		}
		if api.IsAlreadyExists(err) {
			made, err = r.occupied(ctx, object)
		}
		if err == nil {
			r.made(p.ID, made)
		}
		return err
	})
	switch why, _ := observe.Denied(err); {
	case api.IsInvalid(err) || api.IsBadRequest(err):
		return fmt.Errorf("%w: %w", master.ErrHopeless, err)
	case why == observe.OverQuota:
		return fmt.Errorf("%w: %w", master.ErrFull, err)
	case why == observe.OverWholeQuota, why == observe.AgainstRule:
		return fmt.Errorf("%w: %w", master.ErrDenied, err)
	}
	return err
}

// errOccupied is returned while a pod of that name is still being deleted.
var errOccupied = errors.New("its predecessor still exists")

// occupied handles a creation that found a pod of the same name: the same pod, if an earlier
// attempt had no answer, or an earlier incarnation, which it waits to be deleted.
func (r *Runtime) occupied(ctx context.Context, object *core.Pod) (*core.Pod, error) {
	there, err := r.find(ctx, object.Name)
	switch {
	case err != nil:
		return nil, err
	case there == nil:
		return nil, errOccupied
	case !r.owns(there):
		return nil, fmt.Errorf("pod %s already exists, and is not this job's", object.Name)
	case there.Labels[manifest.LabelIncarnation] == object.Labels[manifest.LabelIncarnation]:
		return there, nil
	case there.DeletionTimestamp == nil:
		err = r.remove(ctx, there.Name, there.UID, nil)
	}
	return nil, cmp.Or(err, errOccupied)
}

// find returns the pod of that name, nil if there is none.
func (r *Runtime) find(ctx context.Context, name string) (*core.Pod, error) {
	// to get one is not permitted
	list, err := r.pods.List(ctx, meta.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.Name == name {
			return &p, nil
		}
	}
	return nil, nil
}

// made notes a pod that was created, if nothing was heard of it before.
func (r *Runtime) made(id pod.ID, p *core.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[id] = p.UID
	if r.known[p.UID] == nil {
		r.known[p.UID] = &known{name: p.Name, made: p.ResourceVersion, deletion: observe.Vanished(p)}
	}
}

// identify returns which start of which pod of the job a pod object is. known is false of one that
// was not heard of, yet or any more.
func (r *Runtime) identify(uid types.UID) (id pod.ID, incarnation int, ended, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[uid]
	if k == nil {
		return pod.ID{}, 0, false, false
	}
	return k.deletion.ID, k.deletion.Incarnation, k.reported.Phase.Ended(), true
}

// pin implements [roster]. The note ends with the pod, and with the master.
func (r *Runtime) pin(uid types.UID, key fingerprint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[uid]
	if k == nil {
		return false
	}
	k.key = cmp.Or(k.key, key)
	return k.key == key
}

// Adopt implements [master.Pods]. Events does not repeat the ends in this list, and reports changes
// between the list and the watch.
func (r *Runtime) Adopt(ctx context.Context) ([]pod.Event, error) {
	list, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	var events []pod.Event
	for _, p := range list.Items {
		events = append(events, r.seen(&p, time.Now())...)
	}
	r.start()
	return events, nil
}

// list returns every present pod of a job of the name.
func (r *Runtime) list(ctx context.Context) (list *core.PodList, err error) {
	err = r.insist(ctx, "list pods", func(ctx context.Context) (err error) {
		list, err = r.pods.List(ctx, meta.ListOptions{LabelSelector: r.selector()})
		return err
	})
	return list, err
}

// Delete deletes a pod, and repeats the request as long as the API server does not answer. It is no
// error if the pod does not exist. It returns [master.ErrDisowned] if the master's token is not
// valid any more, as after the deletion of its own pod.
func (r *Runtime) Delete(ctx context.Context, id pod.ID) error {
	name := manifest.PodName(r.config.Job.Name, id)
	r.mu.Lock()
	uid := r.last[id]
	ended := uid != "" && r.known[uid].reported.Phase.Ended()
	r.mu.Unlock()
	if ended {
		return nil
	}
	err := r.insist(ctx, "delete pod "+name, func(ctx context.Context) error {
		// its creation was not answered, or it is none of ours
		if uid == "" {
			p, err := r.find(ctx, name)
			if err != nil || p == nil || !r.owns(p) {
				return err
			}
			uid = p.UID
		}
		return r.remove(ctx, name, uid, nil)
	})
	if api.IsUnauthorized(err) {
		return fmt.Errorf("%w: %w", master.ErrDisowned, err)
	}
	return err
}

// remove deletes one pod, and no other of its name. grace nil: its own.
func (r *Runtime) remove(ctx context.Context, name string, uid types.UID, grace *int64) error {
	err := r.pods.Delete(ctx, name, meta.DeleteOptions{GracePeriodSeconds: grace,
		Preconditions: &meta.Preconditions{UID: &uid}})
	if api.IsNotFound(err) || api.IsConflict(err) { // deleted, or replaced by now
		return nil
	}
	return err
}

// Sweep deletes every pod of the job that has not ended, including those of previous masters.
func (r *Runtime) Sweep(ctx context.Context) error {
	list, err := r.list(ctx)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	problems := make([]error, len(list.Items))
	for i, p := range list.Items {
		if r.owns(&p) && !observe.Pod(&p).Phase.Ended() && p.DeletionTimestamp == nil {
			all.Go(func() {
				problems[i] = r.insist(ctx, "delete pod "+p.Name, func(ctx context.Context) error {
					return r.remove(ctx, p.Name, p.UID, nil)
				})
			})
		}
	}
	all.Wait()
	return errors.Join(problems...)
}

// owns reports whether a pod is a server or worker of this job, and not of an earlier job of its
// name.
func (r *Runtime) owns(p *core.Pod) bool {
	name, id, _, ok := manifest.ParseLabels(p.Labels)
	return ok && name == r.config.Job.Name && id.Role != pod.Master &&
		slices.ContainsFunc(p.OwnerReferences, func(o meta.OwnerReference) bool { return o.UID == r.config.Owner.UID })
}

func (r *Runtime) selector() string { return manifest.Selector(r.config.Job.Name) }

// older reports whether the resource version a is not younger than b. It returns false if they
// cannot be compared.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}

// insist repeats a request, at the runtime's rate, until it is answered. It may wait long for its
// turn.
func (r *Runtime) insist(ctx context.Context, doing string, request func(context.Context) error) error {
	return repeat(ctx, r.config.Log, doing, func() error {
		if err := r.rate.Wait(ctx); err != nil {
			return err
		}
		return limited(ctx, request)
	})
}

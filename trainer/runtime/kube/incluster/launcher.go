package incluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/launch"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// RunLauncher is the main of the pod of a job's Job. It creates the pod of the job's master, and
// the next one whenever that has ended before the job has. It returns nil if the master has
// succeeded. A launcher that is lost, or asked to terminate, leaves the master alone; so its end
// costs nothing. Only if the Job is suspended, deleted or over it ends the master first.
func RunLauncher(ctx context.Context, c MasterConfig) error {
	l, err := newLauncher(c)
	if err == nil {
		err = l.run(ctx)
	}
	role.LastWords(err)
	return err
}

// launcher performs what a [launch.Launcher] decides. Only run calls the latter.
type launcher struct {
	MasterConfig
	uid    string
	log    *slog.Logger
	name   string
	decide *launch.Launcher
	events *eventWriter
	// changes of the pod of the master's name
	news chan masterNews
	// for which the job lets its core wait for quota; 0: it is not known yet
	queueTime time.Duration
}

// masterNews is a change of the pod of the master's name.
type masterNews struct {
	pod *core.Pod // nil: there is none
	// it is deleted
	deleted bool
}

func newLauncher(c MasterConfig) (*launcher, error) {
	env := environOf(c.Environ)
	if env[job.EnvUID] == "" {
		return nil, fmt.Errorf("%s is not set: a launcher of a cluster is started by its Job", job.EnvUID)
	}
	var err error
	if c.Client, err = clientOf(c.Client); err != nil {
		return nil, err
	}
	log := role.Logger(c.Output, "")
	return &launcher{MasterConfig: c, uid: env[job.EnvUID], log: log, name: manifest.MasterName(c.Job),
		news: make(chan masterNews, 16),
		events: newEventWriter(c.Client.CoreV1().Events(c.Namespace), observe.ComponentLauncher, c.Namespace,
			c.Job, env[job.EnvUID], env[manifest.EnvPodName], env[manifest.EnvNodeName], log)}, nil
}

// errLeaves is the end of a launcher whose Job continues: another launcher follows.
var errLeaves = errors.New("this launcher leaves; the master works on")

func (l *launcher) run(ctx context.Context) error {
	l.events.start()
	defer l.events.end()
	err := eventually(ctx, l.log, func() error { return l.allowed(ctx) })
	switch begun := l.begun(ctx); {
	case ctx.Err() != nil:
		return errLeaves
	case err != nil && absentYet(err) && !begun:
		return l.fail(ctx, err)
	// the master works on, and another launcher tries again
	case err != nil:
		return err
	default:
		l.decide = launch.New(begun)
	}
	// for a master that already exists; before one is created it is read again
	if _, err := l.described(ctx); err != nil {
		l.log.Warn("The description of the job could not be read", "error", err)
	}
	lasting, end := context.WithCancel(klogTo(context.WithoutCancel(ctx), l.log))
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.watch(lasting)
	}()
	defer func() { end(); <-done }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	leave := ctx.Done()
	for {
		var did []launch.Action
		select {
		case n := <-l.news:
			did = l.heard(n)
		case <-leave:
			leave = nil
			did = l.decide.Leave(time.Now())
		case <-timer.C:
			did = l.decide.Tick(time.Now())
		}
		if ended, err := l.perform(lasting, did); ended {
			return err
		}
		if at, ok := l.decide.Deadline(); ok {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
	}
}

func (l *launcher) heard(n masterNews) []launch.Action {
	switch now := time.Now(); {
	case n.pod == nil:
		return l.decide.Deleted("", now)
	case n.deleted:
		return l.decide.Deleted(string(n.pod.UID), now)
	default:
		return l.decide.Seen(l.pod(n.pod), now)
	}
}

// pod returns what a launcher needs to know of the pod of the master's name.
func (l *launcher) pod(p *core.Pod) launch.Pod {
	e := observe.Exit(p)
	is := launch.Pod{UID: string(p.UID), Leaving: p.DeletionTimestamp != nil,
		Grace: time.Duration(grace(p)) * time.Second}
	is.Ended, is.Succeeded = observe.Ended(p, pod.Master.String())
	for _, o := range p.OwnerReferences {
		is.Mine = is.Mine || string(o.UID) == l.uid
		is.Former = is.Former || o.Kind == "Job" && o.Name == l.name && string(o.UID) != l.uid
	}
	// a node that does not take a pod may be chosen again: that has its pauses, as a crash has
	is.Killed = !e.Fault() && !e.Rejected
	is.Unreachable = e.NodeLost && !observe.Ready(p)
	is.Queued, is.QueueTime = observe.Queued(p), cmp.Or(l.queueTime, job.DefaultQueueTimeout)
	if is.Ended {
		is.Reason = e.String()
	}
	return is
}

// perform performs actions, and those that follow from them. ended reports whether the launcher
// ends, with err.
func (l *launcher) perform(ctx context.Context, actions []launch.Action) (ended bool, err error) {
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		switch a.Verb {
		case launch.Ask:
			state, why := l.ask(ctx)
			if until := l.rests(ctx, state); until.After(time.Now()) {
				actions = append(actions, l.decide.Rests(until, time.Now())...)
			} else {
				actions = append(actions, l.decide.Job(state, why, time.Now())...)
			}
		case launch.Create:
			actions = append(actions, l.create(ctx, a.Number)...)
		case launch.Delete, launch.Force:
			l.remove(ctx, a)
		case launch.Sweep:
			l.sweep(ctx, a.Reason)
		case launch.Fail:
			return true, l.fail(ctx, errors.New(a.Reason))
		case launch.End:
			switch {
			case a.Success:
				l.log.Info("The master has succeeded")
				return true, nil
			case a.Reason == "":
				return true, errLeaves
			}
			return true, errors.New(a.Reason)
		}
	}
	return false, nil
}

// askLimit is the time after which a request that is not answered is given up, so that the launcher
// hears what else happens. The request follows again.
const askLimit = 10 * time.Second

// ask returns what the Job wants, and why if it is over.
func (l *launcher) ask(ctx context.Context) (launch.JobState, string) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var root *batch.Job
	err := insist(ctx, l.log, "read the Job", func(ctx context.Context) (err error) {
		root, err = l.Client.BatchV1().Jobs(l.Namespace).Get(ctx, l.name, meta.GetOptions{})
		return err
	})
	if err != nil && !api.IsNotFound(err) {
		l.log.Warn("Whether the job is to continue could not be read", "error", err)
		return launch.NotRead, ""
	}
	switch notice, stop := intention(root, l.uid, time.Now()); {
	case root.UID == types.UID(l.uid) && root.DeletionTimestamp == nil && failing(root):
		return launch.Over, ""
	case stop != nil:
		return launch.Over, stop.Error()
	case notice == master.Suspend:
		return launch.Over, "the job is suspended"
	}
	return launch.Continues, ""
}

// rests returns until when a Job that continues has given back the quota of its queue; zero: it has
// not, or that could not be read.
func (l *launcher) rests(ctx context.Context, state launch.JobState) time.Time {
	if state != launch.Continues {
		return time.Time{}
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	m, err := l.state(ctx)
	if err != nil || observe.OfAnotherJob(m, l.uid) {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, m.Data[manifest.KeyRest])
	if err != nil {
		return time.Time{}
	}
	return until
}

// state reads the job's state.
func (l *launcher) state(ctx context.Context) (state *core.ConfigMap, err error) {
	err = insist(ctx, l.log, "read the job's state", func(ctx context.Context) (err error) {
		state, err = l.Client.CoreV1().ConfigMaps(l.Namespace).Get(ctx, manifest.StateName(l.Job), meta.GetOptions{})
		return err
	})
	return state, err
}

// sweep deletes the other pods of the job, whose quota the master may wait for, or other jobs.
func (l *launcher) sweep(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	l.log.Warn("Deleting the pods of servers and workers", "reason", why)
	pods := NewRuntime(RuntimeConfig{Client: l.Client, Job: &job.Job{Name: l.Job, Namespace: l.Namespace},
		Owner: manifest.Owner(l.name, types.UID(l.uid)), Log: l.log})
	defer pods.Close()
	if err := pods.Sweep(ctx); err != nil {
		l.log.Warn("Pods could not be deleted", "error", err)
	}
}

// failing reports whether the master has ended its Job.
func failing(root *batch.Job) bool {
	return root.Spec.BackoffLimit != nil && *root.Spec.BackoffLimit == 0
}

// create creates the next master.
func (l *launcher) create(ctx context.Context, number int) []launch.Action {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, fmt.Errorf("not answered within %v", askLimit))
	defer cancel()
	began := time.Now()
	p, err := l.next(ctx)
	if err == nil {
		err = insist(ctx, l.log, "create the master", func(ctx context.Context) error {
			made, err := l.Client.CoreV1().Pods(l.Namespace).Create(ctx, p, meta.CreateOptions{})
			if err == nil {
				p = made
			}
			// as a webhook that fails does
			if api.IsInternalError(err) && time.Since(began) >= askLimit/2 {
				return fmt.Errorf("%w for %v: %v", errBroken, time.Since(began).Round(time.Second), err)
			}
			return err
		})
	}
	switch {
	case err == nil:
		l.log.Info("Master created", "pod", p.Name, "number", number)
		return l.decide.Seen(l.pod(p), time.Now())
	case api.IsAlreadyExists(err): // the watch shows it
		return nil
	}
	l.log.Warn("The master could not be created", "error", err)
	l.events.hear(master.EntryOf(master.PodRefused{ID: pod.ID{Role: pod.Master}, Reason: err.Error()}))
	return l.decide.Refused(err.Error(), ctx.Err() == nil && denied(err), time.Now())
}

// errBroken is an error of the API server's own.
var errBroken = errors.New("refused")

// denied reports whether a pod cannot be created until somebody acts.
func denied(err error) bool {
	if errors.Is(err, errBroken) {
		return false
	}
	why, _ := observe.Denied(err)
	var answer api.APIStatus
	// not if the description of the job cannot be read
	isAnswer := errors.As(err, &answer)
	return why != observe.NotDenied && why != observe.OverQuota ||
		api.IsInvalid(err) || api.IsBadRequest(err) || api.IsNotFound(err) || !isAnswer
}

// begun reports whether a master of this Job has run: then nothing that a launcher finds makes the
// Job fail. It is true if that cannot be read.
func (l *launcher) begun(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	state, err := l.state(ctx)
	if err != nil {
		return !absentYet(err)
	}
	before, err := pastOf(state, l.uid)
	return err != nil || before.incarnation > 0
}

// fail makes the Job fail, and returns why.
func (l *launcher) fail(ctx context.Context, err error) error {
	last, cancel := lastly(ctx)
	defer cancel()
	refused := insist(last, l.log, "end the Job", func(ctx context.Context) error {
		return patchJob(ctx, l.Client.BatchV1().Jobs(l.Namespace), l.name, l.uid, `{"backoffLimit":0}`)
	})
	if refused != nil {
		l.log.Error("The Job could not be ended, and starts a launcher again and again", "error", refused)
	}
	return err
}

// allowed tries the permissions without which a launcher cannot do its work.
func (l *launcher) allowed(ctx context.Context) error {
	pods, of := l.Client.CoreV1().Pods(l.Namespace), meta.ListOptions{FieldSelector: named(l.name), Limit: 1}
	return tryAll(ctx, l.log, []attempt{
		{"list pods", func(ctx context.Context) error {
			_, err := pods.List(ctx, of)
			return err
		}},
		{"watch pods", func(ctx context.Context) error {
			return glance(pods.Watch(ctx, meta.ListOptions{FieldSelector: of.FieldSelector}))
		}},
		{"read the Job", func(ctx context.Context) error {
			_, err := l.Client.BatchV1().Jobs(l.Namespace).Get(ctx, l.name, meta.GetOptions{})
			return err
		}},
	})
}

// next returns the pod of the next master, as the job is described now.
func (l *launcher) next(ctx context.Context) (*core.Pod, error) {
	j, err := l.described(ctx)
	if err != nil {
		return nil, err
	}
	return manifest.Master(j, manifest.Owner(l.name, types.UID(l.uid)))
}

// described reads the job, and for how long it lets its core wait for quota.
func (l *launcher) described(ctx context.Context) (*job.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var spec *core.ConfigMap
	err := insist(ctx, l.log, "read what the job is", func(ctx context.Context) (err error) {
		spec, err = l.Client.CoreV1().ConfigMaps(l.Namespace).Get(ctx, manifest.SpecName(l.Job), meta.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", l.Job, err)
	}
	j, err := described(spec, l.Job, l.Namespace)
	if err != nil {
		return nil, err
	}
	l.queueTime = j.AdmissionTime()
	return j, nil
}

func (l *launcher) remove(ctx context.Context, a launch.Action) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	o := meta.DeleteOptions{Preconditions: &meta.Preconditions{UID: new(types.UID(a.UID))}}
	if a.Verb == launch.Force {
		o.GracePeriodSeconds = new(int64(0))
	}
	l.log.Info("Deleting the pod of the master", "at_once", a.Verb == launch.Force, "reason", a.Reason)
	err := insist(ctx, l.log, "delete the master", func(ctx context.Context) error {
		err := l.Client.CoreV1().Pods(l.Namespace).Delete(ctx, l.name, o)
		if api.IsNotFound(err) || api.IsConflict(err) { // deleted, or replaced by now
			return nil
		}
		return err
	})
	if err != nil {
		l.log.Warn("The pod of the master could not be deleted", "error", err)
	}
}

// watch hears of the pod of the master's name until ctx ends.
func (l *launcher) watch(ctx context.Context) {
	pods := l.Client.CoreV1().Pods(l.Namespace)
	follow(ctx, l.Client, &core.Pod{}, &onePod{ctx: ctx, news: l.news}, "master of "+l.Job, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
			o.FieldSelector = named(l.name)
			// not whatever the server happens to remember
			if o.ResourceVersion == "0" {
				o.ResourceVersion, o.ResourceVersionMatch = "", ""
			}
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
			o.FieldSelector = named(l.name)
			return pods.Watch(ctx, o)
		},
	})
}

// onePod is the store of what is watched: one pod at most.
type onePod struct {
	ctx  context.Context
	news chan<- masterNews
	// the pod that was reported last
	last *core.Pod
}

func (s *onePod) send(n masterNews) error {
	select {
	case s.news <- n:
	case <-s.ctx.Done():
	}
	return nil
}

func (s *onePod) Add(o any) error {
	s.last = o.(*core.Pod)
	return s.send(masterNews{pod: s.last})
}

func (s *onePod) Update(o any) error { return s.Add(o) }

func (s *onePod) Delete(o any) error {
	s.last = nil
	return s.send(masterNews{pod: o.(*core.Pod), deleted: true})
}

func (s *onePod) Resync() error { return nil }

// Replace handles a list. A pod that was reported and is not in it was deleted.
func (s *onePod) Replace(list []any, _ string) error {
	switch last := s.last; {
	case len(list) > 0:
		if is := list[0].(*core.Pod); last != nil && last.UID != is.UID {
			s.send(masterNews{pod: last, deleted: true})
		}
		return s.Add(list[0])
	case last != nil:
		return s.Delete(last)
	}
	return s.send(masterNews{})
}

// described returns the job of a spec.
func described(spec *core.ConfigMap, name, namespace string) (*job.Job, error) {
	j := new(job.Job)
	if err := json.Unmarshal([]byte(spec.Data[manifest.KeyJob]), j); err != nil {
		return nil, fmt.Errorf("read job %s: %s of ConfigMap %s: %w", name, manifest.KeyJob, spec.Name, err)
	}
	if j.Name != name {
		return nil, fmt.Errorf("read job %s: %s of ConfigMap %s is of job %q", name, manifest.KeyJob,
			spec.Name, j.Name)
	}
	j.Namespace = namespace
	return j, nil
}

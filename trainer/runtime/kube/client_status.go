package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// objects are the objects of one job.
type objects struct {
	name string
	// nil: it was deleted, but some of its pods remain
	job   *batch.Job
	spec  *core.ConfigMap
	state *core.ConfigMap
	pods  []core.Pod
	// that were asked for
	workers int
	// why objects wait, by events about them: by UID
	events map[string]string
	// why the queue has not admitted pods, by their UID
	queue map[string]string
}

// List returns the status of every job of the namespace, or of all namespaces, by name.
func (c *Client) List(ctx context.Context, everywhere bool) ([]*wire.JobStatus, error) {
	namespace := c.namespace
	if everywhere {
		namespace = ""
	}
	found := make(map[string]*objects) // by namespace and name
	of := func(m meta.ObjectMeta) *objects {
		name := m.Labels[manifest.LabelJob]
		key := m.Namespace + "/" + name
		if found[key] == nil {
			found[key] = &objects{name: name}
		}
		return found[key]
	}
	all := meta.ListOptions{LabelSelector: manifest.Selector("")}
	jobs, err := ask(ctx, c, "list jobs", func(ctx context.Context) (*batch.JobList, error) {
		return c.set.BatchV1().Jobs(namespace).List(ctx, all)
	})
	if err != nil {
		return nil, err
	}
	maps, err := ask(ctx, c, "list configmaps", func(ctx context.Context) (*core.ConfigMapList, error) {
		return c.set.CoreV1().ConfigMaps(namespace).List(ctx, all)
	})
	if err != nil {
		return nil, err
	}
	pods, err := ask(ctx, c, "list pods", func(ctx context.Context) (*core.PodList, error) {
		return c.set.CoreV1().Pods(namespace).List(ctx, all)
	})
	if err != nil {
		return nil, err
	}
	for i, j := range jobs.Items {
		of(j.ObjectMeta).job = &jobs.Items[i]
	}
	for i, m := range maps.Items {
		switch o := of(m.ObjectMeta); m.Name {
		case manifest.SpecName(o.name):
			o.spec = &maps.Items[i]
		case manifest.StateName(o.name):
			o.state = &maps.Items[i]
		}
	}
	for _, p := range pods.Items {
		o := of(p.ObjectMeta)
		o.pods = append(o.pods, p)
	}
	var list []*wire.JobStatus
	for _, o := range found {
		if o.job != nil || len(o.pods) > 0 {
			list = append(list, o.status())
		}
	}
	slices.SortFunc(list, func(a, b *wire.JobStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return list, nil
}

// Status returns the status of a job: what its master has written last, combined with what the
// cluster says of its pods. It returns [ErrNotFound] if there is no such job.
func (c *Client) Status(ctx context.Context, name string) (*wire.JobStatus, error) {
	o := &objects{name: name, events: make(map[string]string)}
	var err error
	if o.job, err = c.job(ctx, name); err != nil {
		return nil, err
	}
	if o.pods, err = c.pods(ctx, name); err != nil {
		return nil, err
	}
	if o.job == nil && len(o.pods) == 0 {
		return nil, c.notFound(name)
	}
	if o.spec, err = c.configMap(ctx, manifest.SpecName(name)); err != nil {
		return nil, err
	}
	if o.state, err = c.configMap(ctx, manifest.StateName(name)); err != nil {
		return nil, err
	}
	for _, u := range o.unexplained(time.Now()) {
		if why := c.hindrance(ctx, u); why != "" {
			o.events[u.uid] = why
		}
	}
	o.queue = c.queued(ctx, o.pods)
	return o.status(), nil
}

// job returns the master's Job, nil if there is none.
func (c *Client) job(ctx context.Context, name string) (*batch.Job, error) {
	return ask(ctx, c, "get job "+name, func(ctx context.Context) (*batch.Job, error) {
		return absent(c.set.BatchV1().Jobs(c.namespace).Get(ctx, manifest.MasterName(name), meta.GetOptions{}))
	})
}

func (c *Client) configMap(ctx context.Context, name string) (*core.ConfigMap, error) {
	return ask(ctx, c, "get configmap "+name, func(ctx context.Context) (*core.ConfigMap, error) {
		return absent(c.set.CoreV1().ConfigMaps(c.namespace).Get(ctx, name, meta.GetOptions{}))
	})
}

// absent returns nil instead of the error that an object is not found.
func absent[T any](object *T, err error) (*T, error) {
	if api.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

func (c *Client) pods(ctx context.Context, name string) ([]core.Pod, error) {
	list, err := ask(ctx, c, "list pods", func(ctx context.Context) (*core.PodList, error) {
		return c.set.CoreV1().Pods(c.namespace).List(ctx, meta.ListOptions{LabelSelector: manifest.Selector(name)})
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// hindrance returns what the events about an object say of why it waits, "" if nothing or if they
// may not be read.
func (c *Client) hindrance(ctx context.Context, of unclear) string {
	list, err := once(ctx, c.limit(), func(ctx context.Context) (*core.EventList, error) {
		return c.set.CoreV1().Events(c.namespace).List(ctx, meta.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", of.uid).String(),
		})
	})
	if err != nil {
		return ""
	}
	return observe.Explanation(list.Items, of.since)
}

// Events are read only for objects that have waited for some time without a stated reason, and only
// for a few of them.
const (
	unexplainedAfter = 3 * time.Second
	unexplainedMost  = 5
	// what a launcher tries is tried again within that time
	stillTrue = time.Minute
)

// unclear is an object whose events may explain why a job does not proceed.
type unclear struct {
	uid string
	// earlier events explain nothing
	since time.Time
}

// unexplained returns the objects whose events may explain why a job does not proceed: pods that
// their node does not start, and a Job without a master.
func (o *objects) unexplained(now time.Time) []unclear {
	var all []unclear
	for _, p := range o.pods {
		if why, _ := observe.Waiting(&p); p.Status.Phase == core.PodPending && p.Spec.NodeName != "" &&
			why == "" && now.Sub(p.CreationTimestamp.Time) > unexplainedAfter {
			all = append(all, unclear{uid: string(p.UID)})
		}
	}
	if m := o.master(); o.job != nil && (m == nil || lost(m)) && !observe.Suspended(o.job) && !ended(o.job) {
		root := unclear{uid: string(o.job.UID)}
		if l := o.launcher(); l != nil { // what hindered its creation is over
			root.since = l.CreationTimestamp.Time
			if recent := now.Add(-stillTrue); root.since.Before(recent) {
				root.since = recent
			}
		}
		all = append(all, root)
	}
	return all[:min(len(all), unexplainedMost)]
}

// status combines what the master has written with what the cluster says.
func (o *objects) status() *wire.JobStatus {
	s := &wire.JobStatus{}
	if o.state != nil && (o.job == nil || !observe.OfAnotherJob(o.state, string(o.job.UID))) {
		// A status that cannot be decoded counts as absent.
		protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal([]byte(o.state.Data[manifest.KeyStatus]), s)
	}
	s.Name = o.name
	if len(o.pods) > 0 {
		s.Namespace = o.pods[0].Namespace
	}
	if o.job != nil {
		s.Namespace = o.job.Namespace
		s.StartedUnixMs = cmp.Or(s.StartedUnixMs, o.job.CreationTimestamp.UnixMilli())
	}
	o.workers = int(s.Workers)
	if n, err := o.scaled(); err == nil {
		o.workers = n
	}
	s.Pods = o.podStatuses(s.Pods)
	o.settle(s)
	if s.EndedUnixMs == 0 && o.spec != nil {
		var j job.Job
		if json.Unmarshal([]byte(o.spec.Data[manifest.KeyJob]), &j) == nil {
			s.Strategy, s.Type = string(j.Strategy), string(j.Type)
			s.Output = cmp.Or(j.Output, j.PredictionOutputs, j.ResultDir())
			s.Workers = int32(cmp.Or(s.Workers, int32(j.NumWorkers)))
		}
		if n, err := o.scaled(); err == nil {
			s.Workers = int32(n)
		}
	}
	master.Rejudge(s, time.Now())
	return s
}

// scaled returns the number of workers that were asked for last.
func (o *objects) scaled() (int, error) {
	if o.spec == nil {
		return 0, errors.New("no spec")
	}
	n, err := strconv.Atoi(o.spec.Data[manifest.KeyNumWorkers])
	if err == nil && n < 1 {
		err = errors.New("not positive")
	}
	return n, err
}

// rests returns why a job that has given back its quota has no master, and until when; "" if it is
// none.
func (o *objects) rests() string {
	if o.state == nil || o.job == nil || observe.OfAnotherJob(o.state, string(o.job.UID)) {
		return ""
	}
	until, err := time.Parse(time.RFC3339, o.state.Data[manifest.KeyRest])
	if err != nil || !until.After(time.Now()) {
		return ""
	}
	var s wire.JobStatus
	protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal([]byte(o.state.Data[manifest.KeyStatus]), &s)
	return fmt.Sprintf("%s; the job returned its quota and tries again at %s", s.Reason,
		until.Local().Format(time.TimeOnly))
}

// settle sets the state of the job as a whole. A job has succeeded or failed when its Job has.
func (o *objects) settle(s *wire.JobStatus) {
	master := o.master()
	switch {
	case o.job == nil, o.job.DeletionTimestamp != nil:
		s.State, s.Reason = string(job.Stopping), ""
	case observe.JobCondition(o.job, batch.JobComplete) != nil:
		c := observe.JobCondition(o.job, batch.JobComplete)
		s.State, s.Reason = string(job.Succeeded), ""
		s.EndedUnixMs = cmp.Or(s.EndedUnixMs, c.LastTransitionTime.UnixMilli())
	case observe.Failure(o.job) != nil:
		o.fail(s, observe.Failure(o.job), master)
	case observe.Suspended(o.job):
		o.rest(s)
	// its master has written it, and its launcher ends in a moment
	case job.State(s.State).Ended():
	case master == nil || master.Status.Phase == core.PodPending || lost(master):
		why := o.missing()
		switch rests := o.rests(); {
		case rests != "":
			why = rests
		case master == nil, why != "":
		case lost(master):
			why = "its master comes back: " + observe.Exit(master).String()
		default:
			if why = o.why(master); why != "" {
				why = "master: " + why
			}
		}
		if s.State == string(job.Running) { // the pods work on meanwhile
			s.Waiting = cmp.Or(why, "its master comes back")
			break
		}
		s.State, s.Reason = string(job.Pending), why
	case s.State == "", s.State == string(job.Suspended):
		s.State, s.Reason = string(job.Pending), "" // the master begins, or comes back
	}
	if s.State == string(job.Pending) {
		s.EndedUnixMs = 0 // it may have been suspended
	}
	if s.EndedUnixMs > 0 || s.State == string(job.Suspended) || s.State == string(job.Stopping) {
		s.RecordsPerSecond = 0
	}
}

// lost reports whether a master has ended, or is on a node that does not answer.
func lost(master *core.Pod) bool {
	ended, _ := observe.Ended(master, pod.Master.String())
	return ended || master.DeletionTimestamp != nil && !observe.Ready(master)
}

// missing returns why a job has no master, "" if its launcher creates one in a moment.
func (o *objects) missing() string {
	l := o.launcher()
	if why := o.events[string(o.job.UID)]; l == nil || why != "" {
		return why
	}
	switch l.Status.Phase {
	case core.PodPending:
		if why := o.why(l); why != "" {
			return "launcher: " + why
		}
	case core.PodFailed:
		times := "once"
		if n := o.job.Status.Failed; n > 1 {
			times = fmt.Sprintf("%d times", n)
		}
		when := ""
		if end := endOf(l); end.After(l.CreationTimestamp.Time) {
			when = " at about " + end.Add(backOff(o.job.Status.Failed)).Local().Format(time.TimeOnly)
		}
		return fmt.Sprintf("its launcher was lost %s, and is started again%s: %s", times, when, observe.Exit(l))
	}
	return ""
}

// backOff returns the time for which Kubernetes leaves a Job alone after some failures of its pods.
func backOff(failures int32) time.Duration {
	const first, most = 10 * time.Second, 10 * time.Minute
	return min(first<<min(max(failures-1, 0), 10), most)
}

// rest sets the reason why a job is suspended.
func (o *objects) rest(s *wire.JobStatus) {
	began := s.RecordsTotal > 0
	s.State, s.EndedUnixMs = string(job.Suspended), 0
	switch {
	case slices.ContainsFunc(o.pods, func(p core.Pod) bool { return !observe.Pod(&p).Phase.Ended() }):
		s.Reason = "its pods are ending, after a checkpoint"
	case began:
		s.Reason = "it continues from its newest checkpoint with elasticdl resume " + o.name
	default:
		s.Reason = "by --suspend, or by who admits jobs to this cluster"
	}
}

// fail sets the reason why a job has failed: its master's, or the cluster's.
func (o *objects) fail(s *wire.JobStatus, c *batch.JobCondition, master *core.Pod) {
	if s.State == string(job.Failed) && s.Reason != "" && c.Reason != batch.JobReasonDeadlineExceeded {
		s.EndedUnixMs = cmp.Or(s.EndedUnixMs, c.LastTransitionTime.UnixMilli())
		return
	}
	s.State, s.Reason = string(job.Failed), c.Message
	switch {
	case c.Reason == batch.JobReasonDeadlineExceeded:
		s.Reason = "it has run for longer than its --deadline"
	case master != nil:
		s.Reason = "master: " + observe.Exit(master).String()
	case o.launcher() != nil && o.launcher().Status.Phase == core.PodFailed:
		s.Reason = "launcher: " + observe.Exit(o.launcher()).String()
	}
	s.EndedUnixMs = c.LastTransitionTime.UnixMilli()
}

// master returns the pod of the master, nil if there is none.
func (o *objects) master() *core.Pod { return o.newest(pod.Master.String()) }

// launcher returns the newest pod of the launcher, nil if there is none.
func (o *objects) launcher() *core.Pod { return o.newest(manifest.RoleLauncher) }

// newest returns the newest pod of a role, nil if there is none.
func (o *objects) newest(role string) *core.Pod {
	var newest *core.Pod
	for i, p := range o.pods {
		if p.Labels[manifest.LabelRole] == role &&
			(newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = &o.pods[i]
		}
	}
	return newest
}

// podStatuses returns every pod of the cluster, with what the master knows of it, and pods that
// only the master knows: not created yet, or deleted.
func (o *objects) podStatuses(said []*wire.PodStatus) []*wire.PodStatus {
	type id struct {
		role  wire.Role
		index int32
	}
	known := make(map[id]*wire.PodStatus)
	for _, p := range said {
		known[id{p.Role, p.Index}] = p
	}
	var all []*wire.PodStatus
	for i := range o.pods {
		p := o.pod(&o.pods[i])
		if p == nil {
			continue
		}
		k := id{p.Role, p.Index}
		if m := known[k]; m != nil && p.Role != wire.Role_MASTER {
			delete(known, k)
			p.Address = m.Address
			if m.Incarnation == p.Incarnation && p.EndedUnixMs == 0 {
				p.Processes = m.Processes
			}
			if m.EndedUnixMs > 0 && p.EndedUnixMs > 0 {
				p.Reason = cmp.Or(m.Reason, p.Reason) // with what it meant
			}
		}
		all = append(all, p)
	}
	over := o.job == nil || o.job.DeletionTimestamp != nil || ended(o.job)
	for _, p := range said {
		if known[id{p.Role, p.Index}] != p {
			continue
		}
		if made := pod.Running.Is(p.State) || pod.Leaving.Is(p.State); p.EndedUnixMs == 0 && (made || over) {
			// the master says why in a moment, if it lives
			p.State, p.Reason = pod.Deleted.String(), ""
		}
		p.Pid, p.Processes = 0, nil
		all = append(all, p)
	}
	return all
}

// pod returns the status of a pod as the cluster has it.
func (o *objects) pod(p *core.Pod) *wire.PodStatus {
	_, id, incarnation, ok := manifest.ParseLabels(p.Labels)
	if !ok {
		return nil
	}
	s := &wire.PodStatus{
		Role: wire.Role(id.Role), Index: int32(id.Index), Incarnation: int32(incarnation), Node: p.Spec.NodeName,
		State: string(p.Status.Phase), StartedUnixMs: p.CreationTimestamp.UnixMilli(),
	}
	switch p.Status.Phase {
	case core.PodPending:
		s.Reason = o.why(p)
	case core.PodFailed, core.PodSucceeded:
		s.EndedUnixMs = endOf(p).UnixMilli()
		if p.Status.Phase == core.PodFailed {
			s.Reason = observe.Exit(p).String()
		}
		return s
	case core.PodRunning:
		s.Reason, _ = observe.Waiting(p) // between two lives of its container
	}
	if p.DeletionTimestamp != nil {
		s.State = pod.Leaving.String()
	}
	return s
}

// why returns why a pod does not run.
func (o *objects) why(p *core.Pod) string {
	why, _ := observe.Waiting(p)
	if !observe.Queued(p) {
		return cmp.Or(why, o.events[string(p.UID)])
	}
	why = fmt.Sprintf("%s (%s)", why, share(o.pods, o.workers))
	if lacks := o.queue[string(p.UID)]; lacks != "" {
		why += ": " + role.Brief(lacks)
	}
	return why
}

// endOf returns when a pod's containers ended.
func endOf(p *core.Pod) time.Time {
	end := p.CreationTimestamp.Time
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// ended reports whether a Job has ended, with all of its pods.
func ended(j *batch.Job) bool {
	return observe.JobCondition(j, batch.JobComplete) != nil || observe.JobCondition(j, batch.JobFailed) != nil
}

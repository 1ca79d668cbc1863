package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// groupOfKueue is the API group of Kueue's objects.
const groupOfKueue = "kueue.x-k8s.io"

// labelJobUID is the label of a Workload with the UID of the pod that it admits.
const labelJobUID = groupOfKueue + "/job-uid"

// kueue returns the version of Kueue's API that the cluster prefers, "" if it has no Kueue, or does
// not tell.
func (c *Client) kueue() string {
	groups, err := c.set.Discovery().ServerGroups()
	if err != nil {
		return ""
	}
	for _, g := range groups.Groups {
		if g.Name == groupOfKueue {
			return g.PreferredVersion.Version
		}
	}
	return ""
}

// ofKueue returns objects of a kind of Kueue's, of all namespaces or of one.
func (c *Client) ofKueue(ctx context.Context, version, resource, namespace string,
	o meta.ListOptions) (*unstructured.UnstructuredList, error) {
	kind := schema.GroupVersionResource{Group: groupOfKueue, Version: version, Resource: resource}
	return once(ctx, c.limit(), func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return c.objects.Resource(kind).Namespace(namespace).List(ctx, o)
	})
}

// checkQueue returns why the queue of a job cannot admit its pods. Objects that the user may not
// read count as correct.
func (c *Client) checkQueue(ctx context.Context, j *job.Job) error {
	version := c.kueue()
	if version == "" {
		return fmt.Errorf("--queue=%s: the cluster has no Kueue, or does not answer: an administrator installs it "+
			"(https://kueue.sigs.k8s.io), or submit without --queue", j.Queue)
	}
	queues, err := c.ofKueue(ctx, version, "localqueues", c.namespace, meta.ListOptions{})
	if err != nil {
		c.note("whether there is a queue %s is not known: %v", j.Queue, err)
		return nil
	}
	var names []string
	for _, q := range queues.Items {
		if q.GetName() != j.Queue {
			names = append(names, q.GetName())
			continue
		}
		if status, message := conditionOf(&q, "Active"); status == "False" {
			c.note("queue %s admits nothing now: %s", j.Queue, message)
		}
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("--queue=%s: namespace %s has no such LocalQueue; it has %s", j.Queue, c.namespace,
		cmp.Or(strings.Join(names, ", "), "none"))
}

// conditionOf returns the status and the message of a condition, "" if there is none.
func conditionOf(o *unstructured.Unstructured, kind string) (status, message string) {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if fields, ok := c.(map[string]any); ok && fields["type"] == kind {
			status, _ = fields["status"].(string)
			message, _ = fields["message"].(string)
		}
	}
	return status, message
}

// unqueued returns why a pod, as the cluster would create it, would not wait for its queue.
func unqueued(j *job.Job, p *core.Pod) error {
	if p.Labels[manifest.LabelQueue] == "" || p.Labels[manifest.LabelManaged] != "" || observe.Queued(p) {
		return nil
	}
	return fmt.Errorf("--queue=%s: Kueue leaves the pods of namespace %s alone: an administrator adds pod to "+
		"integrations.frameworks of its configuration, or the namespace to managedJobsNamespaceSelector",
		j.Queue, j.Namespace)
}

// prioritize chooses the priorities by which the core of a job in a queue is above its other
// workers, if the job does not: those that the cluster has.
func (c *Client) prioritize(ctx context.Context, j *job.Job) {
	if j.Queue == "" || j.QueuePriorities != "" {
		return
	}
	j.QueuePriorities = job.PrioritiesNone
	has, err := c.hasWorkloadPriorities(ctx)
	if has {
		j.QueuePriorities = job.PrioritiesWorkload
		return
	}
	classes, classesErr := once(ctx, c.limit(), func(ctx context.Context) (all []unstructured.Unstructured, err error) {
		list, err := c.set.SchedulingV1().PriorityClasses().List(ctx, meta.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, class := range list.Items {
			o := unstructured.Unstructured{}
			o.SetName(class.Name)
			all = append(all, o)
		}
		return all, nil
	})
	lacks := "the cluster does not have the WorkloadPriorityClasses " + job.ClassCore + " and " + job.ClassElastic +
		" (elasticdl rbac --queues prints them)"
	if err != nil {
		lacks = fmt.Sprintf("whether the cluster has the WorkloadPriorityClasses %s and %s is not known (%v)",
			job.ClassCore, job.ClassElastic, err)
	}
	if classesErr == nil && hasBoth(classes, manifest.PodClassCore, manifest.PodClassElastic) {
		j.QueuePriorities = job.PrioritiesPod
		c.note("--queue_priorities=pod: %s; the PriorityClasses %s and %s are used", lacks, manifest.PodClassCore,
			manifest.PodClassElastic)
		return
	}
	c.note("--queue_priorities=none: %s; so Kueue may preempt the master and the servers before workers", lacks)
}

// noteUnsaved notes that a job loses its training whenever it returns its quota.
func (c *Client) noteUnsaved(j *job.Job) {
	if j.Type == job.Train && j.CheckpointDir == "" {
		c.note("--queue=%s without --checkpoint_dir: the training starts over if master, servers and --min_workers "+
			"workers lack quota for longer than --queue_timeout", j.Queue)
	}
}

// checkPriorities returns why Kueue would not queue the pods of a job by its --queue_priorities. It
// creates no Workload for a pod whose WorkloadPriorityClass does not exist.
func (c *Client) checkPriorities(ctx context.Context, j *job.Job) error {
	if j.QueuePriorities != job.PrioritiesWorkload {
		return nil
	}
	if has, err := c.hasWorkloadPriorities(ctx); err == nil && !has {
		return fmt.Errorf("--queue_priorities=%s: the cluster does not have the WorkloadPriorityClasses %s and %s: "+
			"an administrator applies what elasticdl rbac --queues prints", j.QueuePriorities, job.ClassCore,
			job.ClassElastic)
	}
	return nil // of another error the first pod tells
}

// hasWorkloadPriorities reports whether the cluster has the WorkloadPriorityClasses of jobs in
// queues.
func (c *Client) hasWorkloadPriorities(ctx context.Context) (bool, error) {
	list, err := c.ofKueue(ctx, cmp.Or(c.kueue(), "v1beta2"), "workloadpriorityclasses", "", meta.ListOptions{})
	return err == nil && hasBoth(list.Items, job.ClassCore, job.ClassElastic), err
}

// hasBoth reports whether two names are among those of objects.
func hasBoth(all []unstructured.Unstructured, one, other string) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(all, func(o unstructured.Unstructured) bool { return o.GetName() == name })
	}
	return has(one) && has(other)
}

// workloadAfter is the time within which Kueue makes the Workload of a pod.
const workloadAfter = 10 * time.Second

// waitsFor returns why the queue has not admitted a pod, "" if it does not say.
func (c *Client) waitsFor(ctx context.Context, version string, p *core.Pod) string {
	list, err := c.ofKueue(ctx, version, "workloads", p.Namespace,
		meta.ListOptions{LabelSelector: labelJobUID + "=" + string(p.UID)})
	switch {
	case api.IsForbidden(err):
		return "why is not known: you may not list workloads.kueue.x-k8s.io"
	case err != nil:
		return "why is not known: " + err.Error()
	case len(list.Items) == 0 && time.Since(p.CreationTimestamp.Time) > workloadAfter:
		return "it has no Workload: Kueue does not work, see its pods in namespace kueue-system"
	case len(list.Items) == 0:
		return ""
	}
	w := &list.Items[0]
	for _, kind := range []string{"Evicted", "QuotaReserved", "Admitted"} {
		status, message := conditionOf(w, kind)
		if (status == "True") == (kind == "Evicted") && message != "" {
			return message
		}
	}
	return ""
}

// queued returns what of a job waits for its queue, with the UIDs of pods: of a few of them, why.
func (c *Client) queued(ctx context.Context, pods []core.Pod) map[string]string {
	why := make(map[string]string)
	version, asked := "", 0
	for i := range pods {
		p := &pods[i]
		if !observe.Queued(p) || p.DeletionTimestamp != nil || asked >= unexplainedMost {
			continue
		}
		asked++
		if version == "" {
			if version = c.kueue(); version == "" {
				return why
			}
		}
		if text := c.waitsFor(ctx, version, p); text != "" {
			why[string(p.UID)] = text
		}
	}
	return why
}

// share returns how many workers of a job in a queue are admitted.
func share(pods []core.Pod, workers int) string {
	admitted := 0
	for i := range pods {
		p := &pods[i]
		_, id, _, ok := manifest.ParseLabels(p.Labels)
		if ok && id.Role == pod.Worker && p.Labels[manifest.LabelQueue] != "" && p.DeletionTimestamp == nil &&
			!observe.Queued(p) && !observe.Pod(p).Phase.Ended() {
			admitted++
		}
	}
	return fmt.Sprintf("%d of %d workers admitted", admitted, workers)
}

// queueOf returns the queue of a job by its description.
func (c *Client) queueOf(ctx context.Context, name string) string {
	j, err := c.Job(ctx, name)
	if err != nil {
		return ""
	}
	return j.Queue
}

// held returns the error of a job that waits for a queue, and is not to be resumed by its user; nil
// if it does not.
func (c *Client) held(ctx context.Context, o *objects) error {
	queue, why := "", ""
	switch m := o.master(); {
	case observe.Suspended(o.job):
		queue = o.job.Labels[manifest.LabelQueue]
	case m != nil && observe.Queued(m):
		queue, why = m.Labels[manifest.LabelQueue], c.queued(ctx, []core.Pod{*m})[string(m.UID)]
	case o.rests() != "":
		queue, why = c.queueOf(ctx, o.name), o.rests()
	}
	if queue == "" {
		return nil
	}
	if why != "" {
		why = ": " + why
	}
	return fmt.Errorf("job %s waits for quota of queue %s, which starts it when it admits it%s", o.name, queue, why)
}

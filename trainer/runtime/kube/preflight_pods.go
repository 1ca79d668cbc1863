package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/demand"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// podsOf returns a pod of each role of a job, as the cluster would create it, the launcher's first.
func podsOf(j *job.Job, s *manifest.Submission) ([]*core.Pod, error) {
	roles, err := demand.RolesOf(j, s)
	if err != nil {
		return nil, err
	}
	var all []*core.Pod
	for _, r := range roles {
		r.Pod.Namespace = j.Namespace
		if j.ServiceAccount == "" { // the job's own, which is created with it
			r.Pod.Spec.ServiceAccountName = ""
		}
		all = append(all, r.Pod)
	}
	all[0].GenerateName = manifest.MasterName(j.Name) + "-"
	return all, nil
}

// checkPods asks the cluster, in a dry run, whether it would create pods like those of the job, and
// looks whether a node has room for them. A check that the user may not make counts as passed.
func (c *Client) checkPods(ctx context.Context, j *job.Job, s *manifest.Submission) error {
	pods, err := podsOf(j, s)
	if err != nil {
		return err
	}
	var problems []error
	for i, p := range pods {
		role := p.Labels[manifest.LabelRole]
		admitted, err := once(ctx, c.limit(), func(ctx context.Context) (*core.Pod, error) {
			return c.set.CoreV1().Pods(c.namespace).Create(ctx, p, meta.CreateOptions{DryRun: []string{meta.DryRunAll}})
		})
		switch refused, waits := refusal(err); {
		case err == nil:
			// with what admission sets, as the requests of a LimitRange
			pods[i] = admitted
			problems = append(problems, unqueued(j, admitted))
		case waits:
			c.note("the namespace has no room for a pod of role %s now; it is created when there is: %v", role, err)
		case refused:
			see := fmt.Sprintf("--%s_resource_request and --%[1]s_resource_limit", role)
			if role == manifest.RoleLauncher {
				see = "its requests, of cpu=10m and memory=64Mi"
			}
			problems = append(problems, fmt.Errorf("namespace %s of the cluster refuses pods of role %s: %w; see %s",
				c.namespace, role, err, see))
		}
	}
	return errors.Join(append(problems, c.checkNodes(ctx, j, pods[1:]))...)
}

// refusal reports whether an error says that a pod can never be created by its manifest, or not
// before others are deleted.
func refusal(err error) (refused, waits bool) {
	switch why, _ := observe.Denied(err); why {
	case observe.OverWholeQuota:
		return true, false
	case observe.OverQuota:
		return false, true
	case observe.AgainstRule:
		// what else is missing is reported by its flag
		text := err.Error()
		return !strings.Contains(text, "PriorityClass") && !strings.Contains(text, "service account"), false
	}
	return api.IsInvalid(err), false
}

// checkNodes returns why no node of the cluster could run a pod of the job even if it was empty. If
// an autoscaler may add such a node, or the job is to wait without a limit, that is a note.
func (c *Client) checkNodes(ctx context.Context, j *job.Job, pods []*core.Pod) error {
	list, err := once(ctx, c.limit(), func(ctx context.Context) (*core.NodeList, error) {
		return c.set.CoreV1().Nodes().List(ctx, meta.ListOptions{})
	})
	if err != nil || len(list.Items) == 0 {
		return nil
	}
	var problems []error
	for _, p := range pods {
		if why := misfit(p, list.Items); why != "" {
			problems = append(problems,
				fmt.Errorf("no node of the cluster can run a pod of role %s: %s", p.Labels[manifest.LabelRole], why))
		}
	}
	waits := j.Suspend || j.PendingTimeout != nil && j.PendingTimeout.Duration == 0
	if len(problems) == 0 || !waits && !c.mayGrow(ctx) {
		return errors.Join(problems...)
	}
	for _, p := range problems {
		c.note("%v; it stays Pending unless such a node is added", p)
	}
	return nil
}

// misfit returns why none of the nodes can ever run a pod; "" if one can, or if that is not known.
func misfit(p *core.Pod, nodes []core.Node) string {
	if p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil || p.Spec.NodeName != "" {
		return ""
	}
	selected, tolerated := 0, 0
	largest := ""
	for _, n := range nodes {
		matches := true
		for key, value := range p.Spec.NodeSelector {
			matches = matches && n.Labels[key] == value
		}
		if !matches {
			continue
		}
		if selected++; !tolerates(p.Spec.Tolerations, n.Spec.Taints) {
			continue
		}
		tolerated++
		short := lacking(p, n.Status.Allocatable)
		if short == "" {
			return ""
		}
		largest = short
	}
	switch {
	case selected == 0:
		return fmt.Sprintf("none has the labels %s (--node_selector)",
			meta.FormatLabelSelector(meta.SetAsLabelSelector(p.Spec.NodeSelector)))
	case tolerated == 0:
		return "all that have its labels have taints that it does not tolerate (--tolerations)"
	}
	return largest + fmt.Sprintf(" (--%s_resource_request)", p.Labels[manifest.LabelRole])
}

// tolerates reports whether a pod can be scheduled to a node with the taints. Those that Kubernetes
// sets and removes on its own, as while a node is not ready, do not count.
func tolerates(tolerations []core.Toleration, taints []core.Taint) bool {
	return !slices.ContainsFunc(taints, func(taint core.Taint) bool {
		if taint.Effect == core.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return false
		}
		return !slices.ContainsFunc(tolerations, func(t core.Toleration) bool {
			key := t.Key == "" && t.Operator == core.TolerationOpExists || t.Key == taint.Key
			return key && (t.Effect == "" || t.Effect == taint.Effect) &&
				(t.Operator == core.TolerationOpExists || t.Value == taint.Value)
		})
	})
}

// lacking returns what a pod asks for that a node does not have even if it is empty; "" if it has
// all.
func lacking(p *core.Pod, has core.ResourceList) string {
	asks := demand.Requests(&p.Spec)
	name, short := demand.Short(asks, has)
	if !short {
		return ""
	}
	q, there := asks[name], has[name]
	return fmt.Sprintf("it asks for %s=%s, and the nodes that it may use have at most %s", name, q.String(),
		there.String())
}

// mayGrow reports whether the cluster has, or may have, an autoscaler that adds nodes.
func (c *Client) mayGrow(ctx context.Context) bool {
	_, err := once(ctx, c.limit(), func(ctx context.Context) (*core.ConfigMap, error) {
		return c.set.CoreV1().ConfigMaps("kube-system").Get(ctx, "cluster-autoscaler-status", meta.GetOptions{})
	})
	if !api.IsNotFound(err) {
		return true
	}
	groups, err := c.set.Discovery().ServerGroups()
	return err != nil || slices.ContainsFunc(groups.Groups, func(g meta.APIGroup) bool {
		return strings.Contains(g.Name, "karpenter") || g.Name == "eks.amazonaws.com" || g.Name == "autoscaling.gke.io"
	})
}

// notePriorities says that the cluster may preempt the master or a server before any worker,
// although their loss costs more.
func (c *Client) notePriorities(ctx context.Context, j *job.Job, s *manifest.Submission) {
	pods, err := podsOf(j, s)
	if err != nil {
		return
	}
	list, err := once(ctx, c.limit(), func(ctx context.Context) (*scheduling.PriorityClassList, error) {
		return c.set.SchedulingV1().PriorityClasses().List(ctx, meta.ListOptions{})
	})
	// the user may not look: only equal names are known to be equal
	if err != nil {
		list = nil
	}
	if note := unprotected(j, pods[1:], list); note != "" {
		c.note("%s", note)
	}
}

// unprotected returns which pods have no higher priority than the least of the workers, and what
// there is to do; "" for none. classes is nil if they are not known.
func unprotected(j *job.Job, pods []*core.Pod, classes *scheduling.PriorityClassList) string {
	least := pods[1]
	if last, err := manifest.Pod(j,
		manifest.PodSpec{ID: pod.ID{Role: pod.Worker, Index: j.NumWorkers - 1}, Incarnation: 1,
			Slot: j.NumWorkers - 1}, meta.OwnerReference{}); err == nil {
		least = last
	}
	worker, known := priorityOf(least, classes)
	var roles, flags []string
	for _, p := range pods {
		role := p.Labels[manifest.LabelRole]
		value, alsoKnown := priorityOf(p, classes)
		same := p.Spec.PriorityClassName == least.Spec.PriorityClassName
		if role == pod.Worker.String() || !same && (!known || !alsoKnown || value > worker) {
			continue
		}
		roles, flags = append(roles, map[string]string{"master": "the master",
			"ps": "parameter servers"}[role]), append(flags, "--"+role+"_pod_priority")
	}
	if len(roles) == 0 {
		return ""
	}
	note := fmt.Sprintf("%s no higher priority than workers, and may be preempted before them",
		strings.Join(roles, " and ")+map[bool]string{true: " has",
			false: " have"}[len(roles) == 1 && roles[0] == "the master"])
	if classes == nil {
		return note + ": give " + strings.Join(flags, " and ")
	}
	var higher []string
	for _, class := range classes.Items {
		if class.Value > worker && !strings.HasPrefix(class.Name, "system-") {
			higher = append(higher, fmt.Sprintf("%s (%d)", class.Name, class.Value))
		}
	}
	if len(higher) == 0 {
		return fmt.Sprintf("%s: the cluster has no PriorityClass above %d; its administrator makes "+
			"one with kubectl create priorityclass high --value=%d, for %s", note, worker, worker+1000,
			strings.Join(flags, " and "))
	}
	slices.Sort(higher)
	return fmt.Sprintf("%s: give %s, one of %s", note, strings.Join(flags, " and "), strings.Join(higher, ", "))
}

// priorityOf returns the priority that a pod gets, and reports whether it is known.
func priorityOf(p *core.Pod, classes *scheduling.PriorityClassList) (value int32, known bool) {
	if classes == nil {
		return 0, false
	}
	for _, class := range classes.Items {
		if class.Name == p.Spec.PriorityClassName || p.Spec.PriorityClassName == "" && class.GlobalDefault {
			return class.Value, true
		}
	}
	return 0, p.Spec.PriorityClassName == ""
}

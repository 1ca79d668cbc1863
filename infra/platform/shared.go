package platform

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// checkShared checks objects that the stack shares with others: the namespace, and priority classes
// with their values. It reports those that do not exist, and those that are this stack's own: the
// engine would delete these because they are no longer requested. It does the same for a claim, and
// reports queues without Kueue, too. It checks nothing on a cluster that is not known yet.
func checkShared(s *settings.Settings, g *infra.Guard, cluster *infra.Cluster) error {
	var found []error
	say := func(format string, args ...any) {
		found = append(found, fmt.Errorf(s.Project+":platform."+format, args...))
	}
	of := s.Platform
	look := func(kind schema.GroupVersionKind, in, name string) *infra.Found {
		is, err := g.Find(kind, in, name)
		// An object that a user may not read is not checked, and a cluster that this update makes
		// has nothing yet, nor access to it.
		if err != nil && cluster.Adopted && !errors.Is(err, infra.ErrForbidden) {
			found = append(found, err)
		}
		return is
	}
	if of.ShareNamespace {
		switch is := look(infra.KindNamespace, "", of.Namespace); {
		case is == nil:
		case is.Object == nil:
			say("shareNamespace: true: there is no namespace %s: make it: kubectl create namespace "+
				"%[1]s, or name another: platform.namespace", of.Namespace)
		case is.Own:
			say("shareNamespace: true: namespace %s is this stack's own, and would be deleted with "+
				"all that is in it: leave it false", of.Namespace)
		}
	}
	values := priorities(of.PriorityClasses)
	for _, name := range slices.Sorted(slices.Values(of.SharePriorityClasses)) {
		switch is := look(infra.KindPriorityClass, "", name); {
		case is == nil:
		case is.Object == nil:
			say("sharePriorityClasses: %s: there is no such PriorityClass: let the stack make it: "+
				"take it out of the list", name)
		case is.Own:
			say("sharePriorityClasses: %s: that PriorityClass is this stack's own, and would be "+
				"deleted: take it out of the list", name)
		default:
			if value, _, _ := unstructured.NestedNumberAsFloat64(is.Object, "value"); value != float64(values[name]) {
				say("priorityClasses.%s: %d: the class that is shared has %.0f: give that", name, values[name], value)
			}
		}
	}
	if v := cluster.Volume; v != nil && v.Shared {
		found = append(found, sharedClaim(s, v.Claim, look(infra.KindClaim, of.Namespace, v.Claim)))
	}
	if q := of.Queue; q != nil {
		checkKueue(q, look, say)
	} else if of.QueuePriorities {
		if is := look(infra.KindDefinition, "", definition); is != nil && is.Object == nil {
			say("queuePriorities: true: the cluster has no Kueue: install it first, or let the stack do that: " +
				"platform.queue: docs/queues.md")
		}
	}
	return errors.Join(found...)
}

// definition is the name of a definition of Kueue's.
const definition = "clusterqueues.kueue.x-k8s.io"

// checkKueue reports a Kueue that is not there although the stack does not install it, and objects
// of others that the queue names and that are not there, or are the stack's own: the engine would
// delete these.
func checkKueue(q *settings.Queue, look func(kind schema.GroupVersionKind, in, name string) *infra.Found,
	say func(format string, args ...any)) {
	if q.Install { // it is not there yet: see alone
		return
	}
	served, home := look(infra.KindDefinition, "", definition), look(infra.KindNamespace, "", kueueNamespace)
	switch {
	case home != nil && home.Own:
		say("queue.install: false: Kueue is this stack's own, and would be deleted with all queues of the " +
			"cluster: leave it true, or remove platform.queue")
	case served != nil && served.Object == nil:
		say("queue: the cluster has no Kueue: let the stack install it: platform.queue.install: true, or ask " +
			"the cluster's administrator: docs/queues.md")
		return
	}
	theirs := func(setting string, kind schema.GroupVersionKind, name, plural string) {
		switch is := look(kind, "", name); {
		case is == nil:
		case is.Object == nil:
			say("queue.%s: there is no %s %s: name another: kubectl get %s", setting, kind.Kind, name, plural)
		case is.Own:
			say("queue.%s: %s %s is this stack's own, and would be deleted: name another", setting, kind.Kind, name)
		}
	}
	if q.ClusterQueue != "" {
		theirs("clusterQueue", kindClusterQueue, q.ClusterQueue, "clusterqueues")
	}
	if f := q.Flavor; f != nil && f.Name != "" {
		theirs("flavor.name", kindFlavor, f.Name, "resourceflavors")
	}
}

// alone returns the option of the hook that refuses to install Kueue where it is already: its
// definitions exist once in a cluster.
func alone(g *infra.Guard) (pulumi.ResourceOption, error) {
	hook, err := g.Hook("one Kueue", func(*pulumi.ResourceHookArgs) error {
		is, err := g.Find(infra.KindDefinition, "", definition)
		if err != nil || is == nil || is.Object == nil {
			return err
		}
		return errors.New("platform.queue.install: true: the cluster has Kueue already, which is not of this " +
			"stack: give platform.queue.install: false")
	})
	if hook == nil || err != nil {
		return pulumi.ResourceHooks(nil), err
	}
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{hook}}), nil
}

// sharedClaim returns the problem of a claim that is to exist already.
func sharedClaim(s *settings.Settings, name string, is *infra.Found) error {
	const at = "existing.volume."
	switch {
	case is == nil: // it is not known
	case is.Object == nil:
		return fmt.Errorf("%s:"+at+"name: there is no claim %s in namespace %s: let the stack make it: "+
			at+"capacityGb, or name another: kubectl get pvc --namespace=%[3]s", s.Project, name,
			s.Platform.Namespace)
	case is.Own:
		return fmt.Errorf("%s:"+at+"capacityGb: missing, and the claim %s is this stack's own: it would be "+
			"deleted with its data: give its size", s.Project, name)
	}
	return nil
}

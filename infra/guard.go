package infra

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Kinds of the objects that stacks look up.
var (
	KindNamespace     = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	KindConfigMap     = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	KindPod           = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	KindClaim         = schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}
	KindJob           = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	KindPriorityClass = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}
	KindDefinition    = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"}
)

// AnnotationStack is the annotation that marks each object of a stack. Its value is unique to one
// Pulumi state: see [Guard].
const AnnotationStack = "elasticdl-stack"

// Guard checks which objects exist in a cluster before the engine changes them. The Kubernetes
// provider does not: it takes over an object that exists already, and `pulumi destroy` then deletes
// it.
//
//	BeforeCreate: the object exists without the mark of this stack
//	    ──> refused, with the choices of the user
//	BeforeUpdate: the object is in the state and not in the cluster
//	    ──> refused, with the command that repairs it
//
// Both run in previews, too. A preview that cannot reach the cluster, as before the first `pulumi
// up`, refuses nothing; the update checks again.
type Guard struct {
	ctx     *pulumi.Context
	live    Live
	of      Scope
	cluster *Cluster
	hooks   *pulumi.ResourceHookBinding
	// names of hooks, each of which the engine accepts once
	names map[string]bool
	// objects to look up before the first object is created
	plan []*unstructured.Unstructured
}

// Scope has what a guard must know of the objects that it guards.
type Scope struct {
	Names    Names
	Platform settings.Platform
	Jobs     []*job.Job
}

// NewGuard returns the guard of a part of a cluster. With mocks the guard marks objects, and checks
// nothing.
func NewGuard(ctx *pulumi.Context, of Scope, cluster *Cluster, live Live) (*Guard, error) {
	g := &Guard{ctx: ctx, live: live, of: of, cluster: cluster}
	if ctx.RunningWithMocks() {
		return g, nil
	}
	create, err := g.Hook("nothing of others is touched", func(a *pulumi.ResourceHookArgs) error {
		return g.beforeCreate(a.NewInputs)
	})
	if err != nil {
		return nil, err
	}
	update, err := g.Hook("what is changed is there", func(a *pulumi.ResourceHookArgs) error {
		return g.beforeUpdate(a.NewInputs)
	})
	if err != nil {
		return nil, err
	}
	g.hooks = &pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{create},
		BeforeUpdate: []*pulumi.ResourceHook{update}}
	return g, nil
}

// Hook registers a function as [NewHook] does. A nil guard registers nothing.
func (g *Guard) Hook(name string, f pulumi.ResourceHookFunction) (*pulumi.ResourceHook, error) {
	if g == nil {
		return nil, nil
	}
	name = g.of.Names.Hook(name)
	if g.names[name] {
		return nil, fmt.Errorf("a hook named %q is registered already: two jobs or platforms have one name", name)
	}
	if g.names == nil {
		g.names = map[string]bool{}
	}
	g.names[name] = true
	return NewHook(g.ctx, name, f)
}

// First returns the option of the resource by which all objects are reached. It checks before that
// resource is created: at that time the stack has none of the planned objects yet, so each one that
// exists belongs to someone else, and all of them are reported at once.
func (g *Guard) First(plan []runtime.Object) (pulumi.ResourceOption, error) {
	if g == nil || g.hooks == nil {
		return pulumi.ResourceHooks(nil), nil
	}
	// now: the program changes them while the engine calls the hook
	for _, o := range plan {
		u, err := tree(o)
		if err != nil {
			return nil, err
		}
		g.plan = append(g.plan, u)
	}
	hook, err := g.Hook("nothing of others is there", func(*pulumi.ResourceHookArgs) error { return g.allNew() })
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{hook}}), err
}

func (g *Guard) allNew() error {
	mark, _ := g.mark()
	var found []error
	for _, u := range g.plan {
		is, err := g.Look(u)
		if err != nil {
			return g.unseen(err)
		}
		if foreign(is, mark) {
			found = append(found, g.refusal(u, mark))
		}
	}
	return errors.Join(found...)
}

// beforeCreate refuses to create an object that exists and does not belong to this stack. Stacks of
// older versions have no marks: an object without a mark in the stack's namespace is its own,
// because the namespace was checked before it was created.
func (g *Guard) beforeCreate(inputs resource.PropertyMap) error {
	o := objectOf(inputs)
	mark, _ := g.mark()
	is, err := g.Look(o)
	if err != nil {
		return g.unseen(err)
	}
	if !foreign(is, mark) {
		return nil
	}
	if is.GetAnnotations()[AnnotationStack] == "" &&
		o.GetNamespace() == g.of.Platform.Namespace && !g.of.Platform.ShareNamespace {
		in, err := g.get(KindNamespace, "", o.GetNamespace())
		if err != nil {
			return g.unseen(err)
		}
		if in != nil && in.GetAnnotations()[AnnotationStack] == "" {
			return nil
		}
	}
	return g.refusal(o, mark)
}

// beforeUpdate refuses to change an object that was deleted outside of Pulumi: the provider would
// fail with a less helpful error.
func (g *Guard) beforeUpdate(inputs resource.PropertyMap) error {
	o := objectOf(inputs)
	if _, known := g.kubeconfig(); !known {
		return nil
	}
	is, err := g.Look(o)
	if err != nil {
		return g.unseen(err)
	}
	if is == nil {
		return fmt.Errorf("%s is to be changed, and was deleted since, by `elasticdl stop`, kubectl "+
			"or the like: run `pulumi up --refresh`, which finds the deleted objects and creates them again",
			describe(o))
	}
	return nil
}

// Namespace returns the namespace of the stack.
func (g *Guard) Namespace() string { return g.of.Platform.Namespace }

// Found is the result of looking up a name.
type Found struct {
	Object map[string]any // nil = there is no such object
	Own    bool           // it has the mark of this stack
}

// Find looks up an object, after it has waited until the engine knows the cluster. It returns nil
// in a preview in which the cluster is unknown or does not answer.
func (g *Guard) Find(kind schema.GroupVersionKind, namespace, name string) (*Found, error) {
	if g == nil || g.hooks == nil {
		return nil, nil
	}
	if _, known := g.kubeconfig(); !known && !g.cluster.Adopted {
		return nil, nil
	}
	is, err := g.get(kind, namespace, name)
	switch {
	case err != nil:
		return nil, g.unseen(err)
	case is == nil:
		return &Found{}, nil
	}
	mark, known := g.mark()
	return &Found{Object: is.Object, Own: known && is.GetAnnotations()[AnnotationStack] == mark}, nil
}

// unseen returns nil in a preview, which refuses nothing that it cannot check, and the error in an
// update, which ends by it.
func (g *Guard) unseen(err error) error {
	if g.ctx.DryRun() {
		return nil
	}
	return fmt.Errorf("look at the cluster before it is changed: %w", err)
}

// foreign reports whether an object exists, is not being deleted, and lacks this stack's mark.
func foreign(is *unstructured.Unstructured, mark string) bool {
	return is != nil && is.GetDeletionTimestamp() == nil && (mark == "" || is.GetAnnotations()[AnnotationStack] != mark)
}

// Look returns the object of that kind and name that is in the cluster, or nil.
func (g *Guard) Look(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return g.get(o.GroupVersionKind(), o.GetNamespace(), o.GetName())
}

// get returns an object, or nil if it does not exist or the cluster is not known yet.
func (g *Guard) get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	kubeconfig, known := g.kubeconfig()
	if !known && !g.cluster.Adopted {
		return nil, nil
	}
	return g.getFrom(g.own(kubeconfig), kind, namespace, name)
}

// place names a cluster: a context of a kubeconfig. Without a kubeconfig it is one of this
// machine's, which has the contexts of adopted clusters; without a context it is the current one.
type place struct{ kubeconfig, context string }

// own returns the place of the guard's own cluster, as its provider gets it.
func (g *Guard) own(kubeconfig string) place { return place{kubeconfig, g.cluster.Context} }

// getFrom returns an object of a cluster, or nil if it does not exist.
func (g *Guard) getFrom(of place, kind schema.GroupVersionKind,
	namespace, name string) (*unstructured.Unstructured, error) {
	is, err := g.live.Get(g.ctx.Context(), of.kubeconfig, of.context, kind, namespace, name)
	if err != nil || is == nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: is}, nil
}

// kubeconfig returns the kubeconfig of the cluster, and whether the engine knows it yet.
func (g *Guard) kubeconfig() (string, bool) {
	if g.cluster.Local() {
		return "", true
	}
	return await(g.ctx.Context(), g.cluster.Kubeconfig)
}

// await returns a text once the engine has resolved it, and whether it is known.
func await(ctx context.Context, o pulumi.StringOutput) (string, bool) {
	a, err := internals.UnsafeAwaitOutput(ctx, o)
	text, ok := a.Value.(string)
	return text, err == nil && a.Known && ok
}

// mark returns the mark of this stack; "" and false in the preview of the stack's first update.
func (g *Guard) mark() (string, bool) {
	id, known := await(g.ctx.Context(), g.cluster.ID.ToStringOutput())
	if !known {
		return "", false
	}
	return g.markOf(id), true
}

// markOf returns the mark: the stack's name, for people to read, and a hash of the stack and the
// identity of its cluster, so that no two states share a mark. A platform that is not alone in its
// program has a mark of its own.
func (g *Guard) markOf(cluster string) string {
	of := g.of.Names.Child(g.ctx.Project() + "/" + g.ctx.Stack())
	sum := sha256.Sum256([]byte(of + " on " + cluster))
	return fmt.Sprintf("%s.%x", g.ctx.Stack(), sum[:4])
}

// marked returns the mark of an object as an input. In a preview it is unknown if a change at one
// of the fixed paths replaces the object: then the provider does not try to create the new object
// next to the existing one, which the API server would refuse. The provider handles only some of
// these cases on its own.
func (g *Guard) marked(o *unstructured.Unstructured, wanted pulumi.Map, fixed []string) pulumi.StringOutput {
	mark := g.cluster.ID.ToStringOutput().ApplyT(g.markOf).(pulumi.StringOutput)
	if !g.ctx.DryRun() || g.hooks == nil || len(fixed) == 0 {
		return mark
	}
	return pulumi.All(mark, wanted).ApplyT(func(v []any) pulumi.StringOutput {
		if is, err := g.Look(o); err == nil && is != nil {
			for _, path := range fixed {
				keys := strings.Split(path, ".")
				if !within(at(v[1], keys), at(is.Object, keys)) {
					return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) string { return "" }).(pulumi.StringOutput)
				}
			}
		}
		return pulumi.String(v[0].(string)).ToStringOutput()
	}).(pulumi.StringOutput)
}

// at returns the value under a path of keys, or nil.
func at(v any, keys []string) any {
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// within reports whether the object that exists has every wanted value, as JSON. It may have other
// values besides.
func within(want, is any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case map[string]any:
		i, ok := is.(map[string]any)
		for key := range w {
			ok = ok && within(w[key], i[key])
		}
		return ok
	case []any:
		i, ok := is.([]any)
		ok = ok && len(i) == len(w)
		for n := range w {
			ok = ok && within(w[n], i[n])
		}
		return ok
	}
	if w, ok := number(want); ok {
		i, ok := number(is)
		return ok && w == i
	}
	return fmt.Sprint(want) == fmt.Sprint(is)
}

// number returns a number of JSON as a float, whether the decoder has made an integer of it or not.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	case int:
		return float64(n), true
	}
	return 0, false
}

// objectOf returns an object with the kind, namespace and name of its inputs.
func objectOf(inputs resource.PropertyMap) *unstructured.Unstructured {
	text := func(m resource.PropertyMap, key resource.PropertyKey) string {
		if v := m[key]; v.IsString() {
			return v.StringValue()
		}
		return ""
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(text(inputs, "apiVersion"))
	o.SetKind(text(inputs, "kind"))
	if m := inputs["metadata"]; m.IsObject() {
		o.SetName(text(m.ObjectValue(), "name"))
		o.SetNamespace(text(m.ObjectValue(), "namespace"))
	}
	return o
}

// describe returns "PriorityClass high" or "Job training/elasticdl-mnist-master".
func describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// refusal returns an error that names the existing object and the choices of the user.
func (g *Guard) refusal(o *unstructured.Unstructured, mark string) error {
	choice := "name another namespace: platform.namespace"
	name := o.GetName()
	switch _, own := g.of.Platform.PriorityClasses[name]; {
	case o.GetKind() == "Namespace" && name != g.Namespace():
		choice = "use the Kueue that is there: platform.queue.install: false"
	case o.GetKind() == "Namespace":
		choice = "share it: platform.shareNamespace: true, or name another: platform.namespace"
	case o.GetKind() == "PriorityClass" && (name == "high" || name == "low"):
		choice = fmt.Sprintf("share it: platform.sharePriorityClasses: [%s]", name)
	case o.GetKind() == "PriorityClass" && own:
		choice = fmt.Sprintf("share it: platform.sharePriorityClasses: [%s], or name another in "+
			"platform.priorityClasses", name)
	case o.GetKind() == manifest.KindWorkloadPriority.Kind:
		choice = "use it unchanged: platform.queuePriorities: false, and job.queuePriorities: workload"
	case o.GetKind() == "LocalQueue":
		choice = "name another: platform.queue.name; or use it: remove platform.queue, and set job.queue: " + name
	case o.GetKind() == "ClusterQueue":
		choice = "name another: platform.queue.name; or use it: platform.queue.clusterQueue: " + name
	case o.GetKind() == "ResourceFlavor":
		choice = "name another: platform.queue.name; or use it: platform.queue.flavor.name: " + name
	case o.GetKind() == "PersistentVolumeClaim" && g.cluster.Settings.Existing != nil:
		choice = "share it: leave out existing.volume.capacityGb, or name another: existing.volume.name"
	case o.GetKind() == "StorageClass":
		choice = "name another: platform.storageClass"
	case o.GetKind() == "DaemonSet":
		choice = "remove the one that is there, or let eks.gpuGroup be"
	case g.jobOf(name) != "":
		choice = "name the job otherwise: job.name, or end the one that is there: elasticdl stop " +
			g.jobOf(name) + " --namespace=" + o.GetNamespace()
	}
	text := fmt.Sprintf("%s already exists, and is not of this stack, which would change it, and "+
		"delete it at its end: %s", describe(o), choice)
	if mark != "" {
		in := ""
		if o.GetNamespace() != "" {
			in = " --namespace=" + o.GetNamespace()
		}
		text += fmt.Sprintf(" (If it is this stack's, of a state that is lost: kubectl annotate "+
			"--overwrite %s %s%s %s=%s)", strings.ToLower(o.GetKind()), name, in, AnnotationStack, mark)
	}
	return errors.New(text)
}

// jobOf returns the name of the job to which an object of that name belongs, or "".
func (g *Guard) jobOf(name string) (of string) {
	for _, j := range g.of.Jobs {
		if strings.HasPrefix(name, manifest.SpecName(j.Name)) && len(j.Name) > len(of) {
			of = j.Name
		}
	}
	return of
}

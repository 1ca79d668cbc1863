package infra

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Every wanted value must exist; other values do not matter.
func TestWithin(t *testing.T) {
	type object = map[string]any
	for _, test := range []struct {
		name     string
		want, is any
		within   bool
	}{
		{"nothing wanted", nil, object{"a": 1}, true},
		{"more is there", object{"a": 1.0}, object{"a": 1, "b": 2}, true},
		{"a number", object{"value": 1e6}, object{"value": int64(1000000)}, true},
		{"another number", object{"value": 1e6}, object{"value": int64(1000)}, false},
		{"a text for a number", 1.0, "1", false},
		{"less is there", object{"a": 1, "b": 2}, object{"a": 1}, false},
		{"other value", object{"a": "x"}, object{"a": "y"}, false},
		{"nothing there", object{"a": 1}, nil, false},
		{"same list", []any{"a", object{"b": 1}}, []any{"a", object{"b": 1, "c": 2}}, true},
		{"shorter list there", []any{"a", "b"}, []any{"a"}, false},
		{"longer list there", []any{"a"}, []any{"a", "b"}, false},
		{"other order", []any{"a", "b"}, []any{"b", "a"}, false},
		{"no list there", []any{"a"}, "a", false},
	} {
		if got := within(test.want, test.is); got != test.within {
			t.Errorf("%s: %t, want %t", test.name, got, test.within)
		}
	}
}

// An object is foreign if it exists, is not being deleted, and has no mark of this stack.
func TestForeign(t *testing.T) {
	at := func(annotations map[string]any, deleted bool) *unstructured.Unstructured {
		metadata := map[string]any{"annotations": annotations}
		if deleted {
			metadata["deletionTimestamp"] = "2026-11-21T10:00:00Z"
		}
		return &unstructured.Unstructured{Object: map[string]any{"metadata": metadata}}
	}
	own := map[string]any{AnnotationStack: "dev.1234"}
	for _, test := range []struct {
		name    string
		is      *unstructured.Unstructured
		mark    string
		foreign bool
	}{
		{"nothing there", nil, "dev.1234", false},
		{"own", at(own, false), "dev.1234", false},
		{"another stack's", at(own, false), "dev.5678", true},
		{"nobody's", at(nil, false), "dev.1234", true},
		{"whose mark is not known yet", at(own, false), "", true},
		{"going", at(nil, true), "dev.1234", false},
	} {
		if got := foreign(test.is, test.mark); got != test.foreign {
			t.Errorf("%s: %t, want %t", test.name, got, test.foreign)
		}
	}
}

// one simulates a cluster with one object.
type one struct {
	object map[string]any
	asked  string
	by     string // context
}

func (o *one) Get(_ context.Context, _, by string, kind schema.GroupVersionKind,
	namespace, name string) (map[string]any, error) {
	o.by = by
	o.asked = kind.GroupVersion().String() + "/" + kind.Kind + " " + namespace + "/" + name
	return o.object, nil
}

// A job counts as running from its start to its end, except while it is suspended or being deleted;
// a preview says for how long it has run.
func TestRunningIn(t *testing.T) {
	const is = "job test has been running for 2h0m0s (`elasticdl status test --namespace=training` says how far it is)"
	condition := func(kind, status string) map[string]any {
		return map[string]any{"status": map[string]any{"startTime": "2026-11-21T10:00:00Z",
			"conditions": []any{map[string]any{"type": kind, "status": status}}}}
	}
	for _, test := range []struct {
		name   string
		object map[string]any
		want   string
	}{
		{"none", nil, ""},
		{"started", map[string]any{"status": map[string]any{"startTime": "2026-11-21T10:00:00Z"}}, is},
		{"not started yet", map[string]any{},
			"job test is running (`elasticdl status test --namespace=training` says how far it is)"},
		{"complete", condition("Complete", "True"), ""},
		{"failed", condition("Failed", "True"), ""},
		{"about to fail", condition("FailureTarget", "True"), is},
		{"not failed", condition("Failed", "False"), is},
		{"suspended", map[string]any{"spec": map[string]any{"suspend": true}}, ""},
		{"deleted", map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-11-21T10:00:00Z"}}, ""},
	} {
		_, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
			live := &one{object: test.object}
			of := &settings.Settings{Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
			g := &Guard{ctx: ctx, live: live, cluster: &Cluster{Settings: of, Context: "this"},
				of: Scope{Jobs: []*job.Job{{Name: "test", Namespace: "training"}}}}
			if got := g.RunningIn("a kubeconfig"); got != test.want {
				t.Errorf("%s: %q, want %q", test.name, got, test.want)
			}
			if want := "batch/v1/Job training/elasticdl-test-master"; live.asked != want {
				t.Errorf("%s: asked for %s, want %s", test.name, live.asked, want)
			}
			if live.by != "" {
				t.Errorf("%s: asked by the context %s, which another cluster's kubeconfig has not", test.name, live.by)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// away simulates a cluster that does not answer.
type away struct{}

func (away) Get(context.Context, string, string, schema.GroupVersionKind, string, string) (map[string]any, error) {
	return nil, errors.New("no route to host")
}

// A preview refuses nothing that it cannot check; an update fails before it changes anything.
func TestUnseen(t *testing.T) {
	for _, preview := range []bool{true, false} {
		_, err := graph.Record(graph.Cloud{Preview: preview}, func(ctx *pulumi.Context) error {
			cluster := &Cluster{Kubeconfig: pulumi.String("a kubeconfig").ToStringOutput(), ID: pulumi.String("c")}
			g := &Guard{ctx: ctx, live: away{}, cluster: cluster,
				hooks: &pulumi.ResourceHookBinding{}}
			namespace, err := tree(&core.Namespace{TypeMeta: meta.TypeMeta{APIVersion: "v1",
				Kind: "Namespace"}, ObjectMeta: meta.ObjectMeta{Name: "n"}})
			if err != nil {
				return err
			}
			g.plan = []*unstructured.Unstructured{namespace}
			inputs := resource.NewPropertyMapFromMap(map[string]any{"apiVersion": "v1",
				"kind": "Namespace", "metadata": map[string]any{"name": "n"}})
			found, lost := g.Find(KindNamespace, "", "n")
			if found != nil {
				t.Errorf("preview %t: found %v", preview, found)
			}
			for name, err := range map[string]error{"first": g.allNew(),
				"create": g.beforeCreate(inputs), "update": g.beforeUpdate(inputs), "find": lost} {
				const want = "look at the cluster before it is changed: no route to host"
				if (err == nil) != preview || err != nil && err.Error() != want {
					t.Errorf("preview %t, %s: %v, want %s", preview, name, err, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The priorities of another owner are used, and not changed.
func TestRefusalOfQueuePriorities(t *testing.T) {
	g := &Guard{cluster: &Cluster{Settings: &settings.Settings{}}}
	err := g.refusal(manifest.WorkloadPriorities()[0], "")
	for _, want := range []string{"WorkloadPriorityClass elasticdl-core already exists, and is not of this stack",
		"platform.queuePriorities: false, and job.queuePriorities: workload"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A queue of another owner is used, and neither changed nor deleted.
func TestRefusalOfQueues(t *testing.T) {
	g := &Guard{cluster: &Cluster{Settings: &settings.Settings{}},
		of: Scope{Platform: settings.Platform{Namespace: "research"}}}
	for kind, want := range map[string]string{
		"LocalQueue":   "name another: platform.queue.name; or use it: remove platform.queue, and set job.queue: x",
		"ClusterQueue": "platform.queue.clusterQueue: x", "ResourceFlavor": "platform.queue.flavor.name: x",
		"Namespace": "use the Kueue that is there: platform.queue.install: false",
	} {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetKind(kind)
		o.SetName("x")
		if err := g.refusal(o, ""); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
	}
}

// Stacks look up kinds in versions that the API server has: an unknown version would return
// nothing, and nothing would be refused.
func TestKinds(t *testing.T) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, batch.AddToScheme, scheduling.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	for want, object := range map[schema.GroupVersionKind]runtime.Object{
		KindNamespace: &core.Namespace{}, KindConfigMap: &core.ConfigMap{}, KindClaim: &core.PersistentVolumeClaim{},
		KindJob: &batch.Job{}, KindPod: &core.Pod{}, KindPriorityClass: &scheduling.PriorityClass{},
	} {
		if kinds, _, err := known.ObjectKinds(object); err != nil || !slices.Contains(kinds, want) {
			t.Errorf("%v: the API has %v: %v", want, kinds, err)
		}
	}
}

// A mark is that of one platform: of another stack, cluster or platform of the program it is
// another. The mark of a stack has always been the same, because objects in clusters have it.
func TestMarks(t *testing.T) {
	_, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
		marks := map[string]bool{}
		for _, of := range []Names{{}, NewNames("blue", false), NewNames("green", false)} {
			g := &Guard{ctx: ctx, of: Scope{Names: of}}
			marks[g.markOf("a")], marks[g.markOf("b")] = true, true
		}
		if len(marks) != 6 || !marks["test.fa11e095"] {
			t.Errorf("%v", marks)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// kinds simulates a cluster with one object of each kind.
type kinds map[string]map[string]any

func (k kinds) Get(_ context.Context, _, _ string, kind schema.GroupVersionKind,
	_, _ string) (map[string]any, error) {
	return k[kind.Kind], nil
}

// An object without a mark belongs to a stack of an older version only if it is in the stack's own
// namespace, and that has no mark either. All other objects belong to others.
func TestObjectsWithoutMark(t *testing.T) {
	own := settings.Platform{Namespace: "training"}
	shared := settings.Platform{Namespace: "training", ShareNamespace: true}
	unmarked := map[string]any{"metadata": map[string]any{"name": "n"}}
	marked := map[string]any{"metadata": map[string]any{"annotations": map[string]any{AnnotationStack: "dev.1234"}}}
	for name, test := range map[string]struct {
		of                settings.Platform
		object, namespace map[string]any
		in                string
		refused           bool
	}{
		"an older version":          {own, unmarked, unmarked, "training", false},
		"a shared namespace":        {shared, unmarked, unmarked, "training", true},
		"another namespace":         {own, unmarked, unmarked, "research", true},
		"no namespace":              {own, unmarked, unmarked, "", true},
		"a namespace with a mark":   {own, unmarked, marked, "training", true},
		"a namespace that is not":   {own, unmarked, nil, "training", true},
		"the mark of another stack": {own, marked, unmarked, "training", true},
		"no object":                 {own, nil, unmarked, "training", false},
	} {
		_, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
			g := &Guard{ctx: ctx, live: kinds{"ConfigMap": test.object, "Namespace": test.namespace},
				of:      Scope{Platform: test.of},
				cluster: &Cluster{Settings: &settings.Settings{}, ID: pulumi.String("c")}}
			err := g.beforeCreate(resource.NewPropertyMapFromMap(map[string]any{"apiVersion": "v1",
				"kind": "ConfigMap", "metadata": map[string]any{"name": "n", "namespace": test.in}}))
			if (err != nil) != test.refused {
				t.Errorf("%s: refused: %v, want %t", name, err, test.refused)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The guard's own cluster is asked by its own context, as its provider is: the current one of a
// kubeconfig may be of another cluster.
func TestOwnContext(t *testing.T) {
	in(t, false, func(ctx *pulumi.Context) error {
		live := &one{object: map[string]any{}}
		g := &Guard{ctx: ctx, live: live, cluster: &Cluster{Settings: &settings.Settings{}, Context: "this",
			Kubeconfig: pulumi.String("with several contexts").ToStringOutput()},
			of: Scope{Jobs: []*job.Job{{Name: "test", Namespace: "training"}}}}
		for name, ask := range map[string]func(){
			"an object": func() { _, _ = g.get(KindNamespace, "", "n") },
			"jobs":      func() { g.Running() },
		} {
			live.asked, live.by = "", ""
			if ask(); live.asked == "" || live.by != "this" {
				t.Errorf("%s: asked for %q by the context %q", name, live.asked, live.by)
			}
		}
		return nil
	})
}

// A preview looks at an adopted cluster although it does not know its kubeconfig yet: this machine
// has one. Of a cluster that does not exist yet it looks up nothing.
func TestClusterThatIsNotKnown(t *testing.T) {
	for _, adopted := range []bool{true, false} {
		_, err := graph.Record(graph.Cloud{Preview: true}, func(ctx *pulumi.Context) error {
			unknown := pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) string { return "" }).(pulumi.StringOutput)
			live := &one{object: map[string]any{"kind": "Namespace"}}
			g := &Guard{ctx: ctx, live: live, hooks: &pulumi.ResourceHookBinding{},
				cluster: &Cluster{Kubeconfig: unknown, ID: pulumi.String("c"), Adopted: adopted}}
			is, err := g.get(KindNamespace, "", "n")
			if err != nil || (is != nil) != adopted || (live.asked != "") != adopted {
				t.Errorf("adopted %t: %v, %v, asked for %q", adopted, is, err, live.asked)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

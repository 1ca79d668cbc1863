package infra

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// in runs a function in a program with mocks, in a preview or an update.
func in(t *testing.T, preview bool, f func(ctx *pulumi.Context) error) []graph.Resource {
	t.Helper()
	all, err := graph.Record(graph.Cloud{Preview: preview}, f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// named returns an object of a kind.
func named(kind, in, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetKind(kind)
	o.SetNamespace(in)
	o.SetName(name)
	return o
}

// A refusal of an object of others names the setting that helps, and the whole command that gives
// the object to the stack if its state was lost.
func TestChoices(t *testing.T) {
	classes := map[string]int32{"night": 1, "low": 5}
	for name, test := range map[string]struct {
		o        *unstructured.Unstructured
		existing bool
		want     string
	}{
		"the namespace": {named("Namespace", "", "research"), false,
			"share it: platform.shareNamespace: true, or name another: platform.namespace"},
		"a class of the settings": {named("PriorityClass", "", "night"), false,
			"share it: platform.sharePriorityClasses: [night], or name another in platform.priorityClasses"},
		"a class of jobs": {named("PriorityClass", "", "high"), false,
			"share it: platform.sharePriorityClasses: [high]"},
		"a class of jobs and own": {named("PriorityClass", "", "low"), false,
			"share it: platform.sharePriorityClasses: [low]"},
		"a claim of an own cluster": {named("PersistentVolumeClaim", "research", "data"), false,
			"name another namespace: platform.namespace"},
		"a claim": {named("PersistentVolumeClaim", "research", "data"), true,
			"share it: leave out existing.volume.capacityGb, or name another: existing.volume.name"},
		"a class of storage": {named("StorageClass", "", "shared"), false, "name another: platform.storageClass"},
		"a job": {named("Job", "research", "elasticdl-digits-master"), false, "name the job otherwise: job.name, or " +
			"end the one that is there: elasticdl stop digits --namespace=research"},
		"a job with a longer name": {named("Job", "research", "elasticdl-digits-2-master"), false, "name the job " +
			"otherwise: job.name, or end the one that is there: elasticdl stop digits-2 --namespace=research"},
		"anything else": {named("Role", "research", "x"), false, "name another namespace: platform.namespace"},
	} {
		g := &Guard{cluster: &Cluster{Settings: &settings.Settings{}}, of: Scope{Jobs: []*job.Job{{Name: "digits-2"},
			{Name: "digits"}}, Platform: settings.Platform{Namespace: "research", PriorityClasses: classes}}}
		if test.existing {
			g.cluster.Settings.Existing = &settings.Existing{}
		}
		err := g.refusal(test.o, "dev.1")
		at := ""
		if in := test.o.GetNamespace(); in != "" {
			at = " --namespace=" + in
		}
		want := ": " + test.want + " (If it is this stack's, of a state that is lost: kubectl annotate --overwrite " +
			strings.ToLower(test.o.GetKind()) + " " + test.o.GetName() + at + " " + AnnotationStack + "=dev.1)"
		if !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// Every object gets the mark of its stack, and keeps annotations of its own.
func TestMarked(t *testing.T) {
	for _, own := range []map[string]string{nil, {"a": "b"}} {
		all := in(t, false, func(ctx *pulumi.Context) error {
			c := &Cluster{ID: pulumi.String("c"), Settings: &settings.Settings{}}
			g, err := NewGuard(ctx, Scope{Names: NewNames("blue", false)}, c, away{})
			if err != nil {
				return err
			}
			if _, err := g.First(nil); err != nil {
				return err
			}
			blue := &Guard{ctx: ctx, of: Scope{Names: NewNames("blue", false)}}
			if want := blue.markOf("c"); g.markOf("c") != want {
				t.Errorf("the platform blue marks by %s, want %s", g.markOf("c"), want)
			}
			o := &core.Namespace{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: meta.ObjectMeta{Name: "n", Annotations: own}}
			_, err = Register(ctx, g, Object{Name: "n", Object: o})
			return err
		})
		of := all[0].Inputs["metadata"].ObjectValue()["annotations"].ObjectValue()
		if mark := of[AnnotationStack]; !mark.IsString() || !strings.HasPrefix(mark.StringValue(), "test.") ||
			len(of) != len(own)+1 || len(own) > 0 && of["a"].V != "b" {
			t.Errorf("with %v it has %v", own, of)
		}
	}
}

// Without a guard nothing is looked up, and nothing fails.
func TestNoGuard(t *testing.T) {
	var g *Guard
	if _, err := g.First(nil); err != nil {
		t.Error(err)
	}
	if is, err := g.Find(KindNamespace, "", "n"); is != nil || err != nil {
		t.Errorf("%v, %v", is, err)
	}
	if hook, err := g.Hook("h", nil); hook != nil || err != nil {
		t.Errorf("%v, %v", hook, err)
	}
}

// A preview does not ask the cluster to accept a change that replaces the object: then its mark is
// not known, and of all other changes it is.
func TestMarkOfReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		preview bool
		is      map[string]any
		fixed   []string
		known   bool
	}{
		"another value": {true, map[string]any{"value": 1}, []string{"value"}, false},
		"the same":      {true, map[string]any{"value": 2}, []string{"value"}, true},
		"may change":    {true, map[string]any{"value": 1}, nil, true},
		"not there":     {true, nil, []string{"value"}, true},
		"an update":     {false, map[string]any{"value": 1}, []string{"value"}, true},
	} {
		in(t, test.preview, func(ctx *pulumi.Context) error {
			g := &Guard{ctx: ctx, live: &one{object: test.is}, hooks: &pulumi.ResourceHookBinding{},
				cluster: &Cluster{ID: pulumi.String("c"), Settings: &settings.Settings{}}}
			mark := g.marked(named("PriorityClass", "", "high"), pulumi.Map{"value": pulumi.Int(2)}, test.fixed)
			text, known := await(ctx.Context(), mark)
			if known != test.known || known && text != g.markOf("c") {
				t.Errorf("%s: known: %t, %q, want %t", name, known, text, test.known)
			}
			return nil
		})
	}
}

// An object is the stack's own by its mark only, and is missing if the cluster does not have it.
func TestFind(t *testing.T) {
	marked := func(mark string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{AnnotationStack: mark}}}
	}
	in(t, false, func(ctx *pulumi.Context) error {
		live := &one{}
		g := &Guard{ctx: ctx, live: live, hooks: &pulumi.ResourceHookBinding{},
			cluster: &Cluster{ID: pulumi.String("c"), Settings: &settings.Settings{}}}
		for _, test := range []struct {
			object map[string]any
			own    bool
		}{{nil, false}, {marked("x"), false}, {marked(g.markOf("c")), true}} {
			live.object = test.object
			is, err := g.Find(KindNamespace, "", "n")
			if err != nil || is == nil || is.Own != test.own || (is.Object == nil) != (test.object == nil) {
				t.Errorf("%v: %+v, %v", test.object, is, err)
			}
		}
		return nil
	})
	for _, adopted := range []bool{true, false} {
		in(t, true, func(ctx *pulumi.Context) error {
			unknown := pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) string { return "" }).(pulumi.StringOutput)
			g := &Guard{ctx: ctx, live: &one{object: marked("x")}, hooks: &pulumi.ResourceHookBinding{},
				cluster: &Cluster{Kubeconfig: unknown, ID: pulumi.String("c"), Adopted: adopted}}
			if is, err := g.Find(KindNamespace, "", "n"); err != nil || (is != nil) != adopted {
				t.Errorf("adopted %t: %v, %v", adopted, is, err)
			}
			return nil
		})
	}
}

// A cluster answers if its namespace can be read; a job runs if its own Job does.
func TestAnswers(t *testing.T) {
	in(t, false, func(ctx *pulumi.Context) error {
		g := &Guard{ctx: ctx, cluster: &Cluster{Settings: &settings.Settings{}},
			of: Scope{Jobs: []*job.Job{{Name: "a"}, {Name: "b"}}}}
		there := &one{object: map[string]any{}}
		for name, test := range map[string]struct {
			live       Live
			kubeconfig string
			want       bool
		}{"it does": {there, "k", true}, "no cluster": {there, "", false}, "no namespace": {&one{}, "k", false},
			"away": {away{}, "k", false}} {
			if g.live = test.live; g.Answers(test.kubeconfig) != test.want {
				t.Errorf("%s: %t", name, !test.want)
			}
		}
		g.live = there
		if got := g.RunningOf("b"); strings.Contains(got, "job a ") || !strings.Contains(got, "job b ") {
			t.Errorf("of b there runs %s", got)
		}
		if got := g.RunningOf(""); !strings.Contains(got, "job a ") || !strings.Contains(got, "job b ") {
			t.Errorf("of all there runs %s", got)
		}
		return nil
	})
}

// A release is named as its chart says, and one that does not become ready is removed, so that the
// next update installs it again.
func TestRelease(t *testing.T) {
	all := in(t, false, func(ctx *pulumi.Context) error {
		_, err := Chart{Name: "kueue", Chart: "c", Version: "1", Namespace: "n"}.Register(ctx, "blue-kueue")
		return err
	})
	for key, want := range map[resource.PropertyKey]any{"name": "kueue", "chart": "c", "version": "1", "namespace": "n",
		"atomic": true, "timeout": float64(chartTime)} {
		if got := all[0].Inputs[key]; got.V != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

package manifest

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	fieldpath "k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// names are values of --job_name, the longest included.
var names = rapid.OneOf(rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,12}[a-z0-9])?`),
	rapid.StringMatching(fmt.Sprintf(`[a-z0-9][-a-z0-9]{%d}[a-z0-9]`, job.MaxName-2)))

var ids = rapid.Custom(func(t *rapid.T) pod.ID {
	id := pod.ID{Role: rapid.SampledFrom([]pod.Role{pod.Master, pod.PS, pod.Worker}).Draw(t, "role")}
	if id.Role != pod.Master {
		id.Index = rapid.OneOf(rapid.IntRange(0, 12), rapid.IntRange(0, 99_999)).Draw(t, "index")
	}
	return id
})

func TestNamesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, id := names.Draw(t, "job"), ids.Draw(t, "id")
		podName := PodName(name, id)
		if id.Role == pod.Master {
			podName += "-" + rapid.StringMatching(`[a-z0-9]{5}`).Draw(t, "generated")
		}
		if errs := validation.IsDNS1123Label(podName); len(errs) > 0 {
			t.Errorf("%s: %v", podName, errs)
		}
		all := PodLabels(name, id)
		if incarnation := rapid.IntRange(0, 9).Draw(t, "incarnation"); incarnation > 0 {
			all[LabelIncarnation] = fmt.Sprint(incarnation)
			if _, _, got, _ := ParseLabels(all); got != incarnation {
				t.Errorf("incarnation %d is %d", incarnation, got)
			}
		}
		if gotJob, got, _, ok := ParseLabels(all); !ok || gotJob != name || got != id {
			t.Errorf("%v are %s's %v, %t", all, gotJob, got, ok)
		}
		for _, selector := range []string{Selector(name), Selector("")} {
			s, err := labels.Parse(selector)
			if err != nil || !s.Matches(labels.Set(all)) || !s.Matches(labels.Set(Labels(name))) ||
				s.Matches(labels.Set{LabelApp: App}) {
				t.Errorf("%s: %v", selector, err)
			}
		}
	})
}

func TestNoNames(t *testing.T) {
	for _, change := range []map[string]string{{LabelApp: "x"}, {LabelJob: ""}, {LabelRole: "chief"},
		{LabelIndex: ""}, {LabelIndex: "x"}, {LabelRole: "master", LabelIndex: "1"}} {
		all := PodLabels("j", worker(1))
		maps.Copy(all, change)
		if _, id, _, ok := ParseLabels(all); ok {
			t.Errorf("%v are %v", all, id)
		}
	}
}

// Every valid job is of objects whose names and labels Kubernetes takes, and no two are the same.
func TestObjectsHaveNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := job.Default()
		j.Name, j.Image, j.ModelDef, j.TrainingData = names.Draw(t, "job"), "i", "m", "d"
		j.Namespace = rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`).Draw(t, "namespace")
		j.NumWorkers = rapid.IntRange(1, 9999).Draw(t, "workers")
		if j.NumPS = rapid.IntRange(0, 12).Draw(t, "servers"); j.NumPS == 0 {
			j.Strategy = job.AllReduce
		}
		if rapid.Bool().Draw(t, "account") {
			j.ServiceAccount = "a"
		}
		s, err := Submit(j)
		if err != nil {
			if strings.HasSuffix(j.Name, stateSuffix) {
				return
			}
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		check := func(o meta.Object, kind string) {
			if errs := validation.IsDNS1035Label(o.GetName()); len(errs) > 0 || o.GetNamespace() != j.Namespace {
				t.Errorf("%s %s/%s: %v", kind, o.GetNamespace(), o.GetName(), errs)
			}
			if errs := metavalidation.ValidateLabels(o.GetLabels(), fieldpath.NewPath("labels")); len(
				errs) > 0 || o.GetLabels()[LabelJob] != j.Name {
				t.Errorf("%s %s: %v", kind, o.GetName(), errs)
			}
			if seen[kind+o.GetName()] {
				t.Errorf("%s %s occurs twice", kind, o.GetName())
			}
			seen[kind+o.GetName()] = true
		}
		for _, o := range s.Objects() {
			check(o.(meta.Object), o.GetObjectKind().GroupVersionKind().Kind)
		}
		all := []*core.Pod{mustPodOf(t, j, worker(rapid.IntRange(0, 99_999).Draw(t, "worker")))}
		for i := range j.NumPS {
			all = append(all, mustPodOf(t, j, ps(i)))
		}
		for _, p := range all {
			check(p, "Pod")
			if _, id, incarnation, ok := ParseLabels(p.Labels); !ok || incarnation != 1 ||
				PodName(j.Name, id) != p.Name {
				t.Errorf("%s has labels %v", p.Name, p.Labels)
			}
		}
		for _, service := range s.Services[1:] { // each finds its server
			found := 0
			for _, p := range all {
				if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(p.Labels)) {
					found++
				}
			}
			if found != 1 {
				t.Errorf("Service %s finds %d pods", service.Name, found)
			}
		}
		if !labels.SelectorFromSet(s.Services[0].Spec.Selector).Matches(labels.Set(s.Master.Labels)) {
			t.Error("the master's Service does not find it")
		}
	})
}

func mustPodOf(t *rapid.T, j *job.Job, id pod.ID) *core.Pod {
	p, err := Pod(j, PodSpec{ID: id, Incarnation: 1}, meta.OwnerReference{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Law 2 for two jobs: whatever they are called, they do not meet in one object.
func TestJobsDoNotMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching(`[a-z0-9]{1,3}`).Draw(t, "job")
		b := a + rapid.SampledFrom([]string{"-state", "-master", "-ps-0", "-worker-0", "-ps", "-0",
			"0"}).Draw(t, "suffix")
		seen := make(map[string]string)
		for _, name := range []string{a, b} {
			j := job.Default()
			j.Name, j.Image, j.ModelDef, j.TrainingData = name, "i", "m", "d"
			s, err := Submit(j)
			if err != nil && strings.HasSuffix(name, stateSuffix) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			for _, o := range append(s.Objects(), mustPodOf(t, j, worker(0)), mustPodOf(t, j, ps(0))) {
				id := o.GetObjectKind().GroupVersionKind().Kind + " " + o.(meta.Object).GetName()
				if other, ok := seen[id]; ok {
					t.Errorf("%s is of %s and of %s", id, other, name)
				}
				seen[id] = name
			}
		}
	})
}

// The flags accept the labels that Kubernetes accepts.
func TestLabelsAsKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`([a-zA-Z0-9.-]{0,5}/)?[a-zA-Z0-9._-]{0,64}(/)?`).Draw(t, "key")
		value := rapid.StringMatching(`[a-zA-Z0-9._-]{0,64}`).Draw(t, "value")
		_, err := job.ParseNodeSelector(key + "=" + value)
		want := len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
		if (err == nil) != want {
			t.Errorf("%s=%s: %v, and Kubernetes takes it: %t", key, value, err, want)
		}
	})
}

//go:build !e2e

package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/test/provider"
)

// adopts creates a stack on an existing profile.
func adopts(t *testing.T, cloud *provider.Cloud, name, profile string) *engine {
	t.Helper()
	e := startIn(t, cloud, "minikube", name)
	e.set("elasticdl:minikube.profile", profile)
	e.set("elasticdl:minikube.adopt", true)
	e.set("elasticdl:data", nil)
	return e
}

// refused checks that the preview fails with all of these messages, so that an up with a preview
// does not begin, and that it has changed nothing.
func (e *engine) refused(want ...string) {
	e.Helper()
	before := len(e.cloud.Calls())
	_, err := e.tryPreview()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			e.Errorf("the preview does not say %q: %v", w, err)
		}
	}
	if now := e.cloud.Calls()[before:]; len(now) > 0 {
		e.Errorf("it was refused, and yet: %v", now)
	}
}

// warned returns the output of a preview.
func (e *engine) warned() string {
	e.Helper()
	r, err := e.stack.Preview(e.Context(), optpreview.SuppressProgress())
	if err != nil {
		e.Fatalf("preview: %v", err)
	}
	var lines []string
	for line := range strings.Lines(r.StdOut) {
		if strings.Contains(line, "warning:") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// D13: an adopted profile has objects of others. The preview names all of them at once; shared
// objects stay unchanged, to the end of the stack and after it.
func TestAdoptBesideOthers(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	if err := cloud.StartMinikube("mine"); err != nil {
		t.Fatal(err)
	}
	theirs := []provider.Props{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": provider.Props{"name": "elasticdl",
			"labels": provider.Props{"team": "theirs"}}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": provider.Props{"name": "precious",
			"namespace": "elasticdl"}},
		{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
			"metadata": provider.Props{"name": "high"}, "value": 5},
	}
	if err := cloud.Kubernetes.Put("mine", theirs...); err != nil {
		t.Fatal(err)
	}
	e := adopts(t, cloud, "minikube", "mine")
	e.refused("Namespace elasticdl already exists, and is not of this stack",
		"platform.shareNamespace: true, or name another: platform.namespace",
		"PriorityClass high already exists, and is not of this stack", "platform.sharePriorityClasses: [high]")
	e.set("elasticdl:platform.shareNamespace", true)
	e.set("elasticdl:platform.sharePriorityClasses", []any{"high", "low"})
	e.refused("platform.priorityClasses.high: 1000000: the class that is shared has 5",
		"platform.sharePriorityClasses: low: there is no such PriorityClass")
	e.set("elasticdl:platform.sharePriorityClasses", []any{"high"})
	e.set("elasticdl:platform.priorityClasses", map[string]any{"high": 5, "low": 1})
	keys := []string{"v1/Namespace elasticdl", "v1/ConfigMap elasticdl/precious",
		"scheduling.k8s.io/v1/PriorityClass high"}
	e.up()
	were := objects(e, keys)
	e.unchanged("nothing has changed")
	for _, name := range []string{"namespace", "priority-high"} {
		for _, r := range e.resources() {
			if r.URN.Name() == name {
				t.Errorf("the state has %s, which is shared", r.URN)
			}
		}
	}
	e.destroy()
	if now := objects(e, keys); !reflect.DeepEqual(now, were) {
		t.Errorf("there were\n%v\nand there are\n%v", were, now)
	}
}

// The priorities of jobs in queues require Kueue.
func TestQueuePriorities(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	if err := cloud.StartMinikube("queued"); err != nil {
		t.Fatal(err)
	}
	e := adopts(t, cloud, "minikube", "queued")
	e.set("elasticdl:platform.queuePriorities", true)
	e.refused("platform.queuePriorities: true: the cluster has no Kueue: install it first")
}

func objects(e *engine, keys []string) (all []provider.Props) {
	for _, key := range keys {
		all = append(all, e.object(key))
	}
	return all
}

// D13: two stacks on one cluster do not affect each other.
func TestTwoStacks(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	if err := cloud.StartMinikube("both"); err != nil {
		t.Fatal(err)
	}
	first := adopts(t, cloud, "minikube", "both")
	first.up()
	marks := map[string]int{}
	for _, r := range first.resources() {
		if strings.HasPrefix(string(r.Type), "kubernetes:") {
			marks[fmt.Sprint(at(r.Inputs, "metadata", "annotations", infra.AnnotationStack))]++
		}
	}
	if len(marks) != 1 || marks["<nil>"] > 0 {
		t.Errorf("objects are marked %v", marks)
	}
	second := adopts(t, cloud, "vision", "both")
	second.refused("Namespace elasticdl already exists", "PriorityClass high already exists",
		"PriorityClass low already exists", "PersistentVolume elasticdl-data-claim already exists",
		"Role elasticdl/elasticdl-submitter already exists")
	second.set("elasticdl:platform.namespace", "vision")
	second.set("elasticdl:platform.sharePriorityClasses", []any{"high", "low"})
	there := cloud.Left()
	second.up()
	second.unchanged("nothing has changed")
	first.unchanged("there is another stack")
	second.destroy()
	if now := cloud.Left(); !reflect.DeepEqual(now, there) {
		t.Errorf("there were\n%s\nand there are\n%s", steps(there), steps(now))
	}
	first.unchanged("there was another stack")
	// The stack cannot begin to share an object of its own: that would delete the object.
	first.set("elasticdl:platform.shareNamespace", true)
	first.set("elasticdl:platform.sharePriorityClasses", []any{"high"})
	first.refused("shareNamespace: true: namespace elasticdl is this stack's own",
		"sharePriorityClasses: high: that PriorityClass is this stack's own")
	first.set("elasticdl:platform.shareNamespace", nil)
	first.set("elasticdl:platform.sharePriorityClasses", nil)
	first.destroy()
	first.cleared()
}

// D13: every change that the pages allow can be previewed and applied, also if the API server
// refuses to change the object, and if a job was stopped outside of Pulumi.
func TestChangesOfObjects(t *testing.T) {
	t.Parallel()
	cloud := provider.Start(t)
	if err := cloud.StartMinikube("mine"); err != nil {
		t.Fatal(err)
	}
	e := adopts(t, cloud, "minikube", "mine")
	e.up()
	const class = "scheduling.k8s.io/v1/PriorityClass low"
	e.set("elasticdl:platform.priorityClasses", map[string]any{"high": 1000000, "low": 2000})
	e.expect("another priority", e.up(), "replace kubernetes:scheduling.k8s.io/v1:PriorityClass priority-low")
	if value := e.object(class)["value"]; fmt.Sprint(value) != "2000" {
		t.Errorf("the class has %v", value)
	}
	e.unchanged("the class has that value")

	// The volume's source can be changed, and the claim is replaced with it, when no job uses the
	// claim.
	e.set("elasticdl:minikube.data", t.TempDir())
	e.refused("the volume and its claim have to be made again", "elasticdl stop")
	// as elasticdl stop deletes them
	if err := cloud.Kubernetes.Remove(jobObject, specObject, stateOf); err != nil {
		t.Fatal(err)
	}
	e.set("elasticdl:job.numWorkers", 3)
	e.refused("ConfigMap elasticdl/elasticdl-test-mnist is to be changed, and was deleted since", "pulumi up --refresh")
	e.set("elasticdl:job", nil)
	e.refresh()
	did := fmt.Sprint(e.up())
	for _, want := range []string{"replace kubernetes:core/v1:PersistentVolume volume",
		"replace kubernetes:core/v1:PersistentVolumeClaim claim"} {
		if !strings.Contains(did, want) {
			t.Errorf("another source of the volume did not %s:\n%s", want, did)
		}
	}
	e.unchanged("the volume has that source")
	if n := cloud.Kubernetes.Retried.Load(); n > 0 {
		t.Errorf("previews of replaced objects warned %d times that they try again", n)
	}
	e.destroy()
	e.cleared()
}

// D13: a preview warns of changes that would end a running job, and not if the job has ended.
func TestRunningJob(t *testing.T) {
	t.Parallel()
	e := start(t, "minikube")
	e.set("elasticdl:data", nil)
	e.up()
	e.change(jobObject, func(is provider.Props) {
		is["status"] = provider.Props{"active": 1, "startTime": "2026-11-21T22:00:00Z"}
	})
	quiet := func(when string) {
		t.Helper()
		if said := e.warned(); strings.Contains(said, "job test-mnist") {
			t.Errorf("%s: %s", when, said)
		}
	}
	loud := func(when string, want ...string) {
		t.Helper()
		said := e.warned()
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: nothing says %q: %s", when, w, said)
			}
		}
	}
	e.set("elasticdl:job.numWorkers", 3)
	quiet("another number of workers")
	e.set("elasticdl:job.suspend", true)
	loud("suspend", "job.suspend: true: job test-mnist has been running for 2h0m0s", "its pods would be ended by that")
	e.set("elasticdl:job.suspend", nil)
	e.set("elasticdl:job.numEpochs", 7)
	loud("more epochs", "job test-mnist has been running for 2h0m0s",
		"ended and started over", "job.numEpochs (7, was ")
	e.up()
	quiet("the new job")

	e.set("elasticdl:minikube.cpus", 4)
	e.refused("policy replaced-cluster: the cluster elasticdl-minikube/start-",
		"job test-mnist has been running for", "`pulumi destroy`, then `pulumi up`")
	e.set("elasticdl:policy.allow", []any{"replaced-cluster"})
	if _, err := e.tryPreview(); err != nil {
		t.Errorf("what is allowed is refused: %v", err)
	}
	e.set("elasticdl:minikube.cpus", nil)
	e.change(jobObject, func(is provider.Props) {
		is["status"] = provider.Props{"succeeded": 1,
			"conditions": []any{provider.Props{"type": "Complete", "status": "True"}}}
	})
	e.set("elasticdl:job.numEpochs", 8)
	quiet("a job that has ended")
	if n := e.cloud.Kubernetes.Retried.Load(); n > 0 {
		t.Errorf("previews of a replaced job warned %d times that they try again", n)
	}
}

package kube

import (
	"errors"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

var theNamespace = &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "default"}}

// A pod that the cluster would never create is refused at submission, with the cluster's reason.
// Pods that pass, and pods that the user may not or cannot try, are accepted.
func TestPreflightTriesPods(t *testing.T) {
	forbidden := func(text string) error {
		return api.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New(text))
	}
	for name, c := range map[string]struct {
		role string // whose pods are refused
		err  error
		want string // of the problem; "": none
		note string
	}{
		"LimitRange": {"worker",
			forbidden("maximum memory usage per Container is 1Gi, but limit is 4Gi"),
			"namespace default of the cluster refuses pods of role worker: pods \"p\" is forbidden: " +
				"maximum memory usage per Container is 1Gi, but limit is 4Gi; see " +
				"--worker_resource_request and --worker_resource_limit", ""},
		"LimitRange, ps": {"ps", forbidden("minimum cpu usage per Pod is 2, but request is 1"),
			"pods of role ps: ", ""},
		"master": {"master",
			forbidden("cpu max limit to request ratio per Container is 2, but provided ratio is 10"),
			"--master_resource_limit", ""},
		"quota, required": {"worker",
			forbidden("failed quota: q: must specify limits.nvidia.com/gpu for: worker"), "must specify", ""},
		"quota, never": {"worker",
			forbidden("exceeded quota: q, requested: limits.memory=4Gi, used: limits.memory=0, " +
				"limited: limits.memory=2Gi"), "exceeded quota", ""},
		"quota, now": {"worker",
			forbidden("exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9"), "",
			"no room for a pod of role worker now"},
		"invalid": {"worker", api.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), "is invalid", ""},
		"policy": {"worker",
			forbidden(`violates PodSecurity "baseline:latest": hostPath volumes`), "PodSecurity", ""},
		"may not":       {"worker", kubetest.Forbidden("create", "pods"), "", ""},
		"no dry run":    {"worker", api.NewBadRequest("admission webhook x does not support dry run"), "", ""},
		"webhook fails": {"worker", webhookFails, "", ""},
		"taken":         {"worker", api.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, "p"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client, set := testClient(theNamespace)
			var notes strings.Builder
			client.notes = &notes
			set.PrependReactor("create", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
				p := a.(kubetesting.CreateAction).GetObject().(*core.Pod)
				if !isDry(a) {
					t.Error("a pod is created")
				}
				if p.Labels[manifest.LabelRole] == c.role {
					return true, nil, c.err
				}
				return false, nil, nil
			})
			problems, err := client.Preflight(t.Context(), kubetest.Job())
			if err != nil || (problems != nil) != (c.want != "") || problems != nil &&
				!strings.Contains(problems.Error(), c.want) {
				t.Errorf("%v, %v", problems, err)
			}
			if !strings.Contains(notes.String(), c.note) || c.note == "" &&
				strings.Contains(notes.String(), "no room") {
				t.Errorf("notes: %s", &notes)
			}
		})
	}
}

func node(name string, change func(*core.Node)) *core.Node {
	n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"disktype": "ssd"}}}
	n.Status.Allocatable = core.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi")}
	if change != nil {
		change(n)
	}
	return n
}

// A job whose pods no node can run is refused, unless an autoscaler may add such a node, the job is
// to wait, or the user may not look.
func TestPreflightLooksForNodes(t *testing.T) {
	tainted := func(n *core.Node) {
		n.Spec.Taints = []core.Taint{{Key: "team", Value: "vision", Effect: core.TaintEffectNoSchedule}}
	}
	cordoned := func(n *core.Node) {
		n.Spec.Taints = []core.Taint{{Key: core.TaintNodeUnschedulable, Effect: core.TaintEffectNoSchedule}}
	}
	selects := func(j *job.Job) { j.NodeSelector = map[string]string{"disktype": "hdd"} }
	large := func(j *job.Job) { j.Worker.Request = job.Resources{"cpu": "64", "memory": "1Gi"} }
	for name, c := range map[string]struct {
		change func(*job.Job)
		node   func(*core.Node)
		more   []runtime.Object
		deny   bool
		want   string
		note   string
	}{
		"fits": {},
		"selector": {change: selects,
			want: "no node of the cluster can run a pod of role worker: none has the labels " +
				"disktype=hdd (--node_selector)"},
		"too large": {change: large,
			want: "pod of role worker: it asks for cpu=64, and the nodes that it may use have at " +
				"most 8 (--worker_resource_request)"},
		"no GPU": {change: func(j *job.Job) {
			j.Worker.Request["nvidia.com/gpu"] = "1"
		}, want: "it asks for nvidia.com/gpu=1, and the nodes that it may use have at most 0"},
		"taint": {node: tainted, want: "taints that it does not tolerate (--tolerations)"},
		"tolerated": {node: tainted, change: func(j *job.Job) {
			j.Tolerations = []job.Toleration{{Key: "team", Operator: "Exists"}}
		}},
		"cordoned": {node: cordoned},
		"autoscaler": {change: selects,
			more: []runtime.Object{&core.ConfigMap{
				ObjectMeta: meta.ObjectMeta{Name: "cluster-autoscaler-status",
					Namespace: "kube-system"}}},
			note: "disktype=hdd (--node_selector); it stays Pending unless such a node is added"},
		"to wait": {change: func(j *job.Job) {
			selects(j)
			j.PendingTimeout = new(job.Duration)
		}, note: "stays Pending unless"},
		"suspended": {change: func(j *job.Job) { large(j); j.Suspend = true }, note: "stays Pending unless"},
		"may not":   {change: selects, deny: true},
	} {
		t.Run(name, func(t *testing.T) {
			client, set := testClient(append(c.more, theNamespace, node("a", c.node), node("b", c.node))...)
			var notes strings.Builder
			client.notes = &notes
			if c.deny {
				kubetest.Fail(set, "list", "nodes", 9, kubetest.Forbidden("list", "nodes"))
			}
			j := kubetest.Job()
			if c.change != nil {
				c.change(j)
			}
			problems, err := client.Preflight(t.Context(), j)
			if err != nil || (problems != nil) != (c.want != "") || problems != nil &&
				!strings.Contains(problems.Error(), c.want) {
				t.Errorf("%v, %v", problems, err)
			}
			if !strings.Contains(notes.String(), c.note) || c.note == "" &&
				strings.Contains(notes.String(), "Pending") {
				t.Errorf("notes: %s", &notes)
			}
		})
	}
}

// A master and servers without a higher priority than the workers are noted, with the classes that
// the cluster has.
func TestPreflightNotesPriorities(t *testing.T) {
	class := func(name string, value int32, byDefault bool) runtime.Object {
		return &scheduling.PriorityClass{ObjectMeta: meta.ObjectMeta{Name: name}, Value: value,
			GlobalDefault: byDefault}
	}
	high, low, usual, system := class("high", 1000000, false), class("low", 1000, false),
		class("usual", 2000, true), class("system-node-critical", 2000001000, false)
	const both = "the master and parameter servers have no higher priority than workers, and may be " +
		"preempted before them"
	for name, c := range map[string]struct {
		master, ps string
		worker     job.Priority
		classes    []runtime.Object
		deny       bool
		note       string // "": none
	}{
		"none is given": {classes: []runtime.Object{high, low, system}, note: both +
			": give --master_pod_priority and --ps_pod_priority, one of high (1000000), low (1000)\n"},
		"the cluster has none": {classes: []runtime.Object{system}, note: both +
			": the cluster has no PriorityClass above 0; its administrator makes one with kubectl " +
			"create priorityclass high --value=1000, for --master_pod_priority and --ps_pod_priority\n"},
		"one for all": {master: "high", ps: "high", worker: job.Priority{Class: "high"},
			classes: []runtime.Object{high}, note: both},
		"below the default": {master: "low", ps: "low", classes: []runtime.Object{high, low, usual},
			note: both + ": give --master_pod_priority and --ps_pod_priority, one of high (1000000)\n"},
		"the servers alone": {master: "high", classes: []runtime.Object{high, low},
			note: "parameter servers have no higher priority than workers, and may be preempted " +
				"before them: give --ps_pod_priority, one of"},
		"the master alone": {ps: "high", classes: []runtime.Object{high, low},
			note: "the master has no higher priority than workers"},
		"half of them are high": {master: "high", ps: "high",
			worker: job.Priority{Class: "high", Share: 0.5}, classes: []runtime.Object{high, low}},
		"above": {master: "high", ps: "high", worker: job.Priority{Class: "low"},
			classes: []runtime.Object{high, low}},
		"may not look":         {deny: true, note: both + ": give --master_pod_priority and --ps_pod_priority\n"},
		"may not look, others": {master: "a", ps: "b", deny: true},
	} {
		t.Run(name, func(t *testing.T) {
			client, set := testClient(append(c.classes, theNamespace)...)
			var notes strings.Builder
			client.notes = &notes
			if c.deny {
				kubetest.Fail(set, "list", "priorityclasses", 9, kubetest.Forbidden("list", "priorityclasses"))
				kubetest.Fail(set, "get", "priorityclasses", 9, kubetest.Forbidden("get", "priorityclasses"))
			}
			j := kubetest.Job()
			j.Master.Priority.Class, j.PS.Priority.Class, j.Worker.Priority = c.master, c.ps, c.worker
			if problems, err := client.Preflight(t.Context(), j); problems != nil || err != nil {
				t.Errorf("%v, %v", problems, err)
			}
			if (notes.Len() > 0) != (c.note != "") || !strings.Contains(notes.String(), c.note) {
				t.Errorf("notes: %s", &notes)
			}
		})
	}
}

// The pod counts after the cluster's admission: a webhook, or the defaults of a LimitRange, may set
// what it asks for.
func TestPreflightLooksForNodesOfTheAdmittedPod(t *testing.T) {
	for name, c := range map[string]struct{ asks, admitted, want string }{
		"less": {"64", "1", ""},
		"more": {"1", "64", "it asks for cpu=64"},
	} {
		t.Run(name, func(t *testing.T) {
			client, set := testClient(theNamespace, node("a", nil))
			set.PrependReactor("create", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
				p := a.(kubetesting.CreateAction).GetObject().(*core.Pod).DeepCopy()
				if p.Labels[manifest.LabelRole] == "worker" {
					p.Spec.Containers[0].Resources.Requests = core.ResourceList{"cpu": resource.MustParse(c.admitted)}
				}
				return true, p, nil
			})
			j := kubetest.Job()
			j.Worker.Request = job.Resources{"cpu": c.asks}
			problems, err := client.Preflight(t.Context(), j)
			if err != nil || (problems != nil) != (c.want != "") || problems != nil &&
				!strings.Contains(problems.Error(), c.want) {
				t.Errorf("%v, %v", problems, err)
			}
		})
	}
}

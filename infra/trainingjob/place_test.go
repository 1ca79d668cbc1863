package trainingjob

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

func TestPlaced(t *testing.T) {
	on := &infra.Cluster{GPU: infra.GPU{NodeSelector: map[string]string{"pool": "gpu"}}}
	cheap := &infra.Nodes{NodeSelector: map[string]string{"spot": "true"},
		Tolerations: []job.Toleration{{Key: "spot", Operator: "Exists"}, {Key: "team", Operator: "Exists"}}}
	spot := &infra.Cluster{WorkersOn: func(pool string, gpus bool) *infra.Nodes {
		switch {
		case pool == "h200":
			return &infra.Nodes{NodeSelector: map[string]string{"pool": "h200"}}
		case pool != "" || gpus:
			return nil
		}
		return cheap
	}}
	jobsOnly := &infra.Cluster{GPU: on.GPU, Tolerations: []job.Toleration{{Key: "jobs", Operator: "Exists"}}}
	both := &infra.Cluster{GPU: on.GPU, WorkersOn: spot.WorkersOn}
	named := &infra.Cluster{GPU: on.GPU, WorkersOn: spot.WorkersOn}
	taintedGPUs := &infra.Cluster{GPU: infra.GPU{NodeSelector: on.GPU.NodeSelector,
		Tolerations: []job.Toleration{{Key: "gpus", Operator: "Exists"}}}}
	const plain = "--worker_resource_request=cpu=1,memory=1Gi"
	for _, test := range []struct {
		what           string
		flags          []string
		on             *infra.Cluster
		master, worker map[string]string // node selectors
	}{
		{"workers on GPUs", nil, on, nil, map[string]string{"pool": "gpu"}},
		{"no GPUs asked for", []string{plain}, on, nil, nil},
		{"as a limit", []string{plain, "--worker_resource_limit=cpu=1,memory=1Gi,gpu=1"}, on, nil,
			map[string]string{"pool": "gpu"}},
		{"a stack without GPUs", nil, &infra.Cluster{}, nil, nil},
		{"the job selects others", []string{"--node_selector=pool=mine,disk=ssd"}, on,
			map[string]string{"pool": "mine", "disk": "ssd"}, map[string]string{"pool": "mine", "disk": "ssd"}},
		{"the job's pods select others",
			[]string{`--cluster_spec_json={"worker_pod_spec":{"nodeSelector":{"pool":"mine"}}}`}, on,
			nil, map[string]string{"pool": "mine"}},
		{"the job's pods select more",
			[]string{
				`--cluster_spec_json={"worker_pod_spec":{"nodeSelector":{"disk":"ssd"}},"pod_spec":{"labels":{"a":"b"}}}`},
			on, nil, map[string]string{"disk": "ssd", "pool": "gpu"}},
		{"a pool is named", []string{plain}, named, nil, map[string]string{"pool": "h200"}},
		{"a pool is named, of GPUs", nil, named, nil, map[string]string{"pool": "h200"}},
		{"spot", []string{plain}, spot, nil, map[string]string{"spot": "true"}},
		{"spot, and the job tolerates more",
			[]string{plain,
				`--cluster_spec_json={"worker_pod_spec":{"tolerations":[{"key":"own","operator":"Exists"}]}}`},
			spot, nil, map[string]string{"spot": "true"}},
		{"nodes for jobs only", []string{plain}, jobsOnly, nil, nil},
		{"nodes for jobs only, and workers on GPUs", nil, jobsOnly, nil, map[string]string{"pool": "gpu"}},
		{"GPUs, and spot for others", nil, both, nil, map[string]string{"pool": "gpu"}},
		{"tainted nodes of GPUs", nil, taintedGPUs, nil, map[string]string{"pool": "gpu"}},
		{"spot, and GPUs for others", []string{plain}, both, nil, map[string]string{"spot": "true"}},
	} {
		t.Run(test.what, func(t *testing.T) {
			j := mnist(t, test.flags...)
			before := *j
			pool := ""
			if test.on == named {
				pool = "h200"
			}
			placed, err := Placed(j, test.on, pool)
			if err != nil {
				t.Fatal(err)
			}
			if j.ClusterSpecJSON != before.ClusterSpecJSON {
				t.Error("the job itself is changed")
			}
			s, err := manifest.Submit(placed)
			if err != nil {
				t.Fatal(err)
			}
			worker, err := manifest.Pod(placed, manifest.PodSpec{ID: pod.ID{Role: pod.Worker},
				Incarnation: 1}, meta.OwnerReference{})
			if err != nil {
				t.Fatal(err)
			}
			if master := s.Job.Spec.Template.Spec.NodeSelector; !maps.Equal(master, test.master) ||
				!maps.Equal(worker.Spec.NodeSelector, test.worker) {
				t.Errorf("the master selects %v, want %v; workers %v, want %v", master, test.master,
					worker.Spec.NodeSelector, test.worker)
			}
			tolerates := func(spec core.PodSpec, key string) bool {
				return slices.ContainsFunc(spec.Tolerations, func(t core.Toleration) bool {
					return t.Key == key && t.Operator == core.TolerationOpExists
				})
			}
			isSpot, own := test.worker["spot"] != "", strings.Contains(before.ClusterSpecJSON, "own")
			if tolerates(worker.Spec, "spot") != isSpot || tolerates(worker.Spec, "team") != isSpot ||
				tolerates(worker.Spec, "own") != own || tolerates(s.Job.Spec.Template.Spec, "spot") {
				t.Errorf("workers tolerate %v, the master %v", worker.Spec.Tolerations,
					s.Job.Spec.Template.Spec.Tolerations)
			}
			if gpus := test.on == taintedGPUs; tolerates(worker.Spec, "gpus") != gpus ||
				tolerates(s.Job.Spec.Template.Spec, "gpus") {
				t.Errorf("of tainted nodes with GPUs: workers tolerate %v, the master %v", worker.Spec.Tolerations,
					s.Job.Spec.Template.Spec.Tolerations)
			}
			if jobs := test.on == jobsOnly; tolerates(s.Job.Spec.Template.Spec, "jobs") != jobs ||
				tolerates(worker.Spec, "jobs") != (jobs && test.worker == nil) {
				t.Errorf("of nodes for jobs only: workers tolerate %v, the master %v", worker.Spec.Tolerations,
					s.Job.Spec.Template.Spec.Tolerations)
			}
		})
	}
	if j, err := Placed(&job.Job{ClusterSpecJSON: "["}, on, ""); err != nil || j.ClusterSpecJSON != "[" {
		t.Errorf("what cannot be read became %v, %v", j, err)
	}
	if _, err := Placed(&job.Job{}, spot, "h100"); err == nil || !strings.Contains(err.Error(), "pool h100") {
		t.Errorf("a pool that is not there: %v", err)
	}
}

// The image that a stack builds adds elasticdl to the image of a program, which is pulled by the
// job's own policy.
func TestBuiltImageOfAProgram(t *testing.T) {
	run := &job.Job{Type: job.Run, Image: "pytorch/pytorch:2.9.0", ImagePullPolicy: "IfNotPresent"}
	j, holes, err := (&Args{Job: run, Image: pulumi.String("built"), PullPolicy: "Never",
		Platform: &platform.Platform{Cluster: &infra.Cluster{}}, Identity: &infra.Identity{}}).described()
	if err != nil || j.Image != run.Image || j.AgentImage != imageHole || j.ImagePullPolicy != "IfNotPresent" ||
		len(holes) != 1 {
		t.Errorf("%+v, %v", j, holes)
	}
}

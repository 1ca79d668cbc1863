//go:build !e2e

package main

import (
	"slices"
	"strings"
	"testing"
)

// All problems of a stack's file are reported at once, by path, before any resource is requested.
func TestWrongSettings(t *testing.T) {
	for _, test := range []struct {
		name  string
		lacks []string       // programs that are missing
		wrong map[string]any // wrong settings by path; nil removes one
		want  []string       // beginnings of lines
	}{
		{"gke", []string{"gcloud", "elasticdl"}, map[string]any{
			"elasticdl:gke.workrPool":            map[string]any{},
			"elasticdl:gke.ranges.pods":          "10.4.0.0/33",
			"elasticdl:gke.authorizedNetworks":   []any{map[string]any{"cidr": "0.0.0.0/0"}},
			"elasticdl:gke.workerPool.gpus":      1,
			"elasticdl:gke.systemPool.minNodes":  5,
			"elasticdl:job.minWorkers":           9,
			"elasticdl:job.maxWorkers":           3,
			"elasticdl:platform.networkPolicy":   "yes",
			"elasticdl:job.worker.priority.clas": "low",
			"elasticdl:gke.filestore.capacityGb": 1000,
			"elasticdl:policy.allow":             []any{"unpined-image"},
			"gcp:project":                        nil,
		}, []string{
			"elasticdl:cloud: gke needs programs that are not on PATH: gcloud (https://",
			"elasticdl:image.command: elasticdl is not on PATH",
			"elasticdl:policy.allow[0]: unpined-image is no rule",
			"gcp:project: missing", "elasticdl:gke.workrPool: unknown field; did you mean workerPool?",
			"elasticdl:gke.authorizedNetworks[0].cidr: 0.0.0.0/0",
			"elasticdl:gke.ranges.pods: 10.4.0.0/33: expected a CIDR",
			"elasticdl:gke.systemPool.maxNodes: 2",
			"elasticdl:gke.workerPool.gpus: 1: GPUs are in gke.gpuPool or a pool",
			"elasticdl:gke.filestore.capacityGb: 1000",
			"elasticdl:platform.networkPolicy: \"yes\": expected true or false",
			"elasticdl:job.worker.priority.clas: unknown field", "elasticdl:job.minWorkers: 9: more than maxWorkers=3",
		}},
		{"minikube", []string{"minikube"}, map[string]any{"elasticdl:minikube.cpus": 0,
			"elasticdl:platform.namespace": "kube-system"},
			[]string{
				"elasticdl:cloud: minikube needs programs that are not on PATH: minikube (https://",
				"elasticdl:minikube.cpus: 0", "elasticdl:platform.namespace: kube-system"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.name)
			for _, program := range test.lacks {
				if err := e.cloud.Uninstall(program); err != nil {
					t.Fatal(err)
				}
			}
			for path, value := range test.wrong {
				e.set(path, value)
			}
			did, err := e.tryPreview()
			if err == nil {
				t.Fatalf("nothing is wrong with that: %s", did)
			}
			var lines []string
			for line := range strings.Lines(err.Error()) {
				lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "* "))
			}
			for _, want := range test.want {
				if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, want) }) {
					t.Errorf("%q is missing", want)
				}
			}
			if t.Failed() {
				t.Log(err)
			}
			e.expect("with wrong settings", did, "create pulumi:pulumi:Stack elasticdl-"+test.name)
		})
	}
}

// A secret would be stored in plain text in the ConfigMap that the master reads, and in the stack's
// state: it is refused, and not shown.
func TestSecretSetting(t *testing.T) {
	t.Parallel()
	e := start(t, "minikube")
	e.pulumi("config", "set", "--secret", "--path", "job.envs.API_KEY", "hunter2")
	did, err := e.tryPreview()
	if err == nil || !strings.Contains(err.Error(), "elasticdl:job: contains a secret") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret setting: %s\n%v", did, err)
	}
}

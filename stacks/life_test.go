//go:build !e2e

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"

	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/test/provider"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Names of a stack's job in the engine and in Kubernetes.
const (
	jobSpec    = "kubernetes:core/v1:ConfigMap test-mnist"
	jobMaster  = "kubernetes:batch/v1:Job test-mnist-master"
	specObject = "v1/ConfigMap elasticdl/elasticdl-test-mnist"
	stateOf    = "v1/ConfigMap elasticdl/elasticdl-test-mnist-state"
	jobObject  = "batch/v1/Job elasticdl/elasticdl-test-mnist-master"
)

// remembers is the step of the component that records the kinds of nodes, so that previews can warn
// of drained ones.
const remembers = "update elasticdl:platform:Platform platform"

// Each shipped stack works from its first `pulumi up` to its end.
func TestLife(t *testing.T) {
	gpus := map[string]any{"elasticdl:gke.gpuPool": map[string]any{"machineType": "n1-standard-4",
		"accelerator": "nvidia-tesla-t4", "gpus": 1, "maxNodes": 2, "spot": true}}
	otherGPUs := map[string]any{"elasticdl:gke.gpuPool.accelerator": "nvidia-l4",
		"elasticdl:gke.gpuPool.machineType": "g2-standard-4"}
	replacesGPUs := []string{"replace gcp:container/nodePool:NodePool gpu", remembers}
	for _, test := range []struct {
		name string
		// data, checkpoints and models are on a volume, as in the examples, and not in a bucket
		files bool
		// settings that the file has as a comment
		with map[string]any
		// settings of other hardware
		change map[string]any
		// steps of that change
		want []string
		// what `pulumi destroy` keeps unless protection is turned off
		keeps []string
	}{
		{"gke", false, gpus, otherGPUs, replacesGPUs, []string{"data", "registry"}},
		{"gke", true, gpus, otherGPUs, replacesGPUs, []string{"filestore", "registry"}},
		{"eks", false, nil,
			map[string]any{"elasticdl:eks.pools": []any{workers(change{"instanceTypes": []any{"m6i.xlarge"}})}},
			[]string{"update kubernetes:karpenter.sh/v1:NodePool pool-workers " +
				"spec.limits.cpu spec.template.spec.requirements[0].values[0] spec.template.spec.requirements[0].values[1]",
				remembers}, []string{"data", "code", "images"}},
		{"minikube", true, nil, nil, nil, nil},
		{"existing", true, nil, nil, nil, []string{"claim"}},
	} {
		name := test.name
		if onVolume := test.files && test.name == "gke"; onVolume {
			name += " with files"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.name)
			e.cloud.AccountWithoutGPUs = true // a new AWS account
			if name == test.name {
				e.golden(e.up())
			} else {
				e.withFiles()
				e.up()
			}
			e.unchanged("nothing has changed")
			if name == "minikube" {
				e.set("elasticdl:job.imagePullPolicy", nil)
				e.unchanged("an image that is loaded into minikube is never pulled, whatever the file says")
			}
			e.keepsSecrets()
			e.usesItsProvider()
			e.scales()
			e.drifts()
			e.trainsLonger()
			switch name {
			case "gke":
				e.replacesNoStorage("data", map[string]any{"elasticdl:gke.bucket.location": "us-east1"})
			case "gke with files":
				e.replacesNoStorage("filestore",
					map[string]any{"elasticdl:gke.filestore.tier": "BASIC_SSD",
						"elasticdl:gke.filestore.capacityGb": 2560})
			}
			if test.with != nil {
				for path, value := range test.with {
					e.set(path, value)
				}
				e.up()
			}
			if test.change != nil {
				for path, value := range test.change {
					e.set(path, value)
				}
				e.expect("other hardware", e.up(), test.want...)
			}
			if len(test.keeps) > 0 {
				e.protects(test.keeps...)
				e.set("elasticdl:protectStorage", false)
				e.up()
			}
			if name == "gke with files" {
				e.replacesStorage()
			}
			e.destroy()
			e.cleared()
		})
	}
}

// golden compares the resources that a stack requests with testdata/<stack>.txt.
func (e *engine) golden(asked steps) {
	e.Helper()
	var kinds []string
	for _, step := range asked {
		what, ok := strings.CutPrefix(step, "create ")
		if !ok {
			e.Errorf("there is nothing yet, and it would %s", step)
		}
		if !strings.HasPrefix(what, "pulumi:providers:") || !strings.Contains(what, " default") {
			kinds = append(kinds, what)
		}
	}
	slices.Sort(kinds)
	got := fmt.Sprintf("%d resources\n%s\n", len(kinds), strings.Join(kinds, "\n"))
	file := filepath.Join("stacks", "testdata", e.stack.Name()+".txt")
	if *graph.Update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			e.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		e.Fatal(err)
	}
	if got != string(want) {
		e.Errorf("%s is not what the stack asks for now; see git diff after go test ./stacks -update:\n%s", file, got)
	}
	e.Logf("%s: %d resources", e.stack.Name(), len(kinds))
}

// keepsSecrets checks that no credential is in plain text in the state, or in the output of `pulumi
// stack output`.
func (e *engine) keepsSecrets() {
	e.Helper()
	state := string(e.state())
	for _, clear := range []string{provider.Key, "BEGIN PRIVATE", "client-key", "\"token\"", "token:"} {
		if strings.Contains(state, clear) {
			e.Errorf("the state has %q in clear: …%s…", clear, around(state, clear))
		}
	}
	shown, opened := e.outputs(), e.outputs("--show-secrets")
	const secret = "[secret]"
	kubeconfig, _ := opened["kubeconfig"].(string)
	if own := e.stack.Name() != "existing"; own && (shown["kubeconfig"] != secret || kubeconfig == "") ||
		!own && kubeconfig != "" {
		e.Errorf("the output kubeconfig is no secret, or is the user's own: %v", shown["kubeconfig"])
	}
	switch e.stack.Name() {
	case "gke":
		if !strings.Contains(kubeconfig, "command: gke-gcloud-auth-plugin") ||
			strings.Contains(kubeconfig, "client-key") {
			e.Errorf("credentials of\n%s", kubeconfig)
		}
	case "eks":
		if !strings.Contains(kubeconfig, "get-token") ||
			!strings.Contains(kubeconfig, provider.AmazonRegion) || strings.Contains(kubeconfig, "client-key") {
			e.Errorf("credentials of\n%s", kubeconfig)
		}
	}
	storage := "bucket"
	if _, ok := shown["claim"]; ok {
		storage = "claim"
	}
	for _, name := range []string{"namespace", storage, "master", "dashboard", "logs"} {
		if v, _ := shown[name].(string); v == "" || v == secret {
			e.Errorf("output %s: %v", name, shown[name])
		}
	}
	for name, v := range shown {
		if text, ok := v.(string); ok && strings.Contains(text, provider.Key) {
			e.Errorf("output %s has a key in clear", name)
		}
	}
}

// outputs returns the outputs of the stack, as the CLI shows them.
func (e *engine) outputs(flags ...string) (outputs map[string]any) {
	e.Helper()
	if err := json.Unmarshal(
		[]byte(e.pulumi(append([]string{"stack", "output", "--json"}, flags...)...)), &outputs); err != nil {
		e.Fatal(err)
	}
	return outputs
}

func around(text, part string) string {
	i := strings.Index(text, part)
	return text[max(0, i-200):min(len(text), i+200)]
}

// usesItsProvider checks that all objects of Kubernetes belong to the stack's own provider, which
// knows the identity of the cluster, and are deleted with a cluster of the stack.
func (e *engine) usesItsProvider() {
	e.Helper()
	n := 0
	for _, r := range e.resources() {
		if strings.HasPrefix(string(r.Type), "kubernetes:") {
			if n++; !strings.Contains(r.Provider, "pulumi:providers:kubernetes::kubernetes::") {
				e.Errorf("%s is asked of %s", r.URN, r.Provider)
			}
			if existing := e.stack.Name() == "existing"; existing == (r.DeletedWith != "") {
				e.Errorf("%s is deleted with %q", r.URN, r.DeletedWith)
			}
		}
		if r.Type == "pulumi:providers:kubernetes" {
			if id, _ := r.Inputs["clusterIdentifier"].(string); id == "" {
				e.Errorf("the provider does not know which cluster it is: %v", r.Inputs["clusterIdentifier"])
			}
			if r.Inputs["deleteUnreachable"] != nil {
				e.Error("a network that is down would make Pulumi forget what there is")
			}
		}
	}
	if n == 0 {
		e.Error("nothing is asked of Kubernetes")
	}
}

// scales checks that another number of workers updates the job's spec and nothing else, also if
// another command, such as `elasticdl scale`, has written there since.
func (e *engine) scales() {
	e.Helper()
	j := e.job()
	workers := j.NumWorkers + 1
	j.NumWorkers += 7
	text, err := json.Marshal(j)
	if err != nil {
		e.Fatal(err)
	}
	e.change(specObject, func(is provider.Props) { is["data"].(provider.Props)[manifest.KeyJob] = string(text) })
	e.set("elasticdl:job.numWorkers", workers)
	if j.MaxWorkers > 0 && j.MaxWorkers < workers {
		e.set("elasticdl:job.maxWorkers", workers)
	}
	want := "update " + jobSpec + " data." + manifest.KeyNumWorkers + " data[\"" + manifest.KeyJob + "\"]"
	e.expect("another number of workers", e.up(), want)
	if now := e.job().NumWorkers; now != workers {
		e.Errorf("%d workers are wanted, expected %d", now, workers)
	}
}

// drifts checks that changes by clouds, masters and time are not reverted, and that a job that has
// ended does not start again.
func (e *engine) drifts() {
	e.Helper()
	e.change(stateOf, func(is provider.Props) { is["data"] = provider.Props{"journal": "H4sI"} })
	e.ends()
	before := len(e.cloud.Calls())
	e.unchangedAfterRefresh("what a job has done is not the stack's")
	if now := e.cloud.Calls()[before:]; len(now) > 0 {
		e.Errorf("after a refresh: %v", now)
	}
	if is := e.object(jobObject); at(is, "status", "succeeded") != 1.0 {
		e.Errorf("the job that had ended is now %v", is["status"])
	}
}

// trainsLonger checks that a job with other training settings replaces the first.
func (e *engine) trainsLonger() {
	e.Helper()
	e.set("elasticdl:job.numEpochs", e.job().NumEpochs+1)
	want := []string{"replace " + jobMaster, "update " + jobSpec + " data[\"" + manifest.KeyJob + "\"]"}
	e.expect("more epochs", e.up(), want...)
	if is := e.object(jobObject); at(is, "status", "succeeded") != nil {
		e.Errorf("the new job has %v", is["status"])
	}
}

// replacesNoStorage checks that a preview refuses, by the name of the resource, a change that needs
// another file system.
func (e *engine) replacesNoStorage(name string, other map[string]any) {
	e.Helper()
	shipped, err := os.ReadFile(e.file)
	if err != nil {
		e.Fatal(err)
	}
	for path, value := range other {
		e.set(path, value)
	}
	if did, err := e.tryPreview(); err == nil ||
		!strings.Contains(err.Error(), "unable to replace resource") || !strings.Contains(err.Error(), "::"+name) {
		e.Errorf("with %v:\n%s\n%v", other, did, err)
	}
	if err := os.WriteFile(e.file, shipped, 0o600); err != nil {
		e.Fatal(err)
	}
}

// replacesStorage checks that another file system, when allowed, comes with another volume and
// claim, when no job uses the old ones; and that the data is copied again.
func (e *engine) replacesStorage() {
	e.Helper()
	e.ends()
	e.set("elasticdl:gke.filestore.tier", "BASIC_SSD")
	e.set("elasticdl:gke.filestore.capacityGb", 2560)
	e.expect("another file system", e.up(), "replace gcp:filestore/instance:Instance filestore",
		"replace kubernetes:core/v1:PersistentVolume volume",
		"replace kubernetes:core/v1:PersistentVolumeClaim claim", "replace command:local:Command dataset")
	e.unchangedAfterRefresh("the job has another volume")
}

// ends simulates the end of the job's master.
func (e *engine) ends() {
	e.Helper()
	e.change(jobObject, func(is provider.Props) {
		is["status"] = provider.Props{"succeeded": 1, "completionTime": "2026-11-21T10:00:00Z",
			"conditions": []any{provider.Props{"type": "Complete", "status": "True"}}}
	})
}

// protects checks that resources with data are not destroyed by default. The preview of destroy
// fails at them; or they are kept, and the next up uses them.
func (e *engine) protects(keeps ...string) {
	e.Helper()
	there := e.cloud.Left()
	_, err := e.stack.PreviewDestroy(e.Context(), optdestroy.SuppressProgress())
	for _, name := range keeps {
		if err == nil || !strings.Contains(err.Error(), "::"+name+"\" cannot be deleted") {
			e.Errorf("a preview of destroy has no word on %s: %v", name, err)
		}
	}
	if now := e.cloud.Left(); !slices.Equal(now, there) {
		e.Errorf("a preview of destroy left\n%s", steps(now))
	}
	e.pulumi("destroy", "--exclude-protected", "--yes", "--skip-preview")
	left := e.cloud.Left()
	for _, name := range keeps {
		if !slices.ContainsFunc(left, func(l string) bool {
			return strings.HasSuffix(l, " "+name) || strings.HasSuffix(l, "-"+name)
		}) {
			e.Errorf("%s is deleted; there are\n%s", name, steps(left))
		}
	}
	if slices.ContainsFunc(left, func(l string) bool { return strings.HasSuffix(l, ":Cluster cluster") }) {
		e.Errorf("the cluster stays:\n%s", steps(left))
	}
	calls := len(e.cloud.Calls())
	e.up()
	for _, c := range e.cloud.Calls()[calls:] {
		if c.Op == "create" && slices.Contains(left, c.Type+" "+c.Name) {
			e.Errorf("it was kept, and yet: %s", c)
		}
	}
	if now := e.cloud.Left(); !slices.Equal(now, there) {
		e.Errorf("there were\n%s\nand there are\n%s", steps(there), steps(now))
	}
}

// job returns the job in the spec that the master reads.
func (e *engine) job() *job.Job {
	e.Helper()
	j := new(job.Job)
	if err := json.Unmarshal([]byte(at(e.object(specObject), "data", manifest.KeyJob).(string)), j); err != nil {
		e.Fatal(err)
	}
	return j
}

func (e *engine) object(id string) provider.Props {
	e.Helper()
	is, err := e.cloud.Kubernetes.Object(id)
	if err != nil {
		e.Fatal(err)
	}
	return is
}

func (e *engine) change(id string, change func(is provider.Props)) {
	e.Helper()
	if err := e.cloud.Kubernetes.Change(id, change); err != nil {
		e.Fatal(err)
	}
}

// at returns the value under a path of keys, or nil.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

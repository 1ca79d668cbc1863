package trainingjob

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const (
	kindJob       = "kubernetes:batch/v1:Job"
	kindConfigMap = "kubernetes:core/v1:ConfigMap"
	kindService   = "kubernetes:core/v1:Service"
	kindAccount   = "kubernetes:core/v1:ServiceAccount"
	fakeImage     = "us-central1-docker.pkg.dev/p/elasticdl/mnist:0123@sha256:1111111111111111111111111111111111111111111111111111111111111111"
)

// mnist returns the tutorials' job on GPUs.
func mnist(t testing.TB, more ...string) *job.Job {
	t.Helper()
	c, err := flags.Job(job.Train, append(strings.Fields(
		`--job_name=test-mnist --namespace=training --image_name=elasticdl:mnist
		--model_def=mnist.mnist_functional_api.custom_model --training_data=/data/mnist/train --validation_data=/data/mnist/test
		--num_ps_pods=2 --num_workers=4 --worker_resource_request=cpu=2,memory=4Gi,gpu=1 --volume=claim_name=fileserver-claim,mount_path=/data
		--master_pod_priority=high --ps_pod_priority=high --worker_pod_priority=0.5`), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c.Job
}

type provider struct{ pulumi.ProviderResourceState }

// built simulates the resource that builds the image, and the cloud's half of the job's identity.
type built struct {
	pulumi.CustomResourceState
	Stdout pulumi.StringOutput `pulumi:"stdout"`
	Email  pulumi.StringOutput `pulumi:"email"`
}

// record returns the resources of a stack with a job. The image and the identity are unknown in a
// preview.
func record(t *testing.T, preview bool, change func(*Args)) []graph.Resource {
	t.Helper()
	all, err := try(preview, mnist(t), change)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func try(preview bool, j *job.Job, change func(*Args)) ([]graph.Resource, error) {
	outputs := func(r graph.Resource) resource.PropertyMap {
		if r.Type != "test:index:Built" || preview {
			return nil
		}
		return resource.PropertyMap{"stdout": resource.NewProperty(fakeImage),
			"email": resource.NewProperty("job@p.iam.gserviceaccount.com")}
	}
	return graph.Record(graph.Cloud{Preview: preview, Outputs: outputs}, func(ctx *pulumi.Context) error {
		var (
			p                  provider
			b                  built
			cluster, namespace pulumi.CustomResourceState
		)
		for _, r := range []struct {
			kind, name string
			resource   pulumi.Resource
		}{{"pulumi:providers:kubernetes", "cluster", &p}, {"test:index:Built", "image", &b},
			{"test:index:Cluster", "cluster", &cluster}, {"test:index:Namespace", "namespace", &namespace}} {
			if err := ctx.RegisterResource(r.kind, r.name, pulumi.Map{},
				r.resource.(pulumi.CustomResource)); err != nil {
				return err
			}
		}
		args := &Args{
			Job: j, Image: b.Stdout, Platform: &platform.Platform{Cluster: &infra.Cluster{
				GPU: infra.GPU{NodeSelector: map[string]string{"elasticdl/pool": "gpu"}}}},
			Identity: &infra.Identity{Annotations: map[string]pulumi.StringOutput{
				"iam.gke.io/gcp-service-account": b.Email}},
		}
		change(args)
		made, err := New(ctx, "test-mnist", args, pulumi.Provider(&p),
			pulumi.DependsOn([]pulumi.Resource{&namespace}), pulumi.DeletedWith(&cluster))
		if err != nil {
			return err
		}
		ctx.Export("logs", made.Logs)
		return nil
	})
}

func as(*Args) {}

func TestGolden(t *testing.T) {
	graph.Golden(t, "preview", record(t, true, as))
	graph.Golden(t, "up", record(t, false, as))
	graph.Golden(t, "plain", record(t, false, func(a *Args) {
		*a = Args{Platform: &platform.Platform{Cluster: &infra.Cluster{}}, Job: mnist(t, "--service_account=elasticdl",
			"--worker_resource_request=cpu=1,memory=1Gi")}
	}))
}

// Laws 2 and 4, and K05, K06: names are fixed, objects use the stack's provider, they are created
// in the right order, and none has an owner.
func TestOptions(t *testing.T) {
	for _, preview := range []bool{true, false} {
		all := record(t, preview, as)
		var others []string
		for _, r := range all {
			o, isObject := r.Options, strings.HasPrefix(r.Type, "kubernetes:")
			if !isObject {
				continue
			}
			if o.Parent != Type+" test-mnist" || o.Provider != "pulumi:providers:kubernetes cluster" ||
				o.DeletedWith != "test:index:Cluster cluster" ||
				!slices.Contains(o.DependsOn, "test:index:Namespace namespace") {
				t.Errorf("%s %s: %+v", r.Type, r.Name, o)
			}
			meta := r.Inputs["metadata"].ObjectValue()
			if !strings.HasPrefix(meta["name"].StringValue(), "elasticdl-test-mnist") ||
				meta["namespace"].StringValue() != "training" || meta.HasValue("ownerReferences") {
				t.Errorf("%s %s: %v", r.Type, r.Name, meta)
			}
			if waits := annotation(r, skipAwait) != "true"; waits == (r.Type == kindJob || r.Type == kindService) {
				t.Errorf("%s %s: is waited for: %v", r.Type, r.Name, waits)
			}
			if r.Type != kindJob {
				others = append(others, r.Type+" "+r.Name)
			}
		}
		// 2 ConfigMaps, a Secret, 3 for permissions, 3 Services, a PodDisruptionBudget, a
		// NetworkPolicy
		if len(others) != 11 {
			t.Errorf("%d objects in addition to the Job: %v", len(others), others)
		}
		master := graph.Find(all, kindJob, "test-mnist-master")
		for _, other := range others {
			if !slices.Contains(master.Options.DependsOn, other) {
				t.Errorf("the Job does not go before %s", other)
			}
		}
		if !master.Options.DeleteBeforeReplace || annotation(*master, deletionPropagation) != "background" {
			t.Errorf("how the Job is replaced: %+v", master)
		}
		for _, written := range []*graph.Resource{graph.Find(all, kindConfigMap, "test-mnist-state"),
			graph.Find(all, "kubernetes:core/v1:Secret", "test-mnist-identity")} {
			if written.Inputs.HasValue("data") || !slices.Contains(written.Options.IgnoreChanges, "data") {
				t.Errorf("its data is the master's: %+v", written)
			}
		}
		if spec := graph.Find(all, kindConfigMap, "test-mnist"); annotation(*spec, patchForce) != "true" {
			t.Errorf("the spec, which scale writes, too: %+v", spec)
		}
	}
}

func annotation(r graph.Resource, key string) string {
	all := r.Inputs["metadata"].ObjectValue()["annotations"]
	if !all.IsObject() || !all.ObjectValue()[resource.PropertyKey(key)].IsString() {
		return ""
	}
	return all.ObjectValue()[resource.PropertyKey(key)].StringValue()
}

// Law 1, and K01: a change affects the right inputs of the right resources.
func TestWhatAChangeChanges(t *testing.T) {
	for _, test := range []struct {
		what   string
		change func(*Args)
		want   []string
	}{
		{"nothing", as, nil},
		{"the number of workers", func(a *Args) { a.Job.NumWorkers = 8 }, []string{"test-mnist data"}},
		{"whether it waits", func(a *Args) { a.Job.Suspend = true }, []string{"test-mnist-master spec.suspend"}},
		{"the image", func(a *Args) {
			a.Image = pulumi.String("other:1")
		}, []string{"test-mnist data", "test-mnist-master spec.template"}},
		{"the image, but not the master's", func(a *Args) {
			a.Job.Master.Image, a.Image = "master:1", pulumi.String("other:1")
		}, []string{"test-mnist data", "test-mnist-master spec.template"}},
		{"how it is trained", func(a *Args) {
			a.Job.NumEpochs = 3
		}, []string{"test-mnist data", "test-mnist-master spec.template"}},
		{"where GPUs are", func(a *Args) {
			a.Platform.Cluster.GPU.NodeSelector = nil
		}, []string{"test-mnist data", "test-mnist-master spec.template"}},
		{"the identity", func(a *Args) {
			a.Identity.Annotations = map[string]pulumi.StringOutput{
				"iam.gke.io/gcp-service-account": pulumi.String("b").ToStringOutput()}
		}, []string{"test-mnist metadata"}},
	} {
		t.Run(test.what, func(t *testing.T) {
			if got := changed(record(t, false, as), record(t, false, test.change)); !slices.Equal(got, test.want) {
				t.Errorf("changes %q, want %q", got, test.want)
			}
		})
	}
	image := func(master, all string) []graph.Resource {
		return record(t, false, func(a *Args) { a.Job.Master.Image, a.Image = master, pulumi.String(all) })
	}
	if got := changed(image("m:1", "a:1"), image("m:1", "a:2")); !slices.Equal(got,
		[]string{"test-mnist data", "test-mnist-master spec.template"}) {
		t.Errorf("the servers' and workers' image changes %q", got)
	}
}

func changed(before, after []graph.Resource) []string {
	var found []string
	for i, r := range before {
		for key, value := range r.Inputs {
			other := after[i].Inputs[key]
			if reflect.DeepEqual(value, other) {
				continue
			}
			if key == "spec" {
				for part := range value.ObjectValue() {
					if !reflect.DeepEqual(value.ObjectValue()[part], other.ObjectValue()[part]) {
						found = append(found, r.Name+" spec."+string(part))
					}
				}
				continue
			}
			found = append(found, r.Name+" "+string(key))
		}
	}
	slices.Sort(found)
	return found
}

// All problems are reported before any resource is requested.
func TestRefuses(t *testing.T) {
	j := mnist(t, "--ttl=1h")
	j.NumWorkers, j.ModelDef = 0, ""
	all, err := try(false, j, as)
	if err == nil || graph.Find(all, Type, "test-mnist") != nil {
		t.Fatalf("%v, with %d resources", err, len(all))
	}
	for _, want := range []string{"job test-mnist: ", "job.ttl=1h0m0s: ", "--num_workers=0: ",
		"--model_def is missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q:\n%v", want, err)
		}
	}
}

// A user who does not administer the cluster can bind a Role only when it is there: the API server
// compares its rights with those of the user.
func TestRoleBeforeBinding(t *testing.T) {
	const kinds = "kubernetes:rbac.authorization.k8s.io/v1:"
	binding := graph.Find(record(t, false, as), kinds+"RoleBinding", "test-mnist")
	if !slices.Contains(binding.Options.DependsOn, kinds+"Role test-mnist") {
		t.Errorf("the binding is made after %v only", binding.Options.DependsOn)
	}
}

// The job reads from the bucket of the account, which the settings do not know.
func TestBucketOfAccount(t *testing.T) {
	const assumed, real = "elasticdl-x-data-000000000000", "elasticdl-x-data-123456789012"
	for _, preview := range []bool{true, false} {
		all := record(t, preview, func(a *Args) {
			a.Image = nil // so that a preview knows all
			a.Platform.Cluster.Bucket = &infra.Bucket{Store: settings.Store{Scheme: "s3", Name: real}, Assumed: assumed}
			a.Job.TrainingData = "s3://" + assumed + "/mnist/train?region=us-west-2"
			a.Job.CheckpointDir, a.Job.Envs = "s3://"+assumed+"/c", map[string]string{"D": "s3://" + assumed + "/d"}
			a.Job.CheckpointSteps = 10
		})
		text := fmt.Sprint(graph.Find(all, kindConfigMap, "test-mnist").Inputs)
		for _, want := range []string{"s3://" + real + "/mnist/train?region=us-west-2", "s3://" + real + "/c",
			"s3://" + real + "/d"} {
			if !strings.Contains(text, want) || strings.Contains(text, assumed) {
				t.Errorf("expected %s:\n%s", want, text)
			}
		}
	}
}

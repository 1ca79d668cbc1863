package platform

import (
	"maps"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const (
	cloudCluster = "test:cloud:Cluster"
	cloudNodes   = "test:cloud:Nodes"
	providerType = "pulumi:providers:kubernetes"
)

// clusters has changes that make a cluster like that of each cloud.
var clusters = map[string]func(*infra.Cluster, pulumi.StringInput){
	settings.CloudGKE: func(c *infra.Cluster, address pulumi.StringInput) {
		c.NetPolicies = true
		c.Volume = &infra.Volume{
			Claim: "fileserver-claim", CapacityGB: 1024, Holes: map[string]pulumi.StringInput{"{address}": address},
			Source: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
				Driver: "filestore.csi.storage.gke.io", VolumeHandle: "modeInstance/us-central1-c/files/data",
				VolumeAttributes: map[string]string{"ip": "{address}", "volume": "data"},
			}},
		}
		c.GPU.NodeSelector = map[string]string{"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}
	},
	settings.CloudEKS: func(c *infra.Cluster, address pulumi.StringInput) {
		c.NetPolicies = true
		c.Volume = &infra.Volume{
			Claim: "efs-claim", CapacityGB: 1024, Holes: map[string]pulumi.StringInput{"{file-system}": address},
			Source: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: efsDriver,
				VolumeHandle: "{file-system}::fsap-1"}},
		}
		c.GPU = infra.GPU{NodeSelector: map[string]string{"nvidia.com/gpu.present": "true"}, DevicePlugin: true}
	},
	settings.CloudMinikube: func(c *infra.Cluster, _ pulumi.StringInput) {
		c.Context = "elasticdl-test"
		c.Volume = &infra.Volume{Claim: "data-claim", CapacityGB: 50,
			Source: core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: "/data"}}}
	},
}

// onDemand is a cluster with a claim for which it makes the volume, and that is reached by the
// kubeconfig of the machine.
func onDemand(c *infra.Cluster) {
	c.Kubeconfig, c.Context, c.Adopted, c.Resource = pulumi.StringOutput{}, "mine", true, nil
	c.Volume = &infra.Volume{Claim: "data", CapacityGB: 10,
		OnDemand: &infra.OnDemand{StorageClass: "nfs", AccessMode: core.ReadWriteMany, Protect: true}}
}

func configured(cloud string) *settings.Settings {
	s := &settings.Settings{Project: "elasticdl", Stack: "test", Cloud: cloud,
		Platform: settings.Platform{Namespace: "research"}}
	switch cloud {
	case settings.CloudGKE:
		s.GKE = &settings.GKE{}
		s.Platform.PriorityClasses = map[string]int32{"low": 500, "nightly": -10}
		s.Platform.NetworkPolicy = true
	case settings.CloudEKS:
		s.EKS = &settings.EKS{EFS: &settings.EFS{}}
		s.Platform.Quota = map[string]string{"requests.cpu": "64", "limits.memory": "256Gi",
			"requests.nvidia.com/gpu": "8"}
		s.Platform.NetworkPolicy, s.Platform.StorageClass = true, "shared"
	default:
		s.Minikube = &settings.Minikube{}
	}
	return s
}

// record returns the resources that New requests on a cluster with changes.
func record(t *testing.T, s *settings.Settings, preview bool,
	changes ...func(*infra.Cluster)) (all []graph.Resource, p *Platform, err error) {
	t.Helper()
	cloud := graph.Cloud{Preview: preview, Outputs: func(r graph.Resource) resource.PropertyMap {
		if r.Type != cloudCluster || preview {
			return nil
		}
		return resource.PropertyMap{"address": resource.NewProperty("10.0.0.2"),
			"kubeconfig": resource.NewProperty("apiVersion: v1")}
	}}
	all, err = graph.Record(cloud, func(ctx *pulumi.Context) error {
		var made struct {
			pulumi.CustomResourceState
			Address    pulumi.StringOutput `pulumi:"address"`
			Kubeconfig pulumi.StringOutput `pulumi:"kubeconfig"`
		}
		var nodes pulumi.CustomResourceState
		if err := ctx.RegisterResource(cloudCluster, "cluster", pulumi.Map{}, &made); err != nil {
			return err
		}
		if err := ctx.RegisterResource(cloudNodes, "nodes", pulumi.Map{}, &nodes); err != nil {
			return err
		}
		c := &infra.Cluster{Settings: s, Name: pulumi.String("c").ToStringOutput(), ID: pulumi.String("the-one"),
			Kubeconfig: made.Kubeconfig, Resource: &made, Ready: []pulumi.Resource{&made, &nodes}}
		clusters[s.Cloud](c, made.Address)
		for _, change := range changes {
			change(c)
		}
		args := &Args{Cluster: c, Alone: true}
		if s.Job != nil {
			args.Jobs = append(args.Jobs, s.Job)
		}
		p, err = New(ctx, "platform", args)
		return err
	})
	return all, p, err
}

func TestGolden(t *testing.T) {
	for _, cloud := range []string{settings.CloudGKE, settings.CloudEKS, settings.CloudMinikube} {
		for name, preview := range map[string]bool{cloud + "-preview": true, cloud + "-up": false} {
			t.Run(name, func(t *testing.T) {
				all, p, err := record(t, configured(cloud), preview)
				if err != nil {
					t.Fatal(err)
				}
				if len(p.Ready) != len(within(all)) || p.Namespace != "research" || p.Claim == "" || p.Provider == nil {
					t.Errorf("%+v is not all of %d", p, len(within(all)))
				}
				graph.Golden(t, name, all)
			})
		}
	}
}

// within returns the objects of Kubernetes.
func within(all []graph.Resource) []graph.Resource {
	return slices.DeleteFunc(slices.Clone(all), func(r graph.Resource) bool {
		return !strings.HasPrefix(r.Type, "kubernetes:")
	})
}

// K05, K08, K09, K10, K12: the laws that hold of all objects.
func TestLaws(t *testing.T) {
	for _, cloud := range []string{settings.CloudGKE, settings.CloudEKS, settings.CloudMinikube} {
		all, _, err := record(t, configured(cloud), true)
		if err != nil {
			t.Fatal(err)
		}
		provider := graph.Find(all, providerType, "kubernetes")
		for key, want := range map[string]resource.PropertyValue{
			"clusterIdentifier":      resource.NewProperty("the-one"),
			"enableConfigMapMutable": resource.NewProperty(true)} {
			if got := provider.Inputs[resource.PropertyKey(key)]; !got.DeepEquals(want) {
				t.Errorf("%s: provider has %s %v", cloud, key, got)
			}
		}
		if _, ok := provider.Inputs["deleteUnreachable"]; ok {
			t.Errorf("%s: a network that is down makes Pulumi forget what there is", cloud)
		}
		if o := provider.Options; !slices.Contains(o.DependsOn, cloudNodes+" nodes") ||
			!slices.Contains(o.DependsOn, cloudCluster+" cluster") {
			t.Errorf("%s: provider depends on %v", cloud, o.DependsOn)
		}
		for _, r := range within(all) {
			o := r.Options
			if o.Provider != providerType+" kubernetes" || o.DeletedWith != cloudCluster+" cluster" ||
				o.Parent != "elasticdl:platform:Platform platform" {
				t.Errorf("%s: %s has %+v", cloud, r.Name, o)
			}
			if r.Name != "namespace" && !slices.Contains(o.DependsOn, "kubernetes:core/v1:Namespace namespace") {
				t.Errorf("%s: %s does not wait for the namespace, nor is it deleted before", cloud, r.Name)
			}
			if name := at(r, "metadata", "name"); !name.IsString() || name.StringValue() == "" {
				t.Errorf("%s: %s is named %v", cloud, r.Name, name)
			}
			if in := at(r, "metadata", "namespace"); in.IsString() && in.StringValue() != "research" &&
				r.Name != "device-plugin" {
				t.Errorf("%s: %s is in %v", cloud, r.Name, in)
			}
			if kind := at(r, "kind").StringValue(); slices.Contains([]string{"Service", "Ingress",
				"Secret", "ClusterRole", "ClusterRoleBinding"}, kind) {
				t.Errorf("%s: %s is a %s", cloud, r.Name, kind)
			}
		}
	}
}

// at returns the property at a path of a resource.
func at(r graph.Resource, path ...resource.PropertyKey) resource.PropertyValue {
	v := resource.NewProperty(r.Inputs)
	for _, key := range path {
		if !v.IsObject() {
			return resource.PropertyValue{}
		}
		v = v.ObjectValue()[key]
	}
	return v
}

// K10: a user who knows that the cluster is deleted reports it for one command, which the provider
// reads from its environment. It is not stored for the next ones.
func TestDeleteUnreachable(t *testing.T) {
	t.Setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
	all, _, err := record(t, configured(settings.CloudMinikube), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := graph.Find(all, providerType, "kubernetes").Inputs["deleteUnreachable"]; got.HasValue() {
		t.Errorf("deleteUnreachable is %v", got)
	}
}

// K03: the API refuses changes of a PriorityClass, and a second one of the same name.
func TestPriorityClasses(t *testing.T) {
	all, _, err := record(t, configured(settings.CloudGKE), true)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, r := range within(all) {
		if at(r, "kind").StringValue() != "PriorityClass" {
			continue
		}
		values[at(r, "metadata", "name").StringValue()] = at(r, "value").NumberValue()
		if o := r.Options; !o.DeleteBeforeReplace ||
			!slices.Equal(o.ReplaceOnChanges, []string{"value", "preemptionPolicy"}) {
			t.Errorf("%s: %+v", r.Name, o)
		}
		if v := at(r, "globalDefault"); v.IsBool() && v.BoolValue() ||
			at(r, "preemptionPolicy").StringValue() != "PreemptLowerPriority" {
			t.Errorf("%s: %v", r.Name, r.Inputs)
		}
	}
	if len(values) != 3 || values["high"] != 1000000 || values["low"] != 500 || values["nightly"] != -10 {
		t.Errorf("%v", values)
	}
}

// A cluster with Kueue gets the priorities of jobs in queues, which the stack may change in place.
func TestQueuePriorities(t *testing.T) {
	s := configured(settings.CloudGKE)
	s.Platform.QueuePriorities = true
	all, _, err := record(t, s, true)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, r := range within(all) {
		if at(r, "kind").StringValue() != "WorkloadPriorityClass" {
			continue
		}
		if r.Type != "kubernetes:kueue.x-k8s.io/v1beta2:WorkloadPriorityClass" ||
			at(r, "metadata", "namespace").IsString() || r.Options.DeleteBeforeReplace {
			t.Errorf("%s %s: %v, %+v", r.Type, r.Name, r.Inputs, r.Options)
		}
		values[at(r, "metadata", "name").StringValue()] = at(r, "value").NumberValue()
	}
	if len(values) != 2 || values[job.ClassCore] != 0 || values[job.ClassElastic] != -1000 {
		t.Errorf("%v", values)
	}
}

// K04: a static claim.
func TestVolume(t *testing.T) {
	for cloud, source := range map[string]string{settings.CloudGKE: "10.0.0.2",
		settings.CloudEKS: "10.0.0.2::fsap-1", settings.CloudMinikube: "/data"} {
		all, p, err := record(t, configured(cloud), false)
		if err != nil {
			t.Fatal(err)
		}
		volume, claim := graph.Find(all, "kubernetes:core/v1:PersistentVolume", "volume"),
			graph.Find(all, "kubernetes:core/v1:PersistentVolumeClaim", "claim")
		name := "research-" + p.Claim
		for _, want := range []struct {
			r    *graph.Resource
			path string
			want string
		}{
			{volume, "metadata.name", name},
			{volume, "spec.persistentVolumeReclaimPolicy", "Retain"},
			{volume, "spec.claimRef.name", p.Claim},
			{volume, "spec.claimRef.namespace", "research"},
			{claim, "metadata.name", p.Claim},
			{claim, "spec.storageClassName", ""},
			{claim, "spec.volumeName", name},
			{claim, "spec.resources.requests.storage", "1Gi"},
		} {
			got := at(*want.r, keys(want.path)...)
			if !got.IsString() || got.StringValue() != want.want {
				t.Errorf("%s: %s of %s is %v, want %q", cloud, want.path, want.r.Name, got, want.want)
			}
		}
		for _, r := range []*graph.Resource{volume, claim} {
			if modes := at(*r, "spec", "accessModes"); !modes.DeepEquals(
				resource.NewProperty([]resource.PropertyValue{resource.NewProperty("ReadWriteMany")})) {
				t.Errorf("%s: %v", r.Name, modes)
			}
		}
		if !slices.Contains(claim.Options.DependsOn, volume.Type+" volume") {
			t.Errorf("%s: the claim is not after the volume: %v", cloud, claim.Options.DependsOn)
		}
		if got := resource.NewProperty(volume.Inputs).String(); !strings.Contains(got, source) ||
			strings.Contains(got, "{file-system}") || strings.Contains(got, "{address}") {
			t.Errorf("%s: %s is not filled with %s", cloud, got, source)
		}
	}
}

// The API does not let a static claim grow: the claim of a file server that grows stays the same,
// and the volume has the new size.
func TestGrown(t *testing.T) {
	sizes := map[int]string{1024: "1Ti", 2560: "2560Gi"}
	var before string
	for _, gb := range slices.Sorted(maps.Keys(sizes)) {
		all, _, err := record(t, configured(settings.CloudGKE), false, func(c *infra.Cluster) {
			c.Volume.CapacityGB = gb
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := at(*graph.Find(all, "kubernetes:core/v1:PersistentVolume", "volume"), "spec",
			"capacity", "storage"); !got.IsString() || got.StringValue() != sizes[gb] {
			t.Errorf("a volume of %d GiB has %v", gb, got)
		}
		claim := resource.NewProperty(graph.Find(all, "kubernetes:core/v1:PersistentVolumeClaim",
			"claim").Inputs).String()
		if before != "" && claim != before {
			t.Errorf("the claim of a volume that has grown is another: %s, %s", before, claim)
		}
		before = claim
	}
}

func keys(path string) (all []resource.PropertyKey) {
	for key := range strings.SplitSeq(path, ".") {
		all = append(all, resource.PropertyKey(key))
	}
	return all
}

// When the stack is destroyed and its cluster is kept, each object is deleted on its own.
func TestAdopted(t *testing.T) {
	all, _, err := record(t, configured(settings.CloudMinikube), false, func(c *infra.Cluster) { c.Resource = nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range within(all) {
		if r.Options.DeletedWith != "" {
			t.Errorf("%s stays with %s", r.Name, r.Options.DeletedWith)
		}
	}
}

// A preview knows that another source replaces a volume, whatever the cloud: all sources are fixed.
func TestSourcesAreFixed(t *testing.T) {
	for cloud, change := range clusters {
		c := &infra.Cluster{}
		change(c, pulumi.String("10.0.0.2"))
		all, err := objects(configured(cloud), nil, c)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(o infra.Object) bool { return o.Name == nameVolume })
		source, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.Volume.Source)
		if err != nil || len(source) != 1 {
			t.Fatalf("%s: %v, %v", cloud, source, err)
		}
		for key := range source {
			if !slices.Contains(all[i].Fixed, "spec."+key) {
				t.Errorf("%s: spec.%s is not among %v", cloud, key, all[i].Fixed)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	s := configured(settings.CloudMinikube)
	s.Platform.NetworkPolicy = true
	if all, _, err := record(t, s, true); err == nil ||
		!strings.Contains(err.Error(), "platform.networkPolicy: true: ") || len(within(all)) > 0 {
		t.Errorf("a policy that nobody obeys: %v, after %d objects", err, len(within(all)))
	}
	s = configured(settings.CloudGKE)
	s.Job = job.Default()
	s.Platform.StorageClass = "shared"
	if all, _, err := record(t, s, true); err == nil ||
		!strings.Contains(err.Error(), "elasticdl:platform.storageClass: shared: expected eks.efs") ||
		len(within(all)) > 0 {
		t.Errorf("%v, after %d objects", err, len(within(all)))
	}
}

package platform

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// answering simulates clusters: those of the kubeconfigs in it answer, each with one job.
type answering map[string]map[string]any

func (a answering) Get(_ context.Context, kubeconfig, _ string, kind schema.GroupVersionKind,
	_, _ string) (map[string]any, error) {
	is, ok := a[kubeconfig]
	if !ok {
		return nil, fmt.Errorf("no route to host")
	}
	if kind.Kind == "Job" {
		return is, nil
	}
	return map[string]any{"kind": kind.Kind}, nil
}

// A cluster that answers is never replaced unless the user allows it, and a stack never leaves its
// objects on a cluster that exists already.
func TestSameCluster(t *testing.T) {
	of := func(cluster string) resource.PropertyMap {
		return resource.PropertyMap{"cluster": resource.NewProperty(cluster),
			"kubeconfig": resource.NewProperty("of " + cluster)}
	}
	const byAddress, replaced, other = infra.ByAddress + "https://10.0.0.1",
		"policy " + infra.RuleReplacedCluster + ": the cluster a would be replaced", "the stack is on another cluster"
	for name, test := range map[string]struct {
		existing bool
		allow    []string
		live     answering
		was, now resource.PropertyMap
		want     string
	}{
		"the first update":   {false, nil, nil, nil, of("a"), ""},
		"the same":           {false, nil, answering{"of a": nil}, of("a"), of("a"), ""},
		"it answers":         {false, nil, answering{"of a": nil}, of("a"), of("b"), replaced},
		"a job runs":         {false, nil, answering{"of a": {}}, of("a"), of("b"), "end: job digits is running"},
		"it does not answer": {false, nil, answering{"of b": nil}, of("a"), of("b"), ""},
		"the user allows it": {false, []string{infra.RuleReplacedCluster}, answering{"of a": nil}, of("a"), of("b"),
			""},
		"the user allows others":     {false, []string{"x"}, answering{"of a": nil}, of("a"), of("b"), replaced},
		"existing: the first update": {true, nil, nil, nil, of(byAddress), ""},
		"existing: the same":         {true, nil, nil, of("a"), of("a"), ""},
		"existing: another":          {true, []string{infra.RuleReplacedCluster}, nil, of("a"), of("b"), other},
		"existing: not known":        {true, nil, nil, of("a"), of(byAddress), "is not known: only one of the users"},
		"existing: not known before": {true, nil, nil, of(byAddress), of("a"), "is not known: only one of the users"},
		"existing: another address":  {true, nil, nil, of(byAddress), of(byAddress + "0"), other},
	} {
		_, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
			s := &settings.Settings{Project: "elasticdl"}
			s.Policy.Allow = test.allow
			if test.existing {
				s.Existing = &settings.Existing{}
			}
			g, err := infra.NewGuard(ctx, infra.Scope{Jobs: []*job.Job{{Name: "digits"}}},
				&infra.Cluster{Settings: s}, test.live)
			if err != nil {
				return err
			}
			err = sameCluster(s, g, test.was, test.now)
			if (err == nil) != (test.want == "") || !strings.Contains(errorText(err), test.want) {
				t.Errorf("%s: got %v, want %q", name, err, test.want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A stack that uses the Kueue of others names the objects that are missing, and gives up none of
// its own.
func TestKueueOfOthers(t *testing.T) {
	there, own, none := &infra.Found{Object: map[string]any{}}, &infra.Found{Object: map[string]any{}, Own: true},
		&infra.Found{}
	named := &settings.Queue{ClusterQueue: "a", Flavor: &settings.Flavor{Name: "f"}}
	type cluster map[string]*infra.Found
	for name, test := range map[string]struct {
		q    *settings.Queue
		has  cluster
		want string
	}{
		"all is there": {named, cluster{definition: there, "a": there, "f": there}, ""},
		"not known":    {named, nil, ""},
		"no queue": {named, cluster{definition: there, "a": none, "f": there},
			"queue.clusterQueue: there is no ClusterQueue a: name another: kubectl get clusterqueues"},
		"an own queue": {named, cluster{definition: there, "a": own, "f": there},
			"queue.clusterQueue: ClusterQueue a is this stack's own, and would be deleted: name another"},
		"no flavor": {named, cluster{definition: there, "a": there, "f": none},
			"queue.flavor.name: there is no ResourceFlavor f: name another: kubectl get resourceflavors"},
		"an own flavor": {named, cluster{definition: there, "a": there, "f": own},
			"queue.flavor.name: ResourceFlavor f is this stack's own, and would be deleted: name another"},
		"no Kueue": {named, cluster{definition: none, "a": none}, "queue: the cluster has no Kueue: let the stack " +
			"install it: platform.queue.install: true, or ask the cluster's administrator: docs/queues.md"},
		"an own Kueue": {&settings.Queue{}, cluster{definition: there, kueueNamespace: own}, "queue.install: false: " +
			"Kueue is this stack's own, and would be deleted with all queues of the cluster: leave it true, or " +
			"remove platform.queue"},
		"it is installed now": {&settings.Queue{Install: true}, cluster{definition: none}, ""},
		"no names":            {&settings.Queue{Flavor: &settings.Flavor{}}, cluster{definition: there, "": none}, ""},
	} {
		var said []string
		checkKueue(test.q, func(_ schema.GroupVersionKind, _, name string) *infra.Found { return test.has[name] },
			func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if got := strings.Join(said, "\n"); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// A claim that is shared exists already, and is not the stack's own, which would be deleted.
func TestSharedClaim(t *testing.T) {
	s := &settings.Settings{Project: "elasticdl", Platform: settings.Platform{Namespace: "research"}}
	for want, is := range map[string]*infra.Found{
		"there is no claim data in namespace research": {},
		"would be deleted with its data":               {Object: map[string]any{}, Own: true},
	} {
		if err := sharedClaim(s, "data", is); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, is := range []*infra.Found{nil, {Object: map[string]any{}}} {
		if err := sharedClaim(s, "data", is); err != nil {
			t.Errorf("%v: %v", is, err)
		}
	}
}

// Platforms of one program share no name of a resource, and no mark: neither takes the objects of
// the other for its own. Objects are reached by the kubeconfig of their cluster, and not by that of
// the machine.
func TestTwoPlatforms(t *testing.T) {
	marks := map[string]string{}
	all, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
		for _, name := range []string{"blue", "green"} {
			c := ofProgram(t, settings.Platform{Namespace: "training"})
			c.Adopted, c.Kubeconfig = false, pulumi.String("of "+name).ToStringOutput()
			p, err := New(ctx, name, &Args{Cluster: c, Live: answering{}})
			if err != nil {
				return err
			}
			if got := p.Hook("digits", "starts"); got != "digits: starts" {
				t.Errorf("the hook of a job is %q", got)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, r := range all {
		platform, _, _ := strings.Cut(r.Name, "-")
		if platform != "blue" && platform != "green" || names[r.Type+r.Name] {
			t.Errorf("%s %s may be of either platform", r.Type, r.Name)
		}
		names[r.Type+r.Name] = true
		if r.Type == providerType {
			if got := at(r, "kubeconfig"); !got.IsString() || got.StringValue() != "of "+platform {
				t.Errorf("%s reaches its objects by %v", platform, got)
			}
		}
	}
	for _, r := range within(all) {
		platform, _, _ := strings.Cut(r.Name, "-")
		mark := at(r, "metadata", "annotations", infra.AnnotationStack)
		if !mark.IsString() || mark.StringValue() == "" ||
			marks[platform] != "" && marks[platform] != mark.StringValue() {
			t.Errorf("%s is marked by %v, others of the platform by %s", r.Name, mark, marks[platform])
			continue
		}
		marks[platform] = mark.StringValue()
	}
	if marks["blue"] == marks["green"] {
		t.Errorf("both platforms mark by %v", marks)
	}
}

// A program of one job needs no name before what a hook says.
func TestHookOfTheOnlyJob(t *testing.T) {
	_, p, err := record(t, configured(settings.CloudMinikube), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Hook("digits", "starts"); got != "starts" {
		t.Errorf("the hook is %q", got)
	}
}

// An object is replaced for changes that the API refuses; a claim with data for no others.
func TestReplaced(t *testing.T) {
	for _, test := range []struct {
		cloud, kind, name string
		change            func(*infra.Cluster)
		want              []string
	}{
		{settings.CloudEKS, "kubernetes:storage.k8s.io/v1:StorageClass", "storage-class", func(*infra.Cluster) {},
			[]string{"parameters", "reclaimPolicy", "volumeBindingMode"}},
		{settings.CloudMinikube, "kubernetes:core/v1:PersistentVolumeClaim", nameClaim, onDemand,
			[]string{"spec.storageClassName", "spec.accessModes"}},
	} {
		all, _, err := record(t, configured(test.cloud), false, test.change)
		if err != nil {
			t.Fatal(err)
		}
		r := graph.Find(all, test.kind, test.name)
		if o := r.Options; !o.DeleteBeforeReplace || !slices.Equal(o.ReplaceOnChanges, test.want) {
			t.Errorf("%s: %+v, want %q", r.Name, o, test.want)
		}
	}
}

// A claim on demand asks for the size of the settings, and an update does not wait for its volume:
// many classes make it for the first pod only.
func TestClaimOnDemand(t *testing.T) {
	c := claimOnDemand("research", &infra.Volume{Claim: "data", CapacityGB: 10,
		OnDemand: &infra.OnDemand{AccessMode: core.ReadWriteMany}})
	if size := c.Spec.Resources.Requests.Storage().String(); size != "10Gi" ||
		c.Annotations["pulumi.com/skipAwait"] != "true" {
		t.Errorf("it asks for %s, with annotations %v", size, c.Annotations)
	}
}

// The namespace may use what the settings say, and no more.
func TestQuota(t *testing.T) {
	most := configured(settings.CloudEKS).Platform.Quota
	hard := quota("research", most).Spec.Hard
	if len(hard) != len(most) {
		t.Errorf("limits of %v, want %v", hard, most)
	}
	for name, want := range most {
		if got := hard[core.ResourceName(name)]; got.String() != want {
			t.Errorf("%s: %s, want %s", name, got.String(), want)
		}
	}
}

// GKE has a device plugin of its own: a second one would report the GPUs twice. The plugin serves
// the directory in which the kubelet of its node looks for it.
func TestOneDevicePlugin(t *testing.T) {
	for cloud, want := range map[string]bool{settings.CloudGKE: false, settings.CloudEKS: true,
		settings.CloudMinikube: false} {
		all, _, err := record(t, configured(cloud), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := graph.Find(all, "kubernetes:apps/v1:DaemonSet", "device-plugin") != nil; got != want {
			t.Errorf("%s: a device plugin: %t, want %t", cloud, got, want)
		}
	}
	const directory = "/var/lib/kubelet/device-plugins"
	p := devicePlugin("", nil).Spec.Template.Spec
	mounts := p.Containers[0].VolumeMounts
	if p.Containers[0].Name == "" || len(mounts) != 1 || mounts[0].MountPath != directory || len(p.Volumes) != 1 ||
		mounts[0].Name != p.Volumes[0].Name || p.Volumes[0].HostPath.Path != directory {
		t.Errorf("it mounts %+v of %+v", mounts, p.Volumes)
	}
}

// Pods tolerate what the flavor of their queue says, no more and no less.
func TestFlavor(t *testing.T) {
	got := fmt.Sprint(flavorSpec(installed().Flavor))
	if want := "map[nodeLabels:map[pool:gpu] tolerations:[map[effect:NoExecute key:spot operator:Exists " +
		"tolerationSeconds:5]]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Kueue's manager requests less CPU than in the chart, which small nodes do not have, and all the
// memory that it may use, so that no other pod takes it.
func TestKueueFits(t *testing.T) {
	manager := kueueRelease("research", &settings.Queue{}).Values["controllerManager"].(map[string]any)["manager"]
	of := manager.(map[string]any)["resources"].(map[string]any)
	requests, limits := of["requests"].(map[string]any), of["limits"].(map[string]any)
	if requests["cpu"] != "100m" || requests["memory"] != limits["memory"] || limits["memory"] == nil {
		t.Errorf("it asks for %v, and may use %v", requests, limits)
	}
}

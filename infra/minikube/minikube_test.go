package minikube

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

const (
	commandType = "command:local:Command"
	userType    = "test:kubernetes:Provider"
)

func configured(change func(*settings.Minikube)) *settings.Settings {
	m := &settings.Minikube{Driver: "docker", CPUs: 2, MemoryMB: 6144, DiskGB: 50,
		KubernetesVersion: "v1.35.0", Data: "/home/me/data"}
	change(m)
	return &settings.Settings{Project: "elasticdl", Stack: "test", Cloud: settings.CloudMinikube,
		Minikube: m, Platform: settings.Platform{Namespace: "research"}}
}

func record(t *testing.T, preview bool, change func(*settings.Minikube)) ([]graph.Resource, *infra.Cluster) {
	t.Helper()
	var c *infra.Cluster
	outputs := func(graph.Resource) resource.PropertyMap {
		if preview {
			return nil
		}
		return resource.PropertyMap{"stdout": resource.NewProperty("contexts: [{name: " +
			"elasticdl-test, context: {user: elasticdl-test}}]"), "stderr": resource.NewProperty("")}
	}
	all, err := graph.Record(graph.Cloud{Outputs: outputs, Preview: preview}, func(ctx *pulumi.Context) (err error) {
		if c, err = NewCluster(ctx, "minikube", OfStack(configured(change))); err != nil {
			return err
		}
		if preview { // mocks refuse unknown secrets
			return nil
		}
		var user pulumi.CustomResourceState
		return ctx.RegisterResource(userType, "user",
			pulumi.Map{"kubeconfig": c.Kubeconfig, "clusterIdentifier": c.ID}, &user)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, c
}

func TestGolden(t *testing.T) {
	for name, preview := range map[string]bool{"preview": true, "up": false} {
		all, _ := record(t, preview, func(*settings.Minikube) {})
		graph.Golden(t, name, all)
	}
	all, _ := record(t, true, func(m *settings.Minikube) { m.Adopt = true })
	graph.Golden(t, "adopt", all)
}

// The laws M01 and M02 hold.
func TestLaws(t *testing.T) {
	for _, adopt := range []bool{false, true} {
		all, c := record(t, true, func(m *settings.Minikube) { m.Adopt = adopt })
		start, kubeconfig := graph.Find(all, commandType, "start"), graph.Find(all, commandType, "kubeconfig")
		if !start.Options.DeleteBeforeReplace || !slices.Contains(start.Options.ReplaceOnChanges, "triggers[*]") {
			t.Errorf("start has %+v", start.Options)
		}
		if o := kubeconfig.Options; !slices.Equal(o.SecretOutputs, []string{"stdout"}) ||
			!slices.Contains(o.DependsOn, commandType+" start") {
			t.Errorf("kubeconfig has %+v", o)
		}
		if logging := kubeconfig.Inputs["logging"]; !logging.DeepEquals(resource.NewProperty("none")) {
			t.Errorf("the kubeconfig is logged to %v", logging)
		}
		up, _ := record(t, false, func(m *settings.Minikube) { m.Adopt = adopt })
		user := graph.Find(up, userType, "user")
		if !user.Inputs["kubeconfig"].IsSecret() || !slices.Contains(user.Options.DependsOn, commandType+" start") {
			t.Errorf("what uses the cluster has %v, and %+v", user.Inputs, user.Options)
		}
		for _, r := range []*graph.Resource{start, kubeconfig} {
			if r.Options.Parent != "elasticdl:minikube:Cluster minikube" {
				t.Errorf("%s has %+v", r.Name, r.Options)
			}
		}
		if ignored := slices.Equal(start.Options.IgnoreChanges,
			[]string{"triggers"}); ignored != adopt || (c.Resource == nil) != adopt {
			t.Errorf("adopt %v: ignores %q, what is within goes with %v", adopt,
				start.Options.IgnoreChanges, c.Resource)
		}
		if c.Context != "elasticdl-test" || len(c.Ready) != 2 || c.Login != nil ||
			c.Registry.OutputState != nil || c.GPU.NodeSelector != nil {
			t.Errorf("%+v", c)
		}
		if v := c.Volume; v.Claim != "data-claim" || v.CapacityGB != 50 || v.Source.HostPath.Path != "/data" {
			t.Errorf("%+v", v)
		}
	}
}

// A change of any flag of the start replaces the cluster: minikube does not change an existing
// profile.
func TestTriggers(t *testing.T) {
	base, _ := record(t, true, func(*settings.Minikube) {})
	seen := map[string]string{flagsOf(t, base): "nothing"}
	for name, change := range map[string]func(*settings.Minikube){
		"profile":           func(m *settings.Minikube) { m.Profile = "other" },
		"driver":            func(m *settings.Minikube) { m.Driver = "kvm2" },
		"cpus":              func(m *settings.Minikube) { m.CPUs = 3 },
		"memoryMb":          func(m *settings.Minikube) { m.MemoryMB = 8192 },
		"diskGb":            func(m *settings.Minikube) { m.DiskGB = 60 },
		"kubernetesVersion": func(m *settings.Minikube) { m.KubernetesVersion = "v1.36.0" },
		"cni":               func(m *settings.Minikube) { m.CNI = "calico" },
		"gpus":              func(m *settings.Minikube) { m.GPUs = "all" },
		"data":              func(m *settings.Minikube) { m.Data = "/home/me/other" },
		"no data":           func(m *settings.Minikube) { m.Data = "" },
	} {
		all, _ := record(t, true, change)
		flags := flagsOf(t, all)
		if same, ok := seen[flags]; ok {
			t.Errorf("%s starts the profile as %s does: %s", name, same, flags)
		}
		seen[flags] = name
		if create := graph.Find(all, commandType,
			"start").Inputs["create"].StringValue(); !strings.Contains(create, "minikube start "+flags+
			" --keep-context") {
			t.Errorf("%s: flags %s are not those of: %s", name, flags, create)
		}
	}
}

func flagsOf(t *testing.T, all []graph.Resource) string {
	t.Helper()
	triggers := graph.Find(all, commandType, "start").Inputs["triggers"].ArrayValue()
	if len(triggers) != 2 {
		t.Fatalf("triggers %v", triggers)
	}
	return triggers[1].StringValue()
}

func TestCluster(t *testing.T) {
	_, c := record(t, false, func(m *settings.Minikube) { m.CNI, m.GPUs, m.Data = "calico", "all", "" })
	if !c.NetPolicies || c.GPU.NodeSelector == nil || c.GPU.DevicePlugin {
		t.Errorf("%+v", c)
	}
	if is := c.Volume.Source.HostPath; is.Path != "/data" || *is.Type != core.HostPathDirectoryOrCreate {
		t.Errorf("without a mount the volume is %+v", is)
	}
	if _, c = record(t, false, func(m *settings.Minikube) { m.CNI = "flannel" }); c.NetPolicies {
		t.Error("flannel obeys NetworkPolicies")
	}
}

func TestInto(t *testing.T) {
	const before = "apiVersion: v1\nclusters:\n- name: p\ncontexts:\n- context:\n    cluster: " +
		"p\n    namespace: default\n    user: p\n  name: p\ncurrent-context: p\nkind: Config\n"
	if got, err := into(before, "research"); err != nil || got != strings.Replace(before, "default", "research", 1) {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := into("kind: Config", "research"); err != nil || got != "kind: Config\n" {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := into("a: b: c", "research"); err == nil {
		t.Error("that was no YAML")
	}
}

// The path of the data is absolute, because minikube may run in another directory.
func TestRelativeData(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	all, _ := record(t, true, func(m *settings.Minikube) { m.Data = "testdata" })
	if flags := flagsOf(t, all); !strings.Contains(flags, "--mount-string="+here+"/testdata:/data") {
		t.Errorf("flags %s", flags)
	}
}

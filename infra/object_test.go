package infra

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/test/graph"
)

const holeAddress, holeName, holeSecret = "{{address}}", "{{a name}}", "{{secret}}"

// registered returns an object as the engine gets it, with placeholders whose values come from a
// resource "source" when that exists.
func registered(t *testing.T, preview bool, o runtime.Object) graph.Resource {
	t.Helper()
	cloud := graph.Cloud{Preview: preview, Outputs: func(r graph.Resource) resource.PropertyMap {
		if r.Name != "source" || preview {
			return nil
		}
		return resource.PropertyMap{"address": resource.NewProperty("10.1.2.3"),
			"name": resource.NewProperty("is " + holeAddress)}
	}}
	all, err := graph.Record(cloud, func(ctx *pulumi.Context) error {
		var source struct {
			pulumi.CustomResourceState
			Address pulumi.StringOutput `pulumi:"address"`
			Name    pulumi.StringOutput `pulumi:"name"`
		}
		if err := ctx.RegisterResource("test:index:Source", "source", nil, &source); err != nil {
			return err
		}
		_, err := Register(ctx, nil, Object{Name: "object", Object: o, Holes: map[string]pulumi.StringInput{
			holeAddress: source.Address, holeName: source.Name,
			holeSecret: pulumi.ToSecret(pulumi.String("key")).(pulumi.StringOutput), "{{known}}": pulumi.String("here"),
		}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r graph.Resource) bool { return r.Name == "object" })
	return all[i]
}

// holed returns a volume with placeholders at the beginning, in the middle and at the end of texts,
// alone and together, in maps and lists.
func holed() *core.PersistentVolume {
	return &core.PersistentVolume{
		TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: meta.ObjectMeta{Name: "data",
			Annotations: map[string]string{"a.b/c": holeName + " at " + holeAddress,
				"plain": "unchanged", "two": holeAddress + " " + holeAddress}},
		Spec: core.PersistentVolumeSpec{
			Capacity: core.ResourceList{}, StorageClassName: "",
			MountOptions: []string{"addr=" + holeAddress, "soft", "port={{known}},x"},
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
				Driver: "d", VolumeHandle: "mode/{{known}}/" + holeAddress + "/share",
				VolumeAttributes: map[string]string{"ip": holeAddress},
			}},
		},
	}
}

func TestHoles(t *testing.T) {
	r := registered(t, false, holed())
	if r.Type != "kubernetes:core/v1:PersistentVolume" {
		t.Errorf("type %s", r.Type)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": "data",
			"annotations": map[string]any{"a.b/c": "is " + holeAddress + " at 10.1.2.3",
				"plain": "unchanged", "two": "10.1.2.3 10.1.2.3"}},
		"spec": map[string]any{
			"mountOptions": []any{"addr=10.1.2.3", "soft", "port=here,x"},
			"csi": map[string]any{"driver": "d", "volumeHandle": "mode/here/10.1.2.3/share",
				"volumeAttributes": map[string]any{"ip": "10.1.2.3"}},
		},
	}
	if got := r.Inputs.Mappable(); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
	if !slices.Contains(r.Options.DependsOn, "test:index:Source source") {
		t.Errorf("it does not wait for what fills it: %v", r.Options.DependsOn)
	}
}

// In a preview the value of a placeholder is unknown, and so is the text around it. All other
// values are known.
func TestHolesInPreview(t *testing.T) {
	r := registered(t, true, holed())
	spec := r.Inputs["spec"].ObjectValue()
	options := spec["mountOptions"].ArrayValue()
	for _, v := range []resource.PropertyValue{options[0], spec["csi"].ObjectValue()["volumeHandle"],
		r.Inputs["metadata"].ObjectValue()["annotations"].ObjectValue()["two"]} {
		if !v.IsComputed() && !v.IsOutput() {
			t.Errorf("%v is known", v)
		}
	}
	for v, want := range map[string]string{options[1].StringValue(): "soft",
		options[2].StringValue(): "port=here,x", spec["csi"].ObjectValue()["driver"].StringValue(): "d"} {
		if v != want {
			t.Errorf("%q, want %q", v, want)
		}
	}
}

// A text that contains a secret is a secret.
func TestSecretHole(t *testing.T) {
	r := registered(t, false, &core.ConfigMap{
		TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta.ObjectMeta{Name: "c"},
		Data: map[string]string{"a": "x " + holeSecret, "b": "y"},
	})
	data := r.Inputs["data"].ObjectValue()
	if !data["a"].IsSecret() || data["a"].SecretValue().Element.StringValue() != "x key" || data["b"].IsSecret() {
		t.Errorf("%v", data)
	}
}

// Numbers are integers with all of their digits, false and empty texts are kept, and fields that
// the API server writes are left out.
func TestPlainObjects(t *testing.T) {
	for _, test := range []struct {
		object runtime.Object
		kind   string
		want   []string
		not    []string
	}{
		{&scheduling.PriorityClass{
			TypeMeta:   meta.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
			ObjectMeta: meta.ObjectMeta{Name: "high"}, Value: 1_000_000_000,
		}, "kubernetes:scheduling.k8s.io/v1:PriorityClass", []string{`"value":1000000000`},
			[]string{"creationTimestamp", "e+"}},
		{&core.PersistentVolumeClaim{
			TypeMeta:   meta.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: meta.ObjectMeta{Name: "c"},
			// no class, and not the default one
			Spec: core.PersistentVolumeClaimSpec{StorageClassName: new("")},
		}, "kubernetes:core/v1:PersistentVolumeClaim", []string{`"storageClassName":""`},
			[]string{"status", "creationTimestamp"}},
		{&apps.DaemonSet{
			TypeMeta: meta.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: meta.ObjectMeta{Name: "d"},
			Spec: apps.DaemonSetSpec{Template: core.PodTemplateSpec{Spec: core.PodSpec{
				TerminationGracePeriodSeconds: new(int64(1 << 52)),
				AutomountServiceAccountToken:  new(false), EnableServiceLinks: new(false),
			}}},
		}, "kubernetes:apps/v1:DaemonSet", []string{`"terminationGracePeriodSeconds":4503599627370496`,
			`"automountServiceAccountToken":false`}, []string{"status", "creationTimestamp"}},
		{&rbac.Role{
			TypeMeta:   meta.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"},
			ObjectMeta: meta.ObjectMeta{Name: "r"},
			Rules: []rbac.PolicyRule{{APIGroups: []string{""}, Verbs: []string{"get", "list"},
				Resources: []string{"pods"}}},
		}, "kubernetes:rbac.authorization.k8s.io/v1:Role", []string{`"apiGroups":[""]`, `"verbs":["get","list"]`}, nil},
	} {
		r := registered(t, false, test.object)
		text, err := json.Marshal(r.Inputs.Mappable())
		if err != nil {
			t.Fatal(err)
		}
		if r.Type != test.kind {
			t.Errorf("type %s, want %s", r.Type, test.kind)
		}
		for _, want := range test.want {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		for _, not := range test.not {
			if strings.Contains(string(text), not) {
				t.Errorf("%s in %s", not, text)
			}
		}
		if len(r.Options.DependsOn) > 0 {
			t.Errorf("waits for %v, and has no hole", r.Options.DependsOn)
		}
	}
}

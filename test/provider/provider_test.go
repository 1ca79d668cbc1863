package provider

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// Each mistake is refused as by the clouds, with the reason.
func TestRefused(t *testing.T) {
	const network, pool, group = "gcp:compute/network:Network", "gcp:container/nodePool:NodePool",
		"aws:eks/nodeGroup:NodeGroup"
	for _, test := range []struct {
		kind string
		in   Props
		want string
	}{
		{network, Props{"autoCreateSubnetwork": false}, "autoCreateSubnetwork: the SDK has no such property"},
		{network, Props{"autoCreateSubnetworks": "no"}, "autoCreateSubnetworks: expected bool, got no"},
		{pool, Props{}, "cluster: missing"},
		{pool, Props{"cluster": "c",
			"nodeConfig": Props{"taints": []any{Props{"key": "k", "value": "v"}}}},
			"nodeConfig.taints[0].effect: missing"},
		{pool, Props{"cluster": "c",
			"nodeConfig": Props{"guestAccelerators": []any{Props{"kind": "t4"}}}},
			"nodeConfig.guestAccelerators[0].kind: the SDK has no such property"},
		{group, Props{"clusterName": "c", "nodeRoleArn": "r", "scalingConfig": Props{"desiredSize": 1,
			"maxSize": 1, "minSize": 1}}, "subnetIds: missing"},
		{"gcp:container/cluster:Clusters", Props{}, "does not play this type"},
		{"kubernetes:batch/v1:Job", Props{"apiVersion": "batch/v1", "kind": "Job",
			"metadata": Props{"name": "j"}, "spec": Props{"backofLimit": 1}}, `unknown field "spec.backofLimit"`},
		{"kubernetes:core/v1:Pods", Props{"apiVersion": "v1", "kind": "Pods",
			"metadata": Props{"name": "j"}}, `no kind "Pods"`},
	} {
		w := newWorld(t)
		if problems := w.check(test.kind, "x", test.in); !strings.Contains(problems, test.want) {
			t.Errorf("%s %v: %q, expected %s", test.kind, test.in, problems, test.want)
		}
	}
}

// Values that a cloud assigns are unknown in a preview, and known afterwards.
func TestUnknownInPreview(t *testing.T) {
	w := newWorld(t)
	w.create("gcp:projects/service:Service", "file", Props{"service": "file.googleapis.com", "disableOnDestroy": false})
	in := Props{"name": "n", "tier": "BASIC_HDD", "fileShares": Props{"name": "s", "capacityGb": 1024},
		"networks": []any{Props{"network": "net", "modes": []any{"MODE_IPV4"}}}}
	r, err := w.of("gcp:filestore/instance:Instance").Create(t.Context(),
		&pulumirpc.CreateRequest{Urn: urn("gcp:filestore/instance:Instance", "f"),
			Properties: value(t, in), Preview: true})
	if err != nil {
		t.Fatal(err)
	}
	out := wire(r.Properties)
	if got := at(out, "networks", 0, "ipAddresses"); got != Unknown ||
		text(out, "networks", 0, "network") != "net" || out["createTime"] != Unknown || out["tier"] != "BASIC_HDD" {
		t.Errorf("preview shows %v", out)
	}
	_, out = w.create("gcp:filestore/instance:Instance", "f", in)
	if hasUnknown(out) || text(out, "networks", 0, "ipAddresses", 0) == "" {
		t.Errorf("it is %v", out)
	}
	// Google returns the short name of a network. The full name in the inputs would replace the
	// instance.
	in["networks"] = []any{Props{"network": "projects/p/global/networks/net", "modes": []any{"MODE_IPV4"}}}
	in["name"] = "other"
	id, _ := w.create("gcp:filestore/instance:Instance", "g", in)
	is := w.read("gcp:filestore/instance:Instance", "g", id, in)
	if d := w.diff("gcp:filestore/instance:Instance", in, is, in); !slices.Equal(d.Replaces,
		[]string{"networks[0].network"}) {
		t.Errorf("replaced for %v", d.Replaces)
	}
	if d := w.diff("gcp:filestore/instance:Instance", in, is, in,
		"networks[0].network"); d.Changes != pulumirpc.DiffResponse_DIFF_NONE {
		t.Errorf("ignored, and yet %v", d.Diffs)
	}
}

// A name can be used once, a resource in use cannot be deleted, and a resource cannot be created
// before those that it needs.
func TestOrder(t *testing.T) {
	w := newWorld(t)
	const network, subnet, service = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork",
		"gcp:projects/service:Service"
	if err := w.refused(network, "n", Props{"name": "n"}); !strings.Contains(err, "SERVICE_DISABLED: compute") {
		t.Errorf("made without its service: %s", err)
	}
	w.create(service, "compute", Props{"service": "compute.googleapis.com", "disableOnDestroy": false})
	id, _ := w.create(network, "n", Props{"name": "n"})
	if err := w.refused(network, "m", Props{"name": "n"}); !strings.Contains(err, "already exists") {
		t.Errorf("made twice: %s", err)
	}
	within, _ := w.create(subnet, "s", Props{"name": "s", "network": id, "region": "r", "ipCidrRange": "10.0.0.0/20"})
	if err := w.delete(network, "n", id); err == nil || !strings.Contains(err.Error(), "in use by "+subnet) {
		t.Errorf("deleted in use: %v", err)
	}
	for _, last := range [][3]string{{subnet, "s", within}, {network, "n", id}, {network, "n", id}} {
		if err := w.delete(last[0], last[1], last[2]); err != nil {
			t.Error(err)
		}
	}
	if left := w.Left(); !slices.Equal(left, []string{service + " compute"}) {
		t.Errorf("left are %v", left)
	}
	if err := w.refused("aws:eks/cluster:Cluster", "c",
		Props{"name": "c", "roleArn": "arn:aws:iam::1:role/r",
			"vpcConfig": Props{"subnetIds": []any{"a", "b"}}}); !strings.Contains(err, "AmazonEKSClusterPolicy") {
		t.Errorf("a cluster whose role has no policy: %s", err)
	}
}

// A deleted cluster cannot be reached, and its objects are deleted with it.
func TestUnreachable(t *testing.T) {
	w := newWorld(t)
	w.Kubernetes.open("https://x")
	w.Kubernetes.server = "https://x"
	in := Props{"apiVersion": "v1", "kind": "Namespace", "metadata": Props{"name": "n"}}
	const kind = "kubernetes:core/v1:Namespace"
	w.create(kind, "n", in)
	w.Kubernetes.lose("https://x")
	if left := w.Left(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if err := w.delete(kind, "n", "n"); err == nil || !strings.Contains(err.Error(), "PULUMI_K8S_DELETE_UNREACHABLE") {
		t.Errorf("deleted from nowhere: %v", err)
	}
	w.Kubernetes.DeleteUnreachable.Store(true)
	if err := w.delete(kind, "n", "n"); err != nil {
		t.Error(err)
	}
	if _, err := w.Kubernetes.Create(t.Context(), &pulumirpc.CreateRequest{Urn: urn(kind, "n"),
		Properties: value(t, in), Preview: true}); err != nil {
		t.Errorf("a preview continues: %v", err)
	}
}

// The simulated versions are those of the plugins that the engine would request: with another SDK
// the simulation must be reviewed.
func TestVersions(t *testing.T) {
	dirs, err := moduleDirs()
	if err != nil {
		t.Fatal(err)
	}
	c := Start(t)
	for _, p := range []*Provider{c.Google, c.Amazon, c.Commands} {
		if dir := dirs[modules[p.pkg].path]; !strings.HasSuffix(dir, "@v"+p.version) {
			t.Errorf("%s %s is simulated, and the SDK is %s", p.pkg, p.version, dir)
		}
	}
}

// world is a simulated cloud, used without an engine.
type world struct {
	*Cloud
	t       *testing.T
	objects map[string]Props // inputs by "type name"
}

func newWorld(t *testing.T) *world { return &world{Start(t), t, map[string]Props{}} }

func (w *world) of(kind string) pulumirpc.ResourceProviderServer {
	if strings.HasPrefix(kind, "kubernetes:") {
		return w.Kubernetes
	}
	return w.Cloud.of(kind)
}

func urn(kind, name string) string { return "urn:pulumi:s::p::" + kind + "::" + name }

func value(t *testing.T, p Props) *structpb.Struct {
	t.Helper()
	s, err := as(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check returns all problems of inputs.
func (w *world) check(kind, name string, in Props) string {
	w.t.Helper()
	_, problems := w.checked(kind, name, in)
	return problems
}

// checked returns the inputs that a resource gets, and all of their problems.
func (w *world) checked(kind, name string, in Props) (Props, string) {
	w.t.Helper()
	r, err := w.of(kind).Check(w.t.Context(), &pulumirpc.CheckRequest{Urn: urn(kind, name), News: value(w.t, in)})
	if err != nil {
		return nil, err.Error()
	}
	var all []string
	for _, f := range r.Failures {
		all = append(all, f.Property+": "+f.Reason)
	}
	return wire(r.Inputs), strings.Join(all, "\n")
}

func (w *world) create(kind, name string, in Props) (id string, out Props) {
	w.t.Helper()
	in, problems := w.checked(kind, name, in)
	if problems != "" {
		w.t.Fatal(problems)
	}
	r, err := w.of(kind).Create(w.t.Context(), &pulumirpc.CreateRequest{Urn: urn(kind, name),
		Properties: value(w.t, in)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.objects[kind+" "+name] = in
	return r.Id, wire(r.Properties)
}

// refused returns why a resource is not created, or "".
func (w *world) refused(kind, name string, in Props) string {
	w.t.Helper()
	if _, err := w.of(kind).Create(w.t.Context(), &pulumirpc.CreateRequest{Urn: urn(kind, name),
		Properties: value(w.t, in)}); err != nil {
		return err.Error()
	}
	return ""
}

func (w *world) read(kind, name, id string, in Props) Props {
	w.t.Helper()
	r, err := w.of(kind).Read(w.t.Context(), &pulumirpc.ReadRequest{Urn: urn(kind, name), Id: id,
		Inputs: value(w.t, in), Properties: value(w.t, in)})
	if err != nil {
		w.t.Fatal(err)
	}
	return wire(r.Properties)
}

func (w *world) diff(kind string, asked, is, now Props, ignore ...string) *pulumirpc.DiffResponse {
	w.t.Helper()
	d, err := w.of(kind).Diff(w.t.Context(), &pulumirpc.DiffRequest{Urn: urn(kind, "x"),
		OldInputs: value(w.t, asked), Olds: value(w.t, is), News: value(w.t, now), IgnoreChanges: ignore})
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) delete(kind, name, id string) error {
	_, err := w.of(kind).Delete(w.t.Context(), &pulumirpc.DeleteRequest{Urn: urn(kind, name), Id: id,
		Properties: value(w.t, w.objects[kind+" "+name])})
	return err
}

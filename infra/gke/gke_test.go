package gke

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const (
	typeService   = "gcp:projects/service:Service"
	typeNetwork   = "gcp:compute/network:Network"
	typeSubnet    = "gcp:compute/subnetwork:Subnetwork"
	typeRouter    = "gcp:compute/router:Router"
	typeNAT       = "gcp:compute/routerNat:RouterNat"
	typeAccount   = "gcp:serviceaccount/account:Account"
	typeRole      = "gcp:projects/iAMMember:IAMMember"
	typeUser      = "gcp:serviceaccount/iAMMember:IAMMember"
	typeReader    = "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember"
	typeRegistry  = "gcp:artifactregistry/repository:Repository"
	typeCluster   = "gcp:container/cluster:Cluster"
	typePool      = "gcp:container/nodePool:NodePool"
	typeFilestore = "gcp:filestore/instance:Instance"
)

// configured returns settings in the shape of the shipped stack, with a GPU pool.
func configured() *settings.Settings {
	j := job.Default()
	j.Name = "test-mnist"
	return &settings.Settings{
		Project: graph.Project, Stack: graph.Stack, Cloud: settings.CloudGKE,
		GKE: &settings.GKE{
			Project: "acme", Location: "us-central1-c", ReleaseChannel: "REGULAR", PrivateNodes: true,
			AuthorizedNetworks: []settings.Network{{CIDR: "203.0.113.7/32", Name: "office"}},
			Ranges: settings.GKERanges{Nodes: "10.0.0.0/20", Pods: "10.4.0.0/14",
				Services: "10.0.32.0/20", Master: "172.16.0.32/28"},
			SystemPool: settings.GKEPool{MachineType: "e2-standard-4", MinNodes: 1, MaxNodes: 3},
			WorkerPool: &settings.GKEPool{MachineType: "n1-standard-8", MinNodes: 3, MaxNodes: 6},
			GPUPool: &settings.GKEPool{MachineType: "n1-standard-4", MaxNodes: 2,
				Accelerator: "nvidia-tesla-t4", GPUs: 1, Labels: map[string]string{"team": "vision"}},
			Bucket: &settings.GKEBucket{Location: "us-central1",
				Bucket: settings.Bucket{Access: "write", KeepDeletedDays: 7}},
			Filestore: &settings.Filestore{Tier: "BASIC_HDD", CapacityGB: 1024, Share: "data",
				Location: "us-central1-c"},
			Maintenance: &settings.Maintenance{DailyStart: "03:00", Exclusions: []settings.MaintenanceExclusion{
				{Name: "year-end", Start: "2026-12-20T00:00:00Z", End: "2027-01-04T00:00:00Z"},
			}},
			JobRoles: []string{"roles/storage.objectViewer"},
		},
		Platform:       settings.Platform{Namespace: "training"},
		Job:            j,
		ProtectStorage: true,
		Labels:         map[string]string{"cost-center": "ml"},
		Budget: &settings.Budget{Monthly: 500, Mail: []string{"ops@example.com", "ann@example.com"},
			Thresholds: []int{50, 90, 100}, BillingAccount: "012345-567890-ABCDEF"},
	}
}

// google returns the outputs that the clouds assign to a resource.
func google(r graph.Resource) resource.PropertyMap {
	m := map[string]any{}
	switch r.Type {
	case typeAccount:
		email := r.Inputs["accountId"].StringValue() + "@acme.iam.gserviceaccount.com"
		m = map[string]any{"email": email, "member": "serviceAccount:" + email,
			"name": "projects/acme/serviceAccounts/" + email}
	case typeChannel:
		m = map[string]any{"name": "projects/acme/notificationChannels/" + r.Name}
	case typeCluster:
		m = map[string]any{"endpoint": "198.51.100.4", "masterAuth": map[string]any{
			"clusterCaCertificate": "Q0E=", "clientCertificateConfig": map[string]any{"issueClientCertificate": false}}}
	case typeFilestore:
		m = map[string]any{"networks": []any{map[string]any{
			"network": "elasticdl-test", "modes": []any{"MODE_IPV4"}, "reservedIpRange": "10.1.2.0/29",
			"ipAddresses": []any{"10.1.2.2"}}}}
	}
	return resource.NewPropertyMapFromMap(m)
}

// call returns Google's simulated answers to look-ups.
func call(token string, args resource.PropertyMap) resource.PropertyMap {
	switch token {
	case "gcp:organizations/getClientConfig:getClientConfig":
		return resource.NewPropertyMapFromMap(map[string]any{"project": "acme-vision"})
	case "gcp:organizations/getProject:getProject":
		return resource.NewPropertyMapFromMap(map[string]any{"number": "4711", "projectId": args["projectId"].V})
	}
	return callOfParts(token, args)
}

// record returns the resources that the stack requests, and the cluster; in a preview fewer values
// of the cluster are known.
func record(t testing.TB, s *settings.Settings, preview bool) ([]graph.Resource, *made) {
	t.Helper()
	return recordWith(t, s, preview, nil)
}

// recordWith does the same as record, with a configuration of the stack.
func recordWith(t testing.TB, s *settings.Settings, preview bool,
	config map[string]string) ([]graph.Resource, *made) {
	t.Helper()
	cloud := graph.Cloud{Preview: preview, Call: call, Config: config}
	if !preview {
		cloud.Outputs = google
	}
	c := &made{}
	all, err := graph.Record(cloud, func(ctx *pulumi.Context) (err error) {
		args := OfStack(s)
		args.Provider = map[string]string{}
		for key, value := range config {
			args.Provider[strings.TrimPrefix(key, "gcp:")] = value
		}
		if c.Cluster, err = NewCluster(ctx, "gke", args); err != nil {
			return err
		}
		if s.Job != nil {
			of := trainingjob.Account(s.Job)
			of.Namespace = s.Platform.Namespace
			is, err := c.Identify("job", of)
			if err != nil {
				return err
			}
			c.Identity, c.Ready = is.Annotations, append(c.Ready, is.Ready...)
			c.Workers = c.WorkersOn(s.WorkerPool, s.AsksForGPUs())
		}
		return platform(ctx, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, c
}

// made is a cluster with what it has made for the job of a stack.
type made struct {
	*infra.Cluster
	// annotations of the job's ServiceAccount
	Identity map[string]pulumi.StringOutput
	// nodes of its workers
	Workers *infra.Nodes
}

// platform registers resources that use the cluster's values, so that tests can see them.
func platform(ctx *pulumi.Context, c *made) error {
	account := &core.ServiceAccount{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}}
	account.Annotations = map[string]string{"kubeconfig": "{{kubeconfig}}", "registry": "{{registry}}",
		"id": "{{id}}", "name": "{{name}}"}
	holes := map[string]pulumi.StringInput{"{{kubeconfig}}": c.Kubeconfig, "{{registry}}": c.Registry,
		"{{id}}": c.ID, "{{name}}": c.Name}
	for k, v := range c.Identity {
		account.Annotations[k], holes["{{"+k+"}}"] = "{{"+k+"}}", v
	}
	if _, err := infra.Register(ctx, nil, infra.Object{Name: "cluster", Object: account, Holes: holes},
		pulumi.DependsOn(c.Ready), pulumi.DeletedWith(c.Resource)); err != nil || c.Volume == nil {
		return err
	}
	volume := &core.PersistentVolume{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}}
	volume.Spec.PersistentVolumeSource = c.Volume.Source
	_, err := infra.Register(ctx, nil, infra.Object{Name: "volume", Object: volume, Holes: c.Volume.Holes})
	return err
}

func TestGolden(t *testing.T) {
	everything, _ := record(t, configured(), false)
	graph.Golden(t, "everything", everything)
	preview, _ := record(t, configured(), true)
	graph.Golden(t, "preview", preview)
	graph.Golden(t, "key", first(record(t, keyed(), false)))
	graph.Golden(t, "little", first(record(t, little(), false)))
	graph.Golden(t, "parts", first(record(t, withParts(), false)))
}

// little returns settings without anything optional, in a region.
func little() *settings.Settings {
	s := configured()
	s.GKE = &settings.GKE{
		Project: "acme", Location: "europe-west4", AuthorizedNetworks: []settings.Network{{CIDR: "203.0.113.7/32"}},
		Ranges:     s.GKE.Ranges,
		SystemPool: settings.GKEPool{MachineType: "n4-standard-8", MinNodes: 1, MaxNodes: 3},
		WorkerPool: &settings.GKEPool{MachineType: "n1-standard-8", MinNodes: 4, MaxNodes: 20, Spot: true, DiskGB: 200},
	}
	s.Job, s.Labels, s.ProtectStorage, s.Budget = nil, nil, false, nil
	return s
}

func first(all []graph.Resource, _ *made) []graph.Resource { return all }

// A preview requests the same resources as an update: the same types and names, with the same
// options.
func TestPreviewShowsAll(t *testing.T) {
	for _, s := range []*settings.Settings{configured(), little(), withParts()} {
		now, then := first(record(t, s, true)), first(record(t, s, false))
		if len(now) != len(then) {
			t.Fatalf("%d resources in the preview, %d in the update", len(now), len(then))
		}
		for i, r := range now {
			if o := then[i]; r.Type != o.Type || r.Name != o.Name ||
				!slices.Equal(r.Inputs.StableKeys(), o.Inputs.StableKeys()) ||
				r.Options.Protect != o.Options.Protect ||
				!slices.Equal(r.Options.IgnoreChanges, o.Options.IgnoreChanges) {
				t.Errorf("preview: %+v\nupdate: %+v", r, o)
			}
		}
	}
}

func TestVolume(t *testing.T) {
	all, c := record(t, configured(), false)
	if c.Volume.Claim != "fileserver-claim" || c.Volume.CapacityGB != 1024 {
		t.Errorf("%+v", c.Volume)
	}
	csi := at(t, find(t, all, "kubernetes:core/v1:PersistentVolume", "volume"), "spec.csi").ObjectValue()
	if got := csi["volumeHandle"].StringValue(); got != "modeInstance/us-central1-c/elasticdl-test/data" {
		t.Errorf("volumeHandle %s", got)
	}
	attributes := csi["volumeAttributes"].ObjectValue()
	if csi["driver"].StringValue() != "filestore.csi.storage.gke.io" ||
		attributes["ip"].StringValue() != "10.1.2.2" || attributes["volume"].StringValue() != "data" {
		t.Errorf("%v", csi)
	}
	all, _ = record(t, configured(), true)
	for _, part := range []string{"volumeHandle", "volumeAttributes.ip"} {
		if v := at(t, find(t, all, "kubernetes:core/v1:PersistentVolume", "volume"), "spec.csi."+
			part); !v.IsComputed() && !v.IsOutput() && v.IsString() && strings.Contains(v.StringValue(), "{{") {
			t.Errorf("the preview's %s is %v", part, v)
		}
	}
}

// An instance without an address must not become a volume of the address "".
func TestNoAddress(t *testing.T) {
	outputs := func(r graph.Resource) resource.PropertyMap {
		if r.Type == typeFilestore {
			return nil
		}
		return google(r)
	}
	_, err := graph.Record(graph.Cloud{Outputs: outputs, Call: call}, func(ctx *pulumi.Context) error {
		c, err := NewCluster(ctx, "gke", OfStack(configured()))
		return errors.Join(err, platform(ctx, &made{Cluster: c}))
	})
	if err == nil || !strings.Contains(err.Error(), "the Filestore instance has no address") {
		t.Errorf("got %v", err)
	}
}

func TestKubeconfig(t *testing.T) {
	given := configured()
	given.Platform.Namespace = "2026" // a name that YAML would read as a number
	all, c := record(t, given, false)
	values := at(t, find(t, all, "kubernetes:core/v1:ServiceAccount", "cluster"), "metadata.annotations").ObjectValue()
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     string `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User map[string]struct{ APIVersion, Command string }
		}
		Contexts []struct {
			Name    string
			Context struct{ Namespace string }
		}
		Current string `json:"current-context"`
	}
	text := values["kubeconfig"].StringValue()
	// parsed as kubectl does, which requires a text here
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	if k := config.Clusters[0].Cluster; k.Server != "https://198.51.100.4" || k.CA != "Q0E=" ||
		config.Current != c.Context || config.Contexts[0].Name != c.Context ||
		config.Contexts[0].Context.Namespace != "2026" {
		t.Errorf("%s", text)
	}
	u := config.Users[0].User
	if e := u["exec"]; len(u) != 1 || e.Command != "gke-gcloud-auth-plugin" ||
		e.APIVersion != "client.authentication.k8s.io/v1beta1" {
		t.Errorf("credentials: %+v", u)
	}
	if got := values["registry"].StringValue(); got != "us-central1-docker.pkg.dev/acme/elasticdl-test" {
		t.Errorf("registry %s", got)
	}
	identity := values["iam.gke.io/gcp-service-account"].StringValue()
	if identity != "elasticdl-test-job@acme.iam.gserviceaccount.com" {
		t.Errorf("identity %s", identity)
	}
	if c.Login.User != "oauth2accesstoken" || c.Login.Command != "gcloud auth print-access-token" || !c.NetPolicies {
		t.Errorf("%+v", c)
	}
}

// Sections that the settings leave out are not in the cluster.
func TestLeftOut(t *testing.T) {
	all, c := record(t, little(), false)
	if c.Volume != nil || c.Identity != nil || c.GPU.NodeSelector != nil || c.GPU.DevicePlugin {
		t.Errorf("%+v", c)
	}
	for _, kind := range []string{typeRouter, typeNAT, typeFilestore, typeUser} {
		if of(all, kind) != nil {
			t.Errorf("there is a %s", kind)
		}
	}
	if c := find(t, all, typeCluster, "cluster").Inputs; c.HasValue("privateClusterConfig") ||
		c.HasValue("maintenancePolicy") || c.HasValue("nodeLocations") {
		t.Errorf("%v", c)
	}
	if l := find(t, all, typeAccount, "nodes"); of(all, typeAccount)[0].Name != l.Name ||
		len(of(all, typeAccount)) != 1 {
		t.Error("there is an account for no job")
	}
}

func find(t testing.TB, all []graph.Resource, kind, name string) *graph.Resource {
	t.Helper()
	r := graph.Find(all, kind, name)
	if r == nil {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return r
}

// of returns all resources of a type.
func of(all []graph.Resource, kind string) []graph.Resource {
	var some []graph.Resource
	for _, r := range all {
		if r.Type == kind {
			some = append(some, r)
		}
	}
	return some
}

// at returns the input at a path, such as "nodeConfig.taints[0].key", or null.
func at(t testing.TB, r *graph.Resource, path string) resource.PropertyValue {
	t.Helper()
	p, err := resource.ParsePropertyPath(path)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := p.Get(resource.NewProperty(r.Inputs))
	return v
}

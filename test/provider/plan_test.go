package provider

import (
	"maps"
	"slices"
	"strings"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

const (
	clusterKind = "gcp:container/cluster:Cluster"
	poolKind    = "gcp:container/nodePool:NodePool"
	subnetKind  = "gcp:compute/subnetwork:Subnetwork"
)

// gke creates the resources that a pool of nodes needs, and returns the cluster's ID, its inputs
// and its properties.
func (w *world) gke(location string) (id string, in, is Props) {
	w.t.Helper()
	for _, api := range []string{"compute", "container", "file", "artifactregistry", "iam"} {
		w.create("gcp:projects/service:Service", api, Props{"service": api + ".googleapis.com",
			"disableOnDestroy": false})
	}
	const node = "serviceAccount:n@x"
	w.create("gcp:projects/iAMMember:IAMMember", "logs",
		Props{"project": GoogleProject, "role": "roles/logging.logWriter", "member": node})
	w.create("gcp:artifactregistry/repositoryIamMember:RepositoryIamMember", "images",
		Props{"repository": "r", "role": "roles/artifactregistry.reader", "member": node})
	in = Props{"name": "c", "location": location, "initialNodeCount": 1, "removeDefaultNodePool": true,
		"network": "projects/p/global/networks/n", "enableL4IlbSubsetting": true}
	id, is = w.create(clusterKind, "c", in)
	return id, in, is
}

func poolOf(cluster string) Props {
	return Props{
		"name": "p", "cluster": cluster, "initialNodeCount": 1,
		"autoscaling": Props{"totalMinNodeCount": 1, "totalMaxNodeCount": 3},
		"nodeConfig": Props{"machineType": "n1-standard-4", "serviceAccount": "n@x",
			"oauthScopes": []any{"a", "b"}, "metadata": Props{"k": "v"}, "resourceLabels": Props{"stack": "s"}},
	}
}

// changed returns in with a changed value at a path; nil removes it.
func changed(in Props, value any, path ...string) Props {
	out := maps.Clone(in)
	if len(path) > 1 {
		within, _ := out[path[0]].(map[string]any)
		if within == nil {
			within = Props{}
		}
		out[path[0]] = changed(within, value, path[1:]...)
	} else if out[path[0]] = value; value == nil {
		delete(out, path[0])
	}
	return out
}

// ownLabels lists properties that GKE fills in for nodes, whose differences a stack has to ignore.
var ownLabels = []string{"nodeConfig.labels", "nodeConfig.resourceLabels", "nodeConfig.kubeletConfig"}

// Changes of a pool replace it, or do not, as in provider v5.42: machines, disks and taints do not.
func TestChangesOfPools(t *testing.T) {
	w := newWorld(t)
	cluster, _, _ := w.gke("us-central1-c")
	in := poolOf(cluster)
	_, is := w.create(poolKind, "p", in)
	is["nodeConfig"].(Props)["minCpuPlatform"] = "Intel Skylake"
	for _, test := range []struct {
		path           string
		value          any
		differs        string
		replaced, none bool
	}{
		{path: "nodeConfig.machineType", value: "n1-standard-8"},
		{path: "nodeConfig.diskType", value: "pd-ssd"},
		{path: "nodeConfig.diskSizeGb", value: 200},
		{path: "nodeConfig.taints",
			value: []any{Props{"key": "k", "value": "v", "effect": "NO_SCHEDULE"}}, differs: "nodeConfig.taints[0]"},
		{path: "autoscaling.totalMaxNodeCount", value: 5},
		{path: "networkConfig.enablePrivateNodes", value: true},
		{path: "nodeConfig.metadata.k", value: "w", replaced: true},
		{path: "nodeConfig.gvnic", value: Props{"enabled": true}, replaced: true},
		{path: "nodeConfig.spot", value: true, replaced: true},
		{path: "nodeConfig.guestAccelerators", value: []any{Props{"type": "nvidia-l4", "count": 1}},
			differs: "nodeConfig.guestAccelerators[0]", replaced: true},
		{path: "nodeConfig.oauthScopes", value: []any{"b", "a"}, none: true}, // a set
		{path: "nodeConfig.imageType", value: "cos_containerd", none: true},
		{path: "nodeConfig.spot", value: false, none: true}, // false is the default
		// Computed, and assigned by Google
		{path: "nodeConfig.minCpuPlatform", value: "", none: true},
		{path: "initialNodeCount", none: true}, // Computed
		{path: "nodeConfig.machineType", none: true},
		{path: "autoscaling", differs: "autoscaling"}, // not Computed
	} {
		d := w.diff(poolKind, in, is, changed(in, test.value, strings.Split(test.path, ".")...), ownLabels...)
		want := []string{test.path}
		if test.differs != "" {
			want = []string{test.differs}
		}
		if test.none {
			want = nil
		}
		if !slices.Equal(d.Diffs, want) || len(d.Replaces) > 0 != test.replaced {
			t.Errorf("%s to %v: differs in %v, replaced for %v", test.path, test.value, d.Diffs, d.Replaces)
		}
	}
	if problem := w.refused(poolKind, "q", changed(changed(in, 3, "nodeCount"), "q", "name")); problem != "" {
		t.Errorf("nodeCount with autoscaling: %s", problem)
	}
}

// A value that only GKE has filled in is a difference from the first plan on, if the provider's
// attribute is not Computed.
func TestFilledInCounts(t *testing.T) {
	w := newWorld(t)
	cluster, in, is := w.gke("us-central1")
	if d := w.diff(clusterKind, in, is, in); len(d.Diffs) > 0 {
		t.Errorf("nothing has changed, and the cluster differs in %v", d.Diffs)
	}
	if d := w.diff(clusterKind, in, is, changed(in, nil, "enableL4IlbSubsetting")); !slices.Equal(
		d.Replaces, []string{"enableL4IlbSubsetting"}) {
		t.Errorf("GKE turned subsetting on: replaced for %v", d.Replaces)
	}
	for _, machine := range []string{"n1-standard-4", "a3-highgpu-8g"} {
		pool := changed(changed(poolOf(cluster), machine, "nodeConfig", "machineType"), machine, "name")
		_, is := w.create(poolKind, machine, pool)
		// labels are Computed
		want, replaced := []string{"nodeConfig.kubeletConfig",
			`nodeConfig.resourceLabels["goog-gke-node-pool-provisioning-model"]`}, []string(nil)
		if machine[0] == 'a' {
			replaced = []string{"nodeConfig.ephemeralStorageLocalSsdConfig", "nodeConfig.gcfsConfig",
				"nodeConfig.localNvmeSsdBlockConfig"}
			want = append(want, replaced...)
		}
		slices.Sort(want)
		if d := w.diff(poolKind, pool, is, pool); !slices.Equal(d.Diffs, want) || !slices.Equal(d.Replaces, replaced) {
			t.Errorf("%s: differs in %v, replaced for %v", machine, d.Diffs, d.Replaces)
		}
		if d := w.diff(poolKind, pool, is, pool, append(ownLabels, replaced...)...); len(d.Diffs) > 0 {
			t.Errorf("%s: ignored, and yet %v", machine, d.Diffs)
		}
		pool["nodeConfig"].(Props)["labels"] = Props{"a": "b"}
		if d := w.diff(poolKind, pool, is, pool, "nodeConfig.resourceLabels"); !slices.Contains(d.Diffs,
			`nodeConfig.labels["goog-gke-node-pool-provisioning-model"]`) {
			t.Errorf("%s: with labels of its own it differs in %v", machine, d.Diffs)
		}
	}
}

// Differences that the provider's own code suppresses, and some that it does not.
func TestSuppressed(t *testing.T) {
	all, err := attributes()
	if err != nil {
		t.Fatal(err)
	}
	const network = "projects/p/global/networks/n"
	for _, test := range []struct {
		resource, name string
		state, now     any
		same           bool
	}{
		{"google_compute_router", "network", "https://www.googleapis.com/compute/v1/" + network, "n", true},
		{"google_compute_router", "network", "https://www.googleapis.com/compute/v1/" + network, network, true},
		{"google_compute_router", "network", network, "m", false},
		// so a Filestore would be replaced
		{"google_compute_router", "network", "n", network, false},
		{"google_compute_global_address", "addressType", "EXTERNAL", "", true},
		{"google_compute_global_address", "addressType", "EXTERNAL", "INTERNAL", false},
		{"google_artifact_registry_repository", "format", "DOCKER", "docker", true},
		{"google_project_service", "project", "projects/p", "p", true},
		{"google_project_service", "project", "projects/p", "q", false},
		{"google_container_cluster", "binaryAuthorization", Props{"enabled": false}, nil, true},
		{"google_container_cluster", "binaryAuthorization", Props{"enabled": true}, nil, false},
		{"google_container_cluster", "networkPolicy", Props{"enabled": false, "provider": ""}, nil, true},
		{"google_container_cluster", "fleet", Props{"project": "p"}, nil, false},
		{"google_container_cluster", "ipAllocationPolicy", Props{"clusterIpv4CidrBlock": "10.4.0.0/14",
			"stackType": "IPV4"}, Props{"clusterIpv4CidrBlock": "/14"}, true},
		{"google_container_cluster", "ipAllocationPolicy", Props{"clusterIpv4CidrBlock": "10.4.0.0/14",
			"stackType": "IPV4"}, Props{"clusterIpv4CidrBlock": "/16"}, false},
		{"google_container_cluster", "maintenancePolicy", window("03:00"), window("3:00"), true},
		{"google_container_cluster", "maintenancePolicy", window("03:00"), window("13:00"), false},
		{"google_artifact_registry_repository", "cleanupPolicies", []any{policy("2592000s")},
			[]any{policy("30d")}, true},
		{"google_artifact_registry_repository", "cleanupPolicies", []any{policy("2592000s")},
			[]any{policy("31d")}, false},
	} {
		state, now := Props{test.name: test.state}, Props{test.name: test.now}
		one := parts{test.name: all[test.resource][test.name]}
		d, err := diffAttributes(one, jsonic(state).(Props), wire(value(t, now)), nil)
		if err != nil || (len(d.Diffs) == 0) != test.same {
			t.Errorf("%s.%s from %v to %v: %v differ, %v", test.resource, test.name, test.state, test.now, d.Diffs, err)
		}
	}
}

func window(start string) Props {
	return Props{"dailyMaintenanceWindow": Props{"startTime": start, "duration": "PT4H"}}
}

func policy(age string) Props {
	return Props{"id": "old", "action": "DELETE", "condition": Props{"olderThan": age, "tagState": "ANY"}}
}

// Defaults are added to the inputs, also within blocks; values that the cloud will fill in are
// unknown in a preview, also within blocks.
func TestDefaultsAndUnknowns(t *testing.T) {
	w := newWorld(t)
	in, problems := w.checked(poolKind, "p",
		Props{"cluster": "c", "management": Props{"autoRepair": false}, "upgradeSettings": Props{"maxSurge": 1}})
	if problems != "" {
		t.Fatal(problems)
	}
	if m := at(in, "management").(Props); m["autoRepair"] != false || m["autoUpgrade"] != true ||
		text(in, "upgradeSettings", "strategy") != "SURGE" || in["nodeConfig"] != nil {
		t.Errorf("inputs: %v", in)
	}
	r, err := w.of(poolKind).Create(t.Context(), &pulumirpc.CreateRequest{Urn: urn(poolKind, "p"),
		Properties: value(t, in), Preview: true})
	if err != nil {
		t.Fatal(err)
	}
	out := wire(r.Properties)
	for _, path := range [][]any{{"nodeCount"}, {"nodeConfig"}, {"version"},
		{"upgradeSettings", "maxUnavailable"}, {"instanceGroupUrls"}} {
		if got := at(out, path...); got != Unknown {
			t.Errorf("in a preview %v is %v", path, got)
		}
	}
	if at(out, "upgradeSettings", "maxSurge") != 1.0 || out["autoscaling"] != nil || out["placementPolicy"] != nil {
		t.Errorf("a preview shows %v", out)
	}
	// A value that depends on an unknown one may change, and replace.
	if d := w.diff(poolKind, in, in, changed(in, Unknown, "cluster")); !slices.Equal(d.Replaces, []string{"cluster"}) {
		t.Errorf("a cluster that is not known: replaced for %v", d.Replaces)
	}
}

// Values that the cloud has assigned are kept, and a range that only a smaller value replaces may
// be enlarged.
func TestChangesOfClusters(t *testing.T) {
	w := newWorld(t)
	_, in, is := w.gke("us-central1")
	private := changed(in, Props{"enablePrivateNodes": true, "enablePrivateEndpoint": false,
		"masterIpv4CidrBlock": "172.16.0.0/28"}, "privateClusterConfig")
	_, isPrivate := w.create(clusterKind, "d", changed(private, "d", "name"))
	isPrivate["name"] = "c"
	zones := changed(in, []any{"us-central1-b", "us-central1-a"}, "nodeLocations")
	_, isInZones := w.create(clusterKind, "e", changed(zones, "e", "name"))
	isInZones["name"] = "c"
	_, isOpen := w.create(clusterKind, "f",
		changed(changed(in, networks("a", "b"), "masterAuthorizedNetworksConfig"), "f", "name"))
	isOpen["name"] = "c"
	for _, test := range []struct {
		what     string
		is, now  Props
		differs  []string
		replaced bool
	}{
		{"private nodes no more", isPrivate, in, nil, false}, // the block is Computed
		{"private nodes", is, private, []string{"privateClusterConfig.enablePrivateNodes",
			"privateClusterConfig.masterIpv4CidrBlock"}, true},
		{"any zones", isInZones, in, nil, false},
		{"zones in another order", isInZones, changed(in, []any{"us-central1-a", "us-central1-b"},
			"nodeLocations"), nil, false},
		{"another zone", isInZones,
			changed(in, []any{"us-central1-a", "us-central1-b", "us-central1-f"}, "nodeLocations"),
			[]string{"nodeLocations[2]"}, false},
		{"networks in another order", isOpen,
			changed(in, networks("b", "a"), "masterAuthorizedNetworksConfig"), nil, false},
		{"networks of others", isOpen, changed(in, networks("b", "c"), "masterAuthorizedNetworksConfig"),
			[]string{"masterAuthorizedNetworksConfig.cidrBlocks[0]",
				"masterAuthorizedNetworksConfig.cidrBlocks[1]"}, false},
		{"any networks", isOpen, in, nil, false},
		{"a label", is, changed(in, Props{"a": "b"}, "resourceLabels"), []string{"resourceLabels.a"}, false},
		{"somebody else's label", changed(is, Props{"goog-fleet-project": "1"}, "resourceLabels"), in,
			[]string{`resourceLabels["goog-fleet-project"]`}, false},
		{"a window", is, changed(in, Props{"dailyMaintenanceWindow": Props{"startTime": "03:00"}},
			"maintenancePolicy"), []string{"maintenancePolicy"}, false},
		{"a link of another form", is,
			changed(in, "https://www.googleapis.com/compute/v1/projects/p/global/networks/n", "network"), nil, false},
		{"another network", is, changed(in, "projects/p/global/networks/m", "network"), []string{"network"}, true},
		{"a description", is, changed(in, "d", "description"), []string{"description"}, true},
		// true is the default
		{"protection", is, changed(in, false, "deletionProtection"), []string{"deletionProtection"}, false},
	} {
		if d := w.diff(clusterKind, in, test.is, test.now); !slices.Equal(d.Diffs, test.differs) ||
			len(d.Replaces) > 0 != test.replaced {
			t.Errorf("%s: differs in %v, replaced for %v", test.what, d.Diffs, d.Replaces)
		}
	}
	subnet := Props{"name": "s", "network": "n", "region": "r", "ipCidrRange": "10.0.0.0/20"}
	_, is = w.create(subnetKind, "s", subnet)
	for to, replaced := range map[string]bool{"10.0.0.0/16": false, "10.0.0.0/24": true, "10.1.0.0/16": true} {
		if d := w.diff(subnetKind, subnet, is, changed(subnet, to, "ipCidrRange")); !slices.Equal(
			d.Diffs, []string{"ipCidrRange"}) || len(d.Replaces) > 0 != replaced {
			t.Errorf("a range becomes %s: differs in %v, replaced for %v", to, d.Diffs, d.Replaces)
		}
	}
	file := Props{"name": "f", "tier": "BASIC_HDD",
		"fileShares": Props{"name": "s", "capacityGb": 1024},
		"networks":   []any{Props{"network": "net", "modes": []any{"MODE_IPV4"}, "reservedIpRange": "10.97.0.0/29"}}}
	_, is = w.create("gcp:filestore/instance:Instance", "f", file)
	left := changed(file, []any{Props{"network": "net", "modes": []any{"MODE_IPV4"}}}, "networks")
	if d := w.diff("gcp:filestore/instance:Instance", file, is, left); len(d.Diffs) > 0 {
		t.Errorf("a range that is left to Google differs in %v", d.Diffs)
	}
}

// networks returns a block of networks that may reach a cluster.
func networks(names ...string) Props {
	blocks := []any{}
	for _, n := range names {
		blocks = append(blocks, Props{"cidrBlock": "192.0.2.0/24", "displayName": n})
	}
	return Props{"cidrBlocks": blocks, "gcpPublicCidrsAccessEnabled": false}
}

// An update sends the properties that differ from the state, and keeps ignored ones; Google fills
// in again what it had filled in.
func TestUpdateKeepsWhatIsThere(t *testing.T) {
	w := newWorld(t)
	cluster, _, _ := w.gke("us-central1-c")
	in := poolOf(cluster)
	id, _ := w.create(poolKind, "p", in)
	is := w.read(poolKind, "p", id, in)
	if is["nodeCount"] != 5.0 || is["version"] != laterGKE {
		t.Errorf("the autoscaler and Google's upgrade left %v nodes of %v", is["nodeCount"], is["version"])
	}
	now := changed(in, 200, "nodeConfig", "diskSizeGb")
	now = changed(now, "never", "nodeConfig", "resourceLabels", "stack")
	update := func(preview bool) Props {
		t.Helper()
		r, err := w.of(poolKind).Update(t.Context(), &pulumirpc.UpdateRequest{
			Urn: urn(poolKind, "p"), Id: id, OldInputs: value(t, in), Olds: value(t, is),
			News: value(t, now), IgnoreChanges: ownLabels, Preview: preview,
		})
		if err != nil {
			t.Fatal(err)
		}
		return wire(r.Properties)
	}
	preview, after := update(true), update(false)
	for what, got := range map[string]Props{"preview": preview, "update": after} {
		if at(got, "nodeConfig", "diskSizeGb") != 200.0 || text(got, "nodeConfig", "resourceLabels",
			"stack") != "s" || text(got, "nodeConfig", "resourceLabels", provisioningLabel) != "on-demand" {
			t.Errorf("%s: nodeConfig is %v", what, got["nodeConfig"])
		}
		if got["nodeCount"] != 5.0 || got["version"] != laterGKE || hasUnknown(got) {
			t.Errorf("%s: it is %v", what, got)
		}
	}
	if d := w.diff(poolKind, in, after, now, ownLabels...); len(d.Diffs) > 0 {
		t.Errorf("after the update it differs in %v", d.Diffs)
	}
	is, now = after, changed(now, nil, "autoscaling") // the block is not Computed
	if after = update(false); after["autoscaling"] != nil || after["nodeCount"] != 5.0 {
		t.Errorf("without autoscaling it is %v", after)
	}
	if d := w.diff(poolKind, in, after, now); !slices.Contains(d.Diffs,
		`nodeConfig.resourceLabels["goog-gke-node-pool-provisioning-model"]`) {
		t.Errorf("GKE's label is back, and it differs in %v", d.Diffs)
	}
}

// A pool of a regional cluster begins with the given number of nodes in each zone, which may be
// none.
func TestFirstNodes(t *testing.T) {
	w := newWorld(t)
	cluster, _, _ := w.gke("us-central1")
	for name, first := range map[string]any{"none": nil, "two": 2} {
		_, is := w.create(poolKind, name, changed(changed(poolOf(cluster), first, "initialNodeCount"), name, "name"))
		want, _ := jsonic(first).(float64)
		if is["nodeCount"] != want || len(list(is, "nodeLocations")) != 3 {
			t.Errorf("%s: %v nodes in each of %v", name, is["nodeCount"], is["nodeLocations"])
		}
	}
}

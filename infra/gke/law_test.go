package gke

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// want checks inputs, given as "path=value", or as "path" alone for an input that must be absent.
func want(t testing.TB, r *graph.Resource, all ...string) {
	t.Helper()
	for _, s := range all {
		path, value, given := strings.Cut(s, "=")
		v := at(t, r, path)
		if !given && !v.IsNull() || given && fmt.Sprint(v.V) != value {
			t.Errorf("%s: %s is %v, want %s", r.Name, path, v.V, cmp.Or(value, "nothing"))
		}
	}
}

func ignores(t testing.TB, r *graph.Resource, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if !slices.Contains(r.Options.IgnoreChanges, p) {
			t.Errorf("%s does not ignore changes of %s", r.Name, p)
		}
	}
}

// reaches reports whether one resource depends on another, directly or not.
func reaches(all []graph.Resource, from, to string) bool {
	kind, name, _ := strings.Cut(from, " ")
	r := graph.Find(all, kind, name)
	return r != nil && (slices.Contains(r.Options.DependsOn, to) ||
		slices.ContainsFunc(r.Options.DependsOn, func(d string) bool { return reaches(all, d, to) }))
}

// each runs a test on the resources that previews and updates request, of a stack in a zone and of
// one in a region.
func each(t *testing.T, test func(t *testing.T, s *settings.Settings, all []graph.Resource)) {
	t.Helper()
	for name, s := range map[string]*settings.Settings{"zone": configured(), "region": regional(), "little": little()} {
		for _, preview := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,preview=%t", name, preview), func(t *testing.T) {
				test(t, s, first(record(t, s, preview)))
			})
		}
	}
}

func regional() *settings.Settings {
	s := configured()
	s.GKE.Location, s.GKE.NodeZones = "us-central1", []string{"us-central1-a", "us-central1-c"}
	s.GKE.WorkerPool.Spot, s.GKE.GPUPool.Spot, s.GKE.DeletionProtection = true, true, true
	return s
}

func TestCluster(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		c := find(t, all, typeCluster, "cluster")
		want(t, c, fmt.Sprintf("deletionProtection=%t", s.GKE.DeletionProtection)) // G01
		want(t, c, "removeDefaultNodePool=true", "initialNodeCount=1")             // G02
		ignores(t, c, "initialNodeCount", "nodeConfig", "nodePools")
		// each is a difference in every plan: components come in any order, and dnsConfig is filled
		// in
		ignores(t, c, "loggingConfig.enableComponents", "monitoringConfig.enableComponents", "dnsConfig")
		if c.Options.Protect != s.GKE.DeletionProtection {
			t.Errorf("protected by Pulumi: %t", c.Options.Protect)
		}
		want(t, c, "releaseChannel.channel=REGULAR", "minMasterVersion", "nodeVersion") // G11
		// G12
		want(t, c, "datapathProvider=ADVANCED_DATAPATH", "networkPolicy", "addonsConfig.networkPolicyConfig")
		want(t, c, "workloadIdentityConfig.workloadPool=acme.svc.id.goog") // G09
		// G18
		want(t, c, "addonsConfig.gcpFilestoreCsiDriverConfig.enabled=true", "addonsConfig.dnsCacheConfig.enabled=true",
			"addonsConfig.gcePersistentDiskCsiDriverConfig.enabled=true")
		// the logs of a job's pods outlive them
		want(t, c, "loggingConfig.enableComponents[0]=SYSTEM_COMPONENTS", "loggingConfig.enableComponents[1]=WORKLOADS")
		// D12: false, the default, would replace the cluster once GKE turned it on
		want(t, c, "enableL4IlbSubsetting=true")
		want(t, c, "networkingMode=VPC_NATIVE", "enableShieldedNodes=true", "loggingService",
			"monitoringService") //
		want(t, c, "masterAuth.clientCertificateConfig.issueClientCertificate=false",
			"costManagementConfig.enabled=true") //
		want(t, c, "nodeConfig.shieldedInstanceConfig.enableSecureBoot=true", "location="+
			s.GKE.Location) //
		if !slices.Equal(c.Options.Timeouts, []string{"1h", "1h", "1h"}) || !c.Options.DeleteBeforeReplace {
			t.Errorf("options %+v", c.Options) // G20
		}
		// these are not part of the cluster resource
		for _, p := range of(all, typePool) {
			if v := at(t, &p, "cluster"); v.IsString() && v.StringValue() != "cluster-id" {
				t.Errorf("%s is of cluster %v", p.Name, v)
			}
		}
	})
}

func TestPools(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		for _, p := range of(all, typePool) {
			// G03, G11, G04
			want(t, &p, "nodeCount", "version", "management.autoUpgrade=true",
				"management.autoRepair=true", "nodeConfig.effectiveTaints")
			// G13: of all zones
			want(t, &p, "autoscaling.minNodeCount", "autoscaling.maxNodeCount", "name")
			// GKE fills these in; a provider of 2024 would revert them
			ignores(t, &p, "initialNodeCount", "nodeConfig.kubeletConfig", "nodeConfig.linuxNodeConfig",
				"nodeConfig.containerdConfig")
			// D12: goog-gke-node-pool-provisioning-model; D2: an edit rolls no node
			ignores(t, &p, "nodeConfig.labels", "nodeConfig.resourceLabels")
			// D12: would replace the pool
			ignores(t, &p, "nodeConfig.ephemeralStorageLocalSsdConfig",
				"nodeConfig.localNvmeSsdBlockConfig", "nodeConfig.gcfsConfig")
			want(t, &p, "nodeConfig.workloadMetadataConfig.mode=GKE_METADATA",
				"nodeConfig.oauthScopes[0]=https://www.googleapis.com/auth/cloud-platform")
			want(t, &p, "nodeConfig.imageType=COS_CONTAINERD", "nodeConfig.gvnic.enabled=true",
				"nodeConfig.metadata[\"disable-legacy-endpoints\"]=true", "nodeConfig.preemptible")
			want(t, &p, "nodeConfig.shieldedInstanceConfig.enableIntegrityMonitoring=true",
				fmt.Sprintf("networkConfig.enablePrivateNodes=%t", s.GKE.PrivateNodes))
			// D12: each would replace the pool if GKE filled in an empty block
			ignores(t, &p, "nodeConfig.reservationAffinity", "placementPolicy", "queuedProvisioning")
			most := at(t, &p, "autoscaling.totalMaxNodeCount").NumberValue()
			step := at(t, &p, "upgradeSettings.maxSurge").NumberValue() +
				at(t, &p, "upgradeSettings.maxUnavailable").NumberValue()
			least := time.Duration(math.Ceil(most/step)) * time.Hour
			if limits := p.Options.Timeouts; len(limits) != 3 || limits[0] != "1h" || limits[2] != "2h" ||
				duration(t, limits[1]) < least || step > 20 {
				t.Errorf("%s: an update may take %s for its evictions, timeouts are %v", p.Name, least, limits) // G20
			}
			// Resources that nodes need are created before them, and deleted after them: G07, G10,
			// and the volume.
			for _, before := range []string{typeReader + " nodes-artifactregistry.reader",
				typeRole + " nodes-logging.logWriter", typeRole + " nodes-monitoring.metricWriter"} {
				if !slices.Contains(p.Options.DependsOn, before) {
					t.Errorf("%s does not depend on %s", p.Name, before)
				}
			}
			if s.GKE.Filestore != nil && !slices.Contains(p.Options.DependsOn, typeFilestore+" filestore") {
				t.Errorf("%s goes after its volume", p.Name)
			}
			if s.GKE.PrivateNodes && !slices.Contains(p.Options.DependsOn, typeNAT+" nat") {
				t.Errorf("%s has no way out at first", p.Name)
			}
		}
		system := find(t, all, typePool, "system")
		want(t, system, "nodeConfig.taints", "nodeConfig.spot=false", "nodeConfig.guestAccelerators",
			"upgradeSettings.maxSurge=1", "upgradeSettings.maxUnavailable=0",
			"nodeConfig.shieldedInstanceConfig.enableSecureBoot=true")
	})
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Error(err)
	}
	return d
}

// GKE's own pods, which the autoscaler does not move, stay off the worker pool; pods of jobs do
// not.
func TestWorkerTaint(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		if s.GKE.WorkerPool == nil || s.GKE.WorkerPool.Spot {
			return
		}
		_, c := record(t, s, false)
		taint := at(t, find(t, all, typePool, "workers"), "nodeConfig.taints[0]").ObjectValue()
		tolerated := []job.Toleration{{Key: taint["key"].StringValue(), Operator: "Equal",
			Value: taint["value"].StringValue(), Effect: "NoSchedule"}}
		if taint["effect"].StringValue() != "NO_SCHEDULE" || !slices.Equal(c.Tolerations, tolerated) {
			t.Errorf("the taint is %v, tolerated are %v", taint, c.Tolerations)
		}
	})
	if _, c := record(t, regional(), false); c.Tolerations != nil {
		t.Errorf("spot nodes have another taint: %v", c.Tolerations)
	}
	// a worker pool that is added or removed does not change the job
	s := configured()
	s.GKE.WorkerPool = nil
	_, with := record(t, configured(), false)
	if _, c := record(t, s, false); !slices.Equal(c.Tolerations, with.Tolerations) {
		t.Errorf("without a worker pool %v is tolerated", c.Tolerations)
	}
}

func TestGPUPool(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		if s.GKE.GPUPool == nil {
			return
		}
		g := find(t, all, typePool, "gpu")
		// G04
		want(t, g, "nodeConfig.taints[0].key=nvidia.com/gpu", "nodeConfig.taints[0].value=present",
			"nodeConfig.taints[0].effect=NO_SCHEDULE", "nodeConfig.taints[1]")
		want(t, g, "nodeConfig.guestAccelerators[0].type=nvidia-tesla-t4", "nodeConfig.guestAccelerators[0].count=1")
		// G05
		want(t, g, "nodeConfig.guestAccelerators[0].gpuDriverInstallationConfig.gpuDriverVersion=DEFAULT")
		want(t, g, "upgradeSettings.maxSurge=0", "upgradeSettings.maxUnavailable=1") // G20
		want(t, g, "nodeConfig.labels[\"nvidia.com/gpu.present\"]=true",
			"autoscaling.totalMinNodeCount=0", "initialNodeCount=0", "autoscaling.locationPolicy=ANY")
		if !slices.Contains(g.Options.DependsOn, typePool+" system") {
			t.Error("the GPU pool may be the only one") // G04
		}
		if g.Options.DeleteBeforeReplace {
			t.Error("the pool with the other GPUs is deleted before these exist") // G06
		}
		for _, r := range all { // G05
			if strings.Contains(r.Type, "DaemonSet") {
				t.Errorf("Google has a device plugin; there is %s %s", r.Type, r.Name)
			}
		}
	})
	_, c := record(t, configured(), false)
	// another type of GPU must not change the job
	if c.GPU.NodeSelector[gpuLabel] != "true" || c.GPU.DevicePlugin {
		t.Errorf("%+v", c.GPU)
	}
}

// G06: another type of GPUs replaces only their pool, and nothing that other resources depend on.
func TestOtherGPU(t *testing.T) {
	other := configured()
	other.GKE.GPUPool.Accelerator, other.GKE.GPUPool.MachineType = "nvidia-l4", "g2-standard-8"
	before, after := first(record(t, configured(), false)), first(record(t, other, false))
	for i, r := range before {
		if changed := !r.Inputs.DeepEquals(after[i].Inputs); changed != (r.Name == "gpu") {
			t.Errorf("%s %s: changed is %t", r.Type, r.Name, changed)
		}
		if slices.Contains(r.Options.DependsOn, typePool+" gpu") && strings.HasPrefix(r.Type, "gcp:") {
			t.Errorf("%s %s goes with the pool", r.Type, r.Name)
		}
	}
}

// Masters and parameter servers do not tolerate the taint of spot nodes, and so do not run there.
func TestSpot(t *testing.T) {
	s := regional()
	all, c := record(t, s, false)
	w := find(t, all, typePool, "workers")
	want(t, w, "nodeConfig.spot=true", "nodeConfig.taints[0].effect=NO_SCHEDULE", "autoscaling.locationPolicy=ANY")
	taint := at(t, w, "nodeConfig.taints[0]").ObjectValue()
	tolerated := job.Toleration{Key: taint["key"].StringValue(), Operator: "Equal",
		Value: taint["value"].StringValue(), Effect: "NoSchedule"}
	if !slices.Equal(c.Workers.Tolerations, []job.Toleration{tolerated}) ||
		c.Workers.NodeSelector["cloud.google.com/gke-spot"] != "true" {
		t.Errorf("%+v are tolerated, not %v", c.Workers, taint)
	}
	if _, c := record(t, configured(), false); c.Workers != nil {
		t.Errorf("no node is spot: %+v", c.Workers)
	}
	want(t, find(t, all, typePool, "gpu"), "nodeConfig.spot=true", "nodeConfig.taints[1]")
}

// G13: numbers count the nodes of all zones together, and a regional cluster has no more nodes than
// a zonal one.
func TestTotals(t *testing.T) {
	for _, c := range []struct {
		location             string
		zones                []string
		least, most, initial int
	}{
		{"us-central1-c", nil, 3, 6, 3},
		{"us-central1", nil, 3, 6, 1},
		{"us-central1", nil, 4, 6, 2},
		{"us-central1", nil, 1, 3, 1}, // the whole pool at once
		{"us-central1", nil, 4, 5, 1}, // two in each would be too many
		{"us-central1", nil, 0, 2, 0},
		{"us-central1", []string{"us-central1-a", "us-central1-b"}, 3, 6, 2},
		{"us-central1", nil, 0, 6, 0},
	} {
		s := configured()
		s.GKE.Location, s.GKE.NodeZones, s.GKE.Filestore = c.location, c.zones, nil
		s.GKE.WorkerPool.MinNodes, s.GKE.WorkerPool.MaxNodes = c.least, c.most
		w := find(t, first(record(t, s, true)), typePool, "workers")
		want(t, w, fmt.Sprint("autoscaling.totalMinNodeCount=", c.least),
			fmt.Sprint("autoscaling.totalMaxNodeCount=", c.most), fmt.Sprint("initialNodeCount=", c.initial))
	}
}

// D7: the pool that runs the cluster's own pods has nodes in every zone from the start.
func TestRegionStarts(t *testing.T) {
	for _, zones := range [][]string{nil, {"us-central1-a"},
		{"us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"}} {
		s := regional()
		s.GKE.NodeZones = zones
		s.GKE.SystemPool.MinNodes, s.GKE.SystemPool.MaxNodes = 1, max(s.GKE.Zones(), 1)
		want(t, find(t, first(record(t, s, true)), typePool, "system"), "initialNodeCount=1", "nodeCount")
	}
}

// D7: another minimum or maximum changes the limits of the autoscaler and nothing else, so that no
// node is deleted.
func TestOtherLimits(t *testing.T) {
	other := configured()
	other.GKE.WorkerPool.MinNodes, other.GKE.WorkerPool.MaxNodes = 0, 9
	before, after := first(record(t, configured(), false)), first(record(t, other, false))
	for i, r := range before {
		diff := r.Inputs.Diff(after[i].Inputs)
		if changed := diff != nil; changed != (r.Name == "workers") {
			t.Errorf("%s %s: changed is %t", r.Type, r.Name, changed)
		}
		if diff == nil {
			continue
		}
		for _, k := range diff.Keys() {
			inPlace := append([]string{"autoscaling", "upgradeSettings"}, r.Options.IgnoreChanges...)
			if diff.Changed(k) && !slices.Contains(inPlace, string(k)) {
				t.Errorf("%s of %s changes", k, r.Name)
			}
		}
	}
}

// D2: upgrades can be excluded from a period, and the scope is always set.
func TestMaintenance(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		c := find(t, all, typeCluster, "cluster")
		if s.GKE.Maintenance == nil {
			want(t, c, "maintenancePolicy")
			return
		}
		const at = "maintenancePolicy."
		want(t, c, at+"dailyMaintenanceWindow.startTime=03:00", at+"recurringWindow",
			at+"maintenanceExclusions[0].exclusionName=year-end",
			at+"maintenanceExclusions[0].startTime=2026-12-20T00:00:00Z",
			at+"maintenanceExclusions[0].endTime=2027-01-04T00:00:00Z",
			at+"maintenanceExclusions[0].exclusionOptions.scope=NO_MINOR_OR_NODE_UPGRADES",
			at+"maintenanceExclusions[1]")
	})
	s := configured()
	s.GKE.Maintenance = &settings.Maintenance{
		Window: &settings.MaintenanceWindow{Start: "2026-12-05T02:00:00Z", End: "2026-12-05T08:00:00Z",
			Recurrence: "FREQ=WEEKLY;BYDAY=SA,SU"}}
	c := find(t, first(record(t, s, true)), typeCluster, "cluster")
	want(t, c, "maintenancePolicy.dailyMaintenanceWindow", "maintenancePolicy.maintenanceExclusions",
		"maintenancePolicy.recurringWindow.startTime=2026-12-05T02:00:00Z",
		"maintenancePolicy.recurringWindow.endTime=2026-12-05T08:00:00Z",
		"maintenancePolicy.recurringWindow.recurrence=FREQ=WEEKLY;BYDAY=SA,SU")
}

func TestNetwork(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		want(t, find(t, all, typeNetwork, "network"), "autoCreateSubnetworks=false",
			"routingMode=REGIONAL", "deleteDefaultRoutesOnCreate")
		subnet, cluster := find(t, all, typeSubnet, "subnet"), find(t, all, typeCluster, "cluster")
		// G07
		want(t, subnet, "privateIpGoogleAccess=true", "ipCidrRange=10.0.0.0/20", "region="+region(s.GKE.Location))
		// G14
		for i, path := range []string{"clusterSecondaryRangeName", "servicesSecondaryRangeName"} {
			want(t, cluster, "ipAllocationPolicy."+path+"="+
				at(t, subnet, fmt.Sprintf("secondaryIpRanges[%d].rangeName", i)).StringValue())
		}
		if p := s.GKE.PrivateNodes; p != (of(all, typeNAT) != nil) ||
			p != !at(t, cluster, "privateClusterConfig").IsNull() {
			t.Errorf("private nodes: %t, NAT: %v", p, of(all, typeNAT)) // G07
		}
		if s.GKE.PrivateNodes {
			// G08
			want(t, cluster, "privateClusterConfig.enablePrivateNodes=true",
				"privateClusterConfig.enablePrivateEndpoint=false",
				"privateClusterConfig.masterIpv4CidrBlock=172.16.0.32/28")
			want(t, find(t, all, typeNAT, "nat"), "natIpAllocateOption=AUTO_ONLY",
				"sourceSubnetworkIpRangesToNat=ALL_SUBNETWORKS_ALL_IP_RANGES", "logConfig.filter=ERRORS_ONLY")
		}
		// G08
		want(t, cluster, "masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled=false",
			"masterAuthorizedNetworksConfig.cidrBlocks[1]")
		cidr := at(t, cluster, "masterAuthorizedNetworksConfig.cidrBlocks[0].cidrBlock").StringValue()
		if p, err := netip.ParsePrefix(cidr); err != nil || p.Bits() == 0 {
			t.Errorf("%s may reach the API", cidr)
		}
	})
}

// G10: nodes have an account of their own, with only the roles that they need, granted one by one.
func TestNodeAccount(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		var roles []string
		for _, r := range all {
			if strings.Contains(strings.ToLower(r.Type), "iambinding") ||
				strings.Contains(strings.ToLower(r.Type), "iampolicy") {
				t.Errorf("%s takes roles away from others", r.Type)
			}
			if r.Type == typeRole && strings.HasPrefix(r.Name, "nodes-") {
				roles = append(roles, at(t, &r, "role").StringValue())
			}
		}
		for _, role := range []string{"roles/logging.logWriter", "roles/monitoring.metricWriter",
			"roles/monitoring.viewer", "roles/stackdriver.resourceMetadata.writer"} {
			if !slices.Contains(roles, role) {
				t.Errorf("nodes are not given %s", role)
			}
		}
		if slices.ContainsFunc(roles, func(r string) bool {
			return slices.Contains([]string{"roles/owner", "roles/editor", "roles/artifactregistry.reader"}, r)
		}) {
			t.Errorf("nodes are given %v in the project", roles)
		}
		reader := find(t, all, typeReader, "nodes-artifactregistry.reader")
		want(t, reader, "role=roles/artifactregistry.reader", "location="+region(s.GKE.Location))
		for _, r := range append(of(all, typePool), *find(t, all, typeCluster, "cluster")) {
			if !reaches(all, r.Type+" "+r.Name, typeAccount+" nodes") {
				t.Errorf("%s has another account", r.Name)
			}
		}
	})
}

// G09: the two accounts of an identity name each other.
func TestIdentity(t *testing.T) {
	for account, ksa := range map[string]string{"": "elasticdl-test-mnist", "own": "own"} {
		s := configured()
		s.Job.ServiceAccount = account
		for _, preview := range []bool{false, true} {
			all, c := record(t, s, preview)
			user := find(t, all, typeUser, "job-workloadIdentityUser")
			want(t, user, "role=roles/iam.workloadIdentityUser",
				"member=serviceAccount:acme.svc.id.goog[training/"+ksa+"]")
			if !slices.Contains(user.Options.DependsOn, typeCluster+" cluster") ||
				!slices.Contains(user.Options.DependsOn, typeAccount+" job") {
				t.Errorf("it depends on %v", user.Options.DependsOn)
			}
			if _, ok := c.Identity["iam.gke.io/gcp-service-account"]; !ok || len(c.Identity) != 1 {
				t.Errorf("annotations %v", c.Identity)
			}
			if !preview {
				want(t, user,
					"serviceAccountId=projects/acme/serviceAccounts/elasticdl-test-job@acme.iam.gserviceaccount.com")
				want(t, find(t, all, typeRole, "job-storage.objectViewer"),
					"role=roles/storage.objectViewer", "project=acme",
					"member=serviceAccount:elasticdl-test-job@acme.iam.gserviceaccount.com")
			}
		}
	}
}

func TestFilestore(t *testing.T) {
	for _, preview := range []bool{false, true} {
		all := first(record(t, configured(), preview))
		f := find(t, all, typeFilestore, "filestore")
		// G15, G17
		want(t, f, "tier=BASIC_HDD", "fileShares.name=data", "fileShares.capacityGb=1024",
			"location=us-central1-c", "zone", "protocol", "deletionProtectionEnabled")
		// G16
		want(t, f, "networks[0].network=elasticdl-test", "networks[0].modes[0]=MODE_IPV4",
			"networks[0].reservedIpRange", "networks[1]")
		ignores(t, f, "networks[0].network")
		if !f.Options.Protect || !slices.Equal(f.Options.Timeouts, []string{"1h", "1h", "1h"}) {
			t.Errorf("options %+v", f.Options) // G17, G20
		}
		// Google chooses a range that is free at that time: without the dependency it might choose
		// one that a subnet needs later.
		if !slices.Contains(f.Options.DependsOn, "gcp:compute/subnetwork:Subnetwork subnet") {
			t.Errorf("the file server is not after the ranges of the subnet: %v", f.Options.DependsOn)
		}
	}
	s := configured()
	s.ProtectStorage, s.GKE.Filestore.Range = false, "10.9.0.0/29"
	all := first(record(t, s, true))
	want(t, find(t, all, typeFilestore, "filestore"), "networks[0].reservedIpRange=10.9.0.0/29")
	for _, r := range all {
		if r.Options.Protect {
			t.Errorf("%s is protected, and should not be", r.Name)
		}
	}
}

// G19: every resource is created after the service that it needs.
func TestServices(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		for _, api := range []string{"artifactregistry", "cloudresourcemanager", "compute", "container",
			"file", "iam", "logging", "monitoring"} {
			want(t, find(t, all, typeService, api), "service="+api+".googleapis.com",
				"disableOnDestroy=false", "disableDependentServices")
			for _, r := range all {
				if strings.HasPrefix(r.Type, "gcp:") && r.Type != typeService &&
					!reaches(all, r.Type+" "+r.Name, typeService+" "+api) {
					t.Errorf("%s %s may come before %s", r.Type, r.Name, api)
				}
			}
		}
	})
}

// G21: Google accepts the names whatever the stack is called, and no name is the same for two
// stacks.
func TestNames(t *testing.T) {
	limits := map[string]struct {
		property string
		valid    *regexp.Regexp
	}{
		typeAccount:   {"accountId", regexp.MustCompile(`^[a-z]([-a-z0-9]{4,28}[a-z0-9])$`)},
		typeCluster:   {"name", regexp.MustCompile(`^[a-z]([-a-z0-9]{0,38}[a-z0-9])$`)},
		typeNetwork:   {"name", regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])$`)},
		typeSubnet:    {"name", regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])$`)},
		typeRouter:    {"name", regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])$`)},
		typeNAT:       {"name", regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])$`)},
		typeFilestore: {"name", regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])$`)},
		typeRegistry:  {"repositoryId", regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])$`)},
	}
	long := strings.Repeat("abcdefghi-", 4)
	names := map[string]string{}
	for _, stack := range []string{"gke", "g", long[:40], long[:39] + "x", long + long, "Prod", "prod",
		"a_b", "a.b", "a-b", "x-", "---"} {
		s := configured()
		s.Stack = stack
		for _, r := range first(record(t, s, true)) {
			limit, ok := limits[r.Type]
			if !ok {
				continue
			}
			name := at(t, &r, limit.property).StringValue()
			if !limit.valid.MatchString(name) {
				t.Errorf("stack %s: %s %s is called %s", stack, r.Type, r.Name, name)
			}
			if other, taken := names[r.Type+name]; taken && other != stack+r.Name {
				t.Errorf("%s %s is of %s and of %s", r.Type, name, other, stack)
			}
			names[r.Type+name] = stack + r.Name
			if !r.Options.DeleteBeforeReplace {
				t.Errorf("%s %s would be made next to another of its name", r.Type, r.Name)
			}
		}
	}
}

// P01: everything that is billed has the labels of the stack.
func TestLabels(t *testing.T) {
	all := first(record(t, configured(), true))
	// D2: with labels of its own it would keep them when those of the cluster change
	for _, p := range of(all, typePool) {
		want(t, &p, "nodeConfig.resourceLabels")
	}
	for _, path := range []string{typeCluster + " resourceLabels", typeFilestore + " labels",
		typeRegistry + " labels"} {
		kind, property, _ := strings.Cut(path, " ")
		for _, r := range of(all, kind) {
			want(t, &r, property+`.cost-center=ml`, property+`.elasticdl-stack=elasticdl-test`)
		}
	}
}

// Every resource of Google is a child of the component, no input is a secret, old images are
// deleted, and objects in the cluster are created after all pools.
func TestOptions(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		for _, r := range all {
			if strings.HasPrefix(r.Type, "gcp:") && (r.Options.Parent != "elasticdl:gke:Cluster gke" ||
				resource.NewProperty(r.Inputs).ContainsSecrets()) {
				t.Errorf("%s %s: %+v", r.Type, r.Name, r.Options)
			}
		}
		registry := find(t, all, typeRegistry, "registry")
		want(t, registry, "format=DOCKER", "cleanupPolicyDryRun=false",
			"cleanupPolicies[0].action=KEEP", "cleanupPolicies[1].action=DELETE", "location="+region(s.GKE.Location))
		if registry.Options.Protect != s.ProtectStorage {
			t.Errorf("options %+v", registry.Options)
		}
		user := find(t, all, "kubernetes:core/v1:ServiceAccount", "cluster")
		for _, p := range of(all, typePool) {
			if !slices.Contains(user.Options.DependsOn, typePool+" "+p.Name) {
				t.Errorf("what is in the cluster does not wait for %s", p.Name)
			}
		}
	})
}

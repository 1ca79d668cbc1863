package settings

import (
	"slices"
	"strings"
	"testing"
)

// Values of eks.pools and gke.pools without a mistake, and one that refers to them.
const (
	eksPool  = "{name: cheap, instanceTypes: [m6i.large, m5.large], maxNodes: 20}"
	gkePool  = "{name: cheap, machineType: n2-standard-4, maxNodes: 20}"
	eksCards = "{name: h200, instanceTypes: [p5en.48xlarge], gpus: 8, maxNodes: 2, diskGb: 500}"
)

// with returns a pool with other fields, as YAML.
func with(pool, fields string) string {
	return "[" + strings.TrimSuffix(pool, "}") + ", " + fields + "}]"
}

var auto = map[string]string{"eks.nodes": "auto", "eks.workerGroup": "", "eks.systemGroup.minNodes": "",
	"eks.systemGroup.desiredNodes": ""}

// alone has no settings of the core pool.
var alone = map[string]string{"eks.nodes": "auto", "eks.workerGroup": "", "eks.systemGroup": ""}

// autoWith returns the settings of Auto Mode, and more: paths, each with its value.
func autoWith(more ...string) map[string]string {
	with := merged(auto)
	for pair := range slices.Chunk(more, 2) {
		with[pair[0]] = pair[1]
	}
	return with
}

// groups has the value of eks.nodes that a file without it has.
var groups = map[string]string{"eks.nodes": "groups"}

var poolMistakes = []mistake{
	{cloud: "eks", path: "eks.nodes", value: "fargate", want: "fargate: expected auto, karpenter or groups"},
	{cloud: "eks", path: "eks.systemGroup.minNodes", value: "1", also: auto,
		want: "1: eks.nodes: auto: nodes come and end with pods: remove it"},
	{cloud: "eks", path: "eks.systemGroup.minNodes", value: "0",
		also: map[string]string{"eks.nodes": "karpenter", "eks.workerGroup": "", "eks.systemGroup.desiredNodes": "1"},
		want: "0: expected 1 or more: what the cluster itself runs has no other place"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "minNodes: 1"), also: auto, at: "eks.pools[0].minNodes",
		want: "1: eks.nodes: auto: nodes come and end with pods: remove it"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "onDemand: true, spot: true"), also: groups,
		at: "eks.pools[0].onDemand", want: "true: requires eks.nodes: auto or karpenter"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "idleAfter: 5m"), also: groups,
		at: "eks.pools[0].idleAfter", want: "5m: requires eks.nodes: auto or karpenter"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "onDemand: true"), also: auto,
		at: "eks.pools[0].onDemand", want: "true: goes with spot: true"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "idleAfter: 5"), also: auto,
		at: "eks.pools[0].idleAfter", want: "5: expected 30s to 24h, as 5m"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "idleAfter: 48h"), also: auto,
		at: "eks.pools[0].idleAfter", want: "48h: expected 30s to 24h, as 5m"},
	{cloud: "eks", path: "eks.pools", value: "[{instanceTypes: [m6i.large], maxNodes: 1}]", also: auto,
		at: "eks.pools[0].name", want: "missing: expected 1 to 20 lower-case letters"},
	{cloud: "eks", path: "eks.pools", value: "[" + eksPool + ", " + eksPool + "]", also: auto,
		at: "eks.pools[1].name", want: "cheap: another pool has this name"},
	{cloud: "eks", path: "eks.pools", value: "[{name: general-purpose, instanceTypes: [m6i.large], maxNodes: 1}]",
		also: auto, at: "eks.pools[0].name", want: "general-purpose: another pool has this name"},
	{cloud: "eks", path: "eks.pools", value: "[{name: core, instanceTypes: [m6i.large], maxNodes: 1, spot: true}]",
		also: alone, at: "eks.pools[0]", want: "core is for masters and parameter servers: expected neither spot"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "zones: [us-west-2z]"), also: auto,
		at: "eks.pools[0].zones[0]", want: "us-west-2z: expected a zone of eks.vpc.zones"},
	{cloud: "eks", path: "eks.pools", value: with(eksCards, "reservation: block-1"), also: auto,
		at: "eks.pools[0].reservation", want: "block-1: expected the ID of a capacity reservation"},
	{cloud: "eks", path: "eks.pools", value: with(eksCards, "capacityBlock: true"), also: auto,
		at: "eks.pools[0].capacityBlock", want: "true: requires reservation"},
	{cloud: "eks", path: "eks.pools", value: with(eksCards, "reservation: cr-0123456789abcdef0, spot: true"),
		also: auto,
		at:   "eks.pools[0].spot", want: "true: nodes of a reservation are no spot nodes"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "reservation: cr-0123456789abcdef0"), also: auto,
		at: "eks.pools[0].instanceTypes", want: "2 types: a reservation has one"},
	{cloud: "eks", path: "eks.pools", value: "[{name: arm, instanceTypes: [m7g.large], maxNodes: 2}]", also: auto,
		at:   "eks.pools[0].instanceTypes[0]",
		want: "m7g.large: an Arm machine: these are in eks.pools, with image.platforms"},
	{cloud: "eks", path: "eks.pools", value: "[{name: both, instanceTypes: [m7g.large, m6i.large], maxNodes: 2}]",
		also: autoWith("image.platforms", "[linux/amd64, linux/arm64]"), at: "eks.pools[0].instanceTypes[1]",
		want: "m6i.large: a pool has Arm machines or others, and m7g.large is first"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "taints: [{value: x}]"), also: auto,
		at: "eks.pools[0].taints[0].key", want: "missing: expected the key of a taint"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "taints: [{key: team, effect: Never}]"), also: auto,
		at: "eks.pools[0].taints[0].effect", want: "Never: expected NoSchedule, PreferNoSchedule or NoExecute"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "taints: [{key: team}, {key: team, value: x}]"), also: auto,
		at: "eks.pools[0].taints[1].key", want: "team: a taint before it has the same key and effect"},
	{cloud: "eks", path: "eks.pools",
		value: "[{name: x, instanceTypes: [m6i.large], maxNodes: 1, gpus: 1, diskGb: 200}]",
		also:  auto, at: "eks.pools[0].instanceTypes[0]", want: "m6i.large: has no GPU of NVIDIA"},
	{cloud: "eks", path: "job.worker.pool", value: "dear", also: autoWith("eks.pools", "["+eksPool+"]"),
		want: "dear: expected a pool of the stack: core or cheap"},
	{cloud: "eks", path: "job.worker.pool", value: "7", also: auto, want: "7: expected the name of a pool"},
	{cloud: "eks", path: "job.worker.pool", value: "h200", also: autoWith("eks.pools", "["+eksCards+"]"),
		want: "h200: its nodes have 8 GPUs, and the workers request none"},
	{cloud: "eks", path: "eks.pools", value: "[{name: core, instanceTypes: [m6i.large], maxNodes: 1}]", also: auto,
		at: "eks.systemGroup", want: "has no effect: eks.pools has an entry core"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "labels: {karpenter.sh/x: a}"), also: auto,
		at: `eks.pools[0].labels["karpenter.sh/x"]`, want: "labels of karpenter.sh are the cluster's own"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "labels: {elasticdl.org/pool: a}"), also: auto,
		at: `eks.pools[0].labels["elasticdl.org/pool"]`, want: "labels of elasticdl.org are the cluster's own"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "taints: [{key: elasticdl.org/pool, value: cheap}]"),
		also: auto, at: "eks.pools[0].taints[0].key", want: "taints of elasticdl.org are the cluster's own"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "taints: [{key: team}, {key: karpenter.sh/disrupted}]"),
		also: auto, at: "eks.pools[0].taints[1].key", want: "taints of karpenter.sh are the cluster's own"},
	{cloud: "eks", path: "eks.pools", value: with(eksCards, "taints: [{key: nvidia.com/gpu, value: present}]"),
		also: auto, at: "eks.pools[0].taints[0].key", want: "nvidia.com/gpu: the stack sets it on nodes with GPUs"},
	{cloud: "eks", path: "eks.pools", value: with(eksPool, "labels: {nvidia.com/gpu.present: 'true'}"), also: auto,
		at:   `eks.pools[0].labels["nvidia.com/gpu.present"]`,
		want: "nvidia.com/gpu.present: the stack sets it on nodes with GPUs"},
	{cloud: "gke", path: "gke.pools", value: "[{name: cards, machineType: g2-standard-8, accelerator: nvidia-l4, " +
		"gpus: 1, maxNodes: 1, taints: [{key: nvidia.com/gpu, effect: NoExecute}]}]",
		at: "gke.pools[0].taints[0].key", want: "nvidia.com/gpu: the stack sets it on nodes with GPUs"},
	{cloud: "gke", path: "gke.pools", value: with(gkePool, "spot: true, onDemand: true, "+
		"taints: [{key: cloud.google.com/compute-class, value: cheap}]"), at: "gke.pools[0].taints[0].key",
		want: "cloud.google.com/compute-class: the cluster sets it on nodes: remove it"},
	{cloud: "gke", path: "gke.pools", value: with(gkePool, "taints: [{key: node.kubernetes.io/unschedulable}]"),
		at: "gke.pools[0].taints[0].key", want: "taints of node.kubernetes.io are the cluster's own"},
	{cloud: "eks", path: "eks.pools", value: with(eksCards, "reservation: cr-0123456789abcdef0, capacityBlock: true"),
		also: groups, at: "eks.pools[0].zones", want: "0 zones: a capacity block is in one"},
	{cloud: "eks", path: "job.worker.pool", value: "'*'", also: autoWith("eks.pools", "["+eksPool+"]"),
		want: "*: expected a pool of the stack: core or cheap"},
	// A pod that no node has room for.
	{cloud: "eks", path: "job.worker.request", value: "{cpu: 8, memory: 64Gi}", at: "job.worker.request.cpu",
		want: "8: no node has room for it: m6i.large of eks.systemGroup, the largest on which it may be, has 2 CPUs, " +
			"of which pods may request 1930m"},
	{cloud: "eks", path: "job.master.request", value: "{cpu: 8}", at: "job.master.request.cpu", also: auto,
		want: "8: no node has room for it"},
	{cloud: "eks", path: "job.worker.limit", value: "{cpu: 2}", at: "job.worker.limit.cpu",
		also: autoWith("job.worker.request", "{memory: 1Gi}"), want: "2: no node has room for it"},
	{cloud: "eks", path: "job.worker.request.cpu", value: "5", also: autoWith("eks.pools", "["+eksPool+"]"),
		want: "5: no node has room for it: m6i.large of eks.pools[0]"},
	{cloud: "eks", path: "job.master.request.cpu", value: "6", also: merged(auto, map[string]string{
		"eks.pools": "[{name: big, instanceTypes: [m6i.8xlarge], maxNodes: 3}]", "job.worker.request.cpu": "6"}),
		want: "6: no node has room for it: m6i.large of eks.systemGroup"},
	{cloud: "eks", path: "job.worker.limit", value: "{nvidia.com/gpu: 8}",
		at: `job.worker.limit["nvidia.com/gpu"]`, want: "8: a node of eks.pools[1] has 4",
		also: autoWith("eks.pools", "["+eksCards+", {name: a10g, instanceTypes: [g5.12xlarge], gpus: 4, "+
			"maxNodes: 2, diskGb: 200}]", "job.worker.pool", "a10g")},
	{cloud: "gke", path: "job.worker.request", value: "{cpu: 64}", at: "job.worker.request.cpu",
		also: map[string]string{"job.worker.limit": ""},
		want: "64: no node has room for it: n1-standard-8 of gke.workerPool, the largest on which it may be, has 8"},
	{cloud: "gke", path: "job.ps.request.cpu", value: "7950m", also: map[string]string{"job.ps.limit": ""},
		want: "7950m: no node has room for it"},
	{cloud: "gke", path: "job.worker.request.cpu", value: "7", also: map[string]string{"job.worker.limit": "",
		"gke.pools": "[" + gkePool + "]", "job.worker.pool": "cheap"},
		want: "7: no node has room for it: n2-standard-4 of gke.pools[0]"},
	{cloud: "gke", path: "job.clusterSpecJSON",
		value: `'{"worker_pod_spec": {"resources": {"requests": {"cpu": "12"}}}}'`,
		want:  "12: no node has room for it", also: map[string]string{"job.worker.limit": ""}},

	{cloud: "minikube", path: "job.worker.pool", value: "cheap",
		want: "cheap: a stack on minikube has no pools: remove it"},

	{cloud: "gke", path: "gke.pools", value: "[{machineType: n2-standard-4, maxNodes: 1}]", at: "gke.pools[0].name",
		want: "missing: expected 1 to 20 lower-case letters"},
	{cloud: "gke", path: "gke.pools", value: "[{name: workers, machineType: n2-standard-4, maxNodes: 1}]",
		at: "gke.pools[0].name", want: "workers: another pool has this name"},
	{cloud: "gke", path: "gke.pools", value: with(gkePool, "onDemand: true"), at: "gke.pools[0].onDemand",
		want: "true: goes with spot: true"},
	{cloud: "gke", path: "gke.pools", value: with(gkePool, "zones: [us-east1-b]"), at: "gke.pools[0].zones[0]",
		want: "us-east1-b: expected a zone of us-central1"},
	{cloud: "gke", path: "gke.pools", value: with(gkePool, "reservation: Ours"), at: "gke.pools[0].reservation",
		want: "Ours: expected the name of a reservation"},
	{cloud: "gke", path: "gke.pools", value: with(gkePool, "reservation: ours, spot: true"), at: "gke.pools[0].spot",
		want: "true: nodes of a reservation are no spot nodes"},
	{cloud: "gke", path: "gke.pools", value: "[{name: arm, machineType: c4a-standard-4, maxNodes: 1}]",
		at:   "gke.pools[0].machineType",
		want: "c4a-standard-4: an Arm machine: these are in gke.pools, with image.platforms"},
	{cloud: "gke", path: "gke.pools", value: with(gkePool, "taints: [{key: 'a b'}]"), at: "gke.pools[0].taints[0].key",
		want: "a b: expected the key of a taint"},
	{cloud: "gke", path: "job.worker.pool", value: "workers", want: "workers: expected a pool of the stack: cheap",
		also: map[string]string{"gke.pools": "[" + gkePool + "]"}},
}

func init() { mistakes = append(mistakes, poolMistakes...) }

// Pools without a mistake, their values, and the pool of workers that follows from them.
func TestPools(t *testing.T) {
	arm := "{name: arm, instanceTypes: [m7g.large], maxNodes: 2}"
	for _, test := range []struct {
		name, cloud string
		with        map[string]string
		on          string // pool of the workers
		pools       string // groups and pools of the stack
	}{
		{"auto", "eks", autoWith("eks.pools", "["+eksPool+"]"), "cheap", "core cheap"},
		{"auto without pools", "eks", auto, "", "core"},
		{"the older names, in Auto Mode", "eks", merged(auto, map[string]string{
			"eks.workerGroup": "{instanceTypes: [c5.large], maxNodes: 3, spot: true}"}), "worker", "core worker"},
		{"karpenter", "eks", map[string]string{"eks.nodes": "karpenter", "eks.workerGroup": "",
			"eks.systemGroup.minNodes": "1", "eks.systemGroup.desiredNodes": "1",
			"eks.pools": "[" + eksPool + ", " + arm + "]", "image.platforms": "[linux/amd64, linux/arm64]"}, "cheap",
			"system core cheap arm"},
		{"a core of its own", "eks", merged(alone, map[string]string{
			"eks.pools": "[" + eksPool + ", {name: core, instanceTypes: [m6i.xlarge], maxNodes: 4}]"}), "cheap",
			"core cheap"},
		{"Arm is not the default", "eks", merged(auto, map[string]string{"eks.pools": "[" + arm + ", " + eksPool + "]",
			"image.platforms": "[linux/amd64, linux/arm64]"}), "cheap", "core arm cheap"},
		{"groups", "eks", merged(groups, map[string]string{"eks.pools": with(eksPool, "desiredNodes: 2"),
			"eks.workerGroup": ""}), "cheap", "system cheap"},
		{"with a worker group all stay there", "eks", merged(groups, map[string]string{"eks.pools": "[" + eksPool + "]",
			"eks.workerGroup": "{instanceTypes: [c5.large], maxNodes: 3}"}), "", "system worker cheap"},
		{"named", "eks", merged(auto, map[string]string{"eks.pools": "[" + eksCards + "]", "job.worker.pool": "h200",
			"job.worker.limit": "{nvidia.com/gpu: 8}"}), "h200", "core h200"},
		{"named on GKE", "gke", map[string]string{"gke.pools": "[" + gkePool + "]", "job.worker.pool": "cheap"},
			"cheap",
			"system workers cheap"},
	} {
		config := stack(t, test.cloud)
		setAll(t, config, test.with)
		s, err := parsed(t, config)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var names []string
		if s.GKE != nil {
			for _, of := range s.GKE.AllPools() {
				names = append(names, of.Name)
			}
		} else {
			for _, g := range slices.Concat(s.EKS.Groups(), s.EKS.NodePools()) {
				names = append(names, g.Name)
				if g.DiskGB == 0 || s.EKS.Follow() && g.Name != "system" && (g.IdleAfter != "5m" || g.MinNodes > 0) {
					t.Errorf("%s: %+v", test.name, g)
				}
			}
		}
		if on := s.WorkersOn(); on != test.on || strings.Join(names, " ") != test.pools {
			t.Errorf("%s: workers on %q of %v, want %q of %s", test.name, on, names, test.on, test.pools)
		}
	}
}

// A pool with a fallback counts once of each kind: of spot nodes and of nodes on demand.
func TestFallbackCounts(t *testing.T) {
	const (
		g6    = "{name: cards, instanceTypes: [g6.xlarge], gpus: 1, maxNodes: 3, diskGb: 200}"
		h100  = "{name: cards, instanceTypes: [p5.48xlarge], gpus: 8, maxNodes: 2, diskGb: 200}"
		x2    = "{name: other, instanceTypes: [x2iedn.xlarge], maxNodes: 2}"
		l4    = "{name: cards, machineType: g2-standard-8, accelerator: nvidia-l4, gpus: 1, maxNodes: 2}"
		b200  = "{name: cards, machineType: a4-highgpu-8g, accelerator: nvidia-b200, gpus: 8, maxNodes: 1}"
		spots = "spot: true, onDemand: "
	)
	for _, test := range []struct {
		cloud, pool string
		// of a pool without a fallback and with one, by ID
		one, two map[string]int
	}{
		{"eks", eksPool, map[string]int{"L-34B43A08": 40}, map[string]int{"L-34B43A08": 40, "L-1216C47A": 40}},
		{"eks", g6, map[string]int{"L-3819A6DF": 12}, map[string]int{"L-3819A6DF": 12, "L-DB2E81BA": 12}},
		{"eks", h100, map[string]int{"": 384}, map[string]int{"": 384, "L-417A185B": 384}},
		{"eks", x2, map[string]int{"": 8}, map[string]int{"": 16}},
		{"gke", gkePool, map[string]int{"N2_CPUS": 80, "SSD_TOTAL_GB": 2000}, map[string]int{"N2_CPUS": 160,
			"SSD_TOTAL_GB": 4000}},
		{"gke", l4, map[string]int{"PREEMPTIBLE_NVIDIA_L4_GPUS": 2, "NVIDIA_L4_GPUS": 0, "GPUS_ALL_REGIONS": 2},
			map[string]int{"PREEMPTIBLE_NVIDIA_L4_GPUS": 2, "NVIDIA_L4_GPUS": 2, "GPUS_ALL_REGIONS": 4}},
		{"gke", b200, map[string]int{"PREEMPTIBLE_NVIDIA_B200_GPUS": 8, "NVIDIA_B200_GPUS": 0},
			map[string]int{"PREEMPTIBLE_NVIDIA_B200_GPUS": 8, "NVIDIA_B200_GPUS": 8, "HDB_TOTAL_GB": 200}},
	} {
		without := quotasWith(t, test.cloud, "")
		for onDemand, want := range map[string]map[string]int{"false": test.one, "true": test.two} {
			all := quotasWith(t, test.cloud, with(test.pool, spots+onDemand))
			for id, n := range want {
				if got := all[id].Most - without[id].Most; got != n || len(all[id].Unknown) > 1 {
					t.Errorf("%s with onDemand: %s needs %d of %q more, want %d: %+v", test.pool, onDemand, got,
						id, n, all)
				}
			}
		}
	}
}

// quotasWith returns the needs of a stack with pools, by ID.
func quotasWith(t *testing.T, cloud, pools string) map[string]CloudQuota {
	t.Helper()
	config := stack(t, cloud)
	if cloud == CloudEKS {
		setAll(t, config, auto)
	}
	set(t, config, cloud+".pools", pools)
	s, err := parsed(t, config)
	if err != nil {
		t.Fatal(err)
	}
	var quotas []CloudQuota
	if s.GKE != nil {
		quotas = s.GKE.Quotas()
	} else {
		quotas = s.EKS.Quotas()
	}
	all := map[string]CloudQuota{}
	for _, q := range quotas {
		all[q.ID] = q
	}
	return all
}

// No pool of a list has the name of a pool with settings of its own, but for the core pool.
func TestPoolsWithSettingsAreReserved(t *testing.T) {
	names := map[string][]string{}
	for _, of := range (&GKE{WorkerPool: &GKEPool{}, GPUPool: &GKEPool{}}).AllPools() {
		names[CloudGKE] = append(names[CloudGKE], of.Name)
	}
	for _, nodes := range []string{NodesGroups, NodesAuto, NodesKarpenter} {
		e := &EKS{Nodes: nodes, WorkerGroup: &EKSGroup{}, GPUGroup: &EKSGroup{}}
		for _, g := range slices.Concat(e.Groups(), e.NodePools()) {
			names[CloudEKS] = append(names[CloudEKS], g.Name)
		}
	}
	for cloud, all := range names {
		for _, name := range all {
			if name != CorePool && !slices.Contains(reservedPools[cloud], name) {
				t.Errorf("%s: a pool of a list may be named %s", cloud, name)
			}
		}
		if len(all) < 3 {
			t.Errorf("%s has the pools %q", cloud, all)
		}
	}
}

// A pool of Karpenter keeps its limit when nodes are replaced, and so needs no more of a quota.
func TestPoolsKeepTheirQuota(t *testing.T) {
	s, err := parsed(t, shipped(t, CloudEKS))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range s.EKS.Quotas() {
		if q.First != 0 || q.Most != 20 || q.Rolled != 20 {
			t.Errorf("%+v", q)
		}
	}
}

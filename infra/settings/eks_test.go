package settings

import (
	"maps"
	"math"
	"os"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/demand"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// room is an amount of milli-CPUs, MiB and pods.
type room struct{ cpu, memory, pods int }

func (r room) less(o room) room { return room{r.cpu - o.cpu, r.memory - o.memory, r.pods - o.pods} }
func (r room) holds(o room) bool {
	return r.cpu >= o.cpu && r.memory >= o.memory && r.pods >= o.pods
}

// allocatable returns the amount that pods may request on a node. It subtracts what the kubelet of
// Amazon Linux 2023 reserves (6 % of the first CPU, 1 % of the second, 0.5 % of the next two, 0.25
// % of others; 255 MiB and 11 MiB per pod; 100 MiB for eviction), and the 7.5 % of memory that
// Karpenter assumes for the virtual machine.
func allocatable(t *testing.T, instanceType string) room {
	t.Helper()
	memory, pods := 0, 0
	switch instanceType {
	case "m6i.large":
		memory, pods = 8192, 29
	case "m6i.xlarge":
		memory, pods = 16384, 58
	default:
		t.Fatalf("%s: the test does not know its memory: add it", instanceType)
	}
	cpus := AmazonCPUs(instanceType)
	reserved := 60.0
	for i := 1; i < cpus; i++ {
		reserved += map[bool]float64{true: 10, false: 2.5}[i == 1]
		if i == 2 || i == 3 {
			reserved += 2.5
		}
	}
	return room{cpus*1000 - int(math.Ceil(reserved)), memory*925/1000 - 255 - 11*pods - 100, pods}
}

// requests returns what a pod requests.
func requests(spec core.PodSpec) room {
	all := demand.Requests(&spec)
	return room{int(all.Cpu().MilliValue()), int(all.Memory().Value() >> 20), 1}
}

// The job of the shipped stack fits on the nodes of its pools, with the initial and with the
// greatest number of workers. The nodes of the initial number fit into the quota of a new account.
func TestShippedJobFits(t *testing.T) {
	s, err := parsed(t, shipped(t, CloudEKS))
	if err != nil {
		t.Fatal(err)
	}
	s.Job.Image = "registry.example/test-mnist:1" // the stack builds one
	all, err := manifest.Submit(s.Job)
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.Pod(s.Job, manifest.PodSpec{ID: pod.ID{Role: pod.Worker}, Incarnation: 1}, meta.OwnerReference{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Job.MaxWorkers <= s.Job.NumWorkers {
		t.Errorf("the job cannot grow: %d workers, at most %d", s.Job.NumWorkers, s.Job.MaxWorkers)
	}
	pools := map[string]NamedGroup{}
	for _, g := range s.EKS.NodePools() {
		pools[g.Name] = g
	}
	// In Auto Mode the agents of a node are no pods.
	core := allocatable(t, pools[CorePool].InstanceTypes[0])
	if left := core.less(requests(all.Job.Spec.Template.Spec)).less(requests(all.Master.Spec)); !left.holds(room{}) {
		t.Errorf("master and launcher leave %+v of a node", left)
	}
	workers := pools[s.WorkersOn()]
	node, per := allocatable(t, workers.InstanceTypes[0]), 0
	for asks := requests(p.Spec); node.holds(asks); node = node.less(asks) {
		per++
	}
	need := func(n int) int { return (n + per - 1) / max(per, 1) }
	if per == 0 || need(s.Job.MaxWorkers) > workers.MaxNodes {
		t.Fatalf("%d workers on a node: %d do not fit on %d nodes", per, s.Job.MaxWorkers, workers.MaxNodes)
	}
	cpus := AmazonCPUs(pools[CorePool].InstanceTypes[0]) + need(s.Job.NumWorkers)*AmazonCPUs(workers.InstanceTypes[0])
	for _, q := range s.EKS.Quotas() {
		if q.First > 0 || cpus > q.NewAccount {
			t.Errorf("a new account has %d vCPUs, and the job needs %d: %+v", q.NewAccount, cpus, q)
		}
	}
}

// Needs are summed by quota, including the nodes that EKS starts while it replaces others.
func TestQuotas(t *testing.T) {
	group := func(types ...string) EKSGroup { return EKSGroup{InstanceTypes: types, DesiredNodes: 1, MaxNodes: 3} }
	e := &EKS{Region: "us-west-2", VPC: VPC{Zones: []string{"us-west-2a", "us-west-2b"}},
		SystemGroup: group("m6i.large")}
	w, g := group("c5.xlarge", "m6i.2xlarge"), group("g4dn.xlarge")
	e.WorkerGroup, e.GPUGroup = &w, &g
	got := map[string][3]int{}
	for _, q := range e.Quotas() {
		got[q.ID] = [3]int{q.First, q.Most, q.Rolled}
	}
	want := map[string][3]int{"L-1216C47A": {2 + 8, 6 + 24, 7 * (2 + 8)}, "L-DB2E81BA": {4, 12, 28}}
	if !maps.Equal(got, want) {
		t.Errorf("needs %v, expected %v", got, want)
	}
	note := e.QuotaNotes()[1]
	for _, part := range []string{"eks.gpuGroup: needs 4 vCPUs", "12 with maxNodes",
		"28 while nodes are rolled", "a new account has 0",
		"aws service-quotas get-service-quota --region us-west-2 --service-code ec2 --quota-code " +
			"L-DB2E81BA --query Quota.Value"} {
		if !strings.Contains(note, part) {
			t.Errorf("%q is not in %q", part, note)
		}
	}
	for _, test := range []struct {
		kind string
		spot bool
		code string
		each int
	}{
		{"m6i.large", false, "L-1216C47A", 2}, {"r5.4xlarge", false, "L-1216C47A", 16},
		{"g5.xlarge", false, "L-DB2E81BA", 4}, {"gr6.4xlarge", false, "L-DB2E81BA", 16},
		{"p3.2xlarge", false, "L-417A185B", 8}, {"p5.48xlarge", false, "L-417A185B", 192},
		{"p5.48xlarge", true, "", 192}, {"p3.2xlarge", true, "L-7212CCBC", 8},
		{"g4dn.xlarge", true, "L-3819A6DF", 4}, {"c5.large", true, "L-34B43A08", 2},
		{"trn1.2xlarge", false, "", 8}, {"m5.metal", false, "L-1216C47A", 0},
	} {
		if q := quotaOf(test.kind, test.spot); q.ID != test.code || AmazonCPUs(test.kind) != test.each {
			t.Errorf("%s: quota %q, %d vCPUs; expected %q, %d", test.kind, q.ID, AmazonCPUs(test.kind),
				test.code, test.each)
		}
	}
	e.GPUGroup.InstanceTypes, e.WorkerGroup.InstanceTypes = []string{"trn1.2xlarge"}, []string{"m5.metal"}
	all := e.QuotaNotes()
	if text := all[0]; !strings.Contains(text, "and those of m5.metal") {
		t.Error(text)
	}
	if text := all[1]; !strings.Contains(text, "list-service-quotas") {
		t.Error(text)
	}
}

// The section for GPUs that the stack's file has as a comment is valid when "# " is removed.
func TestGPUsOfTheShippedFile(t *testing.T) {
	s, err := parsed(t, completed(uncommented(t, "../../stacks/Pulumi.eks.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.EKS.Pools) != 2 || s.EKS.Pools[1].InstanceTypes[0] != "g4dn.xlarge" ||
		s.Job.Worker.Limit["nvidia.com/gpu"] != "1" || s.WorkersOn() != "cards" {
		t.Errorf("GPUs are %+v, of a worker %+v", s.EKS.Pools, s.Job.Worker)
	}
}

// uncommented returns a stack's file with its section for GPUs uncommented.
func uncommented(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	within := 0
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "      # - name: cards"):
			within = 4
		case strings.Contains(line, "# limit: {nvidia.com/gpu: 1}"):
			within = 1
		}
		if within > 0 {
			line = strings.Replace(line, "# ", "", 1)
			within--
		}
		lines = append(lines, line)
	}
	var stack struct{ Config map[string]any }
	if err := yaml.UnmarshalStrict([]byte(strings.Join(lines, "")), &stack); err != nil {
		t.Fatal(err)
	}
	return stack.Config
}

// The size of an instance type determines its number of GPUs.
func TestCardsOfAmazon(t *testing.T) {
	sizes := map[string]int{"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1,
		"12xlarge": 4, "24xlarge": 4, "48xlarge": 8, "metal": 8}
	want := map[string]int{"p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "p3dn.24xlarge": 8,
		"p4d.24xlarge": 8, "p4de.24xlarge": 8, "p5.48xlarge": 8, "p5e.48xlarge": 8, "p5en.48xlarge": 8}
	for size, n := range sizes {
		for _, family := range []string{"g4dn", "g5", "g6", "g6e"} {
			if largest := size == "24xlarge" || size == "48xlarge"; family == "g4dn" && !largest ||
				family != "g4dn" && size != "metal" {
				want[family+"."+size] = n
			}
		}
	}
	if !maps.Equal(gpus, want) {
		t.Errorf("types have\n%v, want\n%v", gpus, want)
	}
}

// The limit of a pool is that of nodes of its largest type, and none if the size of any is unknown.
func TestMaxCPUs(t *testing.T) {
	for want, types := range map[int][][]string{
		24: {{"m6i.2xlarge"}, {"m6i.2xlarge", "m6i.large"}, {"m6i.large", "m6i.2xlarge", "m6i.xlarge"}},
		0:  {{"m6i.metal"}, {"m6i.2xlarge", "m6i.metal"}, {"m6i.metal", "m6i.2xlarge"}},
	} {
		for _, of := range types {
			if got := (&EKSGroup{InstanceTypes: of, MaxNodes: 3}).MaxCPUs(); got != want {
				t.Errorf("three of %v have %d CPUs, want %d", of, got, want)
			}
		}
	}
}

// A new account may have a few vCPUs of common machines, and none with GPUs. Source: Amazon's page
// on the quotas of instances.
func TestNewAccount(t *testing.T) {
	for _, spot := range []bool{false, true} {
		for kind, want := range map[string]int{"m6i.large": 5, "g5.xlarge": 0, "p3.2xlarge": 0} {
			if q := quotaOf(kind, spot); q.NewAccount != want {
				t.Errorf("%s, spot %v: %d vCPUs, want %d", kind, spot, q.NewAccount, want)
			}
		}
	}
}

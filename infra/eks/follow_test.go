package eks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/karpenter"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/test/place"
)

// following returns the settings of a stack whose nodes follow the pods.
func following(how string) *settings.Settings {
	s := own()
	s.EKS.Nodes, s.EKS.WorkerGroup, s.EKS.GPUGroup = how, nil, nil
	s.EKS.SystemGroup.DiskGB = 100
	if how == settings.NodesAuto {
		s.EKS.SystemGroup.MinNodes, s.EKS.SystemGroup.DesiredNodes = 0, 0
	}
	s.EKS.Pools = []settings.EKSPool{
		{Name: "cheap", EKSGroup: settings.EKSGroup{InstanceTypes: []string{"m6i.large", "m5.xlarge"}, MaxNodes: 20,
			Spot: true, OnDemand: true, DiskGB: 50, Zones: []string{"us-west-2a"}, IdleAfter: "90s",
			Labels: map[string]string{"tier": "cheap"}}},
		{Name: "h200", EKSGroup: settings.EKSGroup{InstanceTypes: []string{"p5en.48xlarge"}, MaxNodes: 2, GPUs: 8,
			DiskGB: 500, Reservation: "cr-0123456789abcdef0", CapacityBlock: true, IdleAfter: "1h"},
			Taints: []settings.Taint{{Key: "team", Value: "vision", Effect: "NoExecute"}}},
		{Name: "arm", EKSGroup: settings.EKSGroup{InstanceTypes: []string{"m7g.large"}, MaxNodes: 5, DiskGB: 30,
			IdleAfter: "5m"}},
	}
	return s
}

// objects returns the charts and objects that make nodes as text. Values that the engine fills in
// are placeholders in it.
func objects(t *testing.T, v *view) string {
	t.Helper()
	var b strings.Builder
	for _, c := range v.cluster.Charts {
		text, err := yaml.Marshal(map[string]any{"chart": c.Chart, "version": c.Version, "namespace": c.Namespace,
			"values": c.Values})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\n%s---\n", c.Name, text)
	}
	for _, o := range v.cluster.Nodes {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\n%s---\n", o.Name, text)
	}
	return b.String()
}

// The objects of both kinds of pools.
func TestGoldenPools(t *testing.T) {
	for _, how := range []string{settings.NodesAuto, settings.NodesKarpenter} {
		v, err := record(following(how), false)
		if err != nil {
			t.Fatal(err)
		}
		graph.GoldenText(t, "pools-"+how+".txt", objects(t, v))
	}
}

// In Auto Mode there is no group, no addon but the driver of EFS, and the three parts of the mode
// together; the cluster's role may tag nodes, and names the role of the nodes.
func TestAutoMode(t *testing.T) {
	v, err := record(following(settings.NodesAuto), false)
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Concat(
		count(v.of("aws:eks/nodeGroup:NodeGroup"), 0), count(v.of("aws:eks/addon:Addon"), 1),
		count(v.of("aws:ec2/launchTemplate:LaunchTemplate"), 0))
	cluster := v.named("aws:eks/cluster:Cluster", "cluster")[0]
	for _, path := range []string{"computeConfig.enabled", "storageConfig.blockStorage.enabled",
		"kubernetesNetworkConfig.elasticLoadBalancing.enabled"} {
		wrong = append(wrong, is(cluster, path, "true")...)
	}
	wrong = append(wrong, is(cluster, "computeConfig.nodeRoleArn",
		"arn:aws:iam::"+account+":role/elasticdl-test-auto-node")...)
	var has []string
	for _, r := range v.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment") {
		has = append(has, r.Name)
		wrong = append(wrong, v.waitIf(strings.HasPrefix(r.Name, "cluster-") || strings.HasPrefix(r.Name, "auto-node-"),
			cluster, r)...)
	}
	for _, policy := range autoPolicies {
		if !slices.Contains(has, "cluster-"+policy) {
			wrong = append(wrong, "the cluster's role lacks "+policy)
		}
	}
	if !slices.Contains(has, "auto-node-AmazonEKSWorkerNodeMinimalPolicy") ||
		slices.ContainsFunc(has, func(name string) bool { return strings.HasSuffix(name, "_CNI_Policy") }) {
		wrong = append(wrong, fmt.Sprintf("the nodes' role has %v", has))
	}
	// nodes end before their way out, and, by objects of their own, before the mounts of their
	// files
	wrong = append(wrong, v.wait([]*graph.Resource{cluster}, v.named("aws:ec2/route:Route",
		"private-us-west-2a")...)...)
	if c := v.cluster; c.GPU.DevicePlugin || c.Resource != nil || len(c.Charts) > 0 {
		wrong = append(wrong, fmt.Sprintf("%+v", c))
	}
	s := following(settings.NodesAuto)
	s.EKS.EFS = nil
	if v, err := record(s, false); err != nil || v.cluster.Resource == nil {
		wrong = append(wrong, "without files the objects end with the cluster")
	}
	for _, w := range slices.Concat(wrong, v.missing) {
		t.Error(w)
	}
}

// Nodes are named by their pool. Other tags would replace all nodes of a pool: they are kept,
// unless the user wants them.
func TestTagsOfPools(t *testing.T) {
	for _, how := range []string{settings.NodesAuto, settings.NodesKarpenter} {
		for _, labelled := range []bool{false, true} {
			s, classes := following(how), 0
			s.EKS.LabelNodes = labelled
			v, err := record(s, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range v.cluster.Nodes {
				if !strings.HasPrefix(o.Name, "class-") {
					continue
				}
				class := o.Object.(*unstructured.Unstructured).Object
				name, _, _ := unstructured.NestedString(class, "spec", "tags", "Name")
				if want := "elasticdl-test-" + strings.TrimPrefix(o.Name, "class-"); name != want {
					t.Errorf("%s: nodes of %s are named %q, want %s", how, o.Name, name, want)
				}
				if classes++; slices.Contains(o.Kept, "spec.tags") == labelled {
					t.Errorf("%s, labelNodes %t: %s keeps %v", how, labelled, o.Name, o.Kept)
				}
			}
			if classes != len(s.EKS.NodePools()) {
				t.Errorf("%s: %d classes of %d pools", how, classes, len(s.EKS.NodePools()))
			}
		}
	}
}

// Nodes of a pool have the capacity that its settings name, those of a reservation no other.
func TestCapacity(t *testing.T) {
	s := following(settings.NodesKarpenter)
	spot := s.EKS.Pools[0]
	spot.Name, spot.OnDemand = "spot", false
	s.EKS.Pools = append(s.EKS.Pools, spot)
	want := map[string]string{"core": "[on-demand]", "cheap": "[spot on-demand]", "h200": "[reserved]",
		"arm": "[on-demand]", "spot": "[spot]"}
	for _, of := range NodePools(s.EKS, karpenter.EC2) {
		if fmt.Sprint(of.Capacity) != want[of.Name] {
			t.Errorf("%s has %v, want %s", of.Name, of.Capacity, want[of.Name])
		}
		delete(want, of.Name)
	}
	if len(want) > 0 {
		t.Errorf("there is no pool of %v", want)
	}
}

// waitIf returns what is wrong if r does not wait for on, where it should.
func (v *view) waitIf(should bool, r, on *graph.Resource) []string {
	if !should {
		return nil
	}
	return v.wait([]*graph.Resource{r}, on)
}

// Karpenter has rights on what it has made for this cluster, and on nothing else that can be
// changed; it runs on the nodes of the system group; and nodes that it has made end before the
// cluster does.
func TestKarpenterRights(t *testing.T) {
	v, err := record(following(settings.NodesKarpenter), false)
	if err != nil {
		t.Fatal(err)
	}
	var policy struct{ Statement []statement }
	text := text(v.named("aws:iam/rolePolicy:RolePolicy", "karpenter")[0], "policy")
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		t.Fatal(err, text)
	}
	for _, s := range policy.Statement {
		reads := !slices.ContainsFunc(s.Action, func(a string) bool {
			_, verb, _ := strings.Cut(a, ":")
			return !strings.HasPrefix(verb, "Describe") && !strings.HasPrefix(verb, "Get") &&
				!strings.HasPrefix(verb, "List")
		})
		all := slices.ContainsFunc(s.Resource, func(r string) bool { return strings.HasSuffix(r, "*") })
		condition, _ := json.Marshal(s.Condition)
		switch {
		case slices.Contains(s.Action, "iam:PassRole"): // to instances only
			if fmt.Sprint(s.Resource) != "[arn:aws:iam::"+account+":role/elasticdl-test-node]" ||
				string(condition) != `{"StringEquals":{"iam:PassedToService":"ec2.amazonaws.com"}}` {
				t.Errorf("%v on %v with %s", s.Action, s.Resource, condition)
			}
		case reads || !all:
		case slices.Equal(s.Action, []string{"iam:CreateServiceLinkedRole"}):
			if string(condition) != `{"StringEquals":{"iam:AWSServiceName":"spot.amazonaws.com"}}` {
				t.Errorf("%v with %s", s.Action, condition)
			}
		case s.Condition == nil: // of others, that a new instance uses
			for i, r := range s.Resource {
				s.Resource[i] = r[strings.LastIndex(r, ":")+1:]
			}
			const want = "[image/* snapshot/* security-group/* subnet/* capacity-reservation/*]"
			if fmt.Sprint(s.Resource) != want ||
				fmt.Sprint(s.Action) != "[ec2:RunInstances ec2:CreateFleet]" {
				t.Errorf("%v on %v without a condition", s.Action, s.Resource)
			}
		case slices.Contains(s.Action, "ec2:CreateTags") && !strings.Contains(string(condition),
			`"ec2:CreateAction":["RunInstances","CreateFleet","CreateLaunchTemplate"]`) && !strings.Contains(
			string(condition), `"aws:TagKeys":["eks:eks-cluster-name","karpenter.sh/nodeclaim","Name"]`):
			t.Errorf("it may give its tag to what it has not made: %s", condition)
		case !strings.Contains(string(condition), "kubernetes.io/cluster/elasticdl-test"):
			t.Errorf("%v on %v without a condition on this cluster: %s", s.Action, s.Resource, condition)
		}
	}
	is := v.named("aws:eks/podIdentityAssociation:PodIdentityAssociation", "karpenter")
	wrong := slices.Concat(v.wait(is, v.named("aws:iam/rolePolicy:RolePolicy", "karpenter")...),
		v.wait(is, v.named("aws:eks/nodeGroup:NodeGroup", "system")...), count(v.of("aws:eks/nodeGroup:NodeGroup"), 1))
	if !slices.Contains(v.ready, "aws:eks/podIdentityAssociation:PodIdentityAssociation karpenter") {
		wrong = append(wrong, fmt.Sprint("its identity is not among ", v.ready))
	}
	if c := v.cluster; c.Resource != nil || !c.GPU.DevicePlugin || len(c.Charts) != 2 {
		wrong = append(wrong, fmt.Sprintf("%+v", c))
	}
	for _, w := range slices.Concat(wrong, v.missing) {
		t.Error(w)
	}
}

// Karpenter hears of each node that Amazon takes back, and only from the rule of its own stack.
func TestNotices(t *testing.T) {
	v, err := record(following(settings.NodesKarpenter), false)
	if err != nil {
		t.Fatal(err)
	}
	pattern := text(v.named("aws:cloudwatch/eventRule:EventRule", "notices")[0], "eventPattern")
	for _, notice := range []string{"aws.ec2", "aws.health", "EC2 Spot Instance Interruption Warning",
		"EC2 Instance Rebalance Recommendation", "EC2 Instance State-change Notification",
		"EC2 Capacity Reservation Instance Interruption Warning", "AWS Health Event"} {
		if !strings.Contains(pattern, `"`+notice+`"`) {
			t.Errorf("it does not hear of %s: %s", notice, pattern)
		}
	}
	const policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
		`"Principal":{"Service":"events.amazonaws.com"},"Action":["sqs:SendMessage"],` +
		`"Resource":["arn:aws:sqs:us-west-2:` + account + `:elasticdl-test-notices"],"Condition":{"ArnEquals":` +
		`{"aws:SourceArn":"arn:aws:events:us-west-2:` + account + `:rule/elasticdl-test-notices"}}}]}`
	for _, problem := range slices.Concat(is(v.named("aws:sqs/queuePolicy:QueuePolicy", "notices")[0], "policy",
		policy), v.missing) {
		t.Error(problem)
	}
}

// Workers select the pool that job.worker.pool names, or else the first without GPUs; and tolerate
// its taints, and no others.
func TestPlacesOfWorkers(t *testing.T) {
	for _, how := range []string{settings.NodesAuto, settings.NodesKarpenter, settings.NodesGroups} {
		for named, want := range map[string]string{
			"":     "map[elasticdl.org/pool:cheap] elasticdl.org/pool=cheap:NoSchedule",
			"arm":  "map[elasticdl.org/pool:arm] elasticdl.org/pool=arm:NoSchedule",
			"h200": "map[elasticdl.org/pool:h200] team=vision:NoExecute",
		} {
			s := following(how)
			s.WorkerPool = named
			if how == settings.NodesGroups {
				s.EKS.Pools[0].OnDemand = false
			}
			if named == "h200" {
				s.Job.Worker.Limit = map[string]string{"nvidia.com/gpu": "8"}
			}
			v, err := record(s, false)
			if err != nil {
				t.Fatal(err)
			}
			of := v.workers
			if of == nil {
				t.Fatalf("%s, %s: no nodes", how, named)
			}
			all := []string{fmt.Sprint(of.NodeSelector)}
			for _, o := range of.Tolerations {
				all = append(all, fmt.Sprintf("%s=%s:%s", o.Key, o.Value, o.Effect))
			}
			if got := strings.Join(all, " "); got != want {
				t.Errorf("%s, %q: %s, want %s", how, named, got, want)
			}
		}
	}
}

// Pods of a job fit on nodes of the stack, whatever pools there are: they select labels that the
// nodes of some pool have, and tolerate all its taints.
func TestPodsFitSomePool(t *testing.T) {
	gpu := map[string]string{"nvidia.com/gpu": "1"}
	taint := []settings.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
	of := func(name, kind string, gpus int, taints []settings.Taint) settings.EKSPool {
		return settings.EKSPool{Name: name, Taints: taints, EKSGroup: settings.EKSGroup{InstanceTypes: []string{kind},
			GPUs: gpus, MaxNodes: 2, DiskGB: 100}}
	}
	lists := [][]settings.EKSPool{nil, {of("a", "m6i.large", 0, nil)}, {of("a", "m6i.large", 0, taint)},
		{of("c", "g6.xlarge", 1, taint), of("a", "m6i.large", 0, taint)}, {of("r", "m7g.large", 0, nil)},
		{of("c", "g6.xlarge", 1, nil), of("d", "p5.48xlarge", 8, taint)}}
	for _, how := range []string{settings.NodesAuto, settings.NodesKarpenter, settings.NodesGroups} {
		for i, pools := range lists {
			for _, cards := range []bool{false, true} {
				for _, older := range []bool{false, true} {
					s := following(how)
					s.EKS.Pools = pools
					if s.Job.Worker.Limit = nil; cards {
						s.Job.Worker.Limit = gpu
					}
					if older {
						s.EKS.WorkerGroup, s.EKS.GPUGroup = own().EKS.WorkerGroup, own().EKS.GPUGroup
					}
					v, err := record(s, false)
					if err != nil {
						t.Fatal(err)
					}
					all := slices.Concat(s.EKS.Groups(), s.EKS.NodePools())
					if cards && !slices.ContainsFunc(all, func(g settings.NamedGroup) bool { return g.GPUs > 0 }) {
						continue // the settings refuse such a job
					}
					var nodes []place.Node
					for _, g := range all {
						nodes = append(nodes, place.Node{Labels: labelsOf(g), Taints: taintsOf(g, how), GPUs: g.GPUs})
					}
					placed, err := trainingjob.Placed(s.Job, v.cluster, s.WorkerPool)
					if err != nil {
						t.Fatal(err)
					}
					for _, role := range []string{"master_pod_spec", "worker_pod_spec"} {
						if why := place.Unplaced(placed, role, cards && role == "worker_pod_spec", nodes); why != "" {
							t.Errorf("%s, pools %d, GPUs %v, older groups %v: %s: %s", how, i, cards, older, role, why)
						}
					}
				}
			}
		}
	}
}

// A cluster in Auto Mode does not leave it, and one that turns to it has no NetworkPolicies
// meanwhile.
func TestAutoStays(t *testing.T) {
	s := own()
	auto := func(token string, args, result resource.PropertyMap) {
		switch token {
		case "aws:eks/getClusters:getClusters":
			result["names"] = resource.NewPropertyValue([]any{"elasticdl-test"})
		case "aws:eks/getCluster:getCluster":
			result["computeConfigs"] = resource.NewPropertyValue([]any{map[string]any{"enabled": true}})
		}
	}
	if _, err := record(s, true, auto); err == nil || !strings.Contains(err.Error(), "has Auto Mode") {
		t.Error(err)
	}
	s = following(settings.NodesAuto)
	groups := func(token string, args, result resource.PropertyMap) {
		if auto(token, args, result); token == "aws:eks/getCluster:getCluster" {
			delete(result, "computeConfigs")
		}
	}
	s.Platform.NetworkPolicy = true
	if _, err := record(s, true, groups); err == nil || !strings.Contains(err.Error(),
		"set it to false for this update") {
		t.Error(err)
	}
}

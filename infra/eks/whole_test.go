package eks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/elasticdl/elasticdl/infra/karpenter"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// policies are the inputs with policies, by type of resource.
var policies = map[string]string{inlineType: "policy", roleType: "assumeRolePolicy",
	"aws:sqs/queuePolicy:QueuePolicy": "policy"}

// emptyPart returns the path of a part of a policy that is empty, or "".
func emptyPart(path string, part any) string {
	switch is := part.(type) {
	case nil:
		return path
	case string:
		if is == "" {
			return path
		}
	case []any:
		for i, one := range is {
			if wrong := emptyPart(fmt.Sprintf("%s[%d]", path, i), one); wrong != "" {
				return wrong
			}
		}
		if len(is) == 0 {
			return path
		}
	case map[string]any:
		for key, one := range is {
			if wrong := emptyPart(path+"."+key, one); wrong != "" {
				return wrong
			}
		}
		if len(is) == 0 {
			return path
		}
	}
	return ""
}

// wholeLaws has laws of all resources of a kind.
var wholeLaws = []law{
	{"E28 each statement of each policy allows actions, and has no empty part", func(v *view) (wrong []string) {
		for kind, input := range policies {
			for _, r := range v.of(kind) {
				if v.preview && text(r, input) == "(unknown)" {
					continue
				}
				var policy struct{ Statement []map[string]any }
				if err := json.Unmarshal([]byte(text(r, input)), &policy); err != nil || len(policy.Statement) == 0 {
					wrong = append(wrong, fmt.Sprintf("%s %s: %v, %v", kind, r.Name, policy.Statement, err))
				}
				for i, s := range policy.Statement {
					// Amazon refuses it, or a condition without a value never holds
					empty := emptyPart(fmt.Sprintf("statement %d", i), s)
					if actions, _ := s["Action"].([]any); empty != "" || s["Effect"] != "Allow" || len(actions) == 0 ||
						(kind == roleType) != (s["Resource"] == nil) ||
						(kind == inlineType) != (s["Principal"] == nil) {
						wrong = append(wrong, fmt.Sprintf("%s %s: %v: empty: %q", kind, r.Name, s, empty))
					}
				}
			}
		}
		return wrong
	}, func(v *view) {
		may := v.named(inlineType, "job")[0]
		set(may, "policy", strings.ReplaceAll(text(may, "policy"), "s3:GetObject", ""))
	}},

	{"E29 each part of a cluster names the cluster", func(v *view) (wrong []string) {
		name := text(v.named(clusterType, "cluster")[0], "name")
		for i := range v.all {
			if r := &v.all[i]; strings.HasPrefix(r.Type, "aws:eks/") && r.Type != clusterType {
				wrong = append(wrong, is(r, "clusterName", name)...)
			}
		}
		return wrong
	}, func(v *view) { set(v.named(addonType, "coredns")[0], "clusterName", "other") }},

	{"E30 who has an entry of access has its rights", func(v *view) (wrong []string) {
		for _, e := range v.of(entryType) {
			may := v.named(mayType, e.Name)[0]
			wrong = append(wrong, is(may, "principalArn", text(e, "principalArn"))...)
			wrong = append(wrong, is(may, "policyArn",
				"arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy")...)
			wrong = append(wrong, is(may, "accessScope.type", "cluster")...)
		}
		return wrong
	}, func(v *view) { set(v.named(mayType, "creator")[0], "principalArn", "arn:aws:iam::1:user/other") }},

	{"E31 instances, disks and network interfaces, which are billed, have the stack's labels",
		func(v *view) (wrong []string) {
			for _, l := range v.of(launchType) {
				for i, kind := range []string{"instance", "volume", "network-interface"} {
					path := fmt.Sprintf("tagSpecifications[%d].", i)
					wrong = append(wrong, is(l, path+"resourceType", kind)...)
					wrong = append(wrong, is(l, path+"tags.Name", "elasticdl-test-"+l.Name)...)
					for label, want := range v.s.Labels {
						wrong = append(wrong, is(l, path+`tags["`+label+`"]`, want)...)
					}
				}
			}
			return wrong
		}, func(v *view) { unset(v.named(launchType, "gpu")[0], "tagSpecifications[0].tags.team") }},

	{"E32 Kubernetes wants a size of each volume", func(v *view) (wrong []string) {
		if gb := v.cluster.Volume.CapacityGB; gb < 1 {
			wrong = append(wrong, fmt.Sprintf("the volume has %d GB", gb))
		}
		return wrong
	}, func(v *view) { v.cluster.Volume.CapacityGB = 0 }},

	{"E33 the network is in one VPC, and S3 is reached within the region", func(v *view) (wrong []string) {
		vpc := "network-id"
		if v.s.EKS.VPC.ID != "" {
			vpc = v.s.EKS.VPC.ID
		}
		for _, kind := range []string{subnetType, sgType, "aws:ec2/routeTable:RouteTable",
			"aws:ec2/internetGateway:InternetGateway", "aws:ec2/vpcEndpoint:VpcEndpoint"} {
			for _, r := range v.of(kind) {
				wrong = append(wrong, is(r, "vpcId", vpc)...)
			}
		}
		for _, r := range v.of("aws:ec2/vpcEndpoint:VpcEndpoint") {
			wrong = append(wrong, is(r, "serviceName", "com.amazonaws.us-west-2.s3")...)
		}
		return wrong
	}, func(v *view) { unset(v.named(subnetType, "private-us-west-2a")[0], "vpcId") }},

	{"E34 no bucket can be made public", func(v *view) (wrong []string) {
		for _, r := range v.of("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock") {
			for _, path := range []string{"blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls",
				"restrictPublicBuckets"} {
				wrong = append(wrong, is(r, path, "true")...)
			}
		}
		return wrong
	}, func(v *view) {
		set(v.named("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "code")[0], "ignorePublicAcls", false)
	}},
}

// Storage that the settings do not protect is deleted with the stack, also if it is full.
func TestUnprotected(t *testing.T) {
	s := own()
	s.ProtectStorage = false
	v, err := record(s, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range laws {
		if strings.HasPrefix(l.name, "E16") || strings.HasPrefix(l.name, "E21") {
			for _, wrong := range append(l.check(v), v.missing...) {
				t.Error(wrong)
			}
		}
	}
}

// Every object that makes nodes has a version, a kind and a name. A NodePool whose class changes
// its kind is replaced, as Karpenter refuses that change.
func TestObjectsOfNodes(t *testing.T) {
	for _, how := range []string{settings.NodesAuto, settings.NodesKarpenter} {
		s := following(how)
		v, err := record(s, false)
		if err != nil {
			t.Fatal(err)
		}
		pools := 0
		for _, o := range v.cluster.Nodes {
			u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			meta, _ := u["metadata"].(map[string]any)
			if empty := emptyPart("", map[string]any{"apiVersion": u["apiVersion"], "kind": u["kind"],
				"name": meta["name"]}); empty != "" {
				t.Errorf("%s: %s has no %s", how, o.Name, empty)
			}
			if u["kind"] != "NodePool" {
				continue
			}
			pools++
			if len(o.Options) != 1 || o.Options[0] == nil {
				t.Errorf("%s: %s does not warn of quotas before it is made", how, o.Name)
			}
			if want := []string{"spec.template.spec.nodeClassRef.group",
				"spec.template.spec.nodeClassRef.kind"}; !slices.Equal(o.Fixed, want) {
				t.Errorf("%s: %s is replaced when %v change, not %v", how, o.Name, o.Fixed, want)
			}
		}
		if pools != len(s.EKS.NodePools()) {
			t.Errorf("%s: %d pools", how, pools)
		}
	}
}

// Nodes of a pool have the processors of its instance types, and those of the core pool are not
// moved.
func TestArchOfPools(t *testing.T) {
	for _, of := range NodePools(following(settings.NodesKarpenter).EKS, karpenter.EC2) {
		want := "amd64"
		if of.Name == "arm" {
			want = "arm64"
		}
		if of.Arch != want {
			t.Errorf("%s is %s, want %s", of.Name, of.Arch, want)
		}
		if of.Core != (of.Name == settings.CorePool) {
			t.Errorf("%s is core: %t", of.Name, of.Core)
		}
	}
}

// The nodes of a group with a block of capacity are bought in its market: EKS takes their type from
// the template alone.
func TestGroupOfACapacityBlock(t *testing.T) {
	s := following(settings.NodesGroups)
	s.EKS.Pools[0].OnDemand = false
	v, err := record(s, false)
	if err != nil {
		t.Fatal(err)
	}
	g, l := v.named(groupType, "h200")[0], v.named(launchType, "h200")[0]
	for _, wrong := range [][]string{is(g, "capacityType", "CAPACITY_BLOCK"), is(g, "instanceTypes", "<none>"),
		is(l, "instanceType", "p5en.48xlarge"), is(l, "instanceMarketOptions.marketType", "capacity-block"),
		is(l, "capacityReservationSpecification.capacityReservationTarget.capacityReservationId",
			"cr-0123456789abcdef0"), v.missing} {
		for _, problem := range wrong {
			t.Error(problem)
		}
	}
}

// A group that is as the settings want it is not touched, in a VPC of the stack and in another; one
// that has more nodes than it may have is named in the error.
func TestGroupStays(t *testing.T) {
	for _, vpc := range []settings.VPC{{CIDR: "10.0.0.0/16", Zones: []string{"us-west-2c", "us-west-2a"}},
		{ID: "vpc-1", PrivateSubnets: []string{"subnet-c", "subnet-a"}, PublicSubnets: []string{"subnet-d"}}} {
		for _, nodes := range []float64{1, 3} {
			s := own()
			s.EKS.VPC, s.EKS.GPUGroup.MaxNodes = vpc, 3
			live := func(token string, args, result resource.PropertyMap) {
				for k, v := range answers(token, args) {
					if result[k].IsNull() || vpc.ID == "" {
						result[k] = v
					}
				}
				if sizes := result["scalingConfigs"]; sizes.IsArray() {
					sizes.ArrayValue()[0].ObjectValue()["desiredSize"] = resource.NewProperty(nodes)
				}
			}
			v, err := record(s, true, live)
			if err != nil {
				t.Fatal(err)
			}
			if ignored := v.named(groupType, "gpu")[0].Options.IgnoreChanges; !slices.Contains(ignored,
				"scalingConfig.desiredSize") {
				t.Errorf("%+v: a group that stays is scaled: ignored are %v", vpc, ignored)
			}
			s.EKS.GPUGroup.MaxNodes = 2
			const want = "maxNodes: 2: the group gpu-1 has 3 nodes"
			if _, err = record(s, true, live); nodes > 2 != (err != nil && strings.Contains(err.Error(), want)) {
				t.Errorf("%+v, %v nodes: %v", vpc, nodes, err)
			}
		}
	}
}

// The policy that the error about a missing right of nodes names is one that nodes of a stack have.
func TestPoliciesThatNodesNeed(t *testing.T) {
	var has []string
	for _, how := range []string{settings.NodesAuto, settings.NodesKarpenter} {
		v, err := record(following(how), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range v.of(attachType) {
			if strings.HasPrefix(r.Name, "node-") || strings.HasPrefix(r.Name, "auto-node-") {
				has = append(has, strings.TrimPrefix(text(r, "policyArn"), "arn:aws:iam::aws:policy/"))
			}
		}
	}
	for _, n := range nodesNeed {
		if !slices.Contains(has, n.policy) {
			t.Errorf("%s is named for %s: nodes have %v", n.policy, n.action, has)
		}
	}
}

// Nodes of a group are spot nodes, which may be taken back, only if the settings have it.
func TestSpotGroup(t *testing.T) {
	for spot, want := range map[bool]string{true: "SPOT", false: "ON_DEMAND"} {
		s := own()
		s.EKS.WorkerGroup.Spot = spot
		v, err := record(s, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range is(v.named(groupType, settings.WorkerGroup)[0], "capacityType", want) {
			t.Error(wrong)
		}
	}
}

// Auto Mode ends each node within 21 days, so its pools drain them in time; Karpenter has no such
// limit, and nodes of the pools end when they are empty only.
func TestAgeOfNodes(t *testing.T) {
	for how, want := range map[string]string{settings.NodesAuto: "480h",
		settings.NodesKarpenter: "Never"} {
		v, err := record(following(how), false)
		if err != nil {
			t.Fatal(err)
		}
		text := objects(t, v)
		pools := strings.Count(text, "kind: NodePool")
		if n := strings.Count(text, "expireAfter: "); pools == 0 || n != pools {
			t.Errorf("%s: %d pools, and %d say when nodes expire", how, pools, n)
		}
		for line := range strings.Lines(text) {
			if _, age, ok := strings.Cut(strings.TrimSpace(line), "expireAfter: "); ok && age != want {
				t.Errorf("%s: nodes expire after %s, want %s", how, age, want)
			}
		}
	}
}

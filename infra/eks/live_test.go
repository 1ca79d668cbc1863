package eks

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// The program requests the number of nodes that run, unless only the setting of that number has
// changed.
func TestDesired(t *testing.T) {
	two, three := []string{"us-west-2a", "us-west-2c"}, []string{"us-west-2a", "us-west-2c", "us-west-2d"}
	others := []string{"us-west-2a", "us-west-2d"}
	is := func(min, desired, max int) group {
		return group{id: "worker-1", name: "worker", types: []string{"m6i.large"}, min: min,
			desired: desired, max: max, places: two}
	}
	several := is(1, 5, 9)
	several.types = []string{"m6i.large", "m5.large"}
	other := is(0, 5, 9)
	other.types, other.id = []string{"g4dn.xlarge"}, "worker-2"
	for _, test := range []struct {
		name     string
		live     []group
		min, max int
		types    string
		spot     bool
		places   []string
		want     int
		ignored  bool
		wrong    string
	}{
		{"nothing yet", nil, 0, 3, "m6i.large", false, two, 2, true, ""},
		{"another group", []group{{name: "gpu", desired: 7, max: 9}}, 0, 3, "m6i.large", false, two, 2, true, ""},
		{"nothing changes", []group{is(0, 0, 3)}, 0, 3, "m6i.large", false, two, 2, true, ""},
		{"scaled to 0, more at most", []group{is(0, 0, 3)}, 0, 5, "m6i.large", false, two, 0, false, ""},
		{"scaled up, more at most", []group{is(0, 3, 3)}, 0, 5, "m6i.large", false, two, 3, false, ""},
		{"scaled to 0, more at least", []group{is(0, 0, 3)}, 1, 3, "m6i.large", false, two, 1, false, ""},
		{"scaled up, fewer at least", []group{is(2, 3, 3)}, 0, 3, "m6i.large", false, two, 3, false, ""},
		{"fewer at most", []group{is(0, 3, 5)}, 0, 3, "m6i.large", false, two, 3, false, ""},
		{"fewer at most than run", []group{is(0, 4, 5)}, 0, 3, "m6i.large", false, two, 0, false,
			"eks.workerGroup.maxNodes: 3: the group worker-1 has 4 nodes"},
		{"another type", []group{is(0, 0, 3)}, 0, 3, "m6i.xlarge", false, two, 0, false, ""},
		{"spot", []group{is(0, 3, 3)}, 0, 3, "m6i.large", true, two, 3, false, ""},
		{"a zone more", []group{is(0, 1, 3)}, 0, 3, "m6i.large", false, three, 1, false, ""},
		{"another zone in place of one", []group{is(0, 5, 9)}, 0, 9, "m6i.large", false, others, 5, false, ""},
		{"another order of types", []group{several}, 1, 9, "m5.large m6i.large", false, two, 5, false, ""},
		{"the same order of types", []group{several}, 1, 9, "m6i.large m5.large", false, two, 2, true, ""},
		{"a predecessor that is still there", []group{is(0, 1, 3), other}, 0, 3, "m6i.large", false, two, 2, true, ""},
		{"a predecessor that is still there, first", []group{other, is(0, 1, 3)}, 0, 4, "m6i.large",
			false, two, 1, false, ""},
	} {
		l := &live{groups: test.live}
		want := settings.NamedGroup{Name: "worker", Path: "eks.workerGroup", EKSGroup: &settings.EKSGroup{
			InstanceTypes: strings.Fields(test.types), Spot: test.spot, MinNodes: test.min, DesiredNodes: 2,
			MaxNodes: test.max,
		}}
		n, ignored, err := l.desired(want, test.places)
		if fmt.Sprint(err) == "<nil>" != (test.wrong == "") || err != nil &&
			!strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v, expected %q", test.name, err, test.wrong)
		}
		if n != test.want || ignored != test.ignored {
			t.Errorf("%s: %d nodes, ignored %v; expected %d, %v", test.name, n, ignored, test.want, test.ignored)
		}
	}
}

// A group that replaces one with nodes warns that all of these are drained at once.
func TestReplacedGroup(t *testing.T) {
	zones := []string{"us-west-2a", "us-west-2c"}
	is := group{id: "worker-1", name: "worker", types: []string{"m6i.large"}, places: zones, max: 9, desired: 5}
	empty := is
	empty.desired = 0
	for _, test := range []struct {
		name   string
		is     group
		want   settings.EKSGroup
		places []string
		warns  bool
	}{
		{"the same", is, settings.EKSGroup{InstanceTypes: is.types, MaxNodes: 4}, zones, false},
		{"another type", is, settings.EKSGroup{InstanceTypes: []string{"m5.large"}}, zones, true},
		{"spot", is, settings.EKSGroup{InstanceTypes: is.types, Spot: true}, zones, true},
		{"one more zone", is, settings.EKSGroup{InstanceTypes: is.types}, append(zones, "us-west-2d"), true},
		{"no nodes", empty, settings.EKSGroup{InstanceTypes: []string{"m5.large"}}, zones, false},
	} {
		l := &live{groups: []group{test.is}}
		got := l.replaced(settings.NamedGroup{Name: "worker", Path: "eks.workerGroup", EKSGroup: &test.want},
			test.places)
		warns := strings.Contains(got, "drains all 5 of the old group at once")
		if warns != test.warns || !warns && got != "" {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

// An update of a group may take as long as the eviction of the pods of all its nodes.
func TestUpdateTime(t *testing.T) {
	for maxNodes := 1; maxNodes <= 450; maxNodes++ {
		update := updateConfig(maxNodes)
		for nodes := 1; nodes <= maxNodes; nodes++ {
			step := 1
			if update.MaxUnavailable == nil {
				step = max(1, nodes*33/100)
			}
			if least := time.Duration((nodes+step-1)/step) * evictionLimit; updateTime(maxNodes) < least {
				t.Fatalf("maxNodes %d: %s for %d nodes, which may take %s", maxNodes, updateTime(maxNodes), nodes,
					least)
			}
		}
		if updateTime(maxNodes) > 3*time.Hour {
			t.Errorf("maxNodes %d: %s", maxNodes, updateTime(maxNodes))
		}
	}
}

// answers returns the simulated answers of an account that has the stack's cluster.
func answers(token string, args resource.PropertyMap) resource.PropertyMap {
	switch token {
	case "aws:eks/getClusters:getClusters":
		return props("id", "x", "names", []any{"elasticdl-test"})
	case "aws:eks/getCluster:getCluster":
		return props("id", "x", "name", "elasticdl-test", "vpcConfig",
			props("subnetIds", []any{"subnet-a", "subnet-c"}))
	case "aws:ec2/getSubnet:getSubnet":
		zone := strings.TrimPrefix(args["id"].StringValue(), "subnet-")
		return props("id", args["id"], "vpcId", "vpc-1", "availabilityZone", "us-west-2"+zone,
			"cidrBlock", map[string]string{"a": "10.0.32.0/19", "c": "10.0.224.0/22"}[zone])
	case "aws:eks/getNodeGroups:getNodeGroups":
		return props("id", "x", "clusterName", "elasticdl-test", "names", []any{"by-hand", "gpu-1", "gpu-0"})
	case "aws:eks/getNodeGroup:getNodeGroup":
		name, status := args["nodeGroupName"].StringValue(), "ACTIVE"
		tag := map[string]string{"gpu-1": "elasticdl-test-gpu", "gpu-0": "elasticdl-test-gpu"}[name]
		if name == "gpu-0" {
			status = "DELETING"
		}
		size := props("minSize", 0.0, "maxSize", 3.0, "desiredSize", 0.0)
		return props("id", "x", "nodeGroupName", name, "status", status, "capacityType", "ON_DEMAND",
			"tags", props("Name", tag),
			"instanceTypes", []any{"g4dn.xlarge"}, "subnetIds", []any{"subnet-a", "subnet-c"}, "scalingConfigs",
			resource.NewProperty([]resource.PropertyValue{resource.NewProperty(size)}))
	}
	return nil
}

// denied simulates an account whose user may not call a function.
type denied struct{ token string }

func (denied) NewResource(r pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	return r.Name, r.Inputs, nil
}

func (d denied) Call(c pulumi.MockCallArgs) (resource.PropertyMap, error) {
	if strings.HasSuffix(c.Token, ":"+d.token) {
		return nil, errors.New("AccessDeniedException")
	}
	result := call(c.Token, c.Args)
	maps.Copy(result, answers(c.Token, c.Args))
	return result, nil
}

// If a look-up is denied, the error names the missing right and what it is needed for.
func TestLookUpDenied(t *testing.T) {
	for token, want := range map[string]string{
		"getClusters": "list the clusters of us-west-2 (eks:ListClusters, needed so that no change " +
			"sets back the number of nodes",
		"getCluster":    "look up the cluster elasticdl-test (eks:DescribeCluster, ",
		"getSubnet":     "look up the subnet subnet-a of cluster elasticdl-test (ec2:DescribeSubnets, ",
		"getNodeGroups": "list the node groups of cluster elasticdl-test (eks:ListNodegroups, ",
		"getNodeGroup":  "look up the node group by-hand of cluster elasticdl-test (eks:DescribeNodegroup, ",
	} {
		err := pulumi.RunErr(func(ctx *pulumi.Context) error {
			_, err := NewCluster(ctx, "eks", OfStack(own()))
			return err
		}, pulumi.WithMocks(graph.Project, graph.Stack, denied{token}))
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "AccessDeniedException") {
			t.Errorf("%s: %v, expected %s", token, err, want)
		}
	}
}

// Existing parts of the stack are found: groups of other names and groups that are being deleted do
// not count, and a zone cannot be removed.
func TestLookUps(t *testing.T) {
	answer := func(token string, args resource.PropertyMap, result resource.PropertyMap) {
		maps.Copy(result, answers(token, args))
	}
	v, err := record(own(), true, answer)
	if err != nil { // maxNodes is 4, and was 3
		t.Fatal(err)
	}
	gpu := v.named(groupType, "gpu")[0]
	for _, wrong := range append(is(gpu, "scalingConfig.desiredSize", "0"),
		is(v.named(groupType, "system")[0], "scalingConfig.desiredSize", "2")...) {
		t.Error(wrong)
	}
	if len(gpu.Options.IgnoreChanges) > 0 {
		t.Errorf("ignored: %v", gpu.Options.IgnoreChanges)
	}
	s := own()
	s.EKS.VPC.Zones = []string{"us-west-2a", "us-west-2b"}
	v, err = record(s, true, answer)
	for _, want := range []string{"eks.vpc.zones[0]: us-west-2a has the range 10.0.32.0/19",
		"eks.vpc.zones: us-west-2c is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
	if len(v.all) > 0 {
		t.Errorf("%d resources were asked for before", len(v.all))
	}
}

// A zone that is missing or misplaced is reported once, although its subnet also has the range of
// another zone.
func TestZonesStay(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/16")
	is := &live{}
	for i, zone := range []string{"a", "b"} {
		private, public := subnetRange{zone, privateRange(cidr, i)}, subnetRange{zone, publicRange(cidr, i)}
		is.control, is.nodes = append(is.control, private, public), append(is.nodes, private)
	}
	for zones, want := range map[string][]string{
		"a b": nil, "a b c": nil,
		"c b":   {"eks.vpc.zones: a is missing"},
		"b a":   {"eks.vpc.zones[1]: a has the range", "eks.vpc.zones[0]: b has the range"},
		"c a b": {"eks.vpc.zones[1]: a has the range", "eks.vpc.zones[2]: b has the range"},
	} {
		var got []string
		if err := is.check(settings.VPC{CIDR: cidr.String(), Zones: strings.Fields(zones)}); err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", zones, got, want)
		}
	}
}

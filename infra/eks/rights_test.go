package eks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Karpenter may make each thing that a node is made of, and tag it: without one of them, no node
// starts.
func TestKarpenterMakesNodes(t *testing.T) {
	v, err := record(following(settings.NodesKarpenter), false)
	if err != nil {
		t.Fatal(err)
	}
	var policy struct{ Statement []statement }
	if err := json.Unmarshal([]byte(text(v.named(inlineType, "karpenter")[0], "policy")), &policy); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateTags"} {
		var may []string
		for _, s := range policy.Statement {
			if slices.Contains(s.Action, action) {
				may = append(may, s.Resource...)
			}
		}
		for _, kind := range []string{"fleet", "instance", "volume", "network-interface", "launch-template",
			"spot-instances-request"} {
			if want := "arn:aws:ec2:us-west-2:*:" + kind + "/*"; !slices.Contains(may, want) {
				t.Errorf("%s is not allowed on %s: %v", action, want, may)
			}
		}
	}
}

// Each open place of an object that makes nodes is filled: else nodes have, for example, no
// security group by which they reach the cluster.
func TestHolesOfNodes(t *testing.T) {
	for _, how := range []string{settings.NodesAuto, settings.NodesKarpenter} {
		v, err := record(keyed(how), false)
		if err != nil {
			t.Fatal(err)
		}
		classes := 0
		for _, o := range v.cluster.Nodes {
			if !strings.HasPrefix(o.Name, "class-") {
				continue
			}
			classes++
			for _, hole := range []string{holeGroup, holeIdentity, holeKey, "{subnet-0}"} {
				in := o.Holes[hole]
				if out, ok := in.(pulumi.StringOutput); in == nil || ok && out.OutputState == nil {
					t.Errorf("%s: %s: nothing is in %s", how, o.Name, hole)
				}
			}
		}
		if classes == 0 {
			t.Errorf("%s: there is no class", how)
		}
	}
}

// Commands of the stack, as the login to the registry, use the provider's profile: another identity
// may have no access.
func TestProfileOfCommands(t *testing.T) {
	s := own()
	for _, profile := range []string{"", "team.a"} {
		s.EKS.Profile = profile
		v, err := record(s, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.cluster.Environment["AWS_PROFILE"]; got != profile {
			t.Errorf("profile %q: commands have %q", profile, got)
		}
		if got := strings.HasSuffix(v.cluster.Login.Command, " --profile '"+profile+"'"); got != (profile != "") {
			t.Errorf("profile %q: %s", profile, v.cluster.Login.Command)
		}
	}
}

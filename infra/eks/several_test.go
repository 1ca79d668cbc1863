package eks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// several returns the resources of two clusters of one program, each with two jobs.
func several(t *testing.T, change func(name string, args *ClusterArgs)) []graph.Resource {
	t.Helper()
	all, err := graph.Record(graph.Cloud{Call: call, Outputs: outputs, Config: map[string]string{
		"aws:region": "us-west-2"}}, func(ctx *pulumi.Context) error {
		for _, name := range []string{"blue", "green"} {
			s := own()
			args := &ClusterArgs{ClusterArgs: infra.ClusterArgs{Platform: settings.Platform{Namespace: "training"},
				Images: []string{"digits", "fashion"}}, EKS: *s.EKS}
			change(name, args)
			c, err := NewCluster(ctx, name, args)
			if err != nil {
				return err
			}
			for _, j := range []string{"digits", "digits-data"} {
				of := infra.Account{Job: j, Namespace: "training", Name: "elasticdl-" + j}
				if _, err := c.Identify("job-"+j, of); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Clusters of one program, and their jobs, share no name: neither in the program nor in the
// account.
func TestSeveralClusters(t *testing.T) {
	for _, how := range []string{settings.NodesGroups, settings.NodesKarpenter, settings.NodesAuto} {
		graph.Apart(t, several(t, func(_ string, args *ClusterArgs) {
			args.Nodes = how
			if how != settings.NodesGroups {
				for _, g := range []*settings.EKSGroup{args.WorkerGroup, args.GPUGroup} {
					g.MinNodes, g.DesiredNodes = 0, 0
				}
			}
			if how == settings.NodesAuto {
				args.SystemGroup.MinNodes, args.SystemGroup.DesiredNodes = 0, 0
			}
		}), "bucket", "name")
	}
}

// A network of the program gets no VPC and no subnet of the cluster's own, and its subnets get the
// nodes and the mount targets; the control plane has the public ones, too.
func TestNetworkOfTheProgram(t *testing.T) {
	all := several(t, func(name string, args *ClusterArgs) {
		args.VPC = settings.VPC{}
		args.Network = &Network{VPC: pulumi.String("vpc-" + name), Private: []Subnet{
			{"us-west-2a", pulumi.String(name + "-a")}, {"us-west-2b", pulumi.String(name + "-b")}},
			Public: pulumi.StringArray{pulumi.String(name + "-p")}}
		args.Key = pulumi.String("key-" + name).ToStringOutput()
	})
	for _, kind := range []string{"aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway"} {
		for _, r := range all {
			if r.Type == kind {
				t.Errorf("%s %s is made", kind, r.Name)
			}
		}
	}
	for _, name := range []string{"blue", "green"} {
		want := fmt.Sprint(resource.NewPropertyValue([]any{name + "-a", name + "-b"}))
		for kind, path := range map[string]resource.PropertyKey{groupType: "subnetIds"} {
			if got := fmt.Sprint(graph.Find(all, kind, name+"-system").Inputs[path]); got != want {
				t.Errorf("%s: subnets %s, want %s", name, got, want)
			}
		}
		control := graph.Find(all, clusterType, name+"-cluster")
		if want := "[{" + name + "-a} {" + name + "-b} {" + name + "-p}]"; len(is(control, "vpcConfig.subnetIds",
			want)) > 0 {
			t.Errorf("%s: %s has %v, want %s", name, control.Name, control.Inputs, want)
		}
		if got := graph.Find(all, fileType, name+"-data").Inputs["kmsKeyId"]; got.V != "key-"+name {
			t.Errorf("%s: the files have the key %v", name, got)
		}
		if graph.Find(all, mountType, name+"-data-us-west-2b") == nil {
			t.Errorf("%s has no mount target in its second zone", name)
		}
	}
}

// Arguments that are missing, or given twice, are refused before anything is requested.
func TestWrongArguments(t *testing.T) {
	twice := &ClusterArgs{Network: &Network{}}
	twice.VPC = settings.VPC{ID: "vpc-1"}
	keys := &ClusterArgs{Key: pulumi.String("a")}
	keys.KMSKey = "b"
	for want, args := range map[string]*ClusterArgs{"blue:eks.vpc: ": twice, "blue:eks.kmsKey: ": keys,
		"aws:region: missing": nil} {
		all, err := graph.Record(graph.Cloud{Call: call}, func(ctx *pulumi.Context) error {
			_, err := NewCluster(ctx, "blue", args)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) || len(all) > 0 {
			t.Errorf("%v and %d resources, want %s", err, len(all), want)
		}
	}
}

// ofProvider makes one cluster by a provider of the program, and returns its resources.
func ofProvider(t *testing.T, change func(*ClusterArgs)) ([]graph.Resource, error) {
	t.Helper()
	return graph.Record(graph.Cloud{Call: call, Outputs: outputs, Called: func(token, provider string) {
		if !strings.HasSuffix(provider, " office") {
			t.Errorf("%s goes to the provider %q", token, provider)
		}
	}}, func(ctx *pulumi.Context) error {
		office, err := aws.NewProvider(ctx, "office", &aws.ProviderArgs{Region: pulumi.String("us-west-2")})
		if err != nil {
			return err
		}
		args := &ClusterArgs{ClusterArgs: infra.ClusterArgs{Platform: settings.Platform{Namespace: "training"}},
			EKS: *own().EKS}
		change(args)
		_, err = NewCluster(ctx, "green", args, pulumi.Provider(office))
		return err
	})
}

// All of a cluster is looked up and made by the provider that it is given, whose region has to be
// that of the arguments.
func TestProviderOfTheProgram(t *testing.T) {
	all, err := ofProvider(t, func(*ClusterArgs) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if strings.HasPrefix(r.Type, "aws:") && !strings.HasSuffix(r.Options.Provider, " office") {
			t.Errorf("%s %s is made by the provider %q", r.Type, r.Name, r.Options.Provider)
		}
	}
	all, err = ofProvider(t, func(args *ClusterArgs) {
		args.Region, args.VPC.Zones = "eu-west-1", []string{"eu-west-1a", "eu-west-1b"}
	})
	const want = "green: EKS.Region is eu-west-1, and the provider's us-west-2: "
	if err == nil || !strings.Contains(err.Error(), want) || len(all) != 1 {
		t.Errorf("%d resources, %v", len(all), err)
	}
}

package gke

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// several returns the resources of two clusters of one program, each with two jobs.
func several(t *testing.T, change func(name string, args *ClusterArgs)) []graph.Resource {
	t.Helper()
	all, err := graph.Record(graph.Cloud{Call: call, Outputs: google}, func(ctx *pulumi.Context) error {
		for _, name := range []string{"blue", "green"} {
			s := configured()
			args := &ClusterArgs{ClusterArgs: infra.ClusterArgs{Budget: s.Budget,
				Platform: settings.Platform{Namespace: "training", Queue: s.Platform.Queue}}, GKE: *s.GKE}
			args.Project = "acme-vision"
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
// project.
func TestSeveralClusters(t *testing.T) {
	graph.Apart(t, several(t, func(string, *ClusterArgs) {}), "accountId", "name", "repositoryId")
}

// A network of the program is used, and the cluster makes no other.
func TestNetworkOfTheProgram(t *testing.T) {
	all := several(t, func(name string, args *ClusterArgs) {
		args.Ranges = settings.GKERanges{Master: args.Ranges.Master}
		args.Network = &Network{Network: pulumi.String("vpc-" + name), Subnetwork: pulumi.String("subnet-" + name),
			Name: pulumi.String(name), Pods: "p", Services: "s"}
		args.Key, args.Filestore.Tier = pulumi.String("key-"+name).ToStringOutput(), "ZONAL"
	})
	for _, name := range []string{"blue", "green"} {
		want(t, find(t, all, typeCluster, name+"-cluster"), "network=vpc-"+name, "subnetwork=subnet-"+name,
			"ipAllocationPolicy.clusterSecondaryRangeName=p", "databaseEncryption.keyName=key-"+name)
	}
	for _, r := range all {
		if r.Type == "gcp:compute/network:Network" || r.Type == "gcp:compute/routerNat:RouterNat" {
			t.Errorf("%s %s is made", r.Type, r.Name)
		}
	}
}

// Arguments that are missing, or given twice, are refused before anything is requested.
func TestWrongArguments(t *testing.T) {
	twice := &ClusterArgs{Network: &Network{}}
	twice.Subnet = &settings.GKESubnet{}
	keys := &ClusterArgs{Key: pulumi.String("a")}
	keys.KMSKey = "b"
	unfit := &ClusterArgs{GKE: *configured().GKE, Key: pulumi.String("a")}
	unfit.Bucket = &settings.GKEBucket{Bucket: settings.Bucket{}, Location: "eu"}
	for want, args := range map[string]*ClusterArgs{"blue:gke.subnet: ": twice,
		"blue:gke.kmsKey: the arguments have a Key, too": keys,
		"blue:gke.filestore.tier: ":                      unfit, "blue:gke.bucket.kmsKey: missing": unfit,
		"gcp:project: missing": nil} {
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
	return graph.Record(graph.Cloud{Call: call, Outputs: google, Called: func(token, provider string) {
		if !strings.HasSuffix(provider, " office") {
			t.Errorf("%s goes to the provider %q", token, provider)
		}
	}}, func(ctx *pulumi.Context) error {
		office, err := gcp.NewProvider(ctx, "office", &gcp.ProviderArgs{Project: pulumi.String("acme-vision")})
		if err != nil {
			return err
		}
		args := &ClusterArgs{ClusterArgs: infra.ClusterArgs{Platform: settings.Platform{Namespace: "training"}},
			GKE: *configured().GKE}
		args.Project = "acme-vision"
		change(args)
		_, err = NewCluster(ctx, "green", args, pulumi.Provider(office))
		return err
	})
}

// All of a cluster is looked up and made by the provider that it is given, whose project has to be
// that of the arguments.
func TestProviderOfTheProgram(t *testing.T) {
	all, err := ofProvider(t, func(*ClusterArgs) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if strings.HasPrefix(r.Type, "gcp:") && !strings.HasSuffix(r.Options.Provider, " office") {
			t.Errorf("%s %s is made by the provider %q", r.Type, r.Name, r.Options.Provider)
		}
	}
	all, err = ofProvider(t, func(args *ClusterArgs) { args.Project = "acme-robots" })
	const want = "green: GKE.Project is acme-robots, and the provider's acme-vision: "
	if err == nil || !strings.Contains(err.Error(), want) || len(all) != 1 {
		t.Errorf("%d resources, %v", len(all), err)
	}
}

// Command clusters is a Pulumi program that uses the packages of the stacks as a library: a cluster
// on Google and one on Amazon, with three jobs.
package main

import (
	"fmt"
	"strconv"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/eks"
	"github.com/elasticdl/elasticdl/infra/gke"
	"github.com/elasticdl/elasticdl/infra/live"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error { return clusters(ctx, live.Reader{}) })
}

// office may reach the Kubernetes APIs.
var office = []settings.Network{{CIDR: "198.51.100.0/24", Name: "office"}}

// clusters registers all of it, by a reader of what is in a cluster before it is changed.
func clusters(ctx *pulumi.Context, reader infra.Live) error {
	project, _ := ctx.GetConfig("gcp:project") // NewCluster says what is missing
	region, _ := ctx.GetConfig("aws:region")
	emptied, _ := ctx.GetConfig("clusters:deleteStorage")
	training := settings.Platform{Namespace: "training", NetworkPolicy: true}
	blue, err := gke.NewCluster(ctx, "blue", &gke.ClusterArgs{
		ClusterArgs: infra.ClusterArgs{Platform: training, Labels: map[string]string{"team": "vision"},
			DeleteStorage: emptied == "true"},
		GKE: settings.GKE{
			Project: project, Location: "us-central1-c", PrivateNodes: true,
			AuthorizedNetworks: office,
			Pools: []settings.GKENamedPool{{Name: "cheap", OnDemand: true, GKEPool: settings.GKEPool{
				MachineType: "n2-standard-4", Spot: true, MaxNodes: 8}}},
			Bucket: &settings.GKEBucket{},
		},
	})
	if err != nil {
		return err
	}
	green, err := eks.NewCluster(ctx, "green", &eks.ClusterArgs{
		ClusterArgs: infra.ClusterArgs{Platform: training, DeleteStorage: emptied == "true"},
		EKS: settings.EKS{
			Region: region, Nodes: settings.NodesAuto,
			VPC:          settings.VPC{Zones: []string{"us-west-2a", "us-west-2b"}},
			PublicAccess: true, AuthorizedNetworks: office,
			Pools: []settings.EKSPool{{Name: "cheap", EKSGroup: settings.EKSGroup{
				InstanceTypes: []string{"m6i.xlarge"}, Spot: true, OnDemand: true, MaxNodes: 8}}},
			Bucket: &settings.Bucket{},
		},
	})
	if err != nil {
		return err
	}
	digits, fashion, again := mnist("digits"), mnist("fashion"), mnist("digits")
	fashion.NumEpochs = 10
	if workers, ok := ctx.GetConfig("clusters:workers"); ok {
		if again.NumWorkers, err = strconv.Atoi(workers); err != nil {
			return fmt.Errorf("clusters:workers: %w", err)
		}
	}
	if err := train(ctx, blue, reader, digits, fashion); err != nil {
		return err
	}
	if err := train(ctx, green, reader, again); err != nil {
		return err
	}
	ctx.Export("blue", blue.Name)
	ctx.Export("green", green.Name)
	return nil
}

// mnist returns a job that reads from and writes to the bucket of its cluster.
func mnist(name string) *job.Job {
	j := job.Default()
	j.Name, j.Image = name, "registry.example/mnist:1.0"
	j.ModelDef = "mnist.mnist_functional_api.custom_model"
	j.TrainingData, j.NumWorkers = "bucket://"+name+"/train", 4
	return j
}

// train puts jobs on the platform of a cluster. The name of a cluster begins the names of all that
// is in it.
func train(ctx *pulumi.Context, cluster *infra.Cluster, reader infra.Live, jobs ...*job.Job) error {
	name := cluster.Settings.Project
	on, err := platform.New(ctx, name, &platform.Args{Cluster: cluster, Jobs: jobs, Live: reader})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		made, err := trainingjob.New(ctx, name+"-"+j.Name, &trainingjob.Args{Platform: on, Job: j})
		if err != nil {
			return err
		}
		ctx.Export(name+"-"+j.Name, made.Status)
	}
	return nil
}

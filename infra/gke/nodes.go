package gke

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/container"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/job"
)

var (
	scopes   = []string{"https://www.googleapis.com/auth/cloud-platform"} // roles decide
	metadata = map[string]string{"disable-legacy-endpoints": "true"}      // Google adds it anyway, which would be a change
)

// Google's taint of nodes with GPUs, letter by letter: another value would be a second taint of that key, and is refused.
const (
	gpuTaint      = "nvidia.com/gpu"
	gpuTaintValue = "present"
)

// spotLabel is on spot nodes of Google; the stack's have a taint that is called so, too.
const spotLabel = "cloud.google.com/gke-spot"

// spot returns what workers must say to be on spot nodes.
func spot() *infra.Spot {
	return &infra.Spot{
		NodeSelector: map[string]string{spotLabel: "true"},
		Tolerations:  []job.Toleration{{Key: spotLabel, Operator: "Equal", Value: "true", Effect: "NoSchedule"}},
	}
}

// addNodes makes the system pool, for what keeps the cluster going, for masters and for parameter servers; the worker pool,
// for everything; and the GPU pool.
func (p *parts) addNodes() error {
	system, err := p.addPool("system", &p.g.SystemPool)
	if err != nil {
		return err
	}
	if w := p.g.WorkerPool; w != nil {
		if _, err := p.addPool("workers", w); err != nil {
			return err
		}
	}
	if g := p.g.GPUPool; g != nil {
		_, err = p.addPool("gpu", g, system) // if all nodes have GPUs, then Google adds no taint
	}
	return err
}

// filledIn lists what GKE writes into the configuration of nodes by itself. The provider computes none of it, so that a value
// which only GKE has is a difference in every plan: the provider would remove it again, which replaces the pool or
// recreates its nodes. Blocks depend on the machine type and on what is on by default for new pools.
//
// Both kinds of labels carry labels of GKE's own, as goog-gke-node-pool-provisioning-model. Labels of Kubernetes therefore
// reach new pools only. Resource labels are the cluster's: GKE brings those onto nodes and disks within the hour, and replaces
// no node for them.
var filledIn = []string{
	"nodeConfig.labels", "nodeConfig.resourceLabels",
	"nodeConfig.advancedMachineFeatures", "nodeConfig.containerdConfig", "nodeConfig.fastSocket", "nodeConfig.gcfsConfig",
	"nodeConfig.kubeletConfig", "nodeConfig.linuxNodeConfig",
	"nodeConfig.ephemeralStorageLocalSsdConfig", "nodeConfig.localNvmeSsdBlockConfig", // of machine types with local SSDs
}

func (p *parts) addPool(name string, of *settings.GKEPool, after ...pulumi.Resource) (*container.NodePool, error) {
	first := p.firstNodes(of)
	told := fmt.Sprintf("pool %s: %d to %d nodes of type %s, %d at first", name, of.MinNodes, of.MaxNodes, of.MachineType, first*p.g.Zones())
	if err := p.ctx.Log.Info(told, &pulumi.LogArgs{Resource: p}); err != nil {
		return nil, err
	}
	pool, err := container.NewNodePool(p.ctx, name, &container.NodePoolArgs{
		Cluster:          p.cluster.ID(), // with its location
		InitialNodeCount: pulumi.Int(first),
		Autoscaling: &container.NodePoolAutoscalingArgs{
			TotalMinNodeCount: pulumi.Int(of.MinNodes), TotalMaxNodeCount: pulumi.Int(of.MaxNodes),
			LocationPolicy: pulumi.String(oneOf(of.Spot || of.Accelerator != "", "ANY", "BALANCED")),
		},
		Management:    &container.NodePoolManagementArgs{AutoRepair: pulumi.Bool(true), AutoUpgrade: pulumi.Bool(true)},
		NetworkConfig: &container.NodePoolNetworkConfigArgs{EnablePrivateNodes: pulumi.Bool(p.g.PrivateNodes)},
		UpgradeSettings: &container.NodePoolUpgradeSettingsArgs{
			Strategy: pulumi.String("SURGE"), // one more node at a time; but there may be no more GPU to have
			MaxSurge: pulumi.Int(oneOf(of.Accelerator != "", 0, 1)), MaxUnavailable: pulumi.Int(oneOf(of.Accelerator != "", 1, 0)),
		},
		NodeConfig: p.nodeConfig(of),
	}, p.options(pulumi.DependsOn(slices.Concat(p.beneath, p.mounted, after)), patient(), p.warns,
		// The autoscaler changes the size; as a changed setting it would replace the pool.
		pulumi.IgnoreChanges(append([]string{"initialNodeCount"}, filledIn...))))
	p.ready = append(p.ready, pool)
	return pool, err
}

func (p *parts) nodeConfig(of *settings.GKEPool) *container.NodePoolNodeConfigArgs {
	c := &container.NodePoolNodeConfigArgs{
		MachineType: pulumi.String(of.MachineType), Spot: pulumi.Bool(of.Spot),
		ImageType: pulumi.String("COS_CONTAINERD"), Gvnic: &container.NodePoolNodeConfigGvnicArgs{Enabled: pulumi.Bool(true)},
		DiskType: pulumi.String(of.DiskType()), DiskSizeGb: pulumi.Int(cmp.Or(of.DiskGB, 100)),
		ServiceAccount: p.nodes.Email, OauthScopes: pulumi.ToStringArray(scopes),
		WorkloadMetadataConfig: &container.NodePoolNodeConfigWorkloadMetadataConfigArgs{Mode: pulumi.String("GKE_METADATA")},
		Metadata:               pulumi.ToStringMap(metadata),
		ShieldedInstanceConfig: &container.NodePoolNodeConfigShieldedInstanceConfigArgs{
			EnableSecureBoot:          pulumi.Bool(of.Accelerator == ""), // an unsigned driver would not load, without any message
			EnableIntegrityMonitoring: pulumi.Bool(true),
		},
		Labels: pulumi.ToStringMap(nodeLabels(of)),
	}
	switch {
	case of.Accelerator != "":
		c.GuestAccelerators = container.NodePoolNodeConfigGuestAcceleratorArray{&container.NodePoolNodeConfigGuestAcceleratorArgs{
			Type: pulumi.String(of.Accelerator), Count: pulumi.Int(max(of.GPUs, 1)),
			GpuDriverInstallationConfig: &container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs{
				GpuDriverVersion: pulumi.String(cmp.Or(of.GPUDriver, "DEFAULT")), // else older clusters install none
			},
		}}
		c.Taints = taint(gpuTaint, gpuTaintValue)
	case of.Spot:
		c.Taints = taint(spotLabel, "true")
	}
	return c
}

// gpuLabel is "true" on nodes with GPUs. Jobs select them by it: the type's own label would make another type another job.
const gpuLabel = "nvidia.com/gpu.present"

func nodeLabels(of *settings.GKEPool) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, of.Labels)
	if of.Accelerator != "" {
		labels[gpuLabel] = "true"
	}
	return labels
}

func taint(key, value string) container.NodePoolNodeConfigTaintArray {
	return container.NodePoolNodeConfigTaintArray{&container.NodePoolNodeConfigTaintArgs{
		Key: pulumi.String(key), Value: pulumi.String(value), Effect: pulumi.String("NO_SCHEDULE"),
	}}
}

// firstNodes returns how many nodes a pool begins with in each zone: at least minNodes in all, if that is not more than maxNodes.
func (p *parts) firstNodes(of *settings.GKEPool) int {
	zones := p.g.Zones()
	return min((of.MinNodes+zones-1)/zones, of.MaxNodes/zones)
}

func oneOf[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

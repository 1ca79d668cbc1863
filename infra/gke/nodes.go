package gke

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

var (
	// the roles of the account limit access
	scopes = []string{"https://www.googleapis.com/auth/cloud-platform"}
	// Google adds it anyway, which would be a difference otherwise
	metadata = map[string]string{"disable-legacy-endpoints": "true"}
)

// Google's taint of nodes with GPUs must be repeated exactly: another value would be a second taint
// with the same key, which is refused.
const (
	gpuTaint      = "nvidia.com/gpu"
	gpuTaintValue = "present"
)

// spotLabel is the label that Google sets on spot nodes; the stack's taint of these nodes has the
// same key.
const spotLabel = "cloud.google.com/gke-spot"

// workerTaint keeps pods of GKE's own off the nodes of the worker pool. The autoscaler does not
// remove a node with such pods: github.com/kubernetes/autoscaler/issues/2377.
const workerTaint = "elasticdl.org/worker"

// Names of the pools that more than one function uses.
const (
	systemPool = "system"
	workerPool = "workers"
)

// addNodes creates the system pool, for the cluster's own pods, masters and parameter servers; the
// worker pool, for all pods of jobs; the GPU pool; and those of the list.
func (p *parts) addNodes() error {
	var system pulumi.Resource
	for _, of := range p.g.AllPools() {
		var after []pulumi.Resource
		if of.Accelerator != "" {
			// after the system pool: if all nodes have GPUs, then Google sets no taint
			after = append(after, system)
		}
		first, err := p.addPool(of.Name, of, after...)
		if err != nil {
			return err
		}
		if of.Name == systemPool {
			system = first
		}
		if of.OnDemand {
			if err := p.addFallback(of, first, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// affinity is the path of the reservation of a pool.
const affinity = "nodeConfig.reservationAffinity"

// filledIn lists the fields that GKE fills in on its own in the configuration of nodes. The
// provider does not treat them as computed, so that a value that only GKE has is a difference in
// every plan: the provider would remove it again, which replaces the pool or recreates its nodes.
// Which blocks are filled in depends on the machine type and on the defaults of new pools.
//
// GKE adds its own labels to both kinds, such as goog-gke-node-pool-provisioning-model, so both are
// ignored. Therefore changed Kubernetes labels reach new pools only. Resource labels come from the
// cluster: GKE copies them to nodes and disks within an hour, and replaces no node for them.
var filledIn = []string{
	"nodeConfig.labels", "nodeConfig.resourceLabels",
	"nodeConfig.advancedMachineFeatures", "nodeConfig.containerdConfig", "nodeConfig.fastSocket",
	"nodeConfig.gcfsConfig",
	"nodeConfig.kubeletConfig", "nodeConfig.linuxNodeConfig",
	affinity, "placementPolicy", "queuedProvisioning",
	// filled in for machine types with local SSDs
	"nodeConfig.ephemeralStorageLocalSsdConfig", "nodeConfig.localNvmeSsdBlockConfig",
}

func (p *parts) addPool(name string, of settings.PoolOfGKE,
	after ...pulumi.Resource) (*pulumi.CustomResourceState, error) {
	first := p.firstNodes(of.GKEPool)
	told := fmt.Sprintf("pool %s: %d to %d nodes of type %s, %d at first", name, of.MinNodes,
		of.MaxNodes, of.MachineType, first*p.g.ZonesOf(of.GKEPool))
	if err := p.ctx.Log.Info(told, &pulumi.LogArgs{Resource: p}); err != nil {
		return nil, err
	}
	surge, unavailable := atOnce(name, of)
	pool := new(pulumi.CustomResourceState)
	inputs := pulumi.Map{
		"cluster":          p.cluster.ID(), // the ID contains the location
		"initialNodeCount": pulumi.Int(first),
		"autoscaling": pulumi.Map{
			"totalMinNodeCount": pulumi.Int(of.MinNodes), "totalMaxNodeCount": pulumi.Int(of.MaxNodes),
			"locationPolicy": pulumi.String(oneOf(of.Spot || of.Accelerator != "", "ANY", "BALANCED")),
		},
		"management":    pulumi.Map{"autoRepair": pulumi.Bool(true), "autoUpgrade": pulumi.Bool(true)},
		"networkConfig": pulumi.Map{"enablePrivateNodes": pulumi.Bool(p.g.PrivateNodes)},
		"upgradeSettings": pulumi.Map{
			"strategy": pulumi.String("SURGE"), "maxSurge": pulumi.Int(surge),
			"maxUnavailable": pulumi.Int(unavailable),
		},
		"nodeConfig": p.nodeConfig(of),
	}
	// The autoscaler changes the size; a change of this setting would replace the pool.
	ignored := append([]string{"initialNodeCount"}, filledIn...)
	if len(of.Zones) > 0 {
		inputs["nodeLocations"] = pulumi.ToStringArray(of.Zones)
	}
	if of.Reservation != "" {
		ignored = slices.DeleteFunc(ignored, func(path string) bool { return path == affinity })
	}
	err := p.register("gcp:container/nodePool:NodePool", name, inputs, pool,
		p.options(pulumi.DependsOn(slices.Concat(p.beneath, p.mounted, after)),
			poolTimes(of.MaxNodes, surge+unavailable), p.warns, p.quotas, pulumi.IgnoreChanges(ignored)))
	p.ready = append(p.ready, pool)
	return pool, err
}

// An upgrade of a worker pool that always has more than fewNodes nodes takes a third of them away
// at a time. Google takes a number and no share, and the autoscaler may have left minNodes only.
// Google accepts at most mostAtOnce at a time, additional ones included.
const (
	fewNodes   = 6
	mostAtOnce = 20
)

// Google waits this long for disruption budgets on each node of an upgrade.
const evictionLimit = time.Hour

// atOnce returns how many nodes Google adds and takes away at a time in an upgrade of a pool. There
// may be no additional GPU available, so that GPU pools lose nodes first.
func atOnce(pool string, of settings.PoolOfGKE) (surge, unavailable int) {
	third := 0
	if of.MinNodes > fewNodes && pool != systemPool {
		third = of.MinNodes / 3
	}
	if of.Accelerator != "" {
		return 0, min(max(third, 1), mostAtOnce)
	}
	return 1, min(third, mostAtOnce-1)
}

// poolTimes returns how long requests for a pool may take: an update recreates all nodes, step by
// step, and a deletion drains all of them at once.
func poolTimes(maxNodes, step int) pulumi.ResourceOption {
	steps := (maxNodes + step - 1) / step
	update := 30*time.Minute + time.Duration(steps)*(evictionLimit+10*time.Minute)
	return pulumi.Timeouts(&pulumi.CustomTimeouts{Create: "1h", Update: update.String(), Delete: "2h"})
}

func (p *parts) nodeConfig(of settings.PoolOfGKE) pulumi.Map {
	c := p.encrypted(pulumi.Map{
		"machineType": pulumi.String(of.MachineType), "spot": pulumi.Bool(of.Spot),
		"imageType": pulumi.String("COS_CONTAINERD"),
		"gvnic":     pulumi.Map{"enabled": pulumi.Bool(true)},
		"diskType":  pulumi.String(of.DiskType()), "diskSizeGb": pulumi.Int(cmp.Or(of.DiskGB, 100)),
		"serviceAccount": p.nodes.email, "oauthScopes": pulumi.ToStringArray(scopes),
		"workloadMetadataConfig": pulumi.Map{"mode": pulumi.String("GKE_METADATA")},
		"metadata":               pulumi.ToStringMap(metadata),
		"shieldedInstanceConfig": pulumi.Map{
			// with secure boot an unsigned driver would not load, without any message
			"enableSecureBoot":          pulumi.Bool(of.Accelerator == ""),
			"enableIntegrityMonitoring": pulumi.Bool(true),
		},
		"labels": pulumi.ToStringMap(labelsOf(of)),
	})
	if of.Accelerator != "" {
		// without it older clusters install no driver
		driver := pulumi.Map{"gpuDriverVersion": pulumi.String(cmp.Or(of.GPUDriver, "DEFAULT"))}
		c["guestAccelerators"] = pulumi.Array{pulumi.Map{
			"type": pulumi.String(of.Accelerator), "count": pulumi.Int(max(of.GPUs, 1)),
			"gpuDriverInstallationConfig": driver,
		}}
	}
	if of.Reservation != "" {
		c["reservationAffinity"] = pulumi.Map{"consumeReservationType": pulumi.String("SPECIFIC_RESERVATION"),
			"key":    pulumi.String("compute.googleapis.com/reservation-name"),
			"values": pulumi.ToStringArray([]string{of.Reservation})}
	}
	var taints pulumi.Array
	for _, t := range taintsOf(of) {
		taints = append(taints, pulumi.Map{"key": pulumi.String(t.Key), "value": pulumi.String(t.Value),
			"effect": pulumi.String(t.CloudEffect())})
	}
	if len(taints) > 0 {
		c["taints"] = taints
	}
	return c
}

// gpuLabel is the label that is "true" on nodes with GPUs. Jobs select nodes by it and not by the
// label of the GPU's type, so that another type does not change the job.
const gpuLabel = "nvidia.com/gpu.present"

// firstNodes returns the initial number of nodes of a pool in each zone: at least minNodes in all
// zones together, unless that exceeds maxNodes.
func (p *parts) firstNodes(of *settings.GKEPool) int {
	zones := p.g.ZonesOf(of)
	return min((of.MinNodes+zones-1)/zones, of.MaxNodes/zones)
}

func oneOf[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

package gke

import (
	"cmp"
	"slices"

	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/container"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// addCluster creates the control plane. The API requires nodes with it: their pool is deleted as
// soon as the cluster exists.
func (p *parts) addCluster() (err error) {
	args := &container.ClusterArgs{
		Name:     pulumi.String(p.s.Name(maxCluster)),
		Location: pulumi.String(p.g.Location),
		// the provider's default is true
		DeletionProtection:    pulumi.Bool(p.g.DeletionProtection),
		RemoveDefaultNodePool: pulumi.Bool(true),
		InitialNodeCount:      pulumi.Int(1),
		NodeConfig:            p.firstNode(),
		ReleaseChannel: &container.ClusterReleaseChannelArgs{
			Channel: pulumi.String(cmp.Or(p.g.ReleaseChannel, "REGULAR"))},
		ResourceLabels:       p.labels(), // they are also set on nodes and disks
		CostManagementConfig: &container.ClusterCostManagementConfigArgs{Enabled: pulumi.Bool(true)},
		AddonsConfig: &container.ClusterAddonsConfigArgs{
			GcpFilestoreCsiDriverConfig: &container.ClusterAddonsConfigGcpFilestoreCsiDriverConfigArgs{
				Enabled: pulumi.Bool(true)},
			GcePersistentDiskCsiDriverConfig: &container.ClusterAddonsConfigGcePersistentDiskCsiDriverConfigArgs{
				Enabled: pulumi.Bool(true)},
			DnsCacheConfig: &container.ClusterAddonsConfigDnsCacheConfigArgs{
				Enabled: pulumi.Bool(true)},
		},
		LoggingConfig: &container.ClusterLoggingConfigArgs{EnableComponents: pulumi.ToStringArray(
			[]string{"SYSTEM_COMPONENTS", "WORKLOADS"})},
		MonitoringConfig: &container.ClusterMonitoringConfigArgs{
			EnableComponents:  pulumi.ToStringArray([]string{"SYSTEM_COMPONENTS"}),
			ManagedPrometheus: &container.ClusterMonitoringConfigManagedPrometheusArgs{Enabled: pulumi.Bool(true)},
		},
	}
	if len(p.g.NodeZones) > 0 {
		args.NodeLocations = pulumi.ToStringArray(p.g.NodeZones)
	}
	if m := p.g.Maintenance; m != nil {
		args.MaintenancePolicy = maintenance(m)
	}
	p.secure(args)
	p.connect(args)
	p.cluster, err = container.NewCluster(p.ctx, "cluster", args, p.named(
		pulumi.DependsOn(slices.Concat(p.services, p.beneath)), patient(), p.warns,
		// The cluster's own protection refuses its deletion only when all that is within is
		// deleted.
		pulumi.Protect(p.g.DeletionProtection),
		// The initial nodes are deleted, and other pools are resources of their own. Differences in
		// what Google returns for them would replace the cluster. The lists of components have no
		// order in Google's answers. Google fills in dnsConfig, and refuses the update that would
		// remove it: github.com/hashicorp/terraform-provider-google/issues/14957.
		pulumi.IgnoreChanges([]string{"initialNodeCount", "nodeConfig", "nodePools", "dnsConfig",
			"loggingConfig.enableComponents", "monitoringConfig.enableComponents"})))
	p.ready = append(p.ready, p.cluster)
	return err
}

// maintenance returns when GKE may upgrade. It always sets a scope: without one GKE fills in its
// own, which would be a difference.
func maintenance(m *settings.Maintenance) *container.ClusterMaintenancePolicyArgs {
	args := new(container.ClusterMaintenancePolicyArgs)
	if w := m.Window; w != nil {
		args.RecurringWindow = &container.ClusterMaintenancePolicyRecurringWindowArgs{
			StartTime: pulumi.String(w.Start), EndTime: pulumi.String(w.End), Recurrence: pulumi.String(w.Recurrence),
		}
	} else {
		args.DailyMaintenanceWindow = &container.ClusterMaintenancePolicyDailyMaintenanceWindowArgs{
			StartTime: pulumi.String(m.DailyStart)}
	}
	var exclusions container.ClusterMaintenancePolicyMaintenanceExclusionArray
	for _, e := range m.Exclusions {
		exclusions = append(exclusions, &container.ClusterMaintenancePolicyMaintenanceExclusionArgs{
			ExclusionName: pulumi.String(e.Name), StartTime: pulumi.String(e.Start), EndTime: pulumi.String(e.End),
			ExclusionOptions: &container.ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgs{
				Scope: pulumi.String(cmp.Or(e.Scope, settings.NoNodeUpgrades)),
			},
		})
	}
	if exclusions != nil {
		args.MaintenanceExclusions = exclusions
	}
	return args
}

// secure sets the identities and the authentication of the cluster.
func (p *parts) secure(args *container.ClusterArgs) {
	args.EnableShieldedNodes = pulumi.Bool(true)
	args.WorkloadIdentityConfig = &container.ClusterWorkloadIdentityConfigArgs{
		WorkloadPool: pulumi.String(p.workloadPool())}
	// the key of a client certificate would be stored in the state in plain text
	args.MasterAuth = &container.ClusterMasterAuthArgs{
		ClientCertificateConfig: &container.ClusterMasterAuthClientCertificateConfigArgs{
			IssueClientCertificate: pulumi.Bool(false)},
	}
}

// connect sets the network of the cluster and who may reach it.
func (p *parts) connect(args *container.ClusterArgs) {
	args.Network, args.Subnetwork = p.net.ID(), p.subnet.ID()
	args.NetworkingMode = pulumi.String("VPC_NATIVE")
	args.IpAllocationPolicy = &container.ClusterIpAllocationPolicyArgs{
		ClusterSecondaryRangeName: pulumi.String(podRange), ServicesSecondaryRangeName: pulumi.String(serviceRange),
	}
	// enforces NetworkPolicies on its own: Calico cannot be enabled with it
	args.DatapathProvider = pulumi.String("ADVANCED_DATAPATH")
	// GKE turns this on in new clusters, and it cannot be turned off again: with the provider's
	// default, false, every `pulumi up` of such a cluster would replace it.
	args.EnableL4IlbSubsetting = pulumi.Bool(true)
	var networks container.ClusterMasterAuthorizedNetworksConfigCidrBlockArray
	for _, n := range p.g.AuthorizedNetworks {
		block := &container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs{CidrBlock: pulumi.String(n.CIDR)}
		if n.Name != "" {
			block.DisplayName = pulumi.String(n.Name)
		}
		networks = append(networks, block)
	}
	args.MasterAuthorizedNetworksConfig = &container.ClusterMasterAuthorizedNetworksConfigArgs{
		CidrBlocks: networks, GcpPublicCidrsAccessEnabled: pulumi.Bool(false),
	}
	if p.g.PrivateNodes {
		args.PrivateClusterConfig = &container.ClusterPrivateClusterConfigArgs{
			EnablePrivateNodes: pulumi.Bool(true),
			// otherwise the stack's Kubernetes objects could not be created from outside
			EnablePrivateEndpoint: pulumi.Bool(false),
			MasterIpv4CidrBlock:   pulumi.String(p.g.Ranges.Master),
			MasterGlobalAccessConfig: &container.ClusterPrivateClusterConfigMasterGlobalAccessConfigArgs{
				Enabled: pulumi.Bool(true)},
		}
	}
}

// firstNode returns the configuration of the initial node, which must satisfy an organization's
// policies although it exists for two minutes only.
func (p *parts) firstNode() *container.ClusterNodeConfigArgs {
	return &container.ClusterNodeConfigArgs{
		ServiceAccount: p.nodes.Email, OauthScopes: pulumi.ToStringArray(scopes),
		DiskSizeGb: pulumi.Int(30), DiskType: pulumi.String("pd-balanced"),
		ShieldedInstanceConfig: &container.ClusterNodeConfigShieldedInstanceConfigArgs{
			EnableSecureBoot: pulumi.Bool(true), EnableIntegrityMonitoring: pulumi.Bool(true),
		},
		WorkloadMetadataConfig: &container.ClusterNodeConfigWorkloadMetadataConfigArgs{
			Mode: pulumi.String("GKE_METADATA")},
		Metadata: pulumi.ToStringMap(metadata),
	}
}

// kubeconfig returns a kubeconfig that names a command that gets credentials, and contains none.
// Its namespace is that of the stack's job.
func (p *parts) kubeconfig() pulumi.StringOutput {
	ca := p.cluster.MasterAuth.ClusterCaCertificate().Elem() // it is base64-encoded already
	return pulumi.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: https://%[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: gke-gcloud-auth-plugin
      installHint: gcloud components install gke-gcloud-auth-plugin
      interactiveMode: IfAvailable
      provideClusterInfo: true
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s, namespace: %[4]q}
current-context: %[1]s
`, p.s.Name(maxCluster), p.cluster.Endpoint, ca, p.s.Platform.Namespace)
}

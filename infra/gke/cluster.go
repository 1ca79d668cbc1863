package gke

import (
	"cmp"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// addCluster creates the control plane. The API requires nodes with it: their pool is deleted as
// soon as the cluster exists.
func (p *parts) addCluster() (err error) {
	args := pulumi.Map{
		"name":     pulumi.String(p.s.Name(maxCluster)),
		"location": pulumi.String(p.g.Location),
		// the provider's default is true
		"deletionProtection":    pulumi.Bool(p.g.DeletionProtection),
		"removeDefaultNodePool": pulumi.Bool(true),
		"initialNodeCount":      pulumi.Int(1),
		"nodeConfig":            p.firstNode(),
		"releaseChannel":        pulumi.Map{"channel": pulumi.String(cmp.Or(p.g.ReleaseChannel, "REGULAR"))},
		"resourceLabels":        p.labels(), // they are also set on nodes and disks
		"costManagementConfig":  pulumi.Map{"enabled": pulumi.Bool(true)},
		"addonsConfig": pulumi.Map{
			"gcpFilestoreCsiDriverConfig":      pulumi.Map{"enabled": pulumi.Bool(true)},
			"gcePersistentDiskCsiDriverConfig": pulumi.Map{"enabled": pulumi.Bool(true)},
			"dnsCacheConfig":                   pulumi.Map{"enabled": pulumi.Bool(true)},
		},
		"loggingConfig": pulumi.Map{"enableComponents": pulumi.ToStringArray(
			[]string{"SYSTEM_COMPONENTS", "WORKLOADS"})},
		"monitoringConfig": pulumi.Map{
			"enableComponents":  pulumi.ToStringArray([]string{"SYSTEM_COMPONENTS"}),
			"managedPrometheus": pulumi.Map{"enabled": pulumi.Bool(true)},
		},
	}
	if len(p.g.NodeZones) > 0 {
		args["nodeLocations"] = pulumi.ToStringArray(p.g.NodeZones)
	}
	if m := p.g.Maintenance; m != nil {
		args["maintenancePolicy"] = maintenance(m)
	}
	p.secure(args)
	p.encryptSecrets(args)
	p.connect(args)
	p.cluster = new(controlPlane)
	err = p.register("gcp:container/cluster:Cluster", "cluster", args, p.cluster, p.named(
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
	p.secretsKeep()
	p.ready = append(p.ready, p.cluster)
	return err
}

// maintenance returns when GKE may upgrade. It always sets a scope: without one GKE fills in its
// own, which would be a difference.
func maintenance(m *settings.Maintenance) pulumi.Map {
	args := pulumi.Map{}
	if w := m.Window; w != nil {
		args["recurringWindow"] = pulumi.Map{
			"startTime": pulumi.String(w.Start), "endTime": pulumi.String(w.End),
			"recurrence": pulumi.String(w.Recurrence),
		}
	} else {
		args["dailyMaintenanceWindow"] = pulumi.Map{"startTime": pulumi.String(m.DailyStart)}
	}
	var exclusions pulumi.Array
	for _, e := range m.Exclusions {
		exclusions = append(exclusions, pulumi.Map{
			"exclusionName": pulumi.String(e.Name), "startTime": pulumi.String(e.Start),
			"endTime": pulumi.String(e.End),
			"exclusionOptions": pulumi.Map{
				"scope": pulumi.String(cmp.Or(e.Scope, settings.NoNodeUpgrades)),
			},
		})
	}
	if exclusions != nil {
		args["maintenanceExclusions"] = exclusions
	}
	return args
}

// secure sets the identities and the authentication of the cluster.
func (p *parts) secure(args pulumi.Map) {
	args["enableShieldedNodes"] = pulumi.Bool(true)
	args["workloadIdentityConfig"] = pulumi.Map{"workloadPool": pulumi.String(p.workloadPool())}
	// the key of a client certificate would be stored in the state in plain text
	args["masterAuth"] = pulumi.Map{
		"clientCertificateConfig": pulumi.Map{"issueClientCertificate": pulumi.Bool(false)},
	}
}

// connect sets the network of the cluster and who may reach it.
func (p *parts) connect(args pulumi.Map) {
	args["network"], args["subnetwork"] = p.net.vpc, p.net.subnet
	args["networkingMode"] = pulumi.String("VPC_NATIVE")
	args["ipAllocationPolicy"] = pulumi.Map{
		"clusterSecondaryRangeName":  pulumi.String(p.net.pods),
		"servicesSecondaryRangeName": pulumi.String(p.net.services),
	}
	// enforces NetworkPolicies on its own: Calico cannot be enabled with it
	args["datapathProvider"] = pulumi.String("ADVANCED_DATAPATH")
	// GKE turns this on in new clusters, and it cannot be turned off again: with the provider's
	// default, false, every `pulumi up` of such a cluster would replace it.
	args["enableL4IlbSubsetting"] = pulumi.Bool(true)
	var networks pulumi.Array
	for _, n := range p.g.AuthorizedNetworks {
		block := pulumi.Map{"cidrBlock": pulumi.String(n.CIDR)}
		if n.Name != "" {
			block["displayName"] = pulumi.String(n.Name)
		}
		networks = append(networks, block)
	}
	args["masterAuthorizedNetworksConfig"] = pulumi.Map{
		"cidrBlocks": networks, "gcpPublicCidrsAccessEnabled": pulumi.Bool(false),
	}
	if p.g.PrivateNodes {
		args["privateClusterConfig"] = pulumi.Map{
			"enablePrivateNodes": pulumi.Bool(true),
			// otherwise the stack's Kubernetes objects could not be created from outside
			"enablePrivateEndpoint":    pulumi.Bool(false),
			"masterIpv4CidrBlock":      pulumi.String(p.g.Ranges.Master),
			"masterGlobalAccessConfig": pulumi.Map{"enabled": pulumi.Bool(true)},
		}
	}
}

// firstNode returns the configuration of the initial node, which must satisfy an organization's
// policies although it exists for two minutes only.
func (p *parts) firstNode() pulumi.Map {
	return p.encrypted(pulumi.Map{
		"serviceAccount": p.nodes.email, "oauthScopes": pulumi.ToStringArray(scopes),
		"diskSizeGb": pulumi.Int(30), "diskType": pulumi.String("pd-balanced"),
		"shieldedInstanceConfig": pulumi.Map{
			"enableSecureBoot": pulumi.Bool(true), "enableIntegrityMonitoring": pulumi.Bool(true),
		},
		"workloadMetadataConfig": pulumi.Map{"mode": pulumi.String("GKE_METADATA")},
		"metadata":               pulumi.ToStringMap(metadata),
	})
}

// kubeconfig returns a kubeconfig that names a command that gets credentials, and contains none.
// Its namespace is that of the stack's job.
func (p *parts) kubeconfig() pulumi.StringOutput {
	ca := p.cluster.MasterAuth.ApplyT(func(auth map[string]any) string {
		text, _ := auth["clusterCaCertificate"].(string) // it is base64-encoded already
		return text
	}).(pulumi.StringOutput)
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

package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What Google fills in on its own: [Type.Fill] as soon as a resource is created, [Type.Drift] after
// a while.

// Versions of Kubernetes on GKE, before and after Google's upgrade.
const (
	firstGKE = "1.35.2-gke.100"
	laterGKE = "1.35.3-gke.200"
)

// provisioningLabel is the label by which GKE marks how the nodes of a pool are billed.
const provisioningLabel = "goog-gke-node-pool-provisioning-model"

// fill adds missing values to is, also in the blocks within.
func fill(is, add Props) {
	for k, v := range add {
		if within, ok := v.(Props); ok {
			if old, ok := is[k].(Props); ok {
				fill(old, within)
				continue
			}
		}
		if is[k] == nil {
			is[k] = v
		}
	}
}

// fillLabels adds the labels of a resource together with those of its provider.
func fillLabels(r *Resource) {
	effective := Props{"goog-terraform-provisioned": "true"}
	labels, _ := r.Is["labels"].(Props)
	maps.Copy(effective, labels)
	r.Is["effectiveLabels"], r.Is["pulumiLabels"] = effective, effective
}

// fillFilestore assigns an address, and replaces the name of the network by its short form, as
// Google does.
func fillFilestore(r *Resource) {
	fillLabels(r)
	prefix, ok := r.memory["prefix"].(string)
	// another instance has another address, also under the same name
	if !ok {
		n := 0
		for _, c := range r.cloud.Google.calls {
			if c.Type == r.Type && c.Op == "create" {
				n++
			}
		}
		prefix = fmt.Sprintf("10.97.%d.", n)
		if r.memory == nil {
			r.memory = Props{}
		}
		r.memory["prefix"] = prefix
	}
	for _, n := range list(r.Is, "networks") {
		network := n.(Props)
		fill(network, Props{"ipAddresses": []any{prefix + "2"}, "reservedIpRange": prefix + "0/29"})
		network["network"] = last(text(network, "network"))
	}
	r.Is["zone"] = r.Is["location"]
}

func fillGKE(r *Resource) {
	fill(r.Is, Props{
		"masterVersion": firstGKE, "nodeVersion": firstGKE, "nodeLocations": r.cloud.nodeZones(text(r.In, "location")),
		"clusterIpv4Cidr": "10.4.0.0/14", "servicesIpv4Cidr": "10.8.0.0/20",
		"defaultMaxPodsPerNode": 110.0, "labelFingerprint": "a9dc16a7",
		"loggingService":    "logging.googleapis.com/kubernetes",
		"monitoringService": "monitoring.googleapis.com/kubernetes",
		"addonsConfig": Props{"networkPolicyConfig": Props{"disabled": true},
			"gcsFuseCsiDriverConfig": Props{"enabled": false}},
		"binaryAuthorization": Props{"enabled": false, "evaluationMode": ""},
		"clusterAutoscaling":  Props{"enabled": false, "autoscalingProfile": "BALANCED"},
		"databaseEncryption":  Props{"state": "DECRYPTED", "keyName": ""},
		"defaultSnatStatus":   Props{"disabled": false},
		"ipAllocationPolicy": Props{"clusterIpv4CidrBlock": "10.4.0.0/14",
			"servicesIpv4CidrBlock": "10.8.0.0/20", "stackType": "IPV4",
			"podCidrOverprovisionConfig": Props{"disabled": false}},
		"masterAuth": Props{"clientCertificate": "", "clientKey": ""},
		"monitoringConfig": Props{"advancedDatapathObservabilityConfigs": []any{
			Props{"enableMetrics": false, "enableRelay": false, "relayMode": "DISABLED"}}},
		"nodePoolDefaults":   Props{"nodeConfigDefaults": Props{"loggingVariant": "DEFAULT"}},
		"notificationConfig": Props{"pubsub": Props{"enabled": false, "topic": ""}},
		"privateClusterConfig": Props{"enablePrivateNodes": false, "enablePrivateEndpoint": false,
			"privateEndpoint": "172.16.0.34", "publicEndpoint": googleServer,
			"masterGlobalAccessConfig": Props{"enabled": false}},
		"securityPostureConfig":    Props{"mode": "BASIC", "vulnerabilityMode": "VULNERABILITY_DISABLED"},
		"serviceExternalIpsConfig": Props{"enabled": false},
		"enterpriseConfig":         Props{"clusterTier": "STANDARD"},
	})
	r.Is["endpoint"] = googleServer
	auth := r.Is["masterAuth"].(Props)
	auth["clusterCaCertificate"] = authority
	if !r.cloud.NoL4Subsetting {
		// whatever the input: hashicorp/terraform-provider-google#24718
		r.Is["enableL4IlbSubsetting"] = true
	}
}

// nodeZones returns the default zones of a cluster's nodes: its own, or three of its region.
func (c *Cloud) nodeZones(location string) []any {
	if strings.Count(location, "-") > 1 {
		return []any{}
	}
	return []any{location + "-a", location + "-b", location + "-c"}
}

// driftGKE upgrades the cluster, and adds the existing pools as if the cluster had been created
// with them, as Google does.
func driftGKE(r *Resource) {
	pools := []any{}
	for p := range r.cloud.all("gcp:container/nodePool:NodePool") {
		pools = append(pools, p.Is)
	}
	r.Is["nodePools"] = pools
	if len(pools) > 0 {
		r.Is["nodeConfig"] = at(pools[0], "nodeConfig")
		r.Is["initialNodeCount"] = at(pools[0], "initialNodeCount")
	}
	r.Is["masterVersion"], r.Is["nodeVersion"] = laterGKE, laterGKE
}

func fillPool(r *Resource) {
	first, _ := r.Is["initialNodeCount"].(float64)
	zones := list(r.Is, "nodeLocations")
	if zones == nil {
		if cluster := r.cloud.first("gcp:container/cluster:Cluster"); cluster != nil {
			zones = list(cluster.Is, "nodeLocations")
		}
	}
	fill(r.Is, Props{
		"nodeCount": first, "initialNodeCount": first, "nodeLocations": zones, "version": firstGKE,
		"maxPodsPerNode": 110.0, "namePrefix": "",
		"instanceGroupUrls": []any{instanceGroup("c")}, "managedInstanceGroupUrls": []any{instanceGroup("c")},
		"networkConfig": Props{"createPodRange": false, "podIpv4CidrBlock": "10.4.0.0/14", "podRange": "pods"},
		"management":    Props{"autoRepair": true, "autoUpgrade": true},
		"nodeConfig": Props{"machineType": "e2-medium", "diskType": "pd-balanced",
			"diskSizeGb": 100.0, "imageType": "COS_CONTAINERD"},
	})
	if scaling, ok := r.Is["autoscaling"].(Props); ok {
		fill(scaling, Props{"minNodeCount": 0.0, "maxNodeCount": 0.0, "totalMinNodeCount": 0.0,
			"totalMaxNodeCount": 0.0, "locationPolicy": "BALANCED"})
	}
	fillNodes(r, r.Is["nodeConfig"].(Props))
}

func instanceGroup(zone string) string {
	return "https://www.googleapis.com/compute/v1/projects/" + GoogleProject + "/zones/us-central1-" +
		zone + "/instanceGroupManagers/x"
}

// fillNodes adds the labels and taints that GKE sets on nodes, and the settings that its newer
// versions return.
func fillNodes(r *Resource, config Props) {
	fill(config, Props{
		"loggingVariant": "DEFAULT", "localSsdCount": 0.0, "minCpuPlatform": "", "labels": Props{},
		"resourceLabels": Props{}, "guestAccelerators": []any{},
		"kubeletConfig": Props{"cpuManagerPolicy": "", "cpuCfsQuota": false, "cpuCfsQuotaPeriod": "",
			"podPidsLimit": 0.0},
	})
	model := "on-demand"
	if config["spot"] == true {
		model = "spot"
	}
	for _, k := range []string{"labels", "resourceLabels"} {
		config[k].(Props)[provisioningLabel] = model
	}
	if gpus(r) && !slices.ContainsFunc(list(config, "taints"), func(t any) bool { return text(t, "key") == gpuTaint }) {
		config["taints"] = append(list(config, "taints"), Props{"key": gpuTaint, "value": "present",
			"effect": "NO_SCHEDULE"})
	}
	config["effectiveTaints"] = list(config, "taints")
	// These machines include local disks: GKE returns settings for them, although they were not
	// requested.
	if n := localDisks(text(config, "machineType")); n > 0 {
		fill(config, Props{
			"ephemeralStorageLocalSsdConfig": Props{"localSsdCount": n},
			"localNvmeSsdBlockConfig":        Props{"localSsdCount": 0.0},
			"gcfsConfig":                     Props{"enabled": false},
		})
	}
}

// localDisks returns the number of local disks that a type of machine includes: one for each GPU of
// an a2-ultragpu, sixteen with an a3.
func localDisks(machine string) float64 {
	switch {
	case strings.HasPrefix(machine, "a3-"):
		return 16
	case strings.HasPrefix(machine, "a2-ultragpu-"):
		return map[string]float64{"1g": 1, "2g": 2, "4g": 4, "8g": 8}[last(strings.ReplaceAll(machine, "-", "/"))]
	}
	return 0
}

// driftPool changes the size of a pool as the autoscaler does, and the version of its nodes as
// Google does.
func driftPool(r *Resource) {
	if r.In["autoscaling"] != nil {
		r.Is["nodeCount"] = 5.0
	}
	r.Is["version"] = laterGKE
}

// fillGoogleBucket returns the location in capital letters, and what Google sets on its own.
func fillGoogleBucket(r *Resource) {
	fillLabels(r)
	r.Is["location"] = strings.ToUpper(text(r.Is, "location"))
	fill(r.Is, Props{"softDeletePolicy": Props{"effectiveTime": "2026-11-22T00:00:00Z"}, "rpo": "",
		"storageClass": "STANDARD", "versioning": Props{"enabled": false}})
}

// fillBucketMember returns the long name of the bucket, as Google's provider does.
func fillBucketMember(r *Resource) { r.Is["bucket"] = "b/" + last(text(r.In, "bucket")) }

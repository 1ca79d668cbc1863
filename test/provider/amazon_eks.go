package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Releases of the image of EKS's nodes: the first, and the newest, which nodes get when they are
// replaced.
const (
	firstRelease  = "1.35.2-20261001"
	newestRelease = "1.35.4-20261119"
)

func makeEKS(_ context.Context, r *Resource, op Op) (Props, error) {
	switch op {
	case Create:
		if err := createEKS(r); err != nil {
			return nil, err
		}
	case Update:
		if err := updateEKS(r); err != nil {
			return nil, err
		}
	}
	network := existingVPC
	if own := r.cloud.first("aws:ec2/vpc:Vpc"); own != nil {
		network = own.ID
	}
	issuer := "https://oidc.eks." + AmazonRegion + ".amazonaws.com/id/EXAMPLE"
	return Props{
		"arn": arnOf("eks", "cluster/"+text(r.In, "name")), "endpoint": amazonServer, "status": "ACTIVE",
		"certificateAuthority":   Props{"data": authority},
		"certificateAuthorities": []any{Props{"data": authority}}, "platformVersion": "eks.1",
		"identities": []any{Props{"oidcs": []any{Props{"issuer": issuer}}}},
		"vpcConfig":  Props{"clusterSecurityGroupId": "sg-of-the-cluster", "vpcId": network},
	}, nil
}

func createEKS(r *Resource) error {
	if role := policies(r, text(r.In, "roleArn")); !slices.Contains(role, "AmazonEKSClusterPolicy") {
		return fmt.Errorf("InvalidParameterException: the role has %v, expected AmazonEKSClusterPolicy", role)
	}
	if err := autoMode(r, r.In); err != nil {
		return err
	}
	zones := zonesOf(r, list(r.In, "vpcConfig", "subnetIds"))
	if len(zones) < 2 {
		return fmt.Errorf("InvalidParameterException: subnets in 2 zones are needed, got %v", zones)
	}
	r.memory = Props{"zones": zones}
	r.cloud.Kubernetes.open(amazonServer)
	if at(r.In, "accessConfig", "bootstrapClusterCreatorAdminPermissions") != true {
		r.cloud.Kubernetes.admit(amazonServer, -1)
	}
	return servesPools(r, r.In)
}

// servesPools lets a cluster in Auto Mode serve the kinds of its pools.
func servesPools(r *Resource, in Props) error {
	if at(in, "computeConfig", "enabled") != true {
		return nil
	}
	return r.cloud.Kubernetes.define(amazonServer, autoKinds...)
}

func updateEKS(r *Resource) error {
	if was, now := text(r.Is, "version"), text(r.will, "version"); r.changes("version") && minor(now) != minor(was)+1 {
		return fmt.Errorf("InvalidParameterException: Unsupported Kubernetes minor version update "+
			"from %s to %s", was, now)
	}
	if err := errors.Join(autoMode(r, r.will), servesPools(r, r.will)); err != nil {
		return err
	}
	if !r.changes("vpcConfig") {
		return nil
	}
	zones, first := zonesOf(r, list(r.will, "vpcConfig", "subnetIds")), r.memory["zones"].([]string)
	if !slices.Equal(zones, first) {
		return fmt.Errorf("InvalidParameterException: Provided subnets belong to the AZs '%s'. But "+
			"they should belong to the exact set of AZs '%s' in which subnets were provided during cluster creation",
			strings.Join(zones, ","), strings.Join(first, ","))
	}
	return nil
}

// autoMode refuses a part of Auto Mode without the others, and roles that lack rights for it.
func autoMode(r *Resource, in Props) error {
	auto := at(in, "computeConfig", "enabled") == true
	if at(in, "storageConfig", "blockStorage", "enabled") == true != auto ||
		at(in, "kubernetesNetworkConfig", "elasticLoadBalancing", "enabled") == true != auto {
		return errors.New("InvalidParameterException: For EKS Auto Mode, please ensure that all required " +
			"configs, including computeConfig, kubernetesNetworkConfig, and blockStorage are all either fully " +
			"enabled or fully disabled")
	}
	if !auto {
		return nil
	}
	for role, needs := range map[string][]string{
		text(in, "roleArn"): {"AmazonEKSComputePolicy", "AmazonEKSBlockStoragePolicy", "AmazonEKSLoadBalancingPolicy",
			"AmazonEKSNetworkingPolicy"},
		text(in, "computeConfig", "nodeRoleArn"): {"AmazonEKSWorkerNodeMinimalPolicy",
			"AmazonEC2ContainerRegistryPullOnly"}} {
		for _, need := range needs {
			if has := policies(r, role); !slices.Contains(has, need) {
				return fmt.Errorf("InvalidParameterException: the role %s has %v, expected %s", role, has, need)
			}
		}
	}
	return nil
}

// zonesOf returns the zones of subnets, each once, in order.
func zonesOf(r *Resource, subnets []any) []string {
	var zones []string
	for _, s := range subnets {
		zones = append(zones, zoneOf(r.cloud, s.(string)))
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// minor returns the 35 of "1.35", or 0.
func minor(version string) int {
	_, m, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(m)
	if err != nil {
		return 0
	}
	return n
}

func deleteEKS(_ context.Context, r *Resource) error {
	if n := r.cloud.count(eksGroup); n > 0 {
		return fmt.Errorf("ResourceInUseException: Cluster has nodegroups attached: %d", n)
	}
	if err := r.cloud.Kubernetes.outlived(amazonServer); err != nil {
		return err
	}
	r.cloud.Kubernetes.lose(amazonServer)
	return nil
}

func makeGroup(_ context.Context, r *Resource, op Op) (Props, error) {
	if r.In["launchTemplate"] != nil && r.In["diskSize"] != nil {
		return nil, errors.New("InvalidRequestException: disk size must be in the launch template")
	}
	for _, t := range list(r.In, "taints") {
		if e := text(t, "effect"); e != "NO_SCHEDULE" && e != "NO_EXECUTE" && e != "PREFER_NO_SCHEDULE" {
			return nil, fmt.Errorf("InvalidParameterException: effect %s", e)
		}
	}
	out := Props{"arn": arnOf("eks", "nodegroup/"+r.ID), "status": "ACTIVE"}
	switch op {
	case Create:
		if err := errors.Join(sized(r.In), nodesJoin(r)); err != nil {
			return nil, err
		}
		out["releaseVersion"] = firstRelease
	case Update:
		out["releaseVersion"] = r.Is["releaseVersion"]
		// Each change is a call of its own: the first takes effect although the second is refused.
		if r.changes("launchTemplate", "releaseVersion", "version") {
			r.cloud.Amazon.calls = append(r.cloud.Amazon.calls, Call{"roll", r.Type, r.Name, r.ID})
			out["releaseVersion"] = newestRelease
		}
		if r.changes("scalingConfig") {
			if err := sized(r.will); err != nil {
				return nil, err
			}
		}
	}
	if asked := r.In["releaseVersion"]; asked != nil || op == Preview {
		delete(out, "releaseVersion")
	}
	return out, nil
}

// sized refuses a size of a group of nodes that is outside of its limits.
func sized(group Props) error {
	desired, low, high := size(group, "desiredSize"), size(group, "minSize"), size(group, "maxSize")
	switch {
	case desired < low:
		return fmt.Errorf("InvalidParameterException: Minimum capacity %v can't be greater than "+
			"desired size %v", low, desired)
	case desired > high:
		return fmt.Errorf("InvalidParameterException: desired capacity %v can't be greater than max "+
			"size %v", desired, high)
	}
	return nil
}

func size(group Props, key string) float64 {
	n, _ := at(group, "scalingConfig", key).(float64)
	return n
}

// nodesJoin refuses a new group whose nodes could not join the cluster.
func nodesJoin(r *Resource) error {
	has := policies(r, text(r.In, "nodeRoleArn"))
	for _, need := range []string{"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistry", "AmazonEKS_CNI_Policy"} {
		if !slices.ContainsFunc(has, func(p string) bool { return strings.HasPrefix(p, need) }) {
			return fmt.Errorf("NodeCreationFailure: the role has %v, expected %s", has, need)
		}
	}
	if !hasAddon(r, "vpc-cni") || !hasAddon(r, "kube-proxy") {
		return errors.New("NodeCreationFailure: Unhealthy nodes in the kubernetes cluster: without " +
			"vpc-cni and kube-proxy")
	}
	if r.cloud.count("aws:ec2/vpc:Vpc") > 0 && r.cloud.count(natGateway) == 0 {
		return errors.New("NodeCreationFailure: instances failed to join: private subnets have no way out")
	}
	if r.cloud.AccountWithoutGPUs && size(r.In, "desiredSize") > 0 &&
		slices.ContainsFunc(list(r.In, "instanceTypes"), withGPU) {
		return errors.New("AsgInstanceLaunchFailures: VcpuLimitExceeded: you have requested more " +
			"vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that " +
			"the specified instance type belongs to")
	}
	return nil
}

func withGPU(instance any) bool {
	name, _ := instance.(string)
	return strings.HasPrefix(name, "g") || strings.HasPrefix(name, "p")
}

func hasAddon(r *Resource, name string) bool {
	for a := range r.cloud.all(eksAddon) {
		if a.In["addonName"] == name {
			return true
		}
	}
	return false
}

// Scale sets the number of nodes of a group, as an autoscaler does, or a user by hand. The group is
// named by its name in the stack.
func (c *Cloud) Scale(group string, desired int) error {
	c.Amazon.mu.Lock()
	defer c.Amazon.mu.Unlock()
	r := c.group(group)
	if r == nil {
		return fmt.Errorf("%s %s is not there", eksGroup, group)
	}
	now := Props{"scalingConfig": Props{"desiredSize": float64(desired),
		"minSize": size(r.Is, "minSize"), "maxSize": size(r.Is, "maxSize")}}
	if err := sized(now); err != nil {
		return err
	}
	r.settle(func(r *Resource) { r.Is["scalingConfig"] = now["scalingConfig"] })
	return nil
}

// Nodes returns the number of nodes of a group, or -1 if it does not exist. The group is named by
// its name in the stack.
func (c *Cloud) Nodes(group string) int {
	c.Amazon.mu.Lock()
	defer c.Amazon.mu.Unlock()
	if r := c.group(group); r != nil {
		return int(size(r.Is, "desiredSize"))
	}
	return -1
}

func (c *Cloud) group(name string) *Resource {
	for r := range c.all(eksGroup) {
		if r.Name == name {
			return r
		}
	}
	return nil
}

func makeAddon(_ context.Context, r *Resource, op Op) (Props, error) {
	name := text(r.In, "addonName")
	if op == Create && (name == "coredns" || name == "aws-efs-csi-driver" || name == "metrics-server") {
		ok := false
		for g := range r.cloud.all(eksGroup) {
			ok = ok || len(list(g.In, "taints")) == 0
		}
		for c := range r.cloud.all(eksCluster) {
			// the built-in pool of Auto Mode
			ok = ok || slices.Contains(list(c.In, "computeConfig", "nodePools"), any("system"))
		}
		if !ok {
			return nil, fmt.Errorf("unexpected state 'CREATE_FAILED', last: DEGRADED: %s has no nodes to run on", name)
		}
	}
	return Props{"arn": arnOf("eks", "addon/"+name), "addonVersion": "v1.2.3-eksbuild.4"}, nil
}

func deleteAddon(_ context.Context, r *Resource) error {
	if r.In["addonName"] == "vpc-cni" {
		return needs(r, eksGroup, "interfaces of nodes would be left")
	}
	return nil
}

func makeIdentityOfPods(_ context.Context, r *Resource, _ Op) (Props, error) {
	return Props{"associationId": r.ID, "associationArn": arnOf("eks", "podidentityassociation/"+
		text(r.In, "clusterName")+"/"+r.ID)}, nil
}

// notOfData lists the properties of a launch template whose change creates no new version.
// noNewLatest lists those for which the provider plans no new latest version; a changed description
// creates one nevertheless.
var (
	notOfData   = []string{"tags", "tagsAll", "name", "namePrefix", "defaultVersion", "updateDefaultVersion"}
	noNewLatest = []string{"description", "name", "namePrefix", "defaultVersion", "updateDefaultVersion"}
)

// makeTemplate counts the versions of a launch template. In a preview the latest version is unknown
// as soon as tags change, although these create no version.
func makeTemplate(_ context.Context, r *Resource, op Op) (Props, error) {
	arn := arnOf("ec2", "launch-template/"+r.ID)
	latest, ok := r.Is["latestVersion"].(float64)
	if !ok {
		return Props{"arn": arn, "latestVersion": 1.0, "defaultVersion": 1.0}, nil
	}
	out := Props{"arn": arn, "latestVersion": latest, "defaultVersion": r.Is["defaultVersion"]}
	switch {
	case op == Preview && r.changesOther(noNewLatest):
		out["latestVersion"] = Unknown
	case op == Update && r.changesOther(notOfData):
		out["latestVersion"] = latest + 1
	}
	if r.In["updateDefaultVersion"] == true {
		out["defaultVersion"] = out["latestVersion"]
	} else if v, ok := r.In["defaultVersion"]; ok {
		out["defaultVersion"] = v
	}
	return out, nil
}

package provider

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

const (
	templateKind = "aws:ec2/launchTemplate:LaunchTemplate"
	subnetOfAWS  = "aws:ec2/subnet:Subnet"
)

// eks creates all resources that a group of nodes needs, in two zones, and returns the inputs of
// its cluster, template and group.
func (w *world) eks() (cluster, template, group Props) {
	w.t.Helper()
	network, _ := w.create("aws:ec2/vpc:Vpc", "network", Props{"cidrBlock": "10.0.0.0/16"})
	w.create("aws:ec2/internetGateway:InternetGateway", "internet", Props{"vpcId": network})
	var subnets []any
	for _, zone := range []string{"a", "b", "c"} {
		id, _ := w.create(subnetOfAWS, zone, Props{"vpcId": network, "cidrBlock": "10.0.0.0/20",
			"availabilityZone": AmazonRegion + zone})
		subnets = append(subnets, id)
	}
	w.create(natGateway, "nat", Props{"subnetId": subnets[0], "allocationId": "eipalloc-1"})
	for _, policy := range []string{"AmazonEKSClusterPolicy", "AmazonEKSWorkerNodePolicy",
		"AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy"} {
		w.create(roleAttached, policy, Props{"role": "r", "policyArn": "arn:aws:iam::aws:policy/" + policy})
	}
	cluster = Props{
		"name": "c", "roleArn": "arn:aws:iam::1:role/r", "version": "1.34", "tags": Props{"k": "v"},
		"vpcConfig": Props{"subnetIds": subnets[:2], "endpointPublicAccess": true, "endpointPrivateAccess": true},
	}
	w.create(eksCluster, "cluster", cluster)
	for _, name := range []string{"vpc-cni", "kube-proxy"} {
		w.create(eksAddon, name, Props{"clusterName": "c", "addonName": name})
	}
	template = Props{"name": "t", "tags": Props{"k": "v"},
		"tagSpecifications": []any{Props{"resourceType": "instance", "tags": Props{"k": "v"}}}}
	id, _ := w.create(templateKind, "g", template)
	group = Props{
		"clusterName": "c", "nodeGroupName": "g", "nodeRoleArn": "arn:aws:iam::1:role/r",
		"subnetIds": subnets[:2], "instanceTypes": []any{"m6i.large"},
		"launchTemplate": Props{"id": id, "version": "1"}, "scalingConfig": Props{"desiredSize": 2,
			"minSize": 0, "maxSize": 4},
	}
	w.create(eksGroup, "g", group)
	return cluster, template, group
}

// updated updates a resource from its state, and returns the result.
func (w *world) updated(kind, name string, state, now Props, preview bool, ignore ...string) (Props, error) {
	w.t.Helper()
	in, problems := w.checked(kind, name, now)
	id := w.id(kind, name)
	if problems != "" {
		w.t.Fatal(problems)
	}
	r, err := w.of(kind).Update(w.t.Context(), &pulumirpc.UpdateRequest{
		Urn: urn(kind, name), Id: id, Olds: value(w.t, state), News: value(w.t, in),
		IgnoreChanges: ignore, Preview: preview,
	})
	if err != nil {
		return nil, err
	}
	return wire(r.Properties), nil
}

func (w *world) id(kind, name string) string {
	w.t.Helper()
	for r := range w.all(kind) {
		if r.Name == name {
			return r.ID
		}
	}
	w.t.Fatalf("%s %s is not there", kind, name)
	return ""
}

// is returns a resource as a refresh reads it, by the inputs from which it was created.
func (w *world) is(kind, name string) Props {
	w.t.Helper()
	return w.read(kind, name, w.id(kind, name), w.objects[kind+" "+name])
}

// Changes of Amazon's resources replace them, or do not, as in provider v5.100.
func TestChangesOfAmazon(t *testing.T) {
	const service, endpoint = "com.amazonaws.us-west-2.s3", "aws:ec2/vpcEndpoint:VpcEndpoint"
	cluster := Props{"name": "c", "roleArn": "arn:aws:iam::1:role/r",
		"vpcConfig": Props{"subnetIds": []any{"subnet-a", "subnet-b"}}}
	encrypted := Props{"provider": Props{"keyArn": "k"}, "resources": []any{"secrets"}}
	template := Props{"name": "t"}
	rule := Props{"securityGroupId": "sg-1", "ipProtocol": "tcp", "cidrIpv4": "10.0.0.0/8"}
	for _, test := range []struct {
		kind     string
		in       Props
		path     string
		value    any
		replaced bool
	}{
		{"aws:ec2/eip:Eip", Props{"domain": "vpc"}, "domain", "standard", true},
		{"aws:ec2/eip:Eip", Props{"domain": "vpc"}, "instance", "i-1", false},
		{"aws:ec2/internetGateway:InternetGateway", Props{"vpcId": "vpc-1"}, "vpcId", "vpc-2", false},
		{"aws:ec2/subnet:Subnet", Props{"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/20"}, "cidrBlock",
			"10.0.0.0/19", true},
		{"aws:ec2/subnet:Subnet", Props{"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/20"},
			"mapPublicIpOnLaunch", true, false},
		{"aws:ec2/vpc:Vpc", Props{"cidrBlock": "10.0.0.0/16"}, "instanceTenancy", "dedicated", true},
		{"aws:ec2/vpc:Vpc", Props{"cidrBlock": "10.0.0.0/16", "instanceTenancy": "dedicated"},
			"instanceTenancy", "default", false},
		{route, Props{"routeTableId": "rtb-1", "destinationCidrBlock": "0.0.0.0/0",
			"gatewayId": "igw-1"}, "gatewayId", "igw-2", false},
		{route, Props{"routeTableId": "rtb-1", "destinationCidrBlock": "0.0.0.0/0",
			"gatewayId": "igw-1"}, "destinationCidrBlock", "10.0.0.0/8", true},
		{"aws:ec2/routeTableAssociation:RouteTableAssociation",
			Props{"routeTableId": "rtb-1", "gatewayId": "igw-1"}, "gatewayId", "igw-2", true},
		{"aws:ec2/routeTableAssociation:RouteTableAssociation",
			Props{"routeTableId": "rtb-1", "gatewayId": "igw-1"}, "routeTableId", "rtb-2", false},
		{endpoint, Props{"vpcId": "vpc-1", "serviceName": service}, "privateDnsEnabled", true, true},
		{endpoint, Props{"vpcId": "vpc-1", "serviceName": service, "vpcEndpointType": "Interface"},
			"privateDnsEnabled", true, false},
		{endpoint, Props{"vpcId": "vpc-1", "serviceName": service}, "serviceName", service + "express", true},
		{templateKind, template, "namePrefix", "t-", true},
		{templateKind, template, "imageId", "ami-1", false},
		{"aws:ec2/securityGroup:SecurityGroup",
			Props{"name": "g", "vpcId": "vpc-1", "description": "d"}, "namePrefix", "g-", true},
		{"aws:ec2/securityGroup:SecurityGroup",
			Props{"name": "g", "vpcId": "vpc-1", "description": "d"}, "description", "other", true},
		{ingressRule, rule, "cidrIpv4", "10.0.0.0/9", false},
		// with the range, this is another kind of source
		{ingressRule, rule, "referencedSecurityGroupId", "sg-2", true},
		{eksCluster, cluster, "kubernetesNetworkConfig", Props{"ipFamily": "ipv6"}, true},
		{eksCluster, cluster, "kubernetesNetworkConfig", Props{"serviceIpv4Cidr": "10.100.0.0/16"}, true},
		{eksCluster, cluster, "kubernetesNetworkConfig", Props{"elasticLoadBalancing": Props{"enabled": true}}, false},
		{eksCluster, cluster, "remoteNetworkConfig",
			Props{"remoteNodeNetworks": Props{"cidrs": []any{"10.8.0.0/16"}}}, true},
		{eksCluster, cluster, "outpostConfig", Props{"controlPlaneInstanceType": "m5.large",
			"outpostArns": []any{"o"}}, true},
		{eksCluster, cluster, "encryptionConfig", encrypted, false},
		{eksCluster, changed(cluster, encrypted, "encryptionConfig"), "encryptionConfig", nil, true},
		{eksCluster, cluster, "vpcConfig.subnetIds", []any{"subnet-a", "subnet-c"}, false},
		{eksCluster, cluster, "version", "1.36", false},
		{eksCluster, cluster, "bootstrapSelfManagedAddons", false, true},
		{"aws:efs/fileSystem:FileSystem", Props{"encrypted": true}, "throughputMode", "elastic", false},
		{"aws:efs/fileSystem:FileSystem", Props{"encrypted": true}, "encrypted", false, true},
		{"aws:ecr/repository:Repository", Props{"name": "r"}, "encryptionConfigurations",
			[]any{Props{"encryptionType": "KMS"}}, true},
		{"aws:ecr/repository:Repository", Props{"name": "r"}, "imageTagMutability", "IMMUTABLE", false},
		{"aws:iam/role:Role", Props{"name": "r", "assumeRolePolicy": "{}"}, "path", "/p/", true},
	} {
		w := newWorld(t)
		w.create(roleAttached, "p", Props{"role": "r", "policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"})
		w.create(test.kind, "x", test.in)
		state := w.is(test.kind, "x")
		now, problems := w.checked(test.kind, "x", changed(test.in, test.value, strings.Split(test.path, ".")...))
		if problems != "" {
			t.Error(problems)
			continue
		}
		if d := w.diff(test.kind, now, state, now); len(d.Diffs) == 0 || (len(d.Replaces) > 0) != test.replaced {
			t.Errorf("%s: %s = %v: differs in %v, replaced for %v, expected a replacement: %v",
				test.kind, test.path, test.value, d.Diffs, d.Replaces, test.replaced)
		}
	}
}

// Values that Amazon fills in are no difference, neither at once nor after a refresh.
func TestAmazonFillsIn(t *testing.T) {
	w := newWorld(t)
	w.eks()
	const trust = `{"Version":"2012-10-17",` +
		`"Statement":[{"Effect":"Allow","Principal":{"Service":"x"},"Action":["sts:AssumeRole"]}]}`
	for kind, in := range map[string]Props{
		"aws:ec2/eip:Eip": {"domain": "vpc"},
		"aws:ec2/vpcEndpoint:VpcEndpoint": {"vpcId": "vpc-1", "serviceName": "s",
			"routeTableIds": []any{"rtb-1"}},
		"aws:iam/role:Role":               {"name": "r", "assumeRolePolicy": trust},
		rolePolicy:                        {"name": "p", "role": "r", "policy": trust},
		logGroup:                          {"name": "l", "retentionInDays": 30},
		"aws:eks/accessEntry:AccessEntry": {"clusterName": "c", "principalArn": "arn:aws:iam::1:role/u"},
		"aws:efs/fileSystem:FileSystem":   {"encrypted": true, "tags": Props{"Name": "n"}},
		"aws:s3/bucketV2:BucketV2":        {"bucket": "b", "forceDestroy": true},
		bucketVersion: {"bucket": "b",
			"versioningConfiguration": Props{"status": "Enabled"}},
		bucketExpiry: {"bucket": "b", "rules": []any{Props{"id": "old", "status": "Enabled", "filter": Props{},
			"noncurrentVersionExpiration": Props{"noncurrentDays": 7}}}},
		"aws:ecr/repository:Repository":           {"name": "r"},
		"aws:ecr/lifecyclePolicy:LifecyclePolicy": {"repository": "r", "policy": trust},
	} {
		w.create(kind, "x", in)
	}
	for _, r := range slices.Collect(maps.Values(w.Amazon.live)) {
		in := w.objects[r.Type+" "+r.Name]
		for _, when := range []string{"at first", "after a refresh"} {
			state := r.Is
			if when != "at first" {
				state = w.is(r.Type, r.Name)
			}
			if d := w.diff(r.Type, in, state, in); len(d.Diffs) > 0 {
				t.Errorf("%s %s: differs %s in %v", r.Type, r.Name, when, d.Diffs)
			}
		}
	}
	if is := w.is(eksCluster, "cluster"); text(is, "kubernetesNetworkConfig",
		"serviceIpv4Cidr") == "" || text(is, "tagsAll", "k") != "v" {
		t.Errorf("the cluster is %v", is)
	}
	if is := w.is(eksGroup, "g"); at(is, "updateConfig", "maxUnavailable") != 1.0 ||
		text(is, "launchTemplate", "name") != "t" {
		t.Errorf("the group is %v", is)
	}
}

// A group keeps the number of nodes to which it was scaled. A change of its limits sends the whole
// block, with the size in the state.
func TestSizeOfGroup(t *testing.T) {
	w := newWorld(t)
	_, _, in := w.eks()
	const ignored = "scalingConfig.desiredSize"
	limits := func(desired, low, high int) Props {
		return changed(in, Props{"desiredSize": desired, "minSize": low, "maxSize": high}, "scalingConfig")
	}
	if err := errors.Join(w.Scale("g", 0), w.Scale("g", 5)); err == nil ||
		!strings.Contains(err.Error(), "max size 4") {
		t.Errorf("scaled to more than its maximum: %v", err)
	}
	if n := w.Nodes("g"); n != 0 {
		t.Errorf("%d nodes, expected 0", n)
	}
	stale := open(w.objects[eksGroup+" g"])
	if _, err := w.updated(eksGroup, "g", stale, changed(in, Props{"k": "v"}, "labels"), false,
		ignored); err != nil || w.Nodes("g") != 0 {
		t.Errorf("labels: %d nodes, expected 0: %v", w.Nodes("g"), err)
	}
	is, err := w.updated(eksGroup, "g", stale, limits(2, 0, 5), false, ignored)
	if n := w.Nodes("g"); err != nil || n != 2 {
		t.Errorf("%d nodes: expected the 2 of the state: %v", n, err)
	}
	if _, err = w.updated(eksGroup, "g", is, limits(2, 3, 5), false, ignored); err == nil ||
		!strings.Contains(err.Error(), "Minimum capacity 3 can't be greater than desired size 2") {
		t.Errorf("a minimum above the size: %v", err)
	}
	if err := w.Scale("g", 4); err != nil {
		t.Fatal(err)
	}
	is = w.is(eksGroup, "g")
	if n := at(is, "scalingConfig", "desiredSize"); n != 4.0 {
		t.Errorf("a refresh reads %v nodes, expected 4", n)
	}
	if _, err = w.updated(eksGroup, "g", is, limits(4, 3, 6), false, ignored); err != nil || w.Nodes("g") != 4 {
		t.Errorf("after a refresh %d nodes, expected 4: %v", w.Nodes("g"), err)
	}
}

// A new version of the launch template replaces the nodes, with the newest image; labels do not.
func TestRoll(t *testing.T) {
	w := newWorld(t)
	_, _, in := w.eks()
	rolls := func() (n int) {
		for _, c := range w.Calls() {
			if c.Op == "roll" && c.Name == "g" {
				n++
			}
		}
		return n
	}
	labelled := changed(in, Props{"k": "v"}, "labels")
	is, err := w.updated(eksGroup, "g", w.is(eksGroup, "g"), labelled, false)
	if err != nil || rolls() != 0 || is["releaseVersion"] != firstRelease {
		t.Errorf("labels: %d rolls, to %v: %v", rolls(), is["releaseVersion"], err)
	}
	is, err = w.updated(eksGroup, "g", is, changed(labelled, "2", "launchTemplate", "version"), false)
	if err != nil || rolls() != 1 || is["releaseVersion"] != newestRelease {
		t.Errorf("another version of the template: %d rolls, to %v: %v", rolls(), is["releaseVersion"], err)
	}
	if is = w.is(eksGroup, "g"); is["releaseVersion"] != newestRelease {
		t.Errorf("nodes keep their image until they are rolled; it is %v", is["releaseVersion"])
	}
}

// The latest version of a launch template changes with its data. A preview does not know it when
// tags change, either.
func TestLatestVersion(t *testing.T) {
	w := newWorld(t)
	_, in, _ := w.eks()
	for _, test := range []struct {
		path    string
		value   any
		preview any
		is      float64
	}{
		{"description", "d", 1.0, 2},
		{"tags", Props{"k": "w"}, Unknown, 2},
		{"updateDefaultVersion", true, 2.0, 2},
		{"tagSpecifications", []any{Props{"resourceType": "instance", "tags": Props{"k": "w"}}}, Unknown, 3},
	} {
		state := w.is(templateKind, "g")
		in = changed(in, test.value, test.path)
		if is, err := w.updated(templateKind, "g", state, in, true); err != nil || is["latestVersion"] != test.preview {
			t.Errorf("%s: a preview has %v, expected %v: %v", test.path, is["latestVersion"], test.preview, err)
		}
		if is, err := w.updated(templateKind, "g", state, in, false); err != nil || is["latestVersion"] != test.is {
			t.Errorf("%s: version %v, expected %v: %v", test.path, is["latestVersion"], test.is, err)
		}
	}
}

// A cluster keeps the zones of its creation, and can be upgraded by one minor version at a time.
func TestClusterKeepsItsZones(t *testing.T) {
	w := newWorld(t)
	in, _, _ := w.eks()
	state := w.is(eksCluster, "cluster")
	third := w.id(subnetOfAWS, "c")
	subnets := list(in, "vpcConfig", "subnetIds")
	for _, now := range [][]any{append(slices.Clone(subnets), third), subnets[:1], {subnets[0], third}} {
		_, err := w.updated(eksCluster, "cluster", state, changed(in, now, "vpcConfig", "subnetIds"), false)
		if err == nil || !strings.Contains(err.Error(), "exact set of AZs 'us-west-2a,us-west-2b'") {
			t.Errorf("subnets %v: %v", now, err)
		}
	}
	vpc, _ := w.create("aws:ec2/vpc:Vpc", "other", Props{"cidrBlock": "10.1.0.0/16"})
	again, _ := w.create(subnetOfAWS, "again", Props{"vpcId": vpc, "cidrBlock": "10.0.0.0/20",
		"availabilityZone": "us-west-2b"})
	if _, err := w.updated(eksCluster, "cluster", state,
		changed(in, []any{subnets[0], again}, "vpcConfig", "subnetIds"), false); err != nil {
		t.Errorf("another subnet of the same zone: %v", err)
	}
	if _, err := w.updated(eksCluster, "cluster", state, changed(in, "1.36", "version"),
		false); err == nil || !strings.Contains(err.Error(), "from 1.34 to 1.36") {
		t.Errorf("two minor versions at once: %v", err)
	}
	if is, err := w.updated(eksCluster, "cluster", state, changed(in, "1.35", "version"),
		false); err != nil || is["version"] != "1.35" {
		t.Errorf("version %v: %v", is["version"], err)
	}
}

// IDs and outputs have the form of Amazon and Terraform.
func TestIDsOfAmazon(t *testing.T) {
	w := newWorld(t)
	w.eks()
	const user, policy = "arn:aws:iam::1:role/u", "arn:aws:eks::aws:cluster-access-policy/p"
	id, _ := w.create("aws:eks/accessPolicyAssociation:AccessPolicyAssociation", "u",
		Props{"clusterName": "c", "principalArn": user, "policyArn": policy, "accessScope": Props{"type": "cluster"}})
	if id != "c#"+user+"#"+policy {
		t.Errorf("an association of a policy is %s", id)
	}
	id, out := w.create("aws:eks/podIdentityAssociation:PodIdentityAssociation", "p",
		Props{"clusterName": "c", "namespace": "n", "serviceAccount": "s", "roleArn": "r"})
	if out["arn"] != nil || out["associationId"] != id ||
		!strings.HasSuffix(text(out, "associationArn"), ":podidentityassociation/c/"+id) {
		t.Errorf("an association of pods, %s, is %v", id, out)
	}
}

// The functions of EKS answer from the simulated cloud. A missing resource is an error, except in
// the list of all clusters.
func TestFunctionsOfEKS(t *testing.T) {
	w := newWorld(t)
	ask := func(function string, args Props) (Props, error) {
		r, err := w.Amazon.Invoke(t.Context(), &pulumirpc.InvokeRequest{Tok: "aws:eks/" + function +
			":" + function, Args: value(t, args)})
		if err != nil {
			return nil, err
		}
		return wire(r.Return), nil
	}
	if all, err := ask("getClusters", Props{}); err != nil || len(list(all, "names")) > 0 {
		t.Errorf("clusters %v: %v", all, err)
	}
	if _, err := ask("getNodeGroups", Props{"clusterName": "c"}); err == nil ||
		!strings.Contains(err.Error(), "No cluster found for name: c") {
		t.Errorf("groups of no cluster: %v", err)
	}
	w.eks()
	if err := w.Scale("g", 3); err != nil {
		t.Fatal(err)
	}
	if all, err := ask("getClusters", Props{}); err != nil || text(all, "names", 0) != "c" {
		t.Errorf("clusters %v: %v", all, err)
	}
	if all, err := ask("getNodeGroups", Props{"clusterName": "c"}); err != nil || text(all, "names", 0) != "g" {
		t.Errorf("groups %v: %v", all, err)
	}
	if is, err := ask("getNodeGroup", Props{"clusterName": "c", "nodeGroupName": "g"}); err != nil ||
		at(is, "scalingConfigs", 0, "desiredSize") != 3.0 {
		t.Errorf("the group is %v: %v", is, err)
	}
	if _, err := ask("getNodeGroup", Props{"clusterName": "c", "nodeGroupName": "h"}); err == nil ||
		!strings.Contains(err.Error(), "reading EKS Node Group (c:h)") {
		t.Errorf("a group that is not there: %v", err)
	}
}

// EKS's own role may create a cluster's log group again after everything is deleted; a new account
// has no GPUs.
func TestHabitsOfAmazon(t *testing.T) {
	w := newWorld(t)
	w.LogsReturn = true
	in := Props{"name": "/aws/eks/c/cluster"}
	id, _ := w.create(logGroup, "logs", in)
	if err := w.delete(logGroup, "logs", id); err != nil {
		t.Fatal(err)
	}
	if err := w.refused(logGroup, "logs", in); !strings.Contains(err, logsExist) {
		t.Errorf("the group is there again, and yet: %q", err)
	}
	if left := w.Left(); !slices.Equal(left, []string{logGroup + " " + LogsOfEKS}) {
		t.Errorf("left are %v", left)
	}
	_, _, group := w.eks()
	w.AccountWithoutGPUs = true
	gpus := changed(changed(group, []any{"g4dn.xlarge"}, "instanceTypes"), "h", "nodeGroupName")
	if err := w.refused(eksGroup, "h", gpus); !strings.Contains(err, "vCPU limit of 0") {
		t.Errorf("GPUs in a new account: %q", err)
	}
}

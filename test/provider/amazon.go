package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	amazonServer = "https://EXAMPLE.gr7.us-west-2.eks.amazonaws.com"
	existingVPC  = "vpc-0123456789abcdef0" // that no stack made
)

var amazon = map[string]Type{
	"aws:ec2/vpc:Vpc":                                             {Replace: []string{"cidrBlock"}, Make: amazonARN("ec2", "vpc/")},
	"aws:ec2/subnet:Subnet":                                       {Replace: []string{"vpcId", "cidrBlock", "availabilityZone"}, Make: amazonARN("ec2", "subnet/")},
	"aws:ec2/internetGateway:InternetGateway":                     {},
	"aws:ec2/egressOnlyInternetGateway:EgressOnlyInternetGateway": {},
	"aws:ec2/eip:Eip":                                             {Make: func(context.Context, *Resource, Op) (Props, error) { return Props{"publicIp": "198.51.100.7"}, nil }},
	"aws:ec2/natGateway:NatGateway":                               {Replace: []string{"subnetId", "allocationId"}, Make: makeNAT, Delete: groupsAreGone},
	"aws:ec2/routeTable:RouteTable":                               {Replace: []string{"vpcId"}},
	"aws:ec2/route:Route":                                         {Replace: []string{"routeTableId", "destinationCidrBlock"}, Delete: groupsAreGone},
	"aws:ec2/routeTableAssociation:RouteTableAssociation":         {Replace: []string{"subnetId"}, Delete: groupsAreGone},
	"aws:ec2/vpcEndpoint:VpcEndpoint":                             {Replace: []string{"vpcId", "serviceName", "vpcEndpointType"}},
	"aws:ec2/securityGroup:SecurityGroup":                         {Name: "name", Replace: []string{"vpcId", "name", "description"}, Make: amazonARN("ec2", "security-group/")},
	"aws:ec2/launchTemplate:LaunchTemplate":                       {Name: "name", Replace: []string{"name"}, Make: makeTemplate},
	"aws:ec2/flowLog:FlowLog":                                     {},
	"aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule":   {Replace: []string{"securityGroupId"}, Make: makeRule},
	"aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule":     {Replace: []string{"securityGroupId"}},
	"aws:iam/role:Role":                                           {Name: "name", Global: true, Replace: []string{"name", "path"}, Make: amazonGlobalARN("iam", "role/")},
	"aws:iam/policy:Policy":                                       {Name: "name", Global: true, Replace: []string{"name", "path", "description"}, Make: amazonGlobalARN("iam", "policy/")},
	"aws:iam/rolePolicy:RolePolicy":                               {Name: "name", Replace: []string{"name", "role"}},
	"aws:iam/rolePolicyAttachment:RolePolicyAttachment":           {Replace: []string{"role", "policyArn"}, Delete: deleteAttachment},
	"aws:iam/openIdConnectProvider:OpenIdConnectProvider":         {Replace: []string{"url"}},
	"aws:cloudwatch/logGroup:LogGroup": {
		Name: "name", Replace: []string{"name"}, Make: amazonARN("logs", "log-group:"),
		Delete: func(_ context.Context, r *Resource) error {
			return needs(r, "aws:eks/cluster:Cluster", "the cluster would make it anew")
		},
	},
	"aws:kms/key:Key":     {Make: amazonARN("kms", "key/")},
	"aws:kms/alias:Alias": {Name: "name", Replace: []string{"name"}},
	"aws:eks/cluster:Cluster": {
		Name: "name", Replace: []string{"name", "roleArn", "accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons", "kubernetesNetworkConfig"},
		Make: makeEKS,
		Drift: func(r *Resource) {
			r.Is["platformVersion"] = "eks.9"
			if access, ok := r.Is["accessConfig"].(map[string]any); ok {
				access["bootstrapClusterCreatorAdminPermissions"] = false // the API does not tell
			}
			r.Is["bootstrapSelfManagedAddons"] = true
		},
		Delete: func(_ context.Context, r *Resource) error {
			if n := r.cloud.count("aws:eks/nodeGroup:NodeGroup"); n > 0 {
				return fmt.Errorf("ResourceInUseException: Cluster has nodegroups attached: %d", n)
			}
			r.cloud.Kubernetes.lose(amazonServer)
			return nil
		},
	},
	"aws:eks/nodeGroup:NodeGroup": {
		Name:    "nodeGroupName",
		Replace: []string{"nodeGroupName", "clusterName", "amiType", "capacityType", "diskSize", "instanceTypes", "nodeRoleArn", "subnetIds", "launchTemplate.id", "launchTemplate.name"},
		Make:    makeGroup,
		Drift: func(r *Resource) { // an autoscaler was there
			r.Is["scalingConfig"].(Props)["desiredSize"] = at(r.Is, "scalingConfig", "maxSize")
			r.Is["releaseVersion"] = "1.35.4-20261119"
			r.Is["resources"] = []any{Props{"autoscalingGroups": []any{Props{"name": "eks-x"}}, "remoteAccessSecurityGroupId": ""}}
		},
	},
	"aws:eks/addon:Addon": {
		Replace: []string{"addonName", "clusterName"}, Make: makeAddon,
		Delete: func(_ context.Context, r *Resource) error {
			if r.In["addonName"] == "vpc-cni" {
				return needs(r, "aws:eks/nodeGroup:NodeGroup", "interfaces of nodes would be left")
			}
			return nil
		},
	},
	"aws:eks/accessEntry:AccessEntry": {Replace: []string{"clusterName", "principalArn", "type"}},
	"aws:eks/accessPolicyAssociation:AccessPolicyAssociation": {
		Replace: []string{"clusterName", "principalArn", "policyArn", "accessScope"},
		Make: func(_ context.Context, r *Resource, op Op) (Props, error) {
			if op == Create {
				r.cloud.Kubernetes.admit(amazonServer, 1)
			}
			return nil, nil
		},
		Delete: func(_ context.Context, r *Resource) error {
			r.cloud.Kubernetes.admit(amazonServer, -1)
			return nil
		},
	},
	"aws:eks/podIdentityAssociation:PodIdentityAssociation": {Replace: []string{"clusterName", "namespace", "serviceAccount"}, Make: amazonARN("eks", "podidentityassociation/")},
	"aws:efs/fileSystem:FileSystem":                         {Replace: []string{"encrypted", "kmsKeyId", "performanceMode", "creationToken", "availabilityZoneName"}, Make: makeEFS},
	"aws:efs/accessPoint:AccessPoint":                       {Replace: []string{"fileSystemId", "posixUser", "rootDirectory"}, Make: amazonARN("elasticfilesystem", "access-point/")},
	"aws:efs/mountTarget:MountTarget":                       {Replace: []string{"fileSystemId", "subnetId", "ipAddress"}, Make: makeTarget, Delete: groupsAreGone},
	"aws:efs/backupPolicy:BackupPolicy":                     {Replace: []string{"fileSystemId"}},
	"aws:efs/fileSystemPolicy:FileSystemPolicy":             {Replace: []string{"fileSystemId"}},
	"aws:s3/bucketV2:BucketV2": {
		Name: "bucket", Global: true, Replace: []string{"bucket", "bucketPrefix"}, Make: makeBucket,
		Delete: func(_ context.Context, r *Resource) error { return emptied(r, "forceDestroy", "BucketNotEmpty") },
	},
	"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock":                                     {Replace: []string{"bucket"}},
	"aws:s3/bucketVersioningV2:BucketVersioningV2":                                               {Replace: []string{"bucket"}},
	"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2": {Replace: []string{"bucket"}},
	"aws:s3/bucketOwnershipControls:BucketOwnershipControls":                                     {Replace: []string{"bucket"}},
	"aws:s3/bucketPolicy:BucketPolicy":                                                           {Replace: []string{"bucket"}},
	"aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2":                       {Replace: []string{"bucket"}},
	"aws:ecr/repository:Repository": {
		Name: "name", Replace: []string{"name", "encryptionConfigurations"}, Make: makeECR,
		Delete: func(_ context.Context, r *Resource) error {
			return emptied(r, "forceDelete", "RepositoryNotEmptyException")
		},
	},
	"aws:ecr/lifecyclePolicy:LifecyclePolicy": {Replace: []string{"repository"}},
}

var amazonFunctions = map[string]func(Props) (Props, error){
	"aws:index/getAvailabilityZones:getAvailabilityZones": func(Props) (Props, error) {
		// in no order, as Amazon says them
		return Props{"id": AmazonRegion, "names": []string{"us-west-2c", "us-west-2a", "us-west-2d", "us-west-2b"}, "zoneIds": []string{"usw2-az3", "usw2-az1", "usw2-az4", "usw2-az2"}, "groupNames": []string{AmazonRegion}}, nil
	},
	"aws:index/getPartition:getPartition": func(Props) (Props, error) {
		return Props{"id": "aws", "partition": "aws", "dnsSuffix": "amazonaws.com", "reverseDnsPrefix": "com.amazonaws"}, nil
	},
	"aws:index/getCallerIdentity:getCallerIdentity": func(Props) (Props, error) {
		return Props{"id": AmazonAccount, "accountId": AmazonAccount, "arn": "arn:aws:sts::" + AmazonAccount + ":assumed-role/deployer/session", "userId": "AROA:session"}, nil
	},
	"aws:index/getRegion:getRegion": func(Props) (Props, error) {
		return Props{"id": AmazonRegion, "name": AmazonRegion, "description": "US West (Oregon)", "endpoint": "ec2." + AmazonRegion + ".amazonaws.com"}, nil
	},
	"aws:iam/getSessionContext:getSessionContext": func(a Props) (Props, error) {
		return Props{"id": a["arn"], "arn": a["arn"], "issuerArn": "arn:aws:iam::" + AmazonAccount + ":role/deployer", "issuerId": "AROA", "issuerName": "deployer", "sessionName": "session"}, nil
	},
	"aws:ec2/getVpc:getVpc": func(a Props) (Props, error) {
		return Props{"id": a["id"], "cidrBlock": "10.0.0.0/16", "enableDnsHostnames": true, "enableDnsSupport": true, "arn": "arn", "tags": Props{}}, nil
	},
	"aws:ec2/getSubnet:getSubnet": func(a Props) (Props, error) {
		id := text(a, "id")
		return Props{"id": id, "vpcId": existingVPC, "availabilityZone": "us-west-2" + id[len(id)-1:], "cidrBlock": "10.0.0.0/20", "tags": Props{}}, nil
	},
	"aws:eks/getAddonVersion:getAddonVersion": func(a Props) (Props, error) {
		return Props{"id": a["addonName"], "addonName": a["addonName"], "kubernetesVersion": a["kubernetesVersion"], "version": "v1.2.3-eksbuild.4", "mostRecent": true}, nil
	},
}

// amazonID is as Amazon names what there is.
func amazonID(r *Resource) string {
	for kind, prefix := range map[string]string{
		"aws:ec2/vpc:Vpc": "vpc-", "aws:ec2/subnet:Subnet": "subnet-", "aws:ec2/securityGroup:SecurityGroup": "sg-", "aws:efs/fileSystem:FileSystem": "fs-",
		"aws:efs/accessPoint:AccessPoint": "fsap-", "aws:efs/mountTarget:MountTarget": "fsmt-", "aws:ec2/launchTemplate:LaunchTemplate": "lt-", "aws:ec2/natGateway:NatGateway": "nat-",
		"aws:ec2/routeTable:RouteTable": "rtb-", "aws:ec2/internetGateway:InternetGateway": "igw-", "aws:ec2/eip:Eip": "eipalloc-",
	} {
		if r.Type == kind {
			r.cloud.Amazon.serial++
			return prefix + digest(fmt.Sprint(r.URN, r.cloud.Amazon.serial))
		}
	}
	switch r.Type {
	case "aws:eks/cluster:Cluster", "aws:iam/role:Role", "aws:ecr/repository:Repository", "aws:cloudwatch/logGroup:LogGroup":
		return text(r.In, "name")
	case "aws:iam/policy:Policy":
		return "arn:aws:iam::" + AmazonAccount + ":policy/" + text(r.In, "name")
	case "aws:s3/bucketV2:BucketV2":
		return text(r.In, "bucket")
	case "aws:eks/nodeGroup:NodeGroup":
		return text(r.In, "clusterName") + ":" + text(r.In, "nodeGroupName")
	case "aws:eks/addon:Addon":
		return text(r.In, "clusterName") + ":" + text(r.In, "addonName")
	case "aws:eks/accessEntry:AccessEntry":
		return text(r.In, "clusterName") + ":" + text(r.In, "principalArn")
	}
	return ""
}

func amazonARN(service, kind string) func(context.Context, *Resource, Op) (Props, error) {
	return func(_ context.Context, r *Resource, _ Op) (Props, error) {
		return Props{"arn": "arn:aws:" + service + ":" + AmazonRegion + ":" + AmazonAccount + ":" + kind + r.ID}, nil
	}
}

func amazonGlobalARN(service, kind string) func(context.Context, *Resource, Op) (Props, error) {
	return func(_ context.Context, r *Resource, _ Op) (Props, error) {
		if name := text(r.In, "name"); len(name) > 64 {
			return nil, fmt.Errorf("ValidationError: name %s has more than 64 characters", name)
		}
		return Props{"arn": "arn:aws:" + service + "::" + AmazonAccount + ":" + kind + text(r.In, "name")}, nil
	}
}

func makeNAT(_ context.Context, r *Resource, op Op) (Props, error) {
	if op == Create && r.cloud.first("aws:ec2/internetGateway:InternetGateway") == nil {
		return nil, errors.New("Gateway.NotAttached: the network has no internet gateway")
	}
	return Props{"publicIp": "198.51.100.7"}, nil
}

func makeTemplate(_ context.Context, r *Resource, op Op) (Props, error) {
	version := 1.0
	if op == Update {
		version = at(r.Is, "latestVersion").(float64) + 1
	} else if v, ok := at(r.Is, "latestVersion").(float64); ok {
		version = v
	}
	return Props{"latestVersion": version, "defaultVersion": 1.0}, nil
}

func makeRule(_ context.Context, r *Resource, _ Op) (Props, error) {
	return Props{"securityGroupRuleId": r.ID, "arn": "arn:aws:ec2:" + AmazonRegion + ":" + AmazonAccount + ":security-group-rule/" + r.ID}, nil
}

func makeEKS(_ context.Context, r *Resource, op Op) (Props, error) {
	if role := policies(r, text(r.In, "roleArn")); op == Create && !slices.Contains(role, "AmazonEKSClusterPolicy") {
		return nil, fmt.Errorf("InvalidParameterException: the role has %v, expected AmazonEKSClusterPolicy", role)
	}
	if n := len(list(r.In, "vpcConfig", "subnetIds")); op == Create && n < 2 {
		return nil, fmt.Errorf("InvalidParameterException: subnets in 2 zones are needed, got %d", n)
	}
	if op == Create {
		r.cloud.Kubernetes.open(amazonServer)
		if at(r.In, "accessConfig", "bootstrapClusterCreatorAdminPermissions") != true {
			r.cloud.Kubernetes.admit(amazonServer, -1)
		}
	}
	network := existingVPC
	if own := r.cloud.first("aws:ec2/vpc:Vpc"); own != nil {
		network = own.ID
	}
	issuer := "https://oidc.eks." + AmazonRegion + ".amazonaws.com/id/EXAMPLE"
	return Props{
		"arn": "arn:aws:eks:" + AmazonRegion + ":" + AmazonAccount + ":cluster/" + text(r.In, "name"), "endpoint": amazonServer, "status": "ACTIVE",
		"certificateAuthority": Props{"data": authority}, "certificateAuthorities": []any{Props{"data": authority}}, "platformVersion": "eks.1",
		"identities": []any{Props{"oidcs": []any{Props{"issuer": issuer}}}},
		"vpcConfig":  Props{"clusterSecurityGroupId": "sg-of-the-cluster", "vpcId": network},
	}, nil
}

// policies are the names of those that a role has.
func policies(r *Resource, roleARN string) (names []string) {
	for a := range r.cloud.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment") {
		if text(a.In, "role") == last(roleARN) {
			names = append(names, last(text(a.In, "policyArn")))
		}
	}
	return names
}

func makeGroup(_ context.Context, r *Resource, op Op) (Props, error) {
	if r.In["launchTemplate"] != nil && r.In["diskSize"] != nil {
		return nil, errors.New("InvalidRequestException: disk size must be in the launch template")
	}
	desired, low, high := at(r.In, "scalingConfig", "desiredSize"), at(r.In, "scalingConfig", "minSize"), at(r.In, "scalingConfig", "maxSize")
	if op != Preview && (desired.(float64) < low.(float64) || desired.(float64) > high.(float64)) {
		return nil, fmt.Errorf("InvalidParameterException: desired %v is not within %v and %v", desired, low, high)
	}
	for _, t := range list(r.In, "taints") {
		if e := text(t, "effect"); e != "NO_SCHEDULE" && e != "NO_EXECUTE" && e != "PREFER_NO_SCHEDULE" {
			return nil, fmt.Errorf("InvalidParameterException: effect %s", e)
		}
	}
	if op == Create {
		has := policies(r, text(r.In, "nodeRoleArn"))
		for _, need := range []string{"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistry", "AmazonEKS_CNI_Policy"} {
			if !slices.ContainsFunc(has, func(p string) bool { return strings.HasPrefix(p, need) }) {
				return nil, fmt.Errorf("NodeCreationFailure: the role has %v, expected %s", has, need)
			}
		}
		if !hasAddon(r, "vpc-cni") || !hasAddon(r, "kube-proxy") {
			return nil, errors.New("NodeCreationFailure: Unhealthy nodes in the kubernetes cluster: without vpc-cni and kube-proxy")
		}
		if r.cloud.count("aws:ec2/vpc:Vpc") > 0 && r.cloud.count("aws:ec2/natGateway:NatGateway") == 0 {
			return nil, errors.New("NodeCreationFailure: instances failed to join: private subnets have no way out")
		}
	}
	return Props{"arn": "arn:aws:eks:" + AmazonRegion + ":" + AmazonAccount + ":nodegroup/" + r.ID, "status": "ACTIVE", "releaseVersion": "1.35.2-20261001"}, nil
}

func hasAddon(r *Resource, name string) bool {
	for a := range r.cloud.all("aws:eks/addon:Addon") {
		if a.In["addonName"] == name {
			return true
		}
	}
	return false
}

func makeAddon(_ context.Context, r *Resource, op Op) (Props, error) {
	name := text(r.In, "addonName")
	if op == Create && (name == "coredns" || name == "aws-efs-csi-driver" || name == "metrics-server") {
		ok := false
		for g := range r.cloud.all("aws:eks/nodeGroup:NodeGroup") {
			ok = ok || len(list(g.In, "taints")) == 0
		}
		if !ok {
			return nil, fmt.Errorf("unexpected state 'CREATE_FAILED', last: DEGRADED: %s has no nodes to run on", name)
		}
	}
	return Props{"arn": "arn:aws:eks:" + AmazonRegion + ":" + AmazonAccount + ":addon/" + name, "addonVersion": "v1.2.3-eksbuild.4"}, nil
}

func makeEFS(_ context.Context, r *Resource, _ Op) (Props, error) {
	return Props{"arn": "arn:aws:elasticfilesystem:" + AmazonRegion + ":" + AmazonAccount + ":file-system/" + r.ID, "dnsName": r.ID + ".efs." + AmazonRegion + ".amazonaws.com"}, nil
}

func makeTarget(_ context.Context, r *Resource, op Op) (Props, error) {
	if op == Create {
		zone := zoneOf(r, text(r.In, "subnetId"))
		for other := range r.cloud.all("aws:efs/mountTarget:MountTarget") {
			if other.In["fileSystemId"] == r.In["fileSystemId"] && zoneOf(r, text(other.In, "subnetId")) == zone {
				return nil, fmt.Errorf("MountTargetConflict: mount target already exists in %s", zone)
			}
		}
	}
	return Props{"ipAddress": "10.0.0.9"}, nil
}

func zoneOf(r *Resource, subnet string) string {
	for s := range r.cloud.all("aws:ec2/subnet:Subnet") {
		if s.ID == subnet {
			return text(s.In, "availabilityZone")
		}
	}
	return "of " + subnet
}

func makeBucket(_ context.Context, r *Resource, _ Op) (Props, error) {
	name := text(r.In, "bucket")
	return Props{"arn": "arn:aws:s3:::" + name, "bucketDomainName": name + ".s3.amazonaws.com"}, nil
}

func makeECR(_ context.Context, r *Resource, _ Op) (Props, error) {
	name := text(r.In, "name")
	return Props{"arn": "arn:aws:ecr:" + AmazonRegion + ":" + AmazonAccount + ":repository/" + name, "repositoryUrl": AmazonAccount + ".dkr.ecr." + AmazonRegion + ".amazonaws.com/" + name, "registryId": AmazonAccount}, nil
}

// emptied refuses to delete what has something in it by then, unless that was allowed before.
func emptied(r *Resource, switched, code string) error {
	if r.In[switched] != true {
		return fmt.Errorf("%s: and %s is not set", code, switched)
	}
	return nil
}

// deleteAttachment refuses to take from a role what who has the role needs to go.
func deleteAttachment(_ context.Context, r *Resource) error {
	for _, kind := range []string{"aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"} {
		for user := range r.cloud.all(kind) {
			if last(text(user.In, "roleArn")+text(user.In, "nodeRoleArn")) == text(r.In, "role") {
				return fmt.Errorf("%s %s cannot clean up without %s", kind, user.Name, text(r.In, "policyArn"))
			}
		}
	}
	return nil
}

func groupsAreGone(_ context.Context, r *Resource) error {
	return needs(r, "aws:eks/nodeGroup:NodeGroup", "its nodes need it")
}

func needs(r *Resource, kind, why string) error {
	if user := r.cloud.first(kind); user != nil {
		return fmt.Errorf("%s %s is there: %s", kind, user.Name, why)
	}
	return nil
}

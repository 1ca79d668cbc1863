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
	existingVPC  = "vpc-0123456789abcdef0" // a VPC that no stack has created
)

// Types of Amazon to which other code refers.
const (
	eksCluster    = "aws:eks/cluster:Cluster"
	eksGroup      = "aws:eks/nodeGroup:NodeGroup"
	eksAddon      = "aws:eks/addon:Addon"
	logGroup      = "aws:cloudwatch/logGroup:LogGroup"
	natGateway    = "aws:ec2/natGateway:NatGateway"
	roleAttached  = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
	rolePolicy    = "aws:iam/rolePolicy:RolePolicy"
	route         = "aws:ec2/route:Route"
	ingressRule   = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
	mountTarget   = "aws:efs/mountTarget:MountTarget"
	bucketExpiry  = "aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2"
	bucketVersion = "aws:s3/bucketVersioningV2:BucketVersioningV2"
)

var amazon = map[string]Type{
	"aws:ec2/vpc:Vpc":                         aws("aws_vpc", Type{Make: amazonARN("ec2", "vpc/")}),
	"aws:ec2/subnet:Subnet":                   aws("aws_subnet", Type{Make: amazonARN("ec2", "subnet/")}),
	"aws:ec2/internetGateway:InternetGateway": aws("aws_internet_gateway", Type{Delete: noNAT}),
	"aws:ec2/eip:Eip":                         aws("aws_eip", Type{Fill: fillEIP, Drift: driftEIP}),
	natGateway: aws("aws_nat_gateway",
		Type{Make: makeNAT, Fill: fillNAT, Delete: noGroupsLeft}),
	"aws:ec2/routeTable:RouteTable": aws("aws_route_table", Type{Drift: driftRoutes}),
	route:                           aws("aws_route", Type{Delete: noGroupsLeft}),
	"aws:ec2/routeTableAssociation:RouteTableAssociation": aws("aws_route_table_association",
		Type{Delete: noGroupsLeft}),
	"aws:ec2/vpcEndpoint:VpcEndpoint": aws("aws_vpc_endpoint", Type{Fill: fillEndpoint}),
	"aws:ec2/securityGroup:SecurityGroup": aws("aws_security_group",
		Type{Name: "name", Make: amazonARN("ec2", "security-group/"), Drift: driftRules}),
	"aws:ec2/launchTemplate:LaunchTemplate": aws("aws_launch_template",
		Type{Name: "name", Make: makeTemplate, Fill: fillTemplate}),
	ingressRule: aws("aws_vpc_security_group_ingress_rule",
		Type{Make: makeRule}),
	"aws:iam/role:Role": aws("aws_iam_role",
		Type{Name: "name", Global: true, Make: amazonGlobalARN("iam", "role/"), Drift: driftRole}),
	"aws:iam/policy:Policy": aws("aws_iam_policy",
		Type{Name: "name", Global: true, Make: amazonGlobalARN("iam", "policy/"), Drift: rewritten("policy")}),
	"aws:iam/instanceProfile:InstanceProfile": aws("aws_iam_instance_profile",
		Type{Name: "name", Global: true, Make: amazonGlobalARN("iam", "instance-profile/")}),
	"aws:sqs/queue:Queue": aws("aws_sqs_queue", Type{Name: "name", Make: makeQueue}),
	"aws:sqs/queuePolicy:QueuePolicy": aws("aws_sqs_queue_policy",
		Type{Drift: rewritten("policy")}),
	"aws:cloudwatch/eventRule:EventRule":     aws("aws_cloudwatch_event_rule", Type{Name: "name"}),
	"aws:cloudwatch/eventTarget:EventTarget": aws("aws_cloudwatch_event_target", Type{}),
	rolePolicy: aws("aws_iam_role_policy",
		Type{Name: "name", Drift: rewritten("policy")}),
	roleAttached: aws("aws_iam_role_policy_attachment",
		Type{Delete: deleteAttachment}),
	logGroup: aws("aws_cloudwatch_log_group",
		Type{Name: "name", Exists: logsExist, Make: amazonARN("logs", "log-group:"), Fill: fillLogs,
			Delete: deleteLogs, AfterDelete: logsReturn}),
	eksCluster: aws("aws_eks_cluster",
		Type{Name: "name", Make: makeEKS, Fill: fillEKS, Drift: driftEKS, Delete: deleteEKS}),
	eksGroup: aws("aws_eks_node_group",
		Type{Name: "nodeGroupName", Make: makeGroup, Fill: fillGroup}),
	eksAddon: aws("aws_eks_addon",
		Type{Make: makeAddon, Fill: fillAddon, Delete: deleteAddon}),
	"aws:eks/accessEntry:AccessEntry": aws("aws_eks_access_entry", Type{Fill: fillEntry}),
	"aws:eks/accessPolicyAssociation:AccessPolicyAssociation": aws("aws_eks_access_policy_association", Type{
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
	}),
	"aws:eks/podIdentityAssociation:PodIdentityAssociation": aws("aws_eks_pod_identity_association",
		Type{Make: makeIdentityOfPods}),
	"aws:efs/fileSystem:FileSystem": aws("aws_efs_file_system",
		Type{Make: makeEFS, Fill: fillEFS, Drift: driftEFS}),
	"aws:efs/accessPoint:AccessPoint": aws("aws_efs_access_point",
		Type{Make: amazonARN("elasticfilesystem", "access-point/")}),
	mountTarget: aws("aws_efs_mount_target",
		Type{Make: makeTarget, Delete: noGroupsLeft}),
	"aws:s3/bucketV2:BucketV2": aws("aws_s3_bucket", Type{
		Name: "bucket", Global: true, Make: makeBucket, Fill: fillBucket, Drift: driftBucket,
		Delete: func(_ context.Context, r *Resource) error { return emptied(r, "forceDestroy", "BucketNotEmpty") },
	}),
	"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": aws("aws_s3_bucket_public_access_block", Type{}),
	bucketVersion: aws("aws_s3_bucket_versioning", Type{Make: makeVersioning, Fill: fillVersioning}),
	"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2": aws(
		"aws_s3_bucket_server_side_encryption_configuration", Type{}),
	bucketExpiry: aws("aws_s3_bucket_lifecycle_configuration", Type{Fill: fillExpiry}),
	"aws:ecr/repository:Repository": aws("aws_ecr_repository", Type{
		Name: "name", Make: makeECR, Fill: fillECR,
		Delete: func(_ context.Context, r *Resource) error {
			return emptied(r, "forceDelete", "RepositoryNotEmptyException")
		},
	}),
	"aws:ecr/lifecyclePolicy:LifecyclePolicy": aws("aws_ecr_lifecycle_policy", Type{Drift: rewritten("policy")}),
	"aws:budgets/budget:Budget": aws("aws_budgets_budget",
		Type{Name: "name", Global: true, Make: makeAmazonBudget, Fill: fillAmazonBudget}),
}

// aws returns a type with its schema. Types with tags also have them in tagsAll.
func aws(schema string, t Type) Type {
	t.Schema = schema
	more := t.Fill
	t.Fill = func(r *Resource) {
		if all, err := t.parts(); err == nil && all["tagsAll"] != nil {
			tags, _ := r.Is["tags"].(Props)
			r.Is["tagsAll"] = Props{}
			fill(r.Is["tagsAll"].(Props), tags)
		}
		if more != nil {
			more(r)
		}
	}
	return t
}

// amazonPrefixes has the prefixes of the IDs that Amazon assigns.
var amazonPrefixes = map[string]string{
	"aws:ec2/vpc:Vpc": "vpc-", "aws:ec2/subnet:Subnet": "subnet-",
	"aws:ec2/securityGroup:SecurityGroup": "sg-", "aws:efs/fileSystem:FileSystem": "fs-",
	"aws:efs/accessPoint:AccessPoint": "fsap-", mountTarget: "fsmt-",
	"aws:ec2/launchTemplate:LaunchTemplate": "lt-", natGateway: "nat-",
	"aws:ec2/routeTable:RouteTable": "rtb-", "aws:ec2/internetGateway:InternetGateway": "igw-",
	"aws:ec2/eip:Eip": "eipalloc-",
	"aws:eks/podIdentityAssociation:PodIdentityAssociation": "a-", ingressRule: "sgr-",
	"aws:ec2/vpcEndpoint:VpcEndpoint": "vpce-",
}

// amazonID returns the ID of a new resource as Amazon or Terraform assigns it, or "".
func amazonID(r *Resource) string {
	if prefix := amazonPrefixes[r.Type]; prefix != "" {
		r.cloud.Amazon.serial++
		return prefix + digest(fmt.Sprint(r.URN, r.cloud.Amazon.serial))
	}
	of := func(separator string, keys ...string) string {
		var parts []string
		for _, k := range keys {
			parts = append(parts, text(r.In, k))
		}
		return strings.Join(parts, separator)
	}
	switch r.Type {
	case "aws:sqs/queue:Queue":
		return urlOfQueue(text(r.In, "name"))
	case "aws:sqs/queuePolicy:QueuePolicy":
		return text(r.In, "queueUrl")
	case eksCluster, "aws:iam/role:Role", "aws:iam/instanceProfile:InstanceProfile",
		"aws:cloudwatch/eventRule:EventRule", "aws:ecr/repository:Repository", logGroup:
		return text(r.In, "name")
	case "aws:iam/policy:Policy":
		return "arn:aws:iam::" + AmazonAccount + ":policy/" + text(r.In, "name")
	case "aws:s3/bucketV2:BucketV2":
		return text(r.In, "bucket")
	case "aws:budgets/budget:Budget":
		return AmazonAccount + ":" + text(r.In, "name")
	case eksGroup:
		return of(":", "clusterName", "nodeGroupName")
	case eksAddon:
		return of(":", "clusterName", "addonName")
	case "aws:eks/accessEntry:AccessEntry":
		return of(":", "clusterName", "principalArn")
	case "aws:eks/accessPolicyAssociation:AccessPolicyAssociation":
		return of("#", "clusterName", "principalArn", "policyArn")
	}
	return ""
}

func amazonARN(service, kind string) func(context.Context, *Resource, Op) (Props, error) {
	return func(_ context.Context, r *Resource, _ Op) (Props, error) {
		return Props{"arn": arnOf(service, kind+r.ID)}, nil
	}
}

// arnOf returns an ARN in the account and region of all tests.
func arnOf(service, what string) string {
	return "arn:aws:" + service + ":" + AmazonRegion + ":" + AmazonAccount + ":" + what
}

func amazonGlobalARN(service, kind string) func(context.Context, *Resource, Op) (Props, error) {
	return func(_ context.Context, r *Resource, _ Op) (Props, error) {
		if name := text(r.In, "name"); len(name) > 64 {
			return nil, fmt.Errorf("ValidationError: name %s has more than 64 characters", name)
		}
		return Props{"arn": "arn:aws:" + service + "::" + AmazonAccount + ":" + kind + text(r.In, "name")}, nil
	}
}

func urlOfQueue(name string) string {
	return "https://sqs." + AmazonRegion + ".amazonaws.com/" + AmazonAccount + "/" + name
}

func makeQueue(_ context.Context, r *Resource, _ Op) (Props, error) {
	name := text(r.In, "name")
	return Props{"arn": arnOf("sqs", name), "url": urlOfQueue(name)}, nil
}

func makeNAT(_ context.Context, r *Resource, op Op) (Props, error) {
	if r.In["connectivityType"] == "private" && r.In["allocationId"] != nil {
		return nil, errors.New(`allocation_id is not supported with connectivity_type = "private"`)
	}
	if op == Create && r.cloud.first("aws:ec2/internetGateway:InternetGateway") == nil {
		return nil, errors.New("Gateway.NotAttached: the network has no internet gateway")
	}
	return nil, nil
}

func makeRule(_ context.Context, r *Resource, _ Op) (Props, error) {
	return Props{"securityGroupRuleId": r.ID, "arn": arnOf("ec2", "security-group-rule/"+r.ID)}, nil
}

// policies returns the names of the policies that a role has.
func policies(r *Resource, roleARN string) (names []string) {
	if roleARN == ExistingNodeRole {
		return []string{"AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly",
			"AmazonEKSWorkerNodeMinimalPolicy"}
	}
	for a := range r.cloud.all(roleAttached) {
		if text(a.In, "role") == last(roleARN) {
			names = append(names, last(text(a.In, "policyArn")))
		}
	}
	return names
}

func makeEFS(_ context.Context, r *Resource, _ Op) (Props, error) {
	return Props{"arn": arnOf("elasticfilesystem", "file-system/"+r.ID), "dnsName": r.ID + ".efs." +
		AmazonRegion + ".amazonaws.com"}, nil
}

func makeTarget(_ context.Context, r *Resource, op Op) (Props, error) {
	if op == Create {
		zone := zoneOf(r.cloud, text(r.In, "subnetId"))
		for other := range r.cloud.all(mountTarget) {
			if other.In["fileSystemId"] == r.In["fileSystemId"] && zoneOf(r.cloud, text(other.In, "subnetId")) == zone {
				return nil, fmt.Errorf("MountTargetConflict: mount target already exists in %s", zone)
			}
		}
	}
	return Props{"ipAddress": "10.0.0.9"}, nil
}

// zoneOf returns the zone of a subnet. The last letter of the ID of a subnet that no stack has
// created is its zone.
func zoneOf(c *Cloud, subnet string) string {
	for s := range c.all("aws:ec2/subnet:Subnet") {
		if s.ID == subnet {
			return text(s.In, "availabilityZone")
		}
	}
	return AmazonRegion + subnet[max(0, len(subnet)-1):]
}

func makeBucket(_ context.Context, r *Resource, _ Op) (Props, error) {
	name := text(r.In, "bucket")
	return Props{"arn": "arn:aws:s3:::" + name, "bucketDomainName": name + ".s3.amazonaws.com"}, nil
}

func makeVersioning(_ context.Context, r *Resource, _ Op) (Props, error) {
	was, now := text(r.Is, "versioningConfiguration", "status"), text(r.In, "versioningConfiguration", "status")
	if now == "Disabled" && (was == "Enabled" || was == "Suspended") {
		return nil, fmt.Errorf("versioning_configuration.status cannot be updated from '%s' to '%s'", was, now)
	}
	return nil, nil
}

func makeECR(_ context.Context, r *Resource, _ Op) (Props, error) {
	name := text(r.In, "name")
	return Props{"arn": arnOf("ecr", "repository/"+name), "repositoryUrl": AmazonAccount + ".dkr.ecr." +
		AmazonRegion + ".amazonaws.com/" + name, "registryId": AmazonAccount}, nil
}

// deleteLogs refuses to delete a log group while the cluster writes to it.
func deleteLogs(_ context.Context, r *Resource) error {
	return needs(r, eksCluster, "the cluster would make it again")
}

// logsReturn creates a deleted log group again, as EKS's own role may do after the cluster is
// deleted.
func logsReturn(r *Resource) {
	if r.cloud.LogsReturn && r.Name != LogsOfEKS {
		in := Props{"name": r.In["name"]}
		r.cloud.Amazon.live[r.Type+" "+r.ID] = &Resource{Type: r.Type, Name: LogsOfEKS, URN: r.URN,
			ID: r.ID, In: in, Is: in, out: in, cloud: r.cloud}
		r.cloud.Amazon.calls = append(r.cloud.Amazon.calls, Call{"create", r.Type, LogsOfEKS, r.ID})
	}
}

// LogsOfEKS is the name of the log group that EKS creates again: see [Cloud.LogsReturn] and
// [Cloud.Lose].
const LogsOfEKS = "written again by EKS"

const logsExist = "ResourceAlreadyExistsException: The specified log group already exists"

func noNAT(_ context.Context, r *Resource) error {
	return needs(r, natGateway, "its network has mapped public addresses")
}

// emptied refuses to delete a resource, which is assumed not to be empty, unless the input named
// switched allows it.
func emptied(r *Resource, switched, code string) error {
	if r.In[switched] != true {
		return fmt.Errorf("%s: and %s is not set", code, switched)
	}
	return nil
}

// deleteAttachment refuses to remove a policy from a role while a resource with that role needs the
// policy to be deleted.
func deleteAttachment(_ context.Context, r *Resource) error {
	for _, kind := range []string{eksCluster, eksGroup} {
		for user := range r.cloud.all(kind) {
			if last(text(user.In, "roleArn")+text(user.In, "nodeRoleArn")) == text(r.In, "role") {
				return fmt.Errorf("%s %s cannot clean up without %s", kind, user.Name, text(r.In, "policyArn"))
			}
		}
	}
	return nil
}

// noGroupsLeft refuses to delete what nodes need while there are groups of nodes. Resources of
// single subnets or routes are needed only by the groups in these subnets.
func noGroupsLeft(_ context.Context, r *Resource) error {
	for g := range r.cloud.all(eksGroup) {
		in := list(g.In, "subnetIds")
		subnet := text(r.In, "subnetId")
		switch {
		case r.Type == "aws:ec2/natGateway:NatGateway": // all subnets may use it
		case subnet != "" && !slices.Contains(in, any(subnet)):
			continue
		case r.Type == "aws:ec2/route:Route" && !routes(r, in):
			continue
		}
		return fmt.Errorf("%s %s is there: its nodes need it", g.Type, g.Name)
	}
	return nil
}

// routes reports whether a route is in the route table of one of the subnets.
func routes(r *Resource, subnets []any) bool {
	for a := range r.cloud.all("aws:ec2/routeTableAssociation:RouteTableAssociation") {
		if a.In["routeTableId"] == r.In["routeTableId"] && slices.Contains(subnets, a.In["subnetId"]) {
			return true
		}
	}
	return false
}

func needs(r *Resource, kind, why string) error {
	if user := r.cloud.first(kind); user != nil {
		return fmt.Errorf("%s %s is there: %s", kind, user.Name, why)
	}
	return nil
}

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// isBucket reports whether a resource is a bucket of Amazon, which has several types.
func isBucket(r Resource) bool {
	return oneOf(r.Type, "aws:s3/bucketV2:BucketV2", "aws:s3/bucket:Bucket")
}

func openBucket(r Resource, _ []Resource) (problems []string) {
	switch r.Type {
	case "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock":
		for _, key := range []string{"blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls",
			"restrictPublicBuckets"} {
			if !is(at(r.Inputs, key), true) {
				problems = append(problems, key+" is not true")
			}
		}
	case "gcp:storage/bucket:Bucket":
		if !is(at(r.Inputs, "publicAccessPrevention"), "enforced") {
			problems = append(problems, "publicAccessPrevention is not enforced")
		}
		if !is(at(r.Inputs, "uniformBucketLevelAccess"), true) {
			problems = append(problems, "uniformBucketLevelAccess is not true")
		}
	}
	return problems
}

func bareBucket(r Resource, all []Resource) (problems []string) {
	if !isBucket(r) {
		return nil
	}
	for _, guard := range []string{"BucketPublicAccessBlock", "BucketServerSideEncryptionConfigurationV2"} {
		if !slices.ContainsFunc(all, func(g Resource) bool {
			return kindOf(g, "aws") == guard && slices.Contains(g.Options.DependsOn, r.Type+" "+r.Name)
		}) {
			problems = append(problems, "it has no "+guard)
		}
	}
	return problems
}

func unencryptedVolume(r Resource, _ []Resource) (problems []string) {
	switch r.Type {
	case "aws:efs/fileSystem:FileSystem", "aws:ebs/volume:Volume":
		if !is(at(r.Inputs, "encrypted"), true) {
			problems = append(problems, "encrypted is not true")
		}
	case "aws:ec2/launchTemplate:LaunchTemplate":
		disks := at(r.Inputs, "blockDeviceMappings")
		if !unknown(disks) && len(list(disks)) == 0 {
			problems = append(problems, "it names no blockDeviceMappings, so the disk is as the image has it")
		}
		for i, d := range list(disks) {
			if encrypted := within(d, "ebs", "encrypted"); !is(encrypted, true) && !is(encrypted, "true") {
				problems = append(problems, fmt.Sprintf("blockDeviceMappings[%d].ebs.encrypted is not true", i))
			}
		}
	case "aws:eks/nodeGroup:NodeGroup":
		if at(r.Inputs, "launchTemplate").IsNull() {
			problems = append(problems, "it has no launchTemplate, so its disks are not encrypted")
		}
	case "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2":
		for _, rule := range list(at(r.Inputs, "rules")) {
			if within(rule, "applyServerSideEncryptionByDefault", "sseAlgorithm").IsNull() {
				problems = append(problems, "a rule has no sseAlgorithm")
			}
		}
	}
	return problems
}

func unprotectedStorage(r Resource, _ []Resource) []string {
	switch {
	case oneOf(r.Type, "gcp:filestore/instance:Instance", "gcp:storage/bucket:Bucket",
		"aws:efs/fileSystem:FileSystem") || isBucket(r):
		if !r.Options.Protect {
			return []string{"it is not protected"}
		}
	case kindOf(r, "kubernetes") == "PersistentVolumeClaim":
		if at(r.Inputs, "spec", "volumeName").IsNull() && !r.Options.Protect {
			return []string{"it is not protected, and its class may delete the data with it"}
		}
	case kindOf(r, "kubernetes") == "PersistentVolume":
		if policy := at(r.Inputs, "spec", "persistentVolumeReclaimPolicy"); !is(policy, "Retain") && !policy.IsNull() {
			return []string{"persistentVolumeReclaimPolicy is " + text(policy) + " and not Retain"}
		}
	}
	return nil
}

// labels has the path of the labels of each type that is billed. The nodes of GKE have those of
// their cluster.
var labels = map[string][]string{
	"gcp:container/cluster:Cluster":              {"resourceLabels"},
	"gcp:filestore/instance:Instance":            {"labels"},
	"gcp:artifactregistry/repository:Repository": {"labels"},
	"gcp:storage/bucket:Bucket":                  {"labels"},
	"gcp:compute/globalAddress:GlobalAddress":    {"labels"},
	"gcp:compute/address:Address":                {"labels"},
	"aws:budgets/budget:Budget":                  {"tags"},
	"aws:cloudwatch/logGroup:LogGroup":           {"tags"},
	"aws:ec2/eip:Eip":                            {"tags"},
	"aws:ec2/internetGateway:InternetGateway":    {"tags"},
	"aws:ec2/launchTemplate:LaunchTemplate":      {"tags"},
	"aws:ec2/natGateway:NatGateway":              {"tags"},
	"aws:ec2/routeTable:RouteTable":              {"tags"},
	"aws:ec2/securityGroup:SecurityGroup":        {"tags"},
	"aws:ec2/subnet:Subnet":                      {"tags"},
	"aws:ec2/vpc:Vpc":                            {"tags"},
	"aws:ec2/vpcEndpoint:VpcEndpoint":            {"tags"},
	"aws:ecr/repository:Repository":              {"tags"},
	"aws:efs/accessPoint:AccessPoint":            {"tags"},
	"aws:efs/fileSystem:FileSystem":              {"tags"},
	"aws:eks/addon:Addon":                        {"tags"},
	"aws:eks/cluster:Cluster":                    {"tags"},
	"aws:eks/nodeGroup:NodeGroup":                {"tags"},
	"aws:iam/role:Role":                          {"tags"},
	"aws:kms/key:Key":                            {"tags"},
	"aws:s3/bucketV2:BucketV2":                   {"tags"},
}

// defaults has the paths of labels that providers set on all of their resources.
var defaults = map[string][]string{
	"pulumi:providers:aws": {"defaultTags", "tags"},
	"pulumi:providers:gcp": {"defaultLabels"},
}

func unlabelledCost(r Resource, all []Resource) (problems []string) {
	path, ok := labels[r.Type]
	if !ok {
		return nil
	}
	byProvider := slices.ContainsFunc(all, func(p Resource) bool {
		path, ok := defaults[p.Type]
		return ok && p.Type+" "+p.Name == r.Options.Provider && labelled(at(p.Inputs, path...))
	})
	if !byProvider && !labelled(at(r.Inputs, path...)) {
		problems = append(problems, strings.Join(path, ".")+" is empty")
	}
	// Default tags do not reach the instances that a template launches.
	if launched := at(r.Inputs,
		"tagSpecifications"); r.Type == "aws:ec2/launchTemplate:LaunchTemplate" && !unknown(launched) {
		for _, kind := range []string{"instance", "volume"} {
			if !slices.ContainsFunc(list(launched), func(s resource.PropertyValue) bool {
				return is(within(s, "resourceType"), kind) && labelled(within(s, "tags"))
			}) {
				problems = append(problems, "tagSpecifications has no tags for the "+kind)
			}
		}
	}
	return problems
}

// labelled reports whether a resource has any label besides its name and those that Kubernetes
// uses.
func labelled(v resource.PropertyValue) bool {
	if unknown(v) {
		return true
	}
	if v.IsObject() {
		for k := range v.ObjectValue() {
			if key := string(k); key != "Name" && !strings.HasPrefix(key, "kubernetes.io/") &&
				!strings.HasPrefix(key, "k8s.io/") {
				return true
			}
		}
	}
	return false
}

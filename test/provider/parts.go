package provider

import (
	"fmt"
	"slices"
	"strings"
)

// Parts that no stack has created, and that stacks may use.
const (
	// ExistingFiles is an encrypted file system of Amazon with mount targets in the zones a and b
	// of the VPC that no stack has created.
	ExistingFiles = "fs-0123456789abcdef0"
	// ExistingBucket is a private bucket in the region of all tests, of both clouds.
	ExistingBucket = "data-of-the-team"
	// ExistingSubnet is a subnet of a Shared VPC of Google, with the secondary ranges pods,
	// more-pods and services, and a NAT. Another has this name and "-2".
	ExistingSubnet  = "projects/host-project/regions/us-central1/subnetworks/nodes"
	existingNetwork = "projects/host-project/global/networks/shared"
	// ExistingInstance is a Filestore instance in us-central1-c and that Shared VPC. Another has
	// this name and "-2".
	ExistingInstance = "files-of-the-team"
	// ExistingImages is a repository of images of another project.
	ExistingImages = "projects/images-of-all/locations/us/repositories/team"
	// ExistingNodeRole is a role of Amazon with the policies that nodes need.
	ExistingNodeRole = "arn:aws:iam::" + AmazonAccount + ":role/nodes-of-the-team"
	// ExistingNodeAccount is a service account of Google that has the roles of nodes by a folder,
	// and may read ExistingImages.
	ExistingNodeAccount = "nodes-of-the-team@" + GoogleProject + ".iam.gserviceaccount.com"
	// ExistingKey is a key of Amazon. Another has this name and "-2".
	ExistingKey = "arn:aws:kms:" + AmazonRegion + ":" + AmazonAccount + ":key/0a1b2c3d"
	// ExistingGoogleKey is a key of Google, which all of its services may use. Another has this
	// name and "-2".
	ExistingGoogleKey = "projects/keys-of-all/locations/us-central1/keyRings/team/cryptoKeys/training"
	// ExistingRegistry begins the names of repositories of images of Amazon.
	ExistingRegistry = "team"
)

func getFileSystem(args Props) (Props, error) {
	id := text(args, "fileSystemId")
	if id != ExistingFiles {
		return nil, fmt.Errorf("reading EFS FileSystem (%s): FileSystemNotFound", id)
	}
	return Props{"id": id, "fileSystemId": id, "arn": arnOf("elasticfilesystem", "file-system/"+id),
		"encrypted": true, "throughputMode": "bursting", "performanceMode": "generalPurpose", "tags": Props{}}, nil
}

// getNetworkInterfaces finds the network interfaces of mount targets by their VPC and description.
// The last letter of the ID of each is its zone.
func getNetworkInterfaces(args Props) (Props, error) {
	ids := []any{}
	wants := map[string]any{"vpc-id": existingVPC, "description": "EFS mount target for " + ExistingFiles + " (*"}
	found := true
	for _, filter := range list(args, "filters") {
		want, known := wants[text(filter, "name")]
		found = found && known && slices.Contains(list(filter, "values"), want)
	}
	if found {
		ids = append(ids, "eni-0123456789abcdefa", "eni-0123456789abcdefb")
	}
	return Props{"id": AmazonRegion, "ids": ids}, nil
}

func getNetworkInterface(args Props) (Props, error) {
	id := text(args, "id")
	return Props{"id": id, "vpcId": existingVPC, "availabilityZone": AmazonRegion + id[len(id)-1:],
		"securityGroups": []any{"sg-0123456789abcdef0"}}, nil
}

func getAmazonBucket(args Props) (Props, error) {
	name := text(args, "bucket")
	if name != ExistingBucket {
		return nil, fmt.Errorf("reading S3 Bucket (%s): couldn't find resource", name)
	}
	return Props{"id": name, "bucket": name, "arn": "arn:aws:s3:::" + name, "region": AmazonRegion}, nil
}

func getGoogleBucket(args Props) (Props, error) {
	name := text(args, "name")
	if name != ExistingBucket {
		return nil, fmt.Errorf("googleapi: Error 404: The specified bucket does not exist: %s", name)
	}
	return Props{"id": name, "name": name, "location": "US-CENTRAL1", "publicAccessPrevention": "enforced",
		"uniformBucketLevelAccess": true, "requesterPays": false}, nil
}

func getSubnetwork(args Props) (Props, error) {
	id := "projects/" + text(args, "project") + "/regions/" + text(args, "region") + "/subnetworks/" +
		text(args, "name")
	if id != ExistingSubnet && id != ExistingSubnet+"-2" {
		return nil, fmt.Errorf("googleapi: Error 404: The resource '%s' was not found", id)
	}
	return Props{"id": id, "name": args["name"], "project": args["project"], "region": args["region"],
		"network": "https://www.googleapis.com/compute/v1/" + existingNetwork, "ipCidrRange": "10.20.0.0/20",
		"privateIpGoogleAccess": true, "secondaryIpRanges": []any{
			Props{"rangeName": "pods", "ipCidrRange": "10.24.0.0/14"},
			Props{"rangeName": "more-pods", "ipCidrRange": "10.28.0.0/14"},
			Props{"rangeName": "services", "ipCidrRange": "10.21.0.0/20"}}}, nil
}

func getFilestore(args Props) (Props, error) {
	id := "projects/" + text(args, "project") + "/locations/" + text(args, "location") + "/instances/" +
		text(args, "name")
	known := "projects/" + GoogleProject + "/locations/us-central1-c/instances/" + ExistingInstance
	if id != known && id != known+"-2" {
		return nil, fmt.Errorf("googleapi: Error 404: Resource '%s' was not found", id)
	}
	return Props{"id": id, "name": args["name"], "location": args["location"], "createTime": "2026-01-02T03:04:05Z",
		"protocol": "NFS_V3", "tier": "BASIC_HDD",
		"fileShares": []any{Props{"name": "vol1", "capacityGb": 1024.0}},
		"networks":   []any{Props{"network": existingNetwork, "ipAddresses": []any{"10.30.0.2"}}}}, nil
}

func getArtifacts(args Props) (Props, error) {
	id := "projects/" + text(args, "project") + "/locations/" + text(args, "location") + "/repositories/" +
		text(args, "repositoryId")
	if id != ExistingImages {
		return nil, fmt.Errorf("googleapi: Error 404: Requested entity was not found: %s", id)
	}
	return Props{"id": id, "format": "DOCKER", "mode": "STANDARD_REPOSITORY"}, nil
}

func getAccount(args Props) (Props, error) {
	address := text(args, "accountId")
	if address != ExistingNodeAccount {
		return nil, fmt.Errorf("googleapi: Error 404: Unknown service account: %s", address)
	}
	return Props{"id": "projects/" + GoogleProject + "/serviceAccounts/" + address, "accountId": address,
		"email": address, "member": "serviceAccount:" + address}, nil
}

func getGooglePolicy(args Props) (Props, error) {
	return Props{"id": args["project"], "project": args["project"], "etag": "BwYx",
		"policyData": `{"bindings":[{"role":"roles/owner","members":["user:ann@example.com"]}]}`}, nil
}

func getECR(args Props) (Props, error) {
	name := text(args, "name")
	if !strings.HasPrefix(name, ExistingRegistry+"/") {
		return nil, fmt.Errorf("reading ECR Repository (%s): couldn't find resource", name)
	}
	return Props{"id": name, "name": name, "imageTagMutability": "MUTABLE",
		"repositoryUrl": AmazonAccount + ".dkr.ecr." + AmazonRegion + ".amazonaws.com/" + name}, nil
}

func getKey(args Props) (Props, error) {
	arn := text(args, "keyId")
	if arn != ExistingKey && arn != ExistingKey+"-2" {
		return nil, fmt.Errorf("reading KMS Key (%s): NotFoundException", arn)
	}
	return Props{"id": last(arn), "keyId": arn, "arn": arn, "enabled": true, "keyState": "Enabled",
		"keyUsage": "ENCRYPT_DECRYPT", "customerMasterKeySpec": "SYMMETRIC_DEFAULT", "keyManager": "CUSTOMER"}, nil
}

func getGoogleKey(args Props) (Props, error) {
	id := text(args, "keyRing") + "/cryptoKeys/" + text(args, "name")
	if id != ExistingGoogleKey && id != ExistingGoogleKey+"-2" {
		return nil, fmt.Errorf("googleapi: Error 404: CryptoKey %s not found", id)
	}
	return Props{"id": id, "name": args["name"], "keyRing": args["keyRing"], "purpose": "ENCRYPT_DECRYPT",
		"primaries": []any{Props{"name": id + "/cryptoKeyVersions/1", "state": "ENABLED"}}}, nil
}

func getRole(args Props) (Props, error) {
	name := text(args, "name")
	if name != last(ExistingNodeRole) {
		return nil, fmt.Errorf("reading IAM Role (%s): NoSuchEntity", name)
	}
	return Props{"id": name, "name": name, "arn": ExistingNodeRole, "assumeRolePolicy": `{"Version":"2012-10-17",` +
		`"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`}, nil
}

// simulatePolicies allows everything that is asked.
func simulatePolicies(args Props) (Props, error) {
	all := []any{}
	for _, action := range list(args, "actionNames") {
		all = append(all, Props{"actionName": action, "allowed": true, "decision": "allowed"})
	}
	return Props{"id": "-", "allAllowed": true, "results": all}, nil
}

package provider

import (
	"fmt"
	"slices"
)

// Parts that no stack has created, and that stacks may use.
const (
	// ExistingFiles is an encrypted file system of Amazon with mount targets in the zones a and b
	// of the VPC that no stack has created.
	ExistingFiles = "fs-0123456789abcdef0"
	// ExistingBucket is a private bucket in the region of all tests, of both clouds.
	ExistingBucket = "data-of-the-team"
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

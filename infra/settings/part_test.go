package settings

import "strings"

var inSubnet = map[string]string{"gke.subnet": "{name: projects/host-project/regions/us-central1/subnetworks/nodes}",
	"gke.ranges.nodes": "", "gke.ranges.pods": "", "gke.ranges.services": "",
	"gke.filestore": "{name: files, location: us-central1-c}"}

// keyThere is a key of Google that exists already.
const keyThere = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"

var zonalFiles = map[string]string{"gke.filestore.tier": "ZONAL"}

// partMistakes are further mistakes, with parts that exist already: see mistakes.
var partMistakes = []mistake{
	{cloud: "gke", path: "gke.registry", value: "docker.io/team", want: "docker.io/team: expected the name of a " +
		"repository in us-central1, or projects/PROJECT/locations/us-central1/repositories/NAME"},
	{cloud: "eks", path: "eks.kmsKey", value: "alias/mine",
		want: "alias/mine: expected the ARN of a key, as arn:aws:kms:us-west-2:123456789012:key/ID"},
	{cloud: "eks", path: "eks.kmsKey", value: "arn:aws:kms:eu-west-1:123456789012:key/0-a",
		want: "expected a key in us-west-2, where the stack is"},
	{cloud: "gke", path: "gke.kmsKey", value: "my-key", also: zonalFiles,
		want: "my-key: expected a key, as projects/PROJECT/locations/us-central1/keyRings/RING/cryptoKeys/KEY"},
	{cloud: "gke", path: "gke.kmsKey", value: "projects/p/locations/global/keyRings/r/cryptoKeys/k", also: zonalFiles,
		want: "expected a key in us-central1, where the cluster is"},
	{cloud: "gke", path: "gke.filestore.tier", value: "BASIC_HDD", also: map[string]string{"gke.kmsKey": keyThere},
		want: "BASIC_HDD: Google encrypts this tier by its own keys only: expected ZONAL or REGIONAL, or no " +
			"gke.kmsKey"},
	{cloud: "gke", path: "gke.bucket.location", value: "eu", at: "gke.bucket.kmsKey",
		also: map[string]string{"gke.kmsKey": keyThere, "gke.filestore.tier": "ZONAL"},
		want: "missing: gke.kmsKey is a key in us-central1, and the bucket is in eu: give a key in eu for it"},
	{cloud: "gke", path: "gke.nodeAccount", value: "nodes-of-all", want: "nodes-of-all: expected the address of a " +
		"service account of the project, NAME@"},
	{cloud: "gke", path: "gke.nodeAccount", value: "nodes-of-all@another.iam.gserviceaccount.com",
		want: "expected the address of a service account of the project, NAME@"},
	{cloud: "gke", path: "gke.nodeAccount", value: "123456789012-compute@developer.gserviceaccount.com",
		want: "expected the address of a service account of the project, NAME@"},
	{cloud: "gke", path: "gke.authorizedNetworks", value: "[" + strings.Repeat("{cidr: 192.0.2.1/32}, ", 101) + "]",
		want: "101 networks: expected at most 100"},
	{cloud: "eks", path: "eks.admins", at: "eks.admins[1]",
		value: "[arn:aws:iam::123456789012:user/ann, arn:aws:iam::123456789012:user/ann]",
		want:  "arn:aws:iam::123456789012:user/ann occurs twice"},
	{cloud: "eks", path: "eks.nodeRole", value: "nodes", want: "nodes: expected the ARN of a role"},
	{cloud: "eks", path: "eks.nodeRole", value: "arn:aws:iam::123456789012:user/ann",
		want: "expected the ARN of a role, as arn:aws:iam::123456789012:role/nodes"},
	{cloud: "eks", path: "eks.registry", value: "123456789012.dkr.ecr.us-west-2.amazonaws.com/Team",
		want: "expected the beginning of the name of a repository, as team of team/mnist"},
	{cloud: "gke", path: "gke.subnet", value: "{}", at: "gke.subnet.name", also: inSubnet,
		want: "missing: expected the name of a subnet in us-central1, or projects/HOST/regions/us-central1"},
	{cloud: "gke", path: "gke.subnet", value: "{name: projects/host-project/regions/us-east1/subnetworks/a}",
		at: "gke.subnet.name", want: "expected a subnet in us-central1, where the cluster is", also: inSubnet},
	{cloud: "gke", path: "gke.subnet", value: "{name: a, pods: ''}", at: "gke.subnet.pods",
		want: "missing: expected the name of a secondary range", also: inSubnet},
	{cloud: "gke", path: "gke.subnet", value: "{name: a, services: pods}", at: "gke.subnet.services",
		want: "pods: the range of the pods: expected another", also: inSubnet},
	{cloud: "gke", path: "gke.ranges.pods", value: "10.4.0.0/14", also: inSubnet,
		want: "10.4.0.0/14: gke.subnet names a subnet that exists already, which has its own ranges: remove this"},
	{cloud: "gke", path: "gke.ranges.master", value: "172.16.0.0/24", also: inSubnet,
		want: "172.16.0.0/24: expected a /28"},
	{cloud: "gke", path: "gke.filestore", value: "{tier: BASIC_HDD}", also: inSubnet,
		want: "the stack makes none in a Shared VPC, where Filestore needs private services access"},
	{cloud: "gke", path: "gke.filestore", value: "{name: Files, location: us-central1-c}", at: "gke.filestore.name",
		also: inSubnet, want: "Files: expected the name of an instance"},
	{cloud: "gke", path: "gke.filestore", value: "{name: files, location: us-central1-c}",
		at:   "gke.filestore.name",
		want: "files: it is reached from its own network: expected a subnet of that in gke.subnet"},
	{cloud: "gke", path: "gke.filestore", value: "{name: files, location: us-east1-b}", at: "gke.filestore.location",
		want: "us-east1-b: expected a place in us-central1, where the cluster is", also: inSubnet},
	{cloud: "gke", path: "gke.filestore", value: "{name: files, location: us-central1-c, capacityGb: 2048}",
		at:   "gke.filestore.capacityGb",
		want: "2048: gke.filestore.name names an instance that exists already, and is not changed", also: inSubnet},
	{cloud: "gke", path: "gke.filestore", value: "{name: files, location: us-central1-c, share: data}",
		at:   "gke.filestore.share",
		want: "data: gke.filestore.name names an instance that exists already", also: inSubnet},
	{cloud: "eks", path: "eks.efs", value: "{id: my-files}", at: "eks.efs.id",
		want: "my-files: expected the ID of a file system", also: map[string]string{"eks.vpc": vpcThere}},
	{cloud: "eks", path: "eks.efs", value: "{id: fs-0a1b2c3d}", at: "eks.efs.id",
		want: "fs-0a1b2c3d: it is mounted in the VPC of its mount targets: expected that VPC"},
	{cloud: "eks", path: "eks.efs.throughputMode", value: "elastic",
		want: "elastic: eks.efs.id names a file system that exists already, and is not changed",
		also: map[string]string{"eks.vpc": vpcThere, "eks.efs": "{id: fs-0a1b2c3d}"}},
}

package gke

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// withParts returns the settings of a stack whose parts exist already.
func withParts() *settings.Settings {
	s := configured()
	s.GKE.Subnet = &settings.GKESubnet{Name: "projects/host-project/regions/us-central1/subnetworks/nodes",
		Pods: "pods-of-ml", Services: "services-of-ml"}
	s.GKE.Ranges = settings.GKERanges{Master: s.GKE.Ranges.Master}
	s.GKE.Filestore = &settings.Filestore{Name: "team-files", Location: "us-central1-c"}
	s.GKE.Registry = "projects/images-of-all/locations/us/repositories/team"
	s.Platform.Queue = &settings.Queue{Install: true}
	s.GKE.Bucket = &settings.GKEBucket{Bucket: settings.Bucket{Access: "write", Name: "team-data"}}
	s.GKE.KMSKey = ownKey
	s.GKE.NodeAccount = theirAccount
	return s
}

// callOfParts returns the answers to look-ups of parts that exist already.
func callOfParts(token string, args resource.PropertyMap) resource.PropertyMap {
	m := map[string]any{}
	switch token {
	case getAccount:
		m = map[string]any{"member": "serviceAccount:" + args["accountId"].StringValue()}
	case "gcp:projects/getIamPolicy:getIamPolicy":
		m = map[string]any{"policyData": `{"bindings":[]}`}
	case "gcp:storage/getBucket:getBucket":
		m = map[string]any{"name": args["name"].StringValue(), "publicAccessPrevention": "enforced",
			"uniformBucketLevelAccess": true, "requesterPays": false}
	case "gcp:compute/getSubnetwork:getSubnetwork":
		if args["project"].StringValue() != "host-project" || args["region"].StringValue() != "us-central1" {
			break
		}
		m = map[string]any{"id": "projects/host-project/regions/us-central1/subnetworks/" + args["name"].StringValue(),
			"network":     "https://www.googleapis.com/compute/v1/projects/host-project/global/networks/shared",
			"ipCidrRange": "10.20.0.0/20", "privateIpGoogleAccess": true, "secondaryIpRanges": []any{
				map[string]any{"rangeName": "services-of-ml", "ipCidrRange": "10.21.0.0/20"},
				map[string]any{"rangeName": "pods-of-ml", "ipCidrRange": "10.24.0.0/14"}}}
	case getKey:
		if args["keyRing"].StringValue()+"/cryptoKeys/"+args["name"].StringValue() == ownKey {
			m = map[string]any{"purpose": "ENCRYPT_DECRYPT", "primaries": []any{map[string]any{"state": "ENABLED"}}}
		}
	case "gcp:artifactregistry/getRepository:getRepository":
		m = map[string]any{"format": "DOCKER", "mode": "STANDARD_REPOSITORY"}
	case "gcp:filestore/getInstance:getInstance":
		m = map[string]any{"id": "projects/acme/locations/us-central1-c/instances/" + args["name"].StringValue(),
			"createTime": "2026-01-02", "protocol": "NFS_V3",
			"fileShares": []any{map[string]any{"name": "vol1", "capacityGb": 2560}},
			"networks": []any{map[string]any{"network": "projects/host-project/global/networks/shared",
				"ipAddresses": []any{"10.30.0.2"}}}}
	}
	return resource.NewPropertyMapFromMap(m)
}

// The job's account has a role on a bucket that exists already; the stack makes no bucket.
func TestExistingBucket(t *testing.T) {
	all, c := record(t, withParts(), false)
	if len(of(all, typeBucket)) > 0 {
		t.Error("there is another bucket")
	}
	want(t, find(t, all, typeBucketMember, "job-data-objectUser"), "bucket=team-data", "role=roles/storage.objectUser",
		"member=serviceAccount:elasticdl-test-job@acme.iam.gserviceaccount.com")
	if c.Bucket.URL("a") != "gs://team-data/a" || c.Bucket.Assumed != "team-data" || len(c.Bucket.Ready) > 0 {
		t.Errorf("%+v", c.Bucket)
	}
}

// The cluster is in a subnet that exists already, and has its secondary ranges. The stack makes no
// network and no NAT; its rule for webhooks is in the project of the network.
func TestExistingSubnet(t *testing.T) {
	theirs := []string{typeNetwork, typeSubnet, typeRouter, typeNAT, typeFilestore, typeBucket, typeRegistry}
	for _, preview := range []bool{true, false} {
		all := first(record(t, withParts(), preview))
		for _, kind := range theirs {
			if n := len(of(all, kind)); n > 0 {
				t.Errorf("the stack makes %d of %s", n, kind)
			}
		}
		want(t, find(t, all, typeCluster, "cluster"), "network=projects/host-project/global/networks/shared",
			"subnetwork=projects/host-project/regions/us-central1/subnetworks/nodes",
			"ipAllocationPolicy.clusterSecondaryRangeName=pods-of-ml",
			"ipAllocationPolicy.servicesSecondaryRangeName=services-of-ml",
			"privateClusterConfig.masterIpv4CidrBlock=172.16.0.32/28")
		want(t, find(t, all, typeFirewall, "kueue"), "network=projects/host-project/global/networks/shared",
			"project=host-project", "sourceRanges[0]=172.16.0.32/28")
		for _, r := range all {
			if r.Options.Protect {
				t.Errorf("%s %s is protected", r.Type, r.Name)
			}
		}
	}
}

// The volume is the share of an instance that exists already.
func TestExistingFilestore(t *testing.T) {
	all, c := record(t, withParts(), true)
	volume := find(t, all, "kubernetes:core/v1:PersistentVolume", "volume")
	want(t, volume, "spec.csi.volumeHandle=modeInstance/us-central1-c/team-files/vol1",
		"spec.csi.volumeAttributes.ip=10.30.0.2", "spec.csi.volumeAttributes.volume=vol1")
	if id := c.Volume.ID.(pulumi.String); c.Volume.CapacityGB != 2560 || c.Volume.Claim != settings.ClaimGKE ||
		id != "projects/acme/locations/us-central1-c/instances/team-files of 2026-01-02" {
		t.Errorf("%+v", c.Volume)
	}
}

const (
	theirAccount = "nodes-of-all@acme.iam.gserviceaccount.com"

	getAccount = "gcp:serviceaccount/getAccount:getAccount"
	getSubnet  = "gcp:compute/getSubnetwork:getSubnetwork"
	getFiles   = "gcp:filestore/getInstance:getInstance"
	getKey     = "gcp:kms/getKMSCryptoKey:getKMSCryptoKey"
)

// All nodes have an account that exists already, also the one of the first two minutes. The stack
// makes none, and lets it read images of the stack's own only: what else it may is its owner's.
func TestExistingNodeAccount(t *testing.T) {
	s := withParts()
	all := first(record(t, s, false))
	want(t, find(t, all, typeCluster, "cluster"), "nodeConfig.serviceAccount="+theirAccount)
	pools := of(all, typePool)
	for _, pool := range pools {
		want(t, &pool, "nodeConfig.serviceAccount="+theirAccount)
	}
	if len(pools) < 3 {
		t.Errorf("%d pools", len(pools))
	}
	grants := func(all []graph.Resource) (n int) {
		for _, kind := range []string{typeRole, typeReader, typeAccount} {
			for _, r := range of(all, kind) {
				if strings.HasPrefix(r.Name, "nodes") {
					n++
				}
			}
		}
		return n
	}
	if n := grants(all); n > 0 {
		t.Errorf("the stack makes an account of nodes, or grants it something: %d", n)
	}
	if grants(first(record(t, configured(), false))) < 3 {
		t.Error("an account that the stack makes is not noticed")
	}
	s.GKE.Registry = ""
	all = first(record(t, s, false))
	want(t, find(t, all, typeReader, "nodes-artifactregistry.reader"), "member=serviceAccount:"+theirAccount)
	if n := grants(all); n > 1 {
		t.Errorf("the stack grants more: %d", n)
	}
}

// An account that exists already needs the roles of nodes in the project, or one that has them.
func TestRolesOfNodes(t *testing.T) {
	binding := func(role, more string) string {
		return fmt.Sprintf(`{"role":%q,"members":["user:ann@example.com","serviceAccount:a"]%s}`, role, more)
	}
	const never = `,"condition":{"expression":"false"}`
	var all []string
	for _, role := range nodeRoles {
		all = append(all, binding(role, ""))
	}
	for name, test := range map[string]struct {
		bindings []string
		lacks    int
	}{
		"none":            {nil, len(nodeRoles)},
		"all":             {all, 0},
		"all but one":     {all[1:], 1},
		"one of Google's": {[]string{binding("roles/container.defaultNodeServiceAccount", "")}, 0},
		"on a condition":  {[]string{binding("roles/container.defaultNodeServiceAccount", never)}, len(nodeRoles)},
		"another role":    {[]string{binding("roles/viewer", "")}, len(nodeRoles)},
		"of another":      {[]string{`{"role":"roles/editor","members":["serviceAccount:b"]}`}, len(nodeRoles)},
	} {
		lack, err := nodesLack(`{"bindings":[`+strings.Join(test.bindings, ",")+`]}`, "serviceAccount:a")
		if err != nil || len(lack) != test.lacks {
			t.Errorf("%s: lacks %v, %v", name, lack, err)
		}
	}
	if _, err := nodesLack("<html>", "serviceAccount:a"); err == nil {
		t.Error("an answer that is no policy is taken for one")
	}
}

// The nodes may read a repository that exists already, also one of another project.
func TestExistingRegistry(t *testing.T) {
	s := withParts()
	s.GKE.NodeAccount = ""
	all := first(record(t, s, false))
	want(t, find(t, all, typeReader, "nodes-artifactregistry.reader"), "project=images-of-all", "location=us",
		"repository=team", "role=roles/artifactregistry.reader",
		"member=serviceAccount:elasticdl-test-nodes@acme.iam.gserviceaccount.com")
	want(t, find(t, all, "kubernetes:core/v1:ServiceAccount", "cluster"),
		"metadata.annotations.registry=us-docker.pkg.dev/images-of-all/team")
}

// Parts that do not fit are refused before any resource is requested.
func TestPartsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		token string
		with  map[string]any
		want  string
	}{
		"a public bucket": {"gcp:storage/getBucket:getBucket", map[string]any{"publicAccessPrevention": "inherited"},
			"gke.bucket.name: team-data: objects of it may be made public: gcloud storage buckets update " +
				"gs://team-data --public-access-prevention"},
		"a bucket with ACLs": {"gcp:storage/getBucket:getBucket", map[string]any{"uniformBucketLevelAccess": false},
			"objects of it may have ACLs: gcloud storage buckets update gs://team-data --uniform-bucket-level-access"},
		"a bucket whose readers pay": {"gcp:storage/getBucket:getBucket", map[string]any{"requesterPays": true},
			"gcloud storage buckets update gs://team-data --no-requester-pays"},
		"a subnet without Google's services": {getSubnet, map[string]any{"privateIpGoogleAccess": false},
			"gke.subnet.name: projects/host-project/regions/us-central1/subnetworks/nodes: nodes in it without " +
				"public addresses do not reach Google's registry: gcloud compute networks subnets update nodes " +
				"--project=host-project --region=us-central1 --enable-private-ip-google-access"},
		"no such ranges": {getSubnet, map[string]any{"secondaryIpRanges": []any{
			map[string]any{"rangeName": "pods-of-ml", "ipCidrRange": "10.24.0.0/14"}}},
			"it has no secondary range services-of-ml, but [pods-of-ml]: name those for pods and services in " +
				"gke.subnet, or add one: gcloud compute networks subnets update nodes --project=host-project " +
				"--region=us-central1 --add-secondary-ranges=services-of-ml=CIDR"},
		"few addresses of nodes": {getSubnet, map[string]any{"ipCidrRange": "10.20.0.0/29"},
			"10.20.0.0/29: room for 4 nodes, and there may be"},
		"few addresses of pods": {getSubnet, map[string]any{"secondaryIpRanges": []any{
			map[string]any{"rangeName": "services-of-ml", "ipCidrRange": "10.21.0.0/20"},
			map[string]any{"rangeName": "pods-of-ml", "ipCidrRange": "10.24.0.0/23"}}},
			"10.24.0.0/23: room for the pods of 2 nodes, a /24 each"},
		"the range of the control plane": {getSubnet, map[string]any{"ipCidrRange": "172.16.0.0/20"},
			"its range 172.16.0.0/20 overlaps gke.ranges.master, 172.16.0.32/28: choose another there"},
		"no images": {"gcp:artifactregistry/getRepository:getRepository", map[string]any{"format": "NPM"},
			"gke.registry: projects/images-of-all/locations/us/repositories/team: its format is NPM: expected a " +
				"repository of DOCKER"},
		"a copy of others' images": {"gcp:artifactregistry/getRepository:getRepository",
			map[string]any{"mode": "REMOTE_REPOSITORY"}, "it is a REMOTE_REPOSITORY, to which nothing is pushed"},
		"a key to sign": {getKey, map[string]any{"purpose": "ASYMMETRIC_SIGN", "primaries": []any{}},
			"gke.kmsKey: " + ownKey + ": its purpose is ASYMMETRIC_SIGN: expected a symmetric key: gcloud kms keys " +
				"create NAME --keyring=projects/keys/locations/us-central1/keyRings/team --purpose=encryption"},
		"a key that is off": {getKey, map[string]any{"primaries": []any{map[string]any{"state": "DISABLED"}}},
			"its primary version is DISABLED: expected ENABLED: gcloud kms keys versions enable VERSION --key=" +
				ownKey},
		"a key without a version": {getKey, map[string]any{"primaries": []any{}}, "its primary version is missing"},
		"files of NFS 4": {getFiles, map[string]any{"protocol": "NFS_V4_1"},
			"gke.filestore.name: team-files: its protocol is NFS_V4_1: expected an instance of NFS_V3"},
		"files without an address": {getFiles, map[string]any{"networks": []any{}},
			"it has no share or no address yet: wait until it is READY"},
		"files elsewhere": {getFiles, map[string]any{"networks": []any{map[string]any{"network": "default",
			"ipAddresses": []any{"10.30.0.2"}}}}, "it is in network default, and gke.subnet in " +
			"projects/host-project/global/networks/shared: expected an instance in that network"},
		"files in a network of the same name": {getFiles, map[string]any{"networks": []any{map[string]any{
			"network": "shared", "ipAddresses": []any{"10.30.0.2"}}}}, "it is in network shared, and gke.subnet in " +
			"projects/host-project/global/networks/shared: expected an instance in that network"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := graph.Cloud{Preview: true}
			cloud.Call = func(token string, args resource.PropertyMap) resource.PropertyMap {
				result := call(token, args)
				if token == test.token {
					for key, value := range test.with {
						result[resource.PropertyKey(key)] = resource.NewPropertyValue(value)
					}
				}
				return result
			}
			all, err := graph.Record(cloud, func(ctx *pulumi.Context) error {
				_, err := NewCluster(ctx, "gke", OfStack(withParts()))
				return err
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if len(all) > 0 {
				t.Errorf("%d resources were requested before", len(all))
			}
		})
	}
}

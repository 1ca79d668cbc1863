package eks

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// withParts returns the settings of a stack with a job, all of whose storage exists already.
func withParts() *settings.Settings {
	s := existing()
	s.Job, s.ProtectStorage = own().Job, true
	s.EKS.EFS = &settings.EFS{ID: "fs-1", UID: new(65532)}
	s.EKS.Bucket = &settings.Bucket{Access: "write", Name: "team-data"}
	s.Image, s.EKS.Registry = own().Image, "team"
	s.EKS.NodeRole = "arn:aws:iam::" + account + ":role/nodes"
	s.EKS.KMSKey = ownKey
	return s
}

// The stack uses a file system and a repository that exist already, and makes none. Its nodes reach
// each mount target by a rule of the stack's own, which is open to them only, and is deleted after
// them.
func TestExistingFiles(t *testing.T) {
	for _, preview := range []bool{true, false} {
		v, err := record(withParts(), preview)
		if err != nil {
			t.Fatal(err)
		}
		wrong := slices.Concat(count(v.of(fileType), 0), count(v.of(mountType), 0), count(v.of(ruleType), 2),
			count(v.of(sgType), 0), is(v.named(pointType, "data")[0], "fileSystemId", "fs-1"))
		source := "sg-cluster"
		if preview {
			source = "(unknown)"
		}
		for _, group := range []string{"sg-1", "sg-2"} {
			r := v.named(ruleType, group)[0]
			for path, want := range map[string]string{"securityGroupId": group, "ipProtocol": "tcp",
				"fromPort": "2049", "toPort": "2049", "cidrIpv4": "<none>", "referencedSecurityGroupId": source} {
				wrong = append(wrong, is(r, path, want)...)
			}
			wrong = append(wrong, v.wait(v.of(groupType), r)...)
			if !slices.Contains(v.ready, ruleType+" "+group) {
				wrong = append(wrong, "no pod waits for "+group)
			}
		}
		for _, r := range v.all {
			if r.Options.Protect {
				wrong = append(wrong, r.Type+" "+r.Name+" is protected")
			}
		}
		wrong = append(wrong, count(v.of(repoType), 0)...)
		if got := v.texts["registry"]; got != account+".dkr.ecr.us-west-2.amazonaws.com/team" {
			wrong = append(wrong, "images are pushed to "+got)
		}
		if got := v.texts["{file-system}"]; got != "fs-1" {
			wrong = append(wrong, "the volume is of "+got)
		}
		for _, problem := range append(wrong, v.missing...) {
			t.Error(problem)
		}
	}
}

// The job may use a bucket that exists already, and no other of the kind; the stack makes none, and
// sets nothing on that bucket.
func TestExistingBucket(t *testing.T) {
	const key = "arn:aws:kms:us-west-2:123456789012:key/0-a"
	s := withParts()
	s.EKS.Bucket.KMSKey = key
	v, err := record(s, false)
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Concat(count(v.of(inlineType), 2), v.missing, is(v.named(inlineType, "job-data")[0], "policy",
		`{"Version":"2012-10-17","Statement":[`+
			`{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject","s3:DeleteObject","s3:AbortMultipartUpload"],`+
			`"Resource":["arn:aws:s3:::team-data/*"]},`+
			`{"Effect":"Allow","Action":["s3:ListBucket"],"Resource":["arn:aws:s3:::team-data"]},`+
			`{"Effect":"Allow","Action":["kms:Decrypt","kms:GenerateDataKey"],"Resource":["`+key+`"]}]}`))
	for _, r := range v.all {
		if strings.HasPrefix(r.Type, "aws:s3/") {
			wrong = append(wrong, "the stack has "+r.Type+" "+r.Name)
		}
	}
	if b := v.cluster.Bucket; b.Name != "team-data" || b.Assumed != b.Name || len(b.Ready) > 0 {
		t.Errorf("%+v", b)
	}
	for _, problem := range append(wrong, v.missing...) {
		t.Error(problem)
	}
}

// The nodes of every kind have a role that exists already, and the stack makes and attaches none
// for them.
func TestExistingNodeRole(t *testing.T) {
	for _, how := range []string{settings.NodesGroups, settings.NodesAuto, settings.NodesKarpenter} {
		s := following(how)
		s.EKS.NodeRole = "arn:aws:iam::" + account + ":role/nodes"
		v, err := record(s, false)
		if err != nil {
			t.Fatal(err)
		}
		var wrong []string
		for _, r := range slices.Concat(v.of(roleType), v.of(attachType)) {
			if r.Name == "node" || strings.HasPrefix(r.Name, "node-") {
				wrong = append(wrong, "there is "+r.Type+" "+r.Name)
			}
		}
		switch how {
		case settings.NodesAuto:
			c := v.named(clusterType, "cluster")[0]
			wrong = append(wrong, is(c, "computeConfig.nodeRoleArn", s.EKS.NodeRole)...)
		case settings.NodesKarpenter:
			for _, r := range v.of("aws:iam/instanceProfile:InstanceProfile") {
				wrong = append(wrong, is(r, "role", "nodes")...)
			}
			fallthrough
		default:
			wrong = append(wrong, is(v.named(groupType, "system")[0], "nodeRoleArn", s.EKS.NodeRole)...)
		}
		for _, problem := range append(wrong, v.missing...) {
			t.Errorf("%s: %s", how, problem)
		}
	}
}

// Only nodes that are not of Auto Mode need all four rights.
func TestRightsOfNodes(t *testing.T) {
	for _, how := range []string{settings.NodesGroups, settings.NodesAuto, settings.NodesKarpenter} {
		for i, n := range nodesNeed {
			s := following(how)
			s.EKS.NodeRole = "arn:aws:iam::" + account + ":role/nodes"
			_, err := record(s, true, func(token string, _, result resource.PropertyMap) {
				if token != "aws:iam/getPrincipalPolicySimulation:getPrincipalPolicySimulation" {
					return
				}
				for _, r := range result["results"].ArrayValue() {
					if is := r.ObjectValue(); is["actionName"].StringValue() == n.action {
						is["allowed"] = resource.NewProperty(false)
					}
				}
			})
			refused := err != nil && strings.Contains(err.Error(), "it may not "+n.action+": aws iam attach")
			if want := i < 2 || how != settings.NodesAuto; refused != want {
				t.Errorf("%s without %s: refused %t, want %t: %v", how, n.action, refused, want, err)
			}
		}
	}
}

// A stack that builds no image takes a repository whose tags stay.
func TestRegistryWithoutImage(t *testing.T) {
	s := withParts()
	s.Image = nil
	v, err := record(s, true, func(token string, _, result resource.PropertyMap) {
		if token == "aws:ecr/getRepository:getRepository" {
			result["imageTagMutability"] = resource.NewProperty("IMMUTABLE")
		}
	})
	if err != nil || len(v.of(clusterType)) != 1 {
		t.Errorf("%v", err)
	}
}

// Parts that do not fit are refused before any resource is requested, with all reasons.
func TestPartsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		token string
		with  resource.PropertyMap
		want  string
	}{
		"files in clear": {"aws:efs/getFileSystem:getFileSystem", props("encrypted", false),
			"eks.efs.id: fs-1: it is not encrypted, which cannot change: copy the files to one that is"},
		"a bucket elsewhere": {"aws:s3/getBucket:getBucket", props("region", "eu-west-1"),
			"eks.bucket.name: team-data: it is in eu-west-1: expected a bucket in us-west-2, where the nodes are"},
		"a role of others": {"aws:iam/getRole:getRole", props("assumeRolePolicy", "{}"), "eks.nodeRole: " +
			"arn:aws:iam::" + account + ":role/nodes: instances may not assume it: its trust policy has to " +
			"name the service ec2.amazonaws.com"},
		"a role of another path": {"aws:iam/getRole:getRole", props("arn", "arn:aws:iam::"+account+":role/ml/nodes"),
			"the account has arn:aws:iam::" + account + ":role/ml/nodes: expected that ARN"},
		"a role without rights": {"aws:iam/getPrincipalPolicySimulation:getPrincipalPolicySimulation",
			props("results", []any{map[string]any{"actionName": "ec2:DescribeNetworkInterfaces", "allowed": false}}),
			"it may not ec2:DescribeNetworkInterfaces: aws iam attach-role-policy --role-name nodes --policy-arn " +
				"arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"},
		"a key to sign": {"aws:kms/getKey:getKey", props("keyUsage", "SIGN_VERIFY"),
			"eks.kmsKey: " + ownKey + ": its usage is SIGN_VERIFY: expected a symmetric key to encrypt and decrypt: " +
				"aws kms create-key --region us-west-2 makes one"},
		"a key of two parts": {"aws:kms/getKey:getKey", props("customerMasterKeySpec", "RSA_2048"),
			"its kind is RSA_2048: expected a symmetric key to encrypt and decrypt"},
		"a key that is off": {"aws:kms/getKey:getKey", props("keyState", "Disabled"),
			"it is disabled: aws kms enable-key --region us-west-2 --key-id " + ownKey},
		"a key that ends": {"aws:kms/getKey:getKey", props("keyState", "PendingDeletion"), "it is about to be " +
			"deleted: aws kms cancel-key-deletion --region us-west-2 --key-id " + ownKey + ", and then aws kms " +
			"enable-key"},
		"a key that is not there yet": {"aws:kms/getKey:getKey", props("keyState", "PendingImport"),
			"its state is PendingImport: expected Enabled"},
		"tags that stay": {"aws:ecr/getRepository:getRepository", props("imageTagMutability", "IMMUTABLE"),
			"eks.registry: team/mnist: a tag of it is pushed only once: aws ecr put-image-tag-mutability " +
				"--region us-west-2 --repository-name team/mnist --image-tag-mutability MUTABLE"},
		"no mount targets": {"aws:ec2/getNetworkInterfaces:getNetworkInterfaces", props("ids", []any{"eni-c"}),
			"eks.efs.id: fs-1: it has no mount target of vpc-1 in us-west-2b, us-west-2a, where nodes are: make one, " +
				"aws efs create-mount-target --file-system-id fs-1 --subnet-id SUBNET"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := record(withParts(), true, func(token string, _, result resource.PropertyMap) {
				if token == test.token {
					maps.Copy(result, test.with)
				}
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if len(v.all) > 0 {
				t.Errorf("%d resources were requested before", len(v.all))
			}
		})
	}
}

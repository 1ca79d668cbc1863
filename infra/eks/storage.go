package eks

import (
	"cmp"
	"encoding/json"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/efs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/vpc"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/trainer/manifest"
)

const nfs = 2049

// files makes an EFS that nodes of the cluster can mount in every zone, and what must be there before any does.
func (b *builder) files(c *eks.Cluster, n *network) (*infra.Volume, []pulumi.Resource, error) {
	if b.eks.EFS == nil {
		return nil, nil, nil
	}
	name := b.name + "-data"
	fs, err := efs.NewFileSystem(b.Context, "data", &efs.FileSystemArgs{
		Encrypted:       pulumi.Bool(true), // for ever: neither this nor the mode can change but by another file system
		PerformanceMode: pulumi.String("generalPurpose"),
		ThroughputMode:  pulumi.String(cmp.Or(b.eks.EFS.ThroughputMode, "elastic")),
		// What nobody reads for a month goes where it costs less, and comes back when it is read.
		LifecyclePolicies: efs.FileSystemLifecyclePolicyArray{
			&efs.FileSystemLifecyclePolicyArgs{TransitionToIa: pulumi.String("AFTER_30_DAYS")},
			&efs.FileSystemLifecyclePolicyArgs{TransitionToPrimaryStorageClass: pulumi.String("AFTER_1_ACCESS")},
		},
		Tags: b.tags(name),
	}, b.with(pulumi.Protect(b.s.ProtectStorage)))
	if err != nil {
		return nil, nil, err
	}
	mounts, err := b.mountTargets(c, n, fs)
	if err != nil {
		return nil, nil, err
	}
	holes := map[string]pulumi.StringInput{"{file-system}": fs.ID()}
	if b.eks.EFS.UID == nil {
		return volume("{file-system}", fs.ID().ToStringOutput(), holes), mounts, nil
	}
	uid := pulumi.Int(*b.eks.EFS.UID)
	// EFS knows no fsGroup. Through the access point every file is that user's, and the directory is made so.
	point, err := efs.NewAccessPoint(b.Context, "data", &efs.AccessPointArgs{
		FileSystemId: fs.ID(),
		PosixUser:    &efs.AccessPointPosixUserArgs{Uid: uid, Gid: uid},
		RootDirectory: &efs.AccessPointRootDirectoryArgs{
			Path:         pulumi.String("/data"),
			CreationInfo: &efs.AccessPointRootDirectoryCreationInfoArgs{OwnerUid: uid, OwnerGid: uid, Permissions: pulumi.String("0755")},
		},
		Tags: b.tags(name),
	}, b.with())
	if err != nil {
		return nil, nil, err
	}
	holes["{access-point}"] = point.ID()
	return volume("{file-system}::{access-point}", pulumi.Sprintf("%s/%s", fs.ID(), point.ID()), holes), append(mounts, point), nil
}

// mountTargets makes one in each zone: a node finds the file system's name only where one is.
func (b *builder) mountTargets(c *eks.Cluster, n *network, fs *efs.FileSystem) ([]pulumi.Resource, error) {
	group, err := ec2.NewSecurityGroup(b.Context, "efs", &ec2.SecurityGroupArgs{
		Description: pulumi.String("NFS from the nodes of " + b.name), VpcId: n.vpc, Tags: b.tags(b.name + "-efs"),
	}, b.with())
	if err != nil {
		return nil, err
	}
	rule, err := vpc.NewSecurityGroupIngressRule(b.Context, "efs", &vpc.SecurityGroupIngressRuleArgs{
		SecurityGroupId: group.ID(), ReferencedSecurityGroupId: c.VpcConfig.ClusterSecurityGroupId(),
		IpProtocol: pulumi.String("tcp"), FromPort: pulumi.Int(nfs), ToPort: pulumi.Int(nfs), Tags: b.tags(b.name + "-efs"),
	}, b.with())
	if err != nil {
		return nil, err
	}
	mounts := []pulumi.Resource{rule}
	for _, s := range n.private {
		mount, err := efs.NewMountTarget(b.Context, "data-"+s.zone, &efs.MountTargetArgs{
			FileSystemId: fs.ID(), SubnetId: s.id, SecurityGroups: pulumi.StringArray{group.ID()},
		}, b.with(pulumi.DeleteBeforeReplace(true))) // two in a zone conflict
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// driver makes the CSI driver of EFS, with the right to make access points for dynamic volumes.
func (b *builder) driver(c *eks.Cluster, nodes []pulumi.Resource) (pulumi.Resource, error) {
	role, attached, err := b.role("efs-driver", trusts(pods), "service-role/AmazonEFSCSIDriverPolicy")
	if err != nil {
		return nil, err
	}
	// When the stack goes, addons that need nodes are deleted before the nodes: the driver's pods stay, to unmount files.
	return b.addon(c, "aws-efs-csi-driver", eks.AddonArgs{Preserve: pulumi.Bool(true), PodIdentityAssociations: eks.AddonPodIdentityAssociationArray{
		&eks.AddonPodIdentityAssociationArgs{ServiceAccount: pulumi.String("efs-csi-controller-sa"), RoleArn: role.Arn},
	}}, nodes, attached)
}

// code makes the bucket for training code, and the right of the job's pods, not of nodes, to read it.
func (b *builder) code(c *eks.Cluster) ([]pulumi.Resource, error) {
	if !b.eks.CodeBucket {
		return nil, nil
	}
	bucket, err := b.bucket("code")
	if err != nil {
		return nil, err
	}
	b.Export("codeBucket", bucket.ID())
	if b.s.Job == nil {
		return nil, nil
	}
	role, _, err := b.role("job", trusts(pods))
	if err != nil {
		return nil, err
	}
	may, err := iam.NewRolePolicy(b.Context, "job", &iam.RolePolicyArgs{Role: role.Name, Policy: bucket.Arn.ApplyT(func(arn string) string {
		return document(
			statement{Effect: "Allow", Action: []string{"s3:GetObject"}, Resource: []string{arn + "/*"}},
			statement{Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{arn}},
		)
	}).(pulumi.StringOutput)}, b.with())
	if err != nil {
		return nil, err
	}
	is, err := eks.NewPodIdentityAssociation(b.Context, "job", &eks.PodIdentityAssociationArgs{
		ClusterName: c.Name, Namespace: pulumi.String(b.s.Platform.Namespace), ServiceAccount: pulumi.String(manifest.AccountName(b.s.Job)),
		RoleArn: role.Arn, Tags: b.tags(b.name),
	}, b.with(after([]pulumi.Resource{may})))
	return []pulumi.Resource{is}, err // pods that were there before have no role
}

// bucket makes a bucket that is private and encrypted, and keeps what was overwritten.
func (b *builder) bucket(name string) (*untyped, error) {
	kept := pulumi.Protect(b.s.ProtectStorage) // all of it: a bucket that stays, stays private
	bucket, err := b.register("aws:s3/bucketV2:BucketV2", name, pulumi.Map{
		"bucket":       pulumi.String(b.s.Name(50, name) + "-" + b.account), // unique in the world
		"forceDestroy": pulumi.Bool(!b.s.ProtectStorage),
		"tags":         b.tags(b.name + "-" + name),
	}, kept, pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		token  string
		inputs pulumi.Map
	}{
		{"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", pulumi.Map{
			"blockPublicAcls": pulumi.Bool(true), "blockPublicPolicy": pulumi.Bool(true),
			"ignorePublicAcls": pulumi.Bool(true), "restrictPublicBuckets": pulumi.Bool(true),
		}},
		{"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2", pulumi.Map{
			"rules": pulumi.Array{pulumi.Map{"applyServerSideEncryptionByDefault": pulumi.Map{"sseAlgorithm": pulumi.String("AES256")}}},
		}},
		{"aws:s3/bucketVersioningV2:BucketVersioningV2", pulumi.Map{"versioningConfiguration": pulumi.Map{"status": pulumi.String("Enabled")}}},
	} {
		of.inputs["bucket"] = bucket.ID()
		if _, err := b.register(of.token, name, of.inputs, kept); err != nil {
			return nil, err
		}
	}
	return bucket, nil
}

// registry makes the repository to which the stack's image is pushed, and returns its name less the image's: Amazon wants a
// repository for each.
func (b *builder) registry() (pulumi.StringOutput, error) {
	image := "model"
	if b.s.Job != nil {
		image = b.s.Job.Name
	}
	if b.s.Image != nil {
		image = cmp.Or(b.s.Image.Name, image)
	}
	images, err := ecr.NewRepository(b.Context, "images", &ecr.RepositoryArgs{
		Name:                       pulumi.String(b.name + "/" + image),
		ImageScanningConfiguration: &ecr.RepositoryImageScanningConfigurationArgs{ScanOnPush: pulumi.Bool(true)},
		ImageTagMutability:         pulumi.String("MUTABLE"), // jobs name digests
		ForceDelete:                pulumi.Bool(!b.s.ProtectStorage),
		Tags:                       b.tags(b.name + "/" + image),
	}, b.with(pulumi.Protect(b.s.ProtectStorage), pulumi.DeleteBeforeReplace(true)))
	if err != nil {
		return pulumi.StringOutput{}, err
	}
	// By number and not by age: a job that runs for weeks starts workers of an image that has lost its tag since.
	expiry, err := json.Marshal(map[string]any{"rules": []any{map[string]any{
		"rulePriority": 1, "description": "the last 100 without a tag",
		"selection": map[string]any{"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": 100},
		"action":    map[string]any{"type": "expire"},
	}}})
	if err != nil {
		return pulumi.StringOutput{}, err
	}
	_, err = ecr.NewLifecyclePolicy(b.Context, "images", &ecr.LifecyclePolicyArgs{Repository: images.Name, Policy: pulumi.String(string(expiry))}, b.with())
	return images.RepositoryUrl.ApplyT(func(url string) string { return strings.TrimSuffix(url, "/"+image) }).(pulumi.StringOutput), err
}

// volume returns EFS as a PersistentVolume has it.
func volume(handle string, id pulumi.StringInput, holes map[string]pulumi.StringInput) *infra.Volume {
	return &infra.Volume{
		Claim:      Claim,
		ID:         id,
		CapacityGB: 1024, // EFS has no limit; Kubernetes wants a number
		Source:     core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: handle}},
		Holes:      holes,
	}
}

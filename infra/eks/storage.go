package eks

import (
	"cmp"
	"encoding/json"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/efs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/vpc"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

const nfs = 2049

// addFiles creates an EFS file system that nodes of the cluster can mount in every zone.
func (p *parts) addFiles() error {
	if p.e.EFS == nil {
		return nil
	}
	name := p.name + "-data"
	fs, err := efs.NewFileSystem(p.ctx, "data", &efs.FileSystemArgs{
		// neither this nor the mode can be changed later without another file system
		Encrypted:       pulumi.Bool(true),
		PerformanceMode: pulumi.String("generalPurpose"),
		ThroughputMode:  pulumi.String(cmp.Or(p.e.EFS.ThroughputMode, "elastic")),
		// Files that are not read for a month move to cheaper storage, and back when they are read.
		LifecyclePolicies: efs.FileSystemLifecyclePolicyArray{
			&efs.FileSystemLifecyclePolicyArgs{TransitionToIa: pulumi.String("AFTER_30_DAYS")},
			&efs.FileSystemLifecyclePolicyArgs{TransitionToPrimaryStorageClass: pulumi.String("AFTER_1_ACCESS")},
		},
		Tags: p.tags(name),
	}, p.options(pulumi.Protect(p.s.ProtectStorage)))
	if err != nil {
		return err
	}
	if err := p.addMounts(fs); err != nil {
		return err
	}
	holes := map[string]pulumi.StringInput{"{file-system}": fs.ID()}
	if p.e.EFS.UID == nil {
		p.volume = volume("{file-system}", fs.ID().ToStringOutput(), holes)
		p.ready = append(p.ready, p.mounted...)
		return nil
	}
	uid := pulumi.Int(*p.e.EFS.UID)
	// EFS does not support fsGroup. Through the access point every file belongs to that user, and
	// so does the directory that it creates.
	point, err := efs.NewAccessPoint(p.ctx, "data", &efs.AccessPointArgs{
		FileSystemId: fs.ID(),
		PosixUser:    &efs.AccessPointPosixUserArgs{Uid: uid, Gid: uid},
		RootDirectory: &efs.AccessPointRootDirectoryArgs{
			Path: pulumi.String("/data"),
			CreationInfo: &efs.AccessPointRootDirectoryCreationInfoArgs{OwnerUid: uid, OwnerGid: uid,
				Permissions: pulumi.String("0755")},
		},
		Tags: p.tags(name),
	}, p.options())
	if err != nil {
		return err
	}
	holes["{access-point}"] = point.ID()
	p.volume = volume("{file-system}::{access-point}", pulumi.Sprintf("%s/%s", fs.ID(), point.ID()), holes)
	p.mounted = append(p.mounted, point)
	p.ready = append(p.ready, p.mounted...)
	return nil
}

// addMounts creates a mount target in each zone: a node can resolve the file system's name only in
// a zone that has one.
func (p *parts) addMounts(fs *efs.FileSystem) error {
	group, err := p.register("aws:ec2/securityGroup:SecurityGroup", "efs", pulumi.Map{
		"description": pulumi.String("NFS from the nodes of " + p.name), "vpcId": p.net.vpc,
		"tags": p.tags(p.name + "-efs"),
	})
	if err != nil {
		return err
	}
	rule, err := vpc.NewSecurityGroupIngressRule(p.ctx, "efs", &vpc.SecurityGroupIngressRuleArgs{
		SecurityGroupId: group.ID(), ReferencedSecurityGroupId: p.cluster.VpcConfig.ClusterSecurityGroupId(),
		IpProtocol: pulumi.String("tcp"), FromPort: pulumi.Int(nfs), ToPort: pulumi.Int(nfs),
		Tags: p.tags(p.name + "-efs"),
	}, p.options())
	if err != nil {
		return err
	}
	p.mounted = []pulumi.Resource{rule}
	for _, s := range p.net.private {
		mount, err := efs.NewMountTarget(p.ctx, "data-"+s.zone, &efs.MountTargetArgs{
			FileSystemId: fs.ID(), SubnetId: s.id, SecurityGroups: pulumi.StringArray{group.ID()},
		}, p.options(pulumi.DeleteBeforeReplace(true))) // a zone can have only one
		if err != nil {
			return err
		}
		p.mounted = append(p.mounted, mount)
	}
	return nil
}

// driver installs the CSI driver of EFS, with the right to create access points for dynamic
// volumes.
func (p *parts) driver(nodes []pulumi.Resource, more ...pulumi.ResourceOption) (pulumi.Resource, error) {
	role, attached, err := p.role("efs-driver", trusts(pods), "service-role/AmazonEFSCSIDriverPolicy")
	if err != nil {
		return nil, err
	}
	// When the stack is destroyed, addons that need nodes are deleted before the nodes. The
	// driver's pods are preserved, so that they can unmount files.
	return p.addon("aws-efs-csi-driver", eks.AddonArgs{Preserve: pulumi.Bool(true),
		PodIdentityAssociations: eks.AddonPodIdentityAssociationArray{
			&eks.AddonPodIdentityAssociationArgs{ServiceAccount: pulumi.String("efs-csi-controller-sa"),
				RoleArn: role.Arn},
		}}, append(more, after(nodes, attached))...)
}

// addCode creates the bucket for training code, and the role of the job's pods, which may read it.
// Nodes may not.
func (p *parts) addCode() error {
	var bucket *untyped
	if p.e.CodeBucket {
		var err error
		if bucket, err = p.bucket("code"); err != nil {
			return err
		}
		p.ctx.Export("codeBucket", bucket.ID())
	}
	if p.s.Job == nil || bucket == nil && len(p.e.JobPolicies) == 0 {
		return nil
	}
	role, err := p.newRole("job", trusts(pods))
	if err != nil {
		return err
	}
	rights, err := p.attach(role, "job", p.e.JobPolicies)
	if err != nil {
		return err
	}
	if bucket != nil {
		may, err := p.mayRead(role, bucket)
		if err != nil {
			return err
		}
		rights = append(rights, may)
	}
	is, err := eks.NewPodIdentityAssociation(p.ctx, "job", &eks.PodIdentityAssociationArgs{
		ClusterName: p.cluster.Name, Namespace: pulumi.String(p.s.Platform.Namespace),
		ServiceAccount: pulumi.String(manifest.AccountName(p.s.Job)),
		RoleArn:        role.Arn, Tags: p.tags(p.name),
	}, p.options(after(rights)))
	// pods that start before the association have no role
	p.ready = append(p.ready, is)
	return err
}

// mayRead lets the job's role read a bucket.
func (p *parts) mayRead(role *iam.Role, bucket *untyped) (pulumi.Resource, error) {
	return iam.NewRolePolicy(p.ctx, "job",
		&iam.RolePolicyArgs{Role: role.Name, Policy: bucket.Arn.ApplyT(func(arn string) string {
			return document(
				statement{Effect: "Allow", Action: []string{"s3:GetObject"}, Resource: []string{arn + "/*"}},
				statement{Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{arn}},
			)
		}).(pulumi.StringOutput)}, p.options())
}

// bucket creates a bucket that is private, encrypted and versioned.
func (p *parts) bucket(name string) (*untyped, error) {
	// protects also the bucket's settings, so that a bucket that is kept stays private
	kept := pulumi.Protect(p.s.ProtectStorage)
	bucket, err := p.register("aws:s3/bucketV2:BucketV2", name, pulumi.Map{
		// bucket names are global
		"bucket":       pulumi.String(p.s.Name(50, name) + "-" + p.account),
		"forceDestroy": pulumi.Bool(!p.s.ProtectStorage),
		"tags":         p.tags(p.name + "-" + name),
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
			"rules": pulumi.Array{pulumi.Map{"applyServerSideEncryptionByDefault": pulumi.Map{
				"sseAlgorithm": pulumi.String("AES256")}}},
		}},
		{"aws:s3/bucketVersioningV2:BucketVersioningV2",
			pulumi.Map{"versioningConfiguration": pulumi.Map{"status": pulumi.String("Enabled")}}},
	} {
		of.inputs["bucket"] = bucket.ID()
		if _, err := p.register(of.token, name, of.inputs, kept); err != nil {
			return nil, err
		}
	}
	return bucket, nil
}

// addRegistry creates the repository to which the stack's image is pushed. The registry's name is
// the repository's without the image's name: Amazon needs a repository for each image.
func (p *parts) addRegistry() error {
	image := "model"
	if p.s.Job != nil {
		image = p.s.Job.Name
	}
	if p.s.Image != nil {
		image = cmp.Or(p.s.Image.Name, image)
	}
	images, err := ecr.NewRepository(p.ctx, "images", &ecr.RepositoryArgs{
		Name:                       pulumi.String(p.name + "/" + image),
		ImageScanningConfiguration: &ecr.RepositoryImageScanningConfigurationArgs{ScanOnPush: pulumi.Bool(true)},
		ImageTagMutability:         pulumi.String("MUTABLE"), // jobs refer to images by digest
		ForceDelete:                pulumi.Bool(!p.s.ProtectStorage),
		Tags:                       p.tags(p.name + "/" + image),
	}, p.options(pulumi.Protect(p.s.ProtectStorage), pulumi.DeleteBeforeReplace(true)))
	if err != nil {
		return err
	}
	// Images expire by number and not by age: a job that runs for weeks starts workers of an image
	// that may have lost its tag since.
	expiry, err := json.Marshal(map[string]any{"rules": []any{map[string]any{
		"rulePriority": 1, "description": "the last 100 without a tag",
		"selection": map[string]any{"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": 100},
		"action":    map[string]any{"type": "expire"},
	}}})
	if err != nil {
		return err
	}
	_, err = ecr.NewLifecyclePolicy(p.ctx, "images", &ecr.LifecyclePolicyArgs{Repository: images.Name,
		Policy: pulumi.String(string(expiry))}, p.options())
	p.registry = images.RepositoryUrl.ApplyT(func(url string) string {
		return strings.TrimSuffix(url, "/"+image)
	}).(pulumi.StringOutput)
	return err
}

// volume returns the EFS file system as a volume for a PersistentVolume.
func volume(handle string, id pulumi.StringInput, holes map[string]pulumi.StringInput) *infra.Volume {
	return &infra.Volume{
		Claim: settings.ClaimEKS,
		ID:    id,
		// EFS has no limit; Kubernetes wants a number
		CapacityGB: 1024,
		Source: core.PersistentVolumeSource{
			CSI: &core.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: handle}},
		Holes: holes,
	}
}

package eks

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/efs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

const nfs = 2049

// addFiles creates an EFS file system that nodes of the cluster can mount in every zone, or uses
// one that exists already.
func (p *parts) addFiles() error {
	if p.e.EFS == nil {
		return nil
	}
	name := p.name + "-data"
	files, err := p.fileSystem(name)
	if err != nil {
		return err
	}
	holes := map[string]pulumi.StringInput{"{file-system}": files}
	if p.e.EFS.UID == nil {
		p.volume = volume("{file-system}", files, holes)
		p.ready = append(p.ready, p.mounted...)
		return nil
	}
	uid := pulumi.Int(*p.e.EFS.UID)
	// EFS does not support fsGroup. Through the access point every file belongs to that user, and
	// so does the directory that it creates.
	point, err := efs.NewAccessPoint(p.ctx, p.Child("data"), &efs.AccessPointArgs{
		FileSystemId: files,
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
	p.volume = volume("{file-system}::{access-point}", pulumi.Sprintf("%s/%s", files, point.ID()), holes)
	p.mounted = append(p.mounted, point)
	p.ready = append(p.ready, p.mounted...)
	return nil
}

// fileSystem returns the ID of the file system, whose mount targets the nodes can reach.
func (p *parts) fileSystem(name string) (pulumi.StringInput, error) {
	if id := p.e.EFS.ID; id != "" {
		return pulumi.String(id), p.openMounts()
	}
	fs, err := efs.NewFileSystem(p.ctx, p.Child("data"), &efs.FileSystemArgs{
		// neither this nor the mode can be changed later without another file system
		Encrypted:       pulumi.Bool(true),
		KmsKeyId:        p.keyPtr(),
		PerformanceMode: pulumi.String("generalPurpose"),
		ThroughputMode:  pulumi.String(cmp.Or(p.e.EFS.ThroughputMode, "elastic")),
		// Files that are not read for a month move to cheaper storage, and back when they are read.
		LifecyclePolicies: efs.FileSystemLifecyclePolicyArray{
			&efs.FileSystemLifecyclePolicyArgs{TransitionToIa: pulumi.String("AFTER_30_DAYS")},
			&efs.FileSystemLifecyclePolicyArgs{TransitionToPrimaryStorageClass: pulumi.String("AFTER_1_ACCESS")},
		},
		Tags: p.tags(name),
	}, p.options(pulumi.Protect(p.s.ProtectStorage), pulumi.IgnoreChanges([]string{"kmsKeyId"})))
	if err != nil {
		return nil, err
	}
	if p.key() != nil {
		p.keeps("the files", fs.KmsKeyId, "another key needs another stack, to which you copy them")
	}
	return fs.ID().ToStringOutput(), p.addMounts(fs)
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
	if err := p.openNFS("efs", group.ID()); err != nil {
		return err
	}
	for _, s := range p.net.private {
		mount, err := efs.NewMountTarget(p.ctx, p.Child("data-"+s.zone), &efs.MountTargetArgs{
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
func (p *parts) driver(nodes []pulumi.Resource) (pulumi.Resource, error) {
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
		}}, after(nodes, attached))
}

// images returns the names of the images in the registry, one at least.
func (p *parts) images() []string {
	if len(p.args.Images) == 0 {
		return []string{"model"}
	}
	return slices.Compact(slices.Sorted(slices.Values(p.args.Images)))
}

// addRegistry creates the repositories to which images are pushed, or uses those that exist
// already. The registry's name is that of a repository without the name of its image: Amazon needs
// a repository for each image.
func (p *parts) addRegistry() error {
	if p.e.Registry != "" {
		p.registry = p.foundRegistry.ToStringOutput()
		return nil
	}
	for i, image := range p.images() {
		name := "images-" + image
		if p.args.Alone && i == 0 {
			name = "images"
		}
		registry, err := p.addRepository(name, image)
		if err != nil {
			return err
		}
		p.registry = registry
	}
	return nil
}

// addRepository creates the repository of an image, and returns the name of its registry.
func (p *parts) addRepository(name, image string) (registry pulumi.StringOutput, err error) {
	images, err := ecr.NewRepository(p.ctx, p.Child(name), &ecr.RepositoryArgs{
		Name:                       pulumi.String(p.name + "/" + image),
		ImageScanningConfiguration: &ecr.RepositoryImageScanningConfigurationArgs{ScanOnPush: pulumi.Bool(true)},
		ImageTagMutability:         pulumi.String("MUTABLE"), // jobs refer to images by digest
		ForceDelete:                pulumi.Bool(!p.s.ProtectStorage),
		EncryptionConfigurations:   p.encryptedImages(),
		Tags:                       p.tags(p.name + "/" + image),
	}, p.options(pulumi.Protect(p.s.ProtectStorage), pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges([]string{"encryptionConfigurations"})))
	if err != nil {
		return registry, err
	}
	p.keeps("the images", keyOf(images), "name a repository of yours that has another in eks.registry")
	// Images expire by number and not by age: a job that runs for weeks starts workers of an image
	// that may have lost its tag since.
	expiry, err := json.Marshal(map[string]any{"rules": []any{map[string]any{
		"rulePriority": 1, "description": "the last 100 without a tag",
		"selection": map[string]any{"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": 100},
		"action":    map[string]any{"type": "expire"},
	}}})
	if err != nil {
		return registry, err
	}
	_, err = ecr.NewLifecyclePolicy(p.ctx, p.Child(name), &ecr.LifecyclePolicyArgs{Repository: images.Name,
		Policy: pulumi.String(string(expiry))}, p.options())
	return images.RepositoryUrl.ApplyT(func(url string) string {
		return strings.TrimSuffix(url, "/"+image)
	}).(pulumi.StringOutput), err
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

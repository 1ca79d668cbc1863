package gke

import (
	"errors"
	"slices"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/artifactregistry"
	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/filestore"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// keepImages is the number of versions of each image that are kept whatever their age. Older ones
// without a tag are deleted after imageAge.
const (
	keepImages = 10
	imageAge   = "2592000s" // 30 days
)

// addRegistry creates a repository for the job's images, or uses one that exists already. The nodes
// may read it; if their account exists already, too, its owner lets it.
func (p *parts) addRegistry() error {
	if p.g.Registry != "" {
		project, location, name := p.g.RegistryPlace()
		p.registry = pulumi.Sprintf("%s-docker.pkg.dev/%s/%s", location, project, name)
		if p.g.NodeAccount != "" {
			return nil // neither is the stack's
		}
		return p.openRegistry(&artifactregistry.RepositoryIamMemberArgs{Project: pulumi.String(project),
			Location: pulumi.String(location), Repository: pulumi.String(name)})
	}
	images, err := artifactregistry.NewRepository(p.ctx, p.Child("registry"), &artifactregistry.RepositoryArgs{
		Format:       pulumi.String("DOCKER"),
		Location:     pulumi.String(region(p.g.Location)), // a repository cannot be in a zone
		RepositoryId: pulumi.String(p.s.Name(maxName)),
		Labels:       p.labels(),
		KmsKeyName:   p.keyPtr(),
		CleanupPolicies: artifactregistry.RepositoryCleanupPolicyArray{
			&artifactregistry.RepositoryCleanupPolicyArgs{
				Id: pulumi.String("keep-newest"), Action: pulumi.String("KEEP"),
				MostRecentVersions: &artifactregistry.RepositoryCleanupPolicyMostRecentVersionsArgs{
					KeepCount: pulumi.Int(keepImages)},
			},
			&artifactregistry.RepositoryCleanupPolicyArgs{
				Id: pulumi.String("delete-old"), Action: pulumi.String("DELETE"),
				Condition: &artifactregistry.RepositoryCleanupPolicyConditionArgs{
					TagState: pulumi.String("UNTAGGED"), OlderThan: pulumi.String(imageAge),
				},
			},
		},
		CleanupPolicyDryRun: pulumi.Bool(false),
	}, p.named(pulumi.DependsOn(p.services), pulumi.Protect(p.s.ProtectStorage),
		pulumi.IgnoreChanges([]string{"kmsKeyName"})))
	if err != nil {
		return err
	}
	p.keeps("the images", images.KmsKeyName.ApplyT(text).(pulumi.StringOutput),
		"name a repository of yours that has another in gke.registry")
	p.registry = pulumi.Sprintf("%s-docker.pkg.dev/%s/%s", region(p.g.Location), p.g.Project, images.RepositoryId)
	return p.openRegistry(&artifactregistry.RepositoryIamMemberArgs{Location: images.Location,
		Repository: images.RepositoryId})
}

// openRegistry lets the nodes read a repository.
func (p *parts) openRegistry(in *artifactregistry.RepositoryIamMemberArgs) error {
	in.Role, in.Member = pulumi.String("roles/artifactregistry.reader"), p.nodes.member
	m, err := artifactregistry.NewRepositoryIamMember(p.ctx, p.Child("nodes-artifactregistry.reader"), in, p.options())
	p.beneath = append(p.beneath, m)
	return err
}

// addFiles creates the NFS server, or uses one that exists already.
func (p *parts) addFiles() error {
	f := p.g.Filestore
	if f == nil {
		return nil
	}
	if f.Name != "" {
		p.volume = p.found.volume(f)
		return nil
	}
	network := &filestore.InstanceNetworkArgs{
		// The short name of the network, because Google returns that: the full name would replace
		// the instance, and the data with it.
		Network:     p.net.name,
		Modes:       pulumi.ToStringArray([]string{"MODE_IPV4"}),
		ConnectMode: pulumi.String("DIRECT_PEERING"),
	}
	if f.Range != "" {
		network.ReservedIpRange = pulumi.String(f.Range)
	}
	files, err := filestore.NewInstance(p.ctx, p.Child("filestore"), &filestore.InstanceArgs{
		Name:     pulumi.String(p.s.Name(maxName)),
		Location: pulumi.String(f.Location),
		Tier:     pulumi.String(f.Tier),
		FileShares: &filestore.InstanceFileSharesArgs{Name: pulumi.String(f.Share),
			CapacityGb: pulumi.Int(f.CapacityGB)},
		Networks:   filestore.InstanceNetworkArray{network},
		KmsKeyName: p.keyPtr(),
		Labels:     p.labels(),
	},
		// without the subnet Google may choose addresses that it needs
		p.named(pulumi.DependsOn(slices.Concat(p.services, p.net.made)),
			patient(), pulumi.Protect(p.s.ProtectStorage),
			// in case Google returns another form of the name after all
			pulumi.IgnoreChanges([]string{"networks[0].network", "kmsKeyName"})))
	if err != nil {
		return err
	}
	p.keeps("the files", files.KmsKeyName.ApplyT(text).(pulumi.StringOutput),
		"another key needs another stack, to which you copy them")
	p.mounted = append(p.mounted, files)
	p.volume = p.claim(files)
	return nil
}

// claim returns the instance as a volume. Its address is unknown until it exists.
func (p *parts) claim(files *filestore.Instance) *infra.Volume {
	address := files.Networks.ApplyT(func(all []filestore.InstanceNetwork) (string, error) {
		switch {
		case len(all) > 0 && len(all[0].IpAddresses) > 0:
			return all[0].IpAddresses[0], nil
		case p.ctx.DryRun(): // the address is not known yet
			return "", nil
		}
		return "", errors.New("the Filestore instance has no address")
	}).(pulumi.StringOutput)
	v := volume(files.Location, files.Name, files.FileShares.Name(), address)
	v.ID, v.CapacityGB = pulumi.Sprintf("%s of %s", files.ID(), files.CreateTime), p.g.Filestore.CapacityGB
	return v
}

// volume returns a share of a Filestore instance as a volume, without an ID.
func volume(location, name, share, address pulumi.StringInput) *infra.Volume {
	const locationHole, nameHole, shareHole, ip = "{{filestore.location}}", "{{filestore.name}}",
		"{{filestore.share}}", "{{filestore.ip}}"
	return &infra.Volume{
		Claim: settings.ClaimGKE,
		Source: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
			Driver:           "filestore.csi.storage.gke.io",
			VolumeHandle:     "modeInstance/" + locationHole + "/" + nameHole + "/" + shareHole,
			VolumeAttributes: map[string]string{"ip": ip, "volume": shareHole},
		}},
		Holes: map[string]pulumi.StringInput{locationHole: location, nameHole: name, shareHole: share, ip: address},
	}
}

package gke

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// given returns the parts that exist already, the subnet before what must be in its network.
func (p *parts) given() (all []infra.Part) {
	if n := p.g.Subnet; n != nil {
		all = append(all, infra.Part{Path: "gke.subnet.name", Name: n.Name, Find: p.lookUpSubnet})
	}
	if f := p.g.Filestore; f != nil {
		all = append(all, infra.Part{Path: "gke.filestore.name", Name: f.Name, Find: p.lookUpFiles})
	}
	if b := p.g.Bucket; b != nil {
		all = append(all, infra.Part{Path: "gke.bucket.name", Name: b.Name, Find: p.lookUpBucket})
	}
	return append(all, infra.Part{Path: "gke.kmsKey", Name: p.g.KMSKey, Find: p.lookUpKey},
		infra.Part{Path: "gke.nodeAccount", Name: p.g.NodeAccount, Find: p.lookUpNodeAccount},
		infra.Part{Path: "gke.registry", Name: p.g.Registry, Find: p.lookUpRegistry})
}

// invoke calls a function of Google's provider.
func (p *parts) invoke(token string, args map[string]any, into any) error {
	return p.ctx.Invoke(token, args, into, append(p.invokes, pulumi.Version(sdkVersion))...)
}

// lookUpBucket expects a bucket that is private, as the stack's own would be, and in which the
// job's role is not overruled by ACLs of objects.
func (p *parts) lookUpBucket(expect infra.Expect) error {
	name := p.g.Bucket.Name
	var is struct {
		Prevention    string `pulumi:"publicAccessPrevention"`
		Uniform       bool   `pulumi:"uniformBucketLevelAccess"`
		RequesterPays bool   `pulumi:"requesterPays"`
	}
	if err := p.invoke("gcp:storage/getBucket:getBucket", map[string]any{"name": name}, &is); err != nil {
		return fmt.Errorf("%w (storage.buckets.get)", err)
	}
	expect(is.Prevention == "enforced", "objects of it may be made public: gcloud storage buckets update gs://%s "+
		"--public-access-prevention", name)
	expect(is.Uniform, "objects of it may have ACLs: gcloud storage buckets update gs://%s "+
		"--uniform-bucket-level-access", name)
	expect(!is.RequesterPays, "who reads it pays, and the job names no project that does: gcloud storage buckets "+
		"update gs://%s --no-requester-pays", name)
	return nil
}

// lookUpSubnet expects a subnet with room for the nodes of all pools and their pods, from which
// nodes without a public address reach Google's registry.
func (p *parts) lookUpSubnet(expect infra.Expect) error {
	project, in, name := p.g.Subnet.Place(p.g)
	var is foundSubnet
	err := p.invoke("gcp:compute/getSubnetwork:getSubnetwork", map[string]any{"name": name, "region": in,
		"project": project}, &is)
	if err != nil {
		return fmt.Errorf("%w (compute.subnetworks.get)", err)
	}
	update := fmt.Sprintf("gcloud compute networks subnets update %s --project=%s --region=%s", name, project, in)
	expect(is.PrivateAccess || !p.g.PrivateNodes, "nodes in it without public addresses do not reach Google's "+
		"registry: %s --enable-private-ip-google-access", update)
	var names []string
	for _, r := range is.Secondary {
		names = append(names, r.Name)
	}
	for _, want := range []string{p.g.Subnet.Pods, p.g.Subnet.Services} {
		expect(slices.Contains(names, want), "it has no secondary range %s, but [%s]: name those for pods and "+
			"services in gke.subnet, or add one: %s --add-secondary-ranges=%[1]s=CIDR", want,
			strings.Join(names, ", "), update)
	}
	if err := p.expectRoom(is, expect); err != nil {
		return err
	}
	vpc := strings.TrimPrefix(is.Network, "https://www.googleapis.com/compute/v1/")
	p.net = &network{vpc: pulumi.String(vpc), subnet: pulumi.String(is.ID), name: pulumi.String(path.Base(vpc)),
		project: project, short: path.Base(vpc), pods: p.g.Subnet.Pods, services: p.g.Subnet.Services}
	return nil
}

// foundSubnet is a subnet that exists already.
type foundSubnet struct {
	ID            string `pulumi:"id"`
	Network       string `pulumi:"network"`
	CIDR          string `pulumi:"ipCidrRange"`
	PrivateAccess bool   `pulumi:"privateIpGoogleAccess"`
	Secondary     []struct {
		Name string `pulumi:"rangeName"`
		CIDR string `pulumi:"ipCidrRange"`
	} `pulumi:"secondaryIpRanges"`
}

// expectRoom expects ranges that are wide enough for the pools, and apart from that of the control
// plane.
func (p *parts) expectRoom(is foundSubnet, expect infra.Expect) error {
	ranges := map[string]string{"": is.CIDR}
	for _, r := range is.Secondary {
		ranges[r.Name] = r.CIDR
	}
	master, err := netip.ParsePrefix(p.g.Ranges.Master)
	if err != nil {
		return fmt.Errorf("gke.ranges.master: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(ranges)) {
		cidr, err := netip.ParsePrefix(ranges[name])
		if err != nil {
			return fmt.Errorf("range %q: %w", name, err)
		}
		expect(!p.g.PrivateNodes || !cidr.Overlaps(master), "its range %s overlaps gke.ranges.master, %s: choose "+
			"another there", cidr, master)
		why := ""
		switch name {
		case "":
			why = p.g.NodeRoom(cidr)
		case p.g.Subnet.Pods:
			why = p.g.PodRoom(cidr)
		}
		expect(why == "", "%s", why)
	}
	return nil
}

// foundFiles is a Filestore instance that exists already.
type foundFiles struct {
	ID         string `pulumi:"id"`
	CreateTime string `pulumi:"createTime"`
	Protocol   string `pulumi:"protocol"`
	Shares     []struct {
		Name string `pulumi:"name"`
		Size int    `pulumi:"capacityGb"`
	} `pulumi:"fileShares"`
	Networks []struct {
		// its name, or its full one in a Shared VPC
		Network   string   `pulumi:"network"`
		Addresses []string `pulumi:"ipAddresses"`
	} `pulumi:"networks"`
}

// lookUpFiles expects an NFS server of version 3 in the network of the cluster, as the stack's own
// would be.
func (p *parts) lookUpFiles(expect infra.Expect) error {
	f, is := p.g.Filestore, &p.found
	err := p.invoke("gcp:filestore/getInstance:getInstance", map[string]any{"name": f.Name, "location": f.Location,
		"project": p.g.Project}, is)
	if err != nil {
		return fmt.Errorf("%w (file.instances.get)", err)
	}
	if len(is.Shares) == 0 || len(is.Networks) == 0 || len(is.Networks[0].Addresses) == 0 {
		return errors.New("it has no share or no address yet: wait until it is READY")
	}
	expect(is.Protocol == "" || is.Protocol == "NFS_V3", "its protocol is %s: expected an instance of NFS_V3",
		is.Protocol)
	if p.net != nil { // else the subnet has a problem
		network := is.Networks[0].Network
		vpc := "projects/" + p.net.project + "/global/networks/" + p.net.short
		expect(network == vpc || network == p.net.short && p.net.project == p.g.Project,
			"it is in network %s, and gke.subnet in %s: expected an instance in that network", network, vpc)
	}
	return nil
}

// volume returns the share as a volume.
func (is *foundFiles) volume(f *settings.Filestore) *infra.Volume {
	v := volume(pulumi.String(f.Location), pulumi.String(f.Name), pulumi.String(is.Shares[0].Name),
		pulumi.String(is.Networks[0].Addresses[0]))
	v.ID, v.CapacityGB = pulumi.String(is.ID+" of "+is.CreateTime), is.Shares[0].Size
	return v
}

// lookUpRegistry expects a repository of images to which they can be pushed.
func (p *parts) lookUpRegistry(expect infra.Expect) error {
	project, location, name := p.g.RegistryPlace()
	var is struct {
		Format string `pulumi:"format"`
		Mode   string `pulumi:"mode"`
	}
	err := p.invoke("gcp:artifactregistry/getRepository:getRepository", map[string]any{"project": project,
		"location": location, "repositoryId": name}, &is)
	if err != nil {
		return fmt.Errorf("%w (artifactregistry.repositories.get)", err)
	}
	expect(is.Format == "DOCKER", "its format is %s: expected a repository of DOCKER", is.Format)
	expect(is.Mode == "" || is.Mode == "STANDARD_REPOSITORY", "it is a %s, to which nothing is pushed: expected a "+
		"STANDARD_REPOSITORY", is.Mode)
	return nil
}

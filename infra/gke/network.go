package gke

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Names of the subnet's ranges, as the cluster finds them.
const (
	podRange     = "pods"
	serviceRange = "services"
)

// sdkVersion is that of the provider which the SDK's packages ask for.
const sdkVersion = "7.38.0"

// computed is a resource of gcp/compute. That package has a quarter of a million lines to compile, so the four that are
// needed of it are registered by their types.
type computed struct {
	pulumi.CustomResourceState

	Name pulumi.StringOutput `pulumi:"name"`
}

// compute registers a resource: kind is "network:Network".
func (p *parts) compute(kind, name string, args pulumi.Map, opts ...pulumi.ResourceOption) (*computed, error) {
	r := new(computed)
	args["name"] = pulumi.String(p.s.Name(maxName))
	return r, p.ctx.RegisterResource("gcp:compute/"+kind, name, args, r, p.named(append(opts, pulumi.Version(sdkVersion))...))
}

// addNetwork makes a network of the cluster's own, and a way out for nodes that have no address.
func (p *parts) addNetwork() (err error) {
	ranges, in := p.g.Ranges, pulumi.String(region(p.g.Location))
	if p.net, err = p.compute("network:Network", "network", pulumi.Map{
		"autoCreateSubnetworks": pulumi.Bool(false),
		"routingMode":           pulumi.String("REGIONAL"),
	}, pulumi.DependsOn(p.services)); err != nil {
		return err
	}
	if p.subnet, err = p.compute("subnetwork:Subnetwork", "subnet", pulumi.Map{
		"network":               p.net.ID(),
		"region":                in,
		"ipCidrRange":           pulumi.String(ranges.Nodes),
		"privateIpGoogleAccess": pulumi.Bool(true), // else nodes without addresses get no image of Google's
		"secondaryIpRanges": pulumi.MapArray{
			pulumi.Map{"rangeName": pulumi.String(podRange), "ipCidrRange": pulumi.String(ranges.Pods)},
			pulumi.Map{"rangeName": pulumi.String(serviceRange), "ipCidrRange": pulumi.String(ranges.Services)},
		},
	}); err != nil || !p.g.PrivateNodes {
		return err
	}
	router, err := p.compute("router:Router", "router", pulumi.Map{"network": p.net.ID(), "region": in})
	if err != nil {
		return err
	}
	nat, err := p.compute("routerNat:RouterNat", "nat", pulumi.Map{
		"router":                        router.Name,
		"region":                        in,
		"natIpAllocateOption":           pulumi.String("AUTO_ONLY"),
		"sourceSubnetworkIpRangesToNat": pulumi.String("ALL_SUBNETWORKS_ALL_IP_RANGES"), // those of pods, too
		"logConfig":                     pulumi.Map{"enable": pulumi.Bool(true), "filter": pulumi.String("ERRORS_ONLY")},
	}, pulumi.DependsOn([]pulumi.Resource{p.subnet}))
	p.beneath = append(p.beneath, nat)
	return err
}

package gke

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Names of the subnet's secondary ranges, by which the cluster finds them.
const (
	podRange     = "pods"
	serviceRange = "services"
)

// compute registers a resource of gcp/compute; kind is "network:Network", for example.
func (p *parts) compute(kind, name string, args pulumi.Map, opts ...pulumi.ResourceOption) (*computed, error) {
	r := new(computed)
	args["name"] = pulumi.String(p.s.Name(maxName))
	return r, p.register("gcp:compute/"+kind, name, args, r, p.named(opts...))
}

// network is the network of the cluster.
type network struct {
	// IDs: "projects/acme/global/networks/elasticdl"
	vpc, subnet pulumi.StringInput
	// what Filestore names it by
	name pulumi.StringInput
	// its project and name, if it exists already; "" = the stack makes it
	project, short string
	// names of the secondary ranges of the subnet
	pods, services string
	// the subnet, if the stack makes it
	made []pulumi.Resource
}

// addNetwork creates the cluster's own network, and Cloud NAT for nodes without a public address,
// or uses a subnet that exists already.
func (p *parts) addNetwork() error {
	if n := p.args.Network; n != nil {
		p.net = &network{vpc: n.Network, subnet: n.Subnetwork, name: n.Name, pods: n.Pods, services: n.Services}
	}
	if p.net != nil || p.g.Subnet != nil {
		if p.g.PrivateNodes {
			return p.addFirewall()
		}
		return nil
	}
	ranges, in := p.g.Ranges, pulumi.String(region(p.g.Location))
	vpc, err := p.compute("network:Network", "network", pulumi.Map{
		"autoCreateSubnetworks": pulumi.Bool(false),
		"routingMode":           pulumi.String("REGIONAL"),
	}, pulumi.DependsOn(p.services))
	if err != nil {
		return err
	}
	subnet, err := p.compute("subnetwork:Subnetwork", "subnet", pulumi.Map{
		"network":     vpc.ID(),
		"region":      in,
		"ipCidrRange": pulumi.String(ranges.Nodes),
		// otherwise nodes without public addresses cannot pull Google's images
		"privateIpGoogleAccess": pulumi.Bool(true),
		"secondaryIpRanges": pulumi.MapArray{
			pulumi.Map{"rangeName": pulumi.String(podRange), "ipCidrRange": pulumi.String(ranges.Pods)},
			pulumi.Map{"rangeName": pulumi.String(serviceRange), "ipCidrRange": pulumi.String(ranges.Services)},
		},
	})
	p.net = &network{vpc: vpc.ID(), subnet: subnet.ID(), name: vpc.Name, pods: podRange, services: serviceRange,
		made: []pulumi.Resource{subnet}}
	if err != nil || !p.g.PrivateNodes {
		return err
	}
	if err := p.addFirewall(); err != nil {
		return err
	}
	router, err := p.compute("router:Router", "router", pulumi.Map{"network": vpc.ID(), "region": in})
	if err != nil {
		return err
	}
	nat, err := p.compute("routerNat:RouterNat", "nat", pulumi.Map{
		"router":              router.Name,
		"region":              in,
		"natIpAllocateOption": pulumi.String("AUTO_ONLY"),
		// also the ranges of pods
		"sourceSubnetworkIpRangesToNat": pulumi.String("ALL_SUBNETWORKS_ALL_IP_RANGES"),
		"logConfig": pulumi.Map{"enable": pulumi.Bool(true),
			"filter": pulumi.String("ERRORS_ONLY")},
	}, pulumi.DependsOn(p.net.made))
	p.beneath = append(p.beneath, nat)
	return err
}

// Ports of Kueue's pod that the Kubernetes API connects to: webhooks, and its API for pending jobs.
const (
	portWebhooks = "9443"
	portPending  = "8082"
)

// addFirewall lets the Kubernetes API reach a Kueue that the stack installs. GKE's own rule for
// private nodes allows the ports 443 and 10250 only: no pod could start without the webhooks, and
// no namespace could be deleted without the API for pending jobs.
func (p *parts) addFirewall() error {
	if q := p.s.Platform.Queue; q == nil || !q.Install {
		return nil
	}
	args := pulumi.Map{
		"network":      p.net.vpc,
		"direction":    pulumi.String("INGRESS"),
		"sourceRanges": pulumi.ToStringArray([]string{p.g.Ranges.Master}),
		"allows": pulumi.MapArray{pulumi.Map{"protocol": pulumi.String("tcp"),
			"ports": pulumi.ToStringArray([]string{portPending, portWebhooks})}},
	}
	if p.net.project != "" {
		args["project"] = pulumi.String(p.net.project)
	}
	rule, err := p.compute("firewall:Firewall", "kueue", args, pulumi.DependsOn(p.services))
	p.beneath = append(p.beneath, rule)
	return err
}

package eks

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// network is the network of the nodes.
type network struct {
	vpc pulumi.StringInput
	// one per zone, for nodes and mount targets
	private []subnet
	// subnets for load balancers and NAT; the control plane uses those of an existing VPC, too
	public pulumi.StringArray
	// routes that nodes need to reach the internet; nodes cannot join a cluster without them
	ways []pulumi.Resource
}

type subnet struct {
	zone string
	id   pulumi.StringInput
}

func (n *network) subnets() pulumi.StringArray {
	var ids pulumi.StringArray
	for _, s := range n.private {
		ids = append(ids, s.id)
	}
	return ids
}

// addNetwork uses the network of the settings, or creates one: each zone has a public subnet, for
// load balancers and NAT, and a private one, for nodes and pods.
func (p *parts) addNetwork() error {
	if n := p.args.Network; n != nil {
		p.net = &network{vpc: n.VPC, public: n.Public}
		for _, s := range n.Private {
			p.net.private = append(p.net.private, subnet{s.Zone, s.ID})
		}
		return nil
	}
	if p.e.VPC.ID != "" {
		p.net = &network{vpc: pulumi.String(p.e.VPC.ID), private: p.existing,
			public: pulumi.ToStringArray(p.e.VPC.PublicSubnets)}
		return nil
	}
	cidr, err := netip.ParsePrefix(p.e.VPC.CIDR)
	if err != nil {
		return fmt.Errorf("eks.vpc.cidr: %w", err)
	}
	vpc, err := p.register("aws:ec2/vpc:Vpc", "network", pulumi.Map{
		"cidrBlock": pulumi.String(cidr.String()),
		// without this, names of EFS and of the private endpoint do not resolve
		"enableDnsHostnames": pulumi.Bool(true),
		"enableDnsSupport":   pulumi.Bool(true),
		"tags":               p.tags(p.name),
	}, pulumi.IgnoreChanges([]string{"cidrBlock"}))
	if err != nil {
		return err
	}
	// All mount targets of a file system are in one VPC, and a cluster cannot move to another: a
	// change of the range would replace both.
	stays := pulumi.All(vpc.ID(), vpc.CidrBlock).ApplyT(func(is []any) (string, error) {
		if was := is[1].(string); was != cidr.String() {
			return "", fmt.Errorf("eks.vpc.cidr: %s: the stack's VPC has %s, which cannot change: "+
				"make another stack", cidr, was)
		}
		return string(is[0].(pulumi.ID)), nil
	}).(pulumi.StringOutput)
	n := &network{vpc: stays}
	p.net = n
	gateway, err := p.register("aws:ec2/internetGateway:InternetGateway", "internet", pulumi.Map{"vpcId": vpc.ID(),
		"tags": p.tags(p.name)})
	if err != nil {
		return err
	}
	public, err := p.table("public", pulumi.Map{"gatewayId": gateway.ID()})
	if err != nil {
		return err
	}
	tables := pulumi.StringArray{public.ID()}
	var nat *untyped
	for i, zone := range p.e.VPC.Zones {
		outside, err := p.subnet(public, "public-"+zone, zone, publicRange(cidr, i), loadBalancer)
		if err != nil {
			return err
		}
		if nat == nil || p.e.VPC.NATPerZone {
			if nat, err = p.nat(zone, outside, gateway); err != nil {
				return err
			}
		}
		// Each zone has its own table even if all use one NAT: so a NAT for each zone can be added
		// without new tables.
		private, err := p.table("private-"+zone, pulumi.Map{"natGatewayId": nat.ID()})
		if err != nil {
			return err
		}
		inside, err := p.subnet(private, "private-"+zone, zone, privateRange(cidr, i),
			"kubernetes.io/role/internal-elb")
		if err != nil {
			return err
		}
		tables = append(tables, private.ID())
		n.private = append(n.private, subnet{zone, inside.ID().ToStringOutput()})
	}
	// Data sets and image layers come from S3. Traffic through NAT is charged per GB; traffic
	// through this endpoint is free.
	_, err = p.register("aws:ec2/vpcEndpoint:VpcEndpoint", "s3", pulumi.Map{
		"vpcId": n.vpc, "vpcEndpointType": pulumi.String("Gateway"), "routeTableIds": tables,
		"serviceName": pulumi.String(p.partition.ReverseDnsPrefix + "." + p.e.Region + ".s3"),
		"tags":        p.tags(p.name + "-s3"),
	})
	return err
}

// loadBalancer is the tag by which load balancers find public subnets.
const loadBalancer = "kubernetes.io/role/elb"

// table creates a route table with a route out of the VPC. The route is a resource of its own: a
// table that also lists routes inline would delete it.
func (p *parts) table(name string, way pulumi.Map) (*untyped, error) {
	table, err := p.register("aws:ec2/routeTable:RouteTable", name,
		pulumi.Map{"vpcId": p.net.vpc, "tags": p.tags(p.name + "-" + name)})
	if err != nil {
		return nil, err
	}
	way["routeTableId"], way["destinationCidrBlock"] = table.ID(), pulumi.String("0.0.0.0/0")
	route, err := p.register("aws:ec2/route:Route", name, way)
	p.net.ways = append(p.net.ways, route)
	return table, err
}

// subnet creates a subnet and associates it with a route table.
func (p *parts) subnet(table *untyped, name, zone, cidr, tag string) (*untyped, error) {
	s, err := p.register("aws:ec2/subnet:Subnet", name, pulumi.Map{
		"vpcId": p.net.vpc, "availabilityZone": pulumi.String(zone), "cidrBlock": pulumi.String(cidr),
		"mapPublicIpOnLaunch": pulumi.Bool(tag == loadBalancer),
		"tags":                p.tags(p.name+"-"+name, tag, "1"),
	})
	if err != nil {
		return nil, err
	}
	joined, err := p.register("aws:ec2/routeTableAssociation:RouteTableAssociation", name,
		pulumi.Map{"subnetId": s.ID(), "routeTableId": table.ID()})
	p.net.ways = append(p.net.ways, joined)
	return s, err
}

func (p *parts) nat(zone string, in, gateway *untyped) (*untyped, error) {
	name := "nat-" + zone
	ip, err := p.register("aws:ec2/eip:Eip", name, pulumi.Map{"domain": pulumi.String("vpc"),
		"tags": p.tags(p.name + "-" + name)})
	if err != nil {
		return nil, err
	}
	return p.register("aws:ec2/natGateway:NatGateway", name, pulumi.Map{"allocationId": ip.ID(), "subnetId": in.ID(),
		"tags": p.tags(p.name + "-" + name)},
		after([]pulumi.Resource{gateway}))
}

// privateRange and publicRange return the ranges of the i-th zone, from 0. They do not depend on
// the number of zones, so that adding one replaces nothing. Each of up to seven private subnets has
// an eighth of the VPC, because every pod takes an address; public ones have an eighth of the last
// eighth.
func privateRange(vpc netip.Prefix, i int) string { return slice(vpc, 3, i).String() }
func publicRange(vpc netip.Prefix, i int) string  { return slice(slice(vpc, 3, 7), 3, i).String() }

// slice returns the i-th of 2^bits equal parts.
func slice(whole netip.Prefix, bits, i int) netip.Prefix {
	length := whole.Bits() + bits
	ip := whole.Masked().Addr().As4()
	binary.BigEndian.PutUint32(ip[:], binary.BigEndian.Uint32(ip[:])|uint32(i)<<(32-length))
	return netip.PrefixFrom(netip.AddrFrom4(ip), length)
}

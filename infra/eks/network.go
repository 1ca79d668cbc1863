package eks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
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

// lookUpVPC returns the subnets of an existing VPC with their zones, and an error if files could
// not be mounted there.
func (p *parts) lookUpVPC() (subnets []subnet, err error) {
	given := p.e.VPC
	vpc, err := ec2.LookupVpc(p.ctx, &ec2.LookupVpcArgs{Id: &given.ID})
	if err != nil {
		return nil, fmt.Errorf("eks.vpc.id: look up %s: %w", given.ID, err)
	}
	var problems []error
	if !vpc.EnableDnsSupport || !vpc.EnableDnsHostnames {
		problems = append(problems,
			fmt.Errorf("eks.vpc.id: %s does not resolve names: its enableDnsSupport and "+
				"enableDnsHostnames must be true", given.ID))
	}
	in := map[string]string{}
	for i, id := range slices.Concat(given.PrivateSubnets, given.PublicSubnets) {
		path := fmt.Sprintf("eks.vpc.privateSubnets[%d]", i)
		public := i - len(given.PrivateSubnets)
		if public >= 0 {
			path = fmt.Sprintf("eks.vpc.publicSubnets[%d]", public)
		}
		s, err := ec2.LookupSubnet(p.ctx, &ec2.LookupSubnetArgs{Id: &id})
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: look up %s: %w", path, id, err))
			continue
		}
		if s.VpcId != given.ID {
			problems = append(problems, fmt.Errorf("%s: %s is in %s, not in %s", path, id, s.VpcId, given.ID))
		}
		if public >= 0 {
			continue
		}
		if other, ok := in[s.AvailabilityZone]; ok {
			problems = append(problems,
				fmt.Errorf("%s: %s is in zone %s, as %s is: one per zone is expected", path, id,
					s.AvailabilityZone, other))
		}
		in[s.AvailabilityZone] = id
		subnets = append(subnets, subnet{s.AvailabilityZone, pulumi.String(id)})
	}
	return subnets, errors.Join(problems...)
}

// addNetwork uses the network of the settings, or creates one: each zone has a public subnet, for
// load balancers and NAT, and a private one, for nodes and pods.
func (p *parts) addNetwork() error {
	if p.e.VPC.ID != "" {
		p.net = &network{vpc: pulumi.String(p.e.VPC.ID), private: p.existing,
			public: pulumi.ToStringArray(p.e.VPC.PublicSubnets)}
		return nil
	}
	cidr, err := netip.ParsePrefix(p.e.VPC.CIDR)
	if err != nil {
		return fmt.Errorf("eks.vpc.cidr: %w", err)
	}
	vpc, err := ec2.NewVpc(p.ctx, "network", &ec2.VpcArgs{
		CidrBlock: pulumi.String(cidr.String()),
		// without this, names of EFS and of the private endpoint do not resolve
		EnableDnsHostnames: pulumi.Bool(true),
		EnableDnsSupport:   pulumi.Bool(true),
		Tags:               p.tags(p.name),
	}, p.options(pulumi.IgnoreChanges([]string{"cidrBlock"})))
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
	gateway, err := ec2.NewInternetGateway(p.ctx, "internet", &ec2.InternetGatewayArgs{VpcId: vpc.ID(),
		Tags: p.tags(p.name)}, p.options())
	if err != nil {
		return err
	}
	public, err := p.table("public", &ec2.RouteArgs{GatewayId: gateway.ID()})
	if err != nil {
		return err
	}
	tables := pulumi.StringArray{public.ID()}
	var nat *ec2.NatGateway
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
		private, err := p.table("private-"+zone, &ec2.RouteArgs{NatGatewayId: nat.ID()})
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
	_, err = ec2.NewVpcEndpoint(p.ctx, "s3", &ec2.VpcEndpointArgs{
		VpcId: n.vpc, VpcEndpointType: pulumi.String("Gateway"), RouteTableIds: tables,
		ServiceName: pulumi.String(p.partition.ReverseDnsPrefix + "." + p.e.Region + ".s3"),
		Tags:        p.tags(p.name + "-s3"),
	}, p.options())
	return err
}

// loadBalancer is the tag by which load balancers find public subnets.
const loadBalancer = "kubernetes.io/role/elb"

// table creates a route table with a route out of the VPC. The route is a resource of its own: a
// table that also lists routes inline would delete it.
func (p *parts) table(name string, way *ec2.RouteArgs) (*ec2.RouteTable, error) {
	table, err := ec2.NewRouteTable(p.ctx, name,
		&ec2.RouteTableArgs{VpcId: p.net.vpc, Tags: p.tags(p.name + "-" + name)}, p.options())
	if err != nil {
		return nil, err
	}
	way.RouteTableId, way.DestinationCidrBlock = table.ID(), pulumi.String("0.0.0.0/0")
	route, err := ec2.NewRoute(p.ctx, name, way, p.options())
	p.net.ways = append(p.net.ways, route)
	return table, err
}

// subnet creates a subnet and associates it with a route table.
func (p *parts) subnet(table *ec2.RouteTable, name, zone, cidr, tag string) (*ec2.Subnet, error) {
	s, err := ec2.NewSubnet(p.ctx, name, &ec2.SubnetArgs{
		VpcId: p.net.vpc, AvailabilityZone: pulumi.String(zone), CidrBlock: pulumi.String(cidr),
		MapPublicIpOnLaunch: pulumi.Bool(tag == loadBalancer),
		Tags:                p.tags(p.name+"-"+name, tag, "1"),
	}, p.options())
	if err != nil {
		return nil, err
	}
	joined, err := ec2.NewRouteTableAssociation(p.ctx, name,
		&ec2.RouteTableAssociationArgs{SubnetId: s.ID(), RouteTableId: table.ID()}, p.options())
	p.net.ways = append(p.net.ways, joined)
	return s, err
}

func (p *parts) nat(zone string, in *ec2.Subnet, gateway *ec2.InternetGateway) (*ec2.NatGateway, error) {
	name := "nat-" + zone
	ip, err := ec2.NewEip(p.ctx, name, &ec2.EipArgs{Domain: pulumi.String("vpc"),
		Tags: p.tags(p.name + "-" + name)}, p.options())
	if err != nil {
		return nil, err
	}
	return ec2.NewNatGateway(p.ctx, name, &ec2.NatGatewayArgs{AllocationId: ip.ID(), SubnetId: in.ID(),
		Tags: p.tags(p.name + "-" + name)},
		p.options(after([]pulumi.Resource{gateway})))
}

// privateRange and publicRange return the ranges of the i-th zone, from 0. They do not depend on
// the number of zones, so that adding one replaces nothing. Each of up to seven private subnets has
// an eighth of the VPC, because every pod takes an address; public ones have an eighth of the last
// eighth.
func privateRange(vpc netip.Prefix, i int) string { return part(vpc, 3, i).String() }
func publicRange(vpc netip.Prefix, i int) string  { return part(part(vpc, 3, 7), 3, i).String() }

// part returns the i-th of 2^bits equal parts.
func part(whole netip.Prefix, bits, i int) netip.Prefix {
	length := whole.Bits() + bits
	ip := whole.Masked().Addr().As4()
	binary.BigEndian.PutUint32(ip[:], binary.BigEndian.Uint32(ip[:])|uint32(i)<<(32-length))
	return netip.PrefixFrom(netip.AddrFrom4(ip), length)
}

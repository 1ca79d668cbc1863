package eks

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// The package aws/ec2 takes longer to compile, and more memory, than the rest of the program
// together, and those of S3 and CloudWatch longer than all others: their resources are registered,
// and looked up, by the names of their types. A test compares the inputs with the source of these
// packages.

// version is the version of Amazon's SDK in go.mod. The SDK passes it to the engine, and so must
// resources that are registered without the SDK: otherwise the engine would start a second
// provider.
const version = "6.83.0"

// untyped is a resource that is registered without the SDK's type. Outputs that its type does not
// have are zero.
type untyped struct {
	pulumi.CustomResourceState

	Arn pulumi.StringOutput `pulumi:"arn"`
	// of a VPC: "10.0.0.0/16"
	CidrBlock pulumi.StringOutput `pulumi:"cidrBlock"`
	// of a launch template
	LatestVersion pulumi.IntOutput `pulumi:"latestVersion"`
}

func (p *parts) register(token, name string, inputs pulumi.Map, opts ...pulumi.ResourceOption) (*untyped, error) {
	var r untyped
	opts = append(opts, pulumi.Version(version))
	return &r, p.ctx.RegisterResource(token, p.Child(name), inputs, &r, p.options(opts...))
}

// invoke reads an existing resource by its ID into a struct.
func (p *parts) invoke(token, id string, into any) error {
	return p.ask(token, map[string]any{"id": id}, into)
}

// ask calls a function of Amazon's provider.
func (p *parts) ask(token string, args map[string]any, into any) error {
	return p.ctx.Invoke(token, args, into, append(p.invokes, pulumi.Version(version))...)
}

// foundSubnet is a subnet that exists already.
type foundSubnet struct {
	VPC              string `pulumi:"vpcId"`
	AvailabilityZone string `pulumi:"availabilityZone"`
	CidrBlock        string `pulumi:"cidrBlock"`
}

func (p *parts) subnetOf(id string) (s foundSubnet, err error) {
	err = p.invoke("aws:ec2/getSubnet:getSubnet", id, &s)
	return s, err
}

package infra

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// Chart is a Helm chart that a stack installs in its cluster, as one resource.
type Chart struct {
	// name of the release, and of the resource in the Pulumi program
	Name string
	// where the chart is: "oci://public.ecr.aws/karpenter/karpenter"
	Chart, Version string
	Namespace      string
	// its texts may contain placeholders, see Holes
	Values map[string]any
	Holes  map[string]pulumi.StringInput
	// another chart has the definitions of its resources
	SkipDefinitions bool
}

// Register registers the release. Pulumi waits until its pods are ready.
func (c Chart) Register(ctx *pulumi.Context, opts ...pulumi.ResourceOption) (pulumi.Resource, error) {
	var r pulumi.CustomResourceState
	return &r, ctx.RegisterResource("kubernetes:helm.sh/v3:Release", c.Name, pulumi.Map{
		"name": pulumi.String(c.Name), "chart": pulumi.String(c.Chart), "version": pulumi.String(c.Version),
		"namespace": pulumi.String(c.Namespace), "skipCrds": pulumi.Bool(c.SkipDefinitions),
		"values": filled(c.Values, c.Holes),
	}, &r, opts...)
}

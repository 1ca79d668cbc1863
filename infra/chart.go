package infra

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// Chart is a Helm chart that a stack installs in its cluster, as one resource.
type Chart struct {
	// name of the release
	Name string
	// where the chart is: "oci://public.ecr.aws/karpenter/karpenter"
	Chart, Version string
	Namespace      string
	Values         map[string]any
	// another chart has the definitions of its resources
	SkipDefinitions bool
}

// chartTime is the time in seconds in which the pods of a release must become ready.
const chartTime = 600

// Register registers the release. Pulumi waits until its pods are ready: a release that is not
// ready in time is removed, so that the next update installs it again.
func (c Chart) Register(ctx *pulumi.Context, name string, opts ...pulumi.ResourceOption) (pulumi.Resource, error) {
	var r pulumi.CustomResourceState
	inputs := pulumi.Map{
		"name": pulumi.String(c.Name), "chart": pulumi.String(c.Chart), "version": pulumi.String(c.Version),
		"namespace": pulumi.String(c.Namespace), "atomic": pulumi.Bool(true), "timeout": pulumi.Int(chartTime),
	}
	if len(c.Values) > 0 {
		inputs["values"] = filled(c.Values, nil)
	}
	if c.SkipDefinitions {
		inputs["skipCrds"] = pulumi.Bool(true)
	}
	return &r, ctx.RegisterResource("kubernetes:helm.sh/v3:Release", name, inputs, &r, opts...)
}

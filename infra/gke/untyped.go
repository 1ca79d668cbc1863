package gke

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// The packages gcp/compute and gcp/container take longer to compile, and more memory, than the rest
// of the program together: their resources are registered by the names of their types. A test
// compares the inputs with the source of these packages.

// sdkVersion is the version of the provider that the SDK's packages request.
const sdkVersion = "7.38.0"

// computed is a resource of gcp/compute.
type computed struct {
	pulumi.CustomResourceState

	Name pulumi.StringOutput `pulumi:"name"`
}

// controlPlane is a resource of type gcp:container/cluster:Cluster.
type controlPlane struct {
	pulumi.CustomResourceState

	Name pulumi.StringOutput `pulumi:"name"`
	// address of the Kubernetes API: "203.0.113.7"
	Endpoint pulumi.StringOutput `pulumi:"endpoint"`
	// its clusterCaCertificate is a certificate in PEM, base64-encoded
	MasterAuth pulumi.MapOutput `pulumi:"masterAuth"`
	// its keyName is the key of the secrets
	DatabaseEncryption pulumi.MapOutput `pulumi:"databaseEncryption"`
}

// register registers a resource without the SDK's type, with the version that the SDK requests:
// otherwise the engine would start a second provider.
func (p *parts) register(kind, name string, args pulumi.Map, r pulumi.CustomResource,
	opts ...pulumi.ResourceOption) error {
	return p.ctx.RegisterResource(kind, p.Child(name), args, r, append(opts, pulumi.Version(sdkVersion))...)
}

// Package minikube creates a cluster on this machine, which the minikube command starts and
// deletes.
//
//	Command "start" ──> Command "kubeconfig" ──> Cluster
//	   minikube start -p P …       kubectl config view --context P
//	   minikube delete -p P
//
// Laws:
//
//  1. The stack deletes a profile only if the stack started it. It refuses to start a profile that
//     exists already; a profile that is adopted is kept, without the objects that the stack has
//     created in it.
//  2. minikube cannot change a profile: other flags of its start mean another cluster with another
//     identity, and all objects within are replaced. Pulumi cannot do that in one step
//     (pulumi/pulumi#14650), but only by destroy and up.
//  3. The context that kubectl uses stays as it was.
package minikube

import (
	"cmp"
	"fmt"
	"path/filepath"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// data is the directory of the volume: one of the node, which minikube keeps when it is stopped, or
// one of this machine that is mounted there.
const data = "/data"

// ClusterArgs are the arguments of a cluster. Fields that are not set have the defaults of a
// stack's file.
type ClusterArgs struct {
	infra.ClusterArgs
	settings.Minikube
}

// OfStack returns the arguments of the cluster of a stack's valid settings.
func OfStack(s *settings.Settings) *ClusterArgs {
	return &ClusterArgs{ClusterArgs: infra.OfStack(s), Minikube: *s.Minikube}
}

// NewCluster creates a cluster. It requests no resource if the arguments have problems.
func NewCluster(ctx *pulumi.Context, name string, args *ClusterArgs,
	opts ...pulumi.ResourceOption) (*infra.Cluster, error) {
	if args == nil {
		args = &ClusterArgs{}
	}
	set := func(s *settings.Settings) { s.Minikube = &args.Minikube }
	s, err := args.Settings(ctx, name, settings.CloudMinikube, set)
	if err != nil {
		return nil, err
	}
	p := &parts{ctx: ctx, s: s, profile: profile{*s.Minikube}, Names: infra.NewNames(name, args.Alone)}
	p.Profile = cmp.Or(p.Profile, s.Name(maxCluster))
	if p.Data != "" {
		// minikube would resolve it relative to its own working directory
		path, err := filepath.Abs(p.Data)
		if err != nil {
			return nil, fmt.Errorf("minikube.data: %s: %w", p.Data, err)
		}
		p.Data = path
	}
	if err := ctx.RegisterComponentResource("elasticdl:minikube:Cluster", name, p, opts...); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.addCluster, p.addKubeconfig} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p.result(), ctx.RegisterResourceOutputs(p, pulumi.Map{"profile": pulumi.String(p.Profile)})
}

// maxCluster is the greatest length of a profile's name that the stack chooses.
const maxCluster = 40

// parts collects the resources that have been created so far.
type parts struct {
	pulumi.ResourceState
	infra.Names
	ctx *pulumi.Context
	s   *settings.Settings
	profile

	// the command that starts the profile, and deletes it
	cluster    *local.Command
	kubeconfig *local.Command
}

// result returns the cluster for the rest of the stack.
func (p *parts) result() *infra.Cluster {
	config := p.kubeconfig.Stdout.ApplyT(func(text string) (string, error) {
		return into(text, p.s.Platform.Namespace)
	})
	c := &infra.Cluster{
		Settings: p.s, Component: p,
		Name: pulumi.String(p.Profile).ToStringOutput(), ID: pulumi.Sprintf("%s/%s", p.Profile, p.cluster.ID()),
		Kubeconfig: pulumi.ToSecret(config).(pulumi.StringOutput), Context: p.Profile, Adopted: p.Adopt,
		Ready: []pulumi.Resource{p.cluster, p.kubeconfig},
		// the other network plugins accept NetworkPolicies but do not enforce them
		NetPolicies: p.Adopt || p.CNI == "calico" || p.CNI == "cilium",
	}
	c.Volume = p.claim(c.ID)
	if !p.Adopt {
		// within an adopted cluster each object is deleted on its own
		c.Resource = p.cluster
	}
	if p.GPUs != "" {
		// the single node has the GPUs, and an addon of minikube is the device plugin
		c.GPU.NodeSelector = map[string]string{}
	}
	return c
}

// claim returns the directory of the node as a volume.
func (p *parts) claim(id pulumi.StringInput) *infra.Volume {
	kind := core.HostPathDirectoryOrCreate
	if p.Data != "" {
		// a directory that is not mounted any more must not be created again, empty
		kind = core.HostPathDirectory
	}
	return &infra.Volume{Claim: settings.ClaimMinikube, ID: id, CapacityGB: p.DiskGB,
		Source: core.PersistentVolumeSource{
			HostPath: &core.HostPathVolumeSource{Path: data, Type: &kind},
		}}
}

// options returns the options of a part of the cluster.
func (p *parts) options(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return pulumi.Composite(append(more, pulumi.Parent(p))...)
}

// addCluster registers the command that starts minikube.
func (p *parts) addCluster() (err error) {
	opts := []pulumi.ResourceOption{
		// otherwise deleting the old profile would delete the new one, of the same name
		pulumi.DeleteBeforeReplace(true),
	}
	if p.Adopt {
		// the owner of an adopted profile chose its flags; another profile has another script
		opts = append(opts, pulumi.IgnoreChanges([]string{"triggers"}))
	}
	p.cluster, err = local.NewCommand(p.ctx, p.Child("start"), &local.CommandArgs{
		Interpreter: shell, Create: pulumi.String(p.create()), Update: pulumi.String(p.update()),
		Delete:   pulumi.String(p.delete()),
		Triggers: pulumi.Array{pulumi.String(p.Profile), pulumi.String(p.flags())},
		// passes on who owns the profile, see update and delete
		Logging: local.LoggingStderr, AddPreviousOutputInEnv: pulumi.Bool(true),
	}, p.options(opts...))
	return err
}

// addKubeconfig registers the command that reads minikube's kubeconfig, which contains a key.
func (p *parts) addKubeconfig() (err error) {
	p.kubeconfig, err = local.NewCommand(p.ctx, p.Child("kubeconfig"), &local.CommandArgs{
		Interpreter: shell, Create: pulumi.String(p.view()), Triggers: pulumi.Array{p.cluster.ID()},
		Logging: local.LoggingNone, AddPreviousOutputInEnv: pulumi.Bool(false),
	}, p.options(pulumi.DependsOn([]pulumi.Resource{p.cluster}), pulumi.AdditionalSecretOutputs([]string{"stdout"})))
	return err
}

// into returns a kubeconfig whose contexts have a namespace, so that kubectl and elasticdl need no
// flag for it.
func into(kubeconfig, namespace string) (string, error) {
	var config map[string]any
	if err := yaml.Unmarshal([]byte(kubeconfig), &config); err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	contexts, _ := config["contexts"].([]any)
	for _, named := range contexts {
		named, _ := named.(map[string]any)
		if context, ok := named["context"].(map[string]any); ok {
			context["namespace"] = namespace
		}
	}
	text, err := yaml.Marshal(config)
	return string(text), err
}

var shell = pulumi.StringArray{pulumi.String("/bin/sh"), pulumi.String("-c")}

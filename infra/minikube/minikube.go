// Package minikube makes a cluster on this machine, started and deleted by the minikube command.
//
//	Command "start" ──> Command "kubeconfig" ──> Cluster
//	   minikube start -p P …       kubectl config view --context P
//	   minikube delete -p P
//
// Laws:
//
//  1. The stack deletes a profile only if the stack started it. Of one that is there already it starts nothing and says so;
//     one that is adopted stays, without what the stack has put into it.
//  2. minikube does not resize: a change of what it was started with is another cluster, with another identity, and all that
//     is within is another's. Pulumi cannot do that in one step (pulumi/pulumi#14650), but by destroy and up.
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

// data is the volume: a directory of the node that minikube keeps when it is stopped, or one of this machine that is mounted there.
const data = "/data"

// New makes the cluster of settings that are valid.
func New(ctx *pulumi.Context, s *settings.Settings) (*infra.Cluster, error) {
	p := &parts{ctx: ctx, s: s, profile: profile{*s.Minikube}}
	p.Profile = cmp.Or(p.Profile, s.Name(maxCluster))
	if p.Data != "" {
		path, err := filepath.Abs(p.Data) // minikube would take it as relative to wherever it runs
		if err != nil {
			return nil, fmt.Errorf("minikube.data: %s: %w", p.Data, err)
		}
		p.Data = path
	}
	if err := ctx.RegisterComponentResource("elasticdl:minikube:Cluster", "minikube", p); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.addCluster, p.addKubeconfig} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p.result(), ctx.RegisterResourceOutputs(p, pulumi.Map{"profile": pulumi.String(p.Profile)})
}

// maxCluster is how long the name of a profile may be that the stack chooses.
const maxCluster = 40

// parts is what there is so far.
type parts struct {
	pulumi.ResourceState
	ctx *pulumi.Context
	s   *settings.Settings
	profile

	cluster    *local.Command // that starts it, and deletes it
	kubeconfig *local.Command
}

// result returns what the rest of the stack knows of the cluster.
func (p *parts) result() *infra.Cluster {
	config := p.kubeconfig.Stdout.ApplyT(func(text string) (string, error) { return into(text, p.s.Platform.Namespace) })
	c := &infra.Cluster{
		Name: pulumi.String(p.Profile).ToStringOutput(), ID: pulumi.Sprintf("%s/%s", p.Profile, p.cluster.ID()),
		Kubeconfig: pulumi.ToSecret(config).(pulumi.StringOutput), Context: p.Profile, Adopted: p.Adopt,
		Ready:       []pulumi.Resource{p.cluster, p.kubeconfig},
		NetPolicies: p.Adopt || p.CNI == "calico" || p.CNI == "cilium", // the others take NetworkPolicies and do nothing
	}
	c.Volume = p.claim(c.ID)
	if !p.Adopt {
		c.Resource = p.cluster // of an adopted one each object is deleted by itself
	}
	if p.GPUs != "" {
		c.GPU.NodeSelector = map[string]string{} // the one node has them, and minikube's addon the device plugin
	}
	return c
}

// claim returns the directory of the node as a volume.
func (p *parts) claim(id pulumi.StringInput) *infra.Volume {
	kind := core.HostPathDirectoryOrCreate
	if p.Data != "" {
		kind = core.HostPathDirectory // one that is not mounted any more is not to be made anew, empty
	}
	return &infra.Volume{Claim: settings.ClaimMinikube, ID: id, CapacityGB: p.DiskGB, Source: core.PersistentVolumeSource{
		HostPath: &core.HostPathVolumeSource{Path: data, Type: &kind},
	}}
}

// options returns the options of a part of the cluster.
func (p *parts) options(more ...pulumi.ResourceOption) pulumi.ResourceOption {
	return pulumi.Composite(append(more, pulumi.Parent(p))...)
}

// addCluster starts minikube.
func (p *parts) addCluster() (err error) {
	opts := []pulumi.ResourceOption{
		pulumi.DeleteBeforeReplace(true), // the other way round the old one's delete would end the new cluster, of the same name
	}
	if p.Adopt {
		opts = append(opts, pulumi.IgnoreChanges([]string{"triggers"})) // another owner chose how it was started; another profile is another script
	}
	p.cluster, err = local.NewCommand(p.ctx, "start", &local.CommandArgs{
		Interpreter: shell, Create: pulumi.String(p.create()), Update: pulumi.String(p.update()), Delete: pulumi.String(p.delete()),
		Triggers: pulumi.Array{pulumi.String(p.Profile), pulumi.String(p.flags())},
		Logging:  local.LoggingStderr, AddPreviousOutputInEnv: pulumi.Bool(true), // the profile's owner, see update and delete
	}, p.options(opts...))
	return err
}

// addKubeconfig reads what minikube wrote. There is a key in it.
func (p *parts) addKubeconfig() (err error) {
	p.kubeconfig, err = local.NewCommand(p.ctx, "kubeconfig", &local.CommandArgs{
		Interpreter: shell, Create: pulumi.String(p.view()), Triggers: pulumi.Array{p.cluster.ID()},
		Logging: local.LoggingNone, AddPreviousOutputInEnv: pulumi.Bool(false),
	}, p.options(pulumi.DependsOn([]pulumi.Resource{p.cluster}), pulumi.AdditionalSecretOutputs([]string{"stdout"})))
	return err
}

// into returns a kubeconfig whose contexts are in a namespace, so that kubectl and elasticdl need not be told of it.
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

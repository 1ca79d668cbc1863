package platform

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// inputs returns the properties of the cluster that the component's state keeps from one update to
// the next, so that a preview can compare. The kubeconfig stays that of the first update: it only
// serves to ask whether that cluster exists.
func inputs(ctx *pulumi.Context, s *settings.Settings, cluster *infra.Cluster) pulumi.Map {
	m := pulumi.Map{"nodes": pulumi.ToStringMap(nodes(s))}
	if ctx.RunningWithMocks() { // mocks refuse unknown secrets
		return m
	}
	m["cluster"] = cluster.ID
	if !cluster.Local() {
		m["kubeconfig"] = pulumi.ToSecret(cluster.Kubeconfig).(pulumi.StringOutput)
	}
	return m
}

// nodes returns a description of the nodes of each pool, by setting: if it changes, clouds replace
// the nodes, and drain the old ones.
func nodes(s *settings.Settings) map[string]string {
	all := map[string]string{}
	if g := s.GKE; g != nil {
		for _, p := range g.AllPools() {
			all[p.Path] = fmt.Sprintf("%s, disk %d, spot %t, %d %s %s", p.MachineType, p.DiskGB,
				p.Spot, p.GPUs, p.Accelerator, p.GPUDriver)
		}
	}
	if e := s.EKS; e != nil {
		for _, g := range slices.Concat(e.Groups(), e.NodePools()) {
			all[g.Path] = fmt.Sprintf("%s, disk %d, spot %t, version %s",
				strings.Join(g.InstanceTypes, " "), g.DiskGB, g.Spot, e.Version)
		}
	}
	return all
}

// rails returns the option of the hook that refuses the loss of a cluster, and warns of the loss of
// nodes on which a job runs.
func rails(ctx *pulumi.Context, s *settings.Settings, g *infra.Guard) (pulumi.ResourceOption, error) {
	hook, err := g.Hook("the cluster stays", func(a *pulumi.ResourceHookArgs) error {
		if err := sameCluster(s, g, a.OldInputs, a.NewInputs); err != nil {
			return err
		}
		changed := drained(a.OldInputs, a.NewInputs)
		if len(changed) == 0 || !ctx.DryRun() {
			return nil
		}
		if job := g.Running(); job != "" {
			return ctx.Log.Warn(fmt.Sprintf("%s: other nodes take the place of those that there "+
				"are, which are drained: %s. Workers there are replaced, a master comes back on another "+
				"node, and for a parameter server the training returns to the newest checkpoint",
				strings.Join(changed, ", "), job), nil)
		}
		return nil
	})
	if hook == nil || err != nil {
		return pulumi.ResourceHooks(nil), err
	}
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeUpdate: []*pulumi.ResourceHook{hook}}), nil
}

// sameCluster refuses to replace a cluster while it answers. A cluster that is deleted may be
// created again.
func sameCluster(s *settings.Settings, g *infra.Guard, was, now resource.PropertyMap) error {
	before, after := text(was["cluster"]), text(now["cluster"])
	if s.Existing != nil && before != "" && strings.HasPrefix(before, infra.ByAddress) != strings.HasPrefix(after,
		infra.ByAddress) {
		return fmt.Errorf("%s:existing.context: whether this is the cluster of the stack is not known: only one of "+
			"the users of this stack may read the namespace kube-system, which identifies it: give all of them that "+
			"right: docs/infrastructure/existing.md", s.Project)
	}
	if s.Existing != nil && before != "" && before != after {
		return fmt.Errorf("%s:existing.context: the stack is on another cluster, and its objects would "+
			"stay there: choose that one: kubectl config use-context, or existing.context. To move the stack: "+
			"pulumi destroy there first. If that cluster does not exist any more: "+
			"PULUMI_K8S_DELETE_UNREACHABLE=true pulumi refresh, and pulumi destroy (%s:cluster was %s and "+
			"is %s)", s.Project, s.Project, before, after)
	}
	if before == "" || before == after || slices.Contains(s.Policy.Allow, infra.RuleReplacedCluster) ||
		!g.Answers(text(was["kubeconfig"])) {
		return nil
	}
	what := "its data on volumes of the cluster included"
	if job := g.RunningIn(text(was["kubeconfig"])); job != "" {
		what = job
	}
	return errors.New("policy " + infra.RuleReplacedCluster + ": the cluster " + before +
		" would be replaced by another, and all within it would end: " + what +
		". Pulumi does not do that in one step (pulumi/pulumi#14650). Change the setting back, or " +
		"make the other one by `pulumi destroy`, then `pulumi up`. " +
		`(To let it pass: elasticdl:policy.allow: ["` + infra.RuleReplacedCluster + `"])`)
}

// keeps returns the options of a claim for which the cluster makes the volume: without the claim,
// the data may be deleted.
func (r *registrar) keeps() (pulumi.ResourceOption, error) {
	unused, err := claimIsUnused(r.ctx, r.Guard)
	if err != nil {
		return nil, err
	}
	var warnings []string
	of := r.Cluster.Volume.OnDemand
	if of.AccessMode == core.ReadWriteOnce {
		warnings = []string{"existing.volume.accessMode: ReadWriteOnce: the pods of the job, and that which " +
			"brings data, run if they are on one node: expected ReadWriteMany where there is more than one"}
	}
	warns, err := infra.WarnBeforeCreate(r.ctx, r.names.Hook("how many nodes may use the volume"), warnings)
	return pulumi.Composite(unused, warns, pulumi.Protect(of.Protect), pulumi.DeleteBeforeReplace(true),
		pulumi.ReplaceOnChanges([]string{"spec.storageClassName", "spec.accessModes"})), err
}

// claimIsUnused returns the option of the hook that refuses, in a preview, to replace the claim
// while the job's pods use it: Kubernetes keeps the old claim as long as they do, and the update
// would fail after ten minutes.
func claimIsUnused(ctx *pulumi.Context, g *infra.Guard) (pulumi.ResourceOption, error) {
	hook, err := g.Hook("a claim in use stays", func(a *pulumi.ResourceHookArgs) error {
		if !ctx.DryRun() {
			return nil
		}
		is, err := g.Find(infra.KindClaim, g.Namespace(), text(a.NewInputs["metadata"].ObjectValue()["name"]))
		if err != nil || is == nil || is.Object == nil {
			return nil
		}
		if job := g.Running(); job != "" {
			return errors.New("the volume and its claim have to be made again, and " + job +
				" with the claim: end it first: elasticdl stop, then pulumi up --refresh")
		}
		return nil
	})
	if hook == nil || err != nil {
		return pulumi.ResourceHooks(nil), err
	}
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{hook}}), nil
}

// drained returns the settings of pools whose nodes a change replaces or removes.
func drained(was, now resource.PropertyMap) (all []string) {
	if !was["nodes"].IsObject() || !now["nodes"].IsObject() {
		return nil
	}
	before, after := was["nodes"].ObjectValue(), now["nodes"].ObjectValue()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if text(before[name]) != text(after[name]) {
			all = append(all, string(name))
		}
	}
	return all
}

// text returns a known text, whether secret or not, or "".
func text(v resource.PropertyValue) string {
	for v.IsSecret() || v.IsOutput() {
		if v.IsSecret() {
			v = v.SecretValue().Element
		} else if v = v.OutputValue().Element; v.IsNull() {
			break
		}
	}
	if v.IsString() {
		return v.StringValue()
	}
	return ""
}

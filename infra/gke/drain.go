package gke

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// drained describes what is lost when Google drains a node. The page of GKE says the same.
const drained = "workers there are replaced, a master comes back on another node, and for a parameter " +
	"server the training returns to the newest checkpoint"

// drains lists the inputs of a pool whose change makes Google recreate all of its nodes, although
// the pool itself is updated in place.
var drains = []string{"nodeConfig.machineType", "nodeConfig.diskType", "nodeConfig.diskSizeGb",
	"nodeConfig.imageType", "networkConfig.enablePrivateNodes"}

// warnOfDrains returns the option for the cluster and its pools that warns, also in a preview, of
// updates that drain nodes.
func (p *parts) warnOfDrains() (pulumi.ResourceOption, error) {
	hook, err := infra.NewHook(p.ctx, p.Hook("nodes that are drained"), func(a *pulumi.ResourceHookArgs) error {
		if why := whyDrained(a.Name, a.OldInputs, a.NewInputs); why != "" {
			return p.ctx.Log.Warn(why+": "+drained, nil)
		}
		return nil
	})
	return infra.BeforeUpdate(hook), err
}

// whyDrained returns the reason why an update of a pool or cluster drains nodes, or "".
func whyDrained(name string, was, is resource.PropertyMap) string {
	if zones := leftZones(was, is); len(zones) > 0 {
		return fmt.Sprintf("gke.nodeZones: without %s: Google takes away the nodes there", strings.Join(zones, ", "))
	}
	if changed := remade(was, is); len(changed) > 0 {
		return fmt.Sprintf("pool %s: %s: Google makes its nodes again, one after the other", name,
			strings.Join(changed, ", "))
	}
	return ""
}

// remade returns the changed inputs of a pool that make Google drain all of its nodes.
func remade(was, is resource.PropertyMap) (changed []string) {
	for _, path := range drains {
		section, field, _ := strings.Cut(path, ".")
		if a, b := within(was, section, field), within(is, section, field); !a.IsNull() &&
			!b.IsNull() && !a.DeepEquals(b) {
			changed = append(changed, field)
		}
	}
	return changed
}

func within(m resource.PropertyMap, section, field string) resource.PropertyValue {
	if v := m[resource.PropertyKey(section)]; v.IsObject() {
		return v.ObjectValue()[resource.PropertyKey(field)]
	}
	return resource.NewNullProperty()
}

// leftZones returns the zones that an update removes from a cluster. An empty new list removes
// none.
func leftZones(was, is resource.PropertyMap) (left []string) {
	zones := func(m resource.PropertyMap) (all []string) {
		if v := m["nodeLocations"]; v.IsArray() {
			for _, zone := range v.ArrayValue() {
				if zone.IsString() {
					all = append(all, zone.StringValue())
				}
			}
		}
		return all
	}
	now := zones(is)
	for _, zone := range zones(was) {
		if now != nil && !slices.Contains(now, zone) {
			left = append(left, zone)
		}
	}
	return left
}

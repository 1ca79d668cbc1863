package eks

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// of returns the resources of a type.
func (v *view) of(kind string) (found []*graph.Resource) {
	for i := range v.all {
		if v.all[i].Type == kind {
			found = append(found, &v.all[i])
		}
	}
	return found
}

// named returns the resource of a type and name, as a list of one. If there is none it is empty,
// and so breaks the laws that name it.
func (v *view) named(kind, name string) []*graph.Resource {
	r := graph.Find(v.all, kind, name)
	if r == nil {
		v.missing = append(v.missing, "there is no "+kind+" "+name)
		r = &graph.Resource{Type: kind, Name: name}
		r.Inputs = resource.PropertyMap{}
	}
	return []*graph.Resource{r}
}

// behind returns all resources on which r depends, directly or not.
func (v *view) behind(r *graph.Resource) map[string]bool {
	seen := map[string]bool{}
	next := slices.Clone(r.Options.DependsOn)
	for len(next) > 0 {
		key := next[0]
		next = next[1:]
		if seen[key] {
			continue
		}
		seen[key] = true
		if kind, name, ok := strings.Cut(key, " "); ok {
			if r := graph.Find(v.all, kind, name); r != nil {
				next = append(next, r.Options.DependsOn...)
			}
		}
	}
	return seen
}

// wait returns the names of the resources of who that do not depend on all of on.
func (v *view) wait(who []*graph.Resource, on ...*graph.Resource) (wrong []string) {
	if len(who) == 0 || len(on) == 0 {
		return []string{"there is none to wait, or to be waited for"}
	}
	for _, r := range who {
		behind := v.behind(r)
		for _, o := range on {
			if !behind[o.Type+" "+o.Name] {
				wrong = append(wrong, fmt.Sprintf("%s %s does not wait for %s %s", r.Type, r.Name, o.Type, o.Name))
			}
		}
	}
	return wrong
}

func (v *view) dontWait(r, on *graph.Resource) []string {
	if v.behind(r)[on.Type+" "+on.Name] {
		return []string{fmt.Sprintf("%s %s hangs on %s %s", r.Type, r.Name, on.Type, on.Name)}
	}
	return nil
}

func count(all []*graph.Resource, want int) []string {
	if len(all) == want {
		return nil
	}
	return []string{fmt.Sprintf("there are %d and not %d of %v", len(all), want, all)}
}

func at(r *graph.Resource, path string) (resource.PropertyValue, bool) {
	return parse(path).Get(resource.NewProperty(r.Inputs))
}

// text returns an input as fmt prints it: "<none>" if it is absent, "(unknown)" if it depends on
// unknown outputs.
func text(r *graph.Resource, path string) string {
	v, ok := at(r, path)
	switch {
	case !ok || v.IsNull() || v.IsArray() && len(v.ArrayValue()) == 0:
		return "<none>"
	case v.IsComputed() || v.IsOutput():
		return "(unknown)"
	}
	return fmt.Sprint(v.V)
}

func is(r *graph.Resource, path, want string) []string {
	if got := text(r, path); got != want {
		return []string{fmt.Sprintf("%s %s: %s is %s, not %s", r.Type, r.Name, path, got, want)}
	}
	return nil
}

// set gives an input another value; with missing parents it makes them.
func set(r *graph.Resource, path string, value any) {
	v, ok := parse(path).Add(resource.NewProperty(r.Inputs), resource.NewPropertyValue(value))
	if ok && v.IsObject() {
		r.Inputs = v.ObjectValue()
	}
}

func unset(r *graph.Resource, path string) { parse(path).Delete(resource.NewProperty(r.Inputs)) }

func parse(path string) resource.PropertyPath {
	p, err := resource.ParsePropertyPath(path)
	if err != nil {
		panic(err)
	}
	return p
}

// drop removes the entries of a type from a list of "type name".
func drop(list *[]string, kind string) {
	*list = slices.DeleteFunc(*list, func(s string) bool { return strings.HasPrefix(s, kind+" ") })
}

func isGPUToleration(t core.Toleration) bool {
	return t.Key == "nvidia.com/gpu" && (t.Effect == core.TaintEffectNoSchedule || t.Effect == "") &&
		(t.Operator == core.TolerationOpExists || t.Value == "present")
}

// auto reports whether the cluster is in Auto Mode.
func (v *view) auto() bool { return v.s.EKS.Nodes == settings.NodesAuto }

// nodes returns what makes the first nodes: groups, or in Auto Mode the cluster itself.
func (v *view) nodes() []*graph.Resource {
	if v.auto() {
		return v.of(clusterType)
	}
	return v.of(groupType)
}

// waitForGroups returns which groups do not wait for what nodes need in a running cluster. In Auto
// Mode the objects wait for it, by which nodes are made.
func (v *view) waitForGroups(on ...*graph.Resource) (wrong []string) {
	if !v.auto() {
		return v.wait(v.of(groupType), on...)
	}
	for _, r := range on {
		if !slices.Contains(v.ready, r.Type+" "+r.Name) {
			wrong = append(wrong, "no object waits for "+r.Name)
		}
	}
	return wrong
}

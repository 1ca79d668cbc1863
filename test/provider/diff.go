package provider

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// difference collects what must change: it compares the requested values with the existing ones,
// ignoring values that a cloud has assigned.
type difference struct {
	ignore, replace []resource.PropertyPath
	found           map[string]*pulumirpc.PropertyDiff
	replaced        []string
}

// diff compares the former inputs and the existing resource with the new inputs. A change within
// one of the paths in replace needs a replacement. The paths are those of Pulumi, with * for all
// elements of a list.
func diff(asked, is, now Props, ignore, replace []string) (*pulumirpc.DiffResponse, error) {
	d := difference{found: map[string]*pulumirpc.PropertyDiff{}}
	var err error
	if d.ignore, err = paths(ignore); err != nil {
		return nil, err
	}
	if d.replace, err = paths(replace); err != nil {
		return nil, err
	}
	d.walk(nil, asked, is, now)
	return answer(d.found, d.replaced), nil
}

// answer returns the message to the engine about differences, and about those that need a
// replacement.
func answer(found map[string]*pulumirpc.PropertyDiff, replaced []string) *pulumirpc.DiffResponse {
	r := &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE, DetailedDiff: found, HasDetailedDiff: true}
	if len(found) > 0 {
		r.Changes = pulumirpc.DiffResponse_DIFF_SOME
		r.Diffs = slices.Sorted(maps.Keys(found))
		slices.Sort(replaced)
		r.Replaces = replaced
	}
	return r
}

func paths(texts []string) ([]resource.PropertyPath, error) {
	var all []resource.PropertyPath
	for _, text := range texts {
		p, err := resource.ParsePropertyPath(text)
		if err != nil {
			return nil, fmt.Errorf("parse path %s: %w", text, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func (d *difference) walk(path resource.PropertyPath, asked, is, now any) {
	if now == nil {
		if asked != nil {
			d.differs(path, pulumirpc.PropertyDiff_DELETE, pulumirpc.PropertyDiff_DELETE_REPLACE)
		}
		return
	}
	old := is
	if old == nil {
		old = asked
	}
	switch now := now.(type) {
	case map[string]any:
		if old, ok := old.(map[string]any); ok {
			asked, _ := asked.(map[string]any)
			keys := maps.Clone(now)
			maps.Copy(keys, asked)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				if strings.HasPrefix(k, "__") {
					continue // internal to the engine
				}
				d.walk(with(path, k), asked[k], old[k], now[k])
			}
			return
		}
	case []any:
		if old, ok := old.([]any); ok && len(old) == len(now) {
			asked, _ := asked.([]any)
			for i := range now {
				d.walk(with(path, i), at(asked, i), old[i], now[i])
			}
			return
		}
	}
	switch {
	case old == nil:
		d.differs(path, pulumirpc.PropertyDiff_ADD, pulumirpc.PropertyDiff_ADD_REPLACE)
	case !reflect.DeepEqual(old, now):
		d.differs(path, pulumirpc.PropertyDiff_UPDATE, pulumirpc.PropertyDiff_UPDATE_REPLACE)
	}
}

func with(path resource.PropertyPath, part any) resource.PropertyPath {
	return append(slices.Clip(path), part)
}

func (d *difference) differs(path resource.PropertyPath, kind, replacement pulumirpc.PropertyDiff_Kind) {
	within := func(p resource.PropertyPath) bool { return p.Contains(path) }
	if slices.ContainsFunc(d.ignore, within) {
		return
	}
	name := path.String()
	if slices.ContainsFunc(d.replace, within) || slices.ContainsFunc(d.replace, path.Contains) {
		d.replaced = append(d.replaced, name)
		kind = replacement
	}
	d.found[name] = &pulumirpc.PropertyDiff{Kind: kind}
}

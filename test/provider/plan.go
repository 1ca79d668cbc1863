package provider

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// plan collects what must change, as Terraform does: it compares the state, which includes values
// of the cloud, with the inputs.
//
//	in the state, not requested   none if Computed; otherwise a difference, except for zero values
//	                              and the Default
//	requested, not in the state   a difference, except for zero values
//	in both                       lists by index, sets in any order, blocks attribute by attribute
//
// A difference of an attribute that is ForceNew replaces the resource; so does a block that is
// added or removed and contains such an attribute.
type plan struct {
	ignore   []resource.PropertyPath
	state    Props // state of the resource
	found    map[string]*pulumirpc.PropertyDiff
	replaced []string
}

// diffAttributes compares a resource's state with the new inputs. The paths to ignore are Pulumi's.
func diffAttributes(all parts, state, now Props, ignore []string) (*pulumirpc.DiffResponse, error) {
	ignored, err := paths(ignore)
	if err != nil {
		return nil, err
	}
	p := plan{ignore: ignored, state: state, found: map[string]*pulumirpc.PropertyDiff{}}
	p.block(nil, all, state, now)
	return answer(p.found, p.replaced), nil
}

func (p *plan) block(path resource.PropertyPath, all parts, state, now Props) {
	for _, k := range keysOf(all, now) {
		at := with(path, k)
		if a := all[k]; a != nil {
			p.attribute(at, a, state[k], now[k])
		} else if now[k] != nil && !reflect.DeepEqual(state[k], now[k]) {
			// only the beta provider has it: its attributes are not known
			p.differs(at, pulumirpc.PropertyDiff_UPDATE, false)
		}
	}
}

// keysOf returns the keys of a block and of the inputs, in order, without those of the engine.
func keysOf(all parts, now Props) []string {
	keys := slices.Collect(maps.Keys(all))
	for k := range now {
		if all[k] == nil && !strings.HasPrefix(k, "__") {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func (p *plan) attribute(path resource.PropertyPath, a *attribute, state, now any) {
	if now == nil {
		now = a.initial
	}
	switch {
	case now == nil && a.computed, suppressed(a, p.state, state, now):
	case now == Unknown:
		p.differs(path, kindOfChange(state, now), a.forceNew)
	case a.kind == "TypeMap":
		p.entries(path, a, state, now)
	case !a.primitive():
		p.list(path, a, itemsOf(a, state), itemsOf(a, now))
	default:
		p.primitive(path, a, state, now)
	}
}

func (p *plan) primitive(path resource.PropertyPath, a *attribute, state, now any) {
	zero := a.zero()
	if equalOr(zero, state, now) || a.computed && now == "" {
		return
	}
	p.differs(path, kindOfChange(state, now), a.forceNew || replaces(a, p.state, state, now))
}

// equalOr reports whether two values are the same, where nil equals zero.
func equalOr(zero, a, b any) bool {
	if a == nil {
		a = zero
	}
	if b == nil {
		b = zero
	}
	return reflect.DeepEqual(a, b)
}

func (p *plan) entries(path resource.PropertyPath, a *attribute, state, now any) {
	is, _ := state.(map[string]any)
	asked, _ := now.(map[string]any)
	keys := maps.Clone(is)
	if keys == nil {
		keys = Props{}
	}
	maps.Copy(keys, asked)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !reflect.DeepEqual(is[k], asked[k]) {
			p.differs(with(path, k), kindOfChange(is[k], asked[k]), a.forceNew)
		}
	}
}

// itemsOf returns the elements of a list or set. If it is flat, Pulumi has the single element
// instead.
func itemsOf(a *attribute, v any) []any {
	if v == nil {
		return nil
	}
	if a.flat {
		return []any{v}
	}
	l, _ := v.([]any)
	return l
}

func (p *plan) list(path resource.PropertyPath, a *attribute, state, now []any) {
	if len(now) == 0 && a.computed {
		return
	}
	if a.kind == "TypeSet" {
		p.set(path, a, state, now)
		return
	}
	for i := range max(len(state), len(now)) {
		switch at := p.item(path, a, i); {
		case i >= len(now):
			p.whole(at, a, state[i], pulumirpc.PropertyDiff_DELETE)
		case i >= len(state):
			p.whole(at, a, now[i], pulumirpc.PropertyDiff_ADD)
		default:
			p.element(at, a, state[i], now[i])
		}
	}
}

func (p *plan) item(path resource.PropertyPath, a *attribute, i int) resource.PropertyPath {
	if a.flat {
		return path
	}
	return with(path, i)
}

// element compares two elements of a list.
func (p *plan) element(path resource.PropertyPath, a *attribute, state, now any) {
	if a.parts == nil {
		if !suppressed(a, p.state, state, now) && !reflect.DeepEqual(state, now) {
			p.differs(path, pulumirpc.PropertyDiff_UPDATE, a.forceNew)
		}
		return
	}
	is, _ := state.(map[string]any)
	asked, known := now.(map[string]any)
	if !known { // unknown properties, or unknown values
		p.differs(path, pulumirpc.PropertyDiff_UPDATE, a.forceNew)
		return
	}
	p.block(path, a.parts, is, asked)
}

// set compares without order: an element without an equal was added or removed.
func (p *plan) set(path resource.PropertyPath, a *attribute, state, now []any) {
	left := make([]int, len(state))
	for i := range left {
		left[i] = i
	}
	for i, asked := range now {
		same := slices.IndexFunc(left, func(j int) bool { return p.same(a, state[j], asked) })
		if same < 0 {
			p.whole(p.item(path, a, i), a, asked, pulumirpc.PropertyDiff_ADD)
		} else {
			left = slices.Delete(left, same, same+1)
		}
	}
	for _, j := range left {
		p.whole(p.item(path, a, j), a, state[j], pulumirpc.PropertyDiff_DELETE)
	}
}

// same reports whether there is no difference between two elements of a set.
func (p *plan) same(a *attribute, state, now any) bool {
	within := plan{state: p.state, found: map[string]*pulumirpc.PropertyDiff{}}
	within.element(nil, a, state, now)
	return len(within.found) == 0
}

// whole adds the difference of an element that is added or removed.
func (p *plan) whole(path resource.PropertyPath, a *attribute, v any, kind pulumirpc.PropertyDiff_Kind) {
	state, now := any(nil), v
	if kind == pulumirpc.PropertyDiff_DELETE {
		state, now = v, nil
	}
	p.differs(path, kind, a.forceNew || replacesWith(a.parts, v) || replaces(a, p.state, state, now))
}

// replacesWith reports whether a block sets something that is ForceNew.
func replacesWith(all parts, v any) bool {
	block, _ := v.(map[string]any)
	for k, a := range all {
		is := block[k]
		if is == nil || reflect.DeepEqual(is, a.zero()) {
			continue
		}
		if a.forceNew || slices.ContainsFunc(itemsOf(a, is), func(e any) bool { return replacesWith(a.parts, e) }) {
			return true
		}
	}
	return false
}

func kindOfChange(state, now any) pulumirpc.PropertyDiff_Kind {
	switch {
	case state == nil:
		return pulumirpc.PropertyDiff_ADD
	case now == nil:
		return pulumirpc.PropertyDiff_DELETE
	}
	return pulumirpc.PropertyDiff_UPDATE
}

func (p *plan) differs(path resource.PropertyPath, kind pulumirpc.PropertyDiff_Kind, replaces bool) {
	if isIgnored(p.ignore, path) {
		return
	}
	name := path.String()
	if replaces {
		p.replaced = append(p.replaced, name)
		kind++ // ADD_REPLACE follows ADD, and so on
	}
	p.found[name] = &pulumirpc.PropertyDiff{Kind: kind}
}

func isIgnored(ignore []resource.PropertyPath, path resource.PropertyPath) bool {
	return slices.ContainsFunc(ignore, func(i resource.PropertyPath) bool { return i.Contains(path) })
}

// planned returns the state that an update requests from the cloud: the inputs, and from the state
// the values that are Computed, ignored or suppressed. Both may contain secrets.
func planned(all parts, state, now Props, ignore []resource.PropertyPath) Props {
	return plannedBlock(nil, all, state, now, func(path resource.PropertyPath, a *attribute, is, asked any) bool {
		return isIgnored(ignore, path) || suppressed(a, state, plain(is), plain(asked))
	})
}

func plannedBlock(path resource.PropertyPath, all parts, state, now Props,
	keep func(resource.PropertyPath, *attribute, any, any) bool) Props {
	out := maps.Clone(now)
	for k, a := range all {
		is, asked, at := state[k], now[k], with(path, k)
		if asked == nil {
			asked = a.initial
		}
		switch {
		case is != nil && (keep(at, a, is, asked) || asked == nil && a.computed):
			out[k] = is
		case is == nil && now[k] != nil && keep(at, a, is, asked):
			delete(out, k)
		case a.parts != nil && is != nil && asked != nil && asked != Unknown:
			out[k] = plannedItems(at, a, is, asked, keep)
		case asked != nil:
			out[k] = asked
		}
	}
	return out
}

func plannedItems(path resource.PropertyPath, a *attribute, state, now any,
	keep func(resource.PropertyPath, *attribute, any, any) bool) any {
	is, asked := itemsOf(a, state), itemsOf(a, now)
	out := slices.Clone(asked)
	for i := range asked {
		at := path
		if !a.flat {
			at = with(path, i)
		}
		if i >= len(is) {
			break
		}
		old, ok := is[i].(map[string]any)
		block, known := asked[i].(map[string]any)
		if ok && known && old[signature] == nil && block[signature] == nil {
			out[i] = plannedBlock(at, a.parts, old, block, keep)
		}
	}
	if a.flat {
		return out[0]
	}
	return out
}

// pushed returns the resource after an update: properties in which the plan differs from the state
// are replaced as a whole by the plan, the others stay unchanged.
func pushed(is, state, plan Props) Props {
	out := maps.Clone(is)
	for k, v := range plan {
		if !reflect.DeepEqual(plain(v), plain(state[k])) {
			out[k] = v
		}
	}
	for k := range state {
		if plan[k] == nil {
			delete(out, k)
		}
	}
	return out
}

// withInitial returns the inputs with the Defaults of missing ones, as Pulumi's bridge stores them.
func withInitial(all parts, in Props) Props {
	return filled(all, in, func(a *attribute) any { return a.initial })
}

// withUnknown returns the inputs with all values that the cloud will fill in, which are unknown in
// a preview.
func withUnknown(all parts, in Props) Props {
	return filled(all, in, func(a *attribute) any {
		if a.computed {
			return Unknown
		}
		return nil
	})
}

// filled returns a block in which missing values are added, also in the blocks within; values that
// missing returns as nil are left out.
func filled(all parts, in Props, missing func(a *attribute) any) Props {
	out := maps.Clone(in)
	for k, a := range all {
		v, asked := in[k]
		switch {
		case !asked:
			if add := missing(a); add != nil {
				out[k] = add
			}
		case a.parts != nil && v != Unknown:
			items := slices.Clone(itemsOf(a, v))
			for i, e := range items {
				if block, ok := e.(map[string]any); ok && block[signature] == nil {
					items[i] = filled(a.parts, block, missing)
				}
			}
			if a.flat {
				out[k] = items[0]
			} else if items != nil {
				out[k] = items
			}
		}
	}
	return out
}

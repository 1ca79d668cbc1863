package policy

import (
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// A value is known, unknown, or absent (null).

// at returns the value at a path of names; it is unknown if anything on the path is.
func at(m resource.PropertyMap, path ...string) resource.PropertyValue {
	return within(resource.NewProperty(m), path...)
}

func within(v resource.PropertyValue, path ...string) resource.PropertyValue {
	for v = bare(v); len(path) > 0 && !unknown(v); path = path[1:] {
		if !v.IsObject() {
			return resource.NewNullProperty()
		}
		v = bare(v.ObjectValue()[resource.PropertyKey(path[0])])
	}
	return v
}

// bare returns a value without the wrapper of a secret or an output.
func bare(v resource.PropertyValue) resource.PropertyValue {
	for {
		switch {
		case v.IsSecret():
			v = v.SecretValue().Element
		case v.IsOutput() && v.OutputValue().Known:
			v = v.OutputValue().Element
		default:
			return v
		}
	}
}

func unknown(v resource.PropertyValue) bool { return v.IsComputed() || v.IsOutput() }

// is reports whether a value is equal to want, or unknown.
func is(v resource.PropertyValue, want any) bool { return unknown(v) || v.V == want }

// text returns a known text, or "".
func text(v resource.PropertyValue) string {
	if v = bare(v); v.IsString() {
		return v.StringValue()
	}
	return ""
}

// list returns the known elements of a list; another value counts as a list of one.
func list(v resource.PropertyValue) []resource.PropertyValue {
	switch v = bare(v); {
	case v.IsArray():
		return v.ArrayValue()
	case v.IsNull() || unknown(v):
		return nil
	}
	return []resource.PropertyValue{v}
}

// texts returns the known texts of a list.
func texts(v resource.PropertyValue) (all []string) {
	for _, e := range list(v) {
		if s := text(e); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// kindOf returns the type of a resource without package and module, or "" if it is not of package
// pkg: "Role" of "kubernetes:rbac.authorization.k8s.io/v1:Role", where pkg is "kubernetes".
func kindOf(r Resource, pkg string) string {
	if !strings.HasPrefix(r.Type, pkg+":") {
		return ""
	}
	return r.Type[strings.LastIndex(r.Type, ":")+1:]
}

func oneOf(s string, all ...string) bool { return slices.Contains(all, s) }

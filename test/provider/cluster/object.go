package cluster

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Marks of the wire for an unknown value, and for a secret.
const (
	unknown   = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
	signature = "4dabf18193072939515e22adb298388d"
)

// object is an object of Kubernetes, as JSON.
type object map[string]any

func (o object) text(path ...string) string {
	text, _, _ := unstructured.NestedString(o, path...)
	return text
}

func (o object) version() string   { return o.text("apiVersion") }
func (o object) kind() string      { return o.text("kind") }
func (o object) name() string      { return o.text("metadata", "name") }
func (o object) namespace() string { return o.text("metadata", "namespace") }

func (o object) id() string {
	if o.namespace() == "" {
		return o.name()
	}
	return o.namespace() + "/" + o.name()
}

// annotation returns the value of an annotation of the provider, such as "skipAwait".
func (o object) annotation(name string) string {
	return o.text("metadata", "annotations", "pulumi.com/"+name)
}

func (o object) clone() object { return unwrap(map[string]any(o)).(map[string]any) }

func (o object) metadata() map[string]any {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		o["metadata"] = m
	}
	return m
}

func (o object) annotate(key, value string) {
	annotations, ok := o.metadata()["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		o.metadata()["annotations"] = annotations
	}
	annotations[key] = value
}

// number returns a number at a path, or 0 if there is none.
func (o object) number(path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o, path...)
	return n
}

// condition reports whether a condition in its status is true.
func (o object) condition(name string) bool {
	conditions, _, _ := unstructured.NestedSlice(o, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == name && m["status"] == "True"
	})
}

// ignore copies the live values at paths.
func (o object) ignore(live map[string]any, paths []string) {
	for _, path := range paths {
		keys := strings.Split(path, ".")
		if value, found, err := unstructured.NestedFieldCopy(live, keys...); found && err == nil {
			if err := unstructured.SetNestedField(o, value, keys...); err != nil {
				// a value of another kind is there: the server reports that
				continue
			}
		}
	}
}

// mounted returns a copy in which directories of the node have other names.
func (o object) mounted(names map[string]string) object {
	o = o.clone()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if host, ok := v["hostPath"].(map[string]any); ok {
				if path, ok := host["path"].(string); ok && names[path] != "" {
					host["path"] = names[path]
				}
			}
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(map[string]any(o))
	return o
}

// plain returns the values of a message, without nulls and the marks of secrets. Whole numbers are
// int64, as unstructured objects require.
func plain(s *structpb.Struct) map[string]any {
	return unwrap(s.AsMap()).(map[string]any)
}

func unwrap(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v[signature] != nil {
			return unwrap(v["value"])
		}
		out := make(map[string]any, len(v))
		for key, e := range v {
			if e != nil {
				out[key] = unwrap(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = unwrap(e)
		}
		return out
	case float64:
		if v == math.Trunc(v) {
			return int64(v)
		}
	}
	return v
}

func wire(v map[string]any) (*structpb.Struct, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, s.UnmarshalJSON(text)
}

// hasUnknown reports whether a value contains an unknown one.
func hasUnknown(v any) bool {
	switch v := v.(type) {
	case string:
		return v == unknown
	case map[string]any:
		for _, e := range v {
			if hasUnknown(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasUnknown)
	}
	return false
}

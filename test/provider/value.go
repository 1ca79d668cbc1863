package provider

import (
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// Props has properties as values of JSON. Properties on the wire may contain secrets; plain ones do
// not.
type Props = map[string]any

// Unknown stands for a value that a preview does not know.
const Unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

// Keys of an object that represents a secret; it has the secret as value.
const (
	signature       = resource.SigKey
	secretSignature = resource.SecretSig
)

// wire returns the properties of a request, without null values.
func wire(s *structpb.Struct) Props {
	return trim(s.AsMap()).(Props)
}

func trim(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(Props, len(v))
		for k, e := range v {
			if e != nil {
				out[k] = trim(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = trim(e)
		}
		return out
	}
	return v
}

// plain returns a copy of v with its secrets replaced by their values.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v[signature] == secretSignature {
			return plain(v["value"])
		}
		out := make(Props, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	}
	return v
}

func open(p Props) Props { return plain(p).(Props) }

func secret(v any) any { return Props{signature: secretSignature, "value": v} }

// hasUnknown reports whether v contains an unknown value.
func hasUnknown(v any) bool {
	switch v := v.(type) {
	case string:
		return v == Unknown
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasUnknown)
	case []any:
		return slices.ContainsFunc(v, hasUnknown)
	}
	return false
}

// laid returns the inputs with the values that a cloud adds; in a preview those are unknown. For a
// list, values of the cloud with the same number of elements are merged element by element.
func laid(in, added any, preview bool) any {
	switch a := added.(type) {
	case map[string]any:
		if in, ok := in.(map[string]any); ok && in[signature] == nil && a[signature] == nil {
			out := maps.Clone(in)
			for k, e := range a {
				if old, ok := in[k]; ok {
					out[k] = laid(old, e, preview)
				} else if preview {
					out[k] = Unknown
				} else {
					out[k] = e
				}
			}
			return out
		}
	case []any:
		if in, ok := in.([]any); ok && len(in) == len(a) {
			out := slices.Clone(in)
			for i, e := range a {
				out[i] = laid(in[i], e, preview)
			}
			return out
		}
	}
	if preview && !reflect.DeepEqual(plain(in), plain(added)) {
		return in // a preview shows the inputs
	}
	return added
}

// as converts v to the types of JSON.
func as(v Props) (*structpb.Struct, error) {
	return structpb.NewStruct(jsonic(v).(Props))
}

// jsonic converts the slices, maps and numbers of Go to those of JSON.
func jsonic(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(Props, len(v))
		for k, e := range v {
			out[k] = jsonic(e)
		}
		return out
	case map[string]string:
		out := make(Props, len(v))
		for k, e := range v {
			out[k] = e
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = jsonic(e)
		}
		return out
	case []string:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = e
		}
		return out
	case []Props:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = jsonic(e)
		}
		return out
	case int:
		return float64(v)
	case int64:
		return float64(v)
	}
	return v
}

// at returns the value at a path of keys and indexes in v, or nil.
func at(v any, path ...any) any {
	for _, p := range path {
		switch k := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[k]
		case int:
			l, _ := v.([]any)
			if k >= len(l) {
				return nil
			}
			v = l[k]
		}
	}
	return v
}

// text returns the text at a path in v, or "".
func text(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

package provider

import (
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// Props are properties as JSON has them. Those on the wire may have secrets within, which plain ones have not.
type Props = map[string]any

// Unknown is what a preview does not know.
const Unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

// Keys of an object that is a secret, with the secret beside it as value.
const (
	signature       = resource.SigKey
	secretSignature = resource.SecretSig
)

// wire is what a request says, without what is null.
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

// plain is a copy of v with its secrets in the open.
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

// hasUnknown says whether something in v is not known.
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

// laid is what was asked for with what a cloud adds to it; in a preview that is not known. What the cloud says of a list of as many
// it says of each.
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
		return in // what was asked for is what a preview shows
	}
	return added
}

// as is v in the types of JSON.
func as(v Props) (*structpb.Struct, error) {
	return structpb.NewStruct(jsonic(v).(Props))
}

// jsonic turns the slices, maps and numbers of Go into those of JSON.
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

// at is what is at a path of keys and indexes in v, or nil.
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

// text is the text at a path in v, or "".
func text(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

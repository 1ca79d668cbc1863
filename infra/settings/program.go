package settings

import (
	"encoding/json"
	"fmt"
)

// Cluster returns the settings of a cluster that a Go program describes, instead of a stack's file,
// with the problems that a file with the same values would have. Values that are not set have the
// defaults of a file, except for true: false is false. The program has its jobs elsewhere. Of has
// the cluster, and in everything else but the configuration.
func Cluster(in Input, of *Settings) (*Settings, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("write the settings of %s: %w", in.Project, err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read the settings of %s: %w", in.Project, err)
	}
	in.Config = map[string]string{}
	for key, value := range tree {
		if value, set := pruned(value); set {
			if in.Config[in.Project+":"+key], err = asConfig(value); err != nil {
				return nil, err
			}
		}
	}
	if of.GKE != nil {
		in.Config[keyProject] = of.GKE.Project
	}
	if of.EKS != nil {
		in.Config[keyRegion], in.Config[keyProfile] = of.EKS.Region, of.EKS.Profile
	}
	return Parse(in)
}

// pruned returns a value without what is not set in it, and whether anything is.
func pruned(v any) (any, bool) {
	switch v := v.(type) {
	case nil:
		return nil, false
	case string:
		return v, v != ""
	case float64:
		return v, v != 0
	case map[string]any:
		kept := map[string]any{}
		for key, e := range v {
			e, set := pruned(e)
			// a section that is there has the defaults of that section
			if _, section := e.(map[string]any); set || section {
				kept[key] = e
			}
		}
		return kept, len(kept) > 0
	case []any:
		var kept []any
		for _, e := range v {
			e, _ := pruned(e)
			kept = append(kept, e)
		}
		return kept, len(kept) > 0
	}
	return v, true
}

// asConfig returns a value as the engine passes it: texts as they are, all else as JSON.
func asConfig(v any) (string, error) {
	if text, ok := v.(string); ok {
		return text, nil
	}
	text, err := json.Marshal(v)
	return string(text), err
}

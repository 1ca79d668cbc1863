package settings

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Cluster returns the settings of a cluster that a Go program describes, instead of a stack's file,
// or the problems that a file with the same values would have. Values that are not set have the
// defaults of a file, except for true: false is false. The program has its jobs elsewhere: see
// [Settings.Complete]. All but the configuration is in the input.
func Cluster(in Input, of *Settings) (*Settings, error) {
	config, err := configOf(in.Project, of, nil)
	if err != nil {
		return nil, err
	}
	in.Config = config
	return Parse(in)
}

// Complete returns a job that a Go program describes, beginning with [job.Default], with the values
// that follow from others, or the problems that it has on a cluster of these settings. Its workers
// are on the pool of that name; "" = by what they request.
func (s *Settings) Complete(j *job.Job, pool, arch string) (*job.Job, error) {
	config, err := configOf(s.Project, s, &jobOn{j, pool})
	if err != nil {
		return nil, err
	}
	is, err := Parse(Input{Project: s.Project, Stack: s.Stack, Base: s.Base, Root: s.Root, Now: s.Now, Arch: arch,
		Config: config})
	if err != nil {
		return nil, err
	}
	return is.Job, nil
}

// jobOn is a job with the pool of its workers.
type jobOn struct {
	*job.Job
	pool string
}

// configOf returns settings as a configuration, without what is not set.
func configOf(project string, of *Settings, with *jobOn) (map[string]string, error) {
	tree, err := treeOf(of)
	if err != nil {
		return nil, fmt.Errorf("write the settings of %s: %w", project, err)
	}
	delete(tree, "job")
	if with != nil {
		fields := differences(reflect.ValueOf(*with.Job), reflect.ValueOf(*job.DefaultOf(with.Type)))
		fields["type"] = string(with.Type)
		if with.pool != "" {
			worker, ok := fields["worker"].(map[string]any)
			if !ok {
				worker = map[string]any{}
			}
			worker["pool"], fields["worker"] = with.pool, worker
		}
		tree["job"] = fields
	}
	config := map[string]string{}
	for key, value := range tree {
		// a job has what differs from its default, zeros included
		if key != "job" {
			var set bool
			if value, set = pruned(value); !set {
				continue
			}
		}
		text, ok := value.(string)
		if !ok {
			is, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("write %s: %w", key, err)
			}
			text = string(is)
		}
		config[project+":"+key] = text
	}
	if of.GKE != nil {
		config[keyProject] = of.GKE.Project
	}
	if of.EKS != nil {
		config[keyRegion], config[keyProfile] = of.EKS.Region, of.EKS.Profile
	}
	return config, nil
}

// treeOf returns a value as JSON has it.
func treeOf(v any) (tree map[string]any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return tree, json.Unmarshal(text, &tree)
}

// differences returns the fields of a struct that differ from those of another, by their names in a
// file. Empty lists and maps are empty, not absent.
func differences(is, usual reflect.Value) map[string]any {
	all := map[string]any{}
	for f := range fields(is.Type()) {
		a, b := is.FieldByIndex(f.of.Index), usual.FieldByIndex(f.of.Index)
		if reflect.DeepEqual(a.Interface(), b.Interface()) {
			continue
		}
		_, text := a.Interface().(encoding.TextMarshaler)
		switch {
		case a.Kind() == reflect.Struct && !text:
			all[f.name] = differences(a, b)
		case a.Kind() == reflect.Map && a.Len() == 0:
			all[f.name] = map[string]any{}
		case a.Kind() == reflect.Slice && a.Len() == 0:
			all[f.name] = []any{}
		default:
			all[f.name] = a.Interface()
		}
	}
	return all
}

// pruned returns a value without what is not set in it, and whether anything is. Sections that are
// there stay, for their defaults.
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
			if _, section := e.(map[string]any); set || section {
				kept[key] = e
			}
		}
		return kept, len(kept) > 0
	case []any:
		kept := []any{}
		for _, e := range v {
			e, _ := pruned(e)
			kept = append(kept, e)
		}
		return kept, len(kept) > 0
	}
	return v, true
}

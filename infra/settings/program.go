package settings

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

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

// PoolUnknown stands for a pool of workers that is not known yet. It is the name of no pool.
const PoolUnknown = "*"

// Complete returns a job that a Go program describes, beginning with [job.Default], with the values
// that follow from others, and notes on it, or the problems that it has on a cluster of these
// settings. Its workers are on the pool of that name; "" = by what they request; [PoolUnknown] = it
// is not known yet, and not whether they fit its nodes.
func (s *Settings) Complete(j *job.Job, pool, arch string) (is *job.Job, notes []string, err error) {
	unknown := pool == PoolUnknown
	if unknown {
		pool = ""
	}
	config, err := configOf(s.Project, s, &jobOn{j, pool})
	if err != nil {
		return nil, nil, err
	}
	of, err := Parse(Input{Project: s.Project, Stack: s.Stack, Base: s.Base, Root: s.Root, Now: s.Now, Arch: arch,
		Config: config, poolUnknown: unknown})
	if err != nil {
		return nil, nil, err
	}
	for _, note := range of.Notes {
		if !slices.Contains(s.Notes, note) { // those of the cluster are shown
			notes = append(notes, note)
		}
	}
	return of.Job, notes, nil
}

// jobOn is a job with the pool of its workers.
type jobOn struct {
	*job.Job
	pool string
}

// configOf returns settings as a configuration, without what is not set.
func configOf(project string, of *Settings, with *jobOn) (map[string]string, error) {
	of = new(*of)
	of.Job = nil // what differs from a job's own defaults
	tree := written(reflect.ValueOf(*of), false).(map[string]any)
	if with != nil {
		// the settings are complete: without classes there are none
		classes := reflect.ValueOf(of.Platform.PriorityClasses)
		tree["platform"].(map[string]any)["priorityClasses"] = written(classes, true)
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

// written returns a value as a file has it, without what is not set; nil = it is not set. Of a
// struct those are zero fields, except for false where a file may have another default: its tag has
// no omitempty. Elements of maps and lists, and values behind pointers, are set, zeros included,
// and so is an empty map or list.
func written(v reflect.Value, zeros bool) any {
	_, text := v.Interface().(encoding.TextMarshaler)
	switch kind := v.Kind(); {
	case v.IsZero() && (kind == reflect.Pointer || !zeros && (kind != reflect.Struct || text)):
		return nil
	case text:
		return v.Interface()
	case kind == reflect.Pointer:
		return written(v.Elem(), true)
	case kind == reflect.Struct:
		section := map[string]any{}
		for f := range fields(v.Type()) {
			at := v.FieldByIndex(f.of.Index)
			always := at.Kind() == reflect.Bool && !strings.Contains(f.of.Tag.Get("json"), ",omitempty")
			if value := written(at, always); value != nil {
				section[f.name] = value
			}
		}
		return section
	case kind == reflect.Map:
		section := map[string]any{} // also of nil
		for key, value := range v.Seq2() {
			section[key.String()] = value.Interface() // a text or a number
		}
		return section
	case kind == reflect.Slice:
		all := []any{}
		for _, value := range v.Seq2() {
			all = append(all, written(value, true))
		}
		return all
	}
	return v.Interface()
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

package trainingjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// rails returns the option that warns in a preview that a running job would end: replaced by
// another, or suspended.
func (t *TrainingJob) rails(ctx *pulumi.Context, s *manifest.Submission) (pulumi.ResourceOption, error) {
	g := t.guard
	hook, err := g.Hook(t.hook("a job that runs is not ended without a word"), func(a *pulumi.ResourceHookArgs) error {
		running := ""
		if ctx.DryRun() {
			running = g.RunningOf(s.Job.Labels[manifest.LabelJob])
		}
		switch {
		case running == "":
		case a.OldInputs == nil:
			return ctx.Log.Warn(running+", and would be ended and started over, from its first "+
				"record: what it has trained is lost. That is for a change of "+
				differences(g, s)+". A change of job.numWorkers does not end it", nil)
		case !suspends(a.OldInputs) && suspends(a.NewInputs):
			return ctx.Log.Warn("job.suspend: true: "+running+
				", and its pods would be ended by that: it continues from its newest checkpoint when "+
				"suspend is false again, and without any from its first record", nil)
		}
		return nil
	})
	if hook == nil || err != nil {
		return pulumi.ResourceHooks(nil), err
	}
	all := []*pulumi.ResourceHook{hook}
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: all, BeforeUpdate: all}), nil
}

// suspends reports whether the inputs of a Job suspend it.
func suspends(job resource.PropertyMap) bool {
	spec := job["spec"]
	return spec.IsObject() && spec.ObjectValue()["suspend"].IsBool() && spec.ObjectValue()["suspend"].BoolValue()
}

// differences returns the names of the settings in which a job differs from the one that runs.
func differences(g *infra.Guard, s *manifest.Submission) string {
	is, err := g.Find(infra.KindConfigMap, s.Spec.Namespace, s.Spec.Name)
	if err != nil || is == nil || is.Object == nil {
		return "its settings"
	}
	data, _ := is.Object["data"].(map[string]any)
	text, _ := data[manifest.KeyJob].(string)
	var was, now map[string]any
	if json.Unmarshal([]byte(text), &was) != nil || json.Unmarshal([]byte(s.Spec.Data[manifest.KeyJob]), &now) != nil {
		return "its settings"
	}
	return changes(was, now)
}

// changes returns the names and values of the settings in which two jobs differ.
func changes(was, now map[string]any) string {
	keys := map[string]any{}
	maps.Copy(keys, was)
	maps.Copy(keys, now)
	var all []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		built := key == "image" && now[key] == imageHole // unknown before the stack has built it
		if !reflect.DeepEqual(was[key], now[key]) && !built && key != "numWorkers" {
			all = append(all, fmt.Sprintf("job.%s (%s, was %s)", key, brief(now[key]), brief(was[key])))
		}
	}
	if len(all) == 0 {
		return "its image"
	}
	return strings.Join(all, ", ")
}

// brief returns a value as one short line.
func brief(v any) string {
	text, err := json.Marshal(v)
	if err != nil || len(text) > 60 {
		return "…"
	}
	return string(text)
}

package job

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A job is written in the order of written, which has every field once, and unescaped URLs unless
// the caller's encoder escapes them.
func TestOrderOfJSON(t *testing.T) {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Job]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
			names = append(names, name)
		}
	}
	if all := slices.Sorted(slices.Values(written)); !slices.Equal(all, slices.Sorted(slices.Values(names))) {
		t.Errorf("written has %q, and a job %q", all, names)
	}
	j := DefaultOf(Run)
	j.PredictionData, j.DataEncryption, j.CheckpointDir = "s3://b/<a&b>", "off", "x"
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(j); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), `"s3://b/<a&b>"`) {
		t.Errorf("%s", &text)
	}
	var order []string
	decoder := json.NewDecoder(&text)
	decoder.Token()
	for decoder.More() {
		name, err := decoder.Token()
		var value any
		if err != nil || decoder.Decode(&value) != nil {
			t.Fatal(err)
		}
		order = append(order, name.(string))
	}
	if len(order) < 30 || !slices.IsSortedFunc(order, func(a, b string) int {
		return slices.Index(written, a) - slices.Index(written, b)
	}) {
		t.Errorf("written as %q", order)
	}
	if escaped, err := json.Marshal(j); err != nil || strings.Contains(string(escaped), "<") {
		t.Errorf("%s, %v", escaped, err)
	}
}

// The struct that has the field of a flag says of which types of jobs it is.
func TestTypesOfFlags(t *testing.T) {
	for name, want := range map[string][]Type{
		"model_def": forModels, "minibatch_size": forModels, "model_file": forModels, "record_per_task": forModels,
		"validation_data": {Train, Evaluate}, "loss": {Train, Evaluate},
		"num_epochs": {Train}, "ps_resource_request": {Train}, "checkpoint_dir": {Train}, "data_encryption": {Train},
		"prediction_outputs": {Predict}, "prediction_outputs_processor": {Predict},
		"heartbeat_timeout": {Train, Run}, "checkpoint_dir_take_over": {Train, Run}, "job_command": {Train, Run},
		"max_restarts": {Run}, "standalone": {Run},
		"num_workers": allTypes, "job_name": allTypes, "worker_resource_request": allTypes, "grace_period": allTypes,
	} {
		if got := Find(name).types(); !slices.Equal(got, want) {
			t.Errorf("--%s is of %v, want %v", name, got, want)
		}
	}
}

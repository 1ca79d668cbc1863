package trainingjob

import "testing"

// All settings in which a job differs are named, those that only one of the two has as well. The
// number of workers ends no job.
func TestChanges(t *testing.T) {
	type fields = map[string]any
	for name, test := range map[string]struct {
		was, now fields
		want     string
	}{
		"another value": {fields{"numPs": 1, "image": "a"}, fields{"numPs": 2, "image": "a"}, "job.numPs (2, was 1)"},
		"a new setting": {fields{}, fields{"output": "/data"}, `job.output ("/data", was null)`},
		"null":          {nil, fields{"output": "/data"}, `job.output ("/data", was null)`},
		"one fewer":     {fields{"output": "/data"}, fields{}, `job.output (null, was "/data")`},
		"several":       {fields{"b": 1}, fields{"a": true}, "job.a (true, was null), job.b (null, was 1)"},
		"workers":       {fields{"numWorkers": 1}, fields{"numWorkers": 2}, "its image"},
		"another image": {fields{"image": "a"}, fields{"image": "b"}, `job.image ("b", was "a")`},
		"to be built":   {fields{"image": "a"}, fields{"image": imageHole}, "its image"},
	} {
		if got := changes(test.was, test.now); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

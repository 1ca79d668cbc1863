package job

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Every flag sets the field that it says, and no other.
func TestFieldsOfFlags(t *testing.T) {
	samples := map[string]string{
		"": "true", "TEXT": "x", "PATH": "x", "N": "7", "DURATION": "7s", "NAME": "x",
		"RESOURCES": "cpu=7", "QUANTITY": "7", "CLASS": "x",
		"TOLERATIONS": "key=x", "VOLUMES": "claim_name=x,mount_path=/x", "JSON": `{"x":1}`,
		"K=V,...": "x=y", "K=V; ...": "x=y",
		"NAME=SECRET/KEY;...": "X=y/z", "NAME;...": "x", "NAME,...": "x",
		"N|auto|cpu|gpu": "auto", "N|MIN:MAX": "1:2", "0": "0",
	}
	for _, f := range Flags() {
		sample, ok := samples[f.Kind()]
		if !ok {
			t.Fatalf("--%s: no sample of kind %s", f.Name, f.Kind())
		}
		if f.Kind() == "" && f.Default(Train) == "true" {
			sample = "false"
		}
		c := NewCommand(Train)
		v := f.bind(c)
		if v.only {
			// there is one name that it takes
			if f.Field() == "" && f.Name != "prediction_outputs_processor" {
				t.Errorf("--%s sets nothing", f.Name)
			}
			continue
		}
		if err := v.set(sample); err != nil {
			t.Errorf("--%s=%s: %v", f.Name, sample, err)
		}
		changed := difference("", jsonOf(t, NewCommand(Train).Job), jsonOf(t, c.Job))
		want := f.Field()
		switch f.Name { // several
		case "worker_image":
			want = "ps.image worker.image"
		case "nnodes":
			want = "maxWorkers minWorkers"
		}
		if got := strings.Join(changed, " "); got != want && !strings.HasPrefix(got, want+".") ||
			want == "" && got != "" {
			t.Errorf("--%s is reported to set %q, and sets %q", f.Name, f.Field(), got)
		}
	}
}

func jsonOf(t *testing.T, j *Job) map[string]any {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// difference is the paths whose values differ.
func difference(path string, a, b map[string]any) (paths []string) {
	for _, key := range []string{"ps", "worker", "master", "program"} { // sections
		x, _ := a[key].(map[string]any)
		y, _ := b[key].(map[string]any)
		if x != nil || y != nil {
			paths = append(paths, difference(path+key+".", x, y)...)
		}
	}
	all := map[string]bool{}
	for key := range a {
		all[key] = true
	}
	for key := range b {
		all[key] = true
	}
	for key := range all {
		x, _ := json.Marshal(a[key])
		y, _ := json.Marshal(b[key])
		if string(x) != string(y) && key != "ps" && key != "worker" && key != "master" && key != "program" {
			paths = append(paths, path+key)
		}
	}
	slices.Sort(paths)
	return paths
}

// What Parse refuses as not there yet is refused of fields, too.
func TestAvailable(t *testing.T) {
	if err := Default().Available(); err != nil {
		t.Errorf("what nobody asked for: %v", err)
	}
	j := Default()
	j.Feed, j.Loss = "my_feed", "my_loss"
	err := j.Available()
	if err == nil {
		t.Fatal("available")
	}
	for _, want := range []string{"--feed=my_feed: not available", "--loss=my_loss: not available"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 2 {
		t.Errorf("%d problems: %v", n, err)
	}
}

func TestElastic(t *testing.T) {
	for _, test := range []struct {
		strategy  Strategy
		min, want int
		elastic   bool
	}{
		{ParameterServer, 0, 1, true}, {ParameterServer, 4, 4, true}, {AllReduce, 0, 4, true}, {AllReduce, 3, 4, true},
		{AllReduce, 4, 4, false}, {AllReduce, 0, 1, false},
	} {
		j := Default()
		j.Strategy, j.MinWorkers, j.NumWorkers = test.strategy, test.min, test.want
		if j.Elastic() != test.elastic {
			t.Errorf("%+v: not so", test)
		}
	}
}

package settings

import (
	"maps"
	"slices"
	"testing"
)

// A file of a stack has texts, and other values as JSON; what is encrypted is only named.
func TestFromFile(t *testing.T) {
	config, secret, err := FromFile([]byte("config:\n  elasticdl:cloud: gke\n  elasticdl:protectStorage: false\n" +
		"  elasticdl:job: {numWorkers: 3}\n  elasticdl:key: {secure: v1:abc}\n"))
	want := map[string]string{"elasticdl:cloud": "gke", "elasticdl:protectStorage": "false",
		"elasticdl:job": `{"numWorkers":3}`}
	if err != nil || !maps.Equal(config, want) || !slices.Equal(secret, []string{"elasticdl:key"}) {
		t.Errorf("%v, secret %q, %v", config, secret, err)
	}
	if _, _, err := FromFile([]byte("config: [")); err == nil {
		t.Error("a file that is no YAML is read")
	}
}

// Pods tolerate each taint of a pool exactly: another key, value or effect is another taint.
func TestTolerations(t *testing.T) {
	got := Tolerations([]Taint{{Key: "team", Value: "ml", Effect: "NoExecute"}})
	if len(got) != 1 || got[0].Key != "team" || got[0].Operator != "Equal" || got[0].Value != "ml" ||
		got[0].Effect != "NoExecute" {
		t.Errorf("%+v", got)
	}
}

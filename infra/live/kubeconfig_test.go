package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A context is found by its name, or is the current one, in all files that kubectl reads; an error
// lists those that there are.
func TestContextOf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.pem", "an authority")
	first := write("first", `{apiVersion: v1, kind: Config, current-context: prod,
clusters: [{name: a, cluster: {server: "https://a.example", certificate-authority: ca.pem}},
  {name: nowhere, cluster: {}}],
contexts: [{name: prod, context: {cluster: a}}, {name: lost, context: {cluster: deleted}},
  {name: empty, context: {cluster: nowhere}}]}`)
	second := write("second", `{apiVersion: v1, kind: Config,
clusters: [{name: b, cluster: {server: "https://b.example"}}],
contexts: [{name: lab, context: {cluster: b}}, {name: lab2, context: {cluster: a}}]}`)
	t.Setenv("KUBECONFIG", first+string(os.PathListSeparator)+second)
	hashes := map[string]string{}
	for _, test := range []struct{ of, name, server string }{
		{"", "prod", "https://a.example"}, {"prod", "prod", "https://a.example"}, {"lab", "lab", "https://b.example"},
		{"lab2", "lab2", "https://a.example"},
	} {
		is, err := ContextOf(test.of)
		if err != nil || is.Name != test.name || is.Server != test.server {
			t.Fatalf("%q: %+v, %v", test.of, is, err)
		}
		hashes[is.Name] = is.Hash
	}
	if hashes["prod"] == hashes["lab"] || hashes["prod"] != hashes["lab2"] {
		t.Errorf("two contexts of one cluster have one hash: %v", hashes)
	}
	for of, want := range map[string]string{
		"nothing": "no such context, and there are empty, lab, lab2, lost, prod",
		"lost":    `does not say where the cluster "deleted"`,
		"empty":   `does not say where the cluster "nowhere"`,
	} {
		if is, err := ContextOf(of); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %s", of, is, err, want)
		}
	}
	write("ca.pem", "another authority")
	if is, err := ContextOf("prod"); err != nil || is.Hash == hashes["prod"] {
		t.Errorf("with another authority it has the same hash: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if is, err := ContextOf("prod"); err == nil || !strings.Contains(err.Error(), "ca.pem") {
		t.Errorf("without its authority: %+v, %v", is, err)
	}
	t.Setenv("KUBECONFIG", second)
	if is, err := ContextOf(""); err == nil ||
		!strings.Contains(err.Error(), "no current context, and there are lab, lab2") {
		t.Errorf("%+v, %v", is, err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(dir, "absent"))
	if is, err := ContextOf(""); err == nil || !strings.Contains(err.Error(), "has no context") {
		t.Errorf("%+v, %v", is, err)
	}
	t.Setenv("KUBECONFIG", write("broken", "{"))
	if is, err := ContextOf(""); err == nil {
		t.Errorf("%+v of a broken file", is)
	}
}

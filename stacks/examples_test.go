//go:build !e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every example can be brought up, violates no rule, and has nothing to do afterwards, also after a
// refresh.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("examples/*/Pulumi.*.yaml")
	if err != nil || len(paths) != 6 {
		t.Fatalf("%d examples, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, after, _ := strings.Cut(string(text), "elasticdl:cloud: ")
			cloud, _, _ := strings.Cut(after, "\n")
			e := start(t, cloud)
			if err := os.WriteFile(e.file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			for path, value := range user(cloud) {
				if path != "elasticdl:image.source" || strings.Contains(string(text), "elasticdl:image:") {
					e.set(path, value)
				}
			}
			if strings.Contains(string(text), "  data: data ") || strings.Contains(string(text), "  data: data\n") {
				// a directory of its user, which is not in the repository
				e.set("elasticdl:minikube.data", t.TempDir())
			}
			e.up()
			for _, when := range []string{"after the first up", "after a refresh"} {
				if when == "after a refresh" {
					e.refresh()
				}
				if did, err := e.tryPreview(); err != nil || len(did) > 0 {
					t.Errorf("a preview %s: %v\n%s", when, err, did)
				}
			}
		})
	}
}

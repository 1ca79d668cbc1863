//go:build !e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every example is a stack that the engine takes, and that no guard rail refuses.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("examples/*/Pulumi.*.yaml")
	if err != nil || len(paths) != 5 {
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
			did, err := e.tryPreview()
			if err != nil {
				t.Fatalf("%v\n%s", err, did)
			}
		})
	}
}

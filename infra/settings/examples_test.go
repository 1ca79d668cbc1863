package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Examples are stacks to copy. They lack only the values that their users know.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*/Pulumi.*.yaml")
	if err != nil || len(paths) != 6 {
		t.Fatalf("%d examples, %v", len(paths), err)
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name, func(t *testing.T) {
			if filepath.Base(path) != "Pulumi."+name+".yaml" {
				t.Errorf("%s is not of stack %s", path, name)
			}
			s, err := parsed(t, completed(file(t, path)))
			if err != nil {
				t.Fatal(err)
			}
			if s.Job == nil || !s.Job.Elastic() && s.Job.NumWorkers > 1 {
				t.Errorf("no elastic job: %+v", s.Job)
			}
			for _, note := range s.Notes {
				// the directory need not exist
				if !strings.HasPrefix(note, "elasticdl:minikube.data: no directory ") {
					t.Errorf("says %s", note)
				}
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "README.md")); err != nil {
				t.Error(err)
			}
		})
	}
}

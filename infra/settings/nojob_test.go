package settings

import (
	"path/filepath"
	"testing"
)

// A job is removed from a stack by `pulumi config rm job`, as `elasticdl stop` says; the rest of
// the stack is kept, including its image.
func TestWithoutJob(t *testing.T) {
	examples, err := filepath.Glob("../../examples/*/Pulumi.*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stacks, err := filepath.Glob("../../stacks/Pulumi.*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(stacks, examples...) {
		config := completed(file(t, path))
		delete(config, "elasticdl:job")
		s, err := Parse(input(t, "..", config))
		if err != nil {
			t.Errorf("%s without its job: %v", path, err)
		} else if s.Job != nil {
			t.Errorf("%s still has a job", path)
		}
	}
}

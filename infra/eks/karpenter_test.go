package eks

import (
	"os"
	"strings"
	"testing"
)

// The stack installs the version of Karpenter that the tests run, and whose resource definitions
// they take.
func TestVersionOfKarpenter(t *testing.T) {
	for file, line := range map[string]string{
		"../../tools/kubernetes/karpenter/go.mod": "\tsigs.k8s.io/karpenter v" + karpenterVersion + "\n",
		"../../Makefile": "KARPENTER_AWS := github.com/aws/karpenter-provider-aws@v" + karpenterVersion + "\n",
	} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s has no line %q: %v", file, strings.TrimSpace(line), err)
		}
	}
}

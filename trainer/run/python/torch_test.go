//go:build torch

package python

import (
	"os"
	"os/exec"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
)

// TestTorchPackage runs the package's own tests, by pytest of PyTorch 2.x's Python, with both
// versions.
func TestTorchPackage(t *testing.T) {
	pythons := torch.Pythons(t)
	runner := pythons[len(pythons)-1].Path
	for _, p := range pythons {
		t.Run(p.Name, func(t *testing.T) {
			tests := exec.Command(runner, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
			tests.Env = append(os.Environ(), "ELASTICDL_TEST_PYTHON="+p.Path)
			if out, err := tests.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestTorchBuckets runs the package's tests of checkpoints in buckets, with servers of S3 and
// Google Cloud Storage on this machine.
func TestTorchBuckets(t *testing.T) {
	storage := torch.Storage(t)
	tests := exec.Command(storage, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/buckets.py")
	tests.Env = append(os.Environ(), "ELASTICDL_TEST_PYTHON="+storage, "PYTHONPATH=.")
	if out, err := tests.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

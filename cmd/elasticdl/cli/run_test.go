package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Local workers use the GPUs of this machine: without GPUs, a job with one process per GPU is
// refused before it starts.
func TestGPUsHere(t *testing.T) {
	j := job.DefaultOf(job.Run)
	j.Program.Command, j.Program.NoPython, j.Program.Processes = []string{"true"}, true, "gpu"
	t.Setenv("CUDA_VISIBLE_DEVICES", "-1")
	if err := programHere(j); err == nil ||
		!strings.HasPrefix(err.Error(), "--nproc_per_node=gpu: this machine has no GPU; give ") {
		t.Errorf("without a GPU: %v", err)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	if err := programHere(j); err != nil {
		t.Errorf("with a GPU: %v", err)
	}
}

// A file of another format is refused before the job starts.
func TestForeignDataHere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte("# a text that is longer than a header\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readable(path, nil); err == nil || !strings.Contains(err.Error(), "it is no RecordIO file") {
		t.Error(err)
	}
}

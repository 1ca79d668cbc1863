package incluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Checkpoints of an earlier job of the same name are moved aside, the newest of them are kept, and
// the new job does not fail. A directory that the user names is not changed.
func TestEarlierCheckpointsAreSetAside(t *testing.T) {
	j := job.Default()
	j.Name, j.Volumes = "j", []job.Volume{{ClaimName: "c", MountPath: t.TempDir()}}
	j.CheckpointDir = j.ClaimDir()
	log := slog.New(slog.DiscardHandler)
	if err := setAside(j, log); err != nil { // there are no checkpoints
		t.Fatal(err)
	}
	write := func(dir, text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"first", "second"} {
		write(j.CheckpointDir, text)
		if err := setAside(j, log); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(j.CheckpointDir); !os.IsNotExist(err) {
			t.Errorf("%s is there still: %v", j.CheckpointDir, err)
		}
		if got, err := os.ReadFile(filepath.Join(j.CheckpointDir+".before", "f")); err != nil || string(got) != text {
			t.Errorf("before: %q, %v, want %q", got, err, text)
		}
	}
	j.CheckpointDir = filepath.Join(j.Volumes[0].MountPath, "mine")
	write(j.CheckpointDir, "mine")
	if err := setAside(j, log); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(j.CheckpointDir, "f")); err != nil {
		t.Errorf("a directory that the user names: %v", err)
	}
}

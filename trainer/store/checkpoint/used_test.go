package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A directory with checkpoints is refused with the job that they are of; files of others, named
// like commits or not, are no checkpoints.
func TestUnused(t *testing.T) {
	dir := t.TempDir()
	d := Dir{Files: Local(dir)}
	for _, name := range []string{"commit-00009999", "commit-9999", "commit-00000001-1-01234567", ".DS_Store"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Commits()
	if unused := d.Unused(); err != nil || len(all) > 0 || unused != nil {
		t.Fatalf("of files of others: %v, %v, %v", all, err, unused)
	}
	if _, err := d.Claim(Owner{Name: "sweep", Job: "u1", Host: "h", PID: 7}, Permit{}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"commit-00000012", "commit-00000013"} { // the latter is empty
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "commit-00000012", "shard"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = d.Unused()
	if want := "it has checkpoints already, of job sweep on h (UID u1, process 7), the newest is " +
		"number 12; "; !errors.Is(err, ErrUsed) ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

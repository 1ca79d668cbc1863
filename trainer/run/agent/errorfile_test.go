package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// The file has the failure until the processes restart. A file that another program has
// written is not removed.
func TestErrorFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "errors", "w.json")
	f := errorFile{path: path}
	read := func() string {
		text, _ := os.ReadFile(path) // missing: ""
		return string(text)
	}
	failed := program.Exit{Code: 7, Words: "first", At: time.Unix(1700000000, 0)}
	for range 2 {
		if err := f.write(failed); err != nil || !strings.Contains(read(), `"errorCode":7`) ||
			!strings.Contains(read(), `"message":"first (exit code 7)"`) {
			t.Errorf("after a failure: %q, %v", read(), err)
		}
		if err := f.remove(); err != nil || read() != "" {
			t.Errorf("after a restart: %q, %v", read(), err)
		}
	}
	if err := os.WriteFile(path, []byte("of others"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.remove(); err != nil || read() != "of others" {
		t.Errorf("after a restart without a failure: %q, %v", read(), err)
	}
	unwanted := errorFile{}
	if err := unwanted.write(failed); err != nil {
		t.Errorf("without a path: %v", err)
	}
}

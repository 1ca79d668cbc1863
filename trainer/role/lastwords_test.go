package role

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where a kubelet reads it, a role says why it fails; elsewhere nothing is written.
func TestLastWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	lastWords(path, errors.New("no data"))
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file was made where there was none")
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""}, {errors.New("no data"), "no data"}, {errors.New(strings.Repeat("x", 5000)), strings.Repeat("x", 4096)},
	} {
		lastWords(path, tt.err)
		if text, err := os.ReadFile(path); err != nil || string(text) != tt.want {
			t.Errorf("%q, %v", text, err)
		}
	}
}

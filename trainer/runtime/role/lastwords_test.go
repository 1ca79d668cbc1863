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
		{nil, ""}, {errors.New("no data"), "no data"},
		{errors.New(strings.Repeat("x", 5000)), strings.Repeat("x", 4096)},
	} {
		lastWords(path, tt.err)
		if text, err := os.ReadFile(path); err != nil || string(text) != tt.want {
			t.Errorf("%q, %v", text, err)
		}
	}
}

func TestBrief(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		" panic:\n\tout of\n luck\n":    "panic: out of luck",
		strings.Repeat("é", 240):        strings.Repeat("é", 240),
		strings.Repeat("long ", 20<<10): strings.Repeat("long ", 48) + "…",
	} {
		if got := Brief(text); got != want {
			t.Errorf("%.30q…: %q", text, got)
		}
	}
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The binary of the tests is elasticdl itself, also for the roles that it starts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"elasticdl": main})
}

// TestStories plays testdata/*.txtar, each with a state directory of its own.
func TestStories(t *testing.T) {
	digits, err := filepath.Abs("../../examples/mnist/data")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("ELASTICDL_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("DIGITS", digits)
			return nil
		},
	})
}

// Every word of the help texts, of all commands that are shown, and no error from any.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"train", "--help"}, {"help", "train"}, {"status", "-h"}, {"logs", "--help"}} {
		out, err := os.CreateTemp(t.TempDir(), "out")
		if err != nil {
			t.Fatal(err)
		}
		if code := run(context.Background(), args, nil, out, out); code != 0 {
			t.Errorf("elasticdl %q: exit code %d", args, code)
		}
		if text, err := os.ReadFile(out.Name()); err != nil || len(text) < 100 {
			t.Errorf("elasticdl %q: %q, %v", args, text, err)
		}
	}
}

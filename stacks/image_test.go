//go:build !e2e

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
)

const buildsImage = "command:local:Command image"

// A job is replaced if, and only if, its image changes; and not if the stack's file pins the
// current one.
func TestImage(t *testing.T) {
	t.Parallel()
	e := start(t, "gke")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("stacks/testdata/model")); err != nil {
		t.Fatal(err)
	}
	edit := func(file, more string) {
		t.Helper()
		path := filepath.Join(dir, file)
		text, _ := os.ReadFile(path) // an error means a new file
		if err := os.WriteFile(path, append(text, more...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e.set("elasticdl:image.source", dir)
	e.up()
	first := e.job().Image

	// Neither a module that is not linked nor another way to build causes a build.
	edit("go.mod", "\nrequire example.com/other v1.0.0\n")
	edit("main_test.go", "package main\n")
	elasticdl, err := e.cloud.Find("elasticdl")
	if err != nil {
		t.Fatal(err)
	}
	e.set("elasticdl:image.command", elasticdl)
	e.unchanged("what has changed is not in the image")

	// A build with the same result is the same image, which no preview can know.
	edit("main.go", "\n// A comment.\n")
	did, err := of(func(events chan<- events.EngineEvent) error {
		_, err := e.stack.Up(e.Context(), optup.EventStreams(events), optup.SuppressProgress())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	e.expect("a comment", did, "replace "+buildsImage)
	if now := e.job().Image; now != first {
		t.Errorf("the job's image is %s, and its digest was that of %s", now, first)
	}

	// A pinned job keeps its image. Other changes are applied.
	edit("main.go", "\nvar X int\n")
	e.set("elasticdl:image.pin", true)
	e.unchanged("the image is pinned")
	if now := e.job().Image; now != first {
		t.Errorf("the pinned image is %s, and was %s", now, first)
	}
	e.set("elasticdl:image.pin", nil)
	if did := e.up(); !slices.Contains(did, "replace "+buildsImage) || !slices.Contains(did, "replace "+jobMaster) {
		t.Errorf("another image did\n%s", did)
	}
	if now := e.job().Image; now == first {
		t.Errorf("the job's image is %s still", now)
	}
}

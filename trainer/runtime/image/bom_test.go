package image

import (
	"encoding/json"
	"runtime/debug"
	"slices"
	"testing"
)

// A bill of materials names every module that is linked, as scanners of vulnerabilities look them
// up, and none that is not.
func TestBOM(t *testing.T) {
	b := Binary{build: &debug.BuildInfo{GoVersion: "go1.26.0", Path: "example.com/mine/cmd",
		Main: debug.Module{Path: "example.com/mine", Version: "(devel)"}, Deps: []*debug.Module{
			{Path: "github.com/a/B", Version: "v1.2.3"},
			{Path: "github.com/docker/cli", Version: "v29.0.0+incompatible"},
			{Path: "github.com/replaced/x", Version: "v1.0.0",
				Replace: &debug.Module{Path: "github.com/fork/x", Version: "v1.0.1"}},
			{Path: modulePath, Version: "v0.1.0", Replace: &debug.Module{Path: "../elasticdl"}},
		}}}
	text, err := b.BOM()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		BOMFormat, SpecVersion string
		Metadata               struct{ Component component }
		Components             []component
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := []component{
		{"library", "stdlib", "1.26.0", "pkg:golang/stdlib@1.26.0"},
		{"library", "github.com/a/B", "v1.2.3", "pkg:golang/github.com/a/B@v1.2.3"},
		{"library", "github.com/docker/cli", "v29.0.0+incompatible",
			"pkg:golang/github.com/docker/cli@v29.0.0%2Bincompatible"},
		{"library", "github.com/fork/x", "v1.0.1", "pkg:golang/github.com/fork/x@v1.0.1"},
		{"library", modulePath, "", ""},
	}
	if got.BOMFormat != "CycloneDX" || got.SpecVersion != "1.6" ||
		got.Metadata.Component != (component{Type: "application", Name: "example.com/mine"}) ||
		!slices.Equal(got.Components, want) {
		t.Errorf("%s", text)
	}
}

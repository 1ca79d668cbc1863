package command

import (
	"runtime/debug"
	"testing"
)

// A binary that was built in its repository belongs to no release, whatever version Go reports for
// it.
func TestRelease(t *testing.T) {
	ours := func(version string) debug.Module { return debug.Module{Path: ModulePath, Version: version} }
	vcs := []debug.BuildSetting{{Key: "vcs", Value: "git"}}
	for _, test := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"make build without git", debug.BuildInfo{Main: ours("(devel)")}, "dev"},
		{"make build", debug.BuildInfo{Main: ours("v0.0.0-20261122093015-0123456789ab"), Settings: vcs}, "dev"},
		{"make build with changes",
			debug.BuildInfo{Main: ours("v1.2.4-0.20261122093015-0123456789ab+dirty"), Settings: vcs}, "dev"},
		{"make build of a release with changes", debug.BuildInfo{Main: ours("v1.2.3+dirty"), Settings: vcs}, "dev"},
		{"make build of a release", debug.BuildInfo{Main: ours("v1.2.3"), Settings: vcs}, "v1.2.3"},
		{"go install", debug.BuildInfo{Main: ours("v1.2.3")}, "v1.2.3"},
		{"go install of a commit", debug.BuildInfo{Main: ours("v0.0.0-20261122093015-0123456789ab")},
			"v0.0.0-20261122093015-0123456789ab"},
		{"a module with a release", debug.BuildInfo{Main: debug.Module{Path: "m", Version: "(devel)"},
			Deps: []*debug.Module{new(ours("v1.2.3"))}}, "v1.2.3"},
		{"a module with a checkout", debug.BuildInfo{Main: debug.Module{Path: "m"},
			Deps: []*debug.Module{{Path: ModulePath, Version: "v1.2.3", Replace: &debug.Module{Path: ".."}}}}, "dev"},
		{"a test", debug.BuildInfo{}, "dev"},
	} {
		if got := releaseOf(&test.info); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

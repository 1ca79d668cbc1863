// Package cli is the command elasticdl, for its binary and for those that users build with models
// of their own:
//
//	func main() { cli.Main(mnist.Model) }
//
// Such a binary is the user's command and every role of a job, as elasticdl itself is; the pods of
// a cluster run its images. `elasticdl zoo init` writes a module with such a main, `elasticdl zoo
// build` makes an image of it.
package cli

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	_ "time/tzdata" // images have no files of time zones

	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// modulePath is the path of this module.
const modulePath = "github.com/elasticdl/elasticdl"

// version is set by the linker. Otherwise Main sets it to the version of this module in the binary.
var version string

// Main runs the command with the arguments of the process and ends the process. The models can be
// selected by --model_def, and precede built-in ones of the same name.
func Main(models ...*zoo.Model) {
	if version == "" {
		version = builtFrom()
	}
	if err := zoo.Add(models...); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(exitUsage)
	}
	os.Exit(run(untilSignal(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// builtFrom returns the released version of this module in the running binary, "dev" if there is
// none: if it was built in a checkout.
func builtFrom() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return releaseOf(info)
}

// ofCommit matches Go's pseudo-versions of commits, such as v0.0.0-20261122093015-0123456789ab,
// also with +dirty.
var ofCommit = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}(\+dirty)?$|\+dirty$`)

// releaseOf returns the release that a binary's build information names; see [builtFrom]. A commit
// that was downloaded as a module counts as a release. One that was built in its repository does
// not, as it may not be published.
func releaseOf(info *debug.BuildInfo) string {
	here := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs" })
	if m := info.Main; m.Path == modulePath {
		if m.Version == "" || m.Version == "(devel)" || here && ofCommit.MatchString(m.Version) {
			return "dev"
		}
		return m.Version
	}
	for _, m := range info.Deps {
		if m.Path == modulePath && m.Replace == nil && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "dev"
}

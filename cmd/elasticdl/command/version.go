package command

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// ModulePath is the path of this module.
const ModulePath = "github.com/elasticdl/elasticdl"

// version is set by the linker.
var version string

// Version returns the version of this program: that of the linker, otherwise that of this module in
// the binary, "dev" if it was built in a checkout.
func Version() string { return cmp.Or(version, Release()) }

// Release returns the released version of this module in the running binary, "dev" if there is
// none.
func Release() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return releaseOf(info)
}

// ofCommit matches Go's pseudo-versions of commits, such as v0.0.0-20261122093015-0123456789ab,
// also with +dirty.
var ofCommit = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}(\+dirty)?$|\+dirty$`)

// releaseOf returns the release that a binary's build information names; see [Release]. A commit
// that was downloaded as a module counts as a release. One that was built in its repository does
// not, as it may not be published.
func releaseOf(info *debug.BuildInfo) string {
	here := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs" })
	if m := info.Main; m.Path == ModulePath {
		if m.Version == "" || m.Version == "(devel)" || here && ofCommit.MatchString(m.Version) {
			return "dev"
		}
		return m.Version
	}
	for _, m := range info.Deps {
		if m.Path == ModulePath && m.Replace == nil && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "dev"
}

// VersionText returns the version, Go's, the platform and the kernels as a line.
func VersionText() string {
	return fmt.Sprintf("elasticdl %s %s %s/%s kernels=%s\n", Version(), runtime.Version(),
		runtime.GOOS, runtime.GOARCH, kernel.Name())
}

// VersionCommand returns the command that prints [VersionText].
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the instruction set of the engine",
		Args:  Words(0, 0),
		RunE:  Does(func(cmd *cobra.Command, _ []string) error { return PrintVersion(cmd) }),
	}
}

// PrintVersion prints [VersionText] to a command's output.
func PrintVersion(cmd *cobra.Command) error {
	_, err := io.WriteString(cmd.OutOrStdout(), VersionText())
	return err
}

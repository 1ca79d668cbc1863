// Package cli is the command elasticdl, for its binary and for those that users build with models of their own:
//
//	func main() { cli.Main(mnist.Model) }
//
// Such a binary is the user's command and every role of a job, as elasticdl itself is; its images are what the pods
// of a cluster run. `elasticdl zoo init` writes a module with such a main, `elasticdl zoo build` makes an image of it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // images have no files of time zones

	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// modulePath is this module's.
const modulePath = "github.com/elasticdl/elasticdl"

// version is set by the linker; without it, it is the module's version that the binary was built with.
var version string

// Main runs the command with the arguments of the process and ends the process. Models are found by their
// --model_def as the built-in ones are, before those.
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

// untilSignal returns a context that ends with the first Ctrl-C or SIGTERM, whose name is its cause. One that comes more than a second later ends
// the process as it is; one that comes sooner is the same request: timeout(1) sends SIGTERM to its child, and then to its process group.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-told
		time.AfterFunc(time.Second, func() { signal.Stop(told) })
		cancel(signalled(s))
	}()
	return ctx
}

// signalled returns how a signal is told of as the cause of an end.
func signalled(s os.Signal) error {
	if s == os.Interrupt {
		return errors.New("by Ctrl-C (SIGINT)")
	}
	return errors.New("by SIGTERM")
}

// builtFrom returns the released version of this module in the running binary, "dev" if there is none: if it was built in a checkout.
func builtFrom() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return releaseOf(info)
}

// ofCommit matches the versions that Go makes up for a commit: v0.0.0-20261122093015-0123456789ab, and +dirty after it.
var ofCommit = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}(\+dirty)?$|\+dirty$`)

// releaseOf is [builtFrom] of a binary's build. A commit that was fetched as a module is as good as a release; of one that was built in
// its repository nobody else may know.
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

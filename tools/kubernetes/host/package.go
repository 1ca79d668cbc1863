package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Need is a file that this machine needs, and the Debian package that contains it.
type Need struct {
	// a path without a slash is looked up in $PATH
	Path, Package string
}

// Missing returns the packages of the needs that are not met.
func Missing(needs []Need) []string {
	var packages []string
	for _, need := range needs {
		_, err := os.Stat(need.Path)
		if !strings.Contains(need.Path, "/") {
			_, err = exec.LookPath(need.Path)
		}
		if err != nil {
			packages = append(packages, need.Package)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// Install installs Debian packages. It waits while another process holds the package manager's
// lock.
func Install(ctx context.Context, packages []string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %s: there is no apt-get here: install by hand what has these "+
			"names in Debian", strings.Join(packages, " "))
	}
	if lists, _ := os.ReadDir("/var/lib/apt/lists"); len(lists) < 3 { // only lock and partial
		if err := apt(ctx, "update"); err != nil {
			return err
		}
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	if err := apt(ctx, install...); err != nil {
		if err := apt(ctx, "update"); err != nil { // the lists may be too old
			return err
		}
		return apt(ctx, install...)
	}
	return nil
}

// apt runs apt-get, and retries until it gets the lock.
func apt(ctx context.Context, args ...string) error {
	for {
		cmd := exec.CommandContext(ctx, "apt-get",
			append([]string{"-q", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=3"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		if !strings.Contains(string(out), "Could not get lock") {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("apt-get %s: another process holds the package manager's lock: %w",
				strings.Join(args, " "), ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

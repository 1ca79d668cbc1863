// Package host changes the machine for a cluster, and undoes the changes: mounts, control groups,
// firewall chains, links, settings, packages.
//
// Undoing is idempotent, and needs only names, so that it works after any crash.
package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Unmount unmounts everything that is mounted at dir or below.
func Unmount(dir string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range mountsIn(string(info), dir) {
		// Detached, because killed processes may use it for a moment longer.
		err := syscall.Unmount(point, syscall.MNT_DETACH|umountNoFollow)
		// unmounted together with one above it
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// UMOUNT_NOFOLLOW, which package syscall lacks
const umountNoFollow = 8

// mountsIn returns the mount points in proc_pid_mountinfo(5) that are dir or below it, the latest
// first.
func mountsIn(info, dir string) []string {
	var points []string
	for line := range strings.Lines(info) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape(strings.TrimSuffix(fields[4], "//deleted"))
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// unescape replaces the escapes in the kernel's tables, such as \040.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

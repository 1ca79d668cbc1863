// Package host is what a cluster changes on the machine, and how it is undone: mounts, control groups, firewall
// chains, links, settings, packages.
//
// Undoing is idempotent, and knows from names alone what to undo, so that it works after any crash.
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

// Unmount takes away all that is mounted in dir and below.
func Unmount(dir string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range mountsIn(string(info), dir) {
		// Detached, because what is killed may hold it for a moment longer.
		err := syscall.Unmount(point, syscall.MNT_DETACH|umountNoFollow)
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) { // gone with one above it
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

const umountNoFollow = 8 // UMOUNT_NOFOLLOW, which package syscall lacks

// mountsIn reads proc_pid_mountinfo(5): the mount points that are dir or in it, the latest first.
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

// unescape undoes the \040 of the kernel's tables.
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

package program

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// headroom returns how much memory this machine, and the control groups of this process, have left,
// in bytes: what they can take without swapping, or ending a process. It is [math.MaxInt64] where
// the system does not tell.
func (o *Options) headroom() int64 { return headroom(o.root) }

// headroom reads /proc and /sys/fs/cgroup below a directory.
func headroom(root string) int64 {
	least := available(readFile(root, "proc/meminfo"))
	for line := range strings.Lines(string(readFile(root, "proc/self/cgroup"))) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			for _, dir := range upwards("sys/fs/cgroup", fields[2]) {
				least = min(least, groupLeft(root, dir, "memory.max", "memory.current", "inactive_file"))
			}
		case strings.Contains(","+fields[1]+",", ",memory,"):
			for _, dir := range upwards("sys/fs/cgroup/memory", fields[2]) {
				least = min(least, groupLeft(root, dir, "memory.limit_in_bytes", "memory.usage_in_bytes",
					"total_inactive_file"))
			}
		}
	}
	return least
}

// upwards returns the directories of a control group and of those that it is in. In a container the
// path may be that of the host: then only the last exists.
func upwards(mount, path string) (dirs []string) {
	for path = filepath.Clean("/" + path); path != "/"; path = filepath.Dir(path) {
		dirs = append(dirs, filepath.Join(mount, path))
	}
	return append(dirs, mount)
}

// groupLeft returns what a control group may still take. Files that it has read, and not used
// lately, can be dropped.
func groupLeft(root, dir, limit, usage, inactive string) int64 {
	most, ok := number(readFile(root, filepath.Join(dir, limit)))
	if !ok { // "max", or no such file
		return math.MaxInt64
	}
	used, ok := number(readFile(root, filepath.Join(dir, usage)))
	if !ok {
		return math.MaxInt64
	}
	files := int64(0)
	for line := range bytes.Lines(readFile(root, filepath.Join(dir, "memory.stat"))) {
		if name, value, _ := strings.Cut(string(line), " "); name == inactive {
			files, _ = number([]byte(value))
		}
	}
	return max(0, most-max(0, used-files))
}

// available reads MemAvailable of /proc/meminfo, which counts in KiB.
func available(text []byte) int64 {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == "MemAvailable:" {
			if n, ok := number(fields[1]); ok && n <= math.MaxInt64>>10 {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

func number(text []byte) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n >= 0
}

func readFile(root, name string) []byte {
	text, err := os.ReadFile(filepath.Join("/", root, name))
	if err != nil {
		return nil
	}
	return text
}

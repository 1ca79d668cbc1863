package role

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// cgroupRoot is the directory with the limits of a container.
const cgroupRoot = "/sys/fs/cgroup"

// processors returns the number of processors of this process: the limit of its container, rounded,
// or all. The count of the Go runtime does not serve, because it is at least 2 under a container's
// limit.
func processors(cgroup string) int {
	read := func(file string) []string {
		text, err := os.ReadFile(filepath.Join(cgroup, file))
		if err != nil {
			return nil
		}
		return strings.Fields(string(text))
	}
	// of cgroup v2: quota and period, in microseconds
	limit := read("cpu.max")
	if len(limit) == 0 {
		limit = append(read("cpu/cpu.cfs_quota_us"), read("cpu/cpu.cfs_period_us")...)
	}
	all := runtime.GOMAXPROCS(0)
	if len(limit) != 2 {
		return all
	}
	quota, err := strconv.ParseFloat(limit[0], 64) // "max", or -1: none
	period, err2 := strconv.ParseFloat(limit[1], 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 {
		return all
	}
	return min(all, max(1, int(math.Round(quota/period))))
}

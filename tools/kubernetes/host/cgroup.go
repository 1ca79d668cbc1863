package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cgroups has the machine's hierarchies of control groups: one (version 2), or one for each
// controller (version 1) and possibly one of version 2 without controllers.
type Cgroups struct {
	v1, v2 []string // mount points
}

// FindCgroups returns the hierarchies that are mounted.
func FindCgroups() (Cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return Cgroups{}, err
	}
	c := parseCgroups(string(mounts))
	if len(c.v1)+len(c.v2) == 0 {
		return Cgroups{}, errors.New("find the control groups: none are mounted")
	}
	return c, nil
}

func parseCgroups(mounts string) Cgroups {
	var c Cgroups
	for line := range strings.Lines(mounts) {
		switch fields := strings.Fields(line); {
		case len(fields) < 3:
		case fields[2] == "cgroup":
			c.v1 = append(c.v1, unescape(fields[1]))
		case fields[2] == "cgroup2":
			c.v2 = append(c.v2, unescape(fields[1]))
		}
	}
	return c
}

// Create creates the group in all hierarchies that have controllers.
func (c Cgroups) Create(name string) error {
	roots := c.v1
	if len(roots) == 0 {
		roots = c.v2
		for _, root := range roots {
			if err := delegate(root); err != nil {
				return err
			}
		}
	}
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create control group: %w", err)
		}
		// these are empty in a new group of version 1
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(root, file))
			if err != nil || len(c.v1) == 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return fmt.Errorf("create control group: %w", err)
			}
		}
	}
	return nil
}

// delegate enables all controllers of a root of version 2 for the groups below it.
func delegate(root string) error {
	available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers: %w", err)
	}
	for controller := range strings.FieldsSeq(string(available)) {
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+controller),
			0o644); err != nil {
			return fmt.Errorf("enable controller %s: %w", controller, err)
		}
	}
	return nil
}

// Processes returns the processes in the group and in the groups below it, in any hierarchy.
func (c Cgroups) Processes(name string) []int {
	var pids []int
	c.walk(name, func(dir string) {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // the group may be removed by now
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	})
	slices.Sort(pids)
	return slices.Compact(pids)
}

// Remove removes the group, whose processes have ended. The kernel may need a moment to notice
// that.
func (c Cgroups) Remove(name string, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var last error
		left := false
		c.walk(name, func(dir string) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				left, last = true, err
			}
		})
		if !left {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove control group: %w", last)
		}
	}
}

// walk calls visit for the group of that name in each hierarchy, for the inner groups first.
func (c Cgroups) walk(name string, visit func(dir string)) {
	for _, root := range slices.Concat(c.v1, c.v2) {
		var dirs []string
		filepath.WalkDir(filepath.Join(root, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			visit(dir)
		}
	}
}

package program

import (
	"math"
	"testing"
)

func TestHeadroom(t *testing.T) {
	const meminfo = "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, math.MaxInt64},
		"no control group": {map[string]string{"proc/meminfo": meminfo}, 8_000_000 << 10},
		"no limit":         {group2("/", "max", "1", ""), 8_000_000 << 10},
		"a limit": {group2("/pod", "1000000", "400000", "anon 3\ninactive_file 50000\nactive_file 7\n"),
			650_000},
		"of an outer group": {group2("/pod/../pod/", "5000", "1000", ""), 4000},
		"over its limit":    {group2("/pod", "5000", "9000", ""), 0},
		"of the host's path, seen in a container": {map[string]string{"proc/meminfo": meminfo,
			"proc/self/cgroup":                "0::/kubepods/pod1/c1\n",
			"sys/fs/cgroup/memory.max":        "3000",
			"sys/fs/cgroup/memory.current":    "1000",
			"sys/fs/cgroup/other/memory.max":  "1",
			"sys/fs/cgroup/kubepods/pod2/cpu": "1"}, 2000},
		"the inner group has more": {map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "9000", "sys/fs/cgroup/a/b/memory.current": "1000",
			"sys/fs/cgroup/a/memory.max": "5000", "sys/fs/cgroup/a/memory.current": "2000"}, 3000},
		"version 1": {map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "7000",
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes": "3000",
			"sys/fs/cgroup/memory/x/memory.stat":           "inactive_file 1\ntotal_inactive_file 500\n"}, 4500},
		"no numbers": {map[string]string{"proc/meminfo": "MemAvailable: much kB\nMemAvailable:\n",
			"proc/self/cgroup":         "0::/\nx\n::\n",
			"sys/fs/cgroup/memory.max": "7e3", "sys/fs/cgroup/memory.current": "-5"},
			math.MaxInt64},
	} {
		root := t.TempDir()
		write(t, root, c.files)
		if got := headroom(root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := headroom(""); got <= 0 || got == math.MaxInt64 {
		t.Errorf("this machine has %d", got)
	}
}

// group2 returns the files of a process in a control group of version 2.
func group2(path, limit, usage, stat string) map[string]string {
	dir := "sys/fs/cgroup" + path + "/"
	return map[string]string{"proc/meminfo": "MemAvailable:    8000000 kB\n", "proc/self/cgroup": "0::" + path + "\n",
		dir + "memory.max": limit + "\n", dir + "memory.current": usage + "\n", dir + "memory.stat": stat}
}

func FuzzHeadroom(f *testing.F) {
	f.Add("MemAvailable: 5 kB\n", "0::/a/b\n4:memory:/x\n", "max\n", "5\n", "inactive_file 3\n")
	f.Add("MemAvailable: 99999999999999999 kB\n", "0::/../..\n", "9223372036854775807", "0", "inactive_file -3\n")
	f.Fuzz(func(t *testing.T, memory, groups, limit, usage, stat string) {
		root := t.TempDir()
		files := map[string]string{"proc/meminfo": memory, "proc/self/cgroup": groups}
		for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/a/", "sys/fs/cgroup/memory/x/"} {
			files[dir+"memory.max"], files[dir+"memory.current"], files[dir+"memory.stat"] = limit, usage, stat
			files[dir+"memory.limit_in_bytes"], files[dir+"memory.usage_in_bytes"] = limit, usage
		}
		write(t, root, files)
		if got := headroom(root); got < 0 {
			t.Errorf("%d", got)
		}
	})
}

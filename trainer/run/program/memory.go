package program

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// Memory returns for each leader that lives the resident memory (RSS) of it and its descendants, in
// bytes, as of now. Pages that several of them share count for each. all has the processes of this
// machine.
func Memory(all []Running, leaders []int) map[int]int64 {
	byPid, live := make(map[int]Running, len(all)), make(map[int]int64)
	for _, p := range all {
		byPid[p.Pid] = p
	}
	for _, leader := range leaders {
		if _, ok := byPid[leader]; ok {
			live[leader] = 0
		}
	}
	for _, p := range all {
		leader := leaderOf(p, byPid, live)
		if _, ok := live[leader]; !ok {
			continue
		}
		// one that has ended meanwhile has no memory
		if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid), "statm")); err == nil {
			live[leader] += residentOf(text, int64(os.Getpagesize()))
		}
	}
	return live
}

// residentOf reads the text of /proc/<pid>/statm, which counts pages: the whole size, and the part
// of it that is resident. It returns bytes, 0 if the text has no such number.
func residentOf(text []byte, page int64) int64 {
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil || pages < 0 || pages > math.MaxInt64/page {
		return 0
	}
	return pages * page
}

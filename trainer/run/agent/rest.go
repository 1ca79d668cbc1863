package agent

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// rest waits for as long as the master says before the processes are started, as those of the
// worlds before failed soon. It returns false if the world is over before: it has lost a member, or
// workers join or leave.
func (v *vigil) rest(ctx context.Context) bool {
	pause := time.Duration(v.world.PauseMs) * time.Millisecond
	if pause <= 0 {
		return true
	}
	v.Log.Warn("Waiting before the processes start again: they failed soon after their start, again "+
		"and again", "pause", pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	leave := v.Leave
	if v.here == 0 { // it has nothing to leave with
		leave = nil
	}
	for {
		if recalled, _ := v.meeting.Recalled(v.world.Formation); recalled || v.isLost() || v.here > 0 && v.leaving() {
			return false
		}
		select {
		case <-timer.C:
			return true
		case <-v.meeting.Wake():
		case <-v.world.Lost():
		case <-leave:
		case <-ctx.Done():
			return false
		}
	}
}

// oomKills returns how many processes of this worker's cgroup the system has killed because its
// memory was used up; 0 if that is unknown.
func oomKills() int {
	own, _ := os.ReadFile("/proc/self/cgroup")
	events, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", unified(string(own)), "memory.events"))
	return oomKillsIn(string(events))
}

// unified returns the path of the cgroup v2 that the text of /proc/PID/cgroup names.
func unified(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path)
		}
	}
	return ""
}

// oomKillsIn returns the count that the text of memory.events has of processes killed for memory.
func oomKillsIn(events string) int {
	for line := range strings.Lines(events) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(count)) // the kernel writes numbers
			return n
		}
	}
	return 0
}

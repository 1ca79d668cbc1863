package program

import (
	"bytes"
	"strconv"
	"time"
)

// ticksPerSecond is the unit of processor times in /proc, USER_HZ, which Linux fixes for programs.
const ticksPerSecond = 100

// Running is a process as the system shows it at one time.
type Running struct {
	Pid, Parent, Session int
	// Ticks is the processor time of the process and of the children that it has waited for.
	Ticks int64
}

// Usage computes how much of the processors trees of processes use, from one look at all processes
// to the next. It does no I/O and reads no clock. The zero value has seen nothing.
type Usage struct {
	at time.Time
	// ticks of a tree, by the pid of its leader
	totals map[int]int64
}

// Cores returns for each leader how many processors it and its descendants have used on average
// since the call before, as in 1.5. It returns -1 for a leader that has ended, or that was not
// there at the call before. A descendant that has lost its parents counts as long as it stays in
// the leader's session.
func (u *Usage) Cores(now time.Time, all []Running, leaders []int) map[int]float64 {
	totals := totalsOf(all, leaders)
	cores := make(map[int]float64)
	for _, leader := range leaders {
		before, seen := u.totals[leader]
		total, lives := totals[leader]
		cores[leader] = -1
		if age := now.Sub(u.at); seen && lives && age > 0 {
			// The time of a process that nobody has waited for is lost with it.
			cores[leader] = float64(max(0, total-before)) / ticksPerSecond / age.Seconds()
		}
	}
	u.at, u.totals = now, totals
	return cores
}

// totalsOf returns the ticks of each tree whose leader lives.
func totalsOf(all []Running, leaders []int) map[int]int64 {
	byPid := make(map[int]Running, len(all))
	for _, p := range all {
		byPid[p.Pid] = p
	}
	totals := make(map[int]int64)
	for _, leader := range leaders {
		if p, lives := byPid[leader]; lives {
			totals[leader] = p.Ticks
		}
	}
	for _, p := range all {
		if leader := leaderOf(p, byPid, totals); leader != p.Pid {
			if _, lives := totals[leader]; lives {
				totals[leader] += p.Ticks
			}
		}
	}
	return totals
}

// leaderOf returns the leader to whose tree a process belongs: that of its session, or its nearest
// ancestor that is one; 0: it belongs to none.
func leaderOf(p Running, byPid map[int]Running, leaders map[int]int64) int {
	if _, is := leaders[p.Session]; is {
		return p.Session
	}
	// a process that was replaced between two reads may make a circle
	for range len(byPid) {
		if _, is := leaders[p.Pid]; is {
			return p.Pid
		}
		parent, known := byPid[p.Parent]
		if !known {
			break
		}
		p = parent
	}
	return 0
}

// Processes returns the processes of this machine that this process may see.
func Processes() []Running {
	var all []Running
	for pid, text := range stats() {
		if p, ok := parseRunning(pid, text); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseRunning reads the text of /proc/<pid>/stat.
func parseRunning(pid int, text []byte) (p Running, ok bool) {
	_, parent, session, ok := parseStat(text)
	if !ok {
		return p, false
	}
	p = Running{Pid: pid, Parent: parent, Session: session}
	p.Ticks, ok = parseTicks(text, allTicks)
	return p, ok
}

const (
	// ownTicks is the number of fields with the processor time of a process or thread: utime and
	// stime.
	ownTicks = 2
	// allTicks adds cutime and cstime, the time of the children that it has waited for.
	allTicks = 4
)

// parseTicks adds up fields of processor times in the text of a stat file of /proc.
func parseTicks(text []byte, fields int) (ticks int64, ok bool) {
	const first = 11 // behind the command's name
	all := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(all) < first+fields {
		return 0, false
	}
	for _, field := range all[first : first+fields] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil || n < 0 || ticks+n < 0 {
			return 0, false
		}
		ticks += n
	}
	return ticks, true
}

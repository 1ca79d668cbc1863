package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Vital describes a process and its descendants by what distinguishes work from a hang.
type Vital struct {
	// Ready reports whether one of them wants a processor: a thread of it runs, or could.
	Ready bool
	// Moved is the number of bytes that they have moved since the first look: files, pipes and
	// terminals, and TCP connections. It never decreases.
	Moved int64
	// Held reports whether a signal has stopped one of them, a debugger holds it, or it waits for a
	// user at a terminal.
	Held bool
}

// Vitals looks at trees of processes again and again. Its zero value has seen nothing.
type Vitals struct {
	looked bool
	// bytes moved by each leader's tree
	moved map[int]int64
	// counters at the last look: of files by pid, of connections by inode
	files, sockets map[int]int64
}

// Look returns the vitals of each leader that lives, from one look at all processes. It reads the
// descriptors of every process in their trees, so it is for processes that are quiet.
func (v *Vitals) Look(all []Running, leaders []int) map[int]Vital {
	byPid, live := make(map[int]Running, len(all)), make(map[int]int64)
	for _, p := range all {
		byPid[p.Pid] = p
	}
	for _, leader := range leaders {
		if _, ok := byPid[leader]; ok {
			live[leader] = 0
		}
	}
	connections := tcpBytes()
	moved, files, sockets := make(map[int]int64), make(map[int]int64), make(map[int]int64)
	vitals := make(map[int]Vital)
	for _, p := range all {
		leader := leaderOf(p, byPid, live)
		if _, ok := live[leader]; !ok {
			continue
		}
		vital, dir := vitals[leader], filepath.Join("/proc", strconv.Itoa(p.Pid))
		if s, ok := readStatus(dir); ok {
			vital.Ready = vital.Ready || s.state == 'R' || s.state == 'S' && threadReady(dir)
			vital.Held = vital.Held || s.tracer != 0 || s.state == 'T' || s.state == 't' ||
				s.state == 'S' && awaitsUser(p.Pid, dir)
		}
		vitals[leader] = vital
		if text, err := os.ReadFile(filepath.Join(dir, "io")); err == nil {
			files[p.Pid] = fileBytes(text)
			moved[leader] += v.since(v.files, p.Pid, files[p.Pid])
		}
		for _, inode := range socketsOf(dir) {
			n, tcp := connections[inode]
			if _, counted := sockets[inode]; !tcp || counted {
				continue
			}
			sockets[inode] = n
			moved[leader] += v.since(v.sockets, inode, n)
		}
	}
	for leader, vital := range vitals {
		moved[leader] += v.moved[leader]
		vital.Moved = moved[leader]
		vitals[leader] = vital
	}
	v.looked, v.moved, v.files, v.sockets = true, moved, files, sockets
	return vitals
}

// threadReady reports whether a thread of a process runs, or could. It looks at [mostThreads].
func threadReady(dir string) bool {
	tasks, err := os.Open(filepath.Join(dir, "task"))
	if err != nil {
		return false
	}
	defer tasks.Close()
	names, _ := tasks.Readdirnames(mostThreads)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, "task", name, "stat"))
		if state, _, _, ok := parseStat(text); err == nil && ok && state == 'R' {
			return true
		}
	}
	return false
}

// since returns the growth of a counter since the last look. A new counter has begun at 0, except
// at the first look.
func (v *Vitals) since(before map[int]int64, key int, now int64) int64 {
	if !v.looked {
		return 0
	}
	return max(0, now-before[key])
}

// fileBytes reads the text of /proc/<pid>/io: what the process has read and written by calls of
// files, and what was read from disks for it, as of files that it has mapped. Most calls for
// sockets are not in it.
func fileBytes(text []byte) (sum int64) {
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		if name == "rchar" || name == "wchar" || name == "read_bytes" {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err == nil && n > 0 && sum+n > 0 {
				sum += n
			}
		}
	}
	return sum
}

// socketsOf returns the inodes of the sockets that a process has open.
func socketsOf(dir string) (inodes []int) {
	fds, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return nil // of another user
	}
	defer fds.Close()
	names, _ := fds.Readdirnames(-1)
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir, "fd", name))
		var inode int
		if err == nil {
			if n, _ := fmt.Sscanf(target, "socket:[%d]", &inode); n == 1 {
				inodes = append(inodes, inode)
			}
		}
	}
	return inodes
}

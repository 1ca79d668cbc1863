package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A restarted process gets the last rank, also if it had rank 0, and its restart count rises. The
// other processes keep their counts.
func TestRankOfAProcessThatIsKilled(t *testing.T) {
	h, a := open(t, 2, self("recall=arrive")...)
	counted := func(a *wire.Arrival, restarts, most int32) {
		w := following(a)
		w.Restarts, w.MaxRestarts = restarts, most
		h.words <- &wire.Assembly{Word: &wire.Assembly_World{World: w}}
	}
	counted(a, 0, 3)
	pids := h.hearAll(map[int]string{0: "rank 0 of 2, restart 0 of 3", 1: "rank 1 of 2, restart 0 of 3"})
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a = h.arrival()
	h.checkFailures(a, 1, 1, &wire.Failure{Local: 0, Signal: int32(syscall.SIGKILL)})
	counted(a, 1, 4)
	h.hear("rank 0 of 1, restart 0 of 3", 1)
	a = h.arrival() // the other is ready
	h.checkFailures(a, 2, 2)
	if a.Crew.Source != 0 {
		t.Errorf("the state is that of process %d, want 0", a.Crew.Source)
	}
	counted(a, 1, 4)
	h.hearAll(map[int]string{0: "rank 1 of 2, restart 1 of 4", 1: "rank 0 of 2, restart 0 of 3"})
}

// hearAll waits until each of some local ranks has received its message, and returns their pids.
func (h *hall) hearAll(want map[int]string) map[int]int {
	h.Helper()
	pids := make(map[int]int)
	for len(pids) < len(want) {
		m := heard.FindStringSubmatch(next(h, fmt.Sprint(want), h.lines))
		if m == nil {
			continue
		}
		if local, _ := strconv.Atoi(m[1]); m[3] == want[local] {
			pids[local], _ = strconv.Atoi(m[2]) // digits
		}
	}
	return pids
}

// The master gets evidence of the program's progress: a digest of its output, and the time of its
// newest checkpoint file.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.pt")
	h, a := open(t, 1, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; if [ -e `+file+
		` ]; then echo more; fi; kill -9 $$`)
	h.job.Program.Checkpoint = filepath.Join(dir, "*.pt")
	var arrivals []*wire.Arrival
	for i := range 3 {
		if i == 2 {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h.give(a)
		a = h.arrival()
		arrivals = append(arrivals, a)
	}
	if arrivals[0].Output == "" || arrivals[0].Output != arrivals[1].Output ||
		arrivals[2].Output == arrivals[1].Output {
		t.Errorf("digests %q, %q and %q, want the first two alone to be the same", arrivals[0].Output,
			arrivals[1].Output, arrivals[2].Output)
	}
	if arrivals[1].CheckpointUnixMs != 0 || arrivals[2].CheckpointUnixMs == 0 {
		t.Errorf("checkpoint files of %d and %d, want none and one", arrivals[1].CheckpointUnixMs,
			arrivals[2].CheckpointUnixMs)
	}
}

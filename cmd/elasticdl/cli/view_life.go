package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Views of a program's processes, with their CPU use and output, and of a job's incidents.

// processTable returns the table of the processes of a program, with their pids, CPU use and last
// output; "": no process is known.
func processTable(s *wire.JobStatus, now time.Time) string {
	rows := [][]string{{"RANK", "WORKER", "PID", "CPU", "OUTPUT", "LAST LINE"}}
	for _, p := range sorted(s.Pods) {
		if p.EndedUnixMs > 0 {
			continue
		}
		for _, r := range p.Processes {
			rows = append(rows, []string{rankOf(r), podName(p), number(r.Pid), cores(r), quiet(r, now),
				oneLine(r.Output)})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return table(rows)
}

// rankOf returns the rank of a process; "" if it waits to join a world.
func rankOf(r *wire.ProcessStatus) string {
	if r.Rank < 0 {
		return ""
	}
	return strconv.Itoa(int(r.Rank))
}

// cores returns how many processors a process and its descendants use; "": not known yet.
func cores(r *wire.ProcessStatus) string {
	if r.Cores < 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Cores)
}

// quiet returns the age of a process's last output.
func quiet(r *wire.ProcessStatus, now time.Time) string {
	if r.OutputUnixMs == 0 {
		return "none"
	}
	return span(r.OutputUnixMs, 0, now) + " ago"
}

// lastOutput returns the newest line of output of all processes; "": none is known.
func lastOutput(s *wire.JobStatus, now time.Time) string {
	var newest *wire.ProcessStatus
	for _, p := range s.Pods {
		for _, r := range p.Processes {
			if p.EndedUnixMs == 0 && r.Output != "" && (newest == nil || r.OutputUnixMs > newest.OutputUnixMs) {
				newest = r
			}
		}
	}
	if newest == nil {
		return ""
	}
	who := ""
	if newest.Rank >= 0 {
		who = fmt.Sprintf("rank %d, ", newest.Rank)
	}
	return fmt.Sprintf("%s%s: %s", who, quiet(newest, now), oneLine(newest.Output))
}

// stuck returns since when a job makes no progress, and where its ranks stand; "": it makes some.
func stuck(s *wire.JobStatus, now time.Time) string {
	if s.GetStuck() == "" {
		return ""
	}
	return fmt.Sprintf("no progress for %s: %s", span(s.StuckSinceUnixMs, 0, now), oneLine(s.Stuck))
}

// historyText returns the incidents of a job, oldest first; "": there are none.
func historyText(s *wire.JobStatus, now time.Time) string {
	if len(s.History) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("History:\n")
	for _, i := range s.History {
		fmt.Fprintf(&b, "  %s ago: %s\n", span(i.UnixMs, 0, now), oneLine(i.Text))
	}
	return b.String()
}

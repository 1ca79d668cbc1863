package agent

import (
	"math"
	"os"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// signsEvery is the interval between two samples of a process's CPU use and last output line.
const signsEvery = 2 * time.Second

// quietAfter is the time without output after which the vitals of a worker's processes are sampled,
// too. It is much shorter than the pause after which a job is suspected to hang, and than most
// pauses of a job that works, see elastic/stuck.
const quietAfter = 10 * time.Second

// signs holds what heartbeats report about the running processes: their CPU use and their last
// output line. The mutex of beats guards it.
type signs struct {
	shown []shown
	seen  map[int]sign // by pid
}

// shown is a running process that heartbeats report.
type shown struct {
	local, rank, pid int
	group            Group
}

// sign is the newest sample of a process.
type sign struct {
	// processors that it uses, on average since the sample before; -1: not known yet
	cores float64
	// last line of its output
	output program.Output
	// nil: not sampled, as a process of this worker has written something lately
	vital *program.Vital
}

// reports returns the reports of the running processes, for a heartbeat that is sent at now.
func (s *signs) reports(now time.Time) (all []*wire.ProcessReport) {
	for _, p := range s.shown {
		r := &wire.ProcessReport{Rank: int32(p.rank), Local: int32(p.local), Pid: int32(p.pid), Cores: -1, QuietMs: -1,
			Moved: -1}
		if seen, ok := s.seen[p.pid]; ok {
			r.Cores, r.Output = float32(math.Round(100*seen.cores)/100), seen.output.Line
			// the clock of a file server may be ahead of ours
			if at := seen.output.At; !at.IsZero() {
				r.QuietMs = max(0, now.Sub(at).Milliseconds())
			}
			if v := seen.vital; v != nil {
				r.Ready, r.Moved, r.Held = v.Ready, v.Moved, v.Held
			}
		}
		all = append(all, r)
	}
	return all
}

// look samples the CPU use and the last output line of each running process, and the vitals of
// quiet ones.
func (a *agent) look(now time.Time) {
	var all []shown
	a.beats.set(false, func() { all = slices.Clone(a.beats.signs.shown) })
	var pids []int
	for _, p := range all {
		pids = append(pids, p.pid)
	}
	seen := make(map[int]sign)
	if len(all) > 0 {
		cores, secrets := a.program.Cores(now, pids), a.secrets()
		for _, p := range all {
			seen[p.pid] = sign{cores: cores[p.pid], output: p.group.Output(p.local, secrets)}
		}
		if quiet(seen, now) {
			for pid, vital := range a.program.Vitals(pids) {
				s := seen[pid]
				s.vital = &vital
				seen[pid] = s
			}
		}
	}
	a.beats.set(false, func() { a.beats.signs.seen = seen })
}

// quiet reports whether none of the processes has written anything lately.
func quiet(all map[int]sign, now time.Time) bool {
	for _, s := range all {
		if at := s.output.At; !at.IsZero() && now.Sub(at) < quietAfter {
			return false
		}
	}
	return true
}

// secrets returns the values of the variables of --env_secret, which must not occur in a status:
// more people may read a status than a log.
func (a *agent) secrets() (values []string) {
	for name := range a.Job.EnvSecrets {
		values = append(values, os.Getenv(name))
	}
	return values
}

package agent

import (
	"math"
	"os"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// signsEvery is the time between two looks at the signs of generation of the processes.
const signsEvery = 2 * time.Second

// signs holds the heartbeats' reports of running processes: that they work, and what they write.
// The mutex of beats guards it.
type signs struct {
	shown []shown
	seen  map[int]sign // by pid
}

// shown is a process that runs.
type shown struct {
	local, rank, pid int
	group            Group
}

// sign holds the observations of a process.
type sign struct {
	cores  float64 // -1: not known yet
	output program.Output
}

// reports returns the reports of the processes that run, for a heartbeat that is sent now.
func (s *signs) reports(now time.Time) (all []*wire.ProcessReport) {
	for _, p := range s.shown {
		r := &wire.ProcessReport{Rank: int32(p.rank), Local: int32(p.local), Pid: int32(p.pid), Cores: -1, QuietMs: -1}
		if seen, ok := s.seen[p.pid]; ok {
			r.Cores, r.Output = float32(math.Round(100*seen.cores)/100), seen.output.Line
			// the clock of a file's server may be ahead
			if at := seen.output.At; !at.IsZero() {
				r.QuietMs = max(0, now.Sub(at).Milliseconds())
			}
		}
		all = append(all, r)
	}
	return all
}

// look notes the signs of generation of the processes.
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
			seen[p.pid] = sign{cores[p.pid], p.group.Output(p.local, secrets)}
		}
	}
	a.beats.set(false, func() { a.beats.signs.seen = seen })
}

// secrets returns the values of --env_secret: a status is read by others than a log.
func (a *agent) secrets() (values []string) {
	for name := range a.Job.EnvSecrets {
		values = append(values, os.Getenv(name))
	}
	return values
}

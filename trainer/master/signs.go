package master

import (
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	// mostProcesses limits the processes of one worker in a status.
	mostProcesses = 256
	// mostOutput is the largest length of a last line in a status, in characters.
	mostOutput = 200
	// sameOutput is by how much the time of the same output may differ between two reports: a
	// report says how old the output is, and takes a while to arrive.
	sameOutput = 2 * time.Second
)

// processesOf returns the processes of a worker as it reports them now. It keeps the time of an
// output that was known before. Reports come from processes of the job, which may be of another
// version: texts are shortened and escaped.
func processesOf(before []*wire.ProcessStatus, reports []*wire.ProcessReport,
	now time.Time) (all []*wire.ProcessStatus) {
	known := make(map[int32]*wire.ProcessStatus)
	for _, p := range before {
		known[p.Pid] = p
	}
	for _, r := range reports[:min(len(reports), mostProcesses)] {
		p := &wire.ProcessStatus{Rank: r.Rank, Local: r.Local, Pid: r.Pid, Cores: r.Cores, Output: shortened(r.Output)}
		if r.QuietMs >= 0 {
			p.OutputUnixMs = now.UnixMilli() - r.QuietMs
			was := known[r.Pid]
			if was != nil && was.Output == p.Output && max(was.OutputUnixMs-p.OutputUnixMs,
				p.OutputUnixMs-was.OutputUnixMs) < sameOutput.Milliseconds() {
				p.OutputUnixMs = was.OutputUnixMs
			}
		}
		all = append(all, p)
	}
	return all
}

func shortened(text string) string {
	text = logline.Escape(text)
	if runes := []rune(text); len(runes) > mostOutput {
		return string(runes[:mostOutput]) + "…"
	}
	return text
}

// shows reports whether a pod in a phase has processes that the status shows.
func shows(phase pod.Phase) bool {
	return phase.Public() == pod.Running || phase.Public() == pod.Leaving
}

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The functions of this file return lines that report the changes between two statuses of a job.
// before is nil if there is no earlier status.

// rollbackNews returns a line if the training has started over or returned to a checkpoint.
func rollbackNews(before, after *wire.JobStatus) []string {
	before, after = plain(before), plain(after)
	if words := startedOver(after); words != "" &&
		(words != startedOver(before) || after.RecordsDone < before.GetRecordsDone()) {
		return []string{words}
	}
	return nil
}

// failureNews returns a line if a process of a program has failed.
func failureNews(before, after *wire.JobStatus) []string {
	if after.Failures <= before.GetFailures() {
		return nil
	}
	return []string{"a process failed: " + oneLine(after.Failure)}
}

// problemNews returns a line for each problem that has appeared or disappeared, and for a hang.
func problemNews(before, after *wire.JobStatus) []string {
	var lines []string
	for _, problem := range after.Problems {
		if !slices.Contains(before.GetProblems(), problem) {
			lines = append(lines, "problem: "+oneLine(problem))
		}
	}
	for _, problem := range before.GetProblems() {
		if !slices.Contains(after.Problems, problem) && !job.State(after.State).Ended() {
			lines = append(lines, "no longer: "+oneLine(problem))
		}
	}
	switch was := before.GetStuck(); {
	case after.Stuck == was:
	case after.Stuck != "":
		lines = append(lines, "no progress: "+oneLine(after.Stuck))
	case !job.State(after.State).Ended():
		lines = append(lines, "no longer stuck")
	}
	return lines
}

// news returns the lines about all changes of a job, such as those of epochs, pods and evaluations.
func news(before, after *wire.JobStatus) []string {
	before, after = plain(before), plain(after)
	lines := rollbackNews(before, after)
	if after.Epoch > before.GetEpoch() && before.GetEpoch() > 0 {
		lines = append(lines, fmt.Sprintf("epoch %d of %d", after.Epoch, after.Epochs))
	}
	// the wanted number is 0 at the end
	if wanted := before.GetWorkers(); wanted > 0 && after.Workers > 0 && wanted != after.Workers {
		lines = append(lines, fmt.Sprintf("scaled from %d to %s", wanted, count(int64(after.Workers), "worker")))
	}
	lines = append(lines, failureNews(before, after)...)
	lines = append(lines, problemNews(before, after)...)
	if after.World > before.GetWorld() && after.WorldSize > 0 {
		lines = append(lines, ring(after))
	}
	lines = append(lines, podNews(before, after)...)
	fresh := max(0, after.Evaluated-before.GetEvaluated())
	for _, e := range after.Evaluations[max(0, len(after.Evaluations)-int(fresh)):] {
		lines = append(lines, evaluation.Format(e.Version, metricsOf(e)))
	}
	return lines
}

// programNews returns the lines to print between the output lines of a running program: losses and
// their consequences, but not its start.
func programNews(before, after *wire.JobStatus) []string {
	before, after = plain(before), plain(after)
	lines := slices.Concat(rollbackNews(before, after), failureNews(before, after), problemNews(before, after))
	if before.GetState() != string(job.Running) {
		after.Pods = slices.DeleteFunc(after.Pods, func(p *wire.PodStatus) bool { return p.EndedUnixMs == 0 })
	}
	lines = append(lines, podNews(before, after)...)
	if before.GetWorld() > 0 && after.World > before.World && after.WorldSize > 0 {
		lines = append(lines, ring(after))
	}
	return lines
}

// podNews returns the lines about changed states of pods.
func podNews(before, after *wire.JobStatus) []string {
	before, after = plain(before), plain(after)
	var lines []string
	type state struct{ name, state, waiting string }
	of := func(p *wire.PodStatus) state {
		s := state{name: podName(p), state: p.State}
		if pod.Pending.Is(p.State) {
			s.waiting = p.Reason
		}
		return s
	}
	known := make(map[state]*wire.PodStatus)
	over := make(map[string]*wire.PodStatus)
	for _, p := range before.GetPods() {
		known[of(p)] = p
		if before.Namespace != "" && p.Reason != "" && (p.EndedUnixMs > 0 || pod.Deleted.Is(p.State)) {
			// later statuses of this pod report the same end
			over[podName(p)] = p
		}
	}
	for _, p := range sorted(after.Pods) {
		unclear := after.Namespace != "" && pod.Deleted.Is(p.State) && p.Reason == ""
		end := job.State(after.State).Ended() && !pod.Failed.Is(p.State) // its pods end with a job
		if unclear || end || sameStart(known[of(p)], p) || sameStart(over[podName(p)], p) {
			continue
		}
		line := podName(p) + " " + p.State
		switch {
		case p.Reason != "":
			line += ": " + reason(p)
		case pod.Running.Is(p.State) && p.Pid > 0:
			line += fmt.Sprintf(", process %d", p.Pid)
		case pod.Running.Is(p.State) && p.Node != "":
			line += " on " + p.Node
		}
		lines = append(lines, line)
	}
	return lines
}

// followNews returns the lines to print between the lines of a job's logs.
func followNews(before, after *wire.JobStatus) []string {
	lines := slices.Concat(rollbackNews(before, after), failureNews(before, after),
		problemNews(before, after), podNews(before, after))
	if why := after.Reason; why != before.GetReason() && after.State == string(job.Pending) &&
		!strings.HasPrefix(why, "master: ") && why != "" {
		lines = append(lines, "job Pending: "+oneLine(why))
	}
	return lines
}

// sameStart reports whether two statuses are of the same incarnation of a pod; a may be nil. On a
// cluster the start time is not always known.
func sameStart(a, b *wire.PodStatus) bool {
	return a != nil && a.Incarnation == b.Incarnation && (a.StartedUnixMs == b.StartedUnixMs ||
		a.Node != "" || b.Node != "")
}

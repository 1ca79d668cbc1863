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

// Lines that report the changes between two statuses of a job. The status before is nil if there is
// none.

// anewNews returns the line to say if the training has started over, or returned, between two
// statuses, none if it has not.
func anewNews(before, after *wire.JobStatus) []string {
	before, after = plain(before), plain(after)
	if words := startedOver(after); words != "" &&
		(words != startedOver(before) || after.RecordsDone < before.GetRecordsDone()) {
		return []string{words}
	}
	return nil
}

// failureNews returns the line to say if a process of a program has failed between two statuses,
// none if none has.
func failureNews(before, after *wire.JobStatus) []string {
	if after.Failures <= before.GetFailures() {
		return nil
	}
	return []string{"a process failed: " + oneLine(after.Failure)}
}

// problemNews returns the lines to say of problems that have come, or are over, between two
// statuses.
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
	return lines
}

// news returns the lines that say what has happened between two statuses: to pods, evaluations,
// epochs.
func news(before, after *wire.JobStatus) []string {
	before, after = plain(before), plain(after)
	lines := anewNews(before, after)
	if after.Epoch > before.GetEpoch() && before.GetEpoch() > 0 {
		lines = append(lines, fmt.Sprintf("epoch %d of %d", after.Epoch, after.Epochs))
	}
	// none are wanted at the end
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

// programNews returns what to say between the lines of a program that ran before: what of it was
// lost, and what follows. It says nothing of its start.
func programNews(before, after *wire.JobStatus) []string {
	before, after = plain(before), plain(after)
	lines := slices.Concat(anewNews(before, after), failureNews(before, after), problemNews(before, after))
	if before.GetState() != string(job.Running) {
		after.Pods = slices.DeleteFunc(after.Pods, func(p *wire.PodStatus) bool { return p.EndedUnixMs == 0 })
	}
	lines = append(lines, podNews(before, after)...)
	if before.GetWorld() > 0 && after.World > before.World && after.WorldSize > 0 {
		lines = append(lines, ring(after))
	}
	return lines
}

// podNews returns the lines that say what has become of pods between two statuses.
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
			// later reports of this pod are of the same end
			over[podName(p)] = p
		}
	}
	for _, p := range sorted(after.Pods) {
		unclear := after.Namespace != "" && pod.Deleted.Is(p.State) && p.Reason == ""
		end := job.State(after.State).Ended() && !pod.Failed.Is(p.State) // its pods end with a job
		if unclear || end || sameLife(known[of(p)], p) || sameLife(over[podName(p)], p) {
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

// followNews returns what to say between the lines of a job's logs.
func followNews(before, after *wire.JobStatus) []string {
	lines := slices.Concat(anewNews(before, after), failureNews(before, after),
		problemNews(before, after), podNews(before, after))
	if why := after.Reason; why != before.GetReason() && after.State == string(job.Pending) &&
		!strings.HasPrefix(why, "master: ") && why != "" {
		lines = append(lines, "job Pending: "+oneLine(why))
	}
	return lines
}

// sameLife reports whether two statuses are of one incarnation of a pod; a may be nil. On a cluster
// the start is not always known.
func sameLife(a, b *wire.PodStatus) bool {
	return a != nil && a.Incarnation == b.Incarnation && (a.StartedUnixMs == b.StartedUnixMs ||
		a.Node != "" || b.Node != "")
}

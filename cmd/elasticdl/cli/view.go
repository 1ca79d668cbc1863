package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The functions of this file depend on nothing but a job's status and the time.

// screen returns the live view of a job, in lines no longer than width. With the cursor's line, it
// leaves one line of height free: lines that have scrolled off cannot be overwritten, and some
// terminals move a line into their history if it is cleared at the very top.
func screen(s *wire.JobStatus, width, height int, now time.Time) string {
	s = plain(s)
	head := fmt.Sprintf("%s  %s", s.Name, s.State)
	if s.Epochs > 0 {
		head += fmt.Sprintf("  epoch %d of %d", s.Epoch, s.Epochs)
	}
	head += "  " + age(s, now)
	lines := []string{head}
	words := strings.Join(progress(s), "  ")
	if s.RecordsTotal == 0 && s.RecordsDone > 0 { // of an unknown number
		lines = append(lines, words)
		words = s.Program
	} else if s.Program != "" && s.RecordsTotal == 0 { // its progress is not known
		words = s.Program
	} else if cells := min(width-len(words)-2, 50); cells >= 10 {
		words = bar(s, cells) + "  " + words
	} else {
		lines = append(lines, bar(s, width))
	}
	lines = append(lines, words)
	state := learned(s)
	if n := len(s.Evaluations); n > 0 {
		state = append(state, measured(s.Evaluations[n-1]))
	}
	if len(state) > 0 {
		lines = append(lines, strings.Join(state, "  "))
	}
	if words := ring(s); words != "" {
		if s.WorldSize != s.Workers {
			words += fmt.Sprintf(", %d wanted", s.Workers)
		}
		lines = append(lines, words)
	}
	for _, problem := range s.Problems {
		lines = append(lines, "problem: "+oneLine(problem))
	}
	if s.Waiting != "" {
		lines = append(lines, "waits: "+oneLine(s.Waiting))
	}
	if words := stuck(s, now); words != "" {
		lines = append(lines, words)
	}
	if words := saved(s, now); words != "" {
		lines = append(lines, "checkpoint "+words)
	}
	if words := startedOver(s); words != "" {
		lines = append(lines, words)
	}
	if words := lastOutput(s, now); words != "" {
		lines = append(lines, words)
	}
	lines = append(lines, podLines(s, width)...)
	if room := max(1, height-2); len(lines) > room {
		lines = append(lines[:room-1], fmt.Sprintf("… %s more; see elasticdl status %s",
			count(int64(len(lines)-room+1), "line"), s.Name))
	}
	for i, line := range lines {
		lines[i] = cut(line, width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// trains reports whether a job trains a model. A status without a type is that of such a job.
func trains(s *wire.JobStatus) bool { return s.Type == "" || s.Type == string(job.Train) }

// learned returns the loss and version of the model, and the number of its rollbacks.
func learned(s *wire.JobStatus) []string {
	var parts []string
	if s.Version > 0 {
		if trains(s) {
			parts = append(parts, fmt.Sprintf("loss %.4g", s.Loss))
		}
		parts = append(parts, "version "+logline.Thousands(s.Version))
	}
	if s.Rejected > 0 {
		parts = append(parts, count(s.Rejected, "stale gradient"))
	}
	if words := rewound(s); words != "" {
		parts = append(parts, words)
	}
	return parts
}

// rewound returns how often the training started over or returned to a checkpoint; "": never.
func rewound(s *wire.JobStatus) string {
	switch n := s.GetRollbacks(); n {
	case 0:
		return ""
	case 1:
		return "rolled back once"
	default:
		return fmt.Sprintf("rolled back %d times", n)
	}
}

// startedOver returns the report of the last time that the training started over or returned to a
// checkpoint; "": it never did.
func startedOver(s *wire.JobStatus) string { return oneLine(s.GetRollbackReason()) }

// saved returns the newest checkpoint and its directory; "": the job makes no checkpoints.
func saved(s *wire.JobStatus, now time.Time) string {
	if s.Program != "" {
		return savedItself(s, now)
	}
	c := s.GetCheckpoint()
	if c == nil {
		return ""
	}
	words := "none yet, in " + c.Dir
	if c.Number > 0 {
		words = fmt.Sprintf("%d (version %s, %s), %s ago, in %s", c.Number,
			logline.Thousands(c.Version), count(c.Records, "record"), span(c.UnixMs, 0, now), c.Dir)
	}
	if c.Problem != "" {
		words += "; the last one failed: " + oneLine(c.Problem)
	}
	return words
}

// savedItself returns the checkpoint that a program has written with the Python package, and why it
// wrote none when it was stopped; "": it has reported neither.
func savedItself(s *wire.JobStatus, now time.Time) string {
	c := s.GetSaved()
	switch {
	case c == nil && s.Unsaved == "":
		return ""
	case c == nil:
		return "none: " + oneLine(s.Unsaved)
	}
	words := fmt.Sprintf("of round %s, %s ago, in %s", logline.Thousands(c.Round),
		span(c.UnixMs, 0, now), oneLine(c.Path))
	if s.Unsaved != "" {
		words += "; none when it was stopped: " + oneLine(s.Unsaved)
	}
	return words
}

// ring returns the world of a job and its size; "" for a job with parameter servers.
func ring(s *wire.JobStatus) string {
	switch {
	case s.Strategy != string(job.AllReduce):
		return ""
	case s.EndedUnixMs > 0 && s.World > 0:
		return count(s.World, "world")
	case s.EndedUnixMs > 0:
		return ""
	case s.World == 0:
		return "no world yet"
	}
	return fmt.Sprintf("World %d: %s", s.World, count(int64(s.WorldSize), "worker"))
}

// alive returns the number of running pods by role.
func alive(s *wire.JobStatus) map[wire.Role]int {
	n := make(map[wire.Role]int)
	for _, p := range s.Pods {
		if pod.Running.Is(p.State) {
			n[p.Role]++
		}
	}
	return n
}

func measured(e *wire.Evaluation) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(e.Metrics)) {
		parts = append(parts, fmt.Sprintf("%s %.4f", name, e.Metrics[name]))
	}
	return fmt.Sprintf("%s (v=%d)", strings.Join(parts, " "), e.Version)
}

// podLines returns the pods that have not ended, with their states, and the number of replaced
// pods.
func podLines(s *wire.JobStatus, width int) []string {
	var words, lines []string
	for _, p := range sorted(s.Pods) {
		if p.EndedUnixMs == 0 {
			words = append(words, podName(p)+" "+p.State)
		}
	}
	if s.Relaunched > 0 {
		words = append(words, fmt.Sprintf("(%d replaced)", s.Relaunched))
	}
	line := ""
	for _, word := range words {
		if line != "" && len(line)+2+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += "  "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// progressLine returns the view of a job as one line, for a log.
func progressLine(s *wire.JobStatus, now time.Time) string {
	s = plain(s)
	parts := []string{s.Type}
	if trains(s) {
		parts = []string{fmt.Sprintf("epoch %d/%d", s.Epoch, s.Epochs)}
	}
	parts = append(append(parts, progress(s)...), learned(s)...)
	return fmt.Sprintf("[%s] %s", age(s, now), strings.Join(parts, "  "))
}

// summary returns the summary of a job that has ended.
func summary(s *wire.JobStatus, logs string) string {
	s = plain(s)
	var b strings.Builder
	took := time.Duration(s.EndedUnixMs-s.StartedUnixMs) * time.Millisecond
	fmt.Fprintf(&b, "job %s %s", s.Name, s.State)
	if s.StartedUnixMs > 0 && took > 0 {
		fmt.Fprintf(&b, " after %s", short(took))
	}
	if s.Reason != "" && s.State != string(job.Succeeded) {
		fmt.Fprintf(&b, ": %s", oneLine(s.Reason))
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if s.Program == "" || s.RecordsTotal > 0 || s.RecordsDone > 0 {
		fmt.Fprintf(w, "  records\t%s", logline.Thousands(s.RecordsDone))
		if s.Program == "" || s.RecordsTotal > 0 {
			fmt.Fprintf(w, " of %s", logline.Thousands(s.RecordsTotal))
		}
		if trains(s) {
			fmt.Fprintf(w, ", %s", count(int64(s.Epochs), "epoch"))
		}
		if done := s.RecordsDone - s.RecordsBefore; done > 0 && took > 0 {
			fmt.Fprintf(w, ", %s records/s", logline.Thousands(int64(float64(done)/took.Seconds())))
		}
		fmt.Fprintln(w)
	}
	if s.Failures > 0 {
		fmt.Fprintf(w, "  program\t%s\n", failures(s))
		fmt.Fprintf(w, "  last failure\t%s\n", oneLine(s.Failure))
	}
	if n := len(s.Evaluations); n > 0 {
		fmt.Fprintf(w, "  metrics\t%s\n", measured(s.Evaluations[n-1]))
	}
	if words := startedOver(s); words != "" {
		if s.Rollbacks > 1 {
			words = rewound(s) + "; the last time: " + words
		}
		fmt.Fprintf(w, "  model\t%s\n", words)
	}
	if words := saved(s, time.UnixMilli(s.EndedUnixMs)); words != "" {
		fmt.Fprintf(w, "  checkpoint\t%s\n", strings.Replace(words, " ago,", " before the end,", 1))
	}
	if words := recovery(s); words != "" {
		fmt.Fprintf(w, "  recovery\t%s\n", words)
	}
	if words := result(s); words != "" {
		fmt.Fprintf(w, "  output\t%s\n", words)
	}
	fmt.Fprintf(w, "  logs\t%s\n", logs)
	w.Flush()
	return b.String()
}

// failures returns the number of failures of a program, and how many of them count against
// --max_restarts.
func failures(s *wire.JobStatus) string {
	words := count(int64(s.Failures), "failure")
	if s.State == string(job.Succeeded) {
		words = "recovered from " + words
	}
	switch {
	case s.Restarts > 0 && s.Restarts < s.Failures:
		words += fmt.Sprintf(", %d counted", s.Restarts)
	case s.Restarts > 0:
		words += ", counted"
	case s.Failures > 1:
		words += ", none counted"
	default:
		words += ", not counted"
	}
	return fmt.Sprintf("%s against --max_restarts=%d", words, s.MaxRestarts)
}

// recovery returns the number of replaced pods and, if the job has tasks, of tasks that other
// workers have taken over; "": none.
func recovery(s *wire.JobStatus) string {
	if s.Relaunched == 0 && s.Requeued == 0 {
		return ""
	}
	words := count(s.Relaunched, "pod") + " replaced"
	if s.RecordsTotal > 0 || s.Requeued > 0 {
		words += ", " + count(s.Requeued, "task") + " taken back"
	}
	return words
}

// result returns the place of a job's model or predictions, now or after its success; "": the job
// has ended without, or has not reported it.
func result(s *wire.JobStatus) string {
	c := s.GetCheckpoint()
	switch done, ended := s.State == string(job.Succeeded), job.State(s.State).Ended(); {
	case ended && !done, !trains(s) && s.Output == "", !done && s.Output == "" && s.RecordsTotal == 0:
		// the job has not reported its output
		return ""
	case done && s.Output != "":
		return s.Output
	case s.Output != "":
		return s.Output + ", when the job has succeeded"
	case done && c.GetNumber() > 0:
		return fmt.Sprintf("the model is in checkpoint %d only, in %s", c.Number, c.Dir)
	case c != nil:
		return "the model will be in the last checkpoint only"
	case done:
		return "the model was not kept: the job had no --output and no --volume with a claim_name"
	}
	return "the model will not be kept: the job has no --output and no --volume with a claim_name"
}

// verdict returns a line about the end of a job.
func verdict(s *wire.JobStatus) string {
	s = plain(s)
	line := fmt.Sprintf("job %s %s", s.Name, s.State)
	if s.Reason != "" {
		line += ": " + oneLine(s.Reason)
	}
	if words := startedOver(s); words != "" {
		line += "; " + words
	}
	switch words := result(s); {
	case s.State != string(job.Succeeded) || words == "":
	case s.Output == "":
		line += "; " + words
	default:
		line += "; output in " + words
	}
	return line
}

// statusText returns the output of `elasticdl status` for a job.
func statusText(s *wire.JobStatus, now time.Time) string {
	s = plain(s)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(key, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s:\t%s\n", key, value)
		}
	}
	row("Name", s.Name)
	row("Namespace", s.Namespace)
	row("State", s.State)
	row("Reason", oneLine(s.Reason))
	row("Waits for", oneLine(s.Waiting))
	row("Stuck", stuck(s, now))
	for _, problem := range s.Problems {
		row("Problem", oneLine(problem))
	}
	if !trains(s) {
		row("Type", s.Type)
	}
	if s.Program == "" {
		row("Strategy", s.Strategy)
	}
	row("Program", oneLine(s.Program))
	row("Ring", ring(s))
	if s.Workers > 0 && s.EndedUnixMs == 0 {
		row("Workers", fmt.Sprintf("%d of %d running", alive(s)[wire.Role_WORKER], s.Workers))
	}
	row("Age", age(s, now))
	if s.RecordsTotal > 0 || s.RecordsDone > 0 {
		if trains(s) || s.RecordsTotal == 0 {
			row("Epoch", fmt.Sprintf("%d of %d", s.Epoch, s.Epochs))
		}
		row("Progress", strings.Join(progress(s), ", "))
	}
	row("Model", strings.Join(learned(s), ", "))
	row("Checkpoint", saved(s, now))
	row("Output", result(s))
	row("Note", startedOver(s))
	if s.Failures > 0 {
		row("Failures", fmt.Sprintf("%d of the program: %d counted, %d allowed (--max_restarts)",
			s.Failures, s.Restarts, s.MaxRestarts))
		row("Last failure", oneLine(s.Failure))
	}
	row("Recovery", recovery(s))
	row("Cost", s.GetCost().GetText())
	w.Flush()
	if len(s.Pods) > 0 {
		b.WriteString("\n" + podTable(s, now))
	}
	for _, part := range []string{processTable(s, now), historyText(s, now)} {
		if part != "" {
			b.WriteString("\n" + part)
		}
	}
	if len(s.Evaluations) > 0 {
		b.WriteString("\nEvaluations:\n")
	}
	for _, e := range s.Evaluations {
		b.WriteString("  " + measured(e) + "\n")
	}
	return b.String()
}

// podTable returns the table of a job's pods: processes of this machine, or pods on nodes.
func podTable(s *wire.JobStatus, now time.Time) string {
	rows := [][]string{{"POD", "STATE", "PID", "LAUNCH", "AGE", "ADDRESS", "REASON"}}
	if s.Namespace != "" {
		rows[0] = []string{"POD", "STATE", "NODE", "LAUNCH", "AGE", "REASON"}
	}
	for _, p := range sorted(s.Pods) {
		age := span(p.StartedUnixMs, p.EndedUnixMs, now)
		if s.Namespace != "" {
			rows = append(rows, []string{podName(p), p.State, p.Node, number(p.Incarnation), age, reason(p)})
			continue
		}
		pid := ""
		if p.EndedUnixMs == 0 {
			pid = number(p.Pid)
		}
		rows = append(rows, []string{podName(p), p.State, pid, number(p.Incarnation), age, p.Address, reason(p)})
	}
	return table(rows)
}

// number returns n as text, "" for 0.
func number(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// listText returns the output of `elasticdl list`, with a column for namespaces if requested.
func listText(jobs []*wire.JobStatus, namespaces bool, now time.Time) string {
	rows := [][]string{{"NAME", "STATE", "STRATEGY", "PROGRESS", "EPOCH", "WORKERS", "PS", "AGE", "RUNTIME"}}
	if namespaces {
		rows[0] = append(rows[0], "NAMESPACE")
	}
	for _, s := range jobs {
		n := alive(s)
		workers, servers, epoch := strconv.Itoa(n[wire.Role_WORKER]), strconv.Itoa(n[wire.Role_PS]), ""
		if s.Workers > 0 && s.EndedUnixMs == 0 {
			workers += fmt.Sprintf("/%d", s.Workers)
		}
		if s.Strategy == string(job.AllReduce) || !trains(s) {
			servers = "-"
		}
		if s.Epochs > 0 {
			epoch = fmt.Sprintf("%d/%d", s.Epoch, s.Epochs)
		}
		runtime := "local"
		if s.Namespace != "" {
			runtime = "kubernetes"
		}
		how := cmp.Or(strings.TrimSuffix(s.Strategy, "Strategy"), s.Type)
		if s.Program != "" {
			how = s.Type
		}
		state := s.State
		if s.Stuck != "" {
			state = journal.NoProgress
		}
		row := []string{s.Name, state, how, percent(s), epoch, workers, servers, age(s, now), runtime}
		if namespaces {
			row = append(row, s.Namespace)
		}
		rows = append(rows, row)
	}
	return table(rows)
}

// table aligns rows. An empty cell is "-", so that programs such as awk find each column at the
// same number in every row.
func table(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = cmp.Or(cell, "-")
		}
		fmt.Fprintln(w, logline.Escape(strings.Join(cells, "\t")))
	}
	w.Flush()
	return b.String()
}

// sorted returns the pods ordered by role and index.
func sorted(pods []*wire.PodStatus) []*wire.PodStatus {
	return slices.SortedFunc(slices.Values(pods), func(a, b *wire.PodStatus) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.StartedUnixMs, b.StartedUnixMs))
	})
}

func podName(p *wire.PodStatus) string {
	if p.Role == wire.Role_MASTER {
		return "master"
	}
	return fmt.Sprintf("%s-%d", strings.ToLower(p.Role.String()), p.Index)
}

// reason returns the cause of a pod's state.
func reason(p *wire.PodStatus) string {
	return strings.TrimPrefix(oneLine(p.Reason), strings.ToLower(p.State)+": ")
}

func metricsOf(e *wire.Evaluation) []evaluation.Metric {
	var metrics []evaluation.Metric
	for _, name := range slices.Sorted(maps.Keys(e.Metrics)) {
		metrics = append(metrics, evaluation.Metric{Name: name, Value: e.Metrics[name]})
	}
	return metrics
}

func age(s *wire.JobStatus, now time.Time) string { return span(s.StartedUnixMs, s.EndedUnixMs, now) }

// span returns the time from start to end, or to now if end is 0; "" if start is 0.
func span(start, end int64, now time.Time) string {
	if start == 0 {
		return ""
	}
	if end == 0 {
		end = now.UnixMilli()
	}
	return short(time.Duration(max(0, end-start)) * time.Millisecond)
}

package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares text with testdata/view/<name>.golden.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", "view", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s (go test -update writes it again):\ngot:\n%s\nwant:\n%s", path, text, want)
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) int64 { return start.Add(d).UnixMilli() }

// running returns the status of a job that has just lost worker-0.
func running() *wire.JobStatus {
	return &wire.JobStatus{
		Name: "test-mnist", State: "Running", Output: "/state/jobs/test-mnist/model",
		Strategy: "ParameterServerStrategy", StartedUnixMs: after(0),
		Epoch: 1, Epochs: 2, RecordsDone: 44_032, RecordsTotal: 120_000, RecordsPerSecond: 8123.4,
		Version: 688, Loss: 0.12345, Relaunched: 1, Requeued: 2, Workers: 2,
		Evaluated: 2,
		Evaluations: []*wire.Evaluation{
			{Version: 200, Metrics: map[string]float64{"accuracy": 0.9051}},
			{Version: 400, Metrics: map[string]float64{"accuracy": 0.95312, "auc": 0.991}},
		},
		Pods: []*wire.PodStatus{
			{Role: wire.Role_WORKER, Index: 4, State: "Pending"},
			{Role: wire.Role_WORKER, Index: 1, State: "Running", Incarnation: 1, Pid: 1204,
				StartedUnixMs: after(2 * time.Second)},
			{Role: wire.Role_WORKER, Index: 0, State: "Failed", Incarnation: 1, Reason: "killed by signal 9",
				Pid: 1203, StartedUnixMs: after(2 * time.Second), EndedUnixMs: after(33 * time.Second)},
			{Role: wire.Role_PS, Index: 1, State: "Running", Incarnation: 2, Pid: 1202,
				Address: "127.0.0.1:40002", StartedUnixMs: after(time.Second)},
			{Role: wire.Role_PS, Index: 0, State: "Running", Incarnation: 1, Pid: 1201,
				Address: "127.0.0.1:40001", StartedUnixMs: after(time.Second)},
			{Role: wire.Role_MASTER, State: "Running", Incarnation: 3, Pid: 1200, Address: "127.0.0.1:40000",
				StartedUnixMs: after(0)},
		},
	}
}

// ringing returns the status of a ring that has just lost worker-0.
func ringing() *wire.JobStatus {
	s := running()
	s.Name, s.Strategy = "test-mnist-allreduce", "AllreduceStrategy"
	s.World, s.WorldSize = 3, 1
	s.Pods = slices.DeleteFunc(s.Pods, func(p *wire.PodStatus) bool { return p.Role == wire.Role_PS })
	s.Pods[1].Address = "127.0.0.1:40003"
	return s
}

// clustered returns the status of a job on a cluster whose worker-0 was just preempted.
func clustered() *wire.JobStatus {
	s := running()
	s.Namespace, s.Waiting = "training",
		"1 of 2 servers does not run (Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.)"
	for i, p := range s.Pods {
		p.Pid, p.Address, p.Incarnation, p.Node = 0, "", 1, fmt.Sprintf("node-%d", i%2)
	}
	s.Pods[0].Node, s.Pods[0].Reason = "", "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu."
	s.Pods[2].State, s.Pods[2].Reason, s.Pods[2].EndedUnixMs = "Leaving", "", 0
	s.Pods[5].Incarnation = 0
	return s
}

// lost changes s to the status after a server was lost with its part of the model, and returns it.
func lost(s *wire.JobStatus) *wire.JobStatus {
	s.ModelGeneration, s.Rollbacks, s.RollbackReason = 102, 1,
		"the training started over: ps-1 was lost with its part of the model: node\tlost; 50,000 records were trained on till then"
	return s
}

func ended(state, reason string) *wire.JobStatus {
	s := running()
	s.State, s.Reason, s.EndedUnixMs = state, reason, after(95*time.Second)
	if state == "Succeeded" {
		s.Epoch, s.RecordsDone = 2, s.RecordsTotal
	}
	for _, p := range s.Pods {
		if p.EndedUnixMs == 0 {
			p.State, p.EndedUnixMs = "Succeeded", s.EndedUnixMs
		}
	}
	return s
}

func TestViews(t *testing.T) {
	now := start.Add(35 * time.Second)
	begun := &wire.JobStatus{Name: "test-mnist", State: "Pending", StartedUnixMs: after(0),
		Pods: []*wire.PodStatus{{Role: wire.Role_MASTER, State: "Running"}}}
	golden(t, "screen", screen(running(), 100, 24, now))
	golden(t, "screen-narrow", screen(running(), 40, 24, now))
	golden(t, "screen-begun", screen(begun, 80, 24, start.Add(time.Second)))
	golden(t, "screen-ring", screen(ringing(), 100, 24, now))
	golden(t, "line", progressLine(running(), now)+"\n")
	golden(t, "status", statusText(running(), now))
	billed := running()
	billed.Namespace, billed.Cost = "default", &wire.Cost{Spent: 0.84, Hour: 0.42,
		Text: "about 0.84 $ so far, 0.42 $/h now (m6i.large on demand; prices of us-east-1, 2026-07)"}
	golden(t, "status-cost", statusText(billed, now))
	golden(t, "status-ring", statusText(ringing(), now))
	over := ringing()
	over.State, over.EndedUnixMs, over.World, over.WorldSize, over.Workers, over.Pods = "Stopped",
		after(40*time.Second), 7, 0, 0, nil
	golden(t, "status-ring-over", statusText(over, now))
	golden(t, "status-failed", statusText(ended("Failed", "task of shard a.recordio failed 3 times: "+
		"record 7: no label"), now))
	golden(t, "status-empty", statusText(&wire.JobStatus{Name: "j", State: "Pending"}, now))
	golden(t, "list", listText([]*wire.JobStatus{ended("Succeeded", ""), running(), ringing(), begun}, false, now))
	golden(t, "status-cluster", statusText(clustered(), now))
	golden(t, "list-cluster", listText([]*wire.JobStatus{clustered(), ringing()}, true, now))
	golden(t, "summary", summary(ended("Succeeded", ""), "/state/jobs/test-mnist/logs"))
	golden(t, "screen-anew", screen(lost(running()), 130, 24, now))
	golden(t, "status-anew", statusText(lost(running()), now))
	golden(t, "status-cluster-anew", statusText(lost(clustered()), now))
	golden(t, "summary-anew", summary(lost(ended("Succeeded", "")), "/state/jobs/test-mnist/logs"))
	golden(t, "summary-failed", summary(ended("Failed", "all workers failed"), "/state/jobs/test-mnist/logs"))
}

func TestNews(t *testing.T) {
	first := strings.Join(news(nil, running()), "\n") + "\n"
	golden(t, "news-first", first)
	if again := news(running(), running()); len(again) != 0 {
		t.Errorf("nothing happened, and it says %q", again)
	}
	later := running()
	later.Epoch = 2
	later.Pods[0].State, later.Pods[0].Pid, later.Pods[0].StartedUnixMs = "Running", 1300, after(36*time.Second)
	// this server was replaced
	later.Pods[4].Pid, later.Pods[4].StartedUnixMs = 1301, after(37*time.Second)
	later.Evaluated = 3
	later.Evaluations = append(later.Evaluations,
		&wire.Evaluation{Version: 600, Metrics: map[string]float64{"accuracy": 0.9612}})
	golden(t, "news-later", strings.Join(news(running(), later), "\n")+"\n")
	older := running() // a status has only the last evaluations
	older.Evaluated, later.Evaluated = 1001, 1002
	older.Evaluations = append(older.Evaluations, older.Evaluations[0])
	older.Epoch, older.Pods = later.Epoch, later.Pods
	if lines := news(older, later); len(lines) != 1 || !strings.Contains(lines[0], "v=600") {
		t.Errorf("an evaluation more than a status has: %q", lines)
	}

	larger := ringing()
	larger.World, larger.WorldSize, larger.Workers = 4, 3, 3
	larger.Pods[1].State, larger.Pods[1].Reason = "Deleted", "deleted: silent for 5s"
	larger.Pods[0].State, larger.Pods[0].Pid, larger.Pods[0].StartedUnixMs = "Running", 1300, after(36*time.Second)
	golden(t, "news-ring", strings.Join(news(ringing(), larger), "\n")+"\n")
	larger.RecordsDone, larger.Evaluated, larger.Evaluations = 0, 0, nil
	larger.ModelGeneration, larger.Rollbacks, larger.RollbackReason = 102, 1,
		"the training started over: every worker was lost, and the model with them: killed; 44,032 records were trained on till then"
	golden(t, "news-anew", strings.Join(news(ringing(), larger), "\n")+"\n")
}

// Problems are shown by all views of a job that runs.
func TestProblemsShown(t *testing.T) {
	s := running()
	s.Problems = []string{"no space left on /out: waited for by worker-0", "no space\nleft on /state"}
	now := start.Add(35 * time.Second)
	for name, c := range map[string][]string{
		"screen": {screen(s, 100, 24, now),
			"problem: no space left on /out: waited for by worker-0\nproblem: no space; left on /state\n"},
		"status": {statusText(s, now),
			"Problem:   no space left on /out: waited for by worker-0\nProblem:   no space; left on /state\n"},
		"news": {strings.Join(news(running(), s), "\n") + "\n",
			"problem: no space left on /out: waited for by worker-0\nproblem: no space; left on /state\n"},
	} {
		if !strings.Contains(c[0], c[1]) {
			t.Errorf("%s: %s, want %s in it", name, c[0], c[1])
		}
	}
}

// All views of a job that makes no progress show that, and where its ranks stand.
func TestStuckShown(t *testing.T) {
	s, now := running(), start.Add(95*time.Second)
	s.Stuck = "rank 1 differs: sleep at data.py:12; rank 0: all_reduce\nat train.py:41"
	s.StuckSinceUnixMs = after(35 * time.Second)
	const where = "rank 1 differs: sleep at data.py:12; rank 0: all_reduce; at train.py:41\n"
	for name, c := range map[string][]string{
		"screen": {screen(s, 120, 24, now), "\nno progress for 1m: " + where},
		"status": {statusText(s, now), "Stuck:     no progress for 1m: " + where},
		"list":   {listText([]*wire.JobStatus{s}, false, now), "   NoProgress   "},
		"news":   {strings.Join(news(running(), s), "\n") + "\n", "no progress: " + where},
		"later":  {strings.Join(followNews(s, running()), "\n") + "\n", "no longer stuck\n"},
	} {
		if !strings.Contains(c[0], c[1]) {
			t.Errorf("%s: %s, want %s in it", name, c[0], c[1])
		}
	}
	if words := stuck(running(), now); words != "" {
		t.Errorf("a job that makes progress is stuck: %s", words)
	}
}

// The newest checkpoint is shown, and why the last attempt failed; a rollback is not shown as
// starting over.
func TestCheckpointShown(t *testing.T) {
	s := running()
	s.ModelGeneration, s.Rollbacks, s.RollbackReason = 102, 1,
		"the training returned to checkpoint 11 at version 300, with 19,200 of 22,000 records: ps-1 was lost"
	s.Checkpoint = &wire.Checkpoint{Dir: "/data/ckpt", Number: 12, Version: 340, Records: 35_200,
		UnixMs: after(56 * time.Second)}
	const words = "12 (version 340, 35,200 records), 4s ago, in /data/ckpt"
	golden(t, "status-checkpoint", statusText(s, start.Add(time.Minute)))
	golden(t, "screen-checkpoint", screen(s, 120, 24, start.Add(time.Minute)))
	for _, test := range []struct {
		change func(*wire.Checkpoint)
		want   string
	}{
		{func(*wire.Checkpoint) {}, words},
		{func(c *wire.Checkpoint) { c.Problem = "no room\nleft" }, words + "; the last one failed: no room; left"},
		{func(c *wire.Checkpoint) { c.Dir, c.Number, c.Problem = "s3://b/p", 0, "" }, "none yet, in s3://b/p"},
	} {
		if test.change(s.Checkpoint); saved(s, start.Add(time.Minute)) != test.want {
			t.Errorf("got %q, want %q", saved(s, start.Add(time.Minute)), test.want)
		}
	}
	if got := saved(running(), start); got != "" {
		t.Errorf("a job without checkpoints: %q", got)
	}
	done := ended("Succeeded", "")
	done.Checkpoint = &wire.Checkpoint{Dir: "/data/ckpt", Number: 2, Version: 9, Records: 1,
		UnixMs: done.EndedUnixMs - 3000}
	if text := summary(done, "logs"); !strings.Contains(text,
		"  checkpoint  2 (version 9, 1 record), 3s before the end, in /data/ckpt\n") {
		t.Error(text)
	}
}

// Each time that the training starts over, this is reported once, in every output.
func TestStartedOver(t *testing.T) {
	const words = "the training started over: ps-1 was lost with its part of the model: node lost; " +
		"50,000 records were trained on till then"
	for _, before := range []*wire.JobStatus{nil, running()} {
		if lines := news(before, lost(running())); !slices.Contains(lines, words) {
			t.Errorf("after %v: %q", before.GetModelGeneration(), lines)
		}
	}
	if lines := news(lost(running()), lost(running())); len(lines) != 0 {
		t.Errorf("said again: %q", lines)
	}
	// it starts over for the same reason, after the same number of records
	again := lost(running())
	again.Rollbacks, again.RecordsDone = 2, 0
	if lines := news(lost(running()), again); !slices.Equal(lines, []string{words}) {
		t.Errorf("the second time: %q", lines)
	}
	if text := statusText(again, start); !strings.Contains(text, ", rolled back 2 times\n") {
		t.Errorf("the second time:\n%s", text)
	}
	if text := summary(again, "logs"); !strings.Contains(text,
		"  model     rolled back 2 times; the last time: "+words+"\n") {
		t.Errorf("the second time:\n%s", text)
	}
	if got, want := verdict(lost(ended("Succeeded", ""))), "job test-mnist Succeeded; "+words+
		"; output in /state/jobs/test-mnist/model"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := verdict(lost(ended("Failed", "no worker\nis left"))),
		"job test-mnist Failed: no worker; is left; "+words; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := verdict(ended("Succeeded", "")),
		"job test-mnist Succeeded; output in /state/jobs/test-mnist/model"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	text := asJSON(lost(running()))
	var of struct {
		ModelGeneration int `json:"modelGeneration"`
		Rollbacks       int
		RollbackReason  string
	}
	if err := json.Unmarshal(text, &of); err != nil || of.ModelGeneration != 102 || of.Rollbacks != 1 ||
		!strings.HasPrefix(of.RollbackReason, "the training started over: ps-1 was lost") {
		t.Errorf("%v: %s", err, text)
	}
	made := running()
	// a server was lost before any record was trained on
	made.ModelGeneration = 2
	if text := statusText(made, start); strings.Contains(text, "life") ||
		strings.Contains(text, "anew") || strings.Contains(text, "went") {
		t.Errorf("nothing was lost:\n%s", text)
	}
}

// A failed process of a program is reported once, with the number of counted failures; the progress
// of a program without records is unknown.
func TestProgramFailureShown(t *testing.T) {
	const words = "rank 1 of worker-1 (pid 7678): killed by SIGKILL; the program starts again (not counted)"
	before := &wire.JobStatus{Name: "j", State: "Running", Type: "run", Program: "main.py", MaxRestarts: 3}
	s := &wire.JobStatus{Name: "j", State: "Running", Type: "run", Program: "main.py", MaxRestarts: 3,
		Restarts: 1, Failures: 2, Failure: words}
	if got, want := news(before, s), []string{"a process failed: " + words}; !slices.Equal(got, want) {
		t.Errorf("news %q, want %q", got, want)
	}
	if got := news(s, s); len(got) != 0 {
		t.Errorf("said again: %q", got)
	}
	text := statusText(s, start)
	for _, want := range []string{"2 of the program: 1 counted, 3 allowed (--max_restarts)\n", words + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the status:\n%s", want, text)
		}
	}
	if text := summary(s, "logs"); !strings.Contains(text, words+"\n") {
		t.Errorf("no %q in the summary:\n%s", words, text)
	}
	if text := statusText(before, start); strings.Contains(text, "ailure") {
		t.Errorf("nothing has failed:\n%s", text)
	}
	if text := listText([]*wire.JobStatus{s}, false, start); strings.Contains(text, "%") {
		t.Errorf("a progress that nobody knows:\n%s", text)
	}
}

// Failures of a program are shown with the number that counts; recoveries are shown without tasks
// if the program has none.
func TestRecoveryShown(t *testing.T) {
	for want, s := range map[string]*wire.JobStatus{
		"recovered from 1 failure, not counted against --max_restarts=0": {State: "Succeeded", Failures: 1},
		"1 failure, counted against --max_restarts=0":                    {State: "Failed", Failures: 1, Restarts: 1},
		"2 failures, none counted against --max_restarts=3": {State: "Running",
			Failures: 2, MaxRestarts: 3},
		"recovered from 3 failures, 2 counted against --max_restarts=3": {State: "Succeeded",
			Failures: 3, Restarts: 2, MaxRestarts: 3},
	} {
		if got := failures(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for want, s := range map[string]*wire.JobStatus{
		"":                                    {RecordsTotal: 9},
		"1 pod replaced":                      {Relaunched: 1},
		"2 pods replaced, 0 tasks taken back": {Relaunched: 2, RecordsTotal: 9},
		"0 pods replaced, 1 task taken back":  {Requeued: 1, RecordsTotal: 9},
	} {
		if got := recovery(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each event of a pod on a cluster is reported once, although its end is observed several times.
func TestNewsOfCluster(t *testing.T) {
	golden(t, "news-cluster", strings.Join(podNews(nil, clustered()), "\n")+"\n")
	gone := clustered()
	// the object is deleted; the master has not reported why
	gone.Pods[2].State = "Deleted"
	if lines := podNews(clustered(), gone); len(lines) != 0 {
		t.Errorf("ended: %q", lines)
	}
	known := clustered()
	known.Pods[2].State, known.Pods[2].Reason, known.Pods[2].Node, known.Pods[2].StartedUnixMs =
		"Failed", "preempted", "", 0
	known.Pods[2].EndedUnixMs = after(34 * time.Second)
	if lines := podNews(gone, known); !slices.Equal(lines, []string{"worker-0 Failed: preempted"}) {
		t.Errorf("known: %q", lines)
	}
	later := clustered()
	later.Pods[2].State, later.Pods[2].Reason = "Deleted", "preempted"
	later.Pods[0].State, later.Pods[0].Reason, later.Pods[0].Node = "Running", "", "node-1"
	later.Pods[4].State, later.Pods[4].Incarnation = "Pending", 2
	if lines := podNews(known, later); !slices.Equal(lines, []string{"ps-0 Pending", "worker-4 Running on node-1"}) {
		t.Errorf("later: %q", lines)
	}
}

// A change of the number of workers is complete when the wanted number of workers exist, and each
// runs or has a reason why it does not.
func TestSettled(t *testing.T) {
	// two are wanted: worker-1 runs, worker-4 has a reason why not, worker-0 leaves
	s := clustered()
	if settled(s) {
		t.Error("settled with one that leaves")
	}
	s.Pods[2].State = "Deleted"
	if !settled(s) {
		t.Error("not settled")
	}
	s.Pods[0].Reason = ""
	if settled(s) {
		t.Error("settled with one of which nothing is known")
	}
	s.Pods[0].State, s.Workers = "Running", 3
	if settled(s) {
		t.Error("settled with one too few")
	}
}

func TestCreated(t *testing.T) {
	created := []string{"job/a", "configmap/a", "configmap/a-state"}
	for i := range 9 {
		created = append(created, fmt.Sprintf("service/ps-%d", i))
	}
	if got, want := createdText(created),
		"  job a\n  configmap a, a-state\n  service ps-0, ps-1, ps-2, ps-3, ps-4 and 4 more\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// No line of the screen is wider than the terminal, however narrow, and the screen has at most the
// terminal's height less two.
func TestScreenFits(t *testing.T) {
	crowd := running()
	for i := range 200 {
		crowd.Pods = append(crowd.Pods, &wire.PodStatus{Role: wire.Role_WORKER, Index: int32(5 + i), State: "Running"})
	}
	for height := range 30 {
		text := screen(crowd, 80, height, start)
		if n := strings.Count(text, "\n"); n != max(1, height-2) || !strings.Contains(text, "lines more") {
			t.Fatalf("height %d: %d lines:\n%s", height, n, text)
		}
	}
	for width := range 120 {
		for line := range strings.Lines(screen(running(), width, 24, start)) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Fatalf("width %d: a line of %d: %q", width, n, line)
			}
		}
	}
}

// The screen is overwritten, events stay above it, and at the end only the events are left.
func TestLive(t *testing.T) {
	var out strings.Builder
	l := &live{out: &out, size: func() (int, int) { return 70, 24 }}
	l.show(running())
	first := out.String()
	height := strings.Count(first, "\n") - strings.Count(strings.Join(news(nil, running()), "\n")+"\n", "\n")
	if strings.Contains(first, "\x1b") || height < 4 {
		t.Errorf("first: %q, a screen of %d lines", first, height)
	}
	out.Reset()
	l.show(running())
	up := fmt.Sprintf("\x1b[%dA\r\x1b[J", height)
	if !strings.HasPrefix(out.String(), up+"test-mnist  Running") {
		t.Errorf("second: %q, want it to begin with %q and no news", out.String(), up)
	}
	out.Reset()
	last := ended("Failed", "worker-1 failed")
	last.Pods[1].State, last.Pods[1].Reason = "Failed", "out of memory"
	l.close(last)
	if want := up + "worker-1 Failed: out of memory\n"; out.String() != want {
		t.Errorf("end: %q, want %q", out.String(), want)
	}
}

// In a log, the progress is one line every two seconds.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := &lines{out: &out}
		for range 21 {
			l.show(running())
			time.Sleep(refresh) // by the clock of the synctest bubble
		}
		last := ended("Succeeded", "")
		last.Evaluated = 3
		last.Evaluations = append(last.Evaluations,
			&wire.Evaluation{Version: 1875, Metrics: map[string]float64{"accuracy": 0.9712}})
		l.close(last)
		if n := strings.Count(out.String(), "44,032/120,000 records"); n != 3 {
			t.Errorf("%d lines of progress in 5 s, want 3:\n%s", n, &out)
		}
		if want := "Evaluation metrics[v=1875]: {'accuracy': 0.9712}\n"; !strings.HasSuffix(
			out.String(), want) || strings.Contains(out.String(), "Succeeded") {
			t.Errorf("got:\n%s\nwant it to end with %s, and no word of the pods' end", &out, want)
		}
	})
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 35 * time.Second: "35s", 123 * time.Second: "2m3s", 5 * time.Minute: "5m",
		12*time.Minute + 3*time.Second: "12m",
		200 * time.Minute:              "3h20m", 3 * time.Hour: "3h", 10 * time.Hour: "10h", 100 * time.Hour: "4d",
		59*time.Second + 700*time.Millisecond: "1m",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// The result shows the place of the model, or that it is not kept.
func TestResultShown(t *testing.T) {
	for want, s := range map[string]*wire.JobStatus{
		"/m":                             {State: "Succeeded", Output: "/m"},
		"/m, when the job has succeeded": {State: "Suspended", Output: "/m"},
		"the model was not kept: the job had no --output and no --volume with a claim_name": {
			State: "Succeeded", RecordsTotal: 1,
		},
		"the model will not be kept: the job has no --output and no --volume with a claim_name": {
			State: "Running", RecordsTotal: 1,
		},
		"the model is in checkpoint 7 only, in s3://b/c": {
			State: "Succeeded", Checkpoint: &wire.Checkpoint{Number: 7, Dir: "s3://b/c"},
		},
		"": {State: "Failed", Output: "/m"},
	} {
		if got := result(s); got != want {
			t.Errorf("%v: %q, want %q", s, got, want)
		}
	}
	if got := result(&wire.JobStatus{State: "Succeeded", Type: "evaluate"}); got != "" {
		t.Errorf("of an evaluation: %q", got)
	}
}

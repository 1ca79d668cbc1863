package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// reports waits for a heartbeat whose reports satisfy a condition, and returns them.
func (h *hall) reports(what string, ok func([]*wire.ProcessReport) bool) []*wire.ProcessReport {
	h.Helper()
	var last []*wire.ProcessReport
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if last = next(h, "a heartbeat", h.beats).Processes; ok(last) {
			return last
		}
	}
	h.Fatalf("no heartbeat reports %s; the last: %v", what, last)
	return nil
}

// Heartbeats report the running processes, with the CPU use of each and its children, and its last
// output, until they end.
func TestReportsSignsOfLife(t *testing.T) {
	const script = `echo "local $LOCAL_RANK pid $$ hears it"
if [ $LOCAL_RANK = 0 ]; then printf ' 10%%|#\r 20%%|##\r\377'; sh -c 'while :; do :; done'; fi
sleep 1000`
	h, a := open(t, 2, "/bin/sh", "-c", script)
	h.give(a)
	pids := h.hear("it", 0, 1)
	all := h.reports("a worker and a sleeper", func(all []*wire.ProcessReport) bool {
		return len(all) == 2 && all[0].Cores > 0.01 && all[1].Cores >= 0 && all[0].QuietMs >= 0
	})
	for i, want := range []string{`\xff`, "local 1 pid"} {
		r := all[i]
		if int(r.Rank) != i || int(r.Local) != i || int(r.Pid) != pids[i] ||
			!strings.HasPrefix(r.Output, want) || r.QuietMs < 0 {
			t.Errorf("%v, want rank %d, pid %d, %q", r, i, pids[i], want)
		}
	}
	if all[1].Cores >= all[0].Cores {
		t.Errorf("a process that sleeps uses %v cores, one that computes %v", all[1].Cores, all[0].Cores)
	}
	h.recall(1, true)
	h.give(h.arrival())
	h.hear("it", 0, 1)
	h.reports("the processes of the next world", func(all []*wire.ProcessReport) bool {
		return len(all) == 2 && int(all[0].Pid) != pids[0] && int(all[1].Pid) != pids[1]
	})
}

// A process that joins with the Python package has no rank until it gets a world.
func TestReportsNoRankYet(t *testing.T) {
	h, a := openWith(t, Config{Grace: time.Second, Keeps: true}, 1, self()...)
	h.reports("no rank", func(all []*wire.ProcessReport) bool { return len(all) == 1 && all[0].Rank == -1 })
	h.give(a)
	h.hear("world 1", 0)
	h.reports("rank 0", func(all []*wire.ProcessReport) bool { return len(all) == 1 && all[0].Rank == 0 })
}

// The vitals of processes are sampled only while all are quiet: that is expensive.
func TestQuiet(t *testing.T) {
	now := time.Unix(100, 0)
	after := func(d time.Duration) sign { return sign{output: program.Output{Line: "x", At: now.Add(-d)}} }
	for want, all := range map[bool][]map[int]sign{
		true:  {{}, {1: {}}, {1: after(quietAfter), 2: {}}, {1: after(time.Hour), 2: after(time.Minute)}},
		false: {{1: after(quietAfter - 1), 2: {}}, {1: after(time.Hour), 2: after(0)}, {1: after(-time.Hour)}},
	} {
		for i, seen := range all {
			if got := quiet(seen, now); got != want {
				t.Errorf("%d: quiet: %v, want %v", i, got, want)
			}
		}
	}
}

// Reports do not contain the values of secrets.
func TestReportsNoSecret(t *testing.T) {
	t.Setenv("TOKEN", "hunter2hunter2")
	t.Setenv("EMPTY", "")
	a := &agent{Config: Config{
		Job: &job.Job{EnvSecrets: map[string]job.SecretRef{"TOKEN": {}, "EMPTY": {}, "MISSING": {}}}}}
	var found bool
	for _, value := range a.secrets() {
		found = found || value == "hunter2hunter2"
	}
	if !found {
		t.Error("the value of --env_secret is not known")
	}
}

// A report has the age of the output, by one clock, and marks values that are not known yet.
func TestReports(t *testing.T) {
	at := time.Unix(100, 0)
	s := signs{
		shown: []shown{{local: 0, rank: 4, pid: 10}, {local: 1, rank: 5, pid: 11},
			{local: 2, rank: -1, pid: 12}, {local: 3, rank: 6, pid: 13}},
		seen: map[int]sign{
			9:  {cores: 1, output: program.Output{Line: "of a process that has ended", At: at}},
			10: {cores: 1.256, output: program.Output{Line: "step 1", At: at}},
			11: {cores: -1, vital: &program.Vital{Ready: true, Moved: 7, Held: true}},
			13: {output: program.Output{Line: "ahead", At: at.Add(time.Hour)}},
		},
	}
	all := s.reports(at.Add(1500 * time.Millisecond))
	for i, want := range []*wire.ProcessReport{
		{Rank: 4, Local: 0, Pid: 10, Cores: 1.26, Output: "step 1", QuietMs: 1500, Moved: -1},
		{Rank: 5, Local: 1, Pid: 11, Cores: -1, QuietMs: -1, Ready: true, Moved: 7, Held: true},
		{Rank: -1, Local: 2, Pid: 12, Cores: -1, QuietMs: -1, Moved: -1},
		{Rank: 6, Local: 3, Pid: 13, Output: "ahead", Moved: -1},
	} {
		if len(all) != 4 || all[i].String() != want.String() {
			t.Errorf("%v, want %v", all, want)
		}
	}
}

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

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
		t.Errorf("%s (go test -update writes it anew):\ngot:\n%s\nwant:\n%s", path, text, want)
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) int64 { return start.Add(d).UnixMilli() }

// running is a job that has lost worker-0 a moment ago.
func running() *wire.JobStatus {
	return &wire.JobStatus{
		Name: "test-mnist", State: "Running", Strategy: "ParameterServerStrategy", StartedUnixMs: after(0),
		Epoch: 1, Epochs: 2, RecordsDone: 44_032, RecordsTotal: 120_000, RecordsPerSecond: 8123.4,
		Version: 688, Loss: 0.12345, Relaunched: 1, Requeued: 2,
		Evaluations: []*wire.Evaluation{
			{Version: 200, Metrics: map[string]float64{"accuracy": 0.9051}},
			{Version: 400, Metrics: map[string]float64{"accuracy": 0.95312, "auc": 0.991}},
		},
		Pods: []*wire.PodStatus{
			{Role: wire.Role_WORKER, Index: 4, State: "Pending"},
			{Role: wire.Role_WORKER, Index: 1, State: "Running", Pid: 1204, StartedUnixMs: after(2 * time.Second)},
			{Role: wire.Role_WORKER, Index: 0, State: "Failed", Reason: "killed by signal 9", Pid: 1203, StartedUnixMs: after(2 * time.Second), EndedUnixMs: after(33 * time.Second)},
			{Role: wire.Role_PS, Index: 1, State: "Running", Pid: 1202, Address: "127.0.0.1:40002", StartedUnixMs: after(time.Second)},
			{Role: wire.Role_PS, Index: 0, State: "Running", Pid: 1201, Address: "127.0.0.1:40001", StartedUnixMs: after(time.Second)},
			{Role: wire.Role_MASTER, State: "Running", Pid: 1200, Address: "127.0.0.1:40000", StartedUnixMs: after(0)},
		},
	}
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
	begun := &wire.JobStatus{Name: "test-mnist", State: "Pending", StartedUnixMs: after(0), Pods: []*wire.PodStatus{{Role: wire.Role_MASTER, State: "Running"}}}
	golden(t, "screen", screen(running(), 100, now))
	golden(t, "screen-narrow", screen(running(), 40, now))
	golden(t, "screen-begun", screen(begun, 80, start.Add(time.Second)))
	golden(t, "line", progressLine(running(), now)+"\n")
	golden(t, "status", statusText(running(), now))
	golden(t, "status-failed", statusText(ended("Failed", "task of shard a.recordio failed 3 times: record 7: no label"), now))
	golden(t, "status-empty", statusText(&wire.JobStatus{Name: "j", State: "Pending"}, now))
	golden(t, "list", listText([]*wire.JobStatus{ended("Succeeded", ""), running(), begun}, now))
	golden(t, "summary", summary(ended("Succeeded", ""), "/state/jobs/test-mnist/logs", "model"))
	golden(t, "summary-failed", summary(ended("Failed", "all workers failed"), "/state/jobs/test-mnist/logs", "model"))
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
	later.Pods[4].Pid, later.Pods[4].StartedUnixMs = 1301, after(37*time.Second) // a server that was replaced
	later.Evaluations = append(later.Evaluations, &wire.Evaluation{Version: 600, Metrics: map[string]float64{"accuracy": 0.9612}})
	golden(t, "news-later", strings.Join(news(running(), later), "\n")+"\n")
}

// No line of the screen is wider than the terminal, however narrow.
func TestScreenFits(t *testing.T) {
	for width := range 120 {
		for line := range strings.Lines(screen(running(), width, start)) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Fatalf("width %d: a line of %d: %q", width, n, line)
			}
		}
	}
}

func TestModel(t *testing.T) {
	var m tea.Model = model{width: 80}
	if m.View() != "" {
		t.Errorf("before the first status: %q", m.View())
	}
	m, _ = m.Update(tea.WindowSizeMsg{Width: 60})
	m, _ = m.Update(running())
	if want := "test-mnist  Running"; !strings.HasPrefix(m.View(), want) {
		t.Errorf("got %q, want it to begin with %q", m.View(), want)
	}
	m, cmd := m.Update(over{})
	if m.View() != "" || cmd == nil {
		t.Errorf("at the end: %q, want nothing, and to quit", m.View())
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 35 * time.Second: "35s", 123 * time.Second: "2m3s", 5 * time.Minute: "5m", 12*time.Minute + 3*time.Second: "12m",
		200 * time.Minute: "3h20m", 3 * time.Hour: "3h", 10 * time.Hour: "10h", 100 * time.Hour: "4d", 59*time.Second + 700*time.Millisecond: "1m",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestCommas(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -100: "-100", -1000: "-1,000"} {
		if got := commas(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

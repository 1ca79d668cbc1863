package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/generated"
	"github.com/elasticdl/elasticdl/test/prometheus"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

const (
	repository = "../../.."
	monitoring = repository + "/examples/monitoring"
)

// The tables of docs/metrics.md are those of the metrics; -update writes them.
func TestPage(t *testing.T) {
	titles := []struct{ role, title string }{{ofMaster, "Master"}, {ofServer, "Parameter servers"},
		{ofWorker, "Workers, and the processes of programs"}}
	var b strings.Builder
	for _, of := range titles {
		fmt.Fprintf(&b, "### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", of.title)
		for _, m := range All() {
			if m.Role == of.role {
				labels := ""
				if len(m.Labels) > 0 {
					labels = "`" + strings.Join(m.Labels, "`, `") + "`"
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Help)
			}
		}
		b.WriteString("\n")
	}
	generated.Tables(t, filepath.Join(repository, "docs/metrics.md"), b.String(), *update,
		"go test ./trainer/runtime/metrics -run TestPage -update")
}

// Every metric has a name of its own, a help text that is a sentence, and a name by its type.
func TestTable(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range All() {
		if seen[m.Name] || !strings.HasPrefix(m.Name, "elasticdl_") || !strings.HasSuffix(m.Help, ".") ||
			strings.HasSuffix(m.Name, "_total") != (m.Type == Counter) || slices.Contains(m.Labels, JobLabel) {
			t.Errorf("%+v", m)
		}
		seen[m.Name] = true
	}
}

var (
	// a metric with its matchers
	selector = regexp.MustCompile(`\b((?:elasticdl|process|go)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	// labels by which an expression groups or joins
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
	// labels of a legend
	legend = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)
)

// targetLabels are those that Prometheus adds to each series, or a rule to each alert.
var targetLabels = []string{"namespace", "pod", "instance", "job", JobLabel}

// checkExpression checks that an expression uses only metrics and labels that exist.
func checkExpression(t *testing.T, where, expr, legendFormat string) {
	t.Helper()
	known := slices.Clone(targetLabels)
	found := selector.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 {
		t.Errorf("%s uses no metric: %s", where, expr)
	}
	for _, f := range found {
		name, labels := f[1], []string(nil)
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok {
				if m := find(base); m != nil && m.Type == Histogram {
					name, labels = base, []string{"le"}
				}
			}
		}
		m := find(name)
		switch {
		case m != nil:
			labels = append(labels, m.Labels...)
		case !slices.Contains([]string{"process_cpu_seconds_total", "process_resident_memory_bytes"}, name):
			t.Errorf("%s uses %s, which does not exist", where, name)
		}
		for _, l := range matcher.FindAllStringSubmatch(f[2], -1) {
			if !slices.Contains(labels, l[1]) && !slices.Contains(targetLabels, l[1]) {
				t.Errorf("%s uses label %s of %s, which has %q", where, l[1], name, labels)
			}
		}
		known = append(known, labels...)
	}
	var used []string
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		used = append(used, strings.FieldsFunc(g[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, l := range legend.FindAllStringSubmatch(legendFormat, -1) {
		used = append(used, l[1])
	}
	for _, l := range used {
		if !slices.Contains(known, l) {
			t.Errorf("%s uses label %s, and its metrics have %q", where, l, known)
		}
	}
}

func find(name string) *Metric {
	at := slices.IndexFunc(All(), func(m *Metric) bool { return m.Name == name })
	if at < 0 {
		return nil
	}
	return All()[at]
}

// The board shows metrics that exist, by labels that they have, each metric of a job at least once
// but for those that only describe it.
func TestBoard(t *testing.T) {
	board := prometheus.ReadBoard(t, filepath.Join(monitoring, "grafana.json"))
	if len(board.Panels) < 10 {
		t.Fatalf("%d panels", len(board.Panels))
	}
	shown := make(map[string]bool)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			checkExpression(t, "panel "+p.Title, target.Expr, target.LegendFormat)
			for _, f := range selector.FindAllStringSubmatch(target.Expr, -1) {
				shown[strings.TrimSuffix(f[1], "_bucket")] = true
			}
		}
	}
	if len(shown) < 25 {
		t.Errorf("only %d metrics are shown: %q", len(shown), slices.Sorted(maps.Keys(shown)))
	}
	// the variable of the board names a job
	text, err := json.Marshal(board)
	if err != nil || find("elasticdl_job_info") == nil {
		t.Errorf("%s, %v", text, err)
	}
}

// The alerts use metrics that exist, each with its runbook.
func TestAlerts(t *testing.T) {
	rules := prometheus.ReadRules(t, filepath.Join(monitoring, "alerts.yml"))
	if len(rules) != 3 {
		t.Fatalf("%d alerts", len(rules))
	}
	for _, r := range rules {
		checkExpression(t, r.Alert, r.Expr, "")
		if lines := strings.Split(strings.TrimSpace(r.Annotations["description"]), "\n"); len(lines) < 3 ||
			r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s: %q, want a summary, a severity and a runbook", r.Alert, r.Annotations)
		}
	}
}

// Prometheus accepts the files of the example, the expressions of the board, and each alert fires
// for its cause alone.
func TestPromtool(t *testing.T) {
	promtool := prometheus.Program(t, "promtool")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(monitoring)); err != nil {
		t.Fatal(err)
	}
	// The Prometheus of Debian has no discovery of Kubernetes.
	text, err := os.ReadFile(filepath.Join(dir, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), "    kubernetes_sd_configs:\n")
	at := strings.Index(rest, "    relabel_configs:")
	if !found || at < 0 {
		t.Fatalf("no discovery in:\n%s", text)
	}
	cut := head + "    static_configs: [{targets: [localhost]}]\n" + rest[at:]
	rules := strings.Builder{}
	rules.WriteString("groups:\n- name: board\n  rules:\n")
	for i, expr := range prometheus.ReadBoard(t, filepath.Join(monitoring, "grafana.json")).Expressions() {
		fmt.Fprintf(&rules, "  - {record: 'panel:%d', expr: %q}\n", i, expr)
	}
	for name, content := range map[string]string{"prometheus.yml": cut, "board.yml": rules.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"check", "rules", "board.yml"},
		{"check", "config", "prometheus.yml"}, {"check", "config", "local.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

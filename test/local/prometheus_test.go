package local_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/test/prometheus"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const monitoring = "../../examples/monitoring"

// freePort returns a port of this machine that nobody uses, and that the kernel gives to nobody.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.N(10_000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// scrape starts Prometheus with the example's configuration for this machine, at another port, and
// with shorter intervals.
func scrape(t *testing.T, port int) *prometheus.Server {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(monitoring)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "local.yml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("9108", strconv.Itoa(port), "5s", "500ms").Replace(string(text))
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return prometheus.Start(t, dir, "local.yml")
}

// Prometheus scrapes all processes of a job that loses a worker and then its master. The series
// show the lost and the replaced worker, the recovery, and what the first master had counted.
func TestPrometheus(t *testing.T) {
	port := freePort(t)
	j := train(t, patient, "--num_epochs=4", "--checkpoint_interval=1s", fmt.Sprintf("--metrics_port=%d", port))
	p := scrape(t, port)
	j.until("training", trained(0.02))
	// the master, two servers and four workers
	p.Until(t, `count(up == 1) == 7`)
	for _, expr := range []string{
		`elasticdl_job_state{job_name="story",state="Running",pod="master"} == 1`,
		`elasticdl_job_condition{condition="Running"} == 1`, `elasticdl_job_records_expected == 40000`,
		`elasticdl_job_pods{role="worker",state="Running"} == 4`, `elasticdl_job_tasks{state="leased"} > 0`,
		`elasticdl_worker_pushed_bytes_total{pod="worker-1"} > 1000`, `elasticdl_worker_pulled_bytes_total > 1000`,
		`elasticdl_worker_steps_total{pod="worker-3"} > 0`,
		`elasticdl_ps_gradients_total{pod="ps-1",result="accepted"} > 0`,
		`elasticdl_ps_received_bytes_total > 1000`, `elasticdl_ps_checkpoint_written_bytes_total{pod="ps-0"} > 0`,
		`elasticdl_ps_checkpoint_stall_seconds_total > 0`, `elasticdl_job_checkpoint_duration_seconds > 0`,
		`elasticdl_job_checkpoint_size_bytes > 1000`, `time() - elasticdl_job_checkpoint_timestamp_seconds < 60`,
		`process_resident_memory_bytes{pod="ps-0"} > 1e6`,
		`go_goroutines{pod="worker-0"} > 1`, `sum(elasticdl_job_pods_lost_total) == 0`,
	} {
		p.Until(t, expr)
	}
	j.kill(pod(j.status(), wire.Role_WORKER, 2), syscall.SIGKILL)
	p.Until(t, `elasticdl_job_pods_lost_total{role="worker",cause="killed"} == 1`)
	p.Until(t, `elasticdl_job_pods_replaced_total == 1`)
	p.Until(t, `elasticdl_job_recovery_seconds_count >= 1 and elasticdl_job_recovery_seconds_sum > 0`)
	p.Until(t, `up{pod="worker-4"} == 1`)

	if err := syscall.Kill(j.master(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Until(t, `elasticdl_job_journal_entries_total{kind="MasterLost"} == 1`)
	p.Until(t, `elasticdl_job_pods_lost_total{role="worker",cause="killed"} == 1`)
	p.Until(t, `elasticdl_job_pods_replaced_total == 1 and elasticdl_job_records_done > 0`)
	p.Until(t, `count(up == 1) == 7`)
	// resets drops the names of metrics, which are a label before
	const counters = `{__name__=~"elasticdl_job_.*_total|elasticdl_job_recovery_seconds_count"}`
	fell, err := p.Query(`resets(label_replace(` + counters + `, "metric", "$1", "__name__", "(.+)")[10m:500ms]) > 0`)
	if err != nil || len(fell) > 0 {
		t.Errorf("counters that fell: %v, %v", fell, err)
	}
	checkBoard(t, p)
	j.hurry()
	succeeded(t, j.end(0), 4)
}

// checkBoard has Prometheus evaluate the expressions of the board.
func checkBoard(t *testing.T, p *prometheus.Server) {
	t.Helper()
	shown := 0
	all := prometheus.ReadBoard(t, filepath.Join(monitoring, "grafana.json")).Expressions()
	for _, expr := range all {
		samples, err := p.Query(expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
		}
		if len(samples) > 0 {
			shown++
		}
	}
	// those of a ring and of programs are empty
	if shown < len(all)*2/3 {
		t.Errorf("%d of %d expressions of the board have samples", shown, len(all))
	}
}

// The ranks of a program are seen: how much CPU and memory they use, and when they last wrote.
func TestPrometheusSeesRanks(t *testing.T) {
	port := freePort(t)
	launch(t, "run", "--num_workers=2", fmt.Sprintf("--metrics_port=%d", port), "--",
		"/bin/sh", "-c", "while :; do echo step; sleep 1; done")
	p := scrape(t, port)
	p.Until(t, `count(up == 1) == 3`)
	for _, expr := range []string{`count(elasticdl_rank_memory_bytes > 100000) == 2`,
		`elasticdl_rank_cpu_cores{rank="1",local_rank="0"} >= 0`,
		`count(time() - elasticdl_rank_last_output_timestamp_seconds < 60) == 2`,
		`elasticdl_job_world_size == 2`, `elasticdl_job_info{type="run"}`} {
		p.Until(t, expr)
	}
}

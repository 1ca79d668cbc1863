package metrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/worker"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// fullStatus is the status of a job that has something of everything.
func fullStatus(workers int) (*wire.JobStatus, master.Measures) {
	s := &wire.JobStatus{
		Name: "test-mnist", State: string(job.Running), Type: string(job.Run), Strategy: string(job.ParameterServer),
		Epoch: 2, Epochs: 4, RecordsDone: 150, RecordsTotal: 400, RecordsPerSecond: 12.5, Version: 30, Loss: 0.5,
		ModelGeneration: 2, Relaunched: 3, Requeued: 4, Failures: 6, Restarts: 5, Workers: int32(workers),
		World: 7, WorldSize: int32(workers), StartedUnixMs: 1_500, Problems: []string{"a full disk"},
		Evaluations: []*wire.Evaluation{{Version: 10, Metrics: map[string]float64{"accuracy": 0.1}},
			{Version: 20, Metrics: map[string]float64{"accuracy": 0.75}}},
		Accounting: &wire.Accounting{WantedMs: 9_000, TrainingMs: 4_000,
			Lost: []*wire.LostTime{{Cause: "queue", Ms: 1_500}, {Cause: "of a newer version", Ms: 1}},
			Slow: []*wire.SlowWorker{{Worker: 1}, {Worker: 2}}},
		Checkpoint: &wire.Checkpoint{Number: 9, Records: 140, UnixMs: 2_500},
		Conditions: []*wire.Condition{{Type: journal.Running, Status: "True"}, {Type: journal.Failed, Status: "False"}},
		Pods: []*wire.PodStatus{{Role: wire.Role_PS, State: "Running"},
			{Role: wire.Role_WORKER, Index: 10_000, State: "Failed"}},
	}
	for i := range workers {
		is := "Running"
		if i == 0 {
			is = "Pending"
		}
		s.Pods = append(s.Pods, &wire.PodStatus{Role: wire.Role_WORKER, Index: int32(i), State: is})
	}
	var j journal.Journal
	now := time.UnixMilli(1000)
	for _, e := range []journal.Entry{{Kind: journal.PodLost, Pod: "worker-1", Cause: "killed"},
		{Kind: journal.PodEnded, Pod: "worker-1", Cause: "deleted"},
		{Kind: journal.PodFailed, Pod: "worker-2", Cause: "out of memory"}, {Kind: journal.TrainingRolledBack},
		{Kind: journal.TrainingStartedOver}, {Kind: journal.Recovered, Seconds: 0.2},
		{Kind: journal.Recovered, Seconds: 2}, {Kind: journal.Recovered, Seconds: 1000}} {
		j.Add(e, now)
	}
	return s, master.Measures{Totals: j.Totals(), Restored: true, Pending: 11, Leased: 12, CheckpointBytes: 1 << 20,
		CheckpointTook: 1500 * time.Millisecond,
		Addresses:      map[pod.ID]string{{Role: pod.Worker, Index: 1}: "127.0.0.1:5"}}
}

// samples returns the samples of a source by name and labels. It fails if a metric of the source's
// role, or a label, is not that of the table.
func samples(t testing.TB, s Source) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("names: %v, %v", problems, err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		at := slices.IndexFunc(All(), func(m *Metric) bool { return m.Name == f.GetName() && m.Role == s.role })
		if at < 0 {
			t.Fatalf("%s is not in the table of %s", f.GetName(), s.role)
		}
		for _, m := range f.Metric {
			var labels, names []string
			for _, l := range m.Label {
				names = append(names, l.GetName())
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if want := slices.Sorted(slices.Values(All()[at].Labels)); !slices.Equal(names, want) {
				t.Errorf("%s has labels %q, want %q", f.GetName(), names, want)
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.Histogram != nil:
				all[name+"_count"], all[name+"_sum"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.Bucket {
					all[fmt.Sprintf("%s_le_%v", name, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			case m.Counter != nil:
				all[name] = m.Counter.GetValue()
			default:
				all[name] = m.Gauge.GetValue()
			}
		}
	}
	return all
}

// expect compares samples with those that are expected, and with the metrics of a role, each of
// which must have a sample.
func expect(t *testing.T, got map[string]float64, role string, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if has, ok := got[name]; !ok || math.Abs(has-value) > 1e-6 {
			t.Errorf("%s is %v, %t, want %v", name, has, ok, value)
		}
	}
	for _, m := range All() {
		if m.Role == role && !slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(name string) bool {
			return name == m.Name || strings.HasPrefix(name, m.Name+"{") || strings.HasPrefix(name, m.Name+"_")
		}) {
			t.Errorf("%s has no sample", m.Name)
		}
	}
}

// The metrics of a master are its status, its journal and its measures.
func TestMaster(t *testing.T) {
	var m Master
	if got := samples(t, m.Source()); len(got) != 0 {
		t.Errorf("before the first status: %v", got)
	}
	m.Publish(fullStatus(4))
	expect(t, samples(t, m.Source()), ofMaster, map[string]float64{
		"elasticdl_job_info{strategy=ParameterServerStrategy,type=run}":  1,
		"elasticdl_job_state{state=Running}":                             1,
		"elasticdl_job_state{state=Suspended}":                           0,
		"elasticdl_job_condition{condition=Running}":                     1,
		"elasticdl_job_condition{condition=Failed}":                      0,
		"elasticdl_job_start_time_seconds":                               1.5,
		"elasticdl_job_problems":                                         1,
		"elasticdl_job_workers_wanted_seconds":                           9,
		"elasticdl_job_trained_seconds":                                  4,
		"elasticdl_job_lost_seconds{cause=queue}":                        1.5,
		"elasticdl_job_lost_seconds{cause=rollback}":                     0,
		"elasticdl_job_slow_workers":                                     2,
		"elasticdl_job_records_done":                                     150,
		"elasticdl_job_records_expected":                                 400,
		"elasticdl_job_records_per_second":                               12.5,
		"elasticdl_job_epoch":                                            2,
		"elasticdl_job_epochs":                                           4,
		"elasticdl_job_model_version":                                    30,
		"elasticdl_job_model_generation":                                 2,
		"elasticdl_job_loss":                                             0.5,
		"elasticdl_job_evaluation{metric=accuracy}":                      0.75,
		"elasticdl_job_tasks{state=pending}":                             11,
		"elasticdl_job_tasks{state=leased}":                              12,
		"elasticdl_job_leases_returned_total":                            4,
		"elasticdl_job_workers_wanted":                                   4,
		"elasticdl_job_pods{role=worker,state=Running}":                  3,
		"elasticdl_job_pods{role=worker,state=Pending}":                  1,
		"elasticdl_job_pods{role=worker,state=Leaving}":                  0,
		"elasticdl_job_pods{role=ps,state=Running}":                      1,
		"elasticdl_job_world_size":                                       4,
		"elasticdl_job_world_generation":                                 7,
		"elasticdl_job_pods_lost_total{cause=killed,role=worker}":        1,
		"elasticdl_job_pods_lost_total{cause=out of memory,role=worker}": 1,
		"elasticdl_job_pods_lost_total{cause=preempted,role=ps}":         0,
		"elasticdl_job_pods_replaced_total":                              3,
		"elasticdl_job_rollbacks_total":                                  2,
		"elasticdl_job_program_failures_total":                           6,
		"elasticdl_job_program_restarts_total":                           5,
		"elasticdl_job_journal_entries_total{kind=Recovered}":            3,
		"elasticdl_job_journal_entries_total{kind=PodEnded}":             1,
		"elasticdl_job_recovery_seconds_count":                           3,
		"elasticdl_job_recovery_seconds_sum":                             1002.2,
		"elasticdl_job_recovery_seconds_le_0.1":                          0,
		"elasticdl_job_recovery_seconds_le_0.25":                         1,
		"elasticdl_job_recovery_seconds_le_1":                            1,
		"elasticdl_job_recovery_seconds_le_2.5":                          2,
		"elasticdl_job_recovery_seconds_le_600":                          2,
		"elasticdl_job_checkpoint_timestamp_seconds":                     2.5,
		"elasticdl_job_checkpoint_records":                               140,
		"elasticdl_job_checkpoint_size_bytes":                            1 << 20,
		"elasticdl_job_checkpoint_duration_seconds":                      1.5,
	})
	if got := samples(t, m.Source()); got["elasticdl_job_pods_lost_total{cause=deleted,role=worker}"] != 0 {
		t.Errorf("an ordered end is a loss: %v", got)
	}
	if got := m.Targets(); !maps.Equal(got, map[string]string{"worker-1": "127.0.0.1:5"}) {
		t.Errorf("targets %v", got)
	}
}

// While a master has yet to learn what its predecessors have counted, nothing falls: those counters
// are absent, and the journal's are complete.
func TestMasterComesBack(t *testing.T) {
	var m Master
	s, more := fullStatus(2)
	m.Publish(s, more)
	before := samples(t, m.Source())
	s, more = fullStatus(2)
	s.Relaunched, s.Requeued, s.RecordsDone, s.Failures, s.Restarts, more.Restored = 0, 0, 0, 0, 0, false
	m.Publish(s, more)
	for name, value := range samples(t, m.Source()) {
		if was := before[name]; strings.Contains(name, "_total") && value < was {
			t.Errorf("%s falls from %v to %v", name, was, value)
		}
		if strings.HasPrefix(name, "elasticdl_job_records") || strings.HasPrefix(name, "elasticdl_job_checkpoint") {
			t.Errorf("%s is %v", name, value)
		}
	}
}

// The checkpoints of a program are those that it writes by the package. A job without a checkpoint
// has no time of one.
func TestCheckpointTime(t *testing.T) {
	const name = "elasticdl_job_checkpoint_timestamp_seconds"
	var m Master
	m.Publish(&wire.JobStatus{Saved: &wire.Saved{UnixMs: 4_000}}, master.Measures{Restored: true})
	if got := samples(t, m.Source()); got[name] != 4 {
		t.Errorf("%v", got)
	}
	m.Publish(&wire.JobStatus{Checkpoint: &wire.Checkpoint{Dir: "/c"}}, master.Measures{Restored: true})
	if got, has := samples(t, m.Source())[name]; has {
		t.Errorf("%v without a checkpoint", got)
	}
}

// The number of series of a master does not depend on the number of its workers.
func TestSeriesDoNotGrow(t *testing.T) {
	var m Master
	m.Publish(fullStatus(2))
	few := len(samples(t, m.Source()))
	m.Publish(fullStatus(1000))
	if many := len(samples(t, m.Source())); many != few {
		t.Errorf("%d series with 1000 workers, %d with 2", many, few)
	}
}

func TestServer(t *testing.T) {
	var b Beats
	var m ps.Meter
	b.Beat(&wire.HeartbeatRequest{Version: 5}, time.Now())
	m.Received.Add(100)
	m.Sent.Add(200)
	m.Accepted.Add(7)
	m.Stale.Add(2)
	m.Held.Add(int64(1500 * time.Millisecond))
	m.Written.Add(300)
	expect(t, samples(t, OfServer(&b, &m)), ofServer, map[string]float64{
		"elasticdl_ps_model_version": 5, "elasticdl_ps_received_bytes_total": 100, "elasticdl_ps_sent_bytes_total": 200,
		"elasticdl_ps_gradients_total{result=accepted}": 7, "elasticdl_ps_gradients_total{result=stale}": 2,
		"elasticdl_ps_gradients_total{result=cut}": 0, "elasticdl_ps_gradients_total{result=repeated}": 0,
		"elasticdl_ps_checkpoint_stall_seconds_total": 1.5, "elasticdl_ps_checkpoint_written_bytes_total": 300,
	})
}

// The processes of a program are described as their agent reports them. This process is one.
func TestWorker(t *testing.T) {
	var b Beats
	var m worker.Meter
	pid := int32(pidOfTest())
	b.Beat(&wire.HeartbeatRequest{Steps: 8, Loss: 0.25, Rejected: 3, Generation: 2,
		Leases: make([]*wire.LeaseProgress, 2),
		Processes: []*wire.ProcessReport{{Rank: 4, Pid: pid, Cores: 1.5, QuietMs: 2_000},
			{Rank: -1, Local: 1, Pid: 1 << 30, Cores: -1, QuietMs: -1}}}, time.UnixMilli(10_000))
	m.Servers.Pushed.Add(1)
	m.Servers.Pulled.Add(2)
	m.Ring.Sent.Add(3)
	m.Ring.Received.Add(4)
	m.Held.Add(int64(time.Second))
	m.Written.Add(5)
	got := samples(t, OfWorker(&b, &m))
	expect(t, got, ofWorker, map[string]float64{
		"elasticdl_worker_steps_total": 8, "elasticdl_worker_loss": 0.25,
		"elasticdl_worker_gradients_rejected_total": 3,
		"elasticdl_worker_leases":                   2, "elasticdl_worker_world_generation": 2, "elasticdl_worker_pushed_bytes_total": 1,
		"elasticdl_worker_pulled_bytes_total": 2, "elasticdl_worker_ring_sent_bytes_total": 3,
		"elasticdl_worker_ring_received_bytes_total": 4, "elasticdl_worker_checkpoint_stall_seconds_total": 1,
		"elasticdl_worker_checkpoint_written_bytes_total":                   5,
		"elasticdl_rank_cpu_cores{local_rank=0,rank=4}":                     1.5,
		"elasticdl_rank_last_output_timestamp_seconds{local_rank=0,rank=4}": 8,
	})
	if bytes := got["elasticdl_rank_memory_bytes{local_rank=0,rank=4}"]; bytes < 1<<20 {
		t.Errorf("this process has %v bytes", bytes)
	}
	for name, value := range got {
		if strings.Contains(name, "rank=-1") {
			t.Errorf("%s is %v of a process that has ended, and of which nothing is known", name, value)
		}
	}
	for name := range samples(t, OfWorker(&b, nil)) {
		if strings.Contains(name, "_bytes_total") {
			t.Errorf("a worker that runs a program has %s", name)
		}
	}
}

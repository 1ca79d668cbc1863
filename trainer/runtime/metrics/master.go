package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func ofJob(t Type, name, help string, labels ...string) *Metric {
	return define(ofMaster, t, "elasticdl_job_"+name, help, labels...)
}

// Metrics of a master.
var (
	info = ofJob(Gauge, "info", "Always 1; the labels describe the job.", "type", "strategy")
	// of the job, as its status has it
	state     = ofJob(Gauge, "state", "1 for the state of the job, 0 for the others.", "state")
	condition = ofJob(Gauge, "condition", "1 if the condition of the job is True, 0 if it is False.", "condition")
	started   = ofJob(Gauge, "start_time_seconds", "Unix time at which the job was started.")
	problems  = ofJob(Gauge, "problems",
		"Problems around the job, although it continues; the status has their text.")
	entries = ofJob(Counter, "journal_entries_total",
		"Entries of the journal by kind, as elasticdl events prints them.", "kind")

	recordsDone = ofJob(Gauge, "records_done",
		"Records trained on, measured or predicted, over all epochs. It falls after a rollback.")
	recordsExpected  = ofJob(Gauge, "records_expected", "Records of all epochs; 0 while they are not known.")
	recordsPerSecond = ofJob(Gauge, "records_per_second", "Records per second over the last ten seconds.")
	epoch            = ofJob(Gauge, "epoch", "The current epoch, from 1.")
	epochs           = ofJob(Gauge, "epochs", "Number of epochs; 0 while it is not known.")
	version          = ofJob(Gauge, "model_version", "Updates (steps) in the model. It falls after a rollback.")
	modelGeneration  = ofJob(Gauge, "model_generation", "Generation of the model, from 1; it rises with each rollback.")
	loss             = ofJob(Gauge, "loss", "Mean of the last minibatches of the workers; absent before the first.")
	evaluation       = ofJob(Gauge, "evaluation", "Newest results of evaluations, by name.", "metric")
	tasks            = ofJob(Gauge, "tasks",
		"Training tasks of the current epoch: pending ones, and those leased to workers.", "state")
	returned = ofJob(Counter, "leases_returned_total", "Leases taken back from workers.")

	wanted     = ofJob(Gauge, "workers_wanted", "Workers that are asked for.")
	pods       = ofJob(Gauge, "pods", "Pods by role and state, without those that have ended.", "role", "state")
	worldSize  = ofJob(Gauge, "world_size", "Workers in the current world of a ring or program.")
	generation = ofJob(Gauge, "world_generation", "Generation of the current world; it rises with each world.")

	lost = ofJob(Counter, "pods_lost_total", "Ends of pods that nobody had ordered, by role and cause.", "role",
		"cause")
	replaced  = ofJob(Counter, "pods_replaced_total", "Pods that were put in the place of others.")
	recovery  = ofJob(Histogram, "recovery_seconds", "Time from a loss to the next progress.")
	rollbacks = ofJob(Counter, "rollbacks_total", "Returns of the training to a checkpoint, or to its beginning.")
	failures  = ofJob(Counter, "program_failures_total",
		"Failures of a program, counted or not, after which it was restarted or the job failed.")
	restarts = ofJob(Counter, "program_restarts_total",
		"Failures of a program that count against --max_restarts.")

	askedSeconds = ofJob(Gauge, "workers_wanted_seconds",
		"Time of all workers that were asked for, since the start of the job: it is trained or lost.")
	trainedSeconds = ofJob(Gauge, "trained_seconds",
		"Time in which workers did useful work. It falls after a rollback, by what was lost with the model.")
	lostSeconds = ofJob(Gauge, "lost_seconds", "Time that workers lost, by cause, as elasticdl why tells it.", "cause")
	slowWorkers = ofJob(Gauge, "slow_workers", "Workers that compute clearly slower than the others.")

	checkpointTime = ofJob(Gauge, "checkpoint_timestamp_seconds",
		"Unix time at which the newest checkpoint was written; absent if there is none.")
	checkpointRecords = ofJob(Gauge, "checkpoint_records", "Records in the newest checkpoint, over all epochs.")
	checkpointSize    = ofJob(Gauge, "checkpoint_size_bytes", "Size of the newest checkpoint.")
	checkpointTook    = ofJob(Gauge, "checkpoint_duration_seconds",
		"Time from the order of the newest checkpoint until it was written; absent after another master took over.")
)

// Master has the metrics of a job, from what its master publishes. Its zero value has none.
type Master struct{ view atomic.Pointer[view] }

type view struct {
	status *wire.JobStatus
	more   master.Measures
}

// Publish replaces the values. They must not change later.
func (m *Master) Publish(s *wire.JobStatus, more master.Measures) { m.view.Store(&view{s, more}) }

// Targets returns where other pods of this machine serve their metrics, by their names.
func (m *Master) Targets() map[string]string {
	all := make(map[string]string)
	if v := m.view.Load(); v != nil {
		for id, address := range v.more.Addresses {
			all[id.String()] = address
		}
	}
	return all
}

// Source returns the source of the metrics.
func (m *Master) Source() Source {
	return Source{role: ofMaster, samples: m.samples, histograms: m.histograms}
}

func (m *Master) samples(add adder) {
	v := m.view.Load()
	if v == nil {
		return
	}
	v.job(add)
	v.journal(add)
	v.workers(add)
	v.time(add)
	if v.more.Restored {
		v.progress(add)
		v.counters(add)
		v.checkpoint(add)
	}
}

// states are all states of a job.
var states = []job.State{job.Pending, job.Running, job.Suspended, job.Succeeded, job.Failed, job.Stopped}

func (v *view) job(add adder) {
	s := v.status
	add(info, 1, s.Type, s.Strategy)
	for _, is := range states {
		add(state, boolean(s.State == string(is)), string(is))
	}
	for _, c := range s.Conditions {
		add(condition, boolean(c.Status == "True"), c.Type)
	}
	add(started, seconds(s.StartedUnixMs))
	add(problems, float64(len(s.Problems)))
}

// causes are those of most ends. They are there from the beginning, with 0: Prometheus does not see
// the first increase of a series that begins with 1.
var causes = []string{"killed", "preempted", "evicted", "deleted", "node lost", "out of memory", "failed",
	"rejected by its node", "left with work to do", "absent"}

// roles returns the roles of the job's pods besides the master.
func (v *view) roles() []pod.Role {
	if v.status.Strategy == string(job.ParameterServer) {
		return []pod.Role{pod.Worker, pod.PS}
	}
	return []pod.Role{pod.Worker}
}

// journal adds what the journal counts, which each master knows from its beginning.
func (v *view) journal(add adder) {
	t := v.more.Totals
	for kind, n := range t.Kinds {
		add(entries, float64(n), string(kind))
	}
	ends := make(map[string]int64)
	for _, role := range v.roles() {
		for _, cause := range causes {
			ends[role.String()+" "+cause] = 0
		}
	}
	maps.Copy(ends, t.Lost)
	for end, n := range ends {
		role, cause, _ := strings.Cut(end, " ")
		add(lost, float64(n), role, cause)
	}
	add(rollbacks, float64(t.Kinds[journal.TrainingRolledBack]+t.Kinds[journal.TrainingStartedOver]))
}

func (v *view) histograms(to chan<- prometheus.Metric) {
	h := v.more.Totals.Recoveries
	buckets, below := make(map[float64]uint64, len(journal.Bounds)), uint64(0)
	for i, bound := range journal.Bounds {
		if i < len(h.Counts) {
			below += uint64(h.Counts[i])
		}
		buckets[bound] = below
	}
	to <- prometheus.MustNewConstHistogram(recovery.desc, uint64(h.Count()), h.Sum, buckets)
}

func (m *Master) histograms(to chan<- prometheus.Metric) {
	if v := m.view.Load(); v != nil {
		v.histograms(to)
	}
}

// workers adds the pods, and their world.
func (v *view) workers(add adder) {
	s := v.status
	add(wanted, float64(s.Workers))
	number := make(map[[2]string]int)
	for _, role := range v.roles() {
		for _, phase := range []pod.Phase{pod.Pending, pod.Running, pod.Leaving} {
			number[[2]string{role.String(), phase.String()}] = 0
		}
	}
	for _, p := range s.Pods {
		key := [2]string{pod.Role(p.Role).String(), p.State}
		if _, lives := number[key]; lives {
			number[key]++
		}
	}
	for key, n := range number {
		add(pods, float64(n), key[0], key[1])
	}
	if s.World > 0 {
		add(worldSize, float64(s.WorldSize))
		add(generation, float64(s.World))
	}
}

// time adds where the time of the workers went.
func (v *view) time(add adder) {
	a := v.status.Accounting
	if a == nil {
		return
	}
	add(askedSeconds, float64(a.WantedMs)/1000)
	add(trainedSeconds, float64(a.TrainingMs)/1000)
	lost := make(map[string]int64)
	for _, l := range a.Lost {
		lost[l.Cause] = l.Ms
	}
	for _, c := range goodput.Causes() {
		add(lostSeconds, float64(lost[c.String()])/1000, c.String())
	}
	add(slowWorkers, float64(len(a.Slow)))
}

func (v *view) progress(add adder) {
	s := v.status
	add(recordsDone, float64(s.RecordsDone))
	add(recordsExpected, float64(s.RecordsTotal))
	add(recordsPerSecond, s.RecordsPerSecond)
	add(epoch, float64(s.Epoch))
	add(epochs, float64(s.Epochs))
	add(version, float64(s.Version))
	add(modelGeneration, float64(s.ModelGeneration))
	if s.Loss != 0 {
		add(loss, float64(s.Loss))
	}
	if n := len(s.Evaluations); n > 0 {
		newest := s.Evaluations[n-1].Metrics
		for _, name := range slices.Sorted(maps.Keys(newest)) {
			add(evaluation, newest[name], name)
		}
	}
	add(tasks, float64(v.more.Pending), "pending")
	add(tasks, float64(v.more.Leased), "leased")
}

// counters adds what the record of the masters counts.
func (v *view) counters(add adder) {
	s := v.status
	add(replaced, float64(s.Relaunched))
	add(returned, float64(s.Requeued))
	if s.Type == string(job.Run) {
		add(failures, float64(s.Failures))
		add(restarts, float64(s.Restarts))
	}
}

func (v *view) checkpoint(add adder) {
	c, saved := v.status.Checkpoint, v.status.Saved
	switch {
	case c.GetNumber() > 0:
		add(checkpointTime, seconds(c.UnixMs))
		add(checkpointRecords, float64(c.Records))
		add(checkpointSize, float64(v.more.CheckpointBytes))
		if took := v.more.CheckpointTook; took > 0 {
			add(checkpointTook, took.Seconds())
		}
	case saved != nil:
		add(checkpointTime, seconds(saved.UnixMs))
	}
}

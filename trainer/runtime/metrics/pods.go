package metrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/worker"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func ofPS(t Type, name, help string, labels ...string) *Metric {
	return define(ofServer, t, "elasticdl_ps_"+name, help, labels...)
}

func ofAWorker(t Type, name, help string, labels ...string) *Metric {
	return define(ofWorker, t, "elasticdl_worker_"+name, help, labels...)
}

func ofRank(name, help string) *Metric {
	return define(ofWorker, Gauge, "elasticdl_rank_"+name, help, "rank", "local_rank")
}

// Metrics of a parameter server.
var (
	serverVersion = ofPS(Gauge, "model_version", "Updates (steps) in the server's part of the model.")
	gradients     = ofPS(Counter, "gradients_total",
		"Gradients received, by result: accepted, repeated (all records were in the model), cut (begins at another "+
			"record) or stale (too old).", "result")
	serverReceived = ofPS(Counter, "received_bytes_total", "Bytes of gradients received from workers.")
	serverSent     = ofPS(Counter, "sent_bytes_total", "Bytes of model values sent to workers.")
	serverHeld     = ofPS(Counter, "checkpoint_stall_seconds_total",
		"Time for which gradients waited for a checkpoint.")
	serverWritten = ofPS(Counter, "checkpoint_written_bytes_total", "Bytes of checkpoints written.")
)

// Metrics of a worker.
var (
	steps = ofAWorker(Counter, "steps_total",
		"Minibatches in the model; for a program that uses the package: rounds.")
	workerLoss = ofAWorker(Gauge, "loss", "Loss of the last minibatch; absent before the first.")
	stale      = ofAWorker(Counter, "gradients_rejected_total",
		"Gradients that servers refused as stale, which were computed again.")
	held        = ofAWorker(Gauge, "leases", "Leases that the worker holds.")
	workerWorld = ofAWorker(Gauge, "world_generation", "Generation of the world in which the worker is.")
	pushed      = ofAWorker(Counter, "pushed_bytes_total", "Bytes of gradients sent to parameter servers.")
	pulled      = ofAWorker(Counter, "pulled_bytes_total", "Bytes of model values received from parameter servers.")
	ringSent    = ofAWorker(Counter, "ring_sent_bytes_total",
		"Bytes sent to other workers of a ring, also through shared memory.")
	ringReceived = ofAWorker(Counter, "ring_received_bytes_total",
		"Bytes received from other workers of a ring, also through shared memory.")
	workerHeld = ofAWorker(Counter, "checkpoint_stall_seconds_total",
		"Time for which the rounds of a ring waited while the model was copied for a checkpoint.")
	workerWritten = ofAWorker(Counter, "checkpoint_written_bytes_total", "Bytes of checkpoints written by this worker.")
)

// Metrics of the processes of a program.
var (
	rankCores  = ofRank("cpu_cores", "CPUs that the process and its descendants used over the last two seconds.")
	rankMemory = ofRank("memory_bytes",
		"Resident memory (RSS) of the process and its descendants; pages that they share count for each.")
	rankOutput = ofRank("last_output_timestamp_seconds",
		"Unix time at which the process last wrote a line; absent if it has written none.")
)

// Beats has the newest heartbeat of a pod. Its zero value has none.
type Beats struct{ last atomic.Pointer[beat] }

type beat struct {
	*wire.HeartbeatRequest
	at time.Time
}

// Beat notes a heartbeat that is sent now. It must not change later.
func (b *Beats) Beat(r *wire.HeartbeatRequest, now time.Time) { b.last.Store(&beat{r, now}) }

// OfServer returns the source of a parameter server.
func OfServer(b *Beats, m *ps.Meter) Source {
	return Source{role: ofServer, samples: func(add adder) {
		if last := b.last.Load(); last != nil {
			add(serverVersion, float64(last.Version))
		}
		add(gradients, float64(m.Accepted.Load()), "accepted")
		add(gradients, float64(m.Repeated.Load()), "repeated")
		add(gradients, float64(m.Cut.Load()), "cut")
		add(gradients, float64(m.Stale.Load()), "stale")
		add(serverReceived, float64(m.Received.Load()))
		add(serverSent, float64(m.Sent.Load()))
		add(serverHeld, time.Duration(m.Held.Load()).Seconds())
		add(serverWritten, float64(m.Written.Load()))
	}}
}

// OfWorker returns the source of a worker. The meter is nil if the worker runs a program.
func OfWorker(b *Beats, m *worker.Meter) Source {
	return Source{role: ofWorker, samples: func(add adder) {
		last := b.last.Load()
		if last == nil {
			return
		}
		add(steps, float64(last.Steps))
		if last.Loss != 0 {
			add(workerLoss, float64(last.Loss))
		}
		add(stale, float64(last.Rejected))
		add(held, float64(len(last.Leases)))
		if last.Generation > 0 {
			add(workerWorld, float64(last.Generation))
		}
		ranks(last, add)
		if m == nil {
			return
		}
		add(pushed, float64(m.Servers.Pushed.Load()))
		add(pulled, float64(m.Servers.Pulled.Load()))
		add(ringSent, float64(m.Ring.Sent.Load()))
		add(ringReceived, float64(m.Ring.Received.Load()))
		add(workerHeld, time.Duration(m.Held.Load()).Seconds())
		add(workerWritten, float64(m.Written.Load()))
	}}
}

// ranks adds the processes of a program.
func ranks(last *beat, add adder) {
	if len(last.Processes) == 0 {
		return
	}
	var pids []int
	for _, p := range last.Processes {
		pids = append(pids, int(p.Pid))
	}
	memory := program.Memory(program.Processes(), pids)
	for _, p := range last.Processes {
		rank, local := strconv.Itoa(int(p.Rank)), strconv.Itoa(int(p.Local))
		if p.Cores >= 0 {
			add(rankCores, float64(p.Cores), rank, local)
		}
		if bytes, ok := memory[int(p.Pid)]; ok {
			add(rankMemory, float64(bytes), rank, local)
		}
		if p.QuietMs >= 0 {
			add(rankOutput, seconds(last.at.UnixMilli()-p.QuietMs), rank, local)
		}
	}
}

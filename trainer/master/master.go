package master

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Pod is what a runtime starts.
type Pod struct {
	ID      pod.ID
	Launch  int    // from 1; a replaced server is launched again under its index
	Slot    int    // the index of the first pod of its line, which priorities go by
	Address string // where a server shall listen again; "" anywhere
}

// Pods starts and ends pods: processes (trainer/local) or a cluster's. Its calls may
// come from several goroutines at once, but one at a time for each pod.
type Pods interface {
	// Create returns when the pod is started, or why it cannot be; it is tried again later then.
	Create(ctx context.Context, p Pod) error
	// Delete ends a pod, stopped or not. One that is gone already is no error. That it ended is an event.
	Delete(ctx context.Context, id pod.ID) error
	// Events is what becomes of the pods. Each pod's end is told once.
	Events() <-chan pod.Event
}

// Config is a job and what it runs on.
type Config struct {
	Job        *job.Job
	Training   []task.Shard // of --training_data
	Validation []task.Shard // of --validation_data, nil without
	// Metric computes a metric's value from its state; names are those of the workers' reports.
	Metric   func(name string, state []float64) float64
	Listener net.Listener // of the master's service; Run closes it
	Pods     Pods
	// Dial opens the connections to the servers; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// OnStatus is given the job's status each second, and at the end; nil: nobody.
	OnStatus func(*wire.JobStatus)
	Log      *slog.Logger
}

// Run runs the job and returns its last status when every pod is gone. The error is nil if and
// only if every record of every epoch was trained on; a job that was stopped, by
// Stop or by the end of ctx, has one too.
func Run(ctx context.Context, c Config) (*wire.JobStatus, error) {
	return nil, errors.ErrUnsupported
}

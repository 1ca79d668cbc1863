package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// lookLimit limits the wait for a cluster if the user may mean a job of this machine.
const lookLimit = 3 * time.Second

// location holds the flags that select where jobs are: on this machine, or on a cluster.
type location struct {
	runtime string // "": wherever the job is
	at      kube.Place
	retry   time.Duration // --retry_timeout
}

func (w *location) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.runtime, "runtime", "", "kubernetes or local; default: local if this machine has the job")
	w.clusterFlags(cmd)
	w.retryFlags(cmd)
}

func (w *location) clusterFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&w.at.Namespace, "namespace", "n", "",
		"namespace of the job; default: the context's")
	cmd.Flags().StringVar(&w.at.Context, "context", "", "context of the kubeconfig; default: its current context")
	cmd.Flags().StringVar(&w.at.Kubeconfig, "kubeconfig", "",
		"path of the kubeconfig; default: $KUBECONFIG or ~/.kube/config")
}

func (w *location) retryFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.retry, retryFlag, kube.DefaultPatience,
		"time for which unanswered requests to the cluster are retried; 0 disables retries")
}

// retryFlag is the name of the flag with the time for which requests are retried.
const retryFlag = "retry_timeout"

// patience converts a given --retry_timeout for [kube.Place], in which 0 means the default.
func patience(limit time.Duration) time.Duration {
	if limit == 0 {
		return -1
	}
	return limit
}

// check checks the flags, before the command runs.
func (w *location) check(cmd *cobra.Command, _ []string) error {
	if err := w.checkRetry(); err != nil {
		return err
	}
	if w.runtime == "local" && cmd.Flags().Changed(retryFlag) {
		return fmt.Errorf("--%s: no effect with --runtime=local; remove it", retryFlag)
	}
	if w.runtime != "" && w.runtime != "kubernetes" && w.runtime != "local" {
		return fmt.Errorf("--runtime=%s: expected kubernetes or local", w.runtime)
	}
	if w.runtime == "local" && w.named() {
		return errors.New("--runtime=local: contradicts --namespace, --context and --kubeconfig; remove one of the two")
	}
	return nil
}

func (w *location) checkRetry() error {
	if w.retry < 0 {
		return fmt.Errorf("--%s=%v: expected a time of 0 or more", retryFlag, w.retry)
	}
	return nil
}

// named reports whether a flag selects a cluster.
func (w *location) named() bool {
	return w.at.Namespace != "" || w.at.Context != "" || w.at.Kubeconfig != ""
}

func (w *location) connect(cmd *cobra.Command) (*kube.Client, error) {
	w.at.Notes = notes{cmd.ErrOrStderr()}
	if cmd.Flags().Changed(retryFlag) {
		w.at.Patience = patience(w.retry)
	}
	return kube.Connect(w.at)
}

// home is a runtime that has jobs: this machine or a cluster.
type home interface {
	Status(ctx context.Context, name string) (*wire.JobStatus, error)
	Wait(ctx context.Context, name string, rests func()) (*wire.JobStatus, error)
	Scale(ctx context.Context, name string, workers int) (before int, err error)
	Stop(ctx context.Context, name string, progress func(pods int)) error
	Suspend(ctx context.Context, name string, progress func(pods int)) error
	Logs(ctx context.Context, name string, o role.LogOptions, w io.Writer) error
	Journal(ctx context.Context, name string) (journal.Snapshot, error)
	Stacks(ctx context.Context, name string) (*wire.StacksReply, error)
	View(ctx context.Context, name string) (role.View, error)
	Evidence(ctx context.Context, name string) ([]role.Evidence, error)
	// nil: no price is known
	Cost(ctx context.Context, s *wire.JobStatus) *wire.Cost
}

// find returns the home of a job. Without flags it is this machine if it has a job of that name,
// unless that job has ended and the cluster has one of that name, too.
func (w *location) find(cmd *cobra.Command, name string) (home, error) {
	if w.runtime == "local" {
		return localJobs{}, nil
	}
	if w.runtime == "kubernetes" || w.named() {
		return w.connect(cmd)
	}
	mine, err := local.Status(cmd.Context(), name)
	switch {
	case err == nil && !job.State(mine.State).Ended():
		return localJobs{}, nil
	case err != nil && !errors.Is(err, local.ErrNotFound):
		return nil, err
	}
	client, failed := w.connect(cmd)
	switch {
	case failed == nil && err != nil:
		return client, nil
	case failed == nil:
		ctx, cancel := context.WithTimeout(cmd.Context(), lookLimit)
		defer cancel()
		if client.Has(ctx, name) {
			return client, nil
		}
	case errors.Is(failed, kube.ErrNoCluster) && err != nil:
		return nil, fmt.Errorf("%w on this machine, and %w", &local.Missing{Name: name}, failed)
	case err != nil:
		return nil, failed
	}
	return localJobs{}, nil
}

// localJobs are the jobs on this machine.
type localJobs struct{}

// Cost returns nil: this machine has no price.
func (localJobs) Cost(context.Context, *wire.JobStatus) *wire.Cost { return nil }

func (localJobs) Status(ctx context.Context, name string) (*wire.JobStatus, error) {
	return local.Status(ctx, name)
}

func (localJobs) Journal(ctx context.Context, name string) (journal.Snapshot, error) {
	return local.Journal(ctx, name)
}

func (localJobs) Stacks(ctx context.Context, name string) (*wire.StacksReply, error) {
	return local.Stacks(ctx, name)
}

func (localJobs) View(ctx context.Context, name string) (role.View, error) {
	return local.View(ctx, name)
}

func (localJobs) Evidence(ctx context.Context, name string) ([]role.Evidence, error) {
	return local.Evidence(ctx, name)
}

func (localJobs) Wait(ctx context.Context, name string, rests func()) (*wire.JobStatus, error) {
	return local.Wait(ctx, name, rests)
}

func (localJobs) Scale(ctx context.Context, name string, workers int) (int, error) {
	return local.Scale(ctx, name, workers)
}

func (localJobs) Stop(ctx context.Context, name string, _ func(int)) error {
	return local.Stop(ctx, name)
}

func (localJobs) Suspend(ctx context.Context, name string, _ func(int)) error {
	return local.Suspend(ctx, name)
}

func (localJobs) Logs(ctx context.Context, name string, o role.LogOptions, w io.Writer) error {
	return local.Logs(ctx, name, o, w)
}

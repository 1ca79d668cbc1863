package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/incluster"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// The roles of a job, of this machine or of a cluster. Packages local and kube start them and say
// what their flags mean.

func launcherCommand() *cobra.Command {
	var dir string
	var resume bool
	cmd := &cobra.Command{
		Use:    "launcher",
		Short:  "Run a job of this machine that outlives its command (started by train --detach)",
		Hidden: true,
		Args:   words(0, 0),
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			return local.RunLauncher(cmd.Context(), hurried(cmd.Context()), dir, resume)
		}),
	}
	cmd.Flags().StringVar(&dir, "job_dir", "", "state directory of the job")
	cmd.Flags().BoolVar(&resume, "resume", false, "go on from the newest checkpoint")
	cmd.MarkFlagRequired("job_dir")
	return cmd
}

func masterCommand() *cobra.Command {
	var name, namespace string
	var here local.MasterConfig
	cmd := &cobra.Command{
		Use:    "master",
		Short:  "Run the master of a job (started by its launcher, or by the job's pod)",
		Hidden: true,
		Args:   words(0, 0),
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			if name != "" {
				return incluster.RunMaster(cmd.Context(),
					incluster.MasterConfig{Job: name, Namespace: namespace, Environ: os.Environ(),
						Output: cmd.ErrOrStderr()})
			}
			if here.Launch < 1 {
				return fmt.Errorf("--launch=%d: expected 1 or more", here.Launch)
			}
			here.Log = cmd.ErrOrStderr()
			return local.RunMaster(cmd.Context(), here)
		}),
	}
	cmd.Flags().StringVar(&here.JobDir, "job_dir", "", "state directory of the job, if it is one of this machine")
	cmd.Flags().IntVar(&here.Launch, "launch", 1, "which start of that job's master this is, from 1")
	cmd.Flags().BoolVar(&here.Resume, "resume", false, "go on from the newest checkpoint")
	cmd.Flags().StringVar(&name, "job_name", "", "of a cluster's job")
	cmd.Flags().StringVar(&namespace, "namespace", "default", "of that job")
	cmd.MarkFlagsOneRequired("job_dir", "job_name")
	cmd.MarkFlagsMutuallyExclusive("job_dir", "job_name")
	return cmd
}

func psCommand() *cobra.Command {
	cmd, r := roleCommand("ps", "Run a parameter server of a job (started by its master)", role.RunPS)
	cmd.Flags().StringVar(&r.Address, "address", "", "where to listen; any port of the loopback interface if empty")
	cmd.Flags().StringVar(&r.Advertise, "advertise", "", "where others find it; where it listens if empty")
	return cmd
}

func workerCommand() *cobra.Command {
	cmd, r := roleCommand("worker", "Run a worker of a job (started by its master)", role.RunWorker)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Display = local.AttendedBy()
		return run(cmd, args)
	}
	cmd.Flags().StringVar(&r.Listen, "listen", "",
		"where other workers of a ring find it; any port of the loopback interface if empty")
	cmd.Flags().StringVar(&r.Scratch, "scratch_dir", "",
		"where it makes a directory for its files; one for temporary files if empty")
	cmd.Flags().IntVar(&r.Workers, "workers", 0,
		"workers of the job that share the processors; 0: this one has them alone")
	cmd.Flags().IntVar(&r.Threads, "threads", 1,
		"of the engine, if the job does not say; 0 = as many as there are processors")
	return cmd
}

// roleCommand is a command that runs until its job has ended or its parent is gone.
func roleCommand(name, short string, main func(context.Context, role.Role) error) (*cobra.Command, *role.Role) {
	r := &role.Role{Runs: new(atomic.Bool)}
	cmd := &cobra.Command{
		Use:    name,
		Short:  short,
		Hidden: true,
		Args:   words(0, 0),
		PreRunE: func(*cobra.Command, []string) error {
			if _, _, err := net.SplitHostPort(r.Master); err != nil {
				return fmt.Errorf("--master_address=%s: expected host:port", r.Master)
			}
			if r.Index < 0 {
				return fmt.Errorf("--index=%d: expected 0 or more", r.Index)
			}
			if r.Launch < 1 {
				return fmt.Errorf("--launch=%d: expected 1 or more", r.Launch)
			}
			return nil
		},
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := local.Lifeline(cmd.Context(), r.Lasts)
			defer stop()
			r.Log = cmd.ErrOrStderr()
			card, err := local.Card()
			if err != nil {
				return err
			}
			r.Identify(os.Getenv, card)
			err = main(ctx, *r)
			if errors.Is(err, role.ErrLeft) {
				return failure{err, exitLeft}
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&r.Master, "master_address", "", "where the master listens")
	cmd.Flags().IntVar(&r.Index, "index", 0, "number of this pod")
	cmd.Flags().IntVar(&r.Launch, "launch", 1, "which start of that number this is, from 1")
	cmd.Flags().DurationVar(&r.Grace, "grace", 0,
		"from SIGTERM until it is killed; 0 for the default of --grace_period")
	cmd.Flags().StringVar(&r.LogLevel, "log_level", "INFO", "DEBUG, INFO, WARNING, ERROR or CRITICAL")
	cmd.MarkFlagRequired("master_address")
	cmd.MarkFlagRequired("index")
	return cmd, r
}

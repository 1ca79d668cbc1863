package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/local"
)

// The roles of a job that runs on this machine. package local starts them and says what their flags mean.

func masterCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "master",
		Short:  "Run the master of a job (started by train)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := local.Lifeline(cmd.Context())
			defer stop()
			return local.RunMaster(ctx, dir, cmd.ErrOrStderr())
		}),
	}
	cmd.Flags().StringVar(&dir, "job_dir", "", "state directory of the job")
	cmd.MarkFlagRequired("job_dir")
	return cmd
}

func psCommand() *cobra.Command {
	cmd, role := roleCommand("ps", "Run a parameter server of a job (started by its master)", local.RunPS)
	cmd.Flags().StringVar(&role.Address, "address", "", "where to listen; 127.0.0.1:0 if empty")
	return cmd
}

func workerCommand() *cobra.Command {
	cmd, role := roleCommand("worker", "Run a worker of a job (started by its master)", local.RunWorker)
	cmd.Flags().IntVar(&role.Threads, "threads", 1, "of the engine, if the job does not say")
	return cmd
}

// roleCommand is a command that runs until its job has ended or its parent is gone.
func roleCommand(name, short string, main func(context.Context, local.Role) error) (*cobra.Command, *local.Role) {
	role := new(local.Role)
	cmd := &cobra.Command{
		Use:    name,
		Short:  short,
		Hidden: true,
		Args:   cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if _, _, err := net.SplitHostPort(role.Master); err != nil {
				return fmt.Errorf("--master_address=%s: expected host:port", role.Master)
			}
			if role.Index < 0 {
				return fmt.Errorf("--index=%d: expected 0 or more", role.Index)
			}
			return nil
		},
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := local.Lifeline(cmd.Context())
			defer stop()
			role.Log = cmd.ErrOrStderr()
			return main(ctx, *role)
		}),
	}
	cmd.Flags().StringVar(&role.Master, "master_address", "", "where the master listens")
	cmd.Flags().IntVar(&role.Index, "index", 0, "number of this pod")
	cmd.Flags().StringVar(&role.LogLevel, "log_level", "INFO", "DEBUG, INFO, WARNING, ERROR or CRITICAL")
	cmd.MarkFlagRequired("master_address")
	cmd.MarkFlagRequired("index")
	return cmd, role
}

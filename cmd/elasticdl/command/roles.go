package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/run/agent"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// PS returns the command of a parameter server.
func PS() *cobra.Command {
	cmd, r := roleCommand("ps", "Run a parameter server of a job (started by its master)", role.RunPS)
	cmd.Flags().StringVar(&r.Address, "address", "",
		"address to listen on; default: any port of the loopback interface")
	cmd.Flags().StringVar(&r.Advertise, "advertise", "", "address for peers; default: --address")
	return cmd
}

// Worker returns the command of a worker.
func Worker() *cobra.Command {
	cmd, r := roleCommand("worker", "Run a worker of a job (started by its master)", role.RunWorker)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Display = local.AttendedBy()
		return run(cmd, args)
	}
	cmd.Flags().StringVar(&r.Listen, "listen", "",
		"address for the other workers of a ring; default: any port of the loopback interface")
	cmd.Flags().StringVar(&r.Scratch, "scratch_dir", "",
		"parent of the directory for temporary files; default: $TMPDIR")
	cmd.Flags().IntVar(&r.Workers, "workers", 0,
		"number of workers that share the CPUs; 0: not shared")
	cmd.Flags().IntVar(&r.Threads, "threads", 1,
		"threads of the engine unless the job sets them; 0 for one per CPU")
	return cmd
}

// roleCommand returns a command that runs until its job or its parent has ended.
func roleCommand(name, short string, main func(context.Context, role.Role) error) (*cobra.Command, *role.Role) {
	r := &role.Role{Runs: new(atomic.Bool)}
	cmd := &cobra.Command{
		Use:    name,
		Short:  short,
		Hidden: true,
		Args:   Words(0, 0),
		PreRunE: func(*cobra.Command, []string) error {
			if _, _, err := net.SplitHostPort(r.Master); err != nil {
				return fmt.Errorf("--master_address=%s: expected host:port", r.Master)
			}
			if r.Index < 0 {
				return fmt.Errorf("--index=%d: expected 0 or more", r.Index)
			}
			if r.Incarnation < 1 {
				return fmt.Errorf("--launch=%d: expected 1 or more", r.Incarnation)
			}
			return nil
		},
		RunE: Does(func(cmd *cobra.Command, _ []string) error {
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
				return failure{err, ExitLeft}
			}
			if lost, ok := errors.AsType[agent.KilledError](err); ok {
				return failure{err, ExitSignal + lost.Signal}
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&r.Master, "master_address", "", "address of the master")
	cmd.Flags().IntVar(&r.Index, "index", 0, "index of this pod")
	cmd.Flags().IntVar(&r.Incarnation, "launch", 1, "incarnation of this index, from 1")
	cmd.Flags().DurationVar(&r.Grace, "grace", 0,
		"time from SIGTERM to SIGKILL; 0 for the default of --grace_period")
	cmd.Flags().StringVar(&r.Cloud, "notice_metadata", "",
		"cloud to ask whether this machine will be taken away: aws, gce; default: none")
	cmd.Flags().StringVar(&r.Metrics, "metrics_address", "", "address to serve metrics at; default: none")
	cmd.Flags().StringVar(&r.LogLevel, "log_level", "INFO", "lowest level: DEBUG, INFO, WARNING, ERROR or CRITICAL")
	cmd.MarkFlagRequired("master_address")
	cmd.MarkFlagRequired("index")
	return cmd, r
}

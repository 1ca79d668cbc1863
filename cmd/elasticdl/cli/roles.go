package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/incluster"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
)

// Commands that run the roles of a job, on this machine or a cluster. Packages local and manifest
// set their flags.

func launcherCommand() *cobra.Command {
	var dir, name, namespace string
	var resume bool
	cmd := &cobra.Command{
		Use:    "launcher",
		Short:  "Keep the master of a job running (started by train --detach, or by the job's Job)",
		Hidden: true,
		Args:   command.Words(0, 0),
		RunE: command.Does(func(cmd *cobra.Command, _ []string) error {
			if name != "" {
				return incluster.RunLauncher(cmd.Context(),
					incluster.MasterConfig{Job: name, Namespace: namespace, Environ: os.Environ(),
						Output: cmd.ErrOrStderr()})
			}
			return local.RunLauncher(cmd.Context(), command.Hurried(cmd.Context()), dir, resume)
		}),
	}
	cmd.Flags().StringVar(&dir, "job_dir", "", "state directory of the job, for --runtime=local")
	cmd.Flags().BoolVar(&resume, "resume", false, "continue from the newest checkpoint")
	cmd.Flags().StringVar(&name, "job_name", "", "name of the job, on a cluster")
	cmd.Flags().StringVar(&namespace, "namespace", "default", "namespace of the job")
	cmd.MarkFlagsOneRequired("job_dir", "job_name")
	cmd.MarkFlagsMutuallyExclusive("job_dir", "job_name")
	return cmd
}

func masterCommand() *cobra.Command {
	var name, namespace string
	var viewPort uint16
	var config local.MasterConfig
	cmd := &cobra.Command{
		Use:    "master",
		Short:  "Run the master of a job (started by its launcher)",
		Hidden: true,
		Args:   command.Words(0, 0),
		RunE: command.Does(func(cmd *cobra.Command, _ []string) error {
			if name != "" {
				return incluster.RunMaster(cmd.Context(),
					incluster.MasterConfig{Job: name, Namespace: namespace, Environ: os.Environ(),
						ViewPort: int(viewPort), Output: cmd.ErrOrStderr()})
			}
			if config.Incarnation < 1 {
				return fmt.Errorf("--launch=%d: expected 1 or more", config.Incarnation)
			}
			config.Log = cmd.ErrOrStderr()
			return local.RunMaster(cmd.Context(), config)
		}),
	}
	cmd.Flags().StringVar(&config.JobDir, "job_dir", "", "state directory of the job, for --runtime=local")
	cmd.Flags().IntVar(&config.Incarnation, "launch", 1, "incarnation of the master, from 1")
	cmd.Flags().BoolVar(&config.Resume, "resume", false, "continue from the newest checkpoint")
	cmd.Flags().Uint16Var(&viewPort, "view_port", 0,
		"port of the loopback interface for users who look at the job on a cluster; 0 for none")
	cmd.Flags().StringVar(&name, "job_name", "", "name of the job, on a cluster")
	cmd.Flags().StringVar(&namespace, "namespace", "default", "namespace of the job")
	cmd.MarkFlagsOneRequired("job_dir", "job_name")
	cmd.MarkFlagsMutuallyExclusive("job_dir", "job_name")
	return cmd
}

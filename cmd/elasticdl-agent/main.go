// Elasticdl-agent is the part of elasticdl for the pods of a job that runs a program: the command
// of a worker. It has neither Kubernetes nor the views. elasticdl, which is twice as large, holds
// it (see [image.AddAgent]) and installs it under the name elasticdl.
package main

import (
	"os"
	_ "time/tzdata" // images have no files of time zones

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
)

func main() {
	root := &cobra.Command{
		Use:           "elasticdl",
		Short:         "Worker of a job; the pod of its master has the whole elasticdl",
		Args:          command.Words(0, 0),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(command.Worker(), command.VersionCommand())
	os.Exit(command.Execute(command.UntilSignal(), root, os.Stderr))
}

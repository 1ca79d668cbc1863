package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/runtime/image"
)

// installCommand returns the command of the init container that copies the agent in this binary, or
// this binary, into a directory which it shares with a worker of another image.
func installCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "install DIRECTORY",
		Short:  "Copy this program into a directory (started by the pods of a job that runs a program)",
		Hidden: true,
		Args:   command.Words(1, 1),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err == nil {
				err = image.Install(self, args[0])
			}
			if err != nil {
				return fmt.Errorf("install elasticdl: %w", err)
			}
			return nil
		}),
	}
}

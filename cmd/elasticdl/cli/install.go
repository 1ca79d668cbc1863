package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// installCommand returns the command of the init container that copies this binary into a directory
// which it shares with a worker of another image.
func installCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "install DIRECTORY",
		Short:  "Copy this program into a directory (started by the pods of a job that runs a program)",
		Hidden: true,
		Args:   words(1, 1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			if err := install(args[0]); err != nil {
				return fmt.Errorf("install elasticdl: %w", err)
			}
			return nil
		}),
	}
}

// install writes DIRECTORY/elasticdl, which any user may run. The file appears complete, and
// replaces an existing one.
func install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, ".elasticdl-")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // has no effect after the rename
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Chmod(0o755)
	}
	if e := to.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(to.Name(), filepath.Join(dir, "elasticdl"))
}

// Package cli is the command elasticdl, for its binary and for those that users build with models
// of their own:
//
//	func main() { cli.Main(mnist.Model) }
//
// Such a binary is the user's command and every role of a job, as elasticdl itself is; the pods of
// a cluster run its images. `elasticdl zoo init` writes a module with such a main, `elasticdl zoo
// build` makes an image of it.
package cli

import (
	"fmt"
	"os"
	"strings"
	_ "time/tzdata" // images have no files of time zones

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// Main runs the command with the arguments of the process and ends the process. The models can be
// selected by --model_def, and precede built-in ones of the same name.
func Main(models ...*zoo.Model) {
	if err := zoo.Add(models...); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(command.ExitUsage)
	}
	os.Exit(run(command.UntilSignal(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

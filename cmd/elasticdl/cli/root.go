package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/nn/kernel"
)

// Exit codes. A role and a job have 0 or 1.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitTimeout     = 124
	exitInterrupted = 130
	exitLeft        = 143 // a pod that was asked to leave, by SIGTERM
)

// failure is an error that came of doing what was asked. Any other is one of usage.
type failure struct {
	error
	code int
}

func (f failure) Unwrap() error { return f.error }

// errSilent is a failure that has been shown already.
var errSilent = errors.New("")

// run is the whole program. The returned exit code has its reason on stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	code := 0
	if err != nil {
		code = exitUsage
		if f, ok := errors.AsType[failure](err); ok {
			code = f.code
		}
		if ctx.Err() != nil && code == exitFailure {
			code = exitInterrupted
		}
		report(stderr, cmd.CommandPath(), err, code)
	}
	return code
}

// report prints an error, each of several on a line of its own.
func report(w io.Writer, command string, err error, code int) {
	problems := strings.Split(strings.TrimSpace(logline.Escape(err.Error())), "\n")
	switch {
	case errors.Is(err, errSilent):
	case code == exitInterrupted:
		fmt.Fprintf(w, "%s: interrupted\n", command)
	case len(problems) == 1:
		fmt.Fprintf(w, "%s: %s\n", command, problems[0])
	default:
		fmt.Fprintf(w, "%s:\n  %s\n", command, strings.Join(problems, "\n  "))
	}
}

// does makes a command's function: what it returns is a failure unless it is marked otherwise.
func does(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		if _, ok := errors.AsType[failure](err); ok || err == nil {
			return err
		}
		return failure{err, exitFailure}
	}
}

// usage marks an error that the user's words have caused.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return failure{err, exitUsage}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "elasticdl",
		Short:         "Train models on machines that come and go",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		trainCommand(), evaluateCommand(), predictCommand(), runCommand(), listCommand(), statusCommand(), logsCommand(), waitCommand(), scaleCommand(), stopCommand(), suspendCommand(), resumeCommand(), downloadCommand(),
		datasetCommand(), zooCommand(), checkpointCommand(), rbacCommand(), versionCommand(), launcherCommand(), masterCommand(), psCommand(), workerCommand(), receiveCommand(), sendCommand(), installCommand(),
	)
	for _, name := range []string{"top"} {
		root.AddCommand(laterCommand(name))
	}
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and what the engine computes with here",
		Args:  cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "elasticdl %s %s %s/%s kernels=%s\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel.Name())
			return err
		}),
	}
}

// laterCommand is one of ElasticDL's that this version does not have.
func laterCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usage(fmt.Errorf("not available in this version yet"))
		},
	}
}

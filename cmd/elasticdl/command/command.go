// Package command is shared by the programs elasticdl and elasticdl-agent: the command of a job's
// workers, and of its servers, which has the same flags, exit codes, how signals end a command, and
// the version.
//
// It imports neither Kubernetes nor the views, so that elasticdl-agent, which is copied into every
// pod of a job that runs a program, is small.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// Exit codes; the help of elasticdl describes them for users.
const (
	ExitFailure     = 1
	ExitUsage       = 2
	ExitMissing     = 3
	ExitTimeout     = 124
	ExitSignal      = 128 // and the number of the signal
	ExitInterrupted = 130
	ExitLeft        = 143
)

// failure is an error with an exit code. Any other error is one of the command line.
type failure struct {
	error
	code int
}

func (f failure) Unwrap() error { return f.error }

// ErrSilent is a failure that was printed before.
var ErrSilent = errors.New("")

// Fail returns an error that ends its program with an exit code.
func Fail(err error, code int) error { return failure{err, code} }

// Usage returns an error as one of an invalid command line; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return failure{err, ExitUsage}
}

// Does returns f as the function of a command, whose errors have exit code 1 unless [Fail] or
// [Usage] made them.
func Does(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		if _, ok := errors.AsType[failure](err); ok || err == nil {
			return err
		}
		return failure{err, ExitFailure}
	}
}

// Words returns a check that a command has from least to most arguments; a negative most means no
// limit. The error names the arguments as the usage does.
func Words(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usage := "expected " + cmd.CommandPath() + strings.TrimPrefix(cmd.Use, cmd.Name())
		switch named := strings.Fields(cmd.Use)[1:]; {
		case len(args) < least:
			return fmt.Errorf("%s is missing: %s", strings.TrimSuffix(named[len(args)], "..."), usage)
		case most >= 0 && len(args) > most:
			return fmt.Errorf("unexpected argument %q: %s", args[most], usage)
		}
		return nil
	}
}

// Execute executes the command line of a program and returns its exit code. It prints the reason of
// a failure to stderr.
func Execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := ExitUsage
	if f, ok := errors.AsType[failure](err); ok {
		code = f.code
	}
	// without the interruption it might have succeeded
	if ctx.Err() != nil && (code == ExitFailure || code == ExitMissing) {
		code = ExitInterrupted
	}
	report(stderr, cmd.CommandPath(), err, code)
	return code
}

// report prints an error. Joined errors get a line each.
func report(w io.Writer, command string, err error, code int) {
	problems := strings.Split(strings.TrimSpace(logline.Escape(err.Error())), "\n")
	switch {
	case errors.Is(err, ErrSilent):
	case code == ExitInterrupted:
		fmt.Fprintf(w, "%s: interrupted\n", command)
	case len(problems) == 1:
		fmt.Fprintf(w, "%s: %s\n", command, problems[0])
	default:
		fmt.Fprintf(w, "%s:\n  %s\n", command, strings.Join(problems, "\n  "))
	}
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// Exit codes; [exitCodes] describes them for users.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitMissing     = 3
	exitTimeout     = 124
	exitSignal      = 128 // and the number of the signal
	exitInterrupted = 130
	exitLeft        = 143
)

// exitCodes is the table of exit codes in the help text.
const exitCodes = `Exit codes:
    0  success; for a command that waits for a job: the job has succeeded
    1  the command has failed, or the job has failed
    2  invalid command line; nothing was done
    3  no such job
    4  the job has failed: its program ended in the same way 3 times in a row without progress
  124  --timeout was reached
  130  interrupted by Ctrl-C, SIGTERM, SIGHUP or SIGQUIT
  137  for a pod: its program was killed by SIGKILL before it joined (other signals: 128 + signal)
  143  for a pod: stopped by SIGTERM as planned
`

// failure is an error with an exit code. Any other error is one of the command line.
type failure struct {
	error
	code int
}

func (f failure) Unwrap() error { return f.error }

// errSilent is a failure that was printed before.
var errSilent = errors.New("")

// run executes a command line and returns its exit code. It prints the reason to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetGlobalNormalizationFunc(spelling(args))
	root.SetFlagErrorFunc(flagProblem)
	root.SetArgs(prepared(root, args))
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
		// without the interruption it might have succeeded
		if ctx.Err() != nil && (code == exitFailure || code == exitMissing) {
			code = exitInterrupted
		}
		report(stderr, cmd.CommandPath(), err, code)
	}
	return code
}

// report prints an error. Joined errors get a line each.
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

// does returns f as the function of a command, whose errors are failures with exit code 1 unless f
// returns a [failure].
func does(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		if _, ok := errors.AsType[failure](err); ok || err == nil {
			return err
		}
		return failure{err, exitFailure}
	}
}

// usage returns an error as a failure with the exit code of an invalid command line.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return failure{err, exitUsage}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "elasticdl",
		Short:         "Elastic training of deep-learning models",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	printed := root.Flags().BoolP("version", "v", false, "version for elasticdl")
	root.Flags().SetAnnotation("version", cobra.FlagSetByCobraAnnotation, []string{"true"}) // for completion
	root.Args = func(cmd *cobra.Command, args []string) error {
		if *printed {
			return nil
		}
		return subcommand(cmd, args)
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printed {
			return printVersion(cmd)
		}
		return cmd.Help()
	}
	root.AddCommand(
		trainCommand(), evaluateCommand(), predictCommand(), runCommand(), listCommand(),
		statusCommand(), dashboardCommand(), eventsCommand(), auditCommand(), whyCommand(), stacksCommand(),
		dumpCommand(), logsCommand(),
		waitCommand(), scaleCommand(), stopCommand(), suspendCommand(),
		resumeCommand(), downloadCommand(),
		datasetCommand(), zooCommand(), checkpointCommand(), rbacCommand(), versionCommand(),
		launcherCommand(), masterCommand(), psCommand(), workerCommand(), receiveCommand(),
		sendCommand(), installCommand(), topCommand(),
	)
	foldHelp(root)
	// No text is a template: the linker would keep all exported methods of the program for it.
	standard := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		err := standard(cmd)
		if !cmd.HasParent() {
			fmt.Fprint(cmd.OutOrStderr(), "\n"+exitCodes)
		}
		return err
	})
	return root
}

// helpWidth is the width of help texts, in columns.
const helpWidth = 100

// foldHelp wraps the long help texts of a command and its subcommands, except indented lines.
func foldHelp(cmd *cobra.Command) {
	lines := strings.Split(cmd.Long, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			lines[i] = fold(line, helpWidth)
		}
	}
	cmd.Long = strings.Join(lines, "\n")
	for _, sub := range cmd.Commands() {
		foldHelp(sub)
	}
}

// fold breaks a line at spaces into lines of at most a width, unless a word is longer.
func fold(line string, width int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(line, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && column+1+n > width:
			b.WriteByte('\n')
			column = 0
		case i > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the instruction set of the engine",
		Args:  words(0, 0),
		RunE:  does(func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) }),
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := io.WriteString(cmd.OutOrStdout(), versionText())
	return err
}

func versionText() string {
	return fmt.Sprintf("elasticdl %s %s %s/%s kernels=%s\n", cmp.Or(version, "dev"), runtime.Version(),
		runtime.GOOS, runtime.GOARCH, kernel.Name())
}

// topCommand returns ElasticDL's command top, which refers to status --watch.
func topCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "top",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usage(errors.New("see elasticdl status JOB --watch"))
		},
	}
}

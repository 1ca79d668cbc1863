package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
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

// run executes a command line and returns its exit code. It prints the reason to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetGlobalNormalizationFunc(spelling(args))
	root.SetFlagErrorFunc(flagProblem)
	root.SetArgs(prepared(root, args))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return command.Execute(ctx, root, stderr)
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
			return command.PrintVersion(cmd)
		}
		return cmd.Help()
	}
	root.AddCommand(
		trainCommand(), evaluateCommand(), predictCommand(), runCommand(), listCommand(),
		statusCommand(), dashboardCommand(), eventsCommand(), auditCommand(), whyCommand(), stacksCommand(),
		dumpCommand(), logsCommand(),
		waitCommand(), scaleCommand(), stopCommand(), suspendCommand(),
		resumeCommand(), downloadCommand(),
		datasetCommand(), zooCommand(), checkpointCommand(), rbacCommand(), command.VersionCommand(),
		launcherCommand(), masterCommand(), command.PS(), command.Worker(), receiveCommand(),
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

// topCommand returns ElasticDL's command top, which refers to status --watch.
func topCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "top",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return command.Usage(errors.New("see elasticdl status JOB --watch"))
		},
	}
}

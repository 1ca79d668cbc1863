package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/stacks"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func stacksCommand() *cobra.Command {
	var (
		format   format
		location location
		full     bool
	)
	cmd := &cobra.Command{
		Use:   "stacks JOB",
		Short: "Show where the Python processes of a program are, grouped by their stacks",
		Long: "Show where the Python processes of a program are, grouped by their stacks, and which ranks " +
			"differ from the others.\n\n" +
			"A signal, whose handler is Python's faulthandler, makes each rank write its stack, also one that " +
			"waits in C. It may interrupt a sleep of the process, which Python continues.\n\n" +
			"On a cluster the API server forwards the request to the master's pod, which needs the permission " +
			"pods/portforward.",
		Example:           "  elasticdl stacks main\n  elasticdl stacks main --full",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE:           checks(format.check, location.check),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			reply, err := home.Stacks(cmd.Context(), args[0])
			if err != nil {
				return hint(err)
			}
			if format.json() {
				return printJSON(cmd.OutOrStdout(), asJSON(reply))
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), stacksText(reply, full))
			return err
		}),
	}
	cmd.Flags().BoolVar(&full, "full", false, "print the whole stack of each rank, too")
	format.flags(cmd)
	location.flags(cmd)
	return cmd
}

// stacksText returns the output of `elasticdl stacks`.
func stacksText(reply *wire.StacksReply, full bool) string {
	var b strings.Builder
	var ranks []stacks.Rank
	for _, p := range reply.Stacks {
		if p.Rank >= 0 {
			ranks = append(ranks, stacks.Rank{Rank: int(p.Rank), Text: p.Text, Why: p.Why, Call: p.Call})
			continue
		}
		fmt.Fprintf(&b, "worker-%d, pid %d: waits to join a world\n", p.Worker, p.Pid)
	}
	if len(ranks) > 0 {
		fmt.Fprintln(&b, strings.TrimSpace(stacks.Compare(ranks).String()))
	}
	for _, worker := range reply.Missing {
		fmt.Fprintf(&b, "worker-%d: no answer in time\n", worker)
	}
	if b.Len() == 0 {
		return "no process runs\n"
	}
	if !full {
		return b.String()
	}
	for _, p := range reply.Stacks {
		if p.Text == "" {
			continue
		}
		fmt.Fprintf(&b, "\nrank %d, worker-%d, pid %d:\n", p.Rank, p.Worker, p.Pid)
		for line := range strings.Lines(p.Text) {
			fmt.Fprintf(&b, "  %s\n", logline.Escape(strings.TrimRight(line, "\n")))
		}
	}
	return b.String()
}

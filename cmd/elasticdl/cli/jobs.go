package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/local"
)

// errWaited is the cause of a wait that took too long.
var errWaited = errors.New("the job has not ended in time")

func listCommand() *cobra.Command {
	var format format
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List your jobs on this machine",
		Args:    cobra.NoArgs,
		PreRunE: format.check,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			jobs, err := local.List(cmd.Context())
			if err != nil {
				return err
			}
			if !format.json() {
				_, err := fmt.Fprint(cmd.OutOrStdout(), listText(jobs, time.Now()))
				return err
			}
			all := make([]json.RawMessage, len(jobs))
			for i, s := range jobs {
				if all[i], err = asJSON(s); err != nil {
					return err
				}
			}
			return printJSON(cmd.OutOrStdout(), all)
		}),
	}
	format.flags(cmd)
	return cmd
}

func statusCommand() *cobra.Command {
	var format format
	cmd := &cobra.Command{
		Use:               "status JOB",
		Short:             "Show how a job is",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJob,
		PreRunE:           format.check,
		RunE: does(func(cmd *cobra.Command, args []string) error {
			s, err := local.Status(cmd.Context(), args[0])
			if err != nil {
				return hint(err)
			}
			if !format.json() {
				_, err := fmt.Fprint(cmd.OutOrStdout(), statusText(s, time.Now()))
				return err
			}
			text, err := asJSON(s)
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), text)
		}),
	}
	format.flags(cmd)
	return cmd
}

func logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs JOB [POD]",
		Short: "Print the log of a pod (worker-0, ps-1, master), or of all of them",
		Args:  cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return completeJob(cmd, args, word)
			}
			var pods []string
			if s, err := local.Status(cmd.Context(), args[0]); err == nil {
				for _, p := range sorted(s.Pods) {
					pods = append(pods, podName(p))
				}
			}
			return pods, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: does(func(cmd *cobra.Command, args []string) error {
			pod := ""
			if len(args) == 2 {
				pod = strings.TrimPrefix(args[1], "elasticdl-"+args[0]+"-") // the name that it has on a cluster
			}
			return hint(local.Logs(cmd.Context(), args[0], pod, follow, cmd.OutOrStdout()))
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	return cmd
}

func waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:               "wait JOB",
		Short:             "Wait until a job has ended; exit code 0: succeeded, 1: not, 124: timeout",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJob,
		PreRunE: func(*cobra.Command, []string) error {
			if timeout < 0 {
				return fmt.Errorf("--timeout=%v: expected 0 or more", timeout)
			}
			return nil
		},
		RunE: does(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if timeout > 0 {
				limited, cancel := context.WithTimeoutCause(ctx, timeout, errWaited)
				defer cancel()
				ctx = limited
			}
			s, err := local.Wait(ctx, args[0])
			switch {
			case errors.Is(err, errWaited):
				return failure{fmt.Errorf("job %s: %w", args[0], err), exitTimeout}
			case err != nil:
				return hint(err)
			}
			line := fmt.Sprintf("job %s %s", s.Name, s.State)
			if s.Reason != "" {
				line += ": " + oneLine(s.Reason)
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
				return err
			}
			return outcome(cmd.Context(), s)
		}),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait at most, as 90s or 5m; 0: for ever")
	return cmd
}

func scaleCommand() *cobra.Command {
	spellings := []string{"num_workers", "num-workers"} // train takes both
	var workers int32
	cmd := &cobra.Command{
		Use:               "scale JOB --num_workers=N",
		Short:             "Change how many workers a job has",
		Long:              "Change how many workers a job has, within its --min_workers and --max_workers. Those that stay are not disturbed.",
		Example:           "  elasticdl scale test-mnist --num_workers=6",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJob,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.ContainsFunc(spellings, cmd.Flags().Changed):
				return errors.New("--num_workers is missing: how many workers there shall be")
			case workers < 1:
				return fmt.Errorf("--num_workers=%d: expected 1 or more", workers)
			}
			return nil
		},
		RunE: does(func(cmd *cobra.Command, args []string) error {
			before, err := local.Scale(cmd.Context(), args[0], int(workers))
			if err != nil {
				return hint(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d -> %s\n", args[0], before, count(int64(workers), "worker"))
			return err
		}),
	}
	for _, name := range spellings {
		cmd.Flags().Int32Var(&workers, name, 0, "workers that there shall be (required)")
	}
	cmd.Flags().MarkHidden(spellings[1])
	return cmd
}

func stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "stop JOB...",
		Short:             "Stop jobs, with all their processes",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeJob,
		RunE: does(func(cmd *cobra.Command, args []string) error {
			var failed []error
			for _, name := range args {
				failed = append(failed, stop(cmd, name))
			}
			return errors.Join(failed...)
		}),
	}
}

func stop(cmd *cobra.Command, name string) error {
	before, err := local.Status(cmd.Context(), name)
	if err != nil {
		return hint(err)
	}
	if local.Ended(before) {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "job %s had ended: %s\n", name, before.State)
		return err
	}
	if err := local.Stop(cmd.Context(), name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "job %s stopped\n", name)
	return err
}

// hint adds what to do to an error about a job that is not there.
func hint(err error) error {
	if errors.Is(err, local.ErrNotFound) && !strings.Contains(err.Error(), "log of pod") {
		return fmt.Errorf("%w; see elasticdl list", err)
	}
	return err
}

func completeJob(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 || cmd.Name() == "stop" {
		jobs, _ := local.List(cmd.Context()) // no jobs, no names
		for _, s := range jobs {
			names = append(names, s.Name+"\t"+s.State)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// format is how a command prints: text or json.
type format struct {
	name   string
	asJSON bool
}

func (f *format) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.name, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "the same as -o json")
}

func (f *format) check(*cobra.Command, []string) error {
	if f.name != "text" && f.name != "json" {
		return fmt.Errorf("--output=%s: expected text or json", f.name)
	}
	return nil
}

func (f *format) json() bool { return f.asJSON || f.name == "json" }

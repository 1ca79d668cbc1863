package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// errWaited is the cause of the end of a wait by --timeout.
var errWaited = errors.New("timed out")

// untilEnd is the value of --for that waits for the end of the job.
const untilEnd = "ended"

// waitEvery is the interval at which a wait for a condition looks at the job.
const waitEvery = time.Second

// conditionNames are the conditions that --for accepts, without regard to case.
var conditionNames = []string{journal.Admitted, journal.Running, journal.Degraded, journal.Checkpointed,
	journal.Complete, journal.Failed}

func waitCommand() *cobra.Command {
	var (
		format   format
		location location
		timeout  timeout
		until    string
		name     string
		wanted   bool
	)
	cmd := &cobra.Command{
		Use:   "wait JOB",
		Short: "Wait for the end of a job, or for a condition of it",
		Long: "Wait for the end of a job, or for a condition of it.\n\n" +
			"Exit codes: 0: the job has succeeded, or the condition holds; 1: the job has failed, or has " +
			"ended without the condition; 3: no such job; 124: timeout.",
		Example: "  elasticdl wait test-mnist --timeout=1h\n" +
			"  elasticdl wait test-mnist --for=running\n" +
			"  elasticdl wait test-mnist --for=condition=Degraded=False",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE: checks(format.check, location.check, timeout.check, func(*cobra.Command, []string) (err error) {
			name, wanted, err = parseFor(until)
			return err
		}),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			ctx, cancel := timeout.limit(cmd.Context(), errWaited)
			defer cancel()
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			var s *wire.JobStatus
			if name == "" {
				rests := func() { fmt.Fprintln(cmd.ErrOrStderr(), "note:", resting(args[0])) }
				s, err = home.Wait(ctx, args[0], rests)
			} else {
				s, err = waitFor(ctx, home, args[0], name, wanted)
			}
			switch {
			case errors.Is(err, errWaited) && name == "":
				return command.Fail(fmt.Errorf("job %s: the job has not ended in time%s", args[0],
					whyStuck(cmd.Context(), home, args[0])), command.ExitTimeout)
			case errors.Is(err, errWaited):
				return command.Fail(fmt.Errorf("job %s: %s in time%s", args[0], notYet(name, wanted),
					whyNot(s, name)), command.ExitTimeout)
			case err != nil:
				return hint(err)
			}
			if format.json() {
				err = printJSON(cmd.OutOrStdout(), statusJSON(s))
			} else if name == "" {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), verdict(s))
			} else if holds(s, name, wanted) {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "job %s: %s\n", args[0], conditionText(s, name))
			}
			if err != nil {
				return err
			}
			if name == "" {
				return outcome(cmd.Context(), s)
			}
			if !holds(s, name, wanted) {
				return fmt.Errorf("job %s: %s, and the job has ended: %s", args[0], notYet(name, wanted), verdict(s))
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&until, "for", untilEnd, "ended, a condition (admitted, running, degraded, checkpointed, "+
		"complete, failed), or condition=NAME[=True|False]")
	timeout.flags(cmd)
	format.flags(cmd)
	location.flags(cmd)
	return cmd
}

// parseFor returns the condition that --for names, "" for the end of the job, and its status.
func parseFor(text string) (name string, wanted bool, err error) {
	name, wanted = text, true
	if strings.EqualFold(text, untilEnd) {
		return "", true, nil
	}
	if rest, ok := strings.CutPrefix(text, "condition="); ok {
		var status string
		name, status, ok = strings.Cut(rest, "=")
		switch {
		case !ok || strings.EqualFold(status, "true"):
		case strings.EqualFold(status, "false"):
			wanted = false
		default:
			return "", false, fmt.Errorf("--for=%s: %q is no status of a condition; expected True or False", text,
				status)
		}
	}
	i := slices.IndexFunc(conditionNames, func(known string) bool { return strings.EqualFold(known, name) })
	if i < 0 {
		return "", false, fmt.Errorf("--for=%s: expected %s, or one of the conditions %s", text, untilEnd,
			strings.Join(conditionNames, ", "))
	}
	return conditionNames[i], wanted, nil
}

// waitFor returns the status of a job when a condition has a status, or when the job has ended.
// When ctx ends it returns the last status with the cause.
func waitFor(ctx context.Context, home home, of, name string, wanted bool) (*wire.JobStatus, error) {
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	var last *wire.JobStatus
	for {
		s, err := home.Status(ctx, of)
		if ctx.Err() != nil {
			return last, context.Cause(ctx)
		}
		if err != nil || holds(s, name, wanted) || job.State(s.State).Ended() {
			return s, err
		}
		last = s
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// condition returns a condition of a job; nil: it is not known yet.
func condition(s *wire.JobStatus, name string) *wire.Condition {
	for _, c := range s.GetConditions() {
		if c.Type == name {
			return c
		}
	}
	return nil
}

// holds reports whether a condition is known and has a status.
func holds(s *wire.JobStatus, name string, wanted bool) bool {
	c := condition(s, name)
	return c != nil && (c.Status == "True") == wanted
}

// conditionText returns a condition on one line, with its reason.
func conditionText(s *wire.JobStatus, name string) string {
	c := condition(s, name)
	text := fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason)
	if c.Message != "" {
		text += ": " + oneLine(c.Message)
	}
	return text
}

// notYet says that a condition has not the wanted status.
func notYet(name string, wanted bool) string {
	if wanted {
		return "it was not seen as " + name
	}
	return "it was not seen to cease to be " + name
}

// stuckLimit limits the question whether a job makes progress, after --timeout.
const stuckLimit = 5 * time.Second

// whyStuck returns as the end of a sentence that a job makes no progress; "": it makes some, or
// does not answer.
func whyStuck(ctx context.Context, home home, of string) string {
	ctx, cancel := context.WithTimeout(ctx, stuckLimit)
	defer cancel()
	s, err := home.Status(ctx, of)
	if err != nil || stuck(s, time.Now()) == "" {
		return ""
	}
	return ": " + stuck(s, time.Now())
}

// whyNot returns the last reason of a condition, as the end of a sentence.
func whyNot(s *wire.JobStatus, name string) string {
	if condition(s, name) == nil {
		return ""
	}
	return "; " + conditionText(s, name)
}

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/audit"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
)

func auditCommand() *cobra.Command {
	var (
		format   format
		location location
	)
	cmd := &cobra.Command{
		Use:   "audit JOB",
		Short: "Prove that each record was applied exactly once per epoch, or name those that were not",
		Long: "Prove from the ledger and the journal of a job that each record was applied exactly once per " +
			"epoch, or name those that were not.\n\n" +
			"The evidence is the last record of the master, some seconds old while the job runs. The exit code " +
			"is 0 if it is proved; of a job that has not ended, for what it has done so far.",
		Example:           "  elasticdl audit test-mnist\n  elasticdl audit test-mnist -o json",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE:           checks(format.check, location.check),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			a, err := auditOf(cmd.Context(), home, args[0])
			if err != nil {
				return hint(err)
			}
			if format.json() {
				err = printJSON(cmd.OutOrStdout(), a)
			} else {
				_, err = fmt.Fprint(cmd.OutOrStdout(), a.text())
			}
			if err != nil {
				return err
			}
			if a.Verdict != audit.Proved {
				return command.Fail(command.ErrSilent, command.ExitFailure)
			}
			return nil
		}),
	}
	format.flags(cmd)
	location.flags(cmd)
	return cmd
}

// audited is the output of `elasticdl audit -o json`.
type audited struct {
	APIVersion string `json:"apiVersion"`
	Job        string `json:"job"`
	State      string `json:"state"`
	audit.Report
}

// auditOf returns the audit of a job. The state is read before the evidence, which then has the
// end.
func auditOf(ctx context.Context, home home, name string) (audited, error) {
	s, err := home.Status(ctx, name)
	if err != nil {
		return audited{}, err
	}
	past, err := home.Journal(ctx, name)
	if err != nil {
		return audited{}, err
	}
	evidence := audit.Evidence{State: s.State, Program: s.Program != "", Journal: past}
	return audited{apiVersion, name, s.State, audit.Check(evidence)}, nil
}

// text returns the audit for people.
func (a audited) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s\n", oneLine(a.Job), oneLine(a.State), a.claim())
	if a.Verdict == audit.Unprovable {
		return b.String()
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	of := "without limit"
	if a.Epochs > 0 {
		of = fmt.Sprintf("of %d", a.Epochs)
	}
	line("epochs", "%d %s are finished; %s records are in the model", a.Finished, of, logline.Thousands(a.Applied))
	switch {
	case a.Open > 0 && a.Whole == 0:
		line("", "epoch %d has %s records", a.Finished+1, logline.Thousands(a.Open))
	case a.Open > 0:
		line("", "epoch %d has %s of %s records", a.Finished+1, logline.Thousands(a.Open), logline.Thousands(a.Whole))
	}
	if a.Rollbacks > 0 {
		line("rollbacks", "%s: %s records were lost with the model, and were due again", logline.Thousands(a.Rollbacks),
			logline.Thousands(a.Repeated))
	}
	line("journal", "%s ends of epochs", logline.Thousands(a.Ends))
	if c := a.Checkpoint; c.Number > 0 {
		line("checkpoint", "%d has %d epochs completely and %s records, by the ledgers of the model's holders",
			c.Number, c.Epochs, logline.Thousands(c.Records))
	}
	for _, f := range a.Findings {
		line(strings.ToUpper(string(f.Kind)), "%s", oneLine(f.Text))
	}
	if a.More > 0 {
		line("", "and %s more", logline.Thousands(a.More))
	}
	return b.String()
}

// claim returns the result in one sentence.
func (a audited) claim() string {
	switch a.Verdict {
	case audit.Unprovable:
		return "NOT PROVABLE: " + oneLine(a.Reason)
	case audit.Violated:
		return "VIOLATED: not every record was applied exactly once, or the evidence is damaged"
	case audit.Incomplete:
		return "INCOMPLETE: the job ended before all records were applied; none was applied twice"
	}
	if !job.State(a.State).Ended() {
		return fmt.Sprintf("PROVED so far: each of the %s records that are in the model was applied exactly once",
			logline.Thousands(a.Applied))
	}
	if a.Shards > 0 {
		return fmt.Sprintf("PROVED: each record of %s, from the first to the last, was applied exactly once in each "+
			"of %d epochs", count(int64(a.Shards), "shard"), a.Finished)
	}
	return fmt.Sprintf("PROVED: each of the %s records was applied exactly once in each of %d epochs",
		logline.Thousands(a.Records), a.Finished)
}

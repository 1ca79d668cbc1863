package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
)

// eventsEvery is the interval at which the events of a job are read with --follow.
const eventsEvery = time.Second

func eventsCommand() *cobra.Command {
	var (
		format   format
		location location
		follow   bool
		warnings bool
	)
	cmd := &cobra.Command{
		Use:   "events JOB",
		Short: "Print what has happened to a job: pods, worlds, checkpoints, rollbacks, waits",
		Long: "Print what has happened to a job, oldest first: pods that joined or ended and why, worlds, " +
			"checkpoints, rollbacks, waits, its end.\n\n" +
			"The events are those of the master's journal. It outlives the master, a suspension and a " +
			"resume. It has the newest thousand events; many of one kind drive out none of another.",
		Example:           "  elasticdl events test-mnist\n  elasticdl events test-mnist --follow --warnings",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE:           checks(format.check, location.check),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			p := eventPrinter{out: cmd.OutOrStdout(), json: format.json(), warnings: warnings}
			return hint(p.run(cmd.Context(), home, args[0], follow))
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print further events until the job ends")
	cmd.Flags().BoolVar(&warnings, "warnings", false, "only what went wrong")
	format.flags(cmd)
	location.flags(cmd)
	return cmd
}

// eventPrinter prints the entries of a journal: with json as one JSON object on each line.
type eventPrinter struct {
	out      io.Writer
	json     bool
	warnings bool
	// number of the last entry that was read
	last int64
}

// run prints the events of a job; with follow until it ends.
func (p *eventPrinter) run(ctx context.Context, home home, name string, follow bool) error {
	tick := time.NewTicker(eventsEvery)
	defer tick.Stop()
	for read := false; ; {
		over := true
		// before the journal, which then has the end
		if follow {
			s, err := home.Status(ctx, name)
			switch {
			case err != nil && read && missing(err): // it was deleted
				return nil
			case err != nil:
				return err
			}
			over = job.State(s.State).Ended()
		}
		all, err := home.Journal(ctx, name)
		if err != nil {
			return err
		}
		read = true
		if all.Last < p.last { // of another job of that name
			p.last = 0
		}
		if err := p.print(all.Entries); err != nil || over {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// missing reports whether an error says that there is no such job.
func missing(err error) bool {
	return errors.Is(err, local.ErrNotFound) || errors.Is(err, kube.ErrNotFound)
}

// print prints the entries that are new.
func (p *eventPrinter) print(all []journal.Entry) error {
	for _, e := range all {
		if e.N <= p.last {
			continue
		}
		p.last = e.N
		if p.warnings && !e.Kind.Warning() {
			continue
		}
		line := fmt.Sprintf("%s  %-20s %s", e.Time().Local().Format(time.DateTime), oneLine(string(e.Kind)),
			oneLine(e.Words()))
		if p.json {
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			line = string(text)
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			return err
		}
	}
	return nil
}

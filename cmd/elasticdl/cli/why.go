package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// causeWords has each cause of lost time as people read it, and its meaning.
var causeWords = map[goodput.Cause]struct{ name, meaning string }{
	goodput.Queue:         {"queue", "pods wait for quota"},
	goodput.Pending:       {"pending", "pods are not created, or have no node"},
	goodput.Image:         {"image", "nodes fetch the image"},
	goodput.Start:         {"start", "processes start, fetch code, import libraries"},
	goodput.Forming:       {"forming", "workers wait for a world, and take its state"},
	goodput.Data:          {"data", "workers wait for records"},
	goodput.Servers:       {"servers", "workers wait for parameter servers"},
	goodput.Communication: {"communication", "all ranks wait in a collective"},
	goodput.SlowestRank:   {"slowest rank", "ranks wait in a collective for a slower one"},
	goodput.Stuck:         {"stuck", "no rank gives a sign of life"},
	goodput.Checkpoint:    {"checkpoint", "a checkpoint interrupts workers"},
	goodput.Rollback:      {"rollback", "work was lost with the model, and is repeated"},
	goodput.MasterAway:    {"master away", "workers stand still without a master"},
	goodput.Failed:        {"failed", "workers have failed too often, and are not replaced"},
}

func whyCommand() *cobra.Command {
	var (
		format   format
		location location
		price    string
	)
	cmd := &cobra.Command{
		Use:   "why JOB",
		Short: "Show where the time of a job's workers went, and what it cost",
		Long: "Show where the time of a job's workers went: useful training, and the lost time by its cause.\n\n" +
			"The time is that of all workers that the job has asked for, from its start to its end, or now. " +
			"Time in which the job was suspended does not count.",
		Example:           "  elasticdl why test-mnist\n  elasticdl why test-mnist --price=2.50",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE: checks(format.check, location.check, func(*cobra.Command, []string) error {
			_, err := parsePrice(price)
			return err
		}),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			s, err := home.Status(cmd.Context(), args[0])
			if err != nil {
				return hint(err)
			}
			if s.Accounting == nil {
				return fmt.Errorf("job %s has no account of its workers' time: its master has not started, or is of "+
					"an older version", args[0])
			}
			each, err := parsePrice(price)
			if err != nil {
				return err
			}
			a := priced(s.Accounting, each)
			if format.json() {
				return printJSON(cmd.OutOrStdout(), asJSON(a))
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), whyText(a))
			return err
		}),
	}
	cmd.Flags().StringVar(&price, "price", "", "price of one worker for one hour, in any currency, as in 2.50: "+
		"shows what each part has cost")
	format.flags(cmd)
	location.flags(cmd)
	return cmd
}

// parsePrice returns the value of --price; 0: there is none.
func parsePrice(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	price, err := strconv.ParseFloat(text, 64)
	if err != nil || !(price > 0) || math.IsInf(price, 0) {
		return 0, fmt.Errorf("--price=%s: expected a number above 0, as in 2.50: the price of one worker for one hour",
			text)
	}
	return price, nil
}

// priced returns an account with its costs, at a price for one worker and hour; 0: without.
func priced(a *wire.Accounting, price float64) *wire.Accounting {
	a = proto.Clone(a).(*wire.Accounting)
	a.Price = price
	for _, l := range a.Lost {
		l.Cost = costOf(l.Ms, price)
	}
	return a
}

func costOf(ms int64, price float64) float64 {
	return float64(ms) / float64(time.Hour.Milliseconds()) * price
}

// whyText returns the output of `elasticdl why`.
func whyText(a *wire.Accounting) string {
	if a.WantedMs == 0 {
		return "The job has just started: there is nothing to tell yet.\n"
	}
	lost := slices.Clone(a.Lost)
	slices.SortStableFunc(lost, func(a, b *wire.LostTime) int { return cmp.Compare(b.Ms, a.Ms) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", whyLine(a, lost))
	row := func(name string, ms int64, meaning string) []string {
		cells := []string{name, worked(ms), shareOf(ms, a.WantedMs)}
		if a.Price > 0 {
			cells = append(cells, fmt.Sprintf("%.2f", costOf(ms, a.Price)))
		}
		return append(cells, meaning)
	}
	header := []string{"", "TIME", "SHARE"}
	if a.Price > 0 {
		header = append(header, "COST")
	}
	header[0] = "WORKERS"
	rows := [][]string{append(header, "MEANING"), row("trained", a.TrainingMs, "useful work")}
	for _, l := range lost {
		name, meaning := wordsOf(l.Cause)
		rows = append(rows, row(name, l.Ms, meaning))
	}
	b.WriteString(table(append(rows, row("all", a.WantedMs, "all workers that the job asked for"))))
	if len(a.Slow) > 0 {
		b.WriteString("\n")
	}
	for _, s := range a.Slow {
		slow := goodput.Slow{Worker: int(s.Worker), Step: s.StepMs, Median: s.MedianMs}
		fmt.Fprintf(&b, "worker-%d %s\n", s.Worker, slow.Pace())
	}
	return b.String()
}

// whyLine returns an account in one line. lost is sorted, the most first.
func whyLine(a *wire.Accounting, lost []*wire.LostTime) string {
	text := fmt.Sprintf("%s of %s of workers trained", shareOf(a.TrainingMs, a.WantedMs), worked(a.WantedMs))
	const most = 3
	var worst []string
	for _, l := range lost {
		// less is no reason for anything
		if len(worst) < most && 100*l.Ms >= a.WantedMs {
			name, _ := wordsOf(l.Cause)
			worst = append(worst, fmt.Sprintf("%s (%s)", name, worked(l.Ms)))
		}
	}
	if len(worst) == 0 {
		return text + "; little was lost"
	}
	return text + "; most was lost to: " + strings.Join(worst, ", ")
}

// wordsOf returns a cause and its meaning, as people read them.
func wordsOf(cause string) (name, meaning string) {
	c, ok := goodput.Parse(cause)
	if w, known := causeWords[c]; ok && known {
		return w.name, w.meaning
	}
	return oneLine(cause), "of a newer version"
}

// worked returns a time of workers as text: tenths of seconds below 10 s, otherwise seconds.
func worked(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// percent returns a share as text.
func shareOf(part, all int64) string { return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(all)) }

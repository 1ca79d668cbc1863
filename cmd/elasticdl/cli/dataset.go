package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/elasticdl/elasticdl/trainer/data/dataset"
)

func datasetCommand() *cobra.Command {
	var o dataset.Options
	cmd := &cobra.Command{
		Use:   "dataset NAME OUT",
		Short: "Write a public data set as RecordIO: " + strings.Join(dataset.Names(), ", "),
		Long: "Write a public data set as RecordIO files, in OUT/train and OUT/test.\n\nNAME is " +
			strings.Join(dataset.Names(), " or ") + ". Without --source it is downloaded from the public mirrors, all but cifar10.",
		Example:   "  elasticdl dataset mnist data/mnist",
		ValidArgs: dataset.Names(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("expected the name of a data set and a directory, as: elasticdl dataset mnist data/mnist")
			}
			if o.RecordsPerShard < 1 {
				return fmt.Errorf("--records_per_shard=%d: expected 1 or more", o.RecordsPerShard)
			}
			return nil
		},
		RunE: does(func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out = args[0], args[1]
			show := &steps{out: cmd.ErrOrStderr()}
			made, err := dataset.Make(cmd.Context(), o, show.show)
			show.close()
			if err != nil {
				return err
			}
			what := "written"
			if made.Existed {
				what = "there already"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s in %s/train, %s in %s/test\n",
				o.Name, what, count(made.Train, "record"), o.Out, count(made.Test, "record"), o.Out)
			return err
		}),
	}
	cmd.Flags().StringVar(&o.Source, "source", "", "directory or URL of the data set's files, gzip or not")
	cmd.Flags().IntVar(&o.RecordsPerShard, "records_per_shard", 4096, "records in a file")
	return cmd
}

// steps shows the steps of a long work: as bars on a terminal, as a line each elsewhere.
type steps struct {
	out  io.Writer
	step string
	bar  *progressbar.ProgressBar // nil if not on a terminal
}

func (b *steps) show(p dataset.Progress) {
	if p.Step != b.step {
		b.close()
		b.step = p.Step
		if f, ok := b.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			b.bar = progressbar.NewOptions64(p.Total, progressbar.OptionSetWriter(b.out), progressbar.OptionSetDescription(p.Step),
				progressbar.OptionShowBytes(p.Bytes), progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionFullWidth())
		} else {
			fmt.Fprintln(b.out, p.Step)
		}
	}
	if b.bar != nil {
		if p.Total > 0 {
			b.bar.ChangeMax64(p.Total)
		}
		b.bar.Set64(p.Done)
	}
}

// close ends the bar of the last step.
func (b *steps) close() {
	if b.bar != nil {
		b.bar.Exit()
		fmt.Fprintln(b.out)
	}
	b.bar = nil
}

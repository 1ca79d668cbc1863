package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// errNotAtRest is the error of a suspension whose pods have not ended within --timeout.
var errNotAtRest = errors.New("timed out while its pods were ending; they end in the background")

func suspendCommand() *cobra.Command {
	var (
		location location
		timeout  timeout
	)
	cmd := &cobra.Command{
		Use:   "suspend JOB",
		Short: "Suspend a job: write a checkpoint and stop its pods, until elasticdl resume",
		Long: `Suspend a job: it writes a checkpoint and stops its pods. Continue it with elasticdl resume.

On a cluster this sets spec.suspend of the master's Job, as kubectl patch and queues of jobs do. A
job without checkpoints starts from the beginning when it is resumed.`,
		Example:           "  elasticdl suspend test-mnist\n  elasticdl resume test-mnist",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE:           checks(location.check, timeout.check),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			ctx, cancel := timeout.limit(cmd.Context(), errNotAtRest)
			defer cancel()
			return suspend(ctx, cmd, &location, args[0])
		}),
	}
	timeout.flags(cmd)
	location.flags(cmd)
	return cmd
}

func suspend(ctx context.Context, cmd *cobra.Command, location *location, name string) error {
	home, err := location.find(cmd, name)
	if err != nil {
		return hint(err)
	}
	noteStack(ctx, cmd, home, name, "may undo that; to keep it: "+
		"pulumi config set --path job.suspend true && pulumi up")
	out := cmd.OutOrStdout()
	said := sayWaits(ctx, home, name, out)
	err = home.Suspend(ctx, name, func(pods int) {
		fmt.Fprintf(out, "job %s: waiting for %s to end\n", name, count(int64(pods), "pod"))
	})
	said()
	switch {
	case errors.Is(err, errNotAtRest):
		return command.Fail(fmt.Errorf("job %s: %w", name, err), command.ExitTimeout)
	case err != nil:
		return hint(err)
	}
	s, err := home.Status(ctx, name)
	if err != nil {
		return hint(err)
	}
	_, err = fmt.Fprintln(out, rested(s, time.Now()))
	return err
}

// rested returns the line about a job that was suspended.
func rested(s *wire.JobStatus, now time.Time) string {
	s = plain(s)
	if s.State != string(job.Suspended) { // it has ended meanwhile
		return verdict(s)
	}
	words := "job " + s.Name + " suspended"
	if c := s.GetCheckpoint(); c.GetNumber() > 0 {
		return words + " at checkpoint " + saved(s, now)
	}
	if s.Type == string(job.Run) {
		return words + programSaved(s)
	}
	if c := s.GetCheckpoint(); c.GetUnread() {
		return words + ": whether it has a checkpoint is not known: " + unreadable(c)
	}
	if s.RecordsDone > 0 {
		words += ": it has no checkpoint, and starts over when it is resumed"
	}
	return words
}

// unreadable returns the reason why it is not known whether a job has checkpoints.
func unreadable(c *wire.Checkpoint) string {
	return cmp.Or(c.Problem, c.Dir+" was not read yet")
}

// stopped returns the line about a job of this machine that was stopped, and from which checkpoint
// resume would continue.
func stopped(s *wire.JobStatus) string {
	s = plain(s)
	words, c := "job "+s.Name+" stopped", s.GetCheckpoint()
	switch {
	case s.State == string(job.Succeeded): // meanwhile
		return verdict(s)
	case s.Type == string(job.Run):
		return words + programSaved(s)
	case c == nil:
		return words
	case c.Number == 0 && c.Unread:
		return words + "; whether it has a checkpoint is not known: " + unreadable(c)
	case c.Number == 0 && c.Problem != "":
		return words + "; it has no checkpoint, and resume starts over: " + oneLine(c.Problem)
	case c.Number == 0:
		return words + "; it has no checkpoint: elasticdl resume starts over"
	}
	return fmt.Sprintf("%s; elasticdl resume continues from its newest checkpoint, %d, with %s of the "+
		"%s that were trained on",
		words, c.Number, logline.Thousands(c.Records), count(max(c.Records, s.RecordsDone), "record"))
}

// programSaved returns what a stopped or suspended program has saved, as the end of a sentence.
func programSaved(s *wire.JobStatus) string {
	switch c := s.GetSaved(); {
	case s.Unsaved != "" && c != nil:
		return fmt.Sprintf("; its newest checkpoint is that of round %s in %s, as %s",
			logline.Thousands(c.Round), oneLine(c.Path), oneLine(s.Unsaved))
	case s.Unsaved != "":
		return "; nothing was saved: " + oneLine(s.Unsaved)
	case c != nil:
		return fmt.Sprintf("; checkpoint of round %s saved to %s", logline.Thousands(c.Round), oneLine(c.Path))
	}
	return "; its processes had time to save their state: elasticdl resume restarts them"
}

// sayWaits prints, every endingEvery, what a job waits for, until stop is called.
func sayWaits(ctx context.Context, home home, name string, out io.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(endingEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if s, err := home.Status(ctx, name); err == nil && s.Waiting != "" {
					fmt.Fprintf(out, "job %s: %s\n", name, oneLine(s.Waiting))
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// goesOn returns from which checkpoint a job of this machine continues, as the end of a sentence;
// "": it makes no checkpoints.
func goesOn(ctx context.Context, name string) string {
	j, err := local.Job(name)
	switch {
	case err != nil:
		return ""
	case j.Runs():
		return "; its program starts again, from what it has saved itself"
	case j.CheckpointDir == "":
		return ""
	}
	d, err := bucket.Opener(ctx).Open(j.CheckpointDir)
	if err != nil {
		return fmt.Sprintf("; the checkpoint from which it continues is not known yet: %v", err)
	}
	all, err := d.Commits()
	if err != nil {
		return fmt.Sprintf("; the checkpoint from which it continues is not known yet: %v", err)
	}
	for _, e := range all {
		if errors.Is(e.Err, checkpoint.ErrDamaged) {
			continue
		}
		if e.Err != nil {
			return fmt.Sprintf("; the checkpoint from which it continues is not known yet: %v", e.Err)
		}
		if e.Complete {
			return fmt.Sprintf("; it continues from checkpoint %d, in %s", e.Number, j.CheckpointDir)
		}
	}
	return "; it starts over: there is no checkpoint in " + j.CheckpointDir
}

// resting returns the message of a command that waits for a suspended job.
func resting(name string) string {
	return fmt.Sprintf("job %s is suspended; to continue it: elasticdl resume %[1]s", name)
}

func resumeCommand() *cobra.Command {
	var (
		location location
		detach   bool
	)
	cmd := &cobra.Command{
		Use:   "resume JOB",
		Short: "Continue a suspended, stopped, failed or killed job from its newest checkpoint",
		Long: `Continue a suspended, stopped, failed or killed job from its newest checkpoint, or from the
beginning if it has none.

On a cluster a failed job is created again and continues from the checkpoints in its own
directory. A program (elasticdl run) continues from its own checkpoints. On this machine the
command shows the job until its end, unless --detach is given.`,
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE:           location.check,
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			if client, ok := home.(*kube.Client); ok {
				return resumeThere(cmd, client, args[0])
			}
			return resumeHere(cmd, args[0], detach)
		}),
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "return at once; always on for jobs of a cluster")
	location.flags(cmd)
	return cmd
}

func resumeHere(cmd *cobra.Command, name string, detach bool) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	from := goesOn(ctx, name)
	o := local.StartOptions{Detach: detach, Check: resumableHere}
	if j, err := local.Job(name); err == nil && j.Runs() && !detach {
		o.Display = streamsOf(cmd, j, false)
	}
	h, j, err := local.Resume(ctx, name, o)
	if err != nil {
		return hint(err)
	}
	if detach || !j.Runs() {
		fmt.Fprintf(out, "job %s resumed (%s)%s\n", j.Name, crew(j), from)
	}
	if detach {
		return nil
	}
	_, err = attend(ctx, h, j, out)
	return err
}

func resumeThere(cmd *cobra.Command, client *kube.Client, name string) error {
	if err := client.Resume(cmd.Context(), name); err != nil {
		return hint(err)
	}
	if client.OfStack(cmd.Context(), name) {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"note: job %s belongs to a Pulumi stack: if the configuration has job.suspend, pulumi up "+
				"suspends it again; to keep it: pulumi config rm --path job.suspend\n", name)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(),
		"job %s resumed; see elasticdl status, logs -f and wait %[1]s%[2]s\n", name, client.Flags())
	return err
}

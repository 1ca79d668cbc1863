package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/agent"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// refresh is the interval between two requests for the status of a job.
const refresh = 250 * time.Millisecond

func trainCommand() *cobra.Command {
	return jobCommand(job.Train, "train --job_name=NAME --model_def=MODEL --training_data=PATH [flags]",
		"Train a model")
}

func evaluateCommand() *cobra.Command {
	return jobCommand(job.Evaluate,
		"evaluate --job_name=NAME --model_def=MODEL --checkpoint_dir_for_init=PATH --validation_data=PATH [flags]",
		"Evaluate a trained model")
}

func predictCommand() *cobra.Command {
	return jobCommand(job.Predict,
		"predict --job_name=NAME --model_def=MODEL --checkpoint_dir_for_init=PATH "+
			"--prediction_data=PATH --prediction_outputs=FILE.csv [flags]",
		"Write the predictions of a trained model")
}

// jobCommand returns a command that starts a job. Package job defines its flags, and reports all
// problems at once.
func jobCommand(t job.Type, use, short string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	c := jobFlags(t, cmd.Flags())
	if t == job.Run {
		c.FromEnviron(os.Environ())
	}
	cmd.Flags().SetInterspersed(t != job.Run)
	cmd.RunE = command.Does(func(cmd *cobra.Command, args []string) error {
		if t != job.Run && slices.Equal(args, []string{"help"}) {
			return cmd.Help()
		}
		c.Words(args)
		return startJob(cmd, c)
	})
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s.\n\nUsage:\n  elasticdl %s\n%s", cmd.Short, cmd.Use, job.Help(t))
	})
	return cmd
}

// startJob starts the job of a parsed command line.
func startJob(cmd *cobra.Command, c *job.Command) error {
	err := c.Settle()
	var client *kube.Client
	var code *uploading
	switch {
	case c.Runtime == "kubernetes":
		var e, missing error
		client, e = settleCluster(cmd, c)
		code, missing = settleUpload(c)
		err = errors.Join(err, e, missing)
	case c.Runtime == "local":
		missing := settleHere(c)
		if missing == nil { // otherwise paths are not complete
			missing = checkHere(c.Job)
		}
		err = errors.Join(err, missing)
	}
	if err == nil {
		err = checkStdin(cmd, c, c.Detach || c.Runtime != "local")
	}
	if err != nil {
		return command.Usage(err)
	}
	if c.Runtime == "kubernetes" {
		noteModel(c)
		c.Notes = append(c.Notes, c.Job.Unkept()...)
	} else {
		noteFormer(c)
		noteGPUs(c, agent.GPUs())
	}
	for _, note := range c.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
	switch {
	case c.DryRun && c.Runtime == "kubernetes":
		if err := rehearse(cmd, client, c.Job); err != nil {
			return err
		}
		fallthrough
	case c.DryRun:
		return printJSON(cmd.OutOrStdout(), c.Job)
	case c.Runtime == "kubernetes" && c.YAML != "":
		return writeManifests(c.Job, c.YAML, cmd.OutOrStdout())
	}
	out := cmd.OutOrStdout()
	if c.Format == "json" {
		out = cmd.ErrOrStderr()
	}
	var s *wire.JobStatus
	if c.Runtime == "kubernetes" {
		s, err = submit(cmd, client, c, code, out)
	} else {
		s, err = startHere(cmd, c, out)
	}
	if c.Format == "json" && s != nil {
		err = errors.Join(err, printJSON(cmd.OutOrStdout(), statusJSON(s)))
	}
	return err
}

// startHere runs a job on this machine. It returns the job's status at its end, or at its start if
// it is left running.
func startHere(cmd *cobra.Command, c *job.Command, out io.Writer) (*wire.JobStatus, error) {
	ctx, o := cmd.Context(), local.StartOptions{Detach: c.Detach}
	if c.Job.Runs() && !c.Detach {
		o.Display = streamsOf(cmd, c.Job, c.Format == "json")
	}
	h, err := local.Start(ctx, c.Job, o)
	if errors.Is(err, job.ErrRunning) {
		return nil, fmt.Errorf("--job_name=%s: %w; give another name, or: elasticdl stop %[1]s", c.Job.Name, err)
	} else if errors.Is(err, local.ErrSuspended) {
		return nil, fmt.Errorf("--job_name=%s: %w; give another name, or: elasticdl resume %[1]s, "+
			"or elasticdl stop %[1]s", c.Job.Name, err)
	} else if err != nil {
		return nil, err
	}
	if c.Detach {
		fmt.Fprintf(out, "job %s started (%s); see elasticdl status, logs, scale, wait and stop "+
			"%[1]s\n%[3]s\n", c.Job.Name, crew(c.Job), c.Job.Places())
		return local.Status(ctx, c.Job.Name)
	}
	if !c.Job.Runs() {
		fmt.Fprintln(out, c.Job.Places())
	}
	return attend(ctx, h, c.Job, out)
}

// settleHere sets the default directories of checkpoints and of the model on this machine, and
// makes all paths absolute.
func settleHere(c *job.Command) error {
	j := c.Job
	dir, err := local.CheckpointDir(j.Name)
	if err != nil { // Settle has reported the invalid name
		return nil
	}
	if j.Trains() {
		j.SettleCheckpoints(dir, c.Given)
		if j.Output == "" {
			if j.Output, err = local.ResultDir(j.Name); err != nil {
				return err
			}
		}
	}
	return makeAbsolute(j)
}

// makeAbsolute makes the paths of a job absolute, and sets the working directory of its program, as
// the job may be resumed in another directory. The program's own arguments stay unchanged: they are
// relative to its working directory.
func makeAbsolute(j *job.Job) error {
	paths := []*string{
		&j.TrainingData, &j.ValidationData, &j.PredictionData, &j.Output, &j.PredictionOutputs,
		&j.CheckpointDir, &j.CheckpointDirForInit, &j.TensorBoardLogDir,
		&j.Program.Workdir, &j.Program.LogDir,
	}
	for _, path := range paths {
		if *path == "" || job.InBucket(*path) || filepath.IsAbs(*path) {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("%s: %w", *path, noDirectory(err))
		}
		*path = whole
	}
	if file := j.Envs[program.ErrorFileVariable]; file != "" && j.Runs() {
		whole, err := filepath.Abs(file)
		if err != nil {
			return noDirectory(err)
		}
		j.Envs[program.ErrorFileVariable] = whole
	}
	if !j.Runs() || j.Program.Workdir != "" {
		return nil
	}
	dir, err := os.Getwd()
	if err == nil {
		_, err = os.Stat(dir)
	}
	j.Program.Workdir = dir
	if err != nil {
		return noDirectory(err)
	}
	return nil
}

// noDirectory explains the error that this command's working directory cannot be determined.
func noDirectory(err error) error {
	return fmt.Errorf("the current directory does not exist any more: change to another, or give "+
		"absolute paths and --workdir: %w", err)
}

// resumableHere returns an error if a job of this machine cannot be resumed because its program,
// data or model no longer exists.
func resumableHere(j *job.Job) error {
	if j.Runs() {
		return programHere(j)
	}
	var problems []error
	for _, d := range [][2]string{{"training_data", j.TrainingData},
		{"validation_data", j.ValidationData}, {"prediction_data", j.PredictionData}} {
		if d[1] == "" {
			continue
		}
		if err := readable(d[1], j.DataReaderParams); err != nil {
			problems = append(problems, fmt.Errorf("--%s=%s: %w", d[0], d[1], err))
		}
	}
	if j.ModelDef != "" {
		if _, err := zoo.Lookup(j.ModelDef); err != nil {
			problems = append(problems, fmt.Errorf("--model_def=%s: %w", j.ModelDef, err))
		}
	}
	return errors.Join(problems...)
}

// noteFormer adds a note if the checkpoints of an earlier job of the same name are moved.
func noteFormer(c *job.Command) {
	if from, to := local.FormerCheckpoints(c.Job.Name); from != "" {
		c.Notes = append(c.Notes, fmt.Sprintf("the checkpoints of the earlier job %s are moved "+
			"from %s to %s, which is replaced", c.Job.Name, from, to))
	}
}

// noteGPUs adds a note that all workers share the GPUs of this machine; here is their number.
func noteGPUs(c *job.Command, here int) {
	if n := c.Job.Program.GPUs; c.Job.Runs() && n > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("no effect with --runtime=local: --gpus=%d: all "+
			"workers see the GPUs of this machine (%d)", n, here))
	}
}

// crew describes a job by its pods, as "AllreduceStrategy, 4 workers".
func crew(j *job.Job) string {
	how := cmp.Or(string(j.Strategy), string(j.Type))
	if j.Runs() {
		how = string(j.Type)
	}
	parts := []string{how, count(int64(j.NumWorkers), "worker")}
	if j.NumPS > 0 {
		parts = append(parts, count(int64(j.NumPS), "server"))
	}
	return strings.Join(parts, ", ")
}

// attend shows a job until it has ended, and returns its final status. The end of ctx stops the
// job.
func attend(ctx context.Context, h *local.Handle, j *job.Job, out io.Writer) (*wire.JobStatus, error) {
	ctx, release := withReader(ctx)
	defer release()
	if j.Runs() {
		return attendProgram(ctx, h, j)
	}
	status, err := watching{
		ending: func(say func(string)) func() { return whileEnding(ctx, h, j, say) },
		status: func(ctx context.Context) (*wire.JobStatus, error) { return local.Status(ctx, j.Name) },
		wait:   h.Wait,
		every:  refresh,
	}.show(ctx, out)
	if err != nil {
		return nil, err
	}
	return status, conclude(ctx, status, j, out)
}

// conclude prints the summary of a job that has ended.
func conclude(ctx context.Context, s *wire.JobStatus, j *job.Job, out io.Writer) error {
	logs := ""
	if home, err := local.Home(); err == nil {
		logs = filepath.Join(home, "jobs", j.Name, "logs")
	}
	if _, err := io.WriteString(out, summary(s, logs)); err != nil {
		return err
	}
	return outcome(ctx, s)
}

// outcome returns the error with the exit code of a job's end, which was printed before; nil: the
// job has succeeded.
func outcome(ctx context.Context, s *wire.JobStatus) error {
	switch {
	case s.State == string(job.Succeeded):
		return nil
	case ctx.Err() != nil:
		return command.Fail(command.ErrSilent, command.ExitInterrupted)
	case s.ExitCode > 0:
		return command.Fail(command.ErrSilent, int(s.ExitCode))
	}
	return command.Fail(command.ErrSilent, command.ExitFailure)
}

// checkHere returns the problems that a job would have on this machine: a missing model or data, or
// a directory that cannot be written to.
func checkHere(j *job.Job) error {
	var problems []error
	add := func(flag, value string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s=%s: %w", flag, value, err))
		}
	}
	if dir := j.TensorBoardLogDir; dir != "" {
		add("tensorboard_log_dir", dir, role.Writable(dir))
	}
	if port := j.MetricsPort; port != 0 {
		add("metrics_port", strconv.Itoa(port), local.PortFree(port))
	}
	if j.Runs() {
		return errors.Join(append(problems, programHere(j))...)
	}
	if j.ModelDef != "" {
		_, err := zoo.Lookup(j.ModelDef)
		add("model_def", j.ModelDef, err)
	}
	for _, d := range [][2]string{{"training_data", j.TrainingData},
		{"validation_data", j.ValidationData}, {"prediction_data", j.PredictionData}} {
		if d[1] != "" {
			add(d[0], d[1], readable(d[1], j.DataReaderParams))
		}
	}
	if j.Output != "" {
		add("output", j.Output, role.Writable(j.Output))
	}
	if out := j.PredictionOutputs; out != "" {
		add("prediction_outputs", out, role.WritableOutputs(out))
	}
	if dir := j.CheckpointDir; dir != "" {
		err := role.Writable(dir)
		if err == nil {
			err = unused(j)
		}
		add("checkpoint_dir", dir, err)
	}
	if from := j.CheckpointDirForInit; from != "" {
		add("checkpoint_dir_for_init", from, hasModel(j))
	}
	return errors.Join(problems...)
}

// hasModel returns an error if a job cannot start from its initial model, as far as file names and
// the header of an exported model show.
func hasModel(j *job.Job) error {
	from, err := bucket.Opener(context.Background()).Find(j.CheckpointDirForInit)
	if err != nil || from.File == "" {
		return err
	}
	model, err := zoo.Lookup(j.ModelDef)
	if err != nil { // reported before
		return nil
	}
	layout, err := model.Layout()
	if err != nil {
		return err
	}
	return from.Check(layout)
}

// unused returns an error if a job's checkpoint directory belongs to another job. The default
// directory does not: checkpoints of an earlier job of the same name are moved when the job starts.
func unused(j *job.Job) error {
	if own, err := local.CheckpointDir(j.Name); err != nil || own == j.CheckpointDir {
		return nil
	}
	d, err := bucket.Opener(context.Background())(j.CheckpointDir)
	if err != nil {
		return err
	}
	permit := checkpoint.Permit{TakeOver: j.CheckpointDirTakeOver, Look: local.Standing}
	if err := d.MayClaim(checkpoint.Owner{Name: j.Name}, permit); err != nil {
		return err
	}
	return d.Unused()
}

func readable(path string, params map[string]string) error {
	r, err := data.Open(path, params, role.Buckets(context.Background()))
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Peek()
}

func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
